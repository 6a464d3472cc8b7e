r"""A pendulum let go from a large angle.

.. math::
    \ddot\theta + \sin\theta = 0, \qquad \theta(0) = 2.5, \qquad \dot\theta(0) = 0, \qquad 0 \le t \le 20,

with time in units of :math:`\sqrt{l/g}`.

Reference: :math:`\theta = 2\arcsin(k\,\mathrm{sn}(t + K, k))` with :math:`k = \sin(\theta_0/2)` and K the complete elliptic
integral (M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 1964, 16.23.1 for the series of sn).
"""

import math

import torch
from scipy.special import ellipk

import sciml
from sciml import d


class Pendulum(sciml.Problem):
    """The angle of a pendulum over some two periods, far from harmonic."""

    domain = sciml.Interval(t=(0, 20))
    fields = ["theta"]
    amplitude = 2.5
    conditions = [sciml.Initial(theta=lambda self: self.amplitude, theta_t=0.0)]

    @sciml.equation
    def motion(self, theta, t):
        return d(theta, t, t) + torch.sin(theta)

    def rate(self, t, state):
        """The right-hand side, written by hand for an integrator: what the equation is held against."""
        theta, speed = state
        return [speed, -math.sin(theta)]

    def reference(self, t):
        m = torch.sin(torch.as_tensor(self.amplitude, dtype=t.dtype) / 2) ** 2
        whole, other = (torch.as_tensor(ellipk(each.numpy()))[..., None] for each in (m, 1 - m))
        odd = 2 * torch.arange(40, dtype=torch.float64) + 1
        nome = torch.exp(-math.pi * other / whole)
        terms = nome ** (odd / 2) / (1 - nome**odd) * torch.sin(odd * math.pi / (2 * whole) * (t[:, None] + whole))
        return 2 * torch.asin(2 * math.pi / whole[..., 0] * terms.sum(1))

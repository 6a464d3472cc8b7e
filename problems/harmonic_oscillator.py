r"""The harmonic oscillator over two periods.

.. math::
    \ddot u + \omega^2 u = 0, \qquad u(0) = 1, \quad \dot u(0) = 0, \qquad 0 \le t \le 4\pi,

in units in which :math:`\omega = 1`.

Reference: the exact solution :math:`\cos\omega t`.
"""

import math

import torch

import sciml
from sciml import d


class HarmonicOscillator(sciml.Problem):
    """A mass on a spring, released at rest."""

    domain = sciml.Interval(t=(0, 4 * math.pi))
    fields = ["u"]
    omega = 1.0
    conditions = [sciml.Initial(u=1.0, u_t=0.0)]

    @sciml.equation
    def newton(self, u, t):
        return d(u, t, t) + self.omega**2 * u

    def reference(self, t):
        return torch.cos(self.omega * t)

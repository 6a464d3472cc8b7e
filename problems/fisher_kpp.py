r"""A population that spreads: the front of Fisher, Kolmogorov, Petrovsky and Piskunov.

.. math::
    u_t = u_{xx} + u(1 - u), \qquad -20 \le x \le 30, \qquad 0 \le t \le 8,

with the start and the ends of the front that travels at the speed :math:`5/\sqrt 6`.

Reference: :math:`u = \big(1 + e^{(x - 5t/\sqrt 6)/\sqrt 6}\big)^{-2}` (M. J. Ablowitz and
A. Zeppetella, Bulletin of Mathematical Biology 41, 1979).
"""

import math

import torch

import sciml
from sciml import d


def front(x, t):
    """The exact solution."""
    return torch.sigmoid(-(x - 5 / math.sqrt(6) * t) / math.sqrt(6)) ** 2


class FisherKPP(sciml.Problem):
    """A reaction and diffusion front."""

    domain = sciml.Box(x=(-20, 30), t=(0, 8))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: front(x, 0.0)),
        sciml.Dirichlet(u=front, on=domain.faces("x")),
    ]

    @sciml.equation
    def balance(self, u, x, t):
        return d(u, t) - d(u, x, x) - u * (1 - u)

    def reference(self, x, t):
        return front(x, t)

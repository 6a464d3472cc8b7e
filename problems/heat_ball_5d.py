r"""Heat in a ball of five coordinates.

.. math::
    u_t = \Delta u, \qquad |x| < 1 \ \text{in } \mathbb R^5, \qquad 0 \le t \le 1,

with the values of the exact solution at the start and on the sphere.

Reference: :math:`u = e^{-t} \cos\bigl((x_1 + \dots + x_5)/\sqrt 5\bigr)`, a plane wave that dies away.
"""

import torch

import sciml
from sciml import d

NAMES = ("a", "b", "c", "e", "f")
BALL = sciml.Ball((0.0,) * 5, 1.0, names=NAMES)


def wave(a, b, c, e, f, t):
    """The solution."""
    return torch.exp(-t) * torch.cos((a + b + c + e + f) / 5**0.5)


class HeatBall5D(sciml.Problem):
    """Heat conduction in five coordinates of space and one of time."""

    domain = BALL * sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda a, b, c, e, f: wave(a, b, c, e, f, 0 * a)),
        sciml.Dirichlet(u=wave, on=domain.boundary),
    ]

    @sciml.equation
    def conduction(self, u, a, b, c, e, f, t):
        return d(u, t) - sciml.laplacian(u, a, b, c, e, f)

    def reference(self, a, b, c, e, f, t):
        return wave(a, b, c, e, f, t)

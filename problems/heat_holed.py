r"""A plate with a hole cools in time.

.. math::
    u_t = u_{xx} + u_{yy}, \qquad 0 \le t \le \tfrac12,

on the unit square without the disk of radius 0.2 about its middle, with the values of the exact solution on the square's
sides and its flux through the rim of the hole.

Reference: the exact solution :math:`u = \sin 2x\,\cos y\,e^{-5t}`.
"""

import torch

import sciml
from sciml import d

PLATE = (sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.2)) * sciml.Interval(t=(0, 0.5))


def exact(x, y, t):
    """The solution."""
    return torch.sin(2 * x) * torch.cos(y) * torch.exp(-5 * t)


def flux(x, y, t):
    """Along the normal out of the plate, which points to the middle of the hole."""
    u_x = 2 * torch.cos(2 * x) * torch.cos(y)
    u_y = -torch.sin(2 * x) * torch.sin(y)
    return (u_x * (0.5 - x) + u_y * (0.5 - y)) / 0.2 * torch.exp(-5 * t)


class HeatHoled(sciml.Problem):
    """Heat conduction round a hole."""

    domain = PLATE
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(2 * x) * torch.cos(y)),
        sciml.Dirichlet(u=exact, on=PLATE.boundary - PLATE.piece("circle")),
        sciml.Neumann(u=flux, on=PLATE.piece("circle")),
    ]

    @sciml.equation
    def conduction(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y)

    def reference(self, x, y, t):
        return exact(x, y, t)

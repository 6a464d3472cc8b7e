r"""Poisson's equation in five dimensions.

.. math::
    \Delta u = f \quad\text{on } [0, 1]^5, \qquad u = g \quad\text{on its boundary},

with f and g of the reference.

Reference: :math:`u = \sin(x_1 + \dots + x_5) + \cos(\tfrac12 |x|^2)` by construction.
"""

import torch

import sciml
from sciml import d


def exact(a, b, c, e, f):
    """The exact solution."""
    return torch.sin(a + b + c + e + f) + torch.cos((a**2 + b**2 + c**2 + e**2 + f**2) / 2)


class Poisson5D(sciml.Problem):
    """A linear problem with more coordinates than any grid has."""

    domain = sciml.Box(a=(0, 1), b=(0, 1), c=(0, 1), e=(0, 1), f=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=exact, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, a, b, c, e, f):
        square = a**2 + b**2 + c**2 + e**2 + f**2
        source = -5 * torch.sin(a + b + c + e + f) - 5 * torch.sin(square / 2) - square * torch.cos(square / 2)
        return sum(d(u, each, each) for each in (a, b, c, e, f)) - source

    def reference(self, a, b, c, e, f):
        return exact(a, b, c, e, f)

r"""Poisson's equation on the unit square.

.. math::
    -\Delta u = 2\pi^2 \sin \pi x\,\sin \pi y \quad\text{in } [0, 1]^2, \qquad u = 0 \quad\text{on its boundary.}

Reference: the exact solution :math:`\sin \pi x\,\sin \pi y`.
"""

import torch

import sciml
from sciml import d


class PoissonSquare(sciml.Problem):
    """A membrane under a smooth load."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        load = 2 * torch.pi**2 * torch.sin(torch.pi * x) * torch.sin(torch.pi * y)
        return -d(u, x, x) - d(u, y, y) - load

    def reference(self, x, y):
        return torch.sin(torch.pi * x) * torch.sin(torch.pi * y)

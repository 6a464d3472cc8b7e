r"""A plate that is clamped all around.

.. math::
    \Delta^2 u = f \quad\text{on } [0, 1]^2, \qquad u = \partial_n u = 0 \quad\text{on its boundary},

with the load f that belongs to the reference.

Reference: :math:`u = \sin^2 \pi x\,\sin^2 \pi y` by construction.
"""

import torch

import sciml
from sciml import d


class PlateBiharmonic(sciml.Problem):
    """An equation of fourth order in two coordinates."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary), sciml.Neumann(u=0.0, on=domain.boundary)]

    @sciml.equation
    def bending(self, u, x, y):
        p, q = torch.cos(2 * torch.pi * x), torch.cos(2 * torch.pi * y)
        load = 4 * torch.pi**4 * (4 * p * q - p - q)
        return d(u, x, x, x, x) + 2 * d(u, x, x, y, y) + d(u, y, y, y, y) - load

    def reference(self, x, y):
        return torch.sin(torch.pi * x) ** 2 * torch.sin(torch.pi * y) ** 2

r"""A plate that cools from its rim.

.. math::
    u_t = \kappa\,(u_{xx} + u_{yy}), \qquad u(x, y, 0) = \sin \pi x\,\sin 2\pi y, \qquad u = 0 \text{ on the rim of } [0, 1]^2,
    \qquad 0 \le t \le 1,

with diffusivity :math:`\kappa = 0.1`.

Reference: the exact solution :math:`e^{-5\kappa\pi^2 t}\,\sin \pi x\,\sin 2\pi y`.
"""

import torch

import sciml
from sciml import d


class HeatPlate(sciml.Problem):
    """Heat conduction in two dimensions."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = ["u"]
    kappa = 0.1
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(torch.pi * x) * torch.sin(2 * torch.pi * y)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def conduction(self, u, x, y, t):
        return d(u, t) - self.kappa * (d(u, x, x) + d(u, y, y))

    def reference(self, x, y, t):
        return torch.exp(-5 * self.kappa * torch.pi**2 * t) * torch.sin(torch.pi * x) * torch.sin(2 * torch.pi * y)

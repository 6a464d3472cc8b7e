r"""Heat in a plate of fine stripes, conducting far worse across them.

.. math::
    u_t = \frac{u_{xx}}{(500\pi)^2} + \frac{u_{yy}}{\pi^2}, \qquad u = 0 \text{ on the rim of } [0, 1]^2, \qquad 0 \le t \le 5,

from :math:`u = \sin 20\pi x\,\sin \pi y`: ten waves along x, half of one along y.

Reference: the exact solution :math:`\sin 20\pi x\,\sin \pi y\,e^{-(1 + 0.04^2)\,t}`.
"""

import torch

import sciml
from sciml import d


class HeatLayers(sciml.Problem):
    """Anisotropic heat conduction with fine structure along one direction."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 5))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(20 * torch.pi * x) * torch.sin(torch.pi * y)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def conduction(self, u, x, y, t):
        return d(u, t) - d(u, x, x) / (500 * torch.pi) ** 2 - d(u, y, y) / torch.pi**2

    def reference(self, x, y, t):
        return torch.sin(20 * torch.pi * x) * torch.sin(torch.pi * y) * torch.exp(-(1 + 0.04**2) * t)

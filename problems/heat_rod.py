r"""A rod that cools from both ends.

.. math::
    u_t = \kappa\,u_{xx}, \qquad u(x, 0) = \sin \pi x, \qquad u(0, t) = u(1, t) = 0, \qquad 0 \le t \le 1,

with diffusivity :math:`\kappa = 0.4`.

Reference: the exact solution :math:`e^{-\kappa\pi^2 t}\,\sin \pi x` (J. Fourier, 1822).
"""

import torch

import sciml
from sciml import d


class HeatRod(sciml.Problem):
    """Heat conduction in one dimension."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    kappa = 0.4
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def conduction(self, u, x, t):
        return d(u, t) - self.kappa * d(u, x, x)

    def reference(self, x, t):
        return torch.exp(-self.kappa * torch.pi**2 * t) * torch.sin(torch.pi * x)

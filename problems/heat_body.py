r"""Steady heat in a cube with four round cavities, in three dimensions.

.. math::
    \Delta u = 0 \ \text{ on } [0, 1]^3 \text{ without four balls of radius } 0.18,

with the temperature given on the walls of the cube and the heat flux through those of the cavities.

Reference: the exact solution :math:`u = e^{\sqrt 2 x} \sin y \cos z`.
"""

import torch

import sciml

CENTRES = ((0.3, 0.3, 0.38), (0.7, 0.7, 0.38), (0.3, 0.7, 0.62), (0.7, 0.3, 0.62))
RADIUS, RATE = 0.18, 2**0.5
BODY = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1))
for number, centre in enumerate(CENTRES):
    BODY = BODY - sciml.Ball(centre, RADIUS, piece=f"cavity {number}")
CAVITIES = BODY.piece(*(f"cavity {number}" for number in range(len(CENTRES))))


def temperature(x, y, z):
    """The solution."""
    return torch.exp(RATE * x) * torch.sin(y) * torch.cos(z)


def flux(x, y, z):
    """Along the normal into the nearest cavity."""
    centres = torch.tensor(CENTRES, dtype=x.dtype, device=x.device)
    away = torch.stack([x, y, z], dim=1)[:, None] - centres
    nearest = away.square().sum(2).argmin(1)
    normal = -away[torch.arange(len(x), device=x.device), nearest] / RADIUS
    slopes = RATE * torch.sin(y) * torch.cos(z), torch.cos(y) * torch.cos(z), -torch.sin(y) * torch.sin(z)
    return torch.exp(RATE * x) * sum(part * slope for part, slope in zip(normal.unbind(1), slopes, strict=True))


class HeatBody(sciml.Problem):
    """Laplace's equation in a body with cavities."""

    domain = BODY
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=temperature, on=BODY.boundary - CAVITIES), sciml.Neumann(u=flux, on=CAVITIES)]

    @sciml.equation
    def laplace(self, u, x, y, z):
        return sciml.laplacian(u, x, y, z)

    def reference(self, x, y, z):
        return temperature(x, y, z)

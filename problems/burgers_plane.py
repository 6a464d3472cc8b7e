r"""A shock that forms along the diagonal of the plane.

.. math::
    u_t + \tfrac12 u\,(u_x + u_y) = \tfrac{\nu}{2}\,(u_{xx} + u_{yy}), \qquad u(x, y, 0) = -\sin \pi (x + y),

on :math:`[0, 2]^2`, periodic in both directions, :math:`0 \le t \le 1`, with :math:`\nu = 0.05/\pi`. It depends on
:math:`x + y` alone, which nothing in it is told.

Reference: Burgers' equation in one dimension along :math:`x + y`, by the Cole-Hopf transformation and Gauss-Hermite
quadrature with 200 nodes (C. Basdevant and others, Computers and Fluids 14, 1986).
"""

import math

import numpy as np
import torch

import sciml
from sciml import d

PLACES, WEIGHTS = (torch.from_numpy(each)[:, None] for each in np.polynomial.hermite.hermgauss(200))


class BurgersPlane(sciml.Problem):
    """Burgers' equation in two dimensions."""

    domain = sciml.Box(x=(0, 2), y=(0, 2), t=(0, 1))
    fields = ["u"]
    viscosity = 0.05 / math.pi
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: -torch.sin(torch.pi * (x + y))),
    ]

    @sciml.equation
    def momentum(self, u, x, y, t):
        return d(u, t) + u * (d(u, x) + d(u, y)) / 2 - self.viscosity / 2 * (d(u, x, x) + d(u, y, y))

    def reference(self, x, y, t):
        along = x + y - 2 * torch.sqrt(self.viscosity * t.clamp_min(1e-300)) * PLACES
        # The largest exponent is taken out: what it is cancels.
        exponent = -torch.cos(torch.pi * along) / (2 * torch.pi * self.viscosity)
        weights = WEIGHTS * torch.exp(exponent - exponent.amax(0))
        return -(torch.sin(torch.pi * along) * weights).sum(0) / weights.sum(0)

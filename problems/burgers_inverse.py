r"""The speed and the viscosity of Burgers' equation from 2,000 scattered measurements with noise.

.. math::
    u_t + c\,u\,u_x = \nu\,u_{xx}, \qquad -1 \le x \le 1, \qquad 0 \le t \le 1,

with c and :math:`\nu` unknown, and neither start nor boundary given: only u at 2,000 places and times, with noise of
standard deviation 0.01 (M. Raissi, P. Perdikaris and G. E. Karniadakis, Journal of Computational Physics 378, 2019).
The samples were made with c = 1 and :math:`\nu = 0.01/\pi`. Nothing has a unit.

Data: ``data/burgers_inverse/samples.csv``, made by ``python -m tests.benchmarks.samples burgers_inverse``.

Reference: the Cole-Hopf solution of ``burgers.py`` for c = 1 and :math:`\nu = 0.01/\pi`, by Gauss-Hermite quadrature
with 100 nodes.
"""

import math
from pathlib import Path

import numpy as np
import torch

import sciml
from sciml import d


class BurgersInverse(sciml.Problem):
    """Two unknown constants of a partial differential equation, from data alone."""

    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u"]
    speed, viscosity = sciml.Unknown(0.5), sciml.Unknown(0.02, lower=0)

    @sciml.equation
    def momentum(self, u, x, t):
        return d(u, t) + self.speed * u * d(u, x) - self.viscosity * d(u, x, x)

    def measurements(self):
        """Scattered values of u."""
        return sciml.read_csv(Path(__file__).parent.parent / "data" / "burgers_inverse" / "samples.csv")

    def reference(self, x, t):
        nu = 0.01 / math.pi
        z, weight = (torch.from_numpy(values) for values in np.polynomial.hermite.hermgauss(100))
        y = x[:, None] - torch.sqrt(4 * nu * t)[:, None] * z
        # Only ratios of the exponentials matter: without the largest none overflows, however small the viscosity.
        exponent = -torch.cos(torch.pi * y) / (2 * torch.pi * nu)
        density = weight * torch.exp(exponent - exponent.max(1, keepdim=True).values)
        return -(torch.sin(torch.pi * y) * density).sum(1) / density.sum(1)

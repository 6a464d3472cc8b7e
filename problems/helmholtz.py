r"""Standing waves on a square.

.. math::
    -\Delta u - k^2 u = k^2 \sin kx\,\sin ky \quad\text{on } [0, 1]^2, \qquad u = 0 \quad\text{on its boundary},

with the wavenumber :math:`k = 4\pi`.

Reference: :math:`u = \sin kx\,\sin ky` by construction.
"""

import math

import torch

import sciml
from sciml import d


class Helmholtz(sciml.Problem):
    """An equation that is not definite."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    k = 4 * math.pi
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        source = self.k**2 * torch.sin(self.k * x) * torch.sin(self.k * y)
        return -d(u, x, x) - d(u, y, y) - self.k**2 * u - source

    def reference(self, x, y):
        return torch.sin(self.k * x) * torch.sin(self.k * y)

r"""Burgers' equation: a sine steepens into a shock of finite width.

.. math::
    u_t + u\,u_x = \nu\,u_{xx}, \qquad u(x, 0) = -\sin \pi x, \qquad u(\pm 1, t) = 0, \qquad 0 \le t \le 1,

with viscosity :math:`\nu = 0.01/\pi`.

Reference: the Cole-Hopf solution (J. D. Cole, Quarterly of Applied Mathematics 9, 1951) with :math:`\eta = \sqrt{4\nu t}\,z`,

.. math::
    u = -\frac{\int \sin\pi(x-\eta)\,f(x-\eta)\,e^{-z^2}dz}{\int f(x-\eta)\,e^{-z^2}dz}, \qquad
    f(y) = e^{-\cos(\pi y)/(2\pi\nu)},

by Gauss-Hermite quadrature with 100 nodes, which is exact to rounding.
"""

import math

import numpy as np
import torch

import sciml
from sciml import d


class Burgers(sciml.Problem):
    """Viscous Burgers equation on [-1, 1] × [0, 1]."""

    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u"]
    nu = 0.01 / math.pi
    conditions = [
        sciml.Initial(u=lambda x: -torch.sin(torch.pi * x)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def momentum(self, u, x, t):
        return d(u, t) + u * d(u, x) - self.nu * d(u, x, x)

    def reference(self, x, t):
        z, weight = (torch.from_numpy(values)[:, None] for values in np.polynomial.hermite.hermgauss(100))
        y = x - torch.sqrt(4 * self.nu * t) * z
        # Only ratios of the exponentials matter: without the largest none overflows, however small the viscosity.
        exponent = -torch.cos(torch.pi * y) / (2 * torch.pi * self.nu)
        density = weight * torch.exp(exponent - exponent.max(0).values)
        return -(torch.sin(torch.pi * y) * density).sum(0) / density.sum(0)

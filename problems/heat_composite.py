r"""Two materials in time: a core that conducts well in a shell that does not, with a heat flux through their contact.

.. math::
    u_t = k\,\Delta u - u + 4\,e^{-t} \ \text{for } r < 1, \quad v_t = \Delta v - v \ \text{for } 1 < r < 2, \quad t \le 1,

with :math:`k = 5`: a source in the core dies away, and both lose heat to what is above them. At the contact :math:`r = 1` the
temperatures and the fluxes :math:`k\,u_r = v_r` are equal; along the rim :math:`r = 2` the temperature falls from one side to
the other.

Reference: the exact solution, a rod that is heated and a cylinder in a uniform gradient (H. S. Carslaw and J. C. Jaeger,
Conduction of Heat in Solids, Oxford 1959, section 16.4),

.. math::
    u = e^{-t} \Bigl(\log 4 + \frac{1 - r^2}{k} + \frac{2\,x}{1 + k}\Bigr), \qquad
    v = e^{-t} \Bigl(\log 4 - \log r^2 + x + \frac{1 - k}{1 + k}\,\frac{x}{r^2}\Bigr).
"""

import math

import torch

import sciml
from sciml import d

K = 5.0
TIME = sciml.Interval(t=(0, 1))
ROD, CORE = sciml.Disk((0, 0), 2, piece="rim"), sciml.Disk((0, 0), 1)
SHELL = ROD - CORE


def core(x, y, t):
    """The temperature of the core."""
    return torch.exp(-t) * (math.log(4) + (1 - x * x - y * y) / K + 2 * x / (1 + K))


def shell(x, y, t):
    """The temperature of the shell."""
    square = x * x + y * y
    return torch.exp(-t) * (math.log(4) - torch.log(square) + x + (1 - K) / (1 + K) * x / square)


class HeatComposite(sciml.Problem):
    """Heat conduction through two materials in time, a field for either."""

    domain = ROD * TIME
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x, y: core(x, y, 0 * x), v=lambda x, y: shell(x, y, 0 * x)),
        sciml.Dirichlet(v=shell, on=domain.boundary),
    ]

    @sciml.equation(on=CORE * TIME)
    def in_core(self, u, x, y, t):
        return d(u, t) - K * sciml.laplacian(u, x, y) + u - 4 * torch.exp(-t)

    @sciml.equation(on=SHELL * TIME)
    def in_shell(self, v, x, y, t):
        return d(v, t) - sciml.laplacian(v, x, y) + v

    @sciml.condition(on=(CORE * TIME).interface(SHELL * TIME))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=(CORE * TIME).interface(SHELL * TIME))
    def flux(self, u, v, x, y, normal):
        (u_x, u_y), (v_x, v_y), (n_x, n_y, _) = sciml.grad(u, x, y), sciml.grad(v, x, y), normal
        return K * (n_x * u_x + n_y * u_y) - (n_x * v_x + n_y * v_y)

    def reference(self, x, y, t):
        return {"u": core(x, y, t), "v": shell(x, y, t)}

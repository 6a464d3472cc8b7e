r"""A membrane that swings for long, stiffer along one direction.

.. math::
    u_{tt} = u_{xx} + 2\,u_{yy}, \qquad u = 0 \text{ on the rim of } [0, 1]^2, \qquad 0 \le t \le 10,

from :math:`u = \sin \pi x \sin \pi y + \tfrac12 \sin 2\pi x \sin 3\pi y` at rest: waves with the speeds 1 and
:math:`\sqrt 2`, more than thirty periods of the faster mode.

Reference: the exact sum of standing waves with frequencies :math:`\pi\sqrt 3` and :math:`\pi\sqrt{22}`.
"""

import math

import torch

import sciml
from sciml import d


class Membrane(sciml.Problem):
    """Waves in two dimensions over a long time."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 10))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: Membrane.shape(x, y, 1, 1) + Membrane.shape(x, y, 2, 3) / 2, u_t=0.0),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @staticmethod
    def shape(x, y, m, n):
        return torch.sin(m * torch.pi * x) * torch.sin(n * torch.pi * y)

    @sciml.equation
    def motion(self, u, x, y, t):
        return d(u, t, t) - d(u, x, x) - 2 * d(u, y, y)

    def reference(self, x, y, t):
        slow, fast = torch.cos(torch.pi * math.sqrt(3) * t), torch.cos(torch.pi * math.sqrt(22) * t)
        return self.shape(x, y, 1, 1) * slow + self.shape(x, y, 2, 3) / 2 * fast

r"""A wave that is carried round a ring many times.

.. math::
    u_t + \beta u_x = 0, \qquad u(x, 0) = \sin x, \qquad u(0, t) = u(2\pi, t), \qquad 0 \le t \le 1,

with the speed :math:`\beta = 30`, for which plain physics-informed networks fail.

Reference: :math:`\sin(x - \beta t)`; the failure in A. Krishnapriyan and others, Characterizing possible failure modes in
physics-informed neural networks, NeurIPS 2021.
"""

import math

import torch

import sciml
from sciml import d


class Advection(sciml.Problem):
    """Transport on a ring, nearly five times round."""

    domain = sciml.Box(x=(0, 2 * math.pi), t=(0, 1))
    fields = ["u"]
    beta = 30.0
    conditions = [sciml.Initial(u=lambda x: torch.sin(x)), sciml.Periodic("x")]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + self.beta * d(u, x)

    def reference(self, x, t):
        return torch.sin(x - self.beta * t)

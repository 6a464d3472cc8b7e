r"""Flow behind a grid.

.. math::
    u\,u_x + v\,u_y + p_x = \tfrac1{Re}\Delta u, \qquad u\,v_x + v\,v_y + p_y = \tfrac1{Re}\Delta v, \qquad u_x + v_y = 0

on :math:`[-\tfrac12, 1] \times [-\tfrac12, \tfrac32]` with Re = 40, the velocity given on the boundary and
the pressure on the right.

Reference: :math:`u = 1 - e^{\lambda x}\cos 2\pi y`, :math:`v = \tfrac{\lambda}{2\pi} e^{\lambda x}\sin 2\pi y`,
:math:`p = \tfrac12(1 - e^{2\lambda x})`, :math:`\lambda = Re/2 - \sqrt{Re^2/4 + 4\pi^2}` (L. I. G. Kovasznay, Proceedings of
the Cambridge Philosophical Society 44, 1948).
"""

import math

import torch

import sciml
from sciml import d


def flow(x, y):
    """The exact velocity and pressure at Re = 40."""
    rate = 20 - math.sqrt(400 + 4 * math.pi**2)
    decay, angle = torch.exp(rate * x), 2 * math.pi * y
    u, v = 1 - decay * torch.cos(angle), rate / (2 * math.pi) * decay * torch.sin(angle)
    return {"u": u, "v": v, "p": (1 - decay**2) / 2 + 0 * y}


class Kovasznay(sciml.Problem):
    """The steady equations of Navier and Stokes in two coordinates."""

    domain = sciml.Box(x=(-0.5, 1.0), y=(-0.5, 1.5))
    fields = ["u", "v", "p"]
    reynolds = 40.0
    conditions = [
        sciml.Dirichlet(u=lambda x, y: flow(x, y)["u"], v=lambda x, y: flow(x, y)["v"], on=domain.boundary),
        sciml.Dirichlet(p=lambda x, y: flow(x, y)["p"], on=domain.face(x=1.0), name="outflow"),
    ]

    @sciml.equation
    def along(self, u, v, p, x, y):
        return u * d(u, x) + v * d(u, y) + d(p, x) - (d(u, x, x) + d(u, y, y)) / self.reynolds

    @sciml.equation
    def across(self, u, v, p, x, y):
        return u * d(v, x) + v * d(v, y) + d(p, y) - (d(v, x, x) + d(v, y, y)) / self.reynolds

    @sciml.equation
    def continuity(self, u, v, x, y):
        return d(u, x) + d(v, y)

    def reference(self, x, y):
        return flow(x, y)

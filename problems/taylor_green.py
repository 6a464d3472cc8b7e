r"""Taylor-Green vortices at Reynolds number 100.

.. math::
    u_t + u\,u_x + v\,u_y + p_x = \tfrac{1}{100}(u_{xx} + u_{yy}), \quad v_t + u\,v_x + v\,v_y + p_y
    = \tfrac{1}{100}(v_{xx} + v_{yy}), \quad u_x + v_y = 0

on :math:`[0, 2\pi]^2`, periodic in both directions, for :math:`0 \le t \le 1`, from :math:`u = \cos x \sin y` and
:math:`v = -\sin x \cos y`. Only the gradient of the pressure counts, so its mean is given.

Reference: the exact solution :math:`u = \cos x \sin y\,e^{-2\nu t}`, :math:`v = -\sin x \cos y\,e^{-2\nu t}`,
:math:`p = -\tfrac14 (\cos 2x + \cos 2y)\,e^{-4\nu t}` (G. I. Taylor and A. E. Green, Proceedings of the Royal Society A 158,
1937).
"""

import torch

import sciml
from sciml import d

TURN = 2 * torch.pi


class TaylorGreen(sciml.Problem):
    """Decaying vortices, Navier and Stokes' equations in time."""

    domain = sciml.Box(x=(0, TURN), y=(0, TURN), t=(0, 1))
    fields = ["u", "v", "p"]
    viscosity = 0.01
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: torch.cos(x) * torch.sin(y), v=lambda x, y: -torch.sin(x) * torch.cos(y)),
        sciml.Mean(p=0.0),
    ]

    @sciml.equation
    def momentum_x(self, u, v, p, x, y, t):
        return d(u, t) + u * d(u, x) + v * d(u, y) + d(p, x) - self.viscosity * (d(u, x, x) + d(u, y, y))

    @sciml.equation
    def momentum_y(self, u, v, p, x, y, t):
        return d(v, t) + u * d(v, x) + v * d(v, y) + d(p, y) - self.viscosity * (d(v, x, x) + d(v, y, y))

    @sciml.equation
    def continuity(self, u, v, x, y):
        return d(u, x) + d(v, y)

    def reference(self, x, y, t):
        decay = torch.exp(-2 * self.viscosity * t)
        return {
            "u": torch.cos(x) * torch.sin(y) * decay,
            "v": -torch.sin(x) * torch.cos(y) * decay,
            "p": -(torch.cos(2 * x) + torch.cos(2 * y)) / 4 * decay**2,
        }

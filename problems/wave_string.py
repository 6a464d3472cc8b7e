r"""A string that is plucked in two of its modes.

.. math::
    u_{tt} = c^2 u_{xx}, \qquad u(x, 0) = \sin \pi x + \tfrac12 \sin 4\pi x, \qquad u_t(x, 0) = 0, \qquad
    u(0, t) = u(1, t) = 0, \qquad 0 \le t \le 1,

with the speed c = 2.

Reference: d'Alembert's solution, :math:`\sin \pi x \cos c\pi t + \tfrac12 \sin 4\pi x \cos 4c\pi t` (J. d'Alembert, 1747).
"""

import torch

import sciml
from sciml import d


class WaveString(sciml.Problem):
    """The wave equation, of second order in time."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    speed = 2.0
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x) + 0.5 * torch.sin(4 * torch.pi * x), u_t=0.0),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t, t) - self.speed**2 * d(u, x, x)

    def reference(self, x, t):
        slow, fast = (torch.sin(k * torch.pi * x) * torch.cos(k * self.speed * torch.pi * t) for k in (1, 4))
        return slow + 0.5 * fast

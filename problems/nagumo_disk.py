r"""A nerve impulse crosses a disk: Nagumo's equation, the front of an excitable medium.

.. math::
    u_t = D\,\Delta u + k\,u\,(1 - u)(u - a), \qquad x^2 + y^2 < 1, \qquad 0 \le t \le 10,

with D = 0.02, k = 2 and a = 0.2, and the front's own values along the rim.

Reference: the travelling front :math:`u = 1/(1 + e^{z/w})`, :math:`z = (3 x + 4 y)/5 + \tfrac12 - c\,t`,
:math:`w = \sqrt{2D/k}`, :math:`c = \sqrt{kD/2}\,(1 - 2a)` (J. D. Murray, Mathematical Biology I, Springer 2002, section 13.5).
"""

import torch

import sciml
from sciml import d

D, K, A = 0.02, 2.0, 0.2
WIDTH, SPEED = (2 * D / K) ** 0.5, (K * D / 2) ** 0.5 * (1 - 2 * A)
DISK = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 10))


def front(x, y, t):
    """The solution."""
    return torch.sigmoid(-((3 * x + 4 * y) / 5 + 0.5 - SPEED * t) / WIDTH)


class NagumoDisk(sciml.Problem):
    """Reaction and diffusion, a nonlinear equation on a disk in time."""

    domain = DISK
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: front(x, y, 0 * x)),
        sciml.Dirichlet(u=front, on=DISK.boundary),
    ]

    @sciml.equation
    def excitation(self, u, x, y, t):
        return d(u, t) - D * sciml.laplacian(u, x, y) - K * u * (1 - u) * (u - A)

    def reference(self, x, y, t):
        return front(x, y, t)

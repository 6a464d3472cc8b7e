r"""Kuramoto's and Sivashinsky's equation: long waves grow, short ones are damped, and the sum is chaotic.

.. math::
    u_t + \alpha\,u u_x + \beta\,u_{xx} + \gamma\,u_{xxxx} = 0, \qquad u(x, 0) = \cos x\,(1 + \sin x), \qquad 0 \le t \le 1,

periodic on :math:`[0, 2\pi]`, with :math:`\alpha = 100/16`, :math:`\beta = 100/16^2`, :math:`\gamma = 100/16^4`: the
figures of S. Wang, S. Sankaran and P. Perdikaris, Computer Methods in Applied Mechanics and Engineering 421, 2024.
Nothing has a unit.

Reference: ``data/kuramoto_sivashinsky/reference.h5``, 1,024 Fourier modes and exponential time differencing of fourth
order; 7e-9 from half of both.
"""

from pathlib import Path

import torch

import sciml
from sciml import d


class KuramotoSivashinsky(sciml.Problem):
    """An equation of fourth order, until its waves are chaotic."""

    domain = sciml.Box(x=(0, 2 * torch.pi), t=(0, 1))
    fields = ["u"]
    alpha, beta, gamma = 100 / 16, 100 / 16**2, 100 / 16**4
    conditions = [sciml.Initial(u=lambda x: torch.cos(x) * (1 + torch.sin(x))), sciml.Periodic("x")]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "kuramoto_sivashinsky" / "reference.h5")

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + self.alpha * u * d(u, x) + self.beta * d(u, x, x) + self.gamma * d(u, x, x, x, x)

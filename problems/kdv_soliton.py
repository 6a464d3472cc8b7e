r"""Two solitary waves of Korteweg and de Vries: the taller one overtakes the other, and both come out as they went in.

.. math::
    u_t + 6 u\,u_x + u_{xxx} = 0, \qquad -20 \le x \le 40, \qquad -1 \le t \le 1,

with the start and the ends of the solution with the wavenumbers 1 and 2.

Reference: :math:`u = 2\,\partial_x^2 \ln F`, :math:`F = 1 + e_1 + e_2 + \tfrac19 e_1 e_2`, :math:`e_k = e^{kx - k^3 t}` (R.
Hirota, Physical Review Letters 27, 1971).
"""

import torch

import sciml
from sciml import d


def waves(x, t):
    """The exact solution; nothing overflows, for the largest exponential is taken out."""
    k, speed, factor = (
        torch.tensor(column, dtype=torch.float64)[:, None] for column in ([0, 1, 2, 3], [0, 1, 8, 9], [1, 1, 1, 1 / 9])
    )
    exponent = k * x - speed * t
    share = factor * torch.exp(exponent - exponent.max(0).values.detach())
    share = share / share.sum(0)
    mean = (share * k).sum(0)
    return 2 * ((share * k**2).sum(0) - mean**2)


class KdVSoliton(sciml.Problem):
    """Solitons: an equation of third order in space."""

    domain = sciml.Box(x=(-20, 40), t=(-1, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: waves(x, -torch.ones_like(x))),
        sciml.Dirichlet(u=waves, on=domain.faces("x")),
        sciml.Neumann(u=0.0, on=domain.face(x=40)),
    ]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + 6 * u * d(u, x) + d(u, x, x, x)

    def reference(self, x, t):
        return waves(x, t)

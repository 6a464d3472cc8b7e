r"""Gray and Scott's reaction: a pulse feeds on what surrounds it and splits in two.

.. math::
    u_t = d_u\,u_{xx} + f\,(1 - u) - u v^2, \qquad v_t = d_v\,v_{xx} - l\,v + u v^2, \qquad 0 \le t \le 60,

periodic on [-10, 10], from :math:`u = 1 - \tfrac12 e^{-x^2/4}`, :math:`v = \tfrac14 e^{-x^2/4}`, with
:math:`d_u = 1`, :math:`d_v = 0.01`, :math:`f = 0.02`, :math:`l = 0.0862`: the pulses of A. Doelman, T. J. Kaper and
P. A. Zegeling, Nonlinearity 10, 1997. Nothing has a unit.

Reference: ``data/gray_scott/reference.h5``, 1,024 Fourier modes and exponential time differencing of fourth order;
3e-10 from half of both.
"""

from pathlib import Path

import torch

import sciml
from sciml import d


class GrayScott(sciml.Problem):
    """Two fields that react and spread at very different pace."""

    domain = sciml.Box(x=(-10, 10), t=(0, 60))
    fields = ["u", "v"]
    spread_u, spread_v, feed, loss = 1.0, 0.01, 0.02, 0.0862
    conditions = [
        sciml.Initial(u=lambda x: 1 - torch.exp(-(x**2) / 4) / 2, v=lambda x: torch.exp(-(x**2) / 4) / 4),
        sciml.Periodic("x"),
    ]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "gray_scott" / "reference.h5")

    @sciml.equation
    def food(self, u, v, x, t):
        return d(u, t) - self.spread_u * d(u, x, x) - self.feed * (1 - u) + u * v**2

    @sciml.equation
    def pulse(self, u, v, x, t):
        return d(v, t) - self.spread_v * d(v, x, x) + self.loss * v - u * v**2

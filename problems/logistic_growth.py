r"""Logistic growth towards a capacity.

.. math::
    \dot u = r\,u\,\Big(1 - \frac{u}{K}\Big), \qquad u(0) = u_0, \qquad 0 \le t \le 6,

with rate :math:`r = 1`, capacity :math:`K = 1` and :math:`u_0 = 0.1`.

Reference: the exact solution :math:`K/(1 + (K/u_0 - 1)\,e^{-rt})` (P.-F. Verhulst, 1838).
"""

import torch

import sciml
from sciml import d


class LogisticGrowth(sciml.Problem):
    """A population with limited resources."""

    domain = sciml.Interval(t=(0, 6))
    fields = ["u"]
    rate, capacity, start = 1.0, 1.0, 0.1
    conditions = [sciml.Initial(u=lambda self: self.start)]

    @sciml.equation
    def growth(self, u, t):
        return d(u, t) - self.rate * u * (1 - u / self.capacity)

    def reference(self, t):
        return self.capacity / (1 + (self.capacity / self.start - 1) * torch.exp(-self.rate * t))

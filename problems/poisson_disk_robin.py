r"""A disk that is heated inside and cools through its rim.

.. math::
    -\Delta u = 1 \quad\text{on } |x| < 1, \qquad \partial_n u + \alpha u = 0 \quad\text{on the rim},

with the coefficient :math:`\alpha = 2` of heat transfer.

Reference: :math:`u = (1 - x^2 - y^2)/4 + 1/(2\alpha)`.
"""

import sciml
from sciml import d


class PoissonDiskRobin(sciml.Problem):
    """A domain that is no box, and a condition of the third kind."""

    domain = sciml.Disk((0.0, 0.0), 1.0)
    fields = ["u"]
    alpha = 2.0
    conditions = [sciml.Robin(u=0.0, coefficient=lambda self: self.alpha, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return -d(u, x, x) - d(u, y, y) - 1.0

    def reference(self, x, y):
        return (1 - x**2 - y**2) / 4 + 1 / (2 * self.alpha)

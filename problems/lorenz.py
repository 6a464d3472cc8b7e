r"""Lorenz' equations, the first strange attractor, over times that an integrator can be trusted with.

.. math::
    \dot x = \sigma\,(y - x), \qquad \dot y = x\,(\rho - z) - y, \qquad \dot z = x y - \beta z, \qquad 0 \le t \le 3,

from (-8, 7, 27) with :math:`\sigma = 10`, :math:`\rho = 28`, :math:`\beta = 8/3`, all without unit (E. N. Lorenz,
Journal of the Atmospheric Sciences 20, 1963).

Reference: ``data/lorenz/reference.h5``, Radau at a relative tolerance of 1e-13 from time to time; 5e-12 from that at
1e-11.
"""

from pathlib import Path

import sciml
from sciml import d


class Lorenz(sciml.Problem):
    """Convection of three modes, chaotic."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["x", "y", "z"]
    sigma, rho, beta = 10.0, 28.0, 8 / 3
    conditions = [sciml.Initial(x=-8.0, y=7.0, z=27.0)]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "lorenz" / "reference.h5")

    @sciml.equation
    def convection(self, x, y, t):
        return d(x, t) - self.sigma * (y - x)

    @sciml.equation
    def across(self, x, y, z, t):
        return d(y, t) - x * (self.rho - z) + y

    @sciml.equation
    def upward(self, x, y, z, t):
        return d(z, t) - x * y + self.beta * z

    def rate(self, t, state):
        """The right-hand side, written by hand for an integrator: what the equations are held against."""
        x, y, z = state
        return [self.sigma * (y - x), x * (self.rho - z) - y, x * y - self.beta * z]

r"""Robertson's three reactions, whose rates differ by nine powers of ten.

.. math::
    \dot a = -k_1 a + k_3 b c, \qquad \dot b = k_1 a - k_3 b c - k_2 b^2, \qquad \dot c = k_2 b^2, \qquad 0 \le t \le 10^4,

from (1, 0, 0), with :math:`k_1 = 0.04`, :math:`k_2 = 3\cdot 10^7`, :math:`k_3 = 10^4`: concentrations as shares,
rates per unit of time (H. H. Robertson, in Numerical Analysis: An Introduction, 1966). The solution moves on all
scales of time from 1e-4 on.

Reference: ``data/robertson/reference.h5``, Radau at a relative tolerance of 1e-12 from time to time, at times spaced
by their logarithm; 1e-13 from that at 1e-10.
"""

from pathlib import Path

import sciml
from sciml import d


class Robertson(sciml.Problem):
    """A stiff system over eight decades of time."""

    domain = sciml.Interval(t=(0, 1e4))
    fields = ["a", "b", "c"]
    slow, fast, back = 0.04, 3e7, 1e4
    conditions = [sciml.Initial(a=1.0, b=0.0, c=0.0)]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "robertson" / "reference.h5")

    @sciml.equation
    def first(self, a, b, c, t):
        return d(a, t) + self.slow * a - self.back * b * c

    @sciml.equation
    def second(self, a, b, c, t):
        return d(b, t) - self.slow * a + self.back * b * c + self.fast * b**2

    @sciml.equation
    def third(self, b, c, t):
        return d(c, t) - self.fast * b**2

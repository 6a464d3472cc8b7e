r"""Influenza in an English boarding school: the SIR epidemic fitted to the number of boys in bed.

.. math::
    \dot S = -\beta\,\frac{S I}{N}, \qquad \dot I = \beta\,\frac{S I}{N} - \gamma I,

with :math:`N = 763` boys, :math:`S` of them susceptible and :math:`I` in bed; time is in days, the rates are per day. The
infection rate :math:`\beta`, the recovery rate :math:`\gamma` and the number in bed on day 1 are unknown;
:math:`R_0 = \beta/\gamma`.

Data: ``data/boarding_school_flu/in_bed.csv`` (British Medical Journal, 4 March 1978, page 587). There is no closed solution
and so no reference. The model: W. O. Kermack and A. G. McKendrick, Proceedings of the Royal Society A 115 (1927).
"""

from pathlib import Path

import sciml
from sciml import d


class BoardingSchoolFlu(sciml.Problem):
    """SIR with unknown rates and an unknown start."""

    domain = sciml.Interval(t=(1, 14))
    fields = ["S", "I"]
    boys = 763.0
    infection = sciml.Unknown(1.0, lower=0)
    recovery = sciml.Unknown(0.5, lower=0)
    first = sciml.Unknown(3.0, lower=0)
    conditions = [sciml.Initial(S=lambda self: self.boys - self.first, I=lambda self: self.first)]

    @sciml.equation
    def susceptible(self, S, I, t):
        return d(S, t) + self.infection * S * I / self.boys

    @sciml.equation
    def infected(self, S, I, t):
        return d(I, t) - self.infection * S * I / self.boys + self.recovery * I

    def measurements(self):
        """Boys in bed, by day."""
        file = Path(__file__).parent.parent / "data" / "boarding_school_flu" / "in_bed.csv"
        return sciml.read_csv(file, columns={"t": "day", "I": "in_bed"})

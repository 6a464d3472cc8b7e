r"""Van der Pol's oscillator with strong damping: it creeps, then jumps, once round.

.. math::
    \ddot u - \mu\,(1 - u^2)\,\dot u + u = 0, \qquad u(0) = 2, \qquad \dot u(0) = 0, \qquad 0 \le t \le 163,

with :math:`\mu = 100`, some one period; the jumps take thousandths of it (B. van der Pol, Philosophical Magazine 2,
1926). Nothing has a unit.

Reference: ``data/van_der_pol/reference.h5``, Radau at a relative tolerance of 1e-12 from time to time, on times that
are dense where it jumps; 2e-10 from that at 1e-10.
"""

from pathlib import Path

import sciml
from sciml import d


class VanDerPol(sciml.Problem):
    """A stiff equation of second order: relaxation oscillations."""

    domain = sciml.Interval(t=(0, 163))
    fields = ["u"]
    mu = 100.0
    conditions = [sciml.Initial(u=2.0, u_t=0.0)]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "van_der_pol" / "reference.h5")

    @sciml.equation
    def oscillation(self, u, t):
        return d(u, t, t) - self.mu * (1 - u**2) * d(u, t) + u

    def rate(self, t, state):
        """The right-hand side, written by hand for an integrator: what the equation is held against."""
        u, speed = state
        return [speed, self.mu * (1 - u**2) * speed - u]

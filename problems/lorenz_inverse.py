r"""Lorenz' three constants from 25 exact samples of a trajectory.

.. math::
    \dot x = \sigma\,(y - x), \qquad \dot y = x\,(\rho - z) - y, \qquad \dot z = x y - \beta z, \qquad 0 \le t \le 3,

from (-8, 7, 27). The constants are unknown and start at 1; the samples were made with 10, 15 and 8/3 (an example of
L. Lu and others, DeepXDE, SIAM Review 63, 2021). Nothing has a unit.

Data: ``data/lorenz_inverse/samples.csv``, the three fields at 25 times an eighth apart, exact to 12 digits.

Reference: ``data/lorenz_inverse/reference.h5``, the trajectory between the samples by Radau at a relative tolerance
of 1e-13; 1e-12 from that at 1e-11.
"""

from pathlib import Path

import sciml
from sciml import d

DATA = Path(__file__).parent.parent / "data" / "lorenz_inverse"


class LorenzInverse(sciml.Problem):
    """Three unknown constants of a system, without noise."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["x", "y", "z"]
    sigma, rho, beta = sciml.Unknown(1.0), sciml.Unknown(1.0), sciml.Unknown(1.0)
    conditions = [sciml.Initial(x=-8.0, y=7.0, z=27.0)]
    reference = sciml.StoredReference(DATA / "reference.h5")

    @sciml.equation
    def convection(self, x, y, z, t):
        return d(x, t) - self.sigma * (y - x)

    @sciml.equation
    def across(self, x, y, z, t):
        return d(y, t) - x * (self.rho - z) + y

    @sciml.equation
    def upward(self, x, y, z, t):
        return d(z, t) - x * y + self.beta * z

    def measurements(self):
        """The samples."""
        return sciml.read_csv(DATA / "samples.csv")

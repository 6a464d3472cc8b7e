r"""Electron mobility of a semiconductor: nonlinear regression of a rational function, one of NIST's reference problems.

.. math::
    y = \frac{\beta_1 + \beta_2 x + \beta_3 x^2 + \beta_4 x^3}{1 + \beta_5 x + \beta_6 x^2 + \beta_7 x^3},

with :math:`y` the mobility and :math:`x` the natural logarithm of the density. All seven constants are unknown; they begin at
the second starting values of NIST.

Data: 37 rows of ``data/nist/measurements.csv`` (R. Thurber, NIST, 1979). There is no closed solution and so no reference;
certified estimates and standard deviations of this and 26 further sets are in ``data/nist/certified.csv`` (NIST Statistical
Reference Datasets, nonlinear regression).
"""

from pathlib import Path

import pandas as pd

import sciml


class Thurber(sciml.Problem):
    """A law without derivatives."""

    domain = sciml.Interval(x=(-3.1, 2.2))
    fields = ["y"]
    b1, b2, b3, b4 = (sciml.Unknown(start) for start in (1300.0, 1500.0, 500.0, 75.0))
    b5, b6, b7 = (sciml.Unknown(start) for start in (1.0, 0.4, 0.05))

    def law(self, x):
        """The mobility at the logarithm of a density."""
        above = self.b1 + x * (self.b2 + x * (self.b3 + x * self.b4))
        return above / (1 + x * (self.b5 + x * (self.b6 + x * self.b7)))

    @sciml.equation
    def mobility(self, y, x):
        return y - self.law(x)

    def measurements(self):
        """Mobilities and logarithms of densities."""
        table = pd.read_csv(Path(__file__).parent.parent / "data" / "nist" / "measurements.csv")
        return table.loc[table["dataset"] == "Thurber", ["x", "y"]]

r"""Hares and lynxes: the Lotka-Volterra equations fitted to the fur trade of Hudson's Bay.

.. math::
    \dot h = (\beta - \pi\,\ell)\,h, \qquad \dot\ell = (\kappa\,h - \delta)\,\ell,

with :math:`h` and :math:`\ell` the pelts of hare and lynx, in thousands, traded each year from 1900 to 1920. The four rates
and both initial values are unknown. Time is in years; birth and death rates are per year, predation and conversion per year
and thousand.

Data: ``data/lynx_hare/pelts.csv`` (Hewitt 1921; P. Howard, Modeling Basics, 2009). There is no closed solution and so no
reference. A Bayesian fit with log-normal noise gives 0.55 (0.06), 0.028 (0.004), 0.80 (0.09), 0.024 (0.004): B. Carpenter,
Predator-prey population dynamics: the Lotka-Volterra model in Stan, 2018.
"""

from pathlib import Path

import sciml
from sciml import d


class LynxHare(sciml.Problem):
    """Lotka-Volterra with four unknown rates."""

    domain = sciml.Interval(t=(1900, 1920))
    fields = ["hare", "lynx"]
    birth, predation = sciml.Unknown(0.5, lower=0), sciml.Unknown(0.02, lower=0)
    death, conversion = sciml.Unknown(0.8, lower=0), sciml.Unknown(0.02, lower=0)

    @sciml.equation
    def prey(self, hare, lynx, t):
        return d(hare, t) - (self.birth - self.predation * lynx) * hare

    @sciml.equation
    def predator(self, hare, lynx, t):
        return d(lynx, t) - (self.conversion * hare - self.death) * lynx

    def measurements(self):
        """Pelts in thousands, by year."""
        file = Path(__file__).parent.parent / "data" / "lynx_hare" / "pelts.csv"
        return sciml.read_csv(file, columns={"t": "Year", "hare": "Hare", "lynx": "Lynx"})

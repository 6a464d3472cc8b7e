r"""How well a porous column conducts, from its pressure: an unknown function, not an unknown number.

.. math::
    (a\,p')' = -f, \qquad 0 \le x \le 1, \qquad p(0) = 0, \qquad a(0) = \tfrac23,

with the supply f = 1. The conductivity a(x) is a second field: nothing but this equation, its value at the end and
200 pressures with noise of standard deviation 0.001 say what it is. Lengths are in units of the column, pressures and
conductivities such that their product is one.

The pressure fixes the conductivity through its slope alone, so noise is amplified: with ten times as much, the conductivity
is found to some four per cent, and with fifty times to fifteen.

Data: ``data/darcy_inverse/pressure.csv``, made by ``python -m tests.benchmarks.samples darcy_inverse``.

Reference: :math:`1/a = 1 + \tfrac12\cos 2\pi x`; with the flux :math:`a p' = 2 - x` this gives p by integration.
"""

from pathlib import Path

import torch

import sciml
from sciml import d


class DarcyInverse(sciml.Problem):
    """An unknown conductivity field."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["p", "a"]
    supply = 1.0
    conditions = [
        sciml.Dirichlet(p=0.0, on=domain.face(x=0), name="pressure"),
        sciml.Dirichlet(a=2 / 3, on=domain.face(x=0), name="conductivity"),
    ]

    @sciml.equation
    def balance(self, p, a, x):
        return d(a * d(p, x), x) + self.supply

    def measurements(self):
        """Pressures along the column; the conductivity is measured nowhere."""
        return sciml.read_csv(Path(__file__).parent.parent / "data" / "darcy_inverse" / "pressure.csv")

    def reference(self, x):
        w = 2 * torch.pi
        wave = (2 - x) * torch.sin(w * x) / w - (torch.cos(w * x) - 1) / w**2
        return {"p": 2 * x - x**2 / 2 + wave / 2, "a": 1 / (1 + torch.cos(w * x) / 2)}

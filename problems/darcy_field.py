r"""Flow through ground whose conductivity is given in a file, at the nodes of a grid.

.. math::
    \nabla \cdot (k\,\nabla p) = f, \qquad 0 \le x, y \le 1,

with the pressure given all around. The conductivity varies by a factor of 36; cubic splines continue it between the nodes of
``data/darcy_field/conductivity.csv``, made by ``python -m tests.benchmarks.samples darcy_field``. The supply f is what the
solution below asks for.

Reference: the exact solution :math:`p = \cos(\pi x)\,\sinh(y) + x y`.
"""

from pathlib import Path

import torch

import sciml
from sciml import d

FILE = Path(__file__).parents[1] / "data" / "darcy_field" / "conductivity.csv"


def pressure(x, y):
    """The solution."""
    return torch.cos(torch.pi * x) * torch.sinh(y) + x * y


class DarcyField(sciml.Problem):
    """Darcy flow with a conductivity from a file."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["p"]
    k = sciml.data.GridField.read(FILE, "k", ("x", "y"))
    conditions = [sciml.Dirichlet(p=pressure, on=domain.boundary)]

    def flow(self, p, x, y):
        """What flows out of a place."""
        return d(self.k(x, y) * d(p, x), x) + d(self.k(x, y) * d(p, y), y)

    @sciml.equation
    def balance(self, p, x, y):
        return self.flow(p, x, y) - self.flow(pressure(x, y), x, y)

    def reference(self, x, y):
        return pressure(x, y)

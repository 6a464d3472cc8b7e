r"""Poisson's equation on an L, where the slope is infinite in the corner that points inwards.

.. math::
    -\Delta u = 1 \quad\text{on}\quad (-1, 1)^2 \setminus [0, 1)\times(-1, 0], \qquad u = 0 \text{ on the boundary}.

At that corner :math:`u \sim r^{2/3}\sin\tfrac23\theta`. Nothing has a unit.

Reference: the method of particular solutions (L. Fox, P. Henrici and C. Moler, SIAM Journal on Numerical Analysis 4,
1967). :math:`u + (x^2 + y^2)/4` is harmonic: a sum of :math:`r^{2k/3}\sin\tfrac23 k\theta`, of :math:`z^2 \log z` at
all corners and of polynomials, fitted to the boundary. What it misses there, 2e-14, bounds its error inside.
"""

import cmath
import itertools
import math
from functools import cache

import torch

import sciml
from sciml import d

VERTICES = [(0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1)]
# The corners, and the direction inside from each in eighths of a turn.
CORNERS = {0: 3, 1: 3, 1 + 1j: 5, -1 + 1j: 7, -1 - 1j: 1, -1j: 3}


def logarithm(z, turn):
    """Log z with the cut opposite to the direction ``turn``, a number on the unit circle; 0 where z is 0."""
    return torch.log(torch.where(z == 0, turn, z) / turn) + 1j * (cmath.phase(turn) % (2 * math.pi))


def harmonic(x, y):
    """Functions to choose from, shape ``(n, 130)``."""
    z = torch.complex(x, y)
    power = torch.arange(1, 31, dtype=x.dtype) * 2 / 3
    inward = torch.exp(power * logarithm(z, cmath.exp(0.75j * math.pi))[:, None]).imag * (z != 0)[:, None]
    found = [inward]
    for place, eighths in CORNERS.items():
        part = (z - place) ** 2 * logarithm(z - place, cmath.exp(0.25j * math.pi * eighths))
        found += [torch.stack([part.real, part.imag], dim=1)]
    whole = torch.linalg.vander(z / math.sqrt(2), N=44)
    return torch.cat([*found, whole.real, whole.imag], dim=1)


@cache
def coefficients():
    """The sum that takes the values of (x² + y²)/4 on the boundary, by least squares."""
    # Denser towards the corners, where functions vary fastest.
    share = torch.sin(math.pi / 2 * torch.linspace(0, 1, 200, dtype=torch.float64)) ** 2
    ends = torch.tensor([*VERTICES, VERTICES[0]], dtype=torch.float64)
    points = torch.cat([start + share[:, None] * (end - start) for start, end in itertools.pairwise(ends)])
    columns = harmonic(*points.T)
    sizes = columns.norm(dim=0).clamp(min=1e-300)
    wanted = (points**2).sum(1, keepdim=True) / 4
    return torch.linalg.lstsq(columns / sizes, wanted, rcond=1e-14, driver="gelsd").solution[:, 0] / sizes


class PoissonLShape(sciml.Problem):
    """A singular corner."""

    domain = sciml.Polygon(VERTICES)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return -d(u, x, x) - d(u, y, y) - 1.0

    def reference(self, x, y):
        return harmonic(x, y) @ coefficients() - (x**2 + y**2) / 4

"""Poisson's equation on the L: row 6."""

import itertools
import math
from functools import cache

import numpy as np

import sciml
from sciml import d
from sciml.domains import Interior
from sciml.sampling import draw

from .case import Case, Target, relative

VERTICES = [(0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1)]
_SINGULAR, _SMOOTH = 30, 30


class LShape(sciml.Problem):
    """-Δu = 1 on three of four squares, zero on the boundary."""

    domain = sciml.Polygon(VERTICES)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 1.0


def _harmonic(points):
    """Harmonic functions: r^{2k/3} sin(2kθ/3) at the re-entrant corner, z² log z at every corner, and polynomials."""
    z = points[:, 0] + 1j * points[:, 1]
    # The angle runs from 0 to 3π/2 inside; its cut lies outside.
    turned = z * np.exp(-0.75j * math.pi)
    radius, angle = np.abs(z), np.angle(turned, deg=False) + 0.75 * math.pi
    found = [radius ** (2 * k / 3) * np.sin(2 * k * angle / 3) for k in range(1, _SINGULAR + 1)]
    for corner in LShape.domain.corners():
        at = z - complex(*corner.position)
        inward = np.exp(-1j * (corner.start + corner.angle / 2))
        log = np.log(np.where(at == 0, 1, at * inward))
        found += [(at**2 * log).real, (at**2 * log).imag]
    for degree in range(_SMOOTH):
        found += [((z / math.sqrt(2)) ** degree).real, ((z / math.sqrt(2)) ** degree).imag]
    return np.stack(found, axis=1)


@cache
def _coefficients():
    """The method of particular solutions: u + (x² + y²)/4 is harmonic, and known on the boundary."""
    # Denser towards the ends of the edges, where functions vary fastest.
    share = np.sin(math.pi / 2 * np.linspace(0, 1, 200)) ** 2
    ends = np.array([*VERTICES, VERTICES[0]], dtype=float)
    points = np.concatenate([start + share[:, None] * (end - start) for start, end in itertools.pairwise(ends)])
    columns, wanted = _harmonic(points), (points**2).sum(axis=1) / 4
    sizes = np.linalg.norm(columns, axis=0)
    sizes[sizes == 0] = 1
    found = np.linalg.lstsq(columns / sizes, wanted, rcond=1e-14)[0] / sizes
    return found, float(np.abs(columns @ found - wanted).max())


def on_the_l(points):
    """The solution at points ``(n, 2)``, and a bound of its error by the maximum principle."""
    found, bound = _coefficients()
    return _harmonic(points) @ found - (points**2).sum(axis=1) / 4, bound


def l_error(solution):
    """The relative error on points inside."""
    points = draw(Interior(), LShape.domain, 2**14, np.random.default_rng(0)).points[0].numpy()
    x, y = points.T
    return relative(solution(x=x, y=y), {"u": on_the_l(points)[0]})


CASES = (
    Case(
        "poisson_on_the_l",
        6,
        "Poisson on the L, −Δu = 1, u = 0",
        (Target(1e-4, 20), Target(1e-6, 20)),
        "",
        LShape,
        l_error,
    ),
)

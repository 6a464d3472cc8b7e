"""Disks and balls, in two and more coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy

from sciml.errors import ProblemError
from sciml.geometry.domain import Domain, Piece, Placed, Side, checked_names, in_parts
from sciml.geometry.quadrature import gauss, grid
from sciml.typing import Array

_NODES = 6
# Distances that are held at a time.
_CHUNK = 1_000_000
_TURNS = 3


class Ball(Domain):
    """The inside of a sphere, in two or more coordinates.

    Args:
        center: its coordinates, in their unit.
        radius: in the coordinates' unit.
        names: the names of the coordinates, which have the same unit.
        piece: the name of its boundary.

    Raises:
        ProblemError: fewer than two coordinates, or ones that are not finite, a radius that is not positive, or names that are
            not as many different ones.

    Example:
        >>> import sciml
        >>> ball = sciml.Ball((0, 0, 0), 1)
        >>> ball.pieces, round(ball.measure, 3)
        (('sphere',), 4.189)
        >>> round(sciml.Ball((0, 0, 0, 0), 1, names=("x", "y", "z", "w")).measure, 3)
        4.935
    """

    _dimension: ClassVar[int | None] = None

    def __init__(
        self, center: Sequence[float], radius: float, names: Sequence[str] = ("x", "y", "z"), *, piece: str = "sphere"
    ) -> None:
        kind = type(self).__name__
        try:
            self.center = tuple(float(value) for value in center)
        except (TypeError, ValueError):
            self.center = ()
        dimension = self._dimension or max(2, len(self.center))
        if len(self.center) != dimension or not all(map(math.isfinite, self.center)):
            raise ProblemError(f"{kind}: center must be {self._dimension or 'two or more'} finite numbers; given: {center!r}")
        self.radius = float(radius) if isinstance(radius, int | float | np.number) else math.nan
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ProblemError(f"{kind}: radius must be a positive number; given: {radius!r}")
        ends = ((at - self.radius, at + self.radius) for at in self.center)
        self._bounds = dict(zip(checked_names(kind, names, dimension), ends, strict=True))
        self._sides = {Piece(str(piece)): None}
        self._measure = math.pi ** (dimension / 2) / math.gamma(dimension / 2 + 1) * self.radius**dimension

    @property
    def config(self) -> dict[str, Any]:
        own = {"center": list(self.center), "radius": self.radius, "names": list(self.bounds), "piece": self.pieces[0]}
        return {"kind": type(self).__name__, **own}

    def distance(self, points: Any) -> Array:
        return self.nearest([self], self.points(points))

    @classmethod
    def nearest(cls, domains: Sequence[Domain], points: Array) -> Array:
        centers = np.array([each.center for each in domains if isinstance(each, Ball)])
        radii = np.array([each.radius for each in domains if isinstance(each, Ball)])

        def smallest(at: Array) -> Array:
            gaps = at.T[:, :, None] - centers.T[:, None]
            return (np.sqrt((gaps * gaps).sum(axis=0)) - radii).min(axis=1)

        return in_parts(smallest, points, _CHUNK // len(radii))

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        if (dimension := len(self.center)) > 3:
            return None
        nodes = max(_NODES, round((count / _TURNS) ** (1 / dimension)))
        # Angles all around count alike: exact for all waves but the shortest.
        turns = np.arange(_TURNS * nodes) / (_TURNS * nodes), np.full(_TURNS * nodes, 1 / (_TURNS * nodes))
        unit, quadrature = grid(*[gauss(nodes)] * (dimension - 1), turns)
        points = np.array(self.center) + self.radius * unit[:, :1] * _directions(unit[:, 1:])
        return points, quadrature * dimension * unit[:, 0] ** (dimension - 1)

    def on_side(self, side: Side, unit: Array) -> Placed:
        normals = _directions(unit)
        return np.array(self.center) + self.radius * normals, normals, np.ones(len(unit), dtype=bool)

    def extent(self, side: Side) -> float:
        return len(self.center) * self.measure / self.radius

    def __repr__(self) -> str:
        center = ", ".join(f"{value:g}" for value in self.center)
        return f"{type(self).__name__}(({center}), {self.radius:g})"


class Disk(Ball):
    """The inside of a circle: a ``Ball`` in two coordinates, with its arguments and errors.

    Example:
        >>> import sciml
        >>> disk = sciml.Disk((0, 0), 2)
        >>> disk.pieces, round(disk.measure, 3), disk.distance([[0.0, 1.5]])
        (('circle',), 12.566, array([-0.5]))
    """

    _dimension = 2

    def __init__(
        self, center: Sequence[float], radius: float, names: Sequence[str] = ("x", "y"), *, piece: str = "circle"
    ) -> None:
        super().__init__(center, radius, names, piece=piece)


def _directions(unit: Array) -> Array:
    """Unit vectors ``(n, D)``, uniform on the sphere for points ``(n, D - 1)`` uniform in the unit cube."""
    angle = 2 * math.pi * unit[:, -1]
    found = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for column in unit.T[-2::-1]:
        # The height over an equator has a beta distribution; in three coordinates it is uniform (Archimedes).
        half = found.shape[1] / 2
        height = 1 - 2 * (column if half == 1 else scipy.special.betaincinv(half, half, column))
        found = np.column_stack([np.sqrt(np.maximum(1 - height**2, 0))[:, None] * found, height])
    return found

"""Disks and balls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sciml.errors import ProblemError
from sciml.geometry.domain import Domain, Piece, Placed, Side, checked_names, gauss, grid
from sciml.typing import Array

_NODES = 6

_TURNS = 3


class _Round(Domain):
    """The points within a distance of a centre."""

    def __init__(
        self, center: Sequence[float], radius: float, names: Sequence[str], piece: str, dimension: int
    ) -> None:
        kind = type(self).__name__
        self.center = _numbers(kind, center, dimension)
        self.radius = float(radius) if isinstance(radius, int | float | np.number) else math.nan
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ProblemError(f"{kind}: radius must be a positive number; given: {radius!r}")
        self.names = checked_names(kind, names, dimension)
        self.name = str(piece)

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        ends = ((at - self.radius, at + self.radius) for at in self.center)
        return MappingProxyType(dict(zip(self.names, ends, strict=True)))

    @property
    def sides(self) -> tuple[Side, ...]:
        return (Piece(self.name),)

    @property
    def config(self) -> dict[str, Any]:
        own = {"center": list(self.center), "radius": self.radius, "names": list(self.names), "piece": self.name}
        return {"kind": type(self).__name__, **own}

    def distance(self, points: Any) -> Array:
        return np.linalg.norm(self.points(points) - np.array(self.center), axis=1) - self.radius

    def freedom(self, side: Side) -> int:
        return len(self.names) - 1

    def _around(self, normals: Array) -> Placed:
        return np.array(self.center) + self.radius * normals, normals, np.ones(len(normals), dtype=bool)

    def __repr__(self) -> str:
        center = ", ".join(f"{value:g}" for value in self.center)
        return f"{type(self).__name__}(({center}), {self.radius:g})"


class Disk(_Round):
    """The inside of a circle.

    Args:
        center: its two coordinates.
        radius: in the coordinates' unit.
        names: the names of the coordinates.
        piece: the name of its boundary.

    Raises:
        ProblemError: not two finite coordinates, a radius that is not positive, or names that are not two different ones.

    Example:
        >>> import sciml
        >>> disk = sciml.Disk((0, 0), 2)
        >>> disk.pieces, round(disk.measure, 3), disk.distance([[0.0, 1.5]])
        (('circle',), 12.566, array([-0.5]))
    """

    def __init__(
        self, center: Sequence[float], radius: float, names: Sequence[str] = ("x", "y"), *, piece: str = "circle"
    ) -> None:
        super().__init__(center, radius, names, piece, 2)

    @property
    def measure(self) -> float:
        """The area."""
        return math.pi * self.radius**2

    def quadrature(self, count: int) -> tuple[Array, Array]:
        nodes = max(_NODES, round(math.sqrt(count / _TURNS)))
        at, shares = grid(gauss(nodes), _turns(_TURNS * nodes))
        radius, angle = self.radius * at[:, 0], at[:, 1]
        points = np.array(self.center) + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return points, shares * 2 * at[:, 0]

    def on_side(self, side: Side, unit: Array) -> Placed:
        angle = 2 * math.pi * unit[:, 0]
        return self._around(np.stack([np.cos(angle), np.sin(angle)], axis=1))

    def extent(self, side: Side) -> float:
        return 2 * math.pi * self.radius


class Ball(_Round):
    """The inside of a sphere.

    Args:
        center: its three coordinates.
        radius: in the coordinates' unit.
        names: the names of the coordinates.
        piece: the name of its boundary.

    Raises:
        ProblemError: not three finite coordinates, a radius that is not positive, or names that are not three different ones.

    Example:
        >>> import sciml
        >>> ball = sciml.Ball((0, 0, 0), 1)
        >>> ball.pieces, round(ball.measure, 3)
        (('sphere',), 4.189)
    """

    def __init__(
        self, center: Sequence[float], radius: float, names: Sequence[str] = ("x", "y", "z"), *, piece: str = "sphere"
    ) -> None:
        super().__init__(center, radius, names, piece, 3)

    @property
    def measure(self) -> float:
        """The volume."""
        return 4 / 3 * math.pi * self.radius**3

    def quadrature(self, count: int) -> tuple[Array, Array]:
        nodes = max(_NODES, round((count / _TURNS) ** (1 / 3)))
        at, shares = grid(gauss(nodes), gauss(nodes), _turns(_TURNS * nodes))
        height, angle = 1 - 2 * at[:, 1], at[:, 2]
        across = np.sqrt(1 - height**2)
        directions = np.stack([across * np.cos(angle), across * np.sin(angle), height], axis=1)
        return np.array(self.center) + self.radius * at[:, :1] * directions, shares * 3 * at[:, 0] ** 2

    def on_side(self, side: Side, unit: Array) -> Placed:
        # Equal heights of a sphere have equal areas (Archimedes).
        height, angle = 1 - 2 * unit[:, 0], 2 * math.pi * unit[:, 1]
        across = np.sqrt(np.maximum(1 - height**2, 0))
        return self._around(np.stack([across * np.cos(angle), across * np.sin(angle), height], axis=1))

    def extent(self, side: Side) -> float:
        return 4 * math.pi * self.radius**2


def _turns(count: int) -> tuple[Array, Array]:
    """Angles all around, which count alike: exact for all waves but the shortest."""
    return 2 * math.pi * np.arange(count) / count, np.full(count, 1 / count)


def _numbers(kind: str, center: Sequence[float], dimension: int) -> tuple[float, ...]:
    try:
        found = tuple(float(value) for value in center)
    except (TypeError, ValueError):
        found = ()
    if len(found) != dimension or not all(map(math.isfinite, found)):
        raise ProblemError(f"{kind}: center must be {dimension} finite numbers; given: {center!r}")
    return found

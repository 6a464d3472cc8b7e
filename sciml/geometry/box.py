"""Axis-aligned boxes with named coordinates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.geometry.domain import Domain, Face, Placed, Side
from sciml.geometry.quadrature import gauss, grid
from sciml.typing import Array

_NODES = 6


class Box(Domain):
    """The product of intervals, one for each named coordinate.

    Args:
        bounds: ``name=(lower, upper)`` for every coordinate, finite and increasing, in the units of the problem. The
            order in which they are named is the order of the columns of every points tensor.

    Raises:
        ProblemError: no coordinate, or bounds that are not two finite, increasing numbers.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(-1, 1), t=(0, 2))
        >>> box.coordinates, box.measure
        (('x', 't'), 4.0)
    """

    def __init__(self, **bounds: tuple[float, float]) -> None:
        if not bounds:
            raise ProblemError("a box needs at least one coordinate, as in Box(x=(0, 1), t=(0, 2)); none was given")
        self._bounds = {}
        for name, pair in bounds.items():
            try:
                lower, upper = map(float, pair)
            except (TypeError, ValueError):
                raise ProblemError(f"bounds of {name!r} must be a pair of numbers (lower, upper); given: {pair!r}") from None
            if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
                points = ", which has no points inside" if lower == upper else ""
                raise ProblemError(f"bounds of {name!r} must be finite and increasing; given: ({lower:g}, {upper:g}){points}")
            self._bounds[name] = lower, upper
        self._sides = {Face(name, side): None for name in bounds for side in ("lower", "upper")}
        self._measure = math.prod(upper - lower for lower, upper in self._bounds.values())

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "Box", "bounds": {name: list(pair) for name, pair in self.bounds.items()}}

    def distance(self, points: Any) -> Array:
        at = self.points(points)
        beyond = np.maximum(np.array(self.lower) - at, at - np.array(self.upper))
        return np.where((beyond < 0).all(axis=1), beyond.max(axis=1), np.linalg.norm(np.maximum(beyond, 0), axis=1))

    def contains(self, points: Any) -> Array:
        at = self.points(points)
        # Distances, which take five times as long, are only needed where some points are not clearly inside.
        ends = zip(at.T, self.lower, self.upper, strict=True)
        if all((column >= low).all() and (column <= high).all() for column, low, high in ends):
            return np.ones(len(at), dtype=bool)
        return super().contains(at)

    def inside(self, unit: Array) -> tuple[Array, Array]:
        return self._in_box(unit), np.ones(len(unit), dtype=bool)

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        nodes = round(count ** (1 / len(self.bounds)))
        if nodes < _NODES:
            return None
        unit, quadrature = grid(*[gauss(nodes)] * len(self.bounds))
        return self.inside(unit)[0], quadrature

    def on_side(self, side: Side, unit: Array) -> Placed:
        assert isinstance(side, Face)
        column = self.coordinates.index(side.coordinate)
        lower, upper = (np.delete(np.array(ends), column) for ends in (self.lower, self.upper))
        points = np.insert(lower + (upper - lower) * unit, column, side.value(self), axis=1)
        normals = np.zeros_like(points)
        normals[:, column] = side.sign
        return points, normals, np.ones(len(unit), dtype=bool)

    def extent(self, side: Side) -> float:
        assert isinstance(side, Face)
        return math.prod(upper - lower for name, (lower, upper) in self.bounds.items() if name != side.coordinate)

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        assert isinstance(one, Face)
        assert isinstance(two, Face)
        if one.coordinate == two.coordinate:
            return super().meeting(one, two, unit)
        points = self.inside(unit)[0]
        for side in (one, two):
            points[:, self.coordinates.index(side.coordinate)] = side.value(self)
        return points

    def relative_size(self, side: Side) -> float:
        # Coordinates may have different units: every face counts alike.
        return 1.0

    def between(self, coordinate: str, lower: float, upper: float) -> Box:
        self._known(coordinate)
        return Box(**{**self._bounds, coordinate: (lower, upper)})

    def __mul__(self, other: Domain) -> Domain:
        if isinstance(other, Box) and not set(self.bounds) & set(other.bounds):
            return Box(**{**self._bounds, **other._bounds})
        return super().__mul__(other)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}=({lower:g}, {upper:g})" for name, (lower, upper) in self.bounds.items())
        return f"{type(self).__name__}({inside})"


class Interval(Box):
    """A box with a single coordinate: the domain of an ordinary differential equation.

    Raises:
        ProblemError: not exactly one coordinate, or bounds that are not two finite, increasing numbers.

    Example:
        >>> import sciml
        >>> sciml.Interval(t=(1900, 1920)).measure
        20.0
    """

    def __init__(self, **bounds: tuple[float, float]) -> None:
        if len(bounds) != 1:
            raise ProblemError(
                f"an Interval has exactly one coordinate, as in Interval(t=(0, 1)); given: {listed(bounds)}. Use Box for more"
            )
        super().__init__(**bounds)

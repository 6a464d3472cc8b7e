"""What every domain can do: bounds, measure, signed distance, and points on each side of its boundary."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml.domains.interface import Interface
from sciml.domains.region import Face, Piece, Region, Side
from sciml.errors import ProblemError, listed, nearest
from sciml.typing import Array

if TYPE_CHECKING:
    from sciml.domains.domain import Domain

Placed = tuple[Array, Array, Array]
"""Points of a side ``(n, D)``, outward unit normals ``(n, D)``, and which of them are to be kept ``(n,)``."""

_ON = 1e-9


class Geometry(ABC):
    """What the library asks of a domain; ``Domain`` adds the operators that join two.

    The boundary consists of **sides**: flat ``Face``s, at which one coordinate has one of its bounds, and named ``Piece``s.
    Points are arrays of shape ``(n, D)``, columns in the order of ``coordinates``.
    """

    @property
    @abstractmethod
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Lower and upper bound of each coordinate: the box around the domain."""

    @property
    @abstractmethod
    def measure(self) -> float:
        """The length, area or volume, in the product of the coordinates' units."""

    @property
    @abstractmethod
    def sides(self) -> tuple[Side, ...]:
        """The sides of the boundary; each of them gets points of its own."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The domain in plain values, from which ``sciml.domains.built`` makes it again."""

    @abstractmethod
    def distance(self, points: Any) -> Array:
        """The signed distance from the boundary, shape ``(n,)``: negative inside, zero on it, positive outside.

        For unions, differences and intersections its sign is right, and its size is at most that of the distance.
        """

    @abstractmethod
    def freedom(self, side: Side) -> int:
        """How many numbers in [0, 1] a point on a side takes."""

    @abstractmethod
    def on_side(self, side: Side, unit: Array) -> Placed:
        """Points of a side, uniform by its length or area, from points ``(n, freedom)`` uniform in the unit cube.

        Returns:
            Points ``(n, D)``, outward unit normals ``(n, D)``, and which of them are to be kept, ``(n,)``.
        """

    @abstractmethod
    def extent(self, side: Side) -> float:
        """The length or area of a side; 1 for a point."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates, in order."""
        return tuple(self.bounds)

    @property
    def lower(self) -> tuple[float, ...]:
        """The lower bound of every coordinate."""
        return tuple(pair[0] for pair in self.bounds.values())

    @property
    def upper(self) -> tuple[float, ...]:
        """The upper bound of every coordinate."""
        return tuple(pair[1] for pair in self.bounds.values())

    @property
    def boundary(self) -> Region:
        """Every side except the faces of the problem's time coordinate."""
        return Region(boundary=True)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The names of the sides, as ``piece`` takes them."""
        return tuple(dict.fromkeys(side.describe(self) for side in self.sides))

    def piece(self, *names: str) -> Region:
        """The sides with these names, as in ``domain.piece("inlet")``; ``pieces`` lists them.

        Raises:
            ProblemError: no name, or an unknown one.
        """
        for name in names:
            if name not in self.pieces:
                raise ProblemError(
                    f"{type(self).__name__} has no piece {name!r}; its pieces are {listed(self.pieces)}."
                    f"{nearest(str(name), self.pieces)}"
                )
        if not names:
            raise ProblemError(f"piece() takes the name of a piece: {listed(self.pieces)}")
        return Region(tuple(side for side in self.sides if side.describe(self) in names))

    def faces(self, *coordinates: str) -> Region:
        """Both faces of each coordinate named, ``box.faces("x")``; of every coordinate that has faces when none is named.

        Raises:
            ProblemError: an unknown coordinate, or one without faces.
        """
        for name in coordinates:
            self._known(name)
        own = tuple(dict.fromkeys(side.coordinate for side in self.sides if isinstance(side, Face)))
        names = coordinates or own
        if not names or not set(names) <= set(own):
            raise ProblemError(self._no_face(f"faces({', '.join(map(repr, coordinates))})"))
        return Region(tuple(Face(name, side) for name in names for side in ("lower", "upper")))

    def face(self, **position: float) -> Region:
        """The face at which one coordinate has one of its bounds, as in ``box.face(x=0)``.

        Raises:
            ProblemError: not exactly one coordinate, an unknown one, or a value that is neither of its bounds.
        """
        if len(position) != 1:
            raise ProblemError(
                f"face() takes exactly one coordinate, as in domain.face({self.coordinates[0]}="
                f"{self.lower[0]:g}); given: {listed(position)}"
            )
        ((name, value),) = position.items()
        lower, upper = self._known(name)
        if any(isinstance(side, Piece) and side.name == f"{name}={value:g}" for side in self.sides):
            return self.piece(f"{name}={value:g}")
        if Face(name, "lower") not in self.sides:
            raise ProblemError(self._no_face(f"face({name}={value!r})"))
        tolerance = 1e-12 * (upper - lower)
        if abs(value - lower) <= tolerance:
            return Region((Face(name, "lower"),))
        if abs(value - upper) <= tolerance:
            return Region((Face(name, "upper"),))
        raise ProblemError(
            f"face({name}={value!r}) is not a face of the box: {name} runs from {lower:g} to {upper:g}; give one "
            f"of these two values"
        )

    def interface(self, other: Domain) -> Interface:
        """Where the boundaries of this domain and another one meet, with normals out of this one: ``left.interface(right)``.

        Raises:
            ProblemError: other coordinates, or no piece of the boundaries in common.
        """
        return Interface(self, other)  # type: ignore[arg-type]

    def inner(self, **position: float) -> Interface:
        """The inner surface at which one coordinate has a value between its bounds, as in ``box.inner(x=0.5)``.

        Its normals point to larger values.

        Raises:
            ProblemError: not exactly one coordinate, an unknown one or one without faces, or a value not between its bounds.
        """
        if len(position) != 1:
            raise ProblemError(
                f"inner() takes exactly one coordinate, as in domain.inner(x=0.5); given: {listed(position)}"
            )
        ((name, value),) = position.items()
        lower, upper = self._known(name)
        if not lower < value < upper:
            raise ProblemError(
                f"inner({name}={value!r}): {name} runs from {lower:g} to {upper:g}; give a value between them"
            )
        return Interface(self.between(name, lower, value), self.between(name, value, upper))

    def contains(self, points: Any) -> Array:
        """Whether each point lies inside or on the boundary, shape ``(n,)``."""
        return self.distance(points) <= _ON * self.diameter

    @property
    def diameter(self) -> float:
        """The diagonal of the box around the domain."""
        return math.dist(self.lower, self.upper)

    def inside(self, unit: Array) -> tuple[Array, Array]:
        """Points ``(n, D)`` of the box around the domain from points of the unit cube, and which of them lie inside."""
        lower, upper = np.array(self.lower), np.array(self.upper)
        points = lower + (upper - lower) * unit
        return points, self.distance(points) < 0

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        """About ``count`` points ``(n, D)`` inside and their shares ``(n,)`` of a mean over the domain, by rules of high order.

        None where there is no such rule.
        """
        return None

    @property
    def filling(self) -> float:
        """The share of the box around the domain that it fills."""
        return self.measure / math.prod(upper - lower for lower, upper in self.bounds.values())

    def kept(self, side: Side) -> float:
        """The share of the points of ``on_side`` that are kept."""
        return 1.0

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        """Points that two sides have in common, ``(m, D)``, where that is known; ``unit``, ``(n, D)``, holds random numbers."""
        return np.empty((0, len(self.bounds)))

    def share(self, side: Side) -> float:
        """The size of a side, where that of a square, or cube, of the same measure is 1."""
        dimension = len(self.bounds)
        return self.extent(side) / self.measure ** ((dimension - 1) / dimension)

    def between(self, coordinate: str, lower: float, upper: float) -> Domain:
        """The same domain with other bounds of a coordinate that has faces: a window of time.

        Raises:
            ProblemError: the domain is not a product with an interval of this coordinate.
        """
        raise ProblemError(self._no_face(f"between({coordinate!r}, ...)"))

    def points(self, points: Any) -> Array:
        """Points as an array ``(n, D)``.

        Raises:
            ProblemError: they have another shape.
        """
        array = np.asarray(points, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.bounds):
            raise ProblemError(
                f"points must have shape (n, {len(self.bounds)}), a column for each of {listed(self.coordinates)}; "
                f"given: {array.shape}"
            )
        return array

    def _known(self, name: str) -> tuple[float, float]:
        if name not in self.bounds:
            raise ProblemError(
                f"the domain has no coordinate {name!r}; its coordinates are {listed(self.coordinates)}."
                f"{nearest(name, self.coordinates)}"
            )
        return self.bounds[name]

    def _no_face(self, what: str) -> str:
        return (
            f"{what}: {self!r} is not a product with an interval of that coordinate and has no such face; its pieces are "
            f"{listed(self.pieces)}: use domain.boundary or domain.piece(...)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Geometry) and self.coordinates == other.coordinates and self.config == other.config

    def __hash__(self) -> int:
        return hash((self.config["kind"], tuple(self.bounds.items())))


def gauss(nodes: int) -> tuple[Array, Array]:
    """Gauss' points in [0, 1] and their weights, which add up to 1."""
    at, weights = np.polynomial.legendre.leggauss(nodes)
    return 0.5 + 0.5 * at, 0.5 * weights


def grid(*rules: tuple[Array, Array]) -> tuple[Array, Array]:
    """All combinations of the points of several rules, a column for each, and the products of their weights."""
    points = np.meshgrid(*(at for at, _ in rules), indexing="ij")
    weights = np.meshgrid(*(weight for _, weight in rules), indexing="ij")
    return np.stack([each.ravel() for each in points], axis=1), np.prod(weights, axis=0).ravel()


def checked_names(kind: str, names: Sequence[str], count: int) -> tuple[str, ...]:
    """Names of coordinates.

    Raises:
        ProblemError: not as many different names as there are coordinates.
    """
    found = tuple(names)
    if len(found) != count or len(set(found)) != count or not all(isinstance(name, str) and name for name in found):
        raise ProblemError(f"{kind}: names must be {count} different names of coordinates; given: {names!r}")
    return found

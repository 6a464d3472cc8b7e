"""Domains, their boundaries, and set operations: union, intersection, difference and product.

A domain has bounds, a measure, a signed distance, and points on each side of its boundary. Regions and interfaces describe
parts of boundaries; a place is where an equation or condition holds.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import scipy

from sciml._text import among, listed
from sciml.errors import ProblemError
from sciml.geometry.quadrature import grid, iterated
from sciml.typing import Array

End = Literal["lower", "upper"]
Operation = Literal["union", "difference", "intersection"]
Placed: TypeAlias = tuple[Array, Array, Array]
"""Points of a side ``(n, D)``, outward unit normals ``(n, D)``, and which of the points are kept ``(n,)``."""

# Tolerances and steps in units of the domain's thickness, and of its widths.
_ON, _STEP = 1e-9, 1e-6
# In how many directions points on two sides at once are looked around.
_AROUND = 128
# Places along a side between which its ends are looked for, bisections, and how near each other ends are one.
_ALONG, _BISECTIONS, _TOGETHER = 400, 40, 1e-4
_PROBES, _VOLUME_POWER = 256, 16
# Points of the rule that gives an area, and of any rule at least.
_AREA, _AREA_LEAST = 4096, 36


@dataclass(frozen=True)
class Face:
    """A flat side of a domain: the points where ``coordinate`` has its lower or its upper bound."""

    coordinate: str
    side: End

    def value(self, domain: Domain) -> float:
        """The value that the coordinate has on this face of ``domain``."""
        return domain.bounds[self.coordinate][0 if self.side == "lower" else 1]

    @property
    def sign(self) -> float:
        """The direction of the outward normal along the coordinate: -1 or +1."""
        return -1.0 if self.side == "lower" else 1.0

    def describe(self, domain: Domain) -> str:
        """The face as people write it: ``x=-1``."""
        return f"{self.coordinate}={self.value(domain):g}"


@dataclass(frozen=True)
class Piece:
    """A side of a domain that is no box: one of those that the name ``name`` stands for."""

    name: str
    number: int = 0

    coordinate: ClassVar[None] = None

    def describe(self, domain: Domain) -> str:
        """The piece as people write it: its name."""
        return self.name


Side: TypeAlias = Face | Piece


@dataclass(frozen=True)
class Interior:
    """The inside of a domain, where equations hold."""


@dataclass(frozen=True)
class Within:
    """The inside of a part of a domain, where the equations of that part hold."""

    part: Domain


@dataclass(frozen=True)
class OnFaces:
    """Some sides of a domain; each of them gets points of its own."""

    faces: tuple[Side, ...]


@dataclass(frozen=True)
class Opposite:
    """The two faces of one coordinate, visited in pairs of points that differ in that coordinate alone.

    ``sides`` are those of a box unless said: pieces where something was cut from it.
    """

    coordinate: str
    sides: tuple[Side, ...] = ()

    def __post_init__(self) -> None:
        faces = Face(self.coordinate, "lower"), Face(self.coordinate, "upper")
        object.__setattr__(self, "sides", self.sides or faces)


@dataclass(frozen=True)
class At:
    """One point, by its coordinates in the order of the domain's; None for all values of that coordinate, a line."""

    position: tuple[float | None, ...]

    def at_each(self, coordinates: Sequence[str], name: str) -> bool:
        """Whether it is a line along a coordinate."""
        return self.position[list(coordinates).index(name)] is None


@dataclass(frozen=True)
class Average:
    """The mean over a place: its residual is one row, or one for each value of the coordinate ``each``."""

    over: Interior | OnFaces
    each: str | None = None

    def at_each(self, coordinates: Sequence[str], name: str) -> bool:
        """Whether it is one row for each value of a coordinate."""
        return self.each == name


Place: TypeAlias = "Interior | Within | OnFaces | Interface | Opposite | At | Average"


@dataclass(frozen=True)
class Region:
    """A set of sides; made by ``box.face(x=0)``, ``box.faces("x")``, ``domain.piece("inlet")`` and ``domain.boundary``.

    It is a description: the same region serves a problem whose domain was replaced by another one with the same
    coordinates. ``boundary`` means every side except the faces of the time coordinate, besides the sides named and without
    those in ``excluded``. Regions unite, ``a | b``, and named sides are taken off, ``domain.boundary - domain.piece("inlet")``.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(-1, 1), t=(0, 1))
        >>> [face.coordinate + " " + face.side for face in box.faces("x").resolve(box, time="t")]
        ['x lower', 'x upper']
    """

    faces: tuple[Side, ...] = ()
    boundary: bool = False
    excluded: tuple[Side, ...] = ()
    # The domains by which it was named, with the sides of each, or None for their boundary.
    named_by: tuple[tuple[Domain, tuple[Side, ...] | None], ...] = field(default=(), compare=False, repr=False)

    def __or__(self, other: Region) -> Region:
        extra = tuple(face for face in other.faces if face not in self.faces)
        # What one of them leaves out of the boundary is left out only if the other does not have it.
        around = [region for region in (self, other) if region.boundary]
        excluded = tuple(side for side in self.excluded + other.excluded if all(side in each.excluded for each in around))
        return Region(self.faces + extra, bool(around), tuple(dict.fromkeys(excluded)), self.named_by + other.named_by)

    def __sub__(self, other: Region) -> Region:
        if other.boundary:
            raise ProblemError("only named sides are taken off a region: domain.boundary - domain.piece('inlet')")
        kept = tuple(face for face in self.faces if face not in other.faces)
        return Region(kept, self.boundary, self.excluded + other.faces if self.boundary else (), self.named_by)

    def stranger(self, domain: Domain, time: str | None) -> Domain | None:
        """A domain that named the region, and whose flat sides or bounds lie elsewhere than those of ``domain``; or None."""
        for owner, sides in self.named_by:
            # The boundary has no faces of time.
            ends = [(name, k) for name in owner.coordinates if name in domain.bounds and name != time for k in (0, 1)]
            if sides is not None:
                ends = [(side.coordinate, int(side.side == "upper")) for side in sides if isinstance(side, Face)]
            slack = {name: _ON * (upper - lower) for name, (lower, upper) in domain.bounds.items()}
            if any(abs(owner.bounds[name][k] - domain.bounds[name][k]) > slack[name] for name, k in ends if name in slack):
                return owner
            if any(isinstance(side, Piece) and not domain.touches(owner, side) for side in sides or ()):
                return owner
        return None

    def resolve(self, domain: Domain, time: str | None, constants: Sequence[str] = ()) -> tuple[Side, ...]:
        """The sides of ``domain`` that this region means; no part of ``boundary`` are faces of time and promoted constants."""
        around = (
            side
            for side in domain.sides
            if self.boundary
            and side not in self.excluded
            and not (isinstance(side, Face) and side.coordinate in (time, *constants))
        )
        faces = tuple(dict.fromkeys((*around, *self.faces)))
        for face in (*faces, *self.excluded):
            if face not in domain.sides:
                place = f"the piece {face.name!r}" if isinstance(face, Piece) else f"a face of {face.coordinate!r}"
                raise ProblemError(
                    f"a condition lies on {place}, but {domain!r} has no such face or piece; the pieces of {domain!r} are "
                    f"{listed(domain.pieces)}: use domain.face(...) or domain.piece(...) of the problem's own domain"
                )
        if not faces:
            raise ProblemError(
                "a condition lies on an empty region: the domain has no boundary apart from its time faces; "
                "use sciml.Initial for the start, or domain.face(...) to name one face"
            )
        return faces


class Domain(ABC):
    """A bounded set of points with named coordinates: ``Box``, ``Interval``, ``Disk``, ``Ball``, ``Polygon``, or made of them.

    Domains with the same coordinates unite, ``a | b``, are cut, ``a & b``, and subtracted, ``a - b``; domains with different
    coordinates multiply, ``disk * Interval(t=(0, 1))``. The boundary consists of **sides**: flat ``Face``s, at which one
    coordinate has one of its bounds, and named ``Piece``s. Points are arrays of shape ``(n, D)``, columns in the order of
    ``coordinates``.

    Example:
        >>> import sciml
        >>> plate = sciml.Box(x=(0, 2), y=(0, 1)) - sciml.Disk((1, 0.5), 0.25)
        >>> plate.pieces
        ('x=0', 'x=2', 'y=0', 'y=1', 'circle')
        >>> plate.contains([[1.0, 0.5], [0.1, 0.1]])
        array([False,  True])
    """

    _bounds: dict[str, tuple[float, float]]
    _measure: float
    # What each side is to the class: its number, its owner.
    _sides: dict[Side, Any]

    @property
    def measure(self) -> float:
        """The length, area or volume, in the product of the coordinates' units."""
        return self._measure

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Lower and upper bound of each coordinate, in its unit: the box around the domain."""
        return MappingProxyType(self._bounds)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of the boundary; each of them gets points of its own."""
        return tuple(self._sides)

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The domain in plain values, of which ``sciml.geometry.domain_from_config`` makes it."""

    @abstractmethod
    def distance(self, points: Any) -> Array:
        """The signed distance from the boundary, shape ``(n,)``, negative inside; of set operations a lower bound of it."""

    @classmethod
    def nearest(cls, domains: Sequence[Domain], points: Array) -> Array:
        """The smallest of the signed distances of points ``(n, D)`` from several domains of this kind, shape ``(n,)``."""
        return np.minimum.reduce([each.distance(points) for each in domains])

    def freedom(self, side: Side) -> int:
        """The number of coordinates in [0, 1] that a point on a side takes."""
        return len(self.bounds) - 1

    @abstractmethod
    def on_side(self, side: Side, unit: Array) -> Placed:
        """Points of a side, uniform by its length or area, from points ``(n, freedom)`` uniform in the unit cube."""

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
    def half_widths(self) -> dict[str, float]:
        """Half the width of each coordinate's range, in its unit."""
        return {name: (upper - lower) / 2 for name, (lower, upper) in self.bounds.items()}

    @property
    def boundary(self) -> Region:
        """Every side except the faces of the problem's time coordinate."""
        return Region(boundary=True, named_by=((self, None),))

    def _region(self, sides: Iterable[Side]) -> Region:
        """A region of some of its sides."""
        return Region(own := tuple(sides), named_by=((self, own),))

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
                raise ProblemError(f"{type(self).__name__} has no piece {name!r}; its pieces are {among(name, self.pieces)}")
        if not names:
            raise ProblemError(f"piece() takes the name of a piece: {listed(self.pieces)}")
        return self._region(side for side in self.sides if side.describe(self) in names)

    def faces(self, *coordinates: str) -> Region:
        """Both faces of each coordinate named, ``box.faces("x")``; of every coordinate that has faces when none is named.

        Of a box with holes they are what these leave of its faces.

        Raises:
            ProblemError: an unknown coordinate, or one without faces.
        """
        for name in coordinates:
            self._known(name)
        own = tuple(dict.fromkeys(side.coordinate for side in self.sides if isinstance(side, Face)))
        found = [self.opposite(name) for name in coordinates or own]
        if not found or None in found:
            raise ProblemError(self._no_face(f"faces({', '.join(map(repr, coordinates))})"))
        return self._region(side for each in found if each is not None for side in each.sides)

    def face(self, **position: float) -> Region:
        """The face at which one coordinate has one of its bounds, as in ``box.face(x=0)``.

        Raises:
            ProblemError: not exactly one coordinate, an unknown one, or a value that is neither of its bounds.
        """
        name, value, lower, upper = self._single("face", position, self.lower[0])
        if any(isinstance(side, Piece) and side.name == f"{name}={value:g}" for side in self.sides):
            return self.piece(f"{name}={value:g}")
        if Face(name, "lower") not in self.sides:
            raise ProblemError(self._no_face(f"face({name}={value!r})"))
        for side in ("lower", "upper"):
            if abs(value - (lower if side == "lower" else upper)) <= 1e-12 * (upper - lower):
                return self._region([Face(name, side)])
        raise ProblemError(
            f"face({name}={value!r}) is not a face of the box: {name} runs from {lower:g} to {upper:g}; give one "
            f"of these two values"
        )

    def opposite(self, coordinate: str) -> Opposite | None:
        """The two faces of a coordinate, which holes may leave whole; None where there are none."""
        faces = Opposite(coordinate)
        if faces.sides[0] in self.sides:
            return faces
        names = [f"{coordinate}={bound:g}" for bound in self.bounds[coordinate]]
        found = [[side for side in self.sides if isinstance(side, Piece) and side.name == name] for name in names]
        return Opposite(coordinate, (*found[0], *found[1])) if [len(each) for each in found] == [1, 1] else None

    def interface(self, other: Domain) -> Interface:
        """The surface where the boundaries of two domains meet, with normals out of this one: ``left.interface(right)``.

        Raises:
            ProblemError: other coordinates, or no piece of the boundaries in common.
        """
        return Interface(self, other)

    def inner(self, **position: float) -> Interface:
        """The inner surface at which one coordinate has a value between its bounds, as in ``box.inner(x=0.5)``.

        Its normals point to larger values.

        Raises:
            ProblemError: not exactly one coordinate, an unknown one or one without faces, or a value not between its bounds.
        """
        name, value, lower, upper = self._single("inner", position, (self.lower[0] + self.upper[0]) / 2)
        if not lower < value < upper:
            raise ProblemError(f"inner({name}={value!r}): {name} runs from {lower:g} to {upper:g}; give a value between them")
        return Interface(self.between(name, lower, value), self.between(name, value, upper))

    def contains(self, points: Any) -> Array:
        """True for points inside or on the boundary, shape ``(n,)``."""
        return self.distance(points) <= _ON * self.thickness

    def touches(self, other: Domain, side: Side) -> bool:
        """Whether some of a side of another domain, in all or some of the coordinates, lies on the boundary."""
        if other == self or any(part.touches(other, side) for part in getattr(self, "parts", ())):
            return True
        at, _, kept = other.on_side(side, np.random.default_rng(0).random((_PROBES, other.freedom(side))))
        points = np.tile((np.array(self.lower) + np.array(self.upper)) / 2, (len(at), 1))
        for name, column in zip(other.coordinates, at.T, strict=True):
            if name in self.bounds:
                points[:, self.coordinates.index(name)] = column
        return bool((np.abs(self.distance(points[kept])) <= _STEP * self.thickness).any())

    @property
    def diameter(self) -> float:
        """The diagonal of the box around the domain."""
        return math.dist(self.lower, self.upper)

    @property
    def thickness(self) -> float:
        """The least width of the box around the domain, or what rounding lets tell: times may have far larger numbers."""
        lower, upper = np.array(self.lower), np.array(self.upper)
        return max(float((upper - lower).min()), _STEP * float(np.abs([lower, upper]).max()))

    def _a_step(self, normals: Array) -> Array:
        """A short way along normals ``(n, D)``, by the widths of the box around the domain."""
        return _STEP * (np.abs(normals) @ (np.array(self.upper) - np.array(self.lower)))[:, None] * normals

    def inside(self, unit: Array) -> tuple[Array, Array]:
        """Points ``(n, D)`` of the box around the domain from points of the unit cube, and which of them lie inside."""
        points = self._in_box(unit)
        return points, self.distance(points) < 0

    def _in_box(self, unit: Array) -> Array:
        lower, upper = np.array(self.lower), np.array(self.upper)
        return lower + (upper - lower) * unit

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        """About ``count`` points ``(n, D)`` inside and the weights ``(n,)`` of their mean, or None without a good rule."""
        return None

    @property
    def filling(self) -> float:
        """The fraction of the box around the domain that it fills."""
        return self.measure / math.prod(upper - lower for lower, upper in self.bounds.values())

    def kept(self, side: Side) -> float:
        """The fraction of the points of ``on_side`` that are kept."""
        return 1.0

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        """Points that two sides have in common, ``(m, D)``, where that is known; ``unit``, ``(n, D)``, holds random numbers."""
        return np.empty((0, len(self.bounds)))

    def relative_size(self, side: Side) -> float:
        """The size of a side, where that of a square, or cube, of the same measure is 1."""
        dimension = len(self.bounds)
        return self.extent(side) / self.measure ** ((dimension - 1) / dimension)

    def between(self, coordinate: str, lower: float, upper: float) -> Domain:
        """The same domain with other bounds of a coordinate; only products with an interval of it have such."""
        raise ProblemError(self._no_face(f"between({coordinate!r}, ...)"))

    def points(self, points: Any) -> Array:
        """Points as an array ``(n, D)``; other shapes are refused."""
        array = np.asarray(points, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.bounds):
            raise ProblemError(
                f"points must have shape (n, {len(self.bounds)}), a column for each of {listed(self.coordinates)}; "
                f"given: {array.shape}"
            )
        return array

    def _known(self, name: str) -> tuple[float, float]:
        if name not in self.bounds:
            raise ProblemError(f"the domain has no coordinate {name!r}; its coordinates are {among(name, self.coordinates)}")
        return self.bounds[name]

    def _single(self, method: str, position: Mapping[str, float], example: float) -> tuple[str, float, float, float]:
        """The one coordinate that a method takes: its name and value, and its bounds."""
        if len(position) != 1:
            raise ProblemError(
                f"{method}() takes exactly one coordinate, as in domain.{method}({self.coordinates[0]}={example:g}); "
                f"given: {listed(position)}"
            )
        ((name, value),) = position.items()
        return name, value, *self._known(name)

    def _no_face(self, what: str) -> str:
        return (
            f"{what}: {self!r} is not a product with an interval of that coordinate and has no such face; its pieces are "
            f"{listed(self.pieces)}: use domain.boundary or domain.piece(...)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.coordinates == other.coordinates and self.config == other.config

    def __hash__(self) -> int:
        return hash((self.config["kind"], tuple(self.bounds.items())))

    def __mul__(self, other: Domain) -> Domain:
        return Product(self, other) if isinstance(other, Domain) else NotImplemented

    def __or__(self, other: Domain) -> Combination:
        return Combination("union", self, other) if isinstance(other, Domain) else NotImplemented

    def __sub__(self, other: Domain) -> Combination:
        return Combination("difference", self, other) if isinstance(other, Domain) else NotImplemented

    def __and__(self, other: Domain) -> Combination:
        return Combination("intersection", self, other) if isinstance(other, Domain) else NotImplemented


@dataclass(frozen=True)
class Interface:
    """The common part of the boundaries of two domains with the same coordinates; made by ``first.interface(second)``.

    Normals point out of the first domain. Conditions lie on it as on a piece of a boundary; it is no part of the boundary of
    the domain that holds both. What a part has of the boundary of the whole is ``part.interface(whole)``.

    Raises:
        ProblemError: the two have different coordinates, or no piece of their boundaries in common.

    Example:
        >>> import sciml
        >>> core, shell = sciml.Disk((0, 0), 1), sciml.Disk((0, 0), 2, piece="outer") - sciml.Disk((0, 0), 1)
        >>> core.interface(shell)
        Disk((0, 0), 1).interface(Disk((0, 0), 2) - Disk((0, 0), 1))
    """

    first: Domain
    second: Domain
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.first.coordinates != self.second.coordinates or not self.sides:
            raise ProblemError(
                f"{self!r}: the two domains must have the same coordinates and a piece of their boundaries in common; do they "
                "overlap, or leave a gap?"
            )

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of the first domain that lie on the boundary of the second, in part at least."""
        return tuple(self._kept)

    def piece(self, *names: str) -> Interface:
        """The part of it that lies on pieces of the first domain with these names.

        Raises:
            ProblemError: none of it lies on one of them.
        """
        own = dict.fromkeys(side.describe(self.first) for side in self.sides)
        for name in names:
            if name not in own:
                raise ProblemError(f"{self!r} has no piece {name!r}; its pieces are {among(name, own)}")
        return replace(self, names=names)

    def freedom(self, side: Side) -> int:
        """The number of coordinates in [0, 1] that a point on a side takes."""
        return self.first.freedom(side)

    def on_side(self, side: Side, unit: Array) -> Placed:
        """Points of a side, normals out of the first domain, and which points belong to both boundaries."""
        points, normals, keep = self.first.on_side(side, unit)
        keep = keep & (np.abs(self.second.distance(points)) <= _ON * self.first.thickness)
        # What a difference was cut with has the distance zero, too, where it touches the boundary of what it was cut from.
        step = self.first._a_step(normals)
        ahead, behind = (self.second.distance(points + sign * step) < 0 for sign in (1, -1))
        return points, normals, keep & (ahead != behind)

    def kept(self, side: Side) -> float:
        """The fraction of the points of ``on_side`` that are kept."""
        return self._kept[side]

    def relative_size(self, side: Side) -> float:
        """The size of a side, where that of a square, or cube, of the first domain's measure is 1."""
        return self.first.relative_size(side) * self._kept[side] / self.first.kept(side)

    def between(self, coordinate: str, lower: float, upper: float) -> Interface:
        """The same surface between other bounds of a coordinate, a window of time."""
        first, second = (clipped(part, coordinate, lower, upper) for part in (self.first, self.second))
        return Interface(first, second, self.names)

    @cached_property
    def _kept(self) -> dict[Side, float]:
        named = (side for side in self.first.sides if not self.names or side.describe(self.first) in self.names)
        found = {side: _fraction_kept(self.freedom(side), partial(self.on_side, side)) for side in named}
        return {side: kept for side, kept in found.items() if kept > 0}

    def __repr__(self) -> str:
        pieces = f".piece({', '.join(map(repr, self.names))})" if self.names else ""
        return f"{self.first!r}.interface({self.second!r}){pieces}"


def common_surface(one: Domain, two: Domain) -> Interface | None:
    """The surface where the boundaries of two domains meet; None where they do not."""
    try:
        return one.interface(two)
    except ProblemError:
        return None


def common_ends(domain: Domain, one: Side, two: Side) -> Array:
    """Where two sides of a plane domain end together, ``(m, 2)``, to a millionth of its diameter or so."""
    first, second = (_ends(domain, side) for side in (one, two))
    gaps = np.linalg.norm(first[:, None] - second, axis=2)
    return first[(gaps < _TOGETHER * domain.diameter).any(1)]


def _ends(domain: Domain, side: Side) -> Array:
    """The ends of what is kept of a side, by bisection, ``(m, 2)``; none where it closes."""
    places = np.linspace(0.0, 1.0, _ALONG)[:, None]
    points, _, keep = domain.on_side(side, places)
    changes = np.flatnonzero(keep[1:] != keep[:-1])
    low, high, kept = places[changes], places[changes + 1], keep[changes]
    for _ in range(_BISECTIONS if len(changes) else 0):
        middle = (low + high) / 2
        same = (domain.on_side(side, middle)[2] == kept)[:, None]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    closes = np.linalg.norm(points[0] - points[-1]) < _TOGETHER * domain.diameter
    return np.concatenate([domain.on_side(side, low)[0], points[[0, -1]][keep[[0, -1]] & ~closes]])


def clipped(part: Domain, coordinate: str, lower: float, upper: float) -> Domain:
    """A part of a domain between bounds of a coordinate, if it has faces of it that lie beyond them."""
    if Face(coordinate, "lower") not in part.sides:
        return part
    low, high = part.bounds[coordinate]
    return part if low >= lower and high <= upper else part.between(coordinate, max(low, lower), min(high, upper))


class _Composite(Domain):
    """A domain made of parts; each of its sides is a side of a part, possibly under another name."""

    kind: str
    parts: tuple[Domain, ...]
    # The number of the part, the side there, and the fraction of that side's points that are kept.
    _sides: dict[Side, tuple[int, Side, float]]

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [part.config for part in self.parts]}

    def freedom(self, side: Side) -> int:
        number, own, _ = self._sides[side]
        return self.parts[number].freedom(own) + len(self.bounds) - len(self.parts[number].bounds)

    def kept(self, side: Side) -> float:
        return self._sides[side][2]

    def __repr__(self) -> str:
        parts = (f"({part!r})" if isinstance(part, _Composite) else repr(part) for part in self.parts)
        return f" {_SYMBOLS[self.kind]} ".join(parts)


class Product(_Composite):
    """All combinations of the points of several domains with different coordinates; made by ``disk * Interval(t=(0, 1))``.

    Raises:
        ProblemError: a coordinate belongs to two factors.

    Example:
        >>> import sciml
        >>> cylinder = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 2))
        >>> cylinder.coordinates, cylinder.pieces
        (('x', 'y', 't'), ('circle', 't=0', 't=2'))
    """

    kind = "Product"

    def __init__(self, *factors: Domain) -> None:
        self.parts = tuple(part for factor in factors for part in (factor.parts if isinstance(factor, Product) else (factor,)))
        names = [name for factor in self.parts for name in factor.coordinates]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ProblemError(
                f"the factors of a product of domains have different coordinates; {listed(doubled)} is in two of them: name "
                "coordinates with names=..., or use |, & or - for domains with the same coordinates"
            )
        self._bounds = {name: ends for factor in self.parts for name, ends in factor.bounds.items()}
        self._measure = math.prod(factor.measure for factor in self.parts)
        self._sides = {}
        filling = [factor.filling for factor in self.parts]
        taken = 0
        for number, factor in enumerate(self.parts):
            others = math.prod(filling[:number] + filling[number + 1 :])
            for own in factor.sides:
                # Pieces of the same name in two factors are counted on.
                here = Piece(own.name, own.number + taken) if isinstance(own, Piece) else own
                self._sides[here] = (number, own, factor.kept(own) * others)
            taken += sum(isinstance(own, Piece) for own in factor.sides)

    def distance(self, points: Any) -> Array:
        parts = np.stack([factor.distance(at) for factor, at in zip(self.parts, self._split(points), strict=True)])
        return np.where((parts < 0).all(axis=0), parts.max(axis=0), np.linalg.norm(np.maximum(parts, 0), axis=0))

    def on_side(self, side: Side, unit: Array) -> Placed:
        owner, own, _ = self._sides[side]
        first = self.parts[owner].freedom(own)
        at, outward, keep = self.parts[owner].on_side(own, unit[:, :first])
        points, normals = [], []
        for number, factor in enumerate(self.parts):
            if number != owner:
                at_others, kept = factor.inside(unit[:, first : first + len(factor.bounds)])
                first += len(factor.bounds)
                keep = keep & kept
            points.append(at if number == owner else at_others)
            normals.append(outward if number == owner else np.zeros_like(at_others))
        return np.hstack(points), np.hstack(normals), keep

    def extent(self, side: Side) -> float:
        number, own, _ = self._sides[side]
        return self.parts[number].extent(own) * self.measure / self.parts[number].measure

    def inside(self, unit: Array) -> tuple[Array, Array]:
        made = [factor.inside(part) for factor, part in zip(self.parts, self._split(unit), strict=True)]
        return np.hstack([points for points, _ in made]), np.logical_and.reduce([keep for _, keep in made])

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        rules = [factor.quadrature(round(count ** (len(factor.bounds) / len(self.bounds)))) for factor in self.parts]
        found = [rule for rule in rules if rule is not None]
        if len(found) < len(rules):
            return None
        places, quadrature = grid(*((np.arange(len(at)), weights) for at, weights in found))
        return np.hstack([at[place] for (at, _), place in zip(found, places.T, strict=True)]), quadrature

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        (number, first, _), (other, second, _) = self._sides[one], self._sides[two]
        if number != other:
            return super().meeting(one, two, unit)
        factor = self.parts[number]
        start = self.coordinates.index(factor.coordinates[0])
        columns = slice(start, start + len(factor.bounds))
        common = factor.meeting(first, second, unit[:, columns])
        if not len(common):
            return super().meeting(one, two, unit)
        made = [each.inside(part) for each, part in zip(self.parts, self._split(unit), strict=True)]
        # The place along the factor itself is not taken, wherever it lies.
        keep = np.logical_and.reduce([kept for place, (_, kept) in enumerate(made) if place != number])
        points = np.hstack([at for at, _ in made])[keep]
        points[:, columns] = common[np.arange(len(points)) % len(common)]
        return points

    def relative_size(self, side: Side) -> float:
        # Factors may have different units, so that only sides of one factor compare.
        number, own, _ = self._sides[side]
        return self.parts[number].relative_size(own)

    def between(self, coordinate: str, lower: float, upper: float) -> Product:
        if Face(coordinate, "lower") not in self.sides:
            raise ProblemError(self._no_face(f"between({coordinate!r}, ...)"))
        return Product(
            *(factor.between(coordinate, lower, upper) if coordinate in factor.bounds else factor for factor in self.parts)
        )

    def _split(self, points: Any) -> list[Array]:
        widths = [len(factor.bounds) for factor in self.parts]
        return np.split(self.points(points), np.cumsum(widths)[:-1], axis=1)


# Whether points inside the result, or of a union points outside it, are inside each of the parts.
_INSIDE = {"union": (False, False), "difference": (True, False), "intersection": (True, True)}
_SYMBOLS = {"union": "|", "difference": "-", "intersection": "&", "Product": "*"}


class Combination(_Composite):
    """The union, difference or intersection of two domains with the same coordinates; made by ``a | b``, ``a - b``, ``a & b``.

    Its boundary is what remains of the boundaries of both. A side keeps its name, and sides with the same name are one
    piece; a face of a box becomes a piece such as ``x=0``. The measure of a solid is estimated, to some three digits.

    Raises:
        ProblemError: different coordinates, or nothing remains.

    Example:
        >>> import sciml
        >>> ring = sciml.Disk((0, 0), 2, piece="outer") - sciml.Disk((0, 0), 1, piece="inner")
        >>> ring.pieces
        ('outer', 'inner')
    """

    def __init__(self, operation: Operation, first: Domain, second: Domain) -> None:
        if first.coordinates != second.coordinates:
            raise ProblemError(
                f"{_SYMBOLS[operation]} joins domains with the same coordinates in the same order; given: "
                f"{listed(first.coordinates)} and {listed(second.coordinates)}; domains with different ones are "
                "multiplied: a * b"
            )
        self.kind, self.parts = operation, (first, second)
        ends = {
            "union": (np.minimum(first.lower, second.lower), np.maximum(first.upper, second.upper)),
            "intersection": (np.maximum(first.lower, second.lower), np.minimum(first.upper, second.upper)),
            "difference": (np.array(first.lower), np.array(first.upper)),
        }[operation]
        self._bounds = dict(zip(first.coordinates, zip(*(each.tolist() for each in ends), strict=True), strict=True))
        self._measure = 0.0
        if (ends[0] < ends[1]).all():
            unit = scipy.stats.qmc.Sobol(len(self._bounds), rng=np.random.default_rng(0)).random_base2(_VOLUME_POWER)
            self._measure = float(self.inside(unit)[1].mean()) * math.prod((ends[1] - ends[0]).tolist())
        if self._measure == 0:
            raise ProblemError(f"nothing remains of {self!r}: the {operation} of the two domains is empty")
        self._sides = {}
        for number, part in enumerate(self.parts):
            for own in part.sides:
                kept = _fraction_kept(part.freedom(own), partial(self._placed, number, own))
                if kept > 0:
                    name = own.describe(part)
                    alike = sum(side.describe(self) == name for side in self._sides)
                    self._sides[Piece(name, alike)] = number, own, kept

    @cached_property
    def measure(self) -> float:
        """The area, or the length or volume, estimated by low-discrepancy points."""
        return float(self._iterated(_AREA)[1].sum()) if len(self.bounds) == 2 else self._measure

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        if len(self.bounds) != 2 or count < _AREA_LEAST:
            return None
        if count not in self._rules:
            points, weights = self._iterated(count)
            self._rules[count] = points, weights / weights.sum()
        return self._rules[count]

    @cached_property
    def _rules(self) -> dict[int, tuple[Array, Array]]:
        return {}

    @cached_property
    def _breaks(self) -> Array:
        """The first coordinates of corners and of vertical tangents, among others."""
        corners = [_ends(self, side)[:, 0] for side in self.sides]
        return np.concatenate([*corners, *map(_first_bounds, self.parts)])

    def _iterated(self, count: int) -> tuple[Array, Array]:
        return iterated(self.distance, self.lower, self.upper, self._breaks, count)

    def distance(self, points: Any) -> Array:
        points = self.points(points)
        # All holes of one kind at once: asked for one by one, the calls take longer than the numbers.
        cut = [-kind.nearest(alike, points) for kind, alike in self._cut.items()]
        largest = np.maximum.reduce([*(each.distance(points) for each in self._kept), *cut])
        return -largest if self.kind == "union" else largest

    def contains(self, points: Any) -> Array:
        points, slack = self.points(points), _ON * self.thickness
        away = self.distance(points)
        found = away <= slack
        (edge,) = np.nonzero(found & (away >= -slack))
        if self.kind == "union" or not len(edge):
            return found
        # What was cut off along a side of the whole left points of both sides that are beside nothing.
        near = sum((np.abs(each.distance(points[edge])) <= slack).astype(int) for each, _ in self._members())
        doubtful = edge[near > 1]
        around = np.random.default_rng(0).standard_normal((_AROUND, points.shape[1]))
        around *= _STEP * self.thickness / np.linalg.norm(around, axis=1, keepdims=True)
        beside = (points[doubtful][:, None] + around).reshape(-1, points.shape[1])
        found[doubtful] = (self.distance(beside) < 0).reshape(len(doubtful), _AROUND).any(axis=1)
        return found

    @cached_property
    def _kept(self) -> list[Domain]:
        return [domain for domain, kept in self._members() if kept]

    @cached_property
    def _cut(self) -> dict[type[Domain], list[Domain]]:
        found: dict[type[Domain], list[Domain]] = {}
        for domain, kept in self._members():
            if not kept:
                found.setdefault(type(domain), []).append(domain)
        return found

    def _members(self) -> list[tuple[Domain, bool]]:
        """What all points of this are inside of or, as for a union all points of the outside are, outside of; chains as one."""
        found = []
        for number, part in enumerate(self.parts):
            chained = self._chained(number)
            found += [(part, _INSIDE[self.kind][number])] if chained is None else chained._members()
        return found

    def _chained(self, number: int) -> Combination | None:
        """A part that is a combination, and has members which are members of this."""
        part = self.parts[number]
        if isinstance(part, Combination) and (part.kind != "union") == _INSIDE[self.kind][number]:
            return part
        return None

    def on_side(self, side: Side, unit: Array) -> Placed:
        number, own, _ = self._sides[side]
        return self._placed(number, own, unit)

    def extent(self, side: Side) -> float:
        number, own, kept = self._sides[side]
        return self.parts[number].extent(own) * kept / self.parts[number].kept(own)

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        (number, first, _), (other, second, _) = self._sides[one], self._sides[two]
        if number != other:
            return super().meeting(one, two, unit)
        points = self.parts[number].meeting(first, second, unit)
        # Where the other part cuts corners off, the sides do not meet any more.
        return points[np.abs(self.distance(points)) < _STEP * self.thickness] if len(points) else points

    def _uncut(self, number: int, own: Side, unit: Array) -> Placed:
        """A side of a part before others cut it; where the boundaries of both parts coincide, the first one's is enough."""
        chained = self._chained(number)
        # On the boundary of a chain is on that of each of its parts that has the side: one test at the end does for all.
        points, normals, keep = (
            self.parts[number].on_side(own, unit) if chained is None else chained._uncut(*chained._sides[own][:2], unit)
        )
        if self.kind == "difference" and number == 1:
            normals = -normals
        if number == 1:
            keep = keep & (np.abs(self.parts[0].distance(points)) > _STEP * self.thickness)
        return points, normals, keep

    def _placed(self, number: int, own: Side, unit: Array) -> Placed:
        points, normals, keep = self._uncut(number, own, unit)
        # On the boundary are the points with the inside on one side of them and the outside on the other, also where the
        # boundaries of both parts coincide.
        step = self._a_step(normals)
        # All at once: of many holes' distances the calls take longer than the numbers.
        before, beyond, here = np.split(self.distance(np.concatenate([points - step, points + step, points])), 3)
        # Near where two boundaries cross, a step is long enough to leave through the other one.
        return points, normals, keep & (before < 0) & (beyond > 0) & (np.abs(here) <= _ON * self.thickness)


def _first_bounds(domain: Domain) -> list[float]:
    """The bounds of the first coordinate of all the domains that a combination is made of."""
    if isinstance(domain, Combination):
        return [*itertools.chain.from_iterable(map(_first_bounds, domain.parts))]
    return list(domain.bounds[domain.coordinates[0]])


def _fraction_kept(freedom: int, placed: Callable[[Array], Placed]) -> float:
    """The fraction of a side's points that are kept, estimated by a few of them."""
    unit = np.empty((1, 0))
    if freedom:
        unit = scipy.stats.qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(_PROBES)
    return float(placed(unit)[2].mean())


def checked_names(kind: str, names: Sequence[str], count: int) -> tuple[str, ...]:
    """Names of coordinates, which must be so many different ones."""
    found = tuple(names)
    if len(found) != count or len(set(found)) != count or not all(isinstance(name, str) and name for name in found):
        raise ProblemError(f"{kind}: names must be {count} different names of coordinates; given: {names!r}")
    return found


def in_parts(function: Callable[[Array], Array], points: Array, most: int) -> Array:
    """Values ``(n,)`` of a function of points, evaluated for at most so many of them at a time."""
    parts = (points[first : first + max(1, most)] for first in range(0, len(points), max(1, most)))
    return np.concatenate([np.empty(0), *map(function, parts)])


def segment_distance(gap: Array, along: Array) -> Array:
    """Distances ``(...)`` of points from segments, by the vectors ``(..., D)`` from their starts to the points and the ends."""
    dot = partial(np.einsum, "...i,...i->...")
    position = np.clip(dot(gap, along) / dot(along, along), 0, 1)
    away = gap - position[..., None] * along
    return np.sqrt(dot(away, away))

"""Descriptions of parts of a boundary, resolved only against the domain of the problem that uses them.

Domains, and the product, union, intersection and difference of two.

What every domain can do: bounds, measure, signed distance, and points on each side of its boundary.

Inner surfaces, where two domains meet.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.stats import qmc

from sciml._text import listed, nearest
from sciml.errors import ProblemError
from sciml.typing import Array

End = Literal["lower", "upper"]


@dataclass(frozen=True)
class Face:
    """A flat side of a domain: the points where ``coordinate`` has its lower or its upper bound."""

    coordinate: str
    side: End

    def value(self, domain: Geometry) -> float:
        """The value that the coordinate has on this face of ``domain``."""
        return domain.bounds[self.coordinate][0 if self.side == "lower" else 1]

    @property
    def sign(self) -> float:
        """The direction of the outward normal along the coordinate: -1 or +1."""
        return -1.0 if self.side == "lower" else 1.0

    def describe(self, domain: Geometry) -> str:
        """The face as people write it: ``x=-1``."""
        return f"{self.coordinate}={self.value(domain):g}"


@dataclass(frozen=True)
class Piece:
    """A side of a domain that is no box: one of those that the name ``name`` stands for."""

    name: str
    number: int = 0

    @property
    def coordinate(self) -> None:
        """No coordinate is constant on it."""
        return None

    def describe(self, domain: Geometry) -> str:
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
    """The two faces of one coordinate, visited in pairs of points that differ in that coordinate alone."""

    coordinate: str


@dataclass(frozen=True)
class At:
    """One point, by its coordinates in the order of the domain's."""

    position: tuple[float, ...]


@dataclass(frozen=True)
class Average:
    """The mean over a place: its residual is one row."""

    over: Interior | OnFaces


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

    def __or__(self, other: Region) -> Region:
        """The union of two regions."""
        extra = tuple(face for face in other.faces if face not in self.faces)
        # What one of them leaves out of the boundary is left out only if the other does not have it.
        around = [region for region in (self, other) if region.boundary]
        excluded = tuple(
            side for side in self.excluded + other.excluded if all(side in each.excluded for each in around)
        )
        return Region(self.faces + extra, bool(around), tuple(dict.fromkeys(excluded)))

    def __sub__(self, other: Region) -> Region:
        """The first region without the sides of the second.

        Raises:
            ProblemError: the second one is the whole boundary, which has no names.
        """
        if other.boundary:
            raise ProblemError("only named sides are taken off a region: domain.boundary - domain.piece('inlet')")
        kept = tuple(face for face in self.faces if face not in other.faces)
        return Region(kept, self.boundary, self.excluded + other.faces if self.boundary else ())

    def resolve(self, domain: Geometry, time: str | None, constants: Sequence[str] = ()) -> tuple[Side, ...]:
        """The sides of ``domain`` that this region means, given the name of the time coordinate (or None).

        No part of ``boundary`` are the faces of time and of ``constants``, coordinates that were constants of a problem.

        Raises:
            ProblemError: the region names a side that the domain lacks, or it has no side at all.
        """
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
                raise ProblemError(_missing(face, domain))
        if not faces:
            raise ProblemError(
                "a condition lies on an empty region: the domain has no boundary apart from its time faces; "
                "use sciml.Initial for the start, or domain.face(...) to name one face"
            )
        return faces


def _missing(side: Side, domain: Geometry) -> str:
    """What to say when a region names a side that the domain does not have."""
    if isinstance(side, Piece):
        return (
            f"a condition lies on the piece {side.name!r}, but the pieces of {domain!r} are {listed(domain.pieces)}: use "
            "domain.piece(...) of the problem's own domain"
        )
    if side.coordinate not in domain.bounds:
        return (
            f"a condition lies on a face of {side.coordinate!r}, but the domain has the coordinates "
            f"{listed(domain.coordinates)}: use domain.faces(...) of the problem's own domain"
        )
    return (
        f"a condition lies on a face of {side.coordinate!r}, but {domain!r} has no such face; its pieces are "
        f"{listed(domain.pieces)}"
    )


_PROBES = 256

_ON, _STEP = 1e-9, 1e-6


@dataclass(frozen=True)
class Interface:
    """What the boundaries of two domains with the same coordinates have in common; made by ``first.interface(second)``.

    Normals point out of the first domain, into the second. Conditions lie on it as on a piece of a boundary; it is itself
    no part of the boundary of the domain that holds both. What a part has of the boundary of the whole is
    ``part.interface(whole)``.

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
        own = [side.describe(self.first) for side in self.sides]
        for name in names:
            if name not in own:
                raise ProblemError(
                    f"{self!r} has no piece {name!r}; its pieces are {listed(dict.fromkeys(own))}.{nearest(name, own)}"
                )
        return replace(self, names=names)

    def freedom(self, side: Side) -> int:
        """How many numbers in [0, 1] a point on a side takes."""
        return self.first.freedom(side)

    def on_side(self, side: Side, unit: Array) -> Placed:
        """Points of a side, normals out of the first domain, and which points belong to both boundaries."""
        points, normals, keep = self.first.on_side(side, unit)
        keep = keep & (np.abs(self.second.distance(points)) <= _ON * self.first.diameter)
        # What a difference was cut with has the distance zero, too, where it touches the boundary of what it was cut from.
        step = _STEP * self.first.diameter * normals
        ahead, behind = (self.second.distance(points + sign * step) < 0 for sign in (1, -1))
        return points, normals, keep & (ahead != behind)

    def kept(self, side: Side) -> float:
        """The share of the points of ``on_side`` that are kept."""
        return self._kept[side]

    def share(self, side: Side) -> float:
        """The size of a side, where that of a square, or cube, of the first domain's measure is 1."""
        return self.first.share(side) * self._kept[side] / self.first.kept(side)

    def between(self, coordinate: str, lower: float, upper: float) -> Interface:
        """The same surface between other bounds of a coordinate, a window of time."""
        first, second = (clipped(part, coordinate, lower, upper) for part in (self.first, self.second))
        return Interface(first, second, self.names)

    @cached_property
    def _kept(self) -> dict[Side, float]:
        found = {}
        for side in self.first.sides:
            if self.names and side.describe(self.first) not in self.names:
                continue
            freedom = self.first.freedom(side)
            unit = np.empty((1, 0))
            if freedom:
                unit = qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(_PROBES)
            kept = float(self.on_side(side, unit)[2].mean())
            if kept > 0:
                found[side] = kept
        return found

    def __repr__(self) -> str:
        pieces = f".piece({', '.join(map(repr, self.names))})" if self.names else ""
        return f"{self.first!r}.interface({self.second!r}){pieces}"


def clipped(part: Domain, coordinate: str, lower: float, upper: float) -> Domain:
    """A part of a domain between bounds of a coordinate, if it has faces of it that lie beyond them."""
    if Face(coordinate, "lower") not in part.sides:
        return part
    low, high = part.bounds[coordinate]
    return part if low >= lower and high <= upper else part.between(coordinate, max(low, lower), min(high, upper))


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
    def half_widths(self) -> dict[str, float]:
        """Half of what each coordinate extends over, in its unit."""
        return {name: (upper - lower) / 2 for name, (lower, upper) in self.bounds.items()}

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


Operation = Literal["union", "difference", "intersection"]

_STEP = 1e-6

_ON = 1e-9

_PROBES = 256

_VOLUME_PROBES = 2**16


class Domain(Geometry):
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

    def __mul__(self, other: Domain) -> Domain:
        """All pairs of points of two domains with different coordinates."""
        return Product(self, other) if isinstance(other, Domain) else NotImplemented

    def __or__(self, other: Domain) -> Combination:
        """The points of either domain."""
        return Combination("union", self, other) if isinstance(other, Domain) else NotImplemented

    def __sub__(self, other: Domain) -> Combination:
        """The points of the first domain that are not in the second."""
        return Combination("difference", self, other) if isinstance(other, Domain) else NotImplemented

    def __and__(self, other: Domain) -> Combination:
        """The points of both domains."""
        return Combination("intersection", self, other) if isinstance(other, Domain) else NotImplemented


class Product(Domain):
    """All combinations of the points of several domains with different coordinates; made by ``disk * Interval(t=(0, 1))``.

    Raises:
        ProblemError: a coordinate belongs to two factors.

    Example:
        >>> import sciml
        >>> cylinder = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 2))
        >>> cylinder.coordinates, cylinder.pieces
        (('x', 'y', 't'), ('circle', 't=0', 't=2'))
    """

    def __init__(self, *factors: Domain) -> None:
        self.factors: tuple[Domain, ...] = tuple(
            part for factor in factors for part in (factor.factors if isinstance(factor, Product) else (factor,))
        )
        names = [name for factor in self.factors for name in factor.coordinates]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ProblemError(
                f"the factors of a product of domains have different coordinates; {listed(doubled)} is in two of them: name "
                "coordinates with names=..., or use |, & or - for domains with the same coordinates"
            )

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        return MappingProxyType({name: ends for factor in self.factors for name, ends in factor.bounds.items()})

    @property
    def measure(self) -> float:
        return math.prod(factor.measure for factor in self.factors)

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(own for factor in self.factors for own in self._own(factor).values())

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "Product", "parts": [factor.config for factor in self.factors]}

    def distance(self, points: Any) -> Array:
        parts = np.stack([factor.distance(at) for factor, at in zip(self.factors, self._split(points), strict=True)])
        return np.where((parts < 0).all(axis=0), parts.max(axis=0), np.linalg.norm(np.maximum(parts, 0), axis=0))

    def freedom(self, side: Side) -> int:
        owner, own = self._owner(side)
        return owner.freedom(own) + len(self.bounds) - len(owner.bounds)

    def on_side(self, side: Side, unit: Array) -> Placed:
        owner, own = self._owner(side)
        first = owner.freedom(own)
        at, outward, keep = owner.on_side(own, unit[:, :first])
        points, normals = [], []
        for factor in self.factors:
            if factor is owner:
                points.append(at)
                normals.append(outward)
                continue
            inside, kept = factor.inside(unit[:, first : first + len(factor.bounds)])
            first += len(factor.bounds)
            points.append(inside)
            normals.append(np.zeros_like(inside))
            keep = keep & kept
        return np.hstack(points), np.hstack(normals), keep

    def extent(self, side: Side) -> float:
        owner, own = self._owner(side)
        return owner.extent(own) * self.measure / owner.measure

    def inside(self, unit: Array) -> tuple[Array, Array]:
        made = [factor.inside(part) for factor, part in zip(self.factors, self._split(unit), strict=True)]
        return np.hstack([points for points, _ in made]), np.logical_and.reduce([keep for _, keep in made])

    def quadrature(self, count: int) -> tuple[Array, Array] | None:
        rules = [factor.quadrature(round(count ** (len(factor.bounds) / len(self.bounds)))) for factor in self.factors]
        found = [rule for rule in rules if rule is not None]
        if len(found) < len(rules):
            return None
        places, shares = grid(*((np.arange(len(at)), share) for at, share in found))
        return np.hstack([at[place] for (at, _), place in zip(found, places.T, strict=True)]), shares

    def kept(self, side: Side) -> float:
        owner, own = self._owner(side)
        return owner.kept(own) * math.prod(factor.filling for factor in self.factors if factor is not owner)

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        (owner, first), (other, second) = self._owner(one), self._owner(two)
        if owner is not other:
            return super().meeting(one, two, unit)
        column = self.coordinates.index(owner.coordinates[0])
        common = owner.meeting(first, second, unit[:, column : column + len(owner.bounds)])
        if not len(common):
            return super().meeting(one, two, unit)
        points, keep = self.inside(unit)
        points = points[keep]
        points[:, column : column + len(owner.bounds)] = common[np.arange(len(points)) % len(common)]
        return points

    def share(self, side: Side) -> float:
        # Factors may have different units, so that only shares of one factor compare.
        owner, own = self._owner(side)
        return owner.share(own)

    def between(self, coordinate: str, lower: float, upper: float) -> Product:
        if Face(coordinate, "lower") not in self.sides:
            raise ProblemError(self._no_face(f"between({coordinate!r}, ...)"))
        return Product(
            *(
                factor.between(coordinate, lower, upper) if coordinate in factor.bounds else factor
                for factor in self.factors
            )
        )

    def _split(self, points: Any) -> list[Array]:
        widths = [len(factor.bounds) for factor in self.factors]
        return np.split(self.points(points), np.cumsum(widths)[:-1], axis=1)

    def _own(self, factor: Domain) -> dict[Side, Side]:
        """The sides of a factor, and what they are called here: pieces of the same name in two factors are counted on."""
        taken = 0
        for before in self.factors[: self.factors.index(factor)]:
            taken += sum(isinstance(side, Piece) for side in before.sides)
        return {
            side: Piece(side.name, side.number + taken) if isinstance(side, Piece) else side for side in factor.sides
        }

    def _owner(self, side: Side) -> tuple[Domain, Side]:
        found = ((factor, own) for factor in self.factors for own, here in self._own(factor).items() if here == side)
        return next(found)

    def __repr__(self) -> str:
        return " * ".join(
            f"({factor!r})" if isinstance(factor, Combination) else repr(factor) for factor in self.factors
        )


_DISTANCES: dict[Operation, Callable[[Array, Array], Array]] = {
    "union": np.minimum,
    "difference": lambda first, second: np.maximum(first, -second),
    "intersection": np.maximum,
}

_SYMBOLS: dict[Operation, str] = {"union": "|", "difference": "-", "intersection": "&"}


class Combination(Domain):
    """The union, difference or intersection of two domains with the same coordinates; made by ``a | b``, ``a - b``, ``a & b``.

    Its boundary is what remains of the boundaries of both. A side keeps its name, and sides with the same name are one
    piece; a face of a box becomes a piece such as ``x=0``. Its measure is estimated, to some three digits.

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
        self.operation: Operation = operation
        self.parts = (first, second)
        lower, upper = np.array([(part.lower, part.upper) for part in self.parts]).transpose(1, 0, 2)
        if operation == "union":
            ends = lower.min(axis=0), upper.max(axis=0)
        elif operation == "intersection":
            ends = lower.max(axis=0), upper.min(axis=0)
        else:
            ends = lower[0], upper[0]
        pairs = zip(ends[0].tolist(), ends[1].tolist(), strict=True)
        self._bounds = dict(zip(first.coordinates, pairs, strict=True))
        if (ends[0] >= ends[1]).any() or self.measure == 0:
            raise ProblemError(f"nothing remains of {self!r}: the {operation} of the two domains is empty")
        self._sides = self._remaining()

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        return MappingProxyType(self._bounds)

    @cached_property
    def _filling(self) -> float:
        unit = qmc.Sobol(len(self._bounds), rng=np.random.default_rng(0)).random_base2(int(math.log2(_VOLUME_PROBES)))
        return float(self.inside(unit)[1].mean())

    @property
    def measure(self) -> float:
        return self._filling * math.prod(upper - lower for lower, upper in self._bounds.values())

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(self._sides)

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": self.operation, "parts": [part.config for part in self.parts]}

    def distance(self, points: Any) -> Array:
        first, second = (part.distance(points) for part in self.parts)
        return _DISTANCES[self.operation](first, second)

    def freedom(self, side: Side) -> int:
        part, own, _ = self._sides[side]
        return self.parts[part].freedom(own)

    def on_side(self, side: Side, unit: Array) -> Placed:
        part, own, _ = self._sides[side]
        return self._placed(part, own, unit)

    def extent(self, side: Side) -> float:
        part, own, kept = self._sides[side]
        return self.parts[part].extent(own) * kept / self.parts[part].kept(own)

    def kept(self, side: Side) -> float:
        return self._sides[side][2]

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        (part, first, _), (other, second, _) = self._sides[one], self._sides[two]
        if part != other:
            return super().meeting(one, two, unit)
        points = self.parts[part].meeting(first, second, unit)
        # Where the other part cuts corners off, the sides do not meet any more.
        return points[np.abs(self.distance(points)) < _STEP * self.diameter] if len(points) else points

    def _placed(self, part: int, own: Side, unit: Array) -> Placed:
        points, normals, keep = self.parts[part].on_side(own, unit)
        if self.operation == "difference" and part == 1:
            normals = -normals
        # On the boundary are the points with the inside on one side of them and the outside on the other, also where the
        # boundaries of both parts coincide; there the first one's points are enough.
        step = _STEP * self.diameter * normals
        keep = keep & (self.distance(points - step) < 0) & (self.distance(points + step) > 0)
        # Near where two boundaries cross, a step is long enough to leave through the other one.
        keep = keep & (np.abs(self.distance(points)) <= _ON * self.diameter)
        if part == 1:
            keep = keep & (np.abs(self.parts[0].distance(points)) > _STEP * self.diameter)
        return points, normals, keep

    def _remaining(self) -> dict[Side, tuple[int, Side, float]]:
        """The sides of which something remains: of which part, under which name there, and how much of it."""
        found: dict[Side, tuple[int, Side, float]] = {}
        for number, part in enumerate(self.parts):
            for own in part.sides:
                freedom = part.freedom(own)
                unit = np.empty((1, 0))
                if freedom:
                    unit = qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(_PROBES)
                kept = float(self._placed(number, own, unit)[2].mean())
                if kept > 0:
                    found[_unused(own.describe(part), found)] = (number, own, kept)
        return found

    def __repr__(self) -> str:
        first, second = (
            f"({part!r})" if isinstance(part, Combination | Product) else repr(part) for part in self.parts
        )
        return f"{first} {_SYMBOLS[self.operation]} {second}"


def _unused(name: str, taken: Mapping[Side, object]) -> Piece:
    """The next piece of a name."""
    return Piece(name, sum(isinstance(side, Piece) and side.name == name for side in taken))

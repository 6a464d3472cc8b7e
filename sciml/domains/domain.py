"""Domains, and the product, union, intersection and difference of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from scipy.stats import qmc

from sciml.domains.geometry import Geometry, Placed, grid
from sciml.domains.region import Face, Piece, Side
from sciml.errors import ProblemError, listed
from sciml.typing import Array

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

"""Polygons with holes, their edges and corners."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.geometry.domain import (
    Domain,
    Piece,
    Placed,
    Region,
    Side,
    checked_names,
    in_parts,
    segment_distance,
)
from sciml.geometry.quadrature import gauss, grid
from sciml.typing import Array

_CHUNK = 2**20
_NODES = 6


@dataclass(frozen=True)
class Corner:
    """A vertex of a polygon, which lies, near it, between the angles ``start`` and ``start + angle``, in radians.

    Attributes:
        position: the vertex.
        angle: the interior angle, between 0 and 2π; more than π where the corner is re-entrant.
        start: the direction of the first edge, in (-π, π].
        edges: the numbers of the edges at ``start`` and at ``start + angle``, as ``Polygon.edge`` takes them.
    """

    position: tuple[float, float]
    angle: float
    start: float
    edges: tuple[int, int]


class Polygon(Domain):
    """The inside of a closed chain of straight edges, less holes.

    Args:
        vertices: the corners ``(x, y)`` in order, in either sense, in the coordinates' unit; the last is joined to the first.
        holes: likewise the corners of each hole.
        names: of the coordinates, which have the same unit.
        edges: names for edges, ``{"inlet": 0, "wall": [1, 2]}``; the others are called ``edge 3``. Edge i runs from vertex i
            to the next; those of holes are counted on.

    Raises:
        ProblemError: fewer than three vertices, edges that cross or touch, a hole that is not inside, unknown edges.

    Example:
        >>> import sciml
        >>> shape = sciml.Polygon([(0, 0), (1, 0), (1, 1), (0, 1)], edges={"floor": 0})
        >>> shape.measure, shape.pieces
        (1.0, ('floor', 'edge 1', 'edge 2', 'edge 3'))
    """

    def __init__(
        self,
        vertices: Iterable[Sequence[float]],
        *,
        holes: Iterable[Iterable[Sequence[float]]] = (),
        names: Sequence[str] = ("x", "y"),
        edges: Mapping[str, int | Sequence[int]] | None = None,
    ) -> None:
        self.rings = (_ring("vertices", vertices), *(_ring(f"hole {k}", each) for k, each in enumerate(holes)))
        ends = zip(self.rings[0].min(axis=0).tolist(), self.rings[0].max(axis=0).tolist(), strict=True)
        self._bounds = dict(zip(checked_names("Polygon", names, 2), ends, strict=True))
        self._start = np.concatenate(self.rings)
        self._end = np.concatenate([np.roll(ring, -1, axis=0) for ring in self.rings])
        numbers = np.split(np.arange(len(self._start)), np.cumsum([len(ring) for ring in self.rings])[:-1])
        self._before = np.concatenate([np.roll(ring, 1) for ring in numbers])
        self._after = np.concatenate([np.roll(ring, -1) for ring in numbers])
        # The inside lies to the left of a ring's edges, or to the right, as it was given.
        left = [(_area(ring) > 0) == (k == 0) for k, ring in enumerate(self.rings)]
        self._left = np.repeat(left, [len(ring) for ring in self.rings])
        along = self._end - self._start
        self._lengths = np.hypot(*along.T)
        normals = np.stack([along[:, 1], -along[:, 0]], axis=1) / self._lengths[:, None]
        self._normals = np.where(self._left[:, None], normals, -normals)
        self._check()
        outer, *inner = (abs(_area(ring)) for ring in self.rings)
        self._measure = outer - sum(inner)
        self._names = _edge_names(edges or {}, len(self._start))
        self._sides = {Piece(name, self._names[:i].count(name)): i for i, name in enumerate(self._names)}

    @classmethod
    def from_shapely(cls, shape: Any, names: Sequence[str] = ("x", "y")) -> Polygon:
        """A polygon of the library ``shapely``, whose unions and buffers of polygons are polygons again.

        Raises:
            ProblemError: it is something else than one polygon.
        """
        if getattr(shape, "geom_type", None) != "Polygon":
            raise ProblemError(
                f"from_shapely takes a shapely Polygon; given: {getattr(shape, 'geom_type', type(shape).__name__)}; the "
                "parts of a MultiPolygon are in its geoms"
            )
        rings = [[tuple(point[:2]) for point in ring.coords][:-1] for ring in (shape.exterior, *shape.interiors)]
        return cls(rings[0], holes=rings[1:], names=names)

    @property
    def config(self) -> dict[str, Any]:
        outer, *holes = (ring.tolist() for ring in self.rings)
        edges = {name: [i for i, own in enumerate(self._names) if own == name] for name in dict.fromkeys(self._names)}
        return {"kind": "Polygon", "vertices": outer, "holes": holes, "names": list(self.bounds), "edges": edges}

    def edge(self, *numbers: int) -> Region:
        """The edges with these numbers; edge i runs from vertex i to the next, those of holes are counted on.

        Raises:
            ProblemError: there is no such edge.
        """
        wrong = [number for number in numbers if number not in range(len(self._start))]
        if wrong or not numbers:
            raise ProblemError(f"edge() takes numbers from 0 to {len(self._start) - 1}; given: {listed(numbers)}")
        return self._region(side for side, number in self._sides.items() if number in numbers)

    def corners(self) -> tuple[Corner, ...]:
        """Every vertex with its interior angle, in the order of the vertices, those of holes after them."""
        found = []
        for after, before in enumerate(self._before.tolist()):
            vertex = self._start[after]
            rays = [(self._end[after] - vertex, after), (self._start[before] - vertex, before)]
            # With the inside on the left, it is swept counter-clockwise from the next edge to the one before.
            (one, first), (two, last) = rays if self._left[after] else rays[::-1]
            start = math.atan2(one[1], one[0])
            angle = (math.atan2(two[1], two[0]) - start) % (2 * math.pi)
            found.append(Corner((float(vertex[0]), float(vertex[1])), angle, start, (first, last)))
        return tuple(found)

    def reentrant_corners(self) -> tuple[Corner, ...]:
        r"""The vertices with an interior angle of more than π, where derivatives of solutions are unbounded.

        At one with the angle ω Poisson's equation with prescribed values has a solution that behaves as
        :math:`r^{\pi/\omega}\sin(\pi(\theta - \theta_0)/\omega)`, with θ₀ the corner's ``start``.

        Example:
            >>> import sciml
            >>> shape = sciml.Polygon([(0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1)])
            >>> [(corner.position, round(corner.angle / 3.141592653589793, 3)) for corner in shape.reentrant_corners()]
            [((0.0, 0.0), 1.5)]

        Reference: P. Grisvard, Elliptic Problems in Nonsmooth Domains, Pitman (1985).
        """
        return tuple(corner for corner in self.corners() if corner.angle > math.pi * (1 + 1e-9))

    def distance(self, points: Any) -> Array:
        return in_parts(self._distance, self.points(points), _CHUNK // len(self._start))

    def _distance(self, at: Array) -> Array:
        nearest = segment_distance(at[:, None, :] - self._start, self._end - self._start).min(axis=1)
        return np.where(_inside(at, self._start, self._end), -nearest, nearest)

    def quadrature(self, count: int) -> tuple[Array, Array]:
        # Between two neighbouring vertices, from left to right, the polygon consists of trapezoids.
        cuts = np.unique(self._start[:, 0])
        pieces = []
        for left, right in itertools.pairwise(cuts.tolist()):
            over = np.sort(np.stack([self._start[:, 0], self._end[:, 0]]), axis=0)
            edges = np.flatnonzero((over[0] <= left) & (over[1] >= right) & (over[0] < over[1]))
            share = (np.array([[left], [right]]) - self._start[edges, 0]) / (self._end[edges, 0] - self._start[edges, 0])
            heights = self._start[edges, 1] + share * (self._end[edges, 1] - self._start[edges, 1])
            order = np.argsort(heights.sum(axis=0))
            pieces += [(left, right, heights[:, low], heights[:, high]) for low, high in order.reshape(-1, 2).tolist()]
        unit, weights = grid(*[gauss(max(_NODES, round(math.sqrt(count / len(pieces)))))] * 2)
        along, across = unit.T
        points, quadrature = [], []
        for left, right, low, high in pieces:
            bottom, top = (one + along * (two - one) for one, two in (low, high))
            points.append(np.stack([left + along * (right - left), bottom + across * (top - bottom)], axis=1))
            quadrature.append(weights * (right - left) * (top - bottom))
        return np.concatenate(points), np.concatenate(quadrature) / self.measure

    def on_side(self, side: Side, unit: Array) -> Placed:
        number = self._sides[side]
        points = self._start[number] + unit * (self._end[number] - self._start[number])
        return points, np.tile(self._normals[number], (len(unit), 1)), np.ones(len(unit), dtype=bool)

    def extent(self, side: Side) -> float:
        return float(self._lengths[self._sides[side]])

    def meeting(self, one: Side, two: Side, unit: Array) -> Array:
        first, second = self._sides[one], self._sides[two]
        pairs = ((self._end[first], self._start[second]), (self._end[second], self._start[first]))
        common = [end for end, start in pairs if first != second and (end == start).all()]
        return np.array(common).reshape(-1, 2)

    def _check(self) -> None:
        """Refuse edges that cross or touch, and holes that lie outside."""
        count = len(self._start)
        for i, following in enumerate(self._after.tolist()):
            others = np.setdiff1d(np.arange(i + 1, count), [following, self._before[i]])
            hit = others[_meet(self._start[i], self._end[i], self._start[others], self._end[others])]
            if len(hit):
                raise ProblemError(
                    f"Polygon: edge {i} from {_shown(self._start[i])} to {_shown(self._end[i])} crosses or touches edge "
                    f"{hit[0]} from {_shown(self._start[hit[0]])} to {_shown(self._end[hit[0]])}: give the vertices in order "
                    "along the boundary, and holes inside it"
                )
            turn = self._end[following] - self._start[following]
            ahead = self._end[i] - self._start[i]
            if abs(_cross(ahead, turn)) <= 1e-12 * np.hypot(*ahead) * np.hypot(*turn) and ahead @ turn < 0:
                raise ProblemError(
                    f"Polygon: the boundary turns back on itself at {_shown(self._end[i])}: take that vertex out"
                )
        for k, hole in enumerate(self.rings[1:], start=1):
            within = [_inside(hole[:1], ring, np.roll(ring, -1, axis=0))[0] for ring in self.rings]
            if not within[0] or any(within[1:k] + within[k + 1 :]):
                raise ProblemError(
                    f"Polygon: hole {k - 1} at {_shown(hole[0])} does not lie inside the polygon, apart from other holes"
                )

    def __repr__(self) -> str:
        holes = f", {len(self.rings) - 1} hole(s)" if len(self.rings) > 1 else ""
        return f"Polygon({len(self.rings[0])} vertices{holes})"


def _ring(what: str, vertices: Iterable[Sequence[float]]) -> Array:
    try:
        ring = np.array([[float(value) for value in vertex] for vertex in vertices], dtype=np.float64)
        given = f"an array of shape {ring.shape}"
    except (TypeError, ValueError) as error:
        ring, given = np.empty(0), str(error)
    if ring.ndim != 2 or ring.shape[0] < 3 or ring.shape[1] != 2 or not np.isfinite(ring).all():
        raise ProblemError(
            f"Polygon: {what} must be at least three pairs of numbers, all finite, as in [(0, 0), (1, 0), (0, 1)]; given: "
            f"{given}"
        )
    double = np.flatnonzero((ring == np.roll(ring, -1, axis=0)).all(axis=1))
    if len(double):
        raise ProblemError(
            f"Polygon: {what} {double[0]} and the next are the same point {_shown(ring[double[0]])}: name each vertex "
            "once; the last is joined to the first by itself"
        )
    return ring


def _area(ring: Array) -> float:
    """The area of a ring, positive when it is run through counter-clockwise."""
    corners = ring - ring[0]
    return 0.5 * float(_cross(corners, np.roll(corners, -1, axis=0)).sum())


def _cross(one: Array, two: Array) -> Array:
    return one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]


def _meet(start: Array, end: Array, starts: Array, ends: Array) -> Array:
    """True where a segment has a point in common with another one, ``(m,)``."""

    def turn(one: Array, two: Array, at: Array) -> Array:
        return np.sign(_cross(two - one, at - one))

    across = turn(start, end, starts) * turn(start, end, ends) <= 0
    across &= turn(starts, ends, start) * turn(starts, ends, end) <= 0
    # Segments on one line meet only if their extents do.
    apart = (np.maximum(starts, ends) < np.minimum(start, end)) | (np.minimum(starts, ends) > np.maximum(start, end))
    return across & ~apart.any(axis=1)


def _inside(at: Array, start: Array, end: Array) -> Array:
    """True for points inside: a ray to the right crosses an odd number of edges, which own their lower ends alone."""
    crossed = (start[:, 1] > at[:, 1:]) != (end[:, 1] > at[:, 1:])
    along, gap = end - start, at[:, None, :] - start
    return (crossed & ((_cross(along, gap) > 0) == (along[:, 1] > 0))).sum(axis=1) % 2 == 1


def _edge_names(given: Mapping[str, int | Sequence[int]], count: int) -> list[str]:
    names = [f"edge {i}" for i in range(count)]
    taken: set[int] = set()
    for name, numbers in given.items():
        for number in [numbers] if isinstance(numbers, int) else numbers:
            if number not in range(count) or number in taken:
                raise ProblemError(
                    f"Polygon: edges={{{name!r}: {numbers!r}}} must be numbers from 0 to {count - 1}, each under one name"
                )
            taken.add(number)
            names[number] = str(name)
    return names


def _shown(point: Array) -> str:
    return f"({point[0]:g}, {point[1]:g})"

"""Low-discrepancy sampling: scrambled Sobol points inside a domain and on the sides of its boundary; Chebyshev points."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.errors import ProblemError
from sciml.geometry.domain import At, Average, Domain, Face, Interface, Interior, OnFaces, Opposite, Piece, Place, Side, Within
from sciml.typing import Array, Points

# Points that show whether two faces are alike.
_ALIKE = 1000
_FEW, _DOUBLINGS, _MORE = 8, 8, 8
# Powers of two of points that are looked at at once, and at all.
_AT_ONCE, _AT_ALL = 18, 27
# How many sides of a square a piece is as long as at most.
_LONGEST = 32.0
# How far along a side, as a share of it, its directions are looked for.
_STEP = 1e-6
# About how many points of a side share a cell, which is halved where they are to lie closer.
_A_CELL = 8
# How often the distance of points on a line is halved at most.
_MOST_HALVINGS = 6
# Times at which a mean is taken where no rule gives them, and about how many points at each.
_SLICES, _A_SLICE = 24, 400


@dataclass(frozen=True)
class PointSet:
    """Points ``(n, D)`` of one place, two tensors of partners on the lower and the upper face of a coordinate.

    ``normals``, outward, are ``(n, D)``, ``faces`` the numbers of points on each side. ``quadrature``, ``(n,)``, are
    weights with the sum 1 where residuals are averaged into one row, ``(R, n)`` where into R rows.
    """

    points: tuple[Points, ...]
    normals: Tensor | None = None
    faces: tuple[int, ...] = ()
    quadrature: Tensor | None = None

    def to(self, device: torch.device, dtype: torch.dtype) -> PointSet:
        """The same points elsewhere."""
        normals, quadrature = (None if it is None else it.to(device, dtype) for it in (self.normals, self.quadrature))
        return PointSet(tuple(points.to(device, dtype) for points in self.points), normals, self.faces, quadrature)

    def part(self, chosen: Tensor | slice) -> PointSet:
        """Some of the points, whatever sides they lie on."""
        normals = None if self.normals is None else self.normals[chosen]
        quadrature = None if self.quadrature is None else self.quadrature[..., chosen]
        return PointSet(tuple(points[chosen] for points in self.points), normals, (), quadrature)

    def by_side(self) -> list[PointSet]:
        """The points of each side, or all of them where a place has no sides."""
        counts = self.faces or (len(self.points[0]),)
        return [self.part(slice(end - count, end)) for count, end in zip(counts, np.cumsum(counts).tolist(), strict=True)]

    @classmethod
    def joined(cls, parts: Sequence[PointSet], *, sides: bool = False) -> PointSet:
        """The points of several sets without quadrature, one after the other; with ``sides`` each is one."""
        assert all(part.quadrature is None for part in parts)
        points = tuple(torch.cat(each) for each in zip(*(part.points for part in parts), strict=True))
        normals = [part.normals for part in parts if part.normals is not None]
        faces = tuple(len(part.points[0]) for part in parts) if sides else ()
        return cls(points, torch.cat(normals) if len(normals) == len(parts) else None, faces)


@dataclass(frozen=True)
class Halvings:
    """Local point density: how often distances are to be halved at places ``(n, D)``, and the coordinates that tell it.

    Distances are those along the directions of a side or a line, unit vectors ``(n, k, D)`` there: ``levels`` gives a number
    for each, ``(n, k)``, or one for all, ``(n, 1)``.
    """

    levels: Callable[[Array, Array], Array]
    columns: Sequence[int]


def default_count(domain: Domain) -> int:
    """The default number of points inside, by the number of coordinates."""
    return {1: 256, 2: 1024}.get(len(domain.coordinates), 4096)


def default_face_count(domain: Domain, inside: int) -> int:
    """The default number of points on each face: twice as dense along every edge as ``inside`` points are in a box."""
    dimension = len(domain.coordinates)
    if dimension > 3:
        # That many points on each of many faces would be far more than inside: as many on all of them together.
        return max(1, inside // (2 * dimension))
    return 1 if dimension == 1 else round(2 * inside ** ((dimension - 1) / dimension))


def draw(
    place: Place,
    domain: Domain,
    count: int,
    generator: np.random.Generator,
    finer: Halvings | None = None,
    longest: float = _LONGEST,
) -> PointSet:
    """Scrambled Sobol points of one place of a domain, uniform by its length, area or volume.

    Args:
        count: the number of points; on sides, of points on **each** face (a face that is a single point gets one). Pieces get
            as many by their size, where a side of a square (or cube) with the measure of the domain gets ``count``; at
            least eight.
        finer: where points of sides and lines are to lie closer, along the coordinates that tell it; places that ask for more
            are found among the points that others have. None for evenly spread ones.
        longest: how many times as many points as such a side a piece has at most: that of a thin domain would have no end.

    Raises:
        ProblemError: a domain is so thin in the box around it that hardly any point falls into it.

    Example:
        >>> import numpy as np, sciml
        >>> from sciml.geometry.domain import Interior
        >>> sample = draw(Interior(), sciml.Box(x=(0, 1), t=(0, 2)), 100, np.random.default_rng(0))
        >>> sample.points[0].shape
        torch.Size([100, 2])

    Reference: A. B. Owen, Scrambling Sobol' and Niederreiter-Xing points, Journal of Complexity 14 (1998).
    """
    if isinstance(place, Interior):
        (points,) = _collected(domain.inside, len(domain.bounds), domain.filling, count, generator)
        return PointSet((torch.from_numpy(points),))
    if isinstance(place, Within):
        return draw(Interior(), place.part, count, generator)
    if isinstance(place, Average):
        return _quadrature(place, domain, count, generator)
    if isinstance(place, At):
        points, halvings = _along(place, domain, count), 0
        if finer is not None:
            open_ones = np.eye(len(domain.bounds))[[at is None for at in place.position]]
            asked = finer.levels(points, np.tile(open_ones, (len(points), 1, 1)))
            halvings = min(int(asked.max(initial=0)), _MOST_HALVINGS)
        return PointSet((torch.from_numpy(_along(place, domain, count * 2**halvings)),))
    if isinstance(place, OnFaces | Interface):
        owner, sides = (place, place.sides) if isinstance(place, Interface) else (domain, place.faces)

        def many(side: Side) -> int:
            # Unlike faces, pieces can be many and of very different sizes.
            return max(_FEW, round(count * min(owner.relative_size(side), longest))) if isinstance(side, Piece) else count

        pieces = [on_side(side, owner, many(side), generator, finer) for side in sides]
        points, normals = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return PointSet((torch.from_numpy(points),), torch.from_numpy(normals), tuple(len(piece) for piece, _ in pieces))
    column = domain.coordinates.index(place.coordinate)
    lower, _ = on_side(place.sides[0], domain, count, generator, finer)
    upper = _moved(lower, column, domain.upper[column])
    if isinstance(place.sides[0], Piece):
        # What was cut from one face alone is missing opposite the other.
        others, _ = on_side(place.sides[1], domain, _ALIKE, np.random.default_rng(0))
        if not domain.contains(np.concatenate([upper, _moved(others, column, domain.lower[column])])).all():
            raise ProblemError(f"the faces of {place.coordinate!r} of {domain!r} differ: points of one have none opposite them")
    return PointSet((torch.from_numpy(lower), torch.from_numpy(upper)))


def _moved(points: Array, column: int, value: float) -> Array:
    """Points ``(n, D)`` with another value of one coordinate."""
    found = points.copy()
    found[:, column] = value
    return found


def on_side(
    side: Side,
    domain: Domain | Interface,
    count: int,
    generator: np.random.Generator,
    finer: Halvings | None = None,
) -> tuple[Array, ...]:
    """Scrambled Sobol points ``(n, D)`` of one side, closer where ``finer`` says so, and its outward unit normals there.

    A side that is a point has one.
    """
    made, dimension = partial(domain.on_side, side), domain.freedom(side)
    if finer is None or dimension == 0:
        return _collected(made, dimension, domain.kept(side), count, generator)
    unit, *arrays = _collected(lambda unit: (unit, *made(unit)), dimension, domain.kept(side), count, generator)
    edges = np.full(dimension, 2 ** max(0, round(math.log2(count / _A_CELL) / dimension)))
    sequence = scipy.stats.qmc.Sobol(dimension, rng=generator).random_base2(max(0, round(math.log2(count / edges.prod()))))
    # Directions that lead along other coordinates alone, as time where tiles are those of space, stay as they are.
    places = arrays[0][:, finer.columns]
    mirrored = [np.where(np.arange(dimension) == each, 1 - unit, unit) for each in range(dimension)]
    leads = np.array([not np.array_equal(made(each)[0][:, finer.columns], places) for each in mirrored])
    # How often the cell of each place was halved along each direction.
    level, parts = np.zeros((len(unit), dimension), dtype=int), list[list[Array]]()
    while True:
        asked = _asked(finer, made, unit, arrays, leads)
        parts.append([each[(asked == level).all(1)] for each in arrays])
        # Cells that hold a place that asks for more are halved along all directions that do, and filled anew; a cell is come to
        # in one way alone, on which no direction is behind that asks for more.
        most = level.max(1, keepdims=True)
        further = np.minimum(most + 1, asked)
        more = (level == np.minimum(most, asked)).all(1) & (further > level).any(1)
        if not more.any():
            return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
        found, levels = [], []
        for wanted in np.unique(further[more], axis=0):
            some = more & (further == wanted).all(1)
            before = level[some][0]
            halves = np.indices(tuple((wanted - before + 1).tolist())).reshape(dimension, -1).T
            cells = np.unique(np.floor(unit[some] * (edges << before)), axis=0)
            children = (cells[:, None] * (1 + wanted - before) + halves).reshape(-1, 1, dimension)
            # Each cell has a shift of its own, or the points of cells beside each other would agree in a coordinate.
            shifted = (sequence + generator.random((len(children), 1, dimension))) % 1
            found.append(((children + shifted) / (edges << wanted)).reshape(-1, dimension))
            levels.append(np.broadcast_to(wanted, found[-1].shape))
        unit, level = np.concatenate(found), np.concatenate(levels)
        *arrays, keep = made(unit)
        unit, level, *arrays = (each[keep] for each in (unit, level, *arrays))


def _asked(
    finer: Halvings, made: Callable[[Array], tuple[Array, ...]], unit: Array, arrays: Sequence[Array], leads: Array
) -> Array:
    """How often distances are to be halved along each direction of a side at its points, ``(n, k)``; along some they lead."""
    moves = _STEP * np.where(unit < 0.5, 1.0, -1.0)
    directions = [made(unit + moves * (np.arange(len(leads)) == each))[0] - arrays[0] for each in range(len(leads))]
    along = np.stack(directions, axis=1) * np.isin(np.arange(arrays[0].shape[1]), finer.columns)
    size = np.linalg.norm(along, axis=2)
    found = np.where(size > 0, finer.levels(arrays[0], along / np.where(size > 0, size, 1.0)[:, :, None]), 0)
    # One that leads to another triangle, and nowhere within its own, is halved as often as the others.
    return np.where((size == 0) & leads, found.max(1, keepdims=True), found)


def _along(place: At, domain: Domain, count: int) -> Array:
    """The point, or Chebyshev points of the line through it."""
    open_ones = [column for column, at in enumerate(place.position) if at is None]
    found = np.array([[0.0 if at is None else at for at in place.position]])
    for column in open_ones:
        low, high = domain.bounds[domain.coordinates[column]]
        found = np.repeat(found, count, axis=0)
        found[:, column] = low + (high - low) * (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2
    return found


def _quadrature(place: Average, domain: Domain, count: int, generator: np.random.Generator) -> PointSet:
    """Points and weights of a rule of high order inside simple domains; elsewhere points that count alike on their sides."""
    rule = domain.quadrature(count) if isinstance(place.over, Interior) else None
    if rule is not None:
        sample = PointSet((torch.from_numpy(rule[0]),), quadrature=torch.from_numpy(rule[1]))
    else:
        # Such points find a mean to a lower order: there have to be more of them.
        sample = draw(place.over, domain, _MORE * count, generator)
        size = len(sample.points[0])
        quadrature = np.full(size, 1 / size)
        if isinstance(place.over, OnFaces):
            extents = np.array([domain.extent(side) for side in place.over.faces])
            quadrature = np.repeat(extents / extents.sum() / sample.faces, sample.faces)
        sample = replace(sample, quadrature=torch.from_numpy(quadrature))
    return sample if place.each is None else _at_each(sample, place.each, domain, rule is not None)


def _at_each(sample: PointSet, name: str, domain: Domain, by_rule: bool) -> PointSet:
    """The points of a mean, gathered or copied to values of one coordinate, with one row of weights for each of these."""
    column, (points,), weights = domain.coordinates.index(name), sample.points, sample.quadrature
    assert weights is not None
    if by_rule:
        values, group = torch.unique(points[:, column], return_inverse=True)
        rows = weights.new_zeros(len(values), len(points))
        rows[group, torch.arange(len(points))] = weights
        return replace(sample, quadrature=rows / rows.sum(1, keepdim=True))
    # The domain is a product: what lies in it at one value does so at all.
    at = torch.from_numpy(_along(At(tuple(None if own == name else 0.0 for own in domain.coordinates)), domain, _SLICES))
    some = torch.arange(0, len(points), max(1, len(points) // _A_SLICE))
    copied = points[some].repeat(len(at), 1)
    copied[:, column] = at[:, column].repeat_interleave(len(some))
    rows = torch.block_diag(*[(weights[some] / weights[some].sum())[None]] * len(at))
    normals = None if sample.normals is None else sample.normals[some].repeat(len(at), 1)
    return PointSet((copied,), normals, (), rows)


def _collected(
    made: Callable[[Array], tuple[Array, ...]],
    dimension: int,
    fraction: float,
    count: int,
    generator: np.random.Generator,
) -> tuple[Array, ...]:
    """Arrays at the first ``count`` points of a Sobol sequence that the last array of ``made`` keeps, a ``fraction`` of all."""
    if dimension == 0:
        return made(np.empty((1, 0)))[:-1]
    engine = scipy.stats.qmc.Sobol(dimension, rng=generator)
    # A whole power of two keeps the sequence balanced; its beginning is a good sequence of the length asked for.
    power = math.ceil(math.log2(max(count, 1) / max(fraction, 1e-6)))
    parts: list[tuple[Array, ...]] = []
    found, size = 0, 2 ** min(power, _AT_ONCE)
    # Of a domain that fills little of its box not all at once, which would take gigabytes.
    for _ in range(2 ** min(power + _DOUBLINGS - 1, _AT_ALL) // size):
        *arrays, keep = made(engine.random(size))
        parts.append(tuple(array[keep] for array in arrays))
        found += int(keep.sum())
        if found >= count:
            return tuple(np.concatenate(each)[:count] for each in zip(*parts, strict=True))
    raise ProblemError(
        f"only {found} of {count} points were found: the domain, or a piece of its boundary, is too small a part of what it "
        "was cut from"
    )


def clustered(sample: PointSet, box: Domain, around: Collection[int] = ()) -> PointSet:
    r"""Evenly spread points, moved so that they have the density :math:`\prod_i (1-x_i^2)^{-1/2}` on [-1, 1].

    Least squares by polynomials of degree n needs some n² evenly spread points along a line, and some n of these. Points on
    faces stay on them.

    Args:
        sample: points of one place, evenly spread.
        box: the domain, a box.
        around: the columns of coordinates that are left as they are, because what is fitted is periodic along them.

    Example:
        >>> import torch, sciml
        >>> evenly = PointSet((torch.tensor([[0.0], [0.25], [0.5]], dtype=torch.float64),))
        >>> [round(float(x), 3) for x in clustered(evenly, sciml.Box(x=(0, 1))).points[0]]
        [0.0, 0.146, 0.5]

    Reference: A. Narayan, J. D. Jakeman and T. Zhou, A Christoffel function weighted least squares algorithm for collocation
    approximations, Mathematics of Computation 86 (2017).
    """
    free = [column for column in range(len(box.coordinates)) if column not in around]

    def moved(points: Points) -> Points:
        low, high = (points.new_tensor(ends) for ends in (box.lower, box.upper))
        scaled = (2 * points - low - high) / (high - low)
        there = torch.where(scaled.abs() < 1, low + (high - low) * (math.pi / 4 * (1 + scaled)).sin().square(), points)
        found = points.clone()
        found[:, free] = there[:, free]
        return found

    return replace(sample, points=tuple(map(moved, sample.points)))


@dataclass(frozen=True)
class SpectralPoints:
    """Numbers of clustered points inside and on faces across each coordinate; columns ``around`` stay evenly spread."""

    inside: int
    across: Mapping[str, int]
    around: tuple[int, ...] = ()

    def draw(self, place: Place, box: Domain, generator: np.random.Generator) -> PointSet:
        """Points of one place, as many as it asks for."""
        if isinstance(place, Interior):
            count = self.inside
        elif isinstance(place, OnFaces):
            count = max(self.across[face.coordinate] for face in place.faces if isinstance(face, Face))
        elif isinstance(place, Opposite):
            # Waves join by themselves at the ends of their coordinate.
            waves = box.coordinates.index(place.coordinate) in self.around
            count = 2 if waves else self.across[place.coordinate]
        else:
            return draw(place, box, self.inside, generator)
        return clustered(draw(place, box, count, generator), box, self.around)

"""Cut tiles as a space of functions: polynomials on the boxes of a grid that the domain cuts, their places and continuity.

Problems at rest and slabs of time take their rows from here. A small cut does no harm: the polynomial is that of the whole
box, and as many points are taken in a cut tile as in a whole one.

References: P. B. Bochev and M. D. Gunzburger, Least-Squares Finite Element Methods, Springer 2009; E. Burman and others,
CutFEM: discretizing geometry and partial differential equations, International Journal for Numerical Methods in Engineering
104 (2015).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sciml.geometry import (
    Average,
    Ball,
    Domain,
    Face,
    Interface,
    Interior,
    OnFaces,
    Opposite,
    PointSet,
    Within,
    common_ends,
    draw,
)
from sciml.geometry.sampling import Halvings
from sciml.models import Tiles
from sciml.models.bases import gauss
from sciml.problem import Problem
from sciml.problem.compatibility import condition_orders
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.thresholds import at_same_jets, switched
from sciml.slabs.nested_dissection import BlockCholesky
from sciml.slabs.projection import Sampled, projected_on_boxes
from sciml.slabs.system import Evaluated, Part, Site
from sciml.typing import Array, MultiIndex

# Rows of conditions and of continuity, which hold on sets of lower dimension, against those of equations.
SIDES = 3.0
# What the terms of continuity are called, before the name of their field.
CONTINUITY = "continuity."
# What those of small cuts are called, which hold beyond the domain, too.
_GHOST = "ghost."
# What is said of where residuals are judged.
SINGULAR = "residuals are judged apart from singular places"
# Points along each coordinate of a cut tile to choose from, for one of a whole tile; beyond its degree, of a whole tile.
_FINER, _MORE_POINTS = 3, 3
_OUTSIDE, _FAR = 1e-6, 10.0
# How much larger than the values inside a polynomial may become beyond, and with what weights it is held, one after the other.
_WILD, _HOLDS = 1e3, (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
# Places that are asked at once whether they lie inside.
_AT_ONCE = 200_000
# A tile has so many points inside at least. Conditions have so many points for each function along them.
_LEAST_POINTS, _ONSIDES = 3, 2.0
# The share of a sum of squares that few tiles hold, and by what share of their number few that are halved make them more.
_MOST_OF, _MORE = 0.8, 1.2
# How many times the squares elsewhere those are of a corner that stands out.
_STANDS_OUT = 2.0
# That share where tiles are graded towards jumps: from ring to ring fields are alike, and higher degrees resolve all of them.
_MORE_BESIDE = 0.1
# By what factor the number of tiles that are halved grows at least where data are rough along curves, which no tile resolves.
_ALONG_CURVES = 1.8
# Half the width of the smallest tile that is halved, as a share of half the domain's: places in it have eight digits.
_SMALLEST = 1e-8
# A boundary of more sides is a curve rather than a polygon with corners, or a surface rather than one with edges.
_MOST_SIDES = {2: 200, 3: 30}
# Places along an edge, by which it is known.
_ALONG_EDGES = 33
# How often tiles at a corner are halved at once, beside the once of all that are marked.
_TOWARDS = 7
# How often tiles are halved at most because of what is left on them: a jump of the boundary values leaves as much on any.
_SMALL_ENOUGH = 20
# What of half a tile the width of a small hole is at most; what of its width the middle of a hole is from the domain at least;
# tiles from which on no more are halved.
_SMALL_HOLE, _ROUND, _MOST_AROUND = 0.25, 0.2, 1000
# Places that are the same, in units of half the domain.
_SAME_PLACE = 1e-6
# How often the tiles are halved in which derivatives are those of a singular place, and the share of points there.
NEAR, _FEW_POINTS = 4, 0.02
# Points at which the mean of a field is taken in the plane and in space, and what differences of a level are rounding.
_AVERAGED, _EVEN = {1: 2**14, 2: 2**14, 3: 2**16}, 1e-12
# What polynomials of half the degree may miss of what conditions impose, as a share of its range; how far around a tile that is
# looked at, as a share of the tile, and how much denser than rows.
_MISSED, _AROUND, _DENSER, _RIDGE, _ROUNDING = 1e-2, 0.2, 4.0, 1e-12, 1e-9
# How many times as many points as a side of a square a piece has at most: each is about as long as the domain.
_LONGEST = 8.0
# So many times as many tiles hold what is narrow as did at first when it is resolved.
_SEVERAL = 4
# How often tiles at jumps are halved once more with each higher degree.
_SMALLER = 2
# So many tiles at jumps are few however many there are.
_FEW_AT_JUMPS = 16
# What of the variation along the longest side is left along short ones.
_SHORT = 0.5
# Places around a corner that are asked whether they lie inside, how near, as a share of half the domain, and how many of
# them do at least where it is re-entrant: those that are hardly so leave derivatives bounded that matter.
_AROUND_CORNERS, _NEAR_CORNERS, _REENTRANT = 64, 1e-6, 0.6
# How far small tiles at a jump reach, in those that are halved so often.
_REACH = 8.0
# What of a field's size polynomials miss where it jumps; the square of the degrees, as shares, up to which they are smooth.
_JUMPING, _SMOOTH = 5e-3, (5 / 6) ** 2
# How many times faster than the CPU an accelerator factors.
_FASTER = 100.0
# What of a tile's length what lies between two jumps is at least where tiles end at these.
_THIN = 0.25
# How far to either side of a tile's side a field may end, as a share of the tile.
_BESIDE = 1e-7


def is_gauge(problem: Problem, term: Term) -> bool:
    """Whether a mean is a gauge condition: it gives a field, at every place the same, the level that all else leaves open."""
    (field, index), *more = problem.system.depends(term)
    # A periodic field is only compared with itself.
    others = [each for each in problem.terms() if each is not term and not isinstance(each.place, Opposite)]
    # What a constant more or less does not change has derivatives of the field alone.
    free = all(index for each in others for name, index in problem.system.depends(each) if name == field)
    evaluation = problem.system.probe(at_once=True)
    wanted = term.evaluate(evaluation) - problem.system.slopes(term)[field, index][0] * evaluation.space.jet(field, index)
    return free and not more and bool((wanted - wanted[0]).abs().max() <= _EVEN * wanted.abs().max())


def untied(problem: Problem) -> str | None:
    """Why means are not gauge conditions, or None where each is."""
    tying = (each.name for each in problem.terms() if isinstance(each.place, Average) and not is_gauge(problem, each))
    return next((f"the mean {name!r} ties all tiles together" for name in tying), None)


@dataclass(frozen=True)
class Corners:
    """Corners and edges of a domain: places ``(C, D)`` in the coordinates of tiles, and the coordinates across, ``(C, D)``.

    ``mixed`` is where conditions are of other orders on both sides, ``(C,)``.
    """

    places: Tensor
    across: Tensor
    mixed: Tensor

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, which: Tensor) -> Corners:
        return Corners(self.places[which], self.across[which], self.mixed[which])


class TileSpace:
    """Unfitted spectral elements: the functions on tiles that a domain cuts, as rows of least squares use them.

    Args:
        problem: whose domain cuts the tiles.
        model: tiles in coordinates scaled to [-1, 1].
        names: the coordinates of the tiles; the others are left at the middle of their bounds.
        jumps: where tiles end along each coordinate, for equations jump there; they are looked for where not given.
    """

    def __init__(
        self, problem: Problem, model: Tiles, names: Sequence[str], jumps: Sequence[Sequence[float]] | None = None
    ) -> None:
        self.model, self.names, self.problem = model, tuple(names), problem
        self.side = max(model.degrees) + _MORE_POINTS
        self._place = [problem.coordinates.index(name) for name in names]
        bounds = torch.tensor([problem.domain.bounds[name] for name in names], dtype=torch.float64)
        self._center, self._half = bounds.mean(1), bounds.diff(dim=1)[:, 0] / 2
        self.halves = model.halves * self._half
        self._degrees = torch.tensor([max(1, each) for each in model.degrees], dtype=torch.float64)
        self._middle = [sum(problem.domain.bounds[name]) / 2 for name in problem.coordinates]
        self._inside: dict[Domain, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        self._jumps = self._ends_at() if jumps is None else jumps

    def _ends_at(self) -> list[list[float]]:
        """Where tiles end along each coordinate, for equations jump there."""
        found = list[list[float]]()
        for column, name in enumerate(self.names):
            ends = self._center[column] + self._half[column] * self.model.breaks[column]
            near = _BESIDE * float(self._half[column])
            found.append([each for each in switched(self.problem, name) if float((ends - each).abs().min()) < near])
        return found

    @staticmethod
    def laid(problem: Problem, names: Sequence[str], counts: Sequence[int], degree: int, fields: int = 1) -> TileSpace | None:
        """So many tiles along each coordinate, those that the domain meets; None where no tile has points in the domain."""
        breaks, jumps = list[list[float]](), [switched(problem, name) for name in names]
        for number, (name, count) in enumerate(zip(names, counts, strict=True)):
            low, high = problem.domain.bounds[name]
            edges = np.array([-1.0, *(2 * (np.array(jumps[number]) - low) / (high - low) - 1), 1.0])
            if np.diff(edges).min() < _THIN * 2 / count:
                # Strips far thinner than tiles, all across the domain, serve worse than small tiles at what is small.
                jumps[number], edges = [], np.array([-1.0, 1.0])
            # As many between two jumps as are about as long as elsewhere.
            parts = ((begin, end, max(1, round(count * (end - begin) / 2))) for begin, end in itertools.pairwise(edges))
            breaks.append([*np.concatenate([np.linspace(begin, end, many + 1)[:-1] for begin, end, many in parts]), 1.0])
        return TileSpace(problem, Tiles(breaks, [degree] * len(counts), fields), names, jumps)._with_points()

    def _with_points(self) -> TileSpace | None:
        """Those of the tiles that have some points in the domain; None where there are none."""
        cut, _, inside, _ = self._chosen(self.problem.domain)
        enough = torch.ones(len(self.model.live), dtype=torch.bool)
        enough[cut] = inside.sum(1) >= _LEAST_POINTS
        found = torch.nonzero(enough)[:, 0].tolist()
        model, breaks = self.model, [each.tolist() for each in self.model.breaks]
        live, spans = ([each[tile] for tile in found] for each in (model.live, model.extent.tolist()))
        return self._on(breaks, live, spans) if live else None

    def _on(self, breaks: list[list[float]], live: Sequence[int], spans: list[list[int]], higher: int = 0) -> TileSpace:
        """The same on other tiles, with polynomials of a degree higher by so much."""
        degrees = [each + higher for each in self.model.degrees]
        return TileSpace(self.problem, Tiles(breaks, degrees, self.model.outputs, live, (), spans), self.names, self._jumps)

    def lower(self, degrees: int) -> TileSpace:
        """Coarsening in degree: the same with polynomials of a degree that is so much lower."""
        model = self.model
        return self._on([each.tolist() for each in model.breaks], model.live, model.extent.tolist(), -degrees)

    def finer(self, marked: Tensor) -> TileSpace:
        """The same with marked tiles halved, and with neighbours at most twice as long.

        Args:
            marked: tiles that are halved along every coordinate, ``(T,)``, or the coordinates of each, ``(T, D)``.
        """
        model = self.model
        marked = marked.view(len(marked), -1) & (model.halves > _SMALLEST)
        pairs = torch.cat([each for _, each in model.neighbours()])
        while True:
            halvings = torch.where(marked, self.halvings + 1, self.halvings)
            one, two = halvings[pairs].unbind(1)
            late = marked.clone()
            late.index_put_((pairs[:, 0],), one + 1 < two, accumulate=True)
            late.index_put_((pairs[:, 1],), two + 1 < one, accumulate=True)
            if torch.equal(late, marked):
                break
            marked = late
        breaks, live, spans = model.split(marked)
        found = self._on(breaks, live, spans)._with_points()
        assert found is not None
        return found

    def adapted(self, squares: Tensor) -> TileSpace | None:
        """Tiles halved where few of them hold most of a sum of squares ``(T,)``; where tiles differ already, higher degrees.

        None where all tiles are alike and should be finer.

        Reference: W. Doerfler, A convergent adaptive algorithm for Poisson's equation, SIAM Journal on Numerical Analysis 33
        (1996).
        """
        if len(corners := self._outstanding(squares)):
            return self.towards(corners)
        small = self.levels >= _SMALL_ENOUGH
        pairs = torch.cat([each for _, each in self.model.neighbours()])
        beside = pairs[small[pairs].any(1)]
        small[beside.flatten()] = True
        squares = torch.where(small | self._at_jumps, 0.0, squares)
        largest, order = squares.sort(descending=True)
        count = int((largest.cumsum(0) < _MOST_OF * largest.sum()).sum()) + 1
        most = _MORE_BESIDE if bool(self._at_jumps.any()) else _MORE
        marked = torch.zeros(len(squares), dtype=torch.bool)
        marked[order[:count]] = True
        across = self._across(self.corners)
        # At an edge across it alone.
        halved = marked[:, None] & torch.where(across.any(1, keepdim=True), across, True)
        if int((2 ** halved.sum(1) - 1).sum()) <= most * len(squares):
            # Where a tile halved before stands out once more, the fields are singular: far smaller ones at once.
            singular = (self._at_corners(self.corners) & (marked & (self.levels > 0))[:, None]).any(0)
            return self.finer(halved).towards(self.corners[singular])
        if (model := self.model).alike:
            return None
        found = self._on([each.tolist() for each in model.breaks], model.live, model.extent.tolist(), higher=2)
        # Whatever the degree, the smallest tiles at a jump miss as much: smaller ones show how much.
        for _ in range(_SMALLER if bool(self._at_jumps.any()) else 0):
            marked = found._oscillating() & (found.levels >= _TOWARDS)
            found = found.finer(marked) if bool(marked.any()) else found
        return found

    def _outstanding(self, squares: Tensor) -> Corners:
        """Where conditions change at corners, those whose tiles, none of them halved yet, stand out from all others.

        Between a side that is held and a free one stresses have no bound at a right angle: least squares spread over the domain
        what they miss, so that such a corner never holds most of it.
        """
        corners, at = self.corners, self._at_corners(self.corners)
        others = squares[~at[:, corners.mixed].any(1)]
        worst = torch.where(at, squares[:, None], 0.0).amax(0)
        whole = ~(at & (self.levels > 0)[:, None]).any(0)
        limit = _STANDS_OUT * float(others.max()) if len(others) else math.inf
        return corners[corners.mixed & whole & (worst > limit)]

    @cached_property
    def corners(self) -> Corners:
        """Where fields may be singular: where sides of the domain meet, and in the plane those of its parts at interfaces."""
        own = self._of_domain
        if len(self.names) != 2:
            return own
        places = self._corners_of_parts()
        known = torch.cdist(places, own.places).amin(1) <= _SAME_PLACE if len(own.places) else torch.zeros(len(places)).bool()
        places, plain = places[~known], torch.zeros(int((~known).sum()), dtype=torch.bool)
        across = torch.ones_like(places, dtype=torch.bool)
        return Corners(torch.cat([own.places, places]), torch.cat([own.across, across]), torch.cat([own.mixed, plain]))

    @cached_property
    def _of_domain(self) -> Corners:
        """Where two sides of a domain meet: corners in the plane, re-entrant edges in space, and the ends of an interval."""
        domain, count = self.problem.domain, len(self.names)
        places, across, changes = list[Tensor](), list[Tensor](), list[Tensor]()
        if count == 1:
            places, across = [torch.tensor([[-1.0], [1.0]], dtype=torch.float64)], [torch.ones(2, 1, dtype=torch.bool)]
            changes = [torch.zeros(2, dtype=torch.bool)]
        elif len(domain.sides) <= _MOST_SIDES[count]:
            # Edges are known by places along them, their ends included.
            along = np.linspace(0.0, 1.0, _ALONG_EDGES)[:, None] if count > 2 else np.full((1, 1), 0.5)
            unit = np.broadcast_to(along, (len(along), len(domain.bounds)))
            around = {side for side in domain.sides if side.coordinate in (None, *self.names)}
            orders = {side: own for side, own in condition_orders(self.problem).items() if side in around}
            for pair in itertools.combinations(domain.sides, 2):
                own = self._scaled(torch.from_numpy(domain.meeting(*pair, unit)))
                changed = len({orders[side] for side in pair if side in orders}) == 2
                if changed and not len(own) and len(domain.bounds) == 2:
                    # Shapes do not know where they meet others.
                    own = self._scaled(torch.from_numpy(common_ends(domain, *pair)))
                varies = (own - own[:1]).abs().amax(0) > _BESIDE if len(own) else torch.zeros(count, dtype=torch.bool)
                # Along an edge that is parallel to a coordinate fields are smooth.
                places.append(own)
                edge = count > 2 and int(varies.sum()) == 1
                across.append((~varies if edge else torch.ones_like(varies)).expand(len(own), -1))
                changes.append(torch.full((len(own),), changed))
        empty = torch.empty(0, count, dtype=torch.float64)
        all_changed = torch.cat([empty[:, 0].bool(), *changes])
        found = Corners(torch.cat([empty, *places]), torch.cat([empty.bool(), *across]), all_changed)
        return found if count < 3 else found[self._turned_into(found)]

    def _corners_of_parts(self) -> Tensor:
        """Where interfaces turn, or meet others or the boundary: corners of parts of a plane domain, ``(m, 2)``."""
        domain, found = self.problem.domain, [torch.empty(0, 2, dtype=torch.float64)]
        unit = np.full((1, len(domain.bounds)), 0.5)
        for place in dict.fromkeys(term.place for term in self.problem.terms() if isinstance(term.place, Interface)):
            for one, other in ((place.first, place.second), (place.second, place.first)):
                around = [side for side in one.sides if side.coordinate in (None, *self.names)]
                # So many sides are those of a curve.
                for pair in itertools.combinations(around if len(around) <= _MOST_SIDES[2] else (), 2):
                    own = one.meeting(*pair, unit)
                    if not len(own) and len(one.bounds) == 2:
                        own = common_ends(one, *pair)
                    found.append(
                        self._scaled(torch.from_numpy(own[np.abs(other.distance(own)) <= _SAME_PLACE * domain.diameter]))
                    )
        places = torch.cat(found)
        later = torch.cdist(places, places).le(_SAME_PLACE).tril(-1).any(1)
        return places[~later]

    @property
    def reentrant(self) -> Corners:
        """Re-entrant corners and edges: those around which clearly more than half of all directions lie inside.

        Mixed conditions make as much of half the angle.
        """
        return self._of_domain[self._turned_into(self._of_domain)]

    def _turned_into(self, corners: Corners) -> Tensor:
        places, most = corners.places, torch.where(corners.mixed, _REENTRANT / 2, _REENTRANT)
        if len(self.names) == 1:
            return torch.zeros(len(places), dtype=torch.bool)
        # By asking, since differences have corners that no shape of theirs knows.
        ball = Ball((0.0,) * len(self.names), 1.0, self.names)
        directions = draw(OnFaces(tuple(ball.sides)), ball, _AROUND_CORNERS, np.random.default_rng(0)).points[0]
        around = _NEAR_CORNERS * self._half.max() * directions
        near = self._center + self._half * places.nan_to_num()
        inside = self._contains(self.problem.domain, near[:, None] + around)
        return places.isfinite().all(1) & (inside.double().mean(1) > most)

    def _at_corners(self, corners: Corners) -> Tensor:
        """Which tiles hold which of some corners, ``(T, C)``."""
        away = (self.model.centers[:, None] - corners.places).abs()
        return (away <= (1 + _BESIDE) * self.model.halves[:, None]).all(2)

    def _across(self, corners: Corners) -> Tensor:
        """The coordinates along which tiles that hold some corners are halved, ``(T, D)``."""
        return (self._at_corners(corners)[:, :, None] & corners.across).any(1)

    def towards(self, corners: Corners, times: int = _TOWARDS) -> TileSpace:
        """Geometrically graded tiles: those at some corners halved so many times, one after the other."""
        found = self
        for _ in range(times if len(corners) else 0):
            found = found.finer(found._across(corners))
        return found

    def around(self, narrow: Iterable[PointSet]) -> TileSpace:
        """Tiles halved where points lie, such as those of a small source, until these lie on several."""
        places = torch.cat([self._scaled(each.points[0]).clamp(-1, 1) for each in narrow] or [torch.zeros(0, len(self.names))])
        found, first = self, 0
        for _ in range(_SMALL_ENOUGH if len(places) else 0):
            held = found.model.tile(places).unique()
            first = first or len(held)
            if len(held) > _SEVERAL * first:
                break
            marked = torch.zeros(len(found.model.live), dtype=torch.bool)
            marked[held] = True
            found = found.finer(marked)
        return found

    def around_small_holes(self) -> TileSpace:
        """Tiles halved at the rims of holes that are far smaller than they are, such as wells, until they are as small."""
        large = self.model.halves.amax(0)
        found, rims = self, [rim for rim in self._rims() if bool((rim.amax(0) - rim.amin(0) < _SMALL_HOLE * large).all())]
        for _ in range(_SMALL_ENOUGH):
            marked = torch.zeros(len(found.model.live), dtype=torch.bool)
            for rim in rims:
                tiles = found.model.tile(rim).unique()
                marked[tiles] |= (2 * found.model.halves[tiles] > rim.amax(0) - rim.amin(0)).any(1)
            # So many small holes ask for a fine grid.
            if not marked.any() or len(marked) > _MOST_AROUND:
                break
            found = found.finer(marked)
        return found

    def _rims(self) -> list[Tensor]:
        """Points of the rims of holes, ``(n, D)`` each: of sides about whose middles nothing lies inside."""
        domain, found = self.problem.domain, []
        for side in (each for each in domain.sides if each.coordinate is None):
            points = draw(OnFaces((side,)), domain, _AROUND_CORNERS, np.random.default_rng(0)).points[0]
            own = points[:, self._place]
            middle = points.mean(0, keepdim=True).numpy()
            if len(points) and float(domain.distance(middle)[0]) >= _ROUND * float((own.amax(0) - own.amin(0)).max()):
                found.append(self._scaled(points))
        return found

    def resolving_data(self, times: int = _SMALL_ENOUGH) -> TileSpace:
        """Tiles halved where few of them do not resolve what conditions impose: so many times where that jumps."""
        found, before = self, math.inf
        for _ in range(times if len(self.names) <= 2 else 0):
            marked = found._oscillating()
            count = int(marked.sum())
            most = min(_MORE * len(marked) / (2 ** len(self.names) - 1), _ALONG_CURVES * before)
            if not count or count > max(_FEW_AT_JUMPS, most):
                break
            found, before = found.finer(marked), count
        return found

    @cached_property
    def _at_jumps(self) -> Tensor:
        """Small tiles at jumps of what conditions impose, ``(T,)``: what is left there is left on tiles of any size."""
        # In space values jump along curves, at which tiles are not few.
        small, model = (self.levels >= _TOWARDS) & (len(self.names) <= 2), self.model
        jumps = model.centers[small & self._oscillating()] if bool(small.any()) else model.centers[:0]
        near = _REACH * 2.0**-_TOWARDS * model.halves.amax(0)
        return small & ((model.centers[:, None] - jumps).abs() <= near).all(2).any(1)

    @property
    def at_jumps(self) -> float:
        """Half the width of the smallest tiles at jumps, as a share of half the domain's; zero where there are none."""
        return float(self.model.halves[self._at_jumps].min()) if bool(self._at_jumps.any()) else 0.0

    def _oscillating(self) -> Tensor:
        """Data oscillation: on which tiles, ``(T,)``, what conditions impose are no polynomials of half the degree, about."""
        count, model = len(self.model.live), self.model
        few = torch.nonzero((model.products / self._degrees).square().sum(1) <= 0.25)[:, 0]
        found = torch.zeros(count, dtype=torch.bool)
        for points, values in self._imposed():
            point, tile = self._around(points)
            table = model.functions((points[point] - model.centers[tile]) / model.halves[tile], [0] * len(self.names))[:, few]
            squares = table.new_zeros(count, len(few), len(few)).index_add_(0, tile, table[:, :, None] * table[:, None])
            right = table.new_zeros(count, len(few)).index_add_(0, tile, table * values[point, None])
            total = table.new_zeros(count).index_add_(0, tile, values[point].square())
            ridge = _RIDGE * squares.diagonal(dim1=1, dim2=2).sum(1).clamp_min(1.0)
            weights = torch.linalg.solve(squares + ridge[:, None, None] * torch.eye(len(few)), right)
            missed = total - (weights * right).sum(1)
            extent = float(values.max() - values.min()) if len(values) else 0.0
            found |= (missed > (_MISSED * extent) ** 2 * torch.bincount(tile, minlength=count)) & (missed > _ROUNDING * total)
        return found

    def _around(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of points ``(n, D)`` and of the tiles that they lie in or near, ``(m,)`` each."""
        halves, pairs = self.model.halves[self.model.tile(points)], []
        for way in itertools.product((-1, 0, 1), repeat=len(self.names)):
            near = points + _AROUND * halves * torch.tensor(way, dtype=torch.float64)
            pairs.append(torch.stack([torch.arange(len(points)), self.model.tile(near.clamp(-1, 1))], dim=1))
        one, two = torch.cat(pairs).unique(dim=0).T
        return one, two

    def _imposed(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Places ``(n, D)`` in the coordinates of the tiles, and what conditions impose there, ``(n,)``.

        These are the prescribed values of each field, and on each side the residual of any other condition with the same jets
        everywhere: where its data, its coefficients or its kind jump, that does, and derivatives of solutions are singular.
        """
        empty = torch.zeros(0, len(self.names), dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        values = {field: [empty] for field in self.problem.fields}
        time = self.problem.time
        for term in self.problem.terms():
            given = term.prescription
            initial = time is not None and time not in self.names and term.place == OnFaces((Face(time, "lower"),))
            if initial or not isinstance(term.place, OnFaces):
                continue
            sample = self._drawn(term, np.random.default_rng(0), _DENSER)
            places = self._scaled(sample.points[0])
            points = self._whole(self._center + self._half * places)
            # Where a field has no equation nothing is imposed on it, and a condition that ends there does not jump.
            there = torch.ones(len(points), dtype=torch.bool)
            for name in {name for name, _ in self.problem.system.asked(term)}:
                there &= self.problem.lives_at(name, points)
            if given is not None and not given.index:
                values[given.field].append((places[there], given.values(self.problem, points[there]).detach()))
                continue
            seen, sides = at_same_jets(self.problem, term)(points, sample.normals), sample.faces or (len(places),)
            for place, value, here in zip(*(each.split(sides) for each in (places, seen, there)), strict=True):
                yield place[here], value[here]
        for found in values.values():
            yield torch.cat([each for each, _ in found]), torch.cat([each for _, each in found])

    def _drawn(self, term: Term, generator: np.random.Generator, denser: float = 1.0) -> PointSet:
        """Points of a condition, as dense as its tiles ask for, or denser."""
        largest = denser * (self._half / self.halves.amax(0)).max()
        count = max(1, round(float(largest * (max(self.model.degrees) + 1) * _ONSIDES) ** (len(self.names) - 1)))
        return draw(term.place, self.problem.domain, count, generator, Halvings(self._along, self._place), _LONGEST)

    @cached_property
    def halvings(self) -> Tensor:
        """How many times the largest tile between two jumps was halved along each coordinate to make each, ``(T, D)``."""
        first = torch.empty_like(self.halves)
        for column, jumps in enumerate(self._jumps):
            places = (self._center + self._half * self.model.centers)[:, column].contiguous()
            part = torch.searchsorted(torch.tensor(jumps, dtype=torch.float64), places)
            largest = torch.zeros(len(jumps) + 1, dtype=torch.float64)
            first[:, column] = largest.scatter_reduce_(0, part, self.halves[:, column], "amax")[part]
        return torch.log2(first / self.halves).round().long()

    @cached_property
    def levels(self) -> Tensor:
        """How many times the largest tile was halved along two coordinates, or the only one, to make each, ``(T,)``.

        Along one of several tiles are halved across layers, which are smooth; along two towards corners and edges.
        """
        return self.halvings.sort(dim=1, descending=True).values[:, min(1, len(self.names) - 1)]

    def _scaled(self, points: Tensor) -> Tensor:
        """Points by all coordinates, ``(n, D)``, in those of the tiles."""
        return (points[:, self._place] - self._center) / self._half

    def _along(self, points: Array, directions: Array) -> Array:
        """How many times tiles at points by all coordinates, ``(n, D)``, are halved along directions ``(n, k, D)``."""
        shorter = torch.log2(self.halves.amax(0) / self.halves) - 1e-6
        halved = shorter.ceil()[self.model.tile(self._scaled(torch.from_numpy(points)))]
        # A tile is as long along a direction as that coordinate lets it be which it leaves first; along a diagonal of the
        # tile it is halved as for the sides.
        found = (halved[:, None] + torch.log2(torch.from_numpy(directions)[:, :, self._place].abs())).amax(2)
        return (found + math.log2(len(self.names)) / 2 + 1e-6).floor().clamp_min(0).long().numpy()

    @cached_property
    def singular(self) -> bool:
        """Singularities: whether tiles were halved many times at places where derivatives have no bounds."""
        return bool((self.levels >= _TOWARDS).any())

    def regular(self, points: Tensor) -> Tensor:
        """Which points by all coordinates, ``(n, D)``, are apart from singular places; all where those at them are not few."""
        far = (self.levels[self.model.tile(self._scaled(points))] < NEAR) | (not self.singular)
        return far if int((~far).sum()) <= _FEW_POINTS * len(far) else torch.ones_like(far)

    @cached_property
    def lengths(self) -> Tensor:
        """Mesh sizes: the tiles' lengths as shares of the largest, ``(T,)``."""
        return self.halves.amax(1) / self.halves.amax()

    def left(self, squares: Tensor) -> float:
        """Least-squares residual: squares ``(T,)`` of all tiles but the smallest, which hardly matter to the fields, summed."""
        return float(squares[self.levels < _TOWARDS].sum())

    @property
    def weight(self) -> float:
        """What squares of an equation of the highest order weigh on the largest tiles, up to a constant."""
        order = max(self.problem.order(field, name) for field in self.problem.fields for name in self.names)
        return float(self.halves.amax() / max(self.model.degrees)) ** (2 * order)

    @property
    def width(self) -> int:
        """The number of coefficients of a field."""
        return len(self.model.live) * self.model.width

    def local(self, weights: Tensor) -> Tensor:
        """Coefficients by tile, ``(times, T, K)``."""
        return weights.unflatten(1, (len(self.model.live), self.model.width))

    def _unit(self, tiles: Tensor, index: MultiIndex) -> Tensor:
        """By how much a derivative exceeds the function, at most about: ``(E,)``."""
        found = torch.ones(len(tiles), dtype=torch.float64)
        for name in index:
            column = self.names.index(name)
            found = found * self._degrees[column] / self.halves[tiles, column]
        return found

    def points(self, tiles: Tensor, local: Tensor) -> Tensor:
        """Places ``(E, q, D)`` in local coordinates of tiles ``(E,)``, in the units of the coordinates."""
        scaled = self.model.centers[tiles][:, None] + local * self.model.halves[tiles][:, None]
        return self._center + self._half * scaled

    def _whole(self, points: Tensor) -> Tensor:
        """Places ``(..., D)`` as points by all coordinates, ``(n, D)``."""
        found = torch.tensor(self._middle, dtype=torch.float64).repeat(points[..., 0].numel(), 1)
        found[:, self._place] = points.reshape(-1, points.shape[-1])
        return found

    def _contains(self, part: Domain, points: Tensor) -> Tensor:
        """Which of places ``(..., D)`` lie in a part of the domain."""
        return torch.from_numpy(np.asarray(part.contains(self._whole(points).numpy()))).view(points.shape[:-1])

    def lives(self, field: str, points: Tensor) -> Tensor:
        """Which of places ``(..., D)`` lie where a field has an equation."""
        inside = self._contains(self.problem.domain, points)
        return inside & self.problem.lives_at(field, self._whole(points)).view(points.shape[:-1])

    def inside(self, part: Domain | None = None, most: float = math.inf) -> list[tuple[TileTrace, Tensor]]:
        """Points of all tiles in a part of the domain, about ``most`` at once, and which of them lie in it, ``(E, q)``.

        They are Gauss points of whole tiles. Where a small part of a tile lies inside, these would miss it: of cut tiles they
        are as many points inside.
        """
        domain = self.problem.domain if part is None else part
        cut, local, inside, _ = self._chosen(domain)
        whole = torch.ones(len(self.model.live), dtype=torch.bool)
        whole[cut] = False
        kept = inside.any(1)
        grid = gauss_grid(self.side, len(self.names))
        size = max(1, int(min(most, 1e18) // len(grid)))
        found = []
        for tiles in torch.nonzero(whole)[:, 0].split(size):
            everywhere = torch.ones(len(tiles), len(grid), dtype=torch.bool)
            found.append((TileTrace(self, tiles, grid.expand(len(tiles), -1, -1)), everywhere))
        for tiles, places, within in zip(*(each[kept].split(size) for each in (cut, local, inside)), strict=True):
            found.append((TileTrace(self, tiles, places), within))
        return [each for each in found if len(each[0].tiles)]

    def _chosen(self, domain: Domain) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tiles that are not wholly in a domain, their points ``(C, q, D)``, which of these lie in it, and what of each."""
        if domain in self._inside:
            return self._inside[domain]
        tiles, grid = torch.arange(len(self.model.live)), gauss_grid(self.side, len(self.names))
        cut = tiles[~self._contains(domain, self.points(tiles, grid.expand(len(tiles), -1, -1))).all(1)]
        fine = gauss_grid(_FINER * self.side, len(self.names))
        local, inside, share = [grid[None][:0]], [torch.zeros(0, len(grid), dtype=torch.bool)], [torch.zeros(0).double()]
        for tiles in cut.split(max(1, _AT_ONCE // len(fine))):
            within = self._contains(domain, self.points(tiles, fine.expand(len(tiles), -1, -1)))
            chosen, real = _some(within, len(grid))
            local.append(fine[chosen])
            inside.append(real)
            share.append(within.double().mean(1))
        self._inside[domain] = found = cut, torch.cat(local), torch.cat(inside), torch.cat(share)
        return found

    def sites(
        self, terms: Sequence[Term], scales: Callable[[str], float], seed: Sequence[int], most: float = math.inf
    ) -> Iterator[Site]:
        """Where equations and conditions are taken, divided by their scales, and the continuity of all fields."""
        for term in terms:
            if isinstance(term.place, Interior | Within):
                part = term.place.part if isinstance(term.place, Within) else None
                for trace, inside in self.inside(part, most):
                    yield Site(term, (trace,), inside / scales(term.name))
        generator = np.random.default_rng(list(seed))
        for term in terms:
            if isinstance(term.place, Average):
                yield self._held(term, scales(term.name))
            elif not isinstance(term.place, Interior | Within):
                yield self._scattered(term, self._drawn(term, generator), scales(term.name))
        yield from self._continuity()

    def _scattered(self, term: Term, sample: PointSet, scale: float) -> Site:
        """A condition at points, or pairs of such, gathered by tiles."""
        scaled = [self._scaled(each) for each in sample.points]
        tiles = [self.model.tile(each) for each in scaled]
        key = tiles[0] if len(tiles) == 1 else tiles[0] * len(self.model.live) + tiles[1]
        order = torch.argsort(key, stable=True)
        counts = torch.unique_consecutive(key[order], return_counts=True)[1]
        numbers = pad_sequence(order.split(counts.tolist()), batch_first=True, padding_value=-1)
        real = numbers >= 0
        # What is missing repeats the first one, and counts nothing.
        numbers = torch.where(real, numbers, numbers[:, :1])
        traces = []
        for own, each in zip(tiles, scaled, strict=True):
            local = self.model.local(each[numbers].flatten(0, 1), own[numbers].flatten())
            traces.append(TileTrace(self, own[numbers[:, 0]], local.view(*numbers.shape, -1)))
        normals = None if sample.normals is None else sample.normals[numbers].flatten(0, 1)
        shares = None if sample.quadrature is None else sample.quadrature[numbers] * real
        return Site(term, tuple(traces), real / scale, normals, shares)

    def averaged(self, term: Term, most: float = math.inf) -> Iterator[Site]:
        """A mean as the sum of those over some points, at most so many at a time, by their shares of all."""
        assert isinstance(term.place, Average)
        count = _AVERAGED[len(self.names)]
        sample = draw(replace(term.place, each=None), self.problem.domain, count, np.random.default_rng(0))
        size = max(1, int(min(most, 1e18)))
        for first in range(0, len(sample.points[0]), size):
            yield self._scattered(term, sample.part(slice(first, first + size)), 1.0)

    def across(self, site: Site, chosen: Tensor) -> Tensor:
        """Boundary layers: along which coordinates, ``(T, D)``, tiles are too long for one at places of a site, ``(n,)``.

        What varies along the normal alone varies within a tile by the normal's parts times the tile's sides.
        """
        real = site.counted
        tiles = cast(TileTrace, site.traces[0]).tiles[:, None].expand(real.shape)[real][chosen]
        lengths = self.halves[tiles]
        if site.normals is not None:
            lengths = lengths * site.normals.view(*real.shape, -1)[real][chosen][:, self._place].abs()
        found = torch.zeros(self.halves.shape, dtype=torch.bool)
        return found.index_put_((tiles,), lengths > _SHORT * lengths.amax(1, keepdim=True), accumulate=True)

    def varying(self, field: str, weights: Tensor) -> Tensor:
        """Along which coordinates, ``(T, D)``, a field with coefficients ``(1, T K)`` varies most within tiles."""
        found, number = torch.zeros_like(self.halves), self.problem.fields.index(field)
        for trace, lives in self.everywhere:
            slopes = [trace.jet(self.local(weights), (name,))[0] * lives[number] for name in self.names]
            found[trace.tiles] = torch.stack([each.square().sum(1).sqrt() for each in slopes], dim=1)
        found = found * self.halves
        return found > _SHORT * found.amax(1, keepdim=True)

    def _place_of(self, field: str) -> tuple[Tensor, Tensor]:
        """A tile, ``(1,)``, on which a field lives, and a place in it, ``(1, 1, D)``."""
        number = self.problem.fields.index(field)
        trace, lives = next((trace, lives[number]) for trace, lives in self.everywhere if bool(lives[number].any()))
        tile = int(lives.sum(1).argmax())
        return trace.tiles[tile : tile + 1], trace.local[tile, lives[tile]][:1][None]

    def _held(self, term: Term, scale: float) -> Site:
        """The level of a field, held at one place in place of its mean: ``levelled`` puts that right."""
        ((field, _),) = self.problem.system.depends(term)
        return Site(term, (TileTrace(self, *self._place_of(field)),), torch.full((1, 1), 1 / scale, dtype=torch.float64))

    @cached_property
    def _levels_off(self) -> list[tuple[int, Tensor]]:
        """By the numbers of fields that have a mean: what to add to all of it, by its coefficients, ``(T K,)``."""
        found = []
        for term in self.problem.terms():
            if isinstance(term.place, Average) and is_gauge(self.problem, term):
                ((field, _),) = self.problem.system.depends(term)
                mean = torch.zeros(len(self.model.live), self.model.width, dtype=torch.float64)
                for site in self.averaged(term, _AT_ONCE):
                    of = cast(TileTrace, site.traces[0])
                    mean.index_add_(0, of.tiles, torch.einsum("eq,eqk->ek", site.shares, of.basis(())))
                trace = TileTrace(self, *self._place_of(field))
                held = torch.zeros_like(mean)
                held[trace.tiles] = trace.basis(())[:, 0]
                found.append((self.problem.fields.index(field), (held - mean).flatten()))
        return found

    def levelled(self, weights: Tensor) -> Tensor:
        """Gauge fixing: coefficients ``(F, k, T K)``, the level of fields that were held at a place moved to their means."""
        found = weights.clone() if self._levels_off else weights
        constant = int((self.model.products == 0).all(1).nonzero()[0, 0])
        for field, off in self._levels_off:
            found[field].unflatten(1, (-1, self.model.width))[:, :, constant] += (weights[field] @ off)[:, None]
        return found

    def _continuity(self) -> Iterator[Site]:
        """Every field, and its derivatives across a side below the order, is the same on both tiles of a side."""
        sides = []
        for column, pairs in self.model.neighbours():
            if len(pairs):
                # Pairs whose sides meet in the same way share their places.
                ways, way = self.model.shared(pairs).mul(1e6).round().unique(dim=0, return_inverse=True)
                sides += [(column, pairs[way == number], ranges) for number, ranges in enumerate(ways / 1e6)]
        ghosts = {name: self._ghosts(name, sides) for name in self.problem.fields}
        for column, pairs, ranges in sides:
            yield from self._joined(column, pairs, ranges, ghosts)

    def _on_side(self, column: int, ranges: Tensor, side: int) -> Tensor:
        """Gauss points ``(..., q, D)`` of a side across a coordinate, which extends over such ranges, ``(..., D, 2)``."""
        across = gauss_grid(side, len(self.names) - 1)
        across = torch.cat([across[:, :column], across.new_zeros(len(across), 1), across[:, column:]], dim=1)
        return ranges.mean(-1)[..., None, :] + across * ranges.diff(dim=-1)[..., None, :, 0] / 2

    def _continues(self, field: str, column: int, pairs: Tensor, places: Tensor) -> Tensor:
        """At which places of the sides of pairs ``(P, 2)`` a field lives, ``(P, q)``."""
        # One that ends along the side lives on one of the two alone: it goes on into the other.
        beside = places[:1].repeat(2, 1, 1)
        beside[0, :, column] -= _BESIDE
        beside[1, :, column] += _BESIDE
        return torch.stack([self.lives(field, self.points(pairs[:, 0], each[None])) for each in beside]).any(0)

    def _ghosts(self, field: str, sides: Sequence[tuple[int, Tensor, Tensor]]) -> Tensor:
        """Ghost penalty: small cuts, with fewer places where a field lives than coefficients, and a neighbour each, ``(P, 2)``.

        It is the one with the largest share of those into which the field goes on.

        Reference: E. Burman, Ghost penalty, Comptes Rendus Mathematique 348 (2010).
        """
        count = len(self.model.live)
        shares, small = torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.bool)
        for part in self.problem.parts(field) or [self.problem.domain]:
            cut, _, inside, share = self._chosen(part)
            own, few = torch.ones_like(shares), torch.zeros_like(small)
            own[cut], few[cut] = share, inside.sum(1) < self.model.width
            shares, small = shares + own, small & few
        joined = [torch.zeros(0, 2, dtype=torch.int64)]
        for column, each, ranges in sides:
            some = each[small[each].any(1)]
            if len(some):
                places = self._on_side(column, ranges, _FINER * self.side)
                joined.append(some[self._continues(field, column, some, places).any(1)])
        pairs = torch.cat([*joined, *(each.flip(1) for each in joined)])
        pairs = pairs[small[pairs[:, 0]]]
        pairs = pairs[shares[pairs[:, 1]].argsort(descending=True)]
        pairs = pairs[pairs[:, 0].argsort(stable=True)]
        first = torch.ones(len(pairs), dtype=torch.bool)
        first[1:] = pairs[1:, 0] != pairs[:-1, 0]
        return pairs[first]

    def _joined(self, column: int, pairs: Tensor, ranges: Tensor, ghosts: Mapping[str, Tensor]) -> Iterator[Site]:
        """The continuity of pairs of tiles ``(P, 2)`` that meet across a coordinate in ranges of both, ``(2, D, 2)``."""

        def jumps(what: str, some: Tensor, both: Tensor, real: Tensor, powers: Sequence[int]) -> Iterator[Site]:
            """Jumps of derivatives across sides at places of both tiles, ``(2, P, q, D)``, those that are ``real``."""
            traces = tuple(TileTrace(self, own, each) for own, each in zip(some.T, both, strict=True))
            for power in powers:
                term = Term(f"{what}{name}", Interior(), partial(_jump, name, (self.names[column],) * power))
                yield Site(term, traces, real.double())

        # On a whole side the jump is a polynomial, which these points determine; of a cut one as many are taken inside.
        few, many = (self._on_side(column, ranges, count) for count in (max(self.model.degrees) + 1, _FINER * self.side))
        for name in self.problem.fields:
            inside = self._continues(name, column, pairs, many)
            whole = inside.all(1)
            cut = inside.any(1) & ~whole
            chosen, lives = _some(inside[cut], self.side ** (len(self.names) - 1))
            for kept, both, real in (
                (whole, few[:, None].expand(-1, int(whole.sum()), -1, -1), torch.ones(int(whole.sum()), few.shape[1])),
                (cut, many[:, chosen], lives),
            ):
                some = pairs[kept]
                if not len(some):
                    continue
                yield from jumps(CONTINUITY, some, both, real, range(max(1, self.problem.order(name, self.names[column]))))
            # All derivatives of a small cut are those of its neighbour, on the side as a whole.
            some = pairs[(pairs[:, None] == torch.cat([ghosts[name], ghosts[name].flip(1)])).all(2).any(1)]
            if len(some):
                both = few[:, None].expand(-1, len(some), -1, -1)
                yield from jumps(_GHOST, some, both, torch.ones(both.shape[1:3]), range(1 + self.model.degrees[column]))

    def row_weights(self, evaluated: Evaluated, unit: Callable[[Part], float]) -> Tensor:
        """What the rows at each tile are multiplied by: the reciprocal of their size, and of the root of their number.

        A jet's part in the size is its slope in units of what the field and its derivatives are on the tile. Where that is no
        number, as a root's slope at jets below zero, it says nothing.
        """
        size = torch.zeros_like(evaluated.values[0])
        for part in evaluated.parts:
            tiles = cast(TileTrace, part.trace).tiles
            size += part.slopes.mean(0).abs() * (unit(part) * self._unit(tiles, part.in_space))[:, None]
        size = size.nan_to_num(0.0, 0.0)
        counted = (size > 0).sum(1).clamp_min(1)
        typical = (size.square().sum(1) / counted).sqrt()
        site = evaluated.site
        whole = isinstance(site.term.place, Interior | Within) and len(site.traces) == 1
        count = self.side ** (len(self.names) - (not whole))
        if site.term.name.startswith((CONTINUITY, _GHOST)):
            count = evaluated.values.shape[2]
        weight = (1.0 if whole else SIDES) / math.sqrt(count)
        return torch.where(typical > 0, weight / typical, torch.zeros_like(typical))

    def rows(self, evaluated: Evaluated, weights: Tensor, unit: Callable[[Part], float | Tensor], dtype: torch.dtype) -> Tensor:
        """A site's rows by the coefficients of its tiles, of one or of two: ``(E, q, 1 or 2, F K)``."""
        traces, fields = evaluated.site.traces, len(self.problem.fields)
        shape = *evaluated.values.shape[1:], len(traces), fields, self.model.width
        found = torch.zeros(shape, dtype=dtype)
        for part in evaluated.parts:
            member = next(number for number, trace in enumerate(traces) if trace is part.trace)
            slopes = unit(part) * (part.slopes.mean(0) * weights[:, None])
            found[:, :, member, part.field].addcmul_(slopes[:, :, None], cast(TileTrace, part.trace).basis(part.in_space))
        return found.flatten(3)

    @cached_property
    def everywhere(self) -> list[tuple[TileTrace, Tensor]]:
        """Points of all tiles, and which of them lie where each field has an equation, ``(F, E, q)``."""
        found = []
        for trace, inside in self.inside():
            places = torch.stack(trace.columns, dim=2)
            found.append((trace, torch.stack([inside & self.lives(name, places) for name in self.problem.fields])))
        return found

    def _living(self, field: str) -> list[tuple[TileTrace, Tensor]]:
        """Points of all tiles, as many as may be where a field has an equation, and which of them lie there, ``(E, q)``."""
        parts, number = self.problem.parts(field), self.problem.fields.index(field)
        return self.inside(parts[0]) if len(parts) == 1 else [(trace, lives[number]) for trace, lives in self.everywhere]

    @cached_property
    def shares(self) -> list[tuple[TileTrace, Tensor]]:
        """Quadrature: points of all tiles, and their shares of the measure of where each field lives, ``(F, E, q)``."""
        measures, (cut, _, _, share) = self.halves.prod(1), self._chosen(self.problem.domain)
        measures[cut] *= share
        found = []
        for (trace, lives), (_, inside) in zip(self.everywhere, self.inside(), strict=True):
            found.append((trace, lives * (measures[trace.tiles] / inside.sum(1).clamp_min(1))[:, None]))
        whole = torch.stack([each.sum((1, 2)) for _, each in found]).sum(0)
        return [(trace, each / whole.clamp_min(1e-300)[:, None, None]) for trace, each in found]

    def sizes(self, weights: Tensor) -> Tensor:
        """The root mean squares of all fields where they live, from coefficients ``(times, F, T K)``: ``(times, F)``."""
        squares = weights.new_zeros(weights.shape[:2])
        for trace, shares in self.shares:
            values = trace.jet(self.local(weights.flatten(0, 1)), ()).unflatten(0, weights.shape[:2])
            squares += (values.square() * shares).sum((2, 3))
        return squares.sqrt()

    @property
    def fields_a_tile(self) -> float:
        """How many fields live on a tile, in the mean."""
        living = torch.zeros(len(self.problem.fields), len(self.model.live))
        for trace, lives in self.everywhere:
            living[:, trace.tiles] = lives.any(2).float()
        return max(1.0, float(living.sum(0).mean()))

    def effort(self, accelerator: torch.device) -> tuple[float, float, float]:
        """Computational cost of least squares on the tiles: multiplications, as many as would take as long on the CPU, and the
        most numbers that a factor holds there and on an accelerator.
        """
        factor, numbers, dense = self._elimination
        # Beside the factor's, those of the triangles of all tiles.
        width = round(self.fields_a_tile * self.model.width)
        triangles = 2.0 * len(self.model.live) * self.side ** len(self.names) * width**2
        if accelerator.type == "cpu" or not dense:
            return triangles + factor, numbers, 0.0
        return triangles + factor / _FASTER, 0.0, numbers

    @cached_property
    def _elimination(self) -> tuple[float, float, bool]:
        """Symbolic factorisation: multiplications and numbers of a factor, and whether its fronts are worth an accelerator."""
        pairs = torch.cat([each for _, each in self.model.neighbours()])
        matrix = BlockCholesky([round(self.fields_a_tile * self.model.width)] * len(self.model.live), pairs.numpy())
        return *matrix.effort, matrix.dense

    def at_points(self, weights: Tensor, columns: Sequence[Tensor]) -> Tensor:
        """Functions with coefficients ``(k, T K)`` at places by coordinate, ``(n,)`` each: ``(k, n)``."""
        scaled = (torch.stack([*columns], dim=1) - self._center) / self._half
        tiles = self.model.tile(scaled)
        table = self.model.functions(self.model.local(scaled, tiles), [0] * len(self.names))
        return (self.local(weights)[:, tiles] * table).sum(2)

    def interpolated(self, field: str, values: Sampled) -> Tensor:
        """Coefficients ``(k, T K)`` of the polynomials nearest to functions of places ``(n,)`` by coordinate, ``(k, n)``.

        Where they are numbers beyond the place where the field lives as well, and not far larger ones, these say how a
        polynomial goes on there, with little weight. Polynomials that are far larger nevertheless, of layers that a tile does
        not resolve, are held with as little weight as bounds them, if any does.
        """
        parts = []
        for trace, lives in self._living(field):
            whole = TileTrace(self, trace.tiles, gauss_grid(self.side, len(self.names)).expand(len(trace.tiles), -1, -1))
            inside, beyond = (
                values([column.flatten() for column in each.columns]).unflatten(1, each.columns[0].shape).permute(1, 2, 0)
                for each in (trace, whole)
            )
            lived = (lives & inside.isfinite().all(2)).double()[:, :, None]
            table, inside = trace.basis(()) * lived, torch.nan_to_num(inside, 0.0, 0.0, 0.0) * lived
            largest = inside.abs().amax((0, 1))
            near = (beyond.isfinite() & (beyond.abs() <= _FAR * largest)).all(2, keepdim=True)
            mean = inside.sum(1, keepdim=True) / lived.sum(1, keepdim=True).clamp_min(1.0)
            beyond = torch.where(beyond.isfinite(), beyond, mean)
            found = _nearest(table, inside, whole.basis(()), beyond, _OUTSIDE * near)
            beyond = beyond.clamp(-largest, largest)
            for weight in _HOLDS:
                wild = found.abs().amax(1, keepdim=True) > _WILD * largest
                some = wild.any(2)[:, 0]
                if not bool(some.any()):
                    break
                held = _nearest(table[some], inside[some], whole.basis(())[some], beyond[some], weight)
                found[some] = torch.where(wild[some], held, found[some])
            parts.append((trace.tiles, found.permute(2, 0, 1)))
        found = parts[0][1].new_zeros(len(parts[0][1]), len(self.model.live), self.model.width)
        for tiles, own in parts:
            found[:, tiles] = own
        return found.flatten(1)

    def projected(self, field: str, values: Sampled) -> Tensor:
        """The same, of the projections of functions that jump on tiles that lie inside as a whole: their moments are right."""
        found = self.interpolated(field, values)
        missed, sizes = self.missed(field, found, values)
        whole = torch.ones(len(self.model.live), dtype=torch.bool)
        for trace, lives in self.everywhere:
            whole[trace.tiles] = (trace.local.stride(0) == 0) & lives[self.problem.fields.index(field)].all(1)
        tiles = torch.nonzero(whole & (missed > _JUMPING * sizes[:, None]).any(0))[:, 0]
        if len(tiles):
            halves, middles = self.halves[tiles], self._center + self._half * self.model.centers[tiles]
            table = partial(self.model.functions, orders=[0] * len(self.names))
            self.local(found)[:, tiles] = projected_on_boxes(middles - halves, 2 * halves, table, values)
        return found

    def missed(self, field: str, weights: Tensor, values: Sampled) -> tuple[Tensor, Tensor]:
        """Root mean squares, on each tile, of what functions with coefficients ``(k, T K)`` miss of others, ``(k, T)``, and the
        largest value of these, ``(k,)``.
        """
        number = self.problem.fields.index(field)
        missed, sizes = weights.new_zeros(len(weights), len(self.model.live)), weights.new_zeros(len(weights))
        for trace, lives in self.everywhere:
            lived = lives[number]
            wanted = torch.where(lived, values([each.flatten() for each in trace.columns]).unflatten(1, lived.shape), 0.0)
            squares = torch.where(lived, trace.jet(self.local(weights), ()) - wanted, 0.0).square().sum(2)
            missed[:, trace.tiles] = (squares / lived.sum(1).clamp_min(1)).sqrt()
            sizes = sizes.maximum(wanted.abs().amax((1, 2)))
        return missed, sizes

    def torn(self, field: str, weights: Tensor) -> Tensor:
        """The largest jumps of a field with coefficients ``(1, T K)`` to other tiles across each coordinate, ``(T, D)``."""
        own, found, number = self.local(weights)[0], torch.zeros_like(self.halves), self.problem.fields.index(field)
        living = torch.zeros(len(self.halves), dtype=torch.bool)
        for trace, lives in self.everywhere:
            living[trace.tiles] = lives[number].any(1)
        for column, pairs in self.model.neighbours():
            pairs = pairs[living[pairs].all(1)]
            at, sides = self._on_side(column, self.model.shared(pairs), self.side), []
            for member in (0, 1):
                # To either side of the common side: the lower tile's upper one first.
                at[:, member, :, column] = 1.0 - 2 * member
                table = self.model.functions(at[:, member].flatten(0, 1), [0] * len(self.names))
                sides.append((table.unflatten(0, at.shape[:1] + at.shape[2:3]) * own[pairs[:, member], None]).sum(2))
            inside = self.lives(field, self.points(pairs[:, 0], at[:, 0]))
            jumps = ((sides[0] - sides[1]).abs() * inside).amax(1)
            for member in (0, 1):
                found[:, column] = found[:, column].scatter_reduce(0, pairs[:, member], jumps, "amax")
        return found

    def as_rough(self, weights: Tensor, missed: Tensor) -> Tensor:
        """High-frequency part of functions with coefficients ``(k, T K)``, as large on each tile as what is missed, ``(k, T)``.

        It is orthogonal to the polynomials of five sixths of the degree on the whole tile.
        """
        smooth = (self.model.products / self._degrees).square().sum(1) <= _SMOOTH
        _, shares = gauss(self.side)
        roots = torch.cartesian_prod(*[shares] * len(self.names)).view(-1, len(self.names)).prod(1).sqrt()[:, None]
        table = roots * self.model.functions(gauss_grid(self.side, len(self.names)), [0] * len(self.names))
        found = self.local(weights).clone()
        found[:, :, smooth] -= found @ torch.linalg.lstsq(table[:, smooth], table).solution.mT
        sizes = (found @ table.mT).square().sum(2).sqrt() / roots.norm()
        return (found * torch.where(sizes > 0, missed / sizes, 0.0)[:, :, None]).flatten(1)


class TileTrace:
    """Jets at places of tiles: ``tiles`` ``(E,)``, and as many places in each, in local coordinates ``(E, q, D)``."""

    def __init__(self, space: TileSpace, tiles: Tensor, local: Tensor) -> None:
        self._space, self.tiles, self.local = space, tiles, local
        self.columns = tuple(column.contiguous() for column in space.points(tiles, local).unbind(2))
        self._kept: dict[MultiIndex, Tensor] = {}

    def basis(self, index: MultiIndex) -> Tensor:
        """A derivative of all products, ``(E, q, K)``."""
        index = tuple(sorted(index))
        if index not in self._kept:
            space = self._space
            orders = [index.count(name) for name in space.names]
            # Places that all tiles share have one table.
            shared = self.local.stride(0) == 0 and len(self.local) > 1
            local = self.local[:1] if shared else self.local
            table = space.model.functions(local.reshape(-1, local.shape[2]), orders).view(*local.shape[:2], -1)
            factor = torch.ones(len(self.tiles), dtype=torch.float64)
            for column, order in enumerate(orders):
                factor = factor / space.halves[self.tiles, column] ** order
            self._kept[index] = table * factor[:, None, None]
        return self._kept[index]

    def forget(self) -> None:
        """Let the tables go: they are made anew when they are asked for."""
        self._kept.clear()

    def jet(self, local: Tensor, index: MultiIndex) -> Tensor:
        """A derivative there, ``(times, E, q)``."""
        return torch.bmm(local[:, self.tiles].transpose(0, 1), self.basis(index).mT).transpose(0, 1)


def _nearest(table: Tensor, wanted: Tensor, table_beyond: Tensor, beyond: Tensor, weights: Tensor | float) -> Tensor:
    """Coefficients ``(E, K, k)`` by least squares, from tables and values at places, and at others with weights."""
    rows, right = torch.cat([table, table_beyond * weights], dim=1), torch.cat([wanted, beyond * weights], dim=1)
    return torch.linalg.lstsq(rows, right, driver="gelsd", rcond=1e-13).solution


def _some(inside: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Numbers of at most so many places inside, evenly chosen for each row of ``(E, q)``, and which of them are real ones."""
    found, real = torch.zeros(len(inside), most, dtype=torch.int64), torch.zeros(len(inside), most, dtype=torch.bool)
    for number, each in enumerate(inside):
        own = torch.nonzero(each)[:, 0]
        places = torch.linspace(0, len(own) - 1, min(len(own), most)).round().long()
        found[number, : len(places)] = own[places]
        real[number, : len(places)] = True
    return found, real


def _jump(field: str, index: MultiIndex, evaluation: Evaluation) -> Tensor:
    one, two = evaluation.spaces
    return one.jet(field, index) - two.jet(field, index)


def nodes(model: Tiles) -> tuple[Tensor, Tensor]:
    """Gauss points of every tile in the coordinates of the tiles, ``(T, n, D)``, and a tile's functions there, ``(n, K)``."""
    local = gauss_grid(max(model.degrees) + 1, len(model.degrees))
    table = model.functions(local, [0] * len(model.degrees))
    return model.centers[:, None] + local * model.halves[:, None], table


def nearest(table: Tensor, values: Tensor) -> Tensor:
    """Interpolation: the coefficients ``(T, K, F)`` of polynomials near values ``(T, n, F)`` at nodes, by least squares."""
    by_point = values.transpose(0, 1)
    found = torch.linalg.lstsq(table, by_point.flatten(1), driver="gels").solution
    return found.view(-1, *by_point.shape[1:]).transpose(0, 1).clone()


def gauss_grid(side: int, dimension: int) -> Tensor:
    """Products of Gauss points on [-1, 1], ``(side**D, D)``."""
    if dimension == 0:
        return torch.zeros(1, 0, dtype=torch.float64)
    places, _ = gauss(side)
    return torch.cartesian_prod(*[places] * dimension).reshape(-1, dimension)

"""Space-time slabs on grids: windows of time by spectral collocation on a box, more nodes where these resolve too little."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import cast

import numpy as np
import torch
from torch import Tensor

from sciml.errors import BaselineError
from sciml.geometry import At, Average, Box, Interior
from sciml.models import Chebyshev, Fourier, GridFunction
from sciml.models.bases import Basis1D, Nodal, axis_from
from sciml.problem import Problem
from sciml.slabs.grids import GridPreconditioner, GridSpace, NodeTrace
from sciml.slabs.newton_krylov import SlabRates
from sciml.slabs.projection import projected, rough_part
from sciml.slabs.row_layout import arranged, periodic_coordinates
from sciml.slabs.separable import SeparablePreconditioner, separable
from sciml.slabs.system import Evaluated, Site, Slab, Trace
from sciml.solvers import DiscreteProblem
from sciml.strategies.slabs import IN_LAYER, ROUNDING, Ended, SlabAttempt, lacks_start
from sciml.strategies.time_marching import HOPELESS

MOST_BESIDE_TIME = 3

_FIRST = {1: 24, 2: 14, 3: 10}
_RAISES, _RAISED_START, _LOW = (1.5, 1.25, 1.1), (1.15,), 0.03
_REFINEMENTS, _USELESS, _IN_SPACE = 12, 0.7, 0.3
_TOLERANCE, _SMALL = 1e-15, 1e-3
# A residual of the first window that no length or grid makes much smaller is one of the start.
_ROUGH = 1e-2
# Tails of the start that are small enough, as such and beside what is worth its effort; nearly so, they are to fall fast.
_RESOLVED, _BESIDE_WORTH, _NEARLY, _FALLING = 1e-10, 1e-2, 1e-7, 0.5
# Multiplications of all factors, and the part of the free memory that these and the vectors of GMRES may take.
_EFFORT, _MEMORY, _VECTORS = 2e11, 0.3, 40
# Multiplications of full factors from which on fast diagonalisation is preferred, and products a step which show that it
# does not serve.
_DEAR, _MANY_PRODUCTS = 1e8, 25
# Values up to which a grid is cheap, and by how much a window may be longer than the one before.
_CHEAP, _LONGEST = 4000, 8.0
# A dear grid whose tails are a part of the target has fewer nodes in the next window, not for so many tries after a finer one.
_QUIET, _FEWER, _HOLD = 1e-3, 0.8, 3
# How many windows as short as this one there is to be time for on a larger grid, at most; seconds for each value at a stage,
# and in each product for each node along an axis (one thread of a slow processor); other products.
_WINDOWS = 20
_A_VALUE, _A_NODE, _OTHER_PRODUCTS = 2e-6, 1e-9, 4
# Multiplications of full factors in a second.
_A_SECOND = 4e9
# How much of what is left between the stages may be what is left at them.
_NOISE = 3.0
# For how many windows as short as the first of a rough start there is to be time, and what later ones may add to its error.
_WINDOWS_IN_LAYER, _LATER = 6, 0.1
# Tails of a start that no grid resolves: it jumps; and of the end of the first window.
_JUMPS, _UNRESOLVED = 5e-3, 0.15
# Of a jump's tail three quarters are left after so many raises, with nearly twice the nodes, of a kink's two fifths. Dear grids
# are for what falls faster than either.
_APART, _STILL, _ALGEBRAIC = 4, 0.55, 0.35
# How many grids in turn may be no better for a start that is projected, and the part that is small enough then, as a share of
# what is accepted: with twice the nodes it is hardly a third.
_BY_FITS, _OF_A_JUMP = 2, 0.1
# The shortest first window, as a share of the time.
_SHORTEST = 1e-7


def not_on_grid(problem: Problem) -> str | None:
    """Why a problem that can be solved in windows cannot be solved on a grid in them, or None when it can."""
    if not isinstance(problem.domain, Box):
        return "its domain is no box"
    if not 1 < len(problem.coordinates) <= MOST_BESIDE_TIME + 1:
        return f"it has not one to {MOST_BESIDE_TIME} coordinates beside time"
    for term in problem.terms():
        if isinstance(term.place, Average) and term.place.over != Interior():
            return "a mean over a part of the boundary ties its nodes together"
        level = isinstance(term.place, At | Average)
        if level and (term.field is None or problem.order(term.field, str(problem.time))):
            return f"{term.name!r} is no level of a field without a rate: the others have theirs from their equations"
    lacking = lacks_start(problem)
    if lacking is not None:
        return lacking
    time = str(problem.time)
    try:
        space = _space(problem, [5] * (len(problem.coordinates) - 1))
        arranged(problem, space, {name: problem.order(name, time) for name in problem.fields}, rates=False)
    except BaselineError as error:
        return str(error)
    return None


def _space(problem: Problem, counts: Sequence[int]) -> GridSpace:
    """A grid with so many nodes along each coordinate beside time."""
    around = periodic_coordinates(problem)
    names = [name for name in problem.coordinates if name != problem.time]
    axes: dict[str, Nodal] = {}
    for name, count in zip(names, counts, strict=True):
        axes[name] = (Fourier if name in around else Chebyshev)(*problem.domain.bounds[name], count)
    return GridSpace(axes)


@dataclass(frozen=True)
class _GridTried:
    """A window on one grid; ``reached`` is ``whole`` counted by the window's length where that is very short, or ``part``.

    ``rounding`` is what of ``in_time`` is left at the stages themselves: it says nothing of the length. ``part`` is what the
    error in it makes of that of all windows.
    """

    setup: DiscreteProblem
    space: GridSpace
    rates: Tensor
    solved: bool
    whole: float
    reached: float
    part: float
    tails: Tensor
    in_space: float
    in_time: float
    rounding: float


@dataclass
class GridWindows(SlabAttempt):
    """Space-time slabs by spectral collocation on a grid: an attempt for ``time_marching.march``.

    The numbers of nodes are raised along the coordinates that are resolved worst while the residual between the nodes is what
    is missing, as far as time and memory allow, and lowered again where far more is resolved than has to be.
    """

    loosens, phase, title = False, "Grids", "spectral collocation on grids"
    patience = 2

    # Whether nobody else takes starts that are too rough.
    alone: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._exact = self.target
        self._grid = _space(self._problem, [_FIRST[len(self._others)]] * len(self._others))
        self._sites: tuple[GridSpace, list[Site], list[Tensor | None]] | None = None
        orders = dict(zip(self._problem.fields, self._orders, strict=True))
        self._rows = arranged(self._problem, self._grid, orders, rates=False)
        axes = [name for name, axis in self._grid.axes.items() if not axis.periodic]
        level = any(isinstance(term.place, At | Average) for term in self._conditions)
        self._separable = separable(self._problem, self._rows, axes) and not level
        # Whether what contradicts the walls at the start is smooth soon after.
        self._smooths = bool(axes) and self._diffuses(axes)
        # Whether the first window is as wrong as the one twice as long was: what is rough is the start. It may be too rough.
        self._start_is_rough, self.gives_up, self._longer_had = False, False, math.inf
        # Whether no grid resolves the start, which then is projected; the last one that was.
        self._projects = False
        self._projected: tuple[GridSpace, dict[tuple[str, int], Tensor]] | None = None
        # The first window of a rough start with how it ended, and the residual of the last one in the layer that it leaves.
        self._first: tuple[_GridTried, Ended] | None = None
        self._in_layer = math.inf
        self._hold = 0

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up, and its relative residual; that of very short windows counts by their length."""
        if begin != self._begin:
            self._go_on(begin, end)
        if self._first is not None:
            # What the first window left counts on, most of all while its layer grows.
            self.target = max(self.target, self._first[0].part * (1.0 if begin == self._over else _LATER))
        if before is None and not self._ends:
            self._grid = self._resolving_start(begin)
        if before is None and self._start_is_rough and self._smooths:
            return self._past_start(begin, end)
        found = self._resolved(begin, end, before)
        self._keep_error(begin, found.setup)
        if before is None and found.solved:
            self._start_is_rough = found.whole > max(_ROUGH, _USELESS * self._longer_had)
            self.gives_up, self._longer_had = self._start_is_rough and not self._smooths, found.whole
        self._grid = self._coarser(found)
        in_time = max(found.in_time - _NOISE * found.rounding, 1e-300)
        self.longer = min(_LONGEST, max(1.0, (self.target / in_time) ** (1 / (self.stages.count - 1))))
        failed = found.reached > self.target
        if not failed and begin == self._over and self.accepted < found.whole < _USELESS * self._in_layer:
            # A layer that has grown twice as long is the same on twice the scale. What becomes no less is none of the layer's.
            self._over, self._in_layer, self.longer = end, found.whole, max(self.longer, 2.0)
        self._keep_short(begin, end, failed=failed and before is not None)
        if failed and found.solved:
            self._give_way(begin, found.whole)
        return found.setup, found.reached

    def _diffuses(self, along: Sequence[str]) -> bool:
        """Whether each field diffuses along some coordinates by its own equation."""
        own = [each for each in self._rows if each.term in self._equations]
        rates = all((each.field, (self._time,)) in self._problem.system.asked(each.term) for each in own)
        return rates and max(self._orders) == 1 and separable(self._problem, self._rows, along)

    def _past_start(self, begin: float, end: float) -> tuple[DiscreteProblem, float]:
        """The first window of a rough start: so short, and on so many nodes, that its part of the error is smallest.

        Its residual says nothing: rates jump however short it is. What modes it does not resolve in time, Radau's method damps.
        """
        if self._first is None and self._ends:
            self._first = self._smallest_part(begin, end)
            # Where none was solved it is one like any other.
            self._smooths = self._first is not None
        if self._first is None:
            # A start that jumps, of which a window on the first grid tells nothing.
            self.gives_up = not self.alone and not self._projects
            return self._tried(self._grid, begin, end, None).setup, math.inf
        found, ended = self._first
        over = found.setup.problem.domain.bounds[self._time][1]
        self._ends[id(found.setup.trial)] = ended
        # Tiles resolve what contradicts the walls, and nothing that jumps inside: there they follow what is hopeless on grids.
        rough = found.part > self.accepted or float(found.tails.max()) > _UNRESOLVED
        if not self.alone and (found.part > HOPELESS if self._projects else rough):
            self.gives_up = True
            return found.setup, max(found.part, 2 * self.accepted)
        if end > over + 1e-9 * (over - begin):
            return found.setup, math.inf
        self._keep_error(begin, found.setup)
        self._grid, self._over, self._in_layer = found.space, end, found.whole
        self.longer, self.target = 1.0, max(self.target, found.part)
        return found.setup, found.part

    def _smallest_part(self, begin: float, end: float) -> tuple[_GridTried, Ended] | None:
        """The first window with the smallest part of the error, and how it ended; None where none was solved."""
        length, space, best, before, in_vain = end - begin, self._grid, None, math.inf, 0
        while not self.log.stopped and length > _SHORTEST * self._duration:
            found = self._tried(space, begin, begin + length, None)
            better = found.solved and (best is None or found.part < best[0].part)
            if better:
                best = found, self._ends[id(found.setup.trial)]
            if best is not None and best[0].part <= (_OF_A_JUMP * self.accepted if self._projects else IN_LAYER):
                break
            if best is None or (better and float(found.tails.max()) < _UNRESOLVED):
                # As short as helps, on these nodes. What they do not resolve at the end would only be handed on.
                length = length / 2
                continue
            # What no grid resolves becomes less by fits and starts.
            in_vain = 0 if best[0].part < _USELESS * before else in_vain + 1
            larger = self._raised(found.space, found.tails)
            patience = _BY_FITS if self._projects and found.solved else 0
            if larger is None or in_vain > patience or not self._in_time(larger, _WINDOWS_IN_LAYER):
                break
            before, space = min(before, best[0].part), larger
        return best

    def _resolving_start(self, begin: float) -> GridSpace:
        """As many nodes as the initial values ask for."""
        grid, before = self._grid, list[float]()
        while True:
            found = self._start_values([torch.from_numpy(each) for each in grid.points.T], begin, None)
            values = [each.expand(grid.size) for each in found.values()]
            tails = grid.tails(torch.stack(values)) if values else torch.zeros(1)
            worst = float(tails.max())
            # A start whose derivatives jump has a tail on any grid.
            last, earlier = (before[-1], before[-_APART:][0]) if before else (math.inf, math.inf)
            enough = worst < max(_RESOLVED, _BESIDE_WORTH * self._worth(grid)) or _FALLING * last < worst < _NEARLY
            larger = None if enough else self._raised(grid, tails, _RAISED_START)
            if larger is not None and self._products_of(larger) > _EFFORT and worst > _ALGEBRAIC * earlier:
                larger = None
            if larger is None:
                # Tails of a jump are large, and hardly fall with the nodes.
                self._projects = not enough and worst > max(_JUMPS, _STILL * earlier)
                self._smooths = self._diffuses(list(grid.axes)) if self._projects else self._smooths
                self._start_is_rough = self._projects and self._smooths
                return self._grid if self._start_is_rough else grid
            grid = larger
            before.append(worst)

    def _raised(self, grid: GridSpace, tails: Tensor, factors: Sequence[float] = _RAISES) -> GridSpace | None:
        """More nodes along the coordinates that are resolved worst, or None if that takes too much."""
        for factor in factors:
            counts = [
                math.ceil(factor * count) if tail >= _LOW * tails.max() else count
                for count, tail in zip(grid.shape, tails, strict=True)
            ]
            found = _space(self._problem, counts)
            if found.shape != grid.shape and self._affordable(found, separated=self._is_separated(found)):
                return found
        return None

    def _factors(self, grid: GridSpace) -> tuple[float, float]:
        """The multiplications that full factors take on a grid, and their bytes."""
        each = math.prod(len(axis) for axis in grid.axes.values() if not axis.periodic)
        count, block = self.stages.count // 2 * (grid.size // each), len(self._orders) * each
        return count * 8 / 3 * block**3, 16 * count * block**2

    def _products_of(self, grid: GridSpace) -> float:
        """The multiplications in products of one step of Newton's, each with as many passes along the axes."""
        return _VECTORS * 8.0 * self.stages.count * len(self._orders) * grid.size * sum(grid.shape)

    def _is_separated(self, grid: GridSpace) -> bool:
        """Whether fast diagonalisation takes the place of full factors."""
        return self._separable and self._factors(grid)[0] > _DEAR

    def _coarser(self, found: _GridTried) -> GridSpace:
        """The grid for the next window: that of this one, or a coarser one where it resolves far more than it has to."""
        self._hold -= 1
        quiet = _QUIET * self.target
        if self._hold > 0 or found.space.size * len(self._orders) <= _CHEAP or found.in_space > self.target:
            # What is left between many nodes may be rounding: tails tell.
            return found.space
        pairs = zip(found.space.shape, found.tails, strict=True)
        fewer = _space(self._problem, [math.ceil(_FEWER * count) if tail < quiet else count for count, tail in pairs])
        # What is kept for a grid is kept for the object.
        return found.space if fewer.shape == found.space.shape else fewer

    def _in_time(self, larger: GridSpace, windows: float) -> bool:
        """Whether so many windows can be solved on a larger grid within the budget of time."""
        a_value = _A_VALUE + _A_NODE * sum(larger.shape) * (_OTHER_PRODUCTS + self._products)
        seconds = self.stages.count * len(self._orders) * larger.size * a_value
        if not self._is_separated(larger):
            seconds += self._factors(larger)[0] / _A_SECOND
        return self._in_budget(windows * seconds)

    def _affordable(self, grid: GridSpace, *, separated: bool) -> bool:
        values = self.stages.count * len(self._orders) * grid.size
        effort, needed = self._factors(grid)
        if separated:
            effort, needed = self._products_of(grid), 16 * values * len(self._orders)
        # The first cells of a projection, over before the window is solved, take less than the vectors.
        return effort <= _EFFORT and needed + 8 * _VECTORS * values <= self.log.budget.bytes(_MEMORY)

    def _resolved(self, begin: float, end: float, before: DiscreteProblem | None) -> _GridTried:
        """The window on as many nodes as it takes, or as are worth it."""
        found, earlier = self._tried(self._grid, begin, end, before), None
        for _ in range(_REFINEMENTS):
            self.target = max(self.target, self._worth(found.space))
            if self.log.stopped or found.reached <= self.target or not found.solved:
                return found
            if found.in_space < _IN_SPACE * found.reached:
                return found
            if earlier is not None and found.in_space > _USELESS * earlier.in_space:
                return self._as_good_as_it_gets(earlier)
            larger = self._raised(found.space, found.tails)
            windows = min(_WINDOWS, (self._last - begin) / (end - begin))
            if larger is None or not self._in_time(larger, windows):
                return self._as_good_as_it_gets(found)
            self._hold = _HOLD
            rates = found.space.transferred(found.rates.flatten(0, 1), larger).unflatten(0, found.rates.shape[:2])
            earlier, found = found, self._tried(larger, begin, end, before, rates)
        return found

    def _worth(self, grid: GridSpace) -> float:
        """The residual that is worth its effort on a grid: the dearer it is, the larger."""
        return min(self.accepted, self._exact * max(1.0, len(self._orders) * grid.size / _CHEAP) ** 2)

    def _as_good_as_it_gets(self, found: _GridTried) -> _GridTried:
        if found.in_space <= self.accepted:
            self.target = max(self.target, 2 * found.in_space)
        return found

    def _tried(
        self, space: GridSpace, begin: float, end: float, before: DiscreteProblem | None, rates: Tensor | None = None
    ) -> _GridTried:
        sites, rows = self._placed(space)
        slab = self._slab(space, begin, end, before)
        # What moves a field by so much in a short window changes its rates by more.
        share = (end - begin) / self._duration
        tolerance = max(_TOLERANCE, _SMALL * share * max(self.target, self._worth(space)))
        separated = self._is_separated(space)
        made = partial(SeparablePreconditioner if separated else GridPreconditioner, rows)
        solved, error, _ = self._solved(slab, sites, made, tolerance, before, rates)
        many = separated and not solved.converged and solved.products > _MANY_PRODUCTS * solved.steps
        if many and self._affordable(space, separated=False):
            # What couples coordinates or fields is too much for GMRES.
            self._separable, self._kept = False, None
            return self._tried(space, begin, end, before, rates)
        setup = self._handed_on(slab, solved, before, error)
        in_space = in_time = rounding = math.inf
        tails = torch.zeros(len(space.shape))
        if solved.converged:
            in_space, in_time = self._judged(slab, sites, solved)
            rounding = self._left(slab, sites, solved) if _QUIET * self.target < in_time <= self.target else 0.0
            ends = [slab.end(solved.rates, number) for number in range(len(self._orders))]
            levels = [each for end in ends for each in end] or list(solved.rates[-1])
            tails = space.tails(torch.stack([*levels, *solved.rates[-1]]))
        whole = max(in_space, in_time)
        self._record(begin, solved, whole)
        # In the root mean square over all of time.
        reached, part = self._counted(whole, begin, end), self._relative(error) * math.sqrt(share)
        if self._first is not None:
            # What is rough has residuals that say little: its own error counts in their place.
            reached = min(reached, part)
        counted = [self._fraction(begin, end) * each for each in (in_space, in_time, rounding)]
        return _GridTried(setup, space, solved.rates, solved.converged, whole, reached, part, tails, *counted)

    def _placed(self, space: GridSpace) -> tuple[list[Site], list[Tensor | None]]:
        """Where equations and conditions are taken, in their natural sizes, and the rows that they take."""
        if self._sites is not None and self._sites[0] is space:
            return self._sites[1:]
        scales = self.setup.scales
        sites: list[Site] = []
        rows: list[Tensor | None] = []
        for row in arranged(self._problem, space, dict(zip(self._problem.fields, self._orders, strict=True)), rates=False):
            trace = space.nodes(row.at)
            sites.append(Site(row.term, (trace,), 1 / scales[row.term.name], row.normals))
            rows.append(torch.from_numpy(self._problem.fields.index(row.field) * space.size + row.numbers))
        shares = torch.from_numpy(space.weights / space.weights.sum())[None]
        time = self._problem.coordinates.index(self._time)
        for term in self._conditions:
            if isinstance(term.place, At | Average):
                own = shares
                if isinstance(term.place, At):
                    # The value at a point, as that of the interpolation between the nodes.
                    point = np.array([term.place.position[:time] + term.place.position[time + 1 :]], dtype=float)
                    own = torch.from_numpy(space.at_points(point).operator(()).toarray())
                sites.append(Site(term, (space.nodes(),), 1 / scales[term.name], shares=own))
                rows.append(None)
        self._sites = space, sites, rows
        return sites, rows

    def _starts(self, space: GridSpace, begin: float, before: DiscreteProblem | None) -> tuple[Tensor, ...]:
        found = self._start_values([torch.from_numpy(each).contiguous() for each in space.points.T], begin, before)
        if before is None:
            found |= self._projected_starts(space, begin, found)
        return tuple(
            torch.stack([found[name, power].expand(space.size) for power in range(order)])
            if order
            else torch.zeros(0, space.size, dtype=torch.float64)
            for name, order in zip(self._problem.fields, self._orders, strict=True)
        )

    def _projected_starts(
        self, space: GridSpace, begin: float, found: Mapping[tuple[str, int], Tensor]
    ) -> dict[tuple[str, int], Tensor]:
        """Of initial values at the nodes those that jump, by their moments in the place of values."""
        if not self._projects:
            return {}
        if self._projected is None or self._projected[0] is not space:
            each = {key: space.tails(values.expand(1, space.size)).max() for key, values in found.items()}
            rough = [key for key, tail in each.items() if tail > _JUMPS]
            sampled = lambda places: torch.stack([self._start_values(places, begin, None)[key] for key in rough])  # noqa: E731
            # What is kept is another grid's, and makes room.
            self._kept = None
            axes, memory = list(space.axes.values()), self.log.budget.bytes(_MEMORY)
            values = projected(axes, sampled, memory).flatten(1) if rough else torch.empty(0)
            # What has no value at some place has none for a quadrature.
            pairs = zip(rough, values, strict=True)
            self._projected = space, {key: own for key, own in pairs if bool(own.isfinite().all())}
        return self._projected[1]

    def _judged(self, slab: Slab[GridSpace], sites: Sequence[Site], solved: SlabRates) -> tuple[float, float]:
        """The largest relative residual of an equation between the nodes, and that of any term between the stages."""
        apart = [each.values.square().mean().sqrt() for each in self._apart(slab, solved.rates)]
        in_space, in_time = float(torch.stack(apart).max()), self._left(slab, sites, solved, slab.stages.between)
        return (in_space, in_time) if math.isfinite(in_space + in_time) else (math.inf, math.inf)

    def _left(self, slab: Slab[GridSpace], sites: Sequence[Site], solved: SlabRates, at: Tensor | None = None) -> float:
        """The largest relative residual of a term at some times, or at the stages."""
        left = [each.values.square().mean().sqrt() for each in slab.evaluate(sites, solved.rates, at)]
        return float(torch.stack(left).max())

    def _apart(self, slab: Slab[GridSpace], rates: Tensor) -> list[Evaluated]:
        """The equations between the nodes, at the stages."""
        trace = slab.mesh.between()
        return slab.evaluate([Site(term, (trace,), 1 / self.setup.scales[term.name]) for term in self._equations], rates)

    def _lacking(self, slab: Slab[GridSpace]) -> tuple[Tensor, ...]:
        if self._projected is None or self._projected[0] is not slab.mesh:
            return super()._lacking(slab)
        # Moments are right, to a quadrature: what is lacking is about as rough as the highest functions that there are. Other
        # fields are there to rounding, or lack what interpolation does.
        missed, sizes = self._misfit(slab)
        lacks = ROUNDING + torch.where(sizes > 0, missed / sizes, 0.0).sqrt()
        shares = torch.from_numpy(slab.mesh.weights / slab.mesh.weights.sum())
        found = [lacks[number, : len(starts), None] * starts for number, starts in enumerate(slab.starts)]
        for name, power in self._projected[1]:
            number = self._problem.fields.index(name)
            own = slab.starts[number][power]
            rough = rough_part(list(slab.mesh.axes.values()), own.view(1, *slab.mesh.shape)).flatten()
            size = (rough.square() @ shares).sqrt().clamp_min(1e-300)
            found[number][power] = ROUNDING * own + missed[number, power].sqrt() / size * rough
        return tuple(found)

    def _unresolved(self, slab: Slab[GridSpace], solved: SlabRates) -> list[Tensor]:
        # At the nodes nothing is left: what there is around each of them.
        around = {}
        for each in self._apart(slab, solved.rates):
            squares = each.values[:, 0].square().unflatten(1, [len(places) for places in slab.mesh.gaps])
            around[each.site.term.name] = slab.mesh.around(squares).flatten(1).sqrt()[:, None]
        sizes = []
        for each in solved.evaluated:
            own, nodes = around.get(each.site.term.name), cast(NodeTrace, each.site.traces[0]).numbers
            sizes.append(0.0 * each.values if own is None else own[:, :, nodes])
        return sizes

    def _everywhere(self, mesh: GridSpace) -> list[tuple[Trace, Tensor]]:
        sides = (np.ones(len(axis)) if axis.periodic else np.abs(np.diff(axis.nodes)) for axis in mesh.axes.values())
        shares = torch.from_numpy(reduce(np.multiply.outer, sides).ravel())[None]
        return [(mesh.between(), (shares / shares.sum()).expand(len(self._orders), -1, -1))]

    def _onto(self, mesh: GridSpace, other: GridSpace, ends: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return ends if other.shape == mesh.shape else tuple(other.transferred(each, mesh) for each in ends)

    def _model(self, slab: Slab[GridSpace], rates: Tensor, offset: Tensor) -> GridFunction:
        space, scale = slab.mesh, self.setup.trial.scale
        time = Chebyshev(-1.0, 1.0, slab.stages.count + max(self._orders) + 1)
        at = torch.from_numpy((time.nodes + 1) / 2)
        values = torch.stack(
            [slab.moved(rates, number, 0, at) + slab.kept(number, 0, at) for number in range(len(self._orders))], dim=-1
        )
        values = ((values - offset.to(values)) / scale.to(values)).unflatten(1, space.shape)
        column = self._problem.coordinates.index(self._time)
        axes: list[Basis1D] = [axis_from({**axis.config, "low": -1.0, "high": 1.0}) for axis in space.axes.values()]
        axes.insert(column, time)
        return GridFunction(axes, values.movedim(0, column).contiguous())

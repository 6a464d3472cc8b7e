"""Space-time slabs on cut tiles: windows of time on domains that are no boxes, more tiles where these resolve too little."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from sciml.models import Tiles
from sciml.models.radau import RadauIIA
from sciml.problem import Problem
from sciml.problem.conditions import Term
from sciml.slabs.newton_krylov import SlabRates
from sciml.slabs.projection import Sampled
from sciml.slabs.system import Evaluated, Site, Slab, Trace, at_time
from sciml.slabs.tile_space import SINGULAR, TileSpace, untied
from sciml.slabs.tiles import TilePreconditioner
from sciml.solvers import DiscreteProblem
from sciml.strategies.slabs import GIVE_WAY, ROUNDING, SlabAttempt, Verdict, lacks_start

# Tiles along the longest side and the degree of their polynomials, coarse to fine, by coordinates beside time.
_LEVELS = {
    1: ((4, 8), (8, 10), (16, 12), (32, 12)),
    2: ((6, 8), (9, 8), (13, 8), (18, 8), (25, 8)),
    3: ((2, 4), (3, 5), (3, 7), (4, 8)),
}
_STAGES = 6
# Least squares amplify waves that tiles hardly resolve, and time damps these, from frequencies on that depend on the stages:
# which number is right depends on the tiles. Where waves have grown, to so many times the first target, the next begins anew.
_STAGES_OF_WAVES, _GROWN = (9, 6, 7), 10.0
# Stages of the window on which tiles are refined, and how many windows an inverse costs.
_FEWER_STAGES, _STAGES_OF_FLOWS, _INVERSE = 1, 3, 3.5
_USELESS, _SMALL, _LONGEST = 0.7, 0.05, 4.0
# By how many degrees polynomials are lower that finer ones are compared with where no tiles are finer.
_LOWER = 2
# What halving few tiles leaves of an error at best.
_AT_BEST = 0.25
_CONTRADICTED = 0.03
# On what share of the tiles a start is missed at most that jumps: on more it is fine, and finer tiles resolve it.
_FEW = 0.5
# What longer windows aim at, as a share of the target: digits in time cost little, but those that space has not are in vain,
# and short windows amplify waves. Space has not more where the target is so many times what was aimed at.
_SHARE, _SMOOTH_SHARE, _COARSE = 0.3, 1e-3, 2.0
# After a start that contradicts the conditions: the error that is accepted, the one aimed at, where tiles are as thin as the
# layer too (it is over so soon that errors in it hardly count in all of time), and how fast windows grow.
_AFTER_JUMPS, _IN_LAYERS, _IN_THIN_LAYERS, _PAST_LAYER = 1e-2, 5e-5, 1e-3, 4.0
# What tiles of a body may miss of a layer, as a part of all of time.
_IN_BODIES = 0.1
# How often tiles are halved towards a layer of a start whose values contradict prescribed ones, the most multiplications that
# a factor on them may take, and the shortest window that they are made for, as a share of the time.
_TO_LAYERS, _THIN_EFFORT, _SHORTEST = 5, 1.5e10, 2e-6
# How many windows of different lengths, each with a factor of its own, are solved until a layer is thicker than the tiles.
_WINDOWS_IN_LAYER = 5
# The time, as so many windows in which tiles resolve a layer, after which those that were halved once less do.
_RESOLVED = 2.0
# What coarser tiles may lose of the fields, as a fraction of their size.
_LOST = 3e-5
# The errors of windows, by their length as shares of the fields by all of the time, below which the layer is over.
_LAYER_OVER = 3e-2
# Then there are so many stages, and the first window is that on which tiles were refined, divided by this.
_STAGES_AFTER, _THINNER = 4, 8.0
# In a body, where tiles miss more of the layer than time does and factors are dear, there are fewer.
_STAGES_IN_BODIES = 3
_EFFORT, _MEMORY, _SEED = 2e11, 0.4, (10,)
# How often tiles are halved where what conditions impose jumps.
_TO_JUMPS = 12
# How many times the target what tiles miss in a later window may be before they are refined there.
_BEHIND = 2.0
# By what share of their size fields move between the stages of a window that is too long for any tiles.
_TOO_LONG = 0.01
# How many times what rows leave counts as a source of errors: with one, estimates were 0.7 to 1.4 of the errors.
_LEFT = 2.0
# How many times the target the error of a window may be whose inverse there is.
_NEARLY = 3.0
# Seconds for each number of a factor in each product at a stage (one thread of a slow processor), products beside those of
# Newton's method, and seconds for each multiplication of a real factor.
_A_NUMBER, _OTHER_PRODUCTS, _A_MULTIPLICATION = 4e-9, 2, 8e-11
# What Newton's steps leave of rates at most where rounding stops them, and what of the largest rows is left out then.
_ROUNDS, _HARDLY_SEEN = 1e-4, 1e-8
# By what part of the target a window of waves may miss for one twice as long to follow.
_BY_FAR = 0.5
# Tries of a window of waves that end without a solution before the march is given up.
_GIVEN_UP = 3


def not_on_tiles(problem: Problem) -> str | None:
    """Why a problem that can be solved in windows cannot be solved on cut tiles in them, or None when it can."""
    if not 1 <= len(problem.coordinates) - 1 <= max(_LEVELS):
        return f"it has more than {max(_LEVELS)} coordinates beside time"
    return untied(problem) or lacks_start(problem)


@dataclass(frozen=True)
class _TileTried:
    """A window on some tiles: by how much the fields move between the stages, as a fraction of their size.

    ``squares`` are those of the rows of each tile, and ``left`` is what they are as a change of the fields within the window.
    """

    setup: DiscreteProblem
    slab: Slab[TileSpace]
    solved: bool
    in_time: float
    squares: Tensor

    @property
    def left(self) -> float:
        slab, halves = self.slab, self.slab.mesh.halves
        volumes = halves.prod(1) / halves.prod(1).sum()
        mean = float((self.squares * volumes).sum()) / slab.stages.count
        return slab.length ** max(slab.orders) * math.sqrt(mean)


@dataclass
class TileWindows(SlabAttempt):
    """Space-time slabs of implicit Runge-Kutta stages on cut tiles: an attempt for ``time_marching.march``.

    A window is judged by errors of the fields, as fractions of their size: in time by how far the residual between the stages
    would move them, in space by how much they changed when the tiles were refined last. Tiles are refined in the first window,
    until the fields hardly change, and later on where features move to larger tiles: what rows leave, which is known in every
    window, was compared with that change when the tiles were refined. Where a start contradicts prescribed values, the first
    levels are tiles that are halved across the layer, and windows go back to coarser levels as it grows. Waves have another
    number of stages in each ``turn``, after one in which they grew.
    """

    stages: RadauIIA = field(default_factory=lambda: RadauIIA(_STAGES))
    coarse: RadauIIA = field(default_factory=lambda: RadauIIA(_FEWER_STAGES))
    loosens, phase, title = False, "Tiles", "polynomials on cut tiles"
    # Of what time makes half of it leaves far less. The rest is what tiles miss of the start.
    worth, floor = 0.25, 1e-3
    dear = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self._level, self._in_space, self._likely, self._per_left, self._resolved = 0, math.inf, math.inf, 0.0, math.inf
        # Windows in turn that ended without a solution; whether rounding was seen to keep one from it.
        self._in_turn, self._rounds = 0, False
        # Whether waves have grown, as told from the target of the first window.
        self._grew, self._firm = False, math.inf
        self._first: _TileTried | None = None
        # The coefficients of the start on the tiles that asked for them last.
        self._started: tuple[TileSpace, tuple[Tensor, ...]] | None = None
        self._jumps, self._layer = False, math.inf
        # How many levels are tiles halved across a layer, and when it is so thick that those below a level resolve it.
        self._graded, self._thicker = 0, dict[int, float]()
        # The first window that was asked for when the start was seen to contradict conditions.
        self._begun: tuple[float, float] | None = None
        # The length with which it begins anew, and the level of uniform tiles at which levels begin.
        self._longest, self._lowest = 0.0, 0
        # The target that comes back after a window which missed it by little.
        self._meant: float | None = None
        self._spaces: dict[int, tuple[TileSpace, list[Site]] | None] = {}
        if max(self._orders) > 1:
            self.stages = RadauIIA(_STAGES_OF_WAVES[self.turn])
        if not all(self._orders):
            # A pressure answers at once to what a step of implicit Euler's method misses of a flow.
            self.coarse = RadauIIA(_STAGES_OF_FLOWS)

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up, and the relative error of its fields: in time, or in space, which no shorter window changes."""
        if self._meant is not None:
            self.target, self._meant = self._meant, None
        if before is None and self._first is None:
            end = self._first_window(begin, end)
            first = self._refined(self._tried(self._at(self._level), begin, end, None), begin, end)
            if not first.solved:
                # Tiles are refined on a window that is short enough.
                return first.setup, math.inf
            self._first = first
        if before is None and self._first is not None and end - begin > self._layer * (1 + 1e-9):
            return self._first.setup, math.inf
        if before is not None:
            self._coarsen(begin, before)
        waves = max(self._orders) > 1 and not self._jumps
        found = self._kept_up(self._tried(self._at(self._level), begin, end, before, self.stages), begin, end, before)
        if before is None and found.solved and self._missed_fluxes(found):
            return found.setup, math.inf
        if waves and before is None and found.solved and found.in_time > self.target:
            self._let_go(found, begin, end)
        self._keep_error(begin, found.setup)
        left = (self._last - end) / (end - begin)
        # Errors in time add up from window to window.
        coarse = self._jumps or waves or self.target > _COARSE * self._goal or self._is_late(found, left)
        wanted = (_SHARE if coarse else _SMOOTH_SHARE) * self.target / max(found.in_time, 1e-300)
        # The order of what is smooth; what tiles miss of the fields, and layers, grow more slowly.
        order = self.stages.count / 2 + 1 if coarse else self.stages.count + 1
        self.longer = min(_LONGEST, max(1.0, wanted ** (1 / order)))
        if waves and found.in_time <= _BY_FAR * self.target:
            # Least squares amplify waves that tiles hardly resolve, and time damps these in windows as long as may be.
            self.longer = 2.0
        if self._reuses and left * (1 - 1 / 2.0 ** math.floor(math.log2(self.longer))) < _INVERSE:
            # Windows of this length have their inverse, and those of another would not earn theirs.
            self.longer = 1.0
        self._keep_short(begin, end, failed=not found.solved or (waves and found.in_time > self.target))
        reached = max(found.in_time, self._in_space)
        in_layer = self._jumps and (before is None or begin == self._over)
        if in_layer and self._in_body:
            # A layer that is thinner than the tiles of a body counts by its part of all of time. What tiles miss of it, shorter
            # windows miss as well.
            share = math.sqrt((end - begin) / self._duration)
            missed = share * (self._likely if before is None else self._in_space)
            reached = max(share * found.in_time, min(missed, self.accepted) if missed < _IN_BODIES else missed)
        elif self._jumps and before is None and self._in_space <= self.accepted:
            # The layer itself is missed by as much however short the window is.
            reached = min(reached, self.accepted)
        lost = not found.solved or (reached if self._jumps else self._in_space) > self.accepted
        # Of waves that have grown shorter windows damp still less.
        self._in_turn = self._in_turn + 1 if lost and waves and before is not None else 0
        if lost:
            self._grew = self.gives_up
            return found.setup, math.inf
        # Residuals are as large as rates over all of time where the fields are so far off in a short window.
        rate = reached * self._duration / (end - begin)
        if self._jumps and (before is None or (begin == self._over and rate > _LAYER_OVER)):
            self._over = end
        if reached > self.target and self._jumps:
            # Shorter windows resolve no layer that is thinner than the tiles.
            self.target, self.longer = reached, _PAST_LAYER
        elif self._reuses and self.target < reached <= _NEARLY * self.target:
            # A window of another length needs an inverse of its own, which costs more than what is missed.
            self._meant, self.target = self.target, reached
        elif reached > self.target:
            at, missed = self._missed
            if self._give_way(begin, reached) and waves:
                # The longer window was no worse.
                self.longer = 2.0
            self._grew = waves and at == begin and reached > max(self.worth * missed, _GROWN * self._firm)
        if waves and before is None:
            self._firm = self.target
        return found.setup, math.inf if self._grew else reached

    @property
    def gives_up(self) -> bool:
        """Whether shorter windows would be as far off."""
        return self._grew or self._in_turn >= _GIVEN_UP

    @property
    def again(self) -> bool:
        """Whether waves have grown that another number of stages may damp."""
        return self._grew and self.turn + 1 < len(_STAGES_OF_WAVES)

    def _is_late(self, found: _TileTried, left: float) -> bool:
        """Whether so many windows more, as long as this one, take much of the budget of time."""
        _, numbers, elsewhere = found.slab.mesh.effort(self.log.budget.accelerator)
        seconds = _A_NUMBER * (numbers + elsewhere) * found.slab.stages.count * (self._products + _OTHER_PRODUCTS)
        return not self._in_budget(left * seconds)

    def verdict(self, edges: Sequence[float]) -> Verdict:
        found, made = super().verdict(edges), self._spaces.get(self._level)
        if made is None or not made[0].singular:
            return found
        space, later = made[0], found.regular
        regular = lambda points: space.regular(points) & (True if later is None else later(points))  # noqa: E731
        return replace(found, regular=regular, said="; ".join([SINGULAR, *filter(None, [found.said])]))

    def _everywhere(self, mesh: TileSpace) -> list[tuple[Trace, Tensor]]:
        return [*mesh.shares]

    def _onto(self, mesh: TileSpace, other: TileSpace, ends: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if other is mesh:
            return ends
        moved = []
        for name, each in zip(self._problem.fields, ends, strict=True):
            nothing = each.new_zeros(0, mesh.width)
            moved.append(mesh.interpolated(name, partial(other.at_points, each)) if len(each) else nothing)
        return tuple(moved)

    def _resolving_start(self, begin: float, end: float) -> int:
        """The fewest tiles on which the start agrees with the conditions.

        A start that contradicts them does so on any tiles and in windows of any length. What is left of the layer that follows
        when the first window ends is damped: what counts is where the fields are at the ends of stages.
        """
        level, earlier = 0, math.inf
        while (made := self._at(level)) is not None:
            gaps = [float(each.square().mean().sqrt()) for _, each in self._contradictions(*made, begin, end)]
            missed, _ = self._missed_of_start(made[0], begin)
            worst, few = max([float(missed.max()), *gaps]), float((missed > _CONTRADICTED).double().mean()) <= _FEW
            if worst <= _CONTRADICTED:
                return level
            if few and worst > _USELESS * earlier:
                break
            level, earlier = level + 1, worst
        self._jumps = True
        # Finer tiles are those that what is left asks for.
        self._spaces = {0: self._spaces[0]}
        return 0

    def _contradictions(
        self, space: TileSpace, sites: Sequence[Site], begin: float, end: float
    ) -> Iterator[tuple[Site, Tensor]]:
        """The sites of conditions, and by how much the start contradicts these at each place that counts, ``(n,)``.

        Fields without a derivative in time have no start.
        """
        started = {name for name, order in zip(self._problem.fields, self._orders, strict=True) if order}
        depends = self._problem.system.depends
        slab = self._slab(space, begin, end, None)
        conditions = [
            site for site in sites if site.term in self._conditions and {name for name, _ in depends(site.term)} <= started
        ]
        for each in slab.evaluate(conditions, slab.zero(), torch.zeros(1, dtype=torch.float64)):
            yield each.site, each.values[0][each.site.counted]

    def _missed_of_start(self, space: TileSpace, begin: float) -> tuple[Tensor, Tensor]:
        """Data oscillation: what tiles miss of the start in the root mean square, as a share of a field's size, ``(T,)``, and
        along which coordinates they vary most, ``(T, D)``.
        """
        worst, along = torch.zeros(len(space.halves), dtype=torch.float64), torch.zeros_like(space.halves, dtype=torch.bool)
        for number, own in enumerate(self._starts(space, begin, None)):
            if not len(own):
                continue
            name, unit = self._problem.fields[number], self._units[number]
            # A jump along the sides of tiles is missed by none of them.
            missed, jumps = self._misses(space, number, own, begin)[0] / unit, space.torn(name, own[:1]) / unit
            for size, ways in ((missed, space.varying(name, own[:1])), (jumps.amax(1), jumps > _CONTRADICTED)):
                along = torch.where((size > worst)[:, None], ways, along)
                worst = worst.maximum(size)
        return worst, along

    def _misses(self, space: TileSpace, number: int, own: Tensor, begin: float) -> Tensor:
        """Root mean squares of what tiles miss of a field and its derivatives at the start, ``(k, T)``."""
        return space.missed(self._problem.fields[number], own, partial(self._start_of, number, begin, None))[0]

    def _start_of(self, number: int, begin: float, before: DiscreteProblem | None, columns: Sequence[Tensor]) -> Tensor:
        """A field and its time derivatives below the order at a start, ``(k, n)``, at places by the other coordinates."""
        found, name = self._start_values(columns, begin, before), self._problem.fields[number]
        return torch.stack([found[name, power].expand(len(columns[0])) for power in range(self._orders[number])])

    def _first_window(self, begin: float, end: float) -> float:
        """The end of the first window, on tiles of a level that the start and this length ask for."""
        if not self._jumps:
            self._level = self._resolving_start(begin, end)
            if not self._jumps:
                return end
            self.stages = RadauIIA(_STAGES_IN_BODIES if self._in_body else _STAGES_AFTER)
            values = [each for each in self._conditions if each.prescription is not None and not each.prescription.index]
            self._graded, self._begun = self._across_layers(begin, end, values), (begin, end)
            self.accepted = max(self.accepted, _AFTER_JUMPS)
            self.target = max(self.target, _IN_THIN_LAYERS if self._graded else _IN_LAYERS)
        length = max(end - begin, self._longest)
        # One that is not solved is halved.
        self._longest = length / 2 if self._longest else 0.0
        finest = min(self._graded, self._most_graded(length)) if self._graded else 0
        self._spaces = {level: each for level, each in self._spaces.items() if level <= finest}
        self._thicker = {level: begin + _RESOLVED * length / self._thins**level for level in range(1, finest + 1)}
        # How good the tiles are is seen from those that were halved towards the layer once less.
        self._level = max(0, finest - 1)
        self._layer = length / self._thins**finest / _THINNER
        return begin + length / self._thins**finest

    def _missed_fluxes(self, found: _TileTried) -> bool:
        """Whether the first window is to begin anew, across whose layer tiles are halved after all.

        Fluxes that contradict the start leave a layer whose height is as its thickness: where they are not large, tiles of any
        size resolve it well enough.
        """
        enough = found.in_time <= _IN_THIN_LAYERS or self.log.stopped
        if not self._jumps or self._graded or self._begun is None or enough:
            return False
        kept, asked, self._begun = self._spaces, self._begun, None
        # Those that the first window asked for go on when the layer is over.
        self._spaces = {0: self._at(self._level)}
        most = math.ceil(math.log2(found.in_time / _IN_THIN_LAYERS))
        self._graded = self._across_layers(*asked, self._conditions, most)
        if not self._graded:
            self._spaces = kept
            return False
        self._lowest += self._level
        self._first, self._in_space, self._per_left = None, math.inf, 0.0
        self.target, self._longest = max(self._goal, _IN_THIN_LAYERS), asked[1] - asked[0]
        return True

    @property
    def _judged(self) -> Tensor:
        """The fields that windows are judged by: after a sudden start a pressure is as large as the window is short."""
        return torch.tensor([order > 0 or not self._jumps for order in self._orders])

    @property
    def _in_body(self) -> bool:
        """Whether what is damped in time lives in a body, along whose surface tiles are not few."""
        return len(self._others) > 2 and max(self._orders) == 1

    @property
    def _thins(self) -> float:
        """The time in which a layer is twice as thick, as a multiple: two to the order in space."""
        return 2.0 ** max(self._problem.order(field, name) for field in self._problem.fields for name in self._others)

    def _most_graded(self, length: float) -> int:
        """How often tiles may be halved across a layer where the first window, shorter by that, is not to be too short."""
        shortest = _THINNER * _SHORTEST * self._duration
        return min(_TO_LAYERS, max(0, math.floor(math.log(length / shortest, self._thins))))

    def _across_layers(self, begin: float, end: float, conditions: Sequence[Term], most: int = _TO_LAYERS) -> int:
        """Boundary layers: levels of tiles, so many, each halved where the start contradicts these conditions.

        A layer of the order p in space is as thin as the root of that order of the time. Tiles of each level resolve it in a
        window that is ``2**p`` times as short as that of the level before.
        """
        made, smooths = self._at(0), self._thins > 2 and max(self._orders) == 1
        assert made is not None
        if not smooths or self._in_body or not bool(self._layered(made[0], begin, end, conditions).any()):
            return 0
        # What coarser tiles miss elsewhere they would miss when the layer is over.
        corners = made[0].reentrant
        if len(corners):
            self._spaces[0] = made = self._affordable(made[0].towards(corners)) or made
        space = made[0]
        for level in range(1, 1 + min(most, self._most_graded(end - begin))):
            space = space.finer(self._layered(space, begin, end, conditions))
            finer = self._affordable(space, most=_THIN_EFFORT, windows=_WINDOWS_IN_LAYER)
            if finer is None:
                return level - 1
            self._spaces[level] = finer
        return len(self._spaces) - 1

    def _layered(self, space: TileSpace, begin: float, end: float, conditions: Sequence[Term]) -> Tensor:
        """Along which coordinates tiles, ``(T, D)``, are too long for a start that contradicts conditions, or jumps."""
        missed, found = self._missed_of_start(space, begin)
        found &= (missed > _CONTRADICTED)[:, None]
        sites = list(space.sites(conditions, self.setup.scales.__getitem__, _SEED))
        for site, misfit in self._contradictions(space, sites, begin, end):
            found |= space.across(site, misfit.abs() > _CONTRADICTED)
        return found

    def _refined(self, found: _TileTried, begin: float, end: float) -> _TileTried:
        """The first window on as many tiles as it takes, or as are worth it."""
        useless, self._likely = 0, math.inf
        # The change is the error of coarser tiles; that of these is likely less by as much again. Where few are finer, others
        # may have errors that no change shows.
        while found.solved and self._likely > self.target and not self.log.stopped and self._next(found):
            finer = self._tried(self._at(self._level + 1), begin, end, None)
            if not finer.solved:
                del self._spaces[self._level + 1]
                break
            change = self._changed(found, finer)
            coarse, found = found, finer
            self._go_finer(begin)
            useless = useless + 1 if change > _USELESS * self._in_space else 0
            falls = min(1.0, change / self._in_space) if math.isfinite(self._in_space) else 1.0
            self._likely = change * (falls if finer.slab.mesh.model.alike else max(falls, _AT_BEST))
            self._in_space = change
            self._per_left = change / max(coarse.left, 1e-300)
            if useless > (not found.slab.mesh.model.alike):
                break
        if found.solved and math.isinf(self._in_space) and not self.log.stopped:
            self._from_lower(found, begin, end)
        if self._in_space <= self.accepted:
            self.target = max(self.target, self._in_space)
        self._resolved = self.target
        return found

    def _from_lower(self, found: _TileTried, begin: float, end: float) -> None:
        """Hierarchical error estimate of the first tiles where none are finer: what the fields lose with lower degrees."""
        # Of two degrees one may be that of a symmetry.
        coarse = self._tried(self._affordable(found.slab.mesh.lower(_LOWER), always=True), begin, end, None)
        if coarse.solved:
            self._in_space = self._likely = self._changed(coarse, found)
            self._per_left = self._in_space / max(coarse.left, 1e-300)

    def _kept_up(self, found: _TileTried, begin: float, end: float, before: DiscreteProblem | None) -> _TileTried:
        """A window on tiles that resolve it about as well as those of the first one resolved that."""
        while True:
            self._in_space = self._per_left * found.left if before is not None else self._in_space
            enough = self._in_space <= max(_BEHIND * self._resolved, self.target)
            if not found.solved or enough or found.in_time > _TOO_LONG or self.log.stopped or not self._next(found):
                break
            finer = self._tried(self._at(self._level + 1), begin, end, before, self.stages)
            if not finer.solved or finer.left > _USELESS * found.left:
                del self._spaces[self._level + 1]
                break
            found = finer
            self._go_finer(begin)
        if self._in_space <= self.accepted:
            self.target = max(self.target, self._in_space)
        return found

    def _go_finer(self, begin: float) -> None:
        if not self._thicker:
            # The tables of coarser tiles are not needed any more: no layer grows to these.
            self._spaces[self._level] = None
        elif self._level + 1 not in self._thicker or self._thicker[self._level + 1] <= begin:
            # Tiles that were made finer for something else than the layer.
            self._postpone(self._level + 1, begin)
        self._level += 1

    def _postpone(self, level: int, begin: float) -> None:
        """Leave a level when twice as much time has passed, or with the one below it."""
        self._thicker[level] = max(begin + (begin - self._origin), self._thicker.get(level - 1, -math.inf))

    def _let_go(self, found: _TileTried, begin: float, end: float) -> None:
        """Take for granted what a window twice as long misses as well: shorter ones amplify waves that tiles hardly resolve."""
        if end >= self._last:
            return
        ended = self._ends
        longer = self._tried(self._at(self._level), begin, min(self._last, end + (end - begin)), None, self.stages)
        self._ends = ended
        if longer.solved and longer.in_time <= min(self.floor, GIVE_WAY * found.in_time):
            self.target = max(self.target, GIVE_WAY * longer.in_time)

    def _next(self, found: _TileTried) -> bool:
        """Whether there is a finer level: with tiles halved where few of them hold most of what is left, or all finer."""
        if self._spaces.get(self._level + 1) is not None:
            return True
        space = found.slab.mesh
        adapted = space.adapted(found.squares)
        if adapted is not None:
            affordable = self._affordable(adapted)
            if affordable is not None or not space.model.alike:
                self._spaces[self._level + 1] = affordable
        return self._at(self._level + 1) is not None

    def _changed(self, coarse: _TileTried, fine: _TileTried) -> float:
        """By how much the fields at the end of a window, as fractions of their size, changed with the tiles."""
        end = fine.slab.begin + fine.slab.length

        def ended(tried: _TileTried, columns: Sequence[Tensor]) -> Tensor:
            trial = tried.setup.trial
            return trial(at_time(self._problem, end, columns).to(trial.offset)).cpu().T

        return self._apart(fine.slab.mesh, partial(ended, coarse), partial(ended, fine))

    def _apart(self, space: TileSpace, one: Sampled, two: Sampled) -> float:
        """By how much two functions, ``(F, n)`` at places by coordinate, differ, as fractions of the fields' sizes."""
        squares = torch.zeros(len(self._orders), dtype=torch.float64)
        for trace, shares in space.shares:
            places = [column.flatten() for column in trace.columns]
            squares += ((one(places) - two(places)).square() * shares.flatten(1)).sum(1)
        found = (squares.sqrt() / self.setup.trial.scale.cpu())[self._judged].max()
        return float(found) if bool(torch.isfinite(found)) else math.inf

    def _coarsen(self, begin: float, before: DiscreteProblem) -> None:
        """The coarsest tiles that lose nothing of what there is, where a layer has grown thick enough for these."""
        ended = self._ended(before)
        while ended is not None and begin >= self._thicker.get(self._level, math.inf):
            made = self._at(self._level - 1)
            assert made is not None
            moved = self._onto(made[0], ended.mesh, ended.ends)
            if self._apart(ended.mesh, partial(_values, ended.mesh, ended.ends), partial(_values, made[0], moved)) > _LOST:
                self._postpone(self._level, begin)
                break
            # Its tables take much memory.
            self._spaces[self._level] = None
            self._level -= 1
            if self._level == 0:
                # From here on finer tiles are those that what is left asks for.
                self._spaces = {0: self._spaces[0]}

    def _at(self, level: int) -> tuple[TileSpace, list[Site]] | None:
        """The tiles of a level and where the rows are taken; None where that takes too much."""
        if level not in self._spaces:
            self._spaces[level] = self._made(self._lowest + level)
        return self._spaces[level]

    def _made(self, level: int) -> tuple[TileSpace, list[Site]] | None:
        problem, names = self._problem, self._others
        levels = _LEVELS[len(names)]
        if level >= len(levels):
            return None
        most, degree = levels[level]
        widths = [problem.domain.half_widths[name] for name in names]
        counts = [max(1, round(most * width / max(widths))) for width in widths]
        space = TileSpace.laid(problem, names, counts, degree)
        if space is None:
            return None
        windows = _WINDOWS_IN_LAYER if self._jumps else 1
        return self._affordable(space.around(self.setup.narrow.values()).resolving_data(_TO_JUMPS), level == 0, windows=windows)

    def _affordable(
        self, space: TileSpace, always: bool = False, most: float = _EFFORT, windows: int = 1
    ) -> tuple[TileSpace, list[Site]] | None:
        """A space and where its rows are taken; None where that, with so many windows on it, takes too much."""
        problem, names, model = self._problem, space.names, space.model
        width, live = space.fields_a_tile * model.width, len(model.live)
        effort, numbers, elsewhere = space.effort(self.log.budget.accelerator)
        rows = 4.0 * space.side ** len(names) * len(problem.equations) * width * live
        # One complex factor for each pair of stages.
        needed, there = (8.0 * (self.stages.count * each + 3.0 * rows) for each in (numbers, elsewhere))
        fits = self.log.budget.holds(_MEMORY, needed, there * bool(elsewhere))
        # Each window of another length factors anew, once for each pair of stages, in complex numbers.
        window = 4 * len(self.stages.eigenvalues) * effort * _A_MULTIPLICATION
        if not always and (effort > most or not fits or not self._in_budget(windows * window)):
            return None
        scales = self.setup.scales
        return space, list(space.sites([*self._equations, *self._conditions], scales.__getitem__, _SEED))

    def _tried(
        self,
        made: tuple[TileSpace, list[Site]] | None,
        begin: float,
        end: float,
        before: DiscreteProblem | None,
        stages: RadauIIA | None = None,
    ) -> _TileTried:
        assert made is not None
        space, sites = made
        # What tiles miss hardly depends on how many stages a window has; that of implicit Euler has one real factor.
        slab = self._slab(space, begin, end, before, self.coarse if stages is None else stages)
        inverse = partial(TilePreconditioner, accelerator=self.log.budget.accelerator)
        if self._rounds:
            inverse = partial(inverse, unseen=_HARDLY_SEEN)
        solved, error, judged = self._solved(slab, sites, inverse, _SMALL * self.target, before)
        if max(self._orders) > 1 and not (solved.converged or self._rounds) and solved.left <= _ROUNDS:
            # Rounding of what the domain hardly sees of a tile, which nothing damps in waves, has grown too large.
            self._rounds, self._kept, self._asked = True, None, None
            return self._tried(made, begin, end, before, stages)
        in_time, squares = judged["in_time"], judged["squares"]
        setup = self._handed_on(slab, solved, before, error)
        self._record(begin, solved, max(in_time, self._in_space))
        return _TileTried(setup, slab, solved.converged and math.isfinite(in_time), in_time, squares)

    def _beside(
        self, slab: Slab[TileSpace], sites: Sequence[Site], solved: SlabRates, between: Sequence[Evaluated]
    ) -> dict[str, Any]:
        """How far residuals between the stages would move the fields, and what is left on each tile."""
        in_time, squares = math.inf, torch.zeros(len(slab.mesh.model.live), dtype=torch.float64)
        if solved.converged:
            inverse = cast(TilePreconditioner, solved.inverse)
            squares = inverse.by_tile([each.values for each in slab.evaluate(sites, solved.rates, slab.stages.nodes)])
            rates = inverse([each.values for each in between])
            moved = [slab.moved(rates, number, 0, None) / unit for number, unit in enumerate(self._units)]
            in_time = float(slab.mesh.sizes(torch.stack(moved, dim=1))[:, self._judged].max())
        return {"in_time": in_time, "squares": squares}

    def _starts(self, space: TileSpace, begin: float, before: DiscreteProblem | None) -> tuple[Tensor, ...]:
        if before is None and self._started is not None and self._started[0] is space:
            return self._started[1]
        starts = []
        for number, (name, order) in enumerate(zip(self._problem.fields, self._orders, strict=True)):
            nothing = torch.zeros(0, space.width, dtype=torch.float64)
            starts.append(space.projected(name, partial(self._start_of, number, begin, before)) if order else nothing)
        if before is None:
            self._started = space, tuple(starts)
        return tuple(starts)

    def _unresolved(self, slab: Slab[TileSpace], solved: SlabRates) -> list[Tensor]:
        # What least squares leave is orthogonal to what tiles can do about it, and on each of them it adds up to little.
        return [_LEFT * each.values for each in solved.evaluated]

    def _lacking(self, slab: Slab[TileSpace]) -> tuple[Tensor, ...]:
        found = []
        for number, (own, usual) in enumerate(zip(slab.starts, super()._lacking(slab), strict=True)):
            space, missed = slab.mesh, self._misses(slab.mesh, number, own, slab.begin) if len(own) else own
            jumps = bool((missed > _CONTRADICTED * self._units[number]).any())
            # What is missed where a start jumps is orthogonal to the polynomials there: their own highest stand for it.
            found.append(space.as_rough(own, missed) + ROUNDING * own if jumps else usual)
        return tuple(found)

    def _model(self, slab: Slab[TileSpace], rates: Tensor, offset: Tensor) -> Tiles:
        space, weights = slab.mesh, slab.mesh.levelled(slab.in_time(rates))
        column = self._problem.coordinates.index(self._time)
        breaks, degrees = [each.tolist() for each in space.model.breaks], list(space.model.degrees)
        breaks.insert(column, [-1.0, 1.0])
        degrees.insert(column, weights.shape[1] - 1)
        spans = space.model.extent.tolist()
        for each in spans:
            each.insert(column, 1)
        model = Tiles(breaks, degrees, len(weights), space.model.live, [column], spans)
        # (F, J, T K) to the products' order: coefficients in time for each of the products in space.
        own = weights.unflatten(2, (len(space.model.live), space.model.width))
        products = model.products
        others = [number for number in range(products.shape[1]) if number != column]
        number = {tuple(each): place for place, each in enumerate(space.model.products.tolist())}
        places = torch.tensor([number[tuple(each)] for each in products[:, others].tolist()])
        model.coefficients.copy_(own[:, products[:, column], :, places].permute(2, 1, 0))
        constant = int((products == 0).all(1).nonzero()[0, 0])
        model.coefficients[:, :, constant] -= offset.to(model.coefficients)
        model.coefficients /= self.setup.trial.scale.to(model.coefficients)[:, None]
        return model


def _values(space: TileSpace, ends: Sequence[Tensor], columns: Sequence[Tensor]) -> Tensor:
    """The values ``(F, n)`` of fields that end with such coefficients, zero without any, at places by coordinate."""
    return torch.stack([space.at_points(each[:1], columns)[0] if len(each) else torch.zeros_like(columns[0]) for each in ends])

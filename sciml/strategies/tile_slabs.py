"""Space-time slabs on cut tiles: windows of time on domains that are no boxes, more tiles where these resolve too little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sciml.data.memory import free_bytes
from sciml.geometry import At, Average, Box, Face, Interface, OnFaces, Within, draw
from sciml.models import Tiles
from sciml.models.radau import RadauIIA
from sciml.problem import Problem
from sciml.slabs.newton_krylov import Inverse, SlabRates, moves, solve
from sciml.slabs.system import Evaluated, Site, Slab, at_time
from sciml.slabs.tiles import TilePreconditioner, TileSpace
from sciml.solvers import DiscreteProblem
from sciml.strategies.slabs import SlabAttempt

# Tiles along the longest side and the degree of their polynomials, coarse to fine, by coordinates beside time.
_LEVELS = {
    1: ((4, 8), (8, 10), (16, 12), (32, 12)),
    2: ((4, 6), (6, 8), (9, 8), (13, 8), (18, 8), (25, 8)),
    3: ((2, 4), (3, 5), (4, 6)),
}
_STAGES, _MORE_POINTS, _LEAST_POINTS, _ON_SIDES = 6, 3, 3, 2.0
_USELESS, _SMALL, _LONGEST = 0.7, 0.05, 4.0
_CONTRADICTED, _SHARE = 0.03, 0.1
_EFFORT, _MEMORY = 2e11, 0.4


def not_on_tiles(problem: Problem) -> str | None:
    """Why a problem that can be solved in windows cannot be solved on cut tiles in them, or None when it can."""
    if isinstance(problem.domain, Box):
        return "its domain is a box"
    if not 1 <= len(problem.coordinates) - 1 <= max(_LEVELS):
        return f"it has more than {max(_LEVELS)} coordinates beside time"
    if any(isinstance(term.place, At | Average | Within | Interface) for term in problem.terms()):
        return "its conditions hold at a point, in the mean, on parts or between them"
    time = str(problem.time)
    start = OnFaces((Face(time, "lower"),))
    prescribed = [term.prescription for term in problem.terms() if term.place == start]
    given = sorted((each.field, len(each.index)) for each in prescribed if each is not None)
    needed = sorted((name, power) for name in problem.fields for power in range(problem.order(name, time)))
    return None if len(given) == len(prescribed) and given == needed else "its initial values are not those that it needs"


@dataclass(frozen=True)
class _TileTried:
    """A window on some tiles: by how much the fields move between the stages, as a fraction of their size."""

    setup: DiscreteProblem
    slab: Slab[TileSpace]
    rates: Tensor
    solved: bool
    in_time: float


@dataclass
class TileWindows(SlabAttempt):
    """Solves windows by slabs of time on cut tiles: an attempt for ``time_marching.march``.

    A window is judged by errors of the fields, as fractions of their size: in time by how far the residual between the stages
    would move them, in space by how much they changed when the tiles were refined last. Tiles are refined in the first window,
    until the fields hardly change, and stay.
    """

    stages: RadauIIA = field(default_factory=lambda: RadauIIA(_STAGES))
    loosens, phase = False, "Tiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._level, self._in_space = 0, math.inf
        self._first: _TileTried | None = None
        self._jumps = False
        self._spaces: dict[int, tuple[TileSpace, list[Site]] | None] = {}
        self._inverse: tuple[tuple[float, TileSpace, list[Tensor]], Inverse] | None = None
        self.longer = 1.0

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up, and the relative error in time of its fields; that in space does not depend on its length."""
        if before is None and self._first is None:
            self._first = self._tried(0, begin, end, None)
            self._jumps = self._contradicted(self._first.slab)
            if not self._jumps:
                self._first = self._refined(self._first, begin, end)
        if self._jumps and self._first is not None:
            return self._first.setup, math.inf
        found = self._tried(self._level, begin, end, before)
        self.longer = min(_LONGEST, max(1.0, (self.target / max(found.in_time, 1e-300)) ** (1 / (self.stages.count + 1))))
        return found.setup, found.in_time if found.solved else math.inf

    def _contradicted(self, slab: Slab[TileSpace]) -> bool:
        """Whether the start contradicts a condition: it does so in windows of any length, and short ones do not damp it."""
        made = self._at(0)
        assert made is not None
        sites = [site for site in made[1] if site.term in self._conditions]
        start = torch.zeros(1, dtype=torch.float64)
        for each in slab.evaluate(sites, slab.zero(), start):
            counted = (torch.as_tensor(each.site.factor) > 0).sum().clamp_min(1)
            if not float((each.values.square().sum() / counted).sqrt()) <= _CONTRADICTED:
                return True
        return False

    def _refined(self, found: _TileTried, begin: float, end: float) -> _TileTried:
        """The first window on as many tiles as it takes, or as are worth it; these stay."""
        while found.solved and self._in_space > self.target and not self.log.stopped and self._at(self._level + 1) is not None:
            finer = self._tried(self._level + 1, begin, end, None)
            if not finer.solved:
                break
            change = self._changed(found, finer)
            found, self._level = finer, self._level + 1
            useless, self._in_space = change > _USELESS * self._in_space, change
            if useless:
                break
        if math.isfinite(self._in_space):
            self.target = max(self.target, min(_SHARE * self._in_space, self.accepted))
        return found

    def _changed(self, coarse: _TileTried, fine: _TileTried) -> float:
        """By how much the fields at the end of a window, as fractions of their size, changed with the tiles."""
        trace, inside = fine.slab.mesh.inside
        points = at_time(self._problem, fine.slab.begin + fine.slab.length, [column[inside] for column in trace.columns])
        one, two = (each.setup.trial(points.to(each.setup.trial.offset)) for each in (coarse, fine))
        found = ((one - two).square().mean(0).sqrt() / fine.setup.trial.scale).max()
        return float(found) if bool(torch.isfinite(found)) else math.inf

    def _at(self, level: int) -> tuple[TileSpace, list[Site]] | None:
        """The tiles of a level and where the rows are taken; None where that takes too much."""
        if level not in self._spaces:
            self._spaces[level] = self._made(level)
        return self._spaces[level]

    def _made(self, level: int) -> tuple[TileSpace, list[Site]] | None:
        problem = self._problem
        names = [name for name in problem.coordinates if name != self._time]
        levels = _LEVELS[len(names)]
        if level >= len(levels):
            return None
        most, degree = levels[level]
        widths = [problem.domain.half_widths[name] for name in names]
        counts = [max(1, round(most * width / max(widths))) for width in widths]
        breaks = [np.linspace(-1, 1, count + 1).tolist() for count in counts]
        side = degree + _MORE_POINTS
        whole = TileSpace(problem, Tiles(breaks, [degree] * len(names), 1), side)
        _, inside = whole.inside
        live = torch.nonzero(inside.sum(1) >= _LEAST_POINTS)[:, 0].tolist()
        if not live:
            return None
        model = Tiles(breaks, [degree] * len(names), 1, live)
        width = model.width * len(problem.fields)
        band = (math.prod(sorted(counts)[:-1]) + 2) * width
        rows = 4.0 * side ** len(names) * len(problem.equations) * width * len(live)
        needed = 8.0 * (len(live) * width * band + 3.0 * rows)
        if level and (float(len(live)) * width * band**2 > _EFFORT or needed > _MEMORY * (free_bytes() or 4 * 2**30)):
            return None
        space = TileSpace(problem, model, side)
        count = round((max(counts) * (degree + 1) * _ON_SIDES) ** (len(names) - 1))
        return space, [*self._sites(space, count), *space.continuity()]

    def _sites(self, space: TileSpace, count: int) -> list[Site]:
        """Where equations and conditions are taken, in their natural sizes."""
        scales, problem, generator = self.setup.scales, self._problem, np.random.default_rng(10)
        trace, inside = space.inside
        found = [Site(term, (trace,), inside / scales[term.name]) for term in self._equations]
        for term in self._conditions:
            sample = draw(term.place, problem.domain, max(1, count), generator)
            traces, numbers, real = space.scattered(sample.points)
            normals = None if sample.normals is None else sample.normals[numbers].flatten(0, 1)
            found.append(Site(term, traces, real / scales[term.name], normals))
        return found

    def _tried(self, level: int, begin: float, end: float, before: DiscreteProblem | None) -> _TileTried:
        made = self._at(level)
        assert made is not None
        space, sites = made
        starts = self._starts(space, begin, before)
        slab = Slab(self._problem, space, self.stages, begin, end - begin, self._orders, starts, self._units)
        solved = solve(slab, sites, partial(self._inverted, slab), _SMALL * self.target, self.setup.journal)
        setup = self._setup_of(slab, solved)
        self._remember(slab, solved, setup.trial, before)
        in_time = math.inf
        if solved.converged and self._inverse is not None:
            nodes = slab.stages.nodes
            times = (torch.cat([nodes.new_zeros(1), nodes[:-1]]) + nodes) / 2
            values = [each.values for each in slab.evaluate(sites, solved.rates, times)]
            in_time = float(space.sizes(moves(slab, self._inverse[1](values))).max())
        self._record(begin, solved, max(in_time, self._in_space))
        return _TileTried(setup, slab, solved.rates, solved.converged and math.isfinite(in_time), in_time)

    def _inverted(self, slab: Slab[TileSpace], evaluated: Sequence[Evaluated]) -> Inverse:
        """The approximate inverse, kept from window to window where nothing in it changes."""
        slopes = [part.slopes.mean(0) for each in evaluated for part in each.parts]
        if self._inverse is not None:
            (length, space, kept), inverse = self._inverse
            same = space is slab.mesh and math.isclose(length, slab.length, rel_tol=1e-12) and len(kept) == len(slopes)
            if same and all(torch.allclose(one, two, rtol=1e-12) for one, two in zip(kept, slopes, strict=True)):
                return inverse
        inverse = TilePreconditioner(slab, evaluated)
        self._inverse = (slab.length, slab.mesh, slopes), inverse
        return inverse

    def _starts(self, space: TileSpace, begin: float, before: DiscreteProblem | None) -> tuple[Tensor, ...]:
        """Each field's coefficients, and its time derivatives', at the start."""
        ended = self._ended(before)
        if ended is not None and ended[0] is space:
            return ended[1]
        names = [
            (name, power) for name, order in zip(self._problem.fields, self._orders, strict=True) for power in range(order)
        ]

        def values(columns: Sequence[Tensor]) -> Tensor:
            found = self._start_values(columns, begin, before)
            return torch.stack([found[each].expand(len(columns[0])) for each in names])

        starts = iter(space.interpolated(values))
        nothing = torch.zeros(0, space.width, dtype=torch.float64)
        return tuple(torch.stack([next(starts) for _ in range(order)]) if order else nothing for order in self._orders)

    def _setup_of(self, slab: Slab[TileSpace], solved: SlabRates) -> DiscreteProblem:
        """The window's function as the trial function of a set-up."""
        whole, old, space = self.setup.problem, self.setup.trial, slab.mesh
        weights = slab.in_time(solved.rates)
        column = whole.coordinates.index(self._time)
        breaks, degrees = [each.tolist() for each in space.model.breaks], list(space.model.degrees)
        breaks.insert(column, [-1.0, 1.0])
        degrees.insert(column, weights.shape[1] - 1)
        model = Tiles(breaks, degrees, len(weights), space.model.live, full=[column])
        # (F, J, T K) to the products' order: coefficients in time for each of the products in space.
        own = weights.unflatten(2, (len(space.model.live), space.model.width))
        products = model.products
        others = [number for number in range(products.shape[1]) if number != column]
        number = {tuple(each): place for place, each in enumerate(space.model.products.tolist())}
        places = torch.tensor([number[tuple(each)] for each in products[:, others].tolist()])
        model.coefficients.copy_(own[:, products[:, column], :, places].permute(2, 1, 0))
        constant = int((products == 0).all(1).nonzero()[0, 0])
        model.coefficients[:, :, constant] -= old.offset.to(model.coefficients)
        model.coefficients /= old.scale.to(model.coefficients)[:, None]
        sub = whole.on(whole.domain.between(self._time, slab.begin, slab.begin + slab.length))
        return self.setup.with_model(model, problem=sub, raw={}, train=(), held=(), fresh=())

"""Time marching, and its ways to solve a window of time: random features, slabs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import torch

from sciml.errors import SolverError
from sciml.geometry import Box, Face, Interior, OnFaces, Within
from sciml.models import RandomFeatures
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.compatibility import contradictions
from sciml.problem.conditions import Term, jet_value
from sciml.problem.pulses import sudden_changes
from sciml.problem.thresholds import switched
from sciml.solvers import Adaptive, DiscreteProblem, GaussNewton
from sciml.solvers.scaling import not_inflated
from sciml.strategies.grid_slabs import GridWindows, not_on_grid
from sciml.strategies.random_features import not_by_least_squares
from sciml.strategies.search import WINDOWS, Candidate, Log, Strategy, Workspace, judged_apart
from sciml.strategies.slabs import ElementWindows, SlabAttempt, Verdict, not_on_elements
from sciml.strategies.tile_slabs import TileWindows, not_on_tiles
from sciml.strategies.time_marching import (
    HOPELESS,
    Marched,
    WindowMethod,
    blow_up_time,
    joined,
    march,
    not_in_windows,
    window,
)
from sciml.strategies.training import Training, relative

POINTS_A_WEIGHT = 3

_IN_TIME = 4.0
# Of random features, where time is the only coordinate and where it is not.
_SCALES = {True: (6.0,), False: (8.0, 16.0, 32.0)}
_TARGET, _ODE_TARGET, _SPECTRAL_TARGET = 1e-7, 1e-9, 1e-9
_GOOD_ENOUGH, _SHORTEST, _TILE_TARGET = 1e-3, 1e-7, 1e-6
_PLANE_AND_TIME = 3
# Gaps between conditions, as shares of what they prescribe, that a grid is not asked to resolve.
_JUMP = 1e-4
# How often a window is solved with the sizes of its equations at what was found.
_SIZED = 3
# How many of the latest windows tell the pace of a march; how many times longer than there is time it is given up for others;
# how much longer than the first of them the last one is where they grow.
_LATEST, _FAR_LONGER, _GROWS = 3, 3.0, 1.2


@dataclass
class FeatureWindows:
    """Solves windows by random features: an attempt for ``time_marching.march``."""

    setup: DiscreteProblem
    training: Training
    seed: int
    features: int
    scales: Sequence[float]
    target: float
    found: float | None = None

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up and its relative residual on held-out rows."""
        best: tuple[DiscreteProblem, float] | None = None
        for scale in [each for each in self.scales if self.found is None or self.found <= each <= 2 * self.found]:
            solved = self._solved(begin, end, before, scale)
            reached = relative(solved)
            if best is None or reached < best[1]:
                best, chosen = (solved, reached), scale
            if reached <= self.target or self.training.log.stopped:
                break
        assert best is not None
        if best[1] <= self.target:
            self.found = chosen
        return best

    def _solved(self, begin: float, end: float, before: DiscreteProblem | None, scale: float) -> DiscreteProblem:
        problem = self.setup.problem
        scales = [_IN_TIME if name == problem.time else scale for name in problem.coordinates]
        model = RandomFeatures(self.features, scales if len(scales) > 1 else scale)
        weights = self.features * len(problem.fields)
        inside = POINTS_A_WEIGHT * weights // max(1, len(problem.equations))
        model.build(len(problem.coordinates), len(problem.fields), torch.Generator().manual_seed(self.seed))
        setup = window(self.setup, model, begin, end, before, inside, self.seed)
        stand_still(setup)
        label = f", from {problem.time} = {begin:.4g}"
        for _ in range(_SIZED):
            setup = self.training.run(setup, [GaussNewton(10, rank_tolerance=0.0)], self.seed, label)
            sizes = not_inflated(setup.scales, setup.rows, setup.held, setup.trial.scale.tolist())
            if sizes == setup.scales:
                break
            setup = replace(setup, scales=sizes)
        return setup


def _came(marched: Marched) -> tuple[bool, bool, float]:
    """How far a march came, to be compared: one whose last window is none came less far than one that was ended."""
    return marched.complete, math.isfinite(marched.worst), marched.edges[-1]


@dataclass
class _Pace:
    """Time budget of a march: whether no other window begins, for somebody wants the end, or others may be faster.

    So they may be after ``share`` of the budget, where at the pace of the latest windows, which do not grow, the ``end`` is far
    longer away than what is left. Where windows are not ``patient``, others may always.
    """

    log: Log
    end: float
    share: float
    patient: bool
    # Where the march came, and after how many seconds.
    marks: list[tuple[float, float]] = field(default_factory=list)
    before: float = 0.0
    said: str = ""

    def __call__(self, at: float) -> bool:
        now, budget = self.log.seconds, self.log.budget.seconds
        if not self.marks or at > self.marks[-1][0]:
            self.marks.append((at, self.before))
        self.before = now
        if self.log.stopped or now <= self.share * budget or self.share == 1:
            return self.log.stopped
        needed = self.to_come() if self.patient else math.inf
        if needed <= _FAR_LONGER * (budget - now):
            return False
        if self.patient:
            away = f"at this pace the end is {needed:.2g} s away" if math.isfinite(needed) else "no window has ended yet"
            self.said = f"left to others, for {away}"
        return True

    def to_come(self) -> float:
        """The seconds to the end at the pace of the latest windows; none where they grow or are few, infinite without any."""
        if len(self.marks) <= _LATEST:
            return 0.0 if len(self.marks) > 1 else math.inf
        latest = self.marks[-_LATEST - 1 :]
        (first, then), (at, now) = latest[0], latest[-1]
        # What begins in a layer has nearly all of its windows there, and arrives soon after it.
        if at - latest[-2][0] > _GROWS * (latest[1][0] - first):
            return 0.0
        return (self.end - at) * (now - then) / (at - first)


def stand_still(setup: DiscreteProblem) -> None:
    """Begin a window with the function that has its start's values at all times."""
    problem, time = setup.problem, str(setup.problem.time)
    start = OnFaces((Face(time, "lower"),))
    half_width = float(setup.trial.half_width[problem.coordinates.index(time)])
    scales, weights, terms = dict(setup.scales), dict(setup.weights), []
    for name, size in zip(problem.fields, setup.trial.scale.tolist(), strict=True):
        index = (time,) * max(1, problem.order(name, time))
        terms.append(Term(f"still.{name}", Interior(), partial(jet_value, name, index, 1.0)))
        scales[terms[-1].name], weights[terms[-1].name] = size / half_width ** len(index), 1.0
    within = [block.sample for block in setup.train if block.terms[0].place == Interior()][:1]
    inside = [Collocation(sample, tuple(terms)) for sample in within]
    given = [block for block in setup.train if block.terms[0].place == start]
    still = replace(setup, scales=scales, weights=weights)
    GaussNewton(1, rank_tolerance=0.0).start(still.objective([*given, *inside])).step()


def in_parts(problem: Problem) -> bool:
    """Whether the domain is no box, or equations hold on parts of it."""
    return not isinstance(problem.domain, Box) or any(isinstance(term.place, Within) for term in problem.terms())


def _jumping(problem: Problem) -> bool:
    """Whether equations jump inside the domain, or conditions contradict each other at all times."""
    inside = any(switched(problem, name) for name in problem.coordinates if name != problem.time)
    return inside or bool(contradictions(problem, _JUMP, beside_start=True))


@dataclass(frozen=True)
class TimeMarching(Strategy):
    """Time marching: windows of time in turn, their lengths and ways of solving chosen by the residual on held-out points.

    Most windows are space-time slabs: Radau IIA in time, elements in one coordinate beside it, spectral collocation or tiles in
    two or three. Elements are piecewise polynomials with Galerkin's test functions; collocation is at the nodes of a grid, of
    polynomials and, along periodic coordinates, of waves. Elements, nodes and lengths follow the residual between the points;
    where a grid does not resolve a start in the plane, or does not arrive, tiles do, and where equations jump or data are
    narrow there. Where slabs do not serve, as for ordinary differential
    equations, windows are solved by random features.

    Args:
        share: of the budget of time, after which no window by random features begins, and no other one where the latest ones
            tell that the end is far longer away than what is left: others may be faster. With 1 windows take all of it.

    Raises:
        SolverError: not a number above 0 and at most 1.
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise SolverError(f"share must be a number above 0 and at most 1; given: {self.share!r}")

    def obstacle(self, work: Workspace) -> str | None:
        return not_in_windows(work.problem, work.measurements is not None) or not_by_least_squares(work)

    def unless_in_slabs(self, work: Workspace) -> str | None:
        """Why windows cannot be slabs, or None when they can."""
        return self.obstacle(work) or self._space(work)[1]

    def begun_anew(self, work: Workspace) -> list[tuple[float, float]]:
        """The times between which boundary values jump, where slabs end and begin anew."""
        return sudden_changes(work.problem, work.discrete.stops) if self.unless_in_slabs(work) is None else []

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        if (lacking := self.unless_in_slabs(work)) is not None:
            # Random features in windows are a last resort.
            if best is not None and best.sufficient:
                work.choices.append(f"{self.name}: no slabs, {lacking}; what was found is good enough")
                return
            work.choices.append(f"{self.name}: no slabs, {lacking}")
        training = Training(work.log, None, Adaptive(every=10))
        target = work.target(_ODE_TARGET if work.dimension == 1 else _TARGET)
        problem, sudden = work.problem, self.begun_anew(work)
        marched, how, slabs = self._marched(work, training, target, sudden)
        missed = f", {marched.failed} of them above the residual of {target:.0e} that was aimed at" if marched.failed else ""
        worst = f"the worst with {marched.worst:.1e} of its natural size{missed}"
        end = problem.domain.bounds[str(problem.time)][1]
        jumps = f"begun anew {len(sudden)} time(s) where boundary values jump, first at {problem.time} = " if sudden else ""
        begun = f", {jumps}{sudden[0][0]:.4g}" if sudden else ""
        short = f"it ended at {problem.time} = {marched.edges[-1]:.4g} of {end:g}" if marched.edges[-1] < end else ""
        reason = (
            f"the problem starts at {problem.time} = {marched.edges[0]:g}: {len(marched.setups)} windows of time, lengths "
            f"chosen by the residual on held-out points ({worst}), solved by {how}{begun}{'; ' if short else ''}{short}"
        )
        # How the last attempt ended says nothing of the windows, unless somebody wanted the end.
        ended = work.log.stopped and not marched.complete
        status = "interrupted" if marched.interrupted else work.log.status if ended else "converged"
        good = marched.complete and marched.worst <= HOPELESS
        found = joined(work.discrete, marched, work.options.points, work.seed)
        verdict = Verdict() if slabs is None else slabs.verdict(marched.edges)
        slopes = slabs.sensitivities(marched.edges) if slabs is not None and marched.complete else ()
        if verdict.regular is not None:
            found = judged_apart(found, verdict.regular)
            reason += f"; {verdict.said}"
        distance = max(verdict.at_most.values(), default=0.0)
        # What is known to be far off tiles in time as well may solve better, which follow where they serve.
        follows = distance > work.options.largest_error and work.linear and in_parts(problem)
        doubt = f"{short}, and says nothing of later times" if short else ""
        if short and (singular := blow_up_time(found.problem, found.trial)) is not None:
            doubt += (
                f"; it grows faster and faster, as solutions do that are infinite at about {problem.time} = {singular:.4g}: "
                "state the problem on a shorter time if it blows up"
            )
        yield Candidate(
            found,
            # Windows that are solved well one by one may be far off together.
            max(marched.worst, distance) if follows else marched.worst,
            WINDOWS,
            reason,
            accepted=good and not follows,
            solved=marched.complete,
            sufficient=good,
            status=status,
            at_most=verdict.at_most,
            slopes=slopes,
            regular=verdict.regular,
            doubt=doubt,
        )

    def _marched(
        self, work: Workspace, training: Training, target: float, sudden: Sequence[tuple[float, float]]
    ) -> tuple[Marched, str, SlabAttempt | None]:
        """Windows, those after each sudden change by other attempts; what solved them, and the attempt that tells of all."""
        problem, time = work.problem, str(work.problem.time)
        whole: Marched | None = None
        slabs, told = None, list[tuple[float, str]]()
        begin, end = problem.domain.bounds[time]
        spans = zip([begin, *(after for _, after in sudden)], [*(before for before, _ in sudden), end], strict=True)
        for first, last in spans:
            # The problem itself where it is whole.
            own = problem.on(problem.domain.between(time, first, last)) if sudden else problem
            part = replace(work.discrete, problem=own)
            since = None if whole is None else whole.setups[-1]
            try:
                marched, methods = self._in_turns(
                    work, part, target, partial(self._methods, work, part, training, target, slabs, since)
                )
            except KeyboardInterrupt:
                if whole is None:
                    raise
                whole = replace(whole, complete=False, interrupted=True)
                break
            if whole is not None and work.log.stopped and len(marched.setups) == marched.failed == 1:
                # Somebody wanted the end before a window after a change was solved.
                break
            ended = methods[len(marched.escalated)]
            # Whether one method solved all windows.
            alone = not marched.escalated or marched.escalated[-1] <= first
            told += [(first, ended.name)] if alone else [(first, methods[0].name), (marched.escalated[0], ended.name)]
            slabs = ended.attempt if alone and isinstance(ended.attempt, SlabAttempt) else None
            whole = marched if whole is None else whole.then(marched)
            if not marched.complete or work.log.stopped:
                break
        assert whole is not None
        whole = replace(whole, complete=whole.edges[-1] >= end)
        changes = [each for number, each in enumerate(told) if not number or each[1] != told[number - 1][1]]
        how = "".join(f"{name} up to {time} = {at:.4g}, then " for (_, name), (at, _) in pairwise(changes)) + changes[-1][1]
        return whole, how, slabs

    def _in_turns(
        self, work: Workspace, part: DiscreteProblem, target: float, methods: Callable[[int], list[WindowMethod]]
    ) -> tuple[Marched, list[WindowMethod]]:
        """Windows by the methods of one turn after another, where these may do better: what came farthest, and by which."""
        best: tuple[Marched, list[WindowMethod]] | None = None
        own: list[WindowMethod] = []
        turns = itertools.count()
        while not own or own[-1].again():
            own = methods(next(turns))
            end = work.problem.domain.bounds[str(work.problem.time)][1]
            pace = _Pace(work.log, end, self.share, patient=work.dimension > 1, before=work.log.seconds)
            try:
                marched = march(part, own, target=target, ended=pace)
            except KeyboardInterrupt:
                if best is None:
                    raise
                return replace(best[0], interrupted=True), best[1]
            if best is None or _came(marched) > _came(best[0]):
                best = marched, own
            best = replace(best[0], interrupted=marched.interrupted), best[1]
            if pace.said:
                work.choices.append(f"{self.name}: {pace.said}")
            if marched.interrupted or work.log.stopped or pace.said:
                break
            if own[-1].again():
                at = f"{work.problem.time} = {marched.edges[-1]:.4g}"
                work.choices.append(f"{self.name}: waves have grown by {at}, begun anew with other stages")
        assert best is not None
        return best

    def _space(self, work: Workspace) -> tuple[type[ElementWindows | GridWindows | TileWindows], str | None]:
        """What windows are solved on, or why on nothing."""
        problem = work.problem
        if in_parts(problem):
            return TileWindows, not_on_tiles(problem)
        elements = not_on_elements(problem)
        if elements is None or len(problem.coordinates) == 2:
            return ElementWindows, elements
        grid = not_on_grid(problem)
        # Between the nodes of a whole side nothing resolves a jump that stays, or what is narrow.
        plane = len(problem.coordinates) == _PLANE_AND_TIME
        jumps = grid is None and plane and (bool(work.discrete.narrow) or _jumping(problem))
        # Rows of a grid need as many conditions as derivatives; least squares take fewer, as of a pressure at walls, and more.
        return (TileWindows, None) if (grid or jumps) and not_on_tiles(problem) is None else (GridWindows, grid)

    def _methods(
        self,
        work: Workspace,
        setup: DiscreteProblem,
        training: Training,
        target: float,
        earlier: SlabAttempt | None,
        since: DiscreteProblem | None,
        turn: int,
    ) -> list[WindowMethod]:
        """The ways of solving windows, the first that is tried first; after those of an earlier attempt, since its last one."""
        problem = work.problem
        kind, lacking = self._space(work)
        slabs = partial(self._slabs, work, setup, earlier, since, turn)
        if lacking is None and kind is ElementWindows:
            return [slabs(kind)]
        if lacking is None:
            # A start that is too rough for grids is one for tiles.
            more = kind is GridWindows and work.dimension == _PLANE_AND_TIME and not_on_tiles(problem) is None
            return [slabs(kind, alone=not more), *([slabs(TileWindows)] if more else [])]
        # Random features for each field: enough for a solve that takes about a second.
        alone = work.dimension == 1
        count = 60 if alone else max(250, (800 if work.dimension == 2 else 1500) // len(problem.fields))
        features = FeatureWindows(setup, training, work.seed, count, _SCALES[alone], target)
        return [WindowMethod(features, 0.1, 1e-9 if alone else 0.025, name="random features")]

    def _slabs(
        self,
        work: Workspace,
        setup: DiscreteProblem,
        earlier: SlabAttempt | None,
        since: DiscreteProblem | None,
        turn: int,
        kind: type[ElementWindows | GridWindows | TileWindows],
        *,
        alone: bool = True,
    ) -> WindowMethod:
        """Windows solved by slabs, which tell what they aim at; whether others follow that take rough starts."""
        aim = work.target(_TILE_TARGET if kind is TileWindows else _SPECTRAL_TARGET)
        varied = None if work.varied is None or work.varied.starts else work.varied
        own = kind(setup, work.log, aim, _GOOD_ENOUGH, varied=varied, earlier=earlier, since=since, turn=turn)
        found = WindowMethod(own, 0.05, _SHORTEST, target=lambda: own.target, accepted=_GOOD_ENOUGH, name=kind.title)
        if isinstance(own, GridWindows):
            own.alone = alone
        if not isinstance(own, GridWindows | TileWindows):
            return found
        # A rough start is left to what follows, if anything does.
        vain = isinstance(own, TileWindows) or not alone
        found = replace(found, in_vain=lambda: vain and own.gives_up, longer=lambda: own.longer)
        return replace(found, again=lambda: own.again) if isinstance(own, TileWindows) else found

"""Strategies and their search: ways from a problem to a solved model, tried in turn, the best candidate kept.

A strategy says what keeps it from serving a problem, or yields candidates, each better informed than the one before, for as
long as it is asked for more. The search does everything else, once for all strategies: it keeps the best candidate, ends when
one is accepted or somebody wants the end, and says what was tried and what was left out.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from sciml.baselines.waves import Waves, waves
from sciml.data.memory import free_bytes
from sciml.diagnostics.certificate import missed_features
from sciml.diagnostics.well_posedness import warn_of_conditions
from sciml.geometry import Face
from sciml.models import RandomFeatures
from sciml.parallel import process_group
from sciml.problem import Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.compatibility import depends_on_unknowns, prescribed
from sciml.solvers import Adaptive, Callback, DiscreteProblem, EarlyStopping, HardConstraints, Report, Weightings
from sciml.solvers.discrete_problem import device_of
from sciml.solvers.journal import Journal
from sciml.strategies.prepare import prepare
from sciml.uncertainty.error_bands import FieldCovariance

STOPPED = ("stopped", "interrupted")
# The solver of candidates that are windows of time in turn.
WINDOWS = "windows"
ENDED = ("diverged", *STOPPED)

# Residuals that are rounding: layers that stand in for waves leave more. What leaves a quarter says nothing of a problem.
_ROUNDING, _NOTHING = 1e-10, 0.25


@dataclass(frozen=True)
class Candidate:
    """A discrete problem with a solution in it, how good it is, and how it was found.

    Attributes:
        discrete: the discrete problem, whose trial function holds the solution.
        residual: the largest root mean square of a residual on held-out rows, as a fraction of its natural size.
        solver: the name of what took the steps.
        reason: why this way was taken and what it reached, as a sentence.
        accepted: whether nothing better is to be looked for.
        solved: whether it solves all of the problem; one that does not gives way to any that does and says something of it.
        sufficient: whether a strategy of last resort would hardly do better.
        status: how it ended, as ``Solution.status``.
        message: a word more on that.
        doubt: why it is not to be believed, if there is a reason beside its residuals.
        errors: the estimated relative L2 error of each field, where it is known by more than residuals.
        at_most: what it is at most, about, for where no better estimate can be had.
        scatter: what the noise of measurements adds to that error, where it is known already.
        spread: how the fields scatter with the measurements, where parameters of the trial function do not tell.
        slopes: its derivatives by the raw unknowns of ``Workspace.varied``, where it knows them.
        regular: at which points residuals say something, if not at all; see ``judged_apart``.
        teacher: the solution that it learned, with what measurements say of the unknowns there.
    """

    discrete: DiscreteProblem
    residual: float
    solver: str
    reason: str = ""
    accepted: bool = False
    solved: bool = True
    sufficient: bool = False
    status: str = "converged"
    message: str = ""
    doubt: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    scatter: Mapping[str, float] = field(default_factory=dict)
    spread: FieldCovariance | None = None
    slopes: tuple[torch.nn.Module, ...] = ()
    regular: Callable[[torch.Tensor], torch.Tensor] | None = None
    teacher: DiscreteProblem | None = None

    @property
    def rank(self) -> tuple[bool, float]:
        """What candidates are compared by: the smaller, the better."""
        return not (self.solved and self.residual <= _NOTHING), self.residual

    @property
    def known(self) -> float:
        """The largest relative error of a field, as far as it is known by more than residuals; infinite where it is not."""
        return max((self.errors or self.at_most).values(), default=math.inf)

    @property
    def ended(self) -> bool:
        """Whether nothing more should be tried: numbers were not finite, or somebody wants the end."""
        return self.status in ENDED


# What of the tolerance, which is one of residuals, an error may be.
_ERROR = 0.02
# How much of the budget of time a step that is under way at its end may take in all.
_LONG = 1.1
# What of the free memory of an accelerator one method may take: nothing else is there.
_ACCELERATOR = 0.8


@dataclass(frozen=True)
class Budget:
    """Time limit and memory limit of a fit, in seconds and bytes; without a number a share of the memory that is free.

    Large factors of sparse matrices are made on an ``accelerator``, which the limit of memory bounds as well.
    """

    seconds: float = math.inf
    memory: float | None = None
    accelerator: torch.device = torch.device("cpu")  # noqa: RUF009

    def bytes(self, share: float, device: torch.device | None = None) -> float:
        """How much one method may take, of the processor's memory or of a device's."""
        return share * (free_bytes(device) or 4 * 2**30) if self.memory is None else self.memory

    def holds(self, share: float, here: float, there: float = 0.0) -> bool:
        """Whether one method may take so many bytes of the processor's memory, and of the accelerator's."""
        return here <= self.bytes(share) and (not there or there <= self.bytes(_ACCELERATOR, self.accelerator))


class Log:
    """The one record of a fit: every report in order, the steps taken, what it may take, and who watches."""

    def __init__(self, watchers: Sequence[Callback] = (), start: float | None = None, budget: Budget = Budget()) -> None:
        self._watchers, self._start = watchers, time.perf_counter() if start is None else start
        self.budget, self.spent = budget, False
        self.history: list[dict[str, Any]] = []
        self.notes: dict[str, str] = {}
        self.warned: list[str] = []
        self.steps = self.evaluations = 0
        self.status, self.message = "budget", ""

    @property
    def seconds(self) -> float:
        """How long the fit has been at work."""
        return time.perf_counter() - self._start

    @property
    def overdue(self) -> bool:
        """Whether the budget of time is spent, for work that makes no reports."""
        return self.seconds > self.budget.seconds

    @property
    def long_overdue(self) -> bool:
        """Whether a step that was under way when the budget was spent is not worth being waited for any longer."""
        return self.seconds > _LONG * self.budget.seconds

    @property
    def ended(self) -> bool:
        """Whether nothing more should be tried here."""
        return self.status in ENDED

    @property
    def stopped(self) -> bool:
        """Whether somebody wants the end: a callback, or Ctrl-C."""
        return self.status in STOPPED

    def over(self, ahead: float = 0.0) -> bool:
        """Whether nothing more should begin: somebody wants the end, or the budget of time has not ``ahead`` seconds left."""
        if not self.stopped and process_group.agreed(self.seconds + ahead > self.budget.seconds):
            self.spent, self.status, self.message = True, "stopped", ""
        return self.stopped

    def begin(self) -> None:
        """Another strategy begins: how the one before ended says nothing of it."""
        self.status, self.message = "budget", ""

    def report(self, report: Report, more: Mapping[str, float] | None = None) -> bool:
        """Keep a report; whether a watcher asks for the end, or the budget is spent."""
        head = {name: getattr(report, name) for name in ("phase", "step", "seconds", "loss", "held_out")}
        named = {**report.terms, **(report.unknowns if more is None else more)}
        # A condition may be called phase, a constant loss.
        self.history.append(head | {f"problem.{name}" if name in head else name: each for name, each in named.items()})
        ends = [bool(watch(report)) for watch in self._watchers]
        # Clocks and callbacks of several processes need not agree: the first one's count.
        wanted, overdue = process_group.agreed((any(ends), self.overdue))
        # What ended for want of time did so, though its last report comes before.
        self.spent = overdue or (self.spent and self.stopped)
        return wanted or self.spent

    def solved(
        self,
        phase: str,
        loss: float,
        held_out: float,
        terms: Mapping[str, float | torch.Tensor],
        *,
        best: float,
        most: int,
        unknowns: Mapping[str, float] | None = None,
    ) -> bool:
        """Report one solve of a search; whether a watcher asks for the end."""
        self.steps += 1
        self.evaluations += 1
        report = Report(
            phase=phase,
            step=self.steps,
            steps=most,
            seconds=self.seconds,
            loss=loss,
            held_out=held_out,
            best=best,
            terms={name: float(value) for name, value in terms.items()},
            unknowns=dict(unknowns or {}),
        )
        if self.report(report):
            self.status = "stopped"
        return self.stopped


@dataclass(frozen=True)
class Options:
    """The settings of a fit, as ``sciml.fit`` documents them; ``enough`` is an error that need not be lowered any further."""

    points: Any = None
    weights: Any = None
    exact: bool | HardConstraints = False
    dtype: torch.dtype = torch.float64
    device: str | torch.device = "auto"
    seed: int = 0
    sampler: Adaptive | None = None
    early_stopping: EarlyStopping | None = None
    tolerance: float = 0.05
    windows: Any = None
    freeze: str | Sequence[str] = ()
    weightings: Weightings = field(default_factory=Weightings)
    enough: float = 0.0

    @property
    def largest_error(self) -> float:
        """The estimated relative error of a field up to which a solution is a success."""
        return _ERROR * self.tolerance


@dataclass(frozen=True)
class Varied:
    """A problem with unknown constants, and their raw numbers where it is solved: windows carry sensitivities by these."""

    problem: Problem
    raw: Mapping[str, torch.Tensor]

    @property
    def starts(self) -> bool:
        """Whether what the problem starts from depends on an unknown."""
        start = Face(str(self.problem.time), "lower")
        return any(depends_on_unknowns(self.problem, each) for each in prescribed(self.problem) if each.face == start)


@dataclass
class Workspace:
    """What a strategy works with: the problem with its measurements, the settings of the fit, its record and its journal."""

    problem: Problem
    measurements: Measurements | None = None
    options: Options = field(default_factory=Options)
    log: Log = field(default_factory=Log)
    journal: Journal = field(default_factory=Journal)
    feed: Any = None
    choices: list[str] = field(default_factory=list)
    varied: Varied | None = None
    # The raw unknowns of a fit before this one, from which constants begin.
    begun: Mapping[str, torch.Tensor] | None = None

    @property
    def seed(self) -> int:
        """The seed of the fit."""
        return self.options.seed

    def target(self, exact: float) -> float:
        """The relative error to aim at by a strategy that can have one as small as ``exact``."""
        return max(min(self.options.tolerance, exact), self.options.enough)

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return len(self.problem.coordinates)

    @cached_property
    def linear(self) -> bool:
        """Whether the problem is linear in its fields."""
        return self.problem.system.linear(self.discrete.train, self.discrete.sizes)

    @cached_property
    def waves(self) -> Waves | None:
        """The wave numbers of a linear problem at rest in one coordinate; None of others."""
        alone = self.dimension == 1 and self.problem.time is None and not self.problem.unknowns
        return waves(self.problem) if alone and self.linear else None

    @cached_property
    def discrete(self) -> DiscreteProblem:
        """The discrete problem with as many points as the largest number of features or polynomials needs."""
        return self.prepared(RandomFeatures(), most_points(self.dimension), exact=False)

    def prepared(self, model: Any, points: Any, exact: bool | HardConstraints) -> DiscreteProblem:
        """The discrete problem with a model; see ``prepare``."""
        own = self.options
        found = prepare(self.problem, model, self.measurements, points, own.weights, own.dtype, own.device, own.seed, exact)
        warn_of_conditions(self.problem, found.table is not None, self.log.warned)
        return replace(found, journal=self.journal)

    @cached_property
    def on_cpu(self) -> Workspace:
        """The same work on the CPU."""
        own = self.options
        return self if device_of(own.device).type == "cpu" else replace(self, options=replace(own, device="cpu"))

    def on(self, measurements: Measurements | None) -> Workspace:
        """The same work with other measurements."""
        return replace(self, measurements=measurements, choices=[])

    def sampled(self, most: int) -> Workspace:
        """The same work with a random sample of at most so many rows of its measurements."""
        measured = self.measurements
        if measured is None or len(measured.table) <= most:
            return self
        generator = np.random.default_rng([self.seed, 9])
        chosen = np.sort(generator.choice(len(measured.table), most, replace=False))
        self.log.notes["measurements"] = f"a random sample of {most} of {len(measured.table)} rows"
        return replace(self, measurements=measured.on(measured.table.take(chosen)))


class Strategy(ABC):
    """A way from a problem to a solved model.

    ``last_resort`` says that it is not tried while a sufficient candidate is known, ``dense`` that large dense matrices or
    the gradients of networks are most of its work: a GPU is given these alone.
    """

    last_resort: ClassVar[bool] = False
    dense: ClassVar[bool] = False

    def obstacle(self, work: Workspace) -> str | None:
        """Why it cannot serve a problem, or None when it can."""
        return None

    @abstractmethod
    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        """Yield the best that was found so far, as often as there is something new, and go on while more is asked for.

        Args:
            work: the problem, and where the work is recorded.
            best: the best candidate of the strategies before.
        """

    @property
    def name(self) -> str:
        """Its name in reports."""
        return type(self).__name__


def search(ways: Sequence[Strategy], work: Workspace) -> Candidate | None:
    """The first candidate that is accepted, else the one with the smallest residual on held-out rows.

    Of one strategy the last candidate counts: it may judge by other things than the residual.
    """
    best: Candidate | None = None
    for way in ways:
        # A network is hardly closer than a solution that is known to be close, and takes long.
        close = best is not None and way.dense and best.solved and best.known <= work.options.largest_error
        if way.last_resort and best is not None and (best.sufficient or close):
            work.choices.append(f"{way.name}: not tried, what was found is good enough")
            continue
        if best is not None and work.log.over():
            work.choices.append(f"{way.name}: not tried, the time is over")
            return _as_it_ended(best, best, work.log)
        work.log.begin()
        before, last, said = best, None, len(work.choices)
        try:
            for found in way.candidates(work if way.dense else work.on_cpu, before):
                last = _seen(found, work.waves)
                best = last if before is None or last.rank <= before.rank else before
                if last.accepted and last.doubt:
                    # What no way mends is doubted, whichever came closest.
                    best = replace(best, doubt=best.doubt or last.doubt)
                if last.accepted or last.status in STOPPED or work.log.stopped:
                    work.choices.append(_reached(way, last))
                    return _as_it_ended(best, last, work.log)
        except KeyboardInterrupt:
            if best is None:
                raise
            return replace(best, status="interrupted", message="")
        if best is not None and work.log.stopped:
            # The strategy had nothing to add when somebody wanted the end.
            return replace(best, status=work.log.status, message=work.log.message)
        if last is not None or len(work.choices) == said:
            work.choices.append(_reached(way, last))
    return best


def _seen(found: Candidate, passing: Waves | None) -> Candidate:
    """A candidate, which does not solve the problem where it misses narrow features of its data, or waves that pass."""
    if found.status in STOPPED or not found.solved:
        return found
    made = found.discrete
    said = next(missed_features(made.rows, made.fresh, {**made.scales, **made.natural}, made.narrow), "")
    if passing is not None and found.residual > _ROUNDING:
        said = said or passing.unresolved(made.trial)
    return found if not said else replace(found, accepted=False, solved=False, sufficient=False, doubt=said)


def _reached(way: Strategy, last: Candidate | None) -> str:
    """What a strategy came to, for ``Solution.choices``."""
    if last is None:
        return f"{way.name}: nothing to add"
    why = "" if last.solved else f", not all of the problem{last.doubt and f': {last.doubt}'}"
    return f"{way.name}: residual {last.residual:.1e}{why}"


def _as_it_ended(best: Candidate, last: Candidate, log: Log) -> Candidate:
    """The best candidate, and that somebody wanted the end; that a worse one diverged says nothing of it."""
    if log.spent and (best.accepted or best.sufficient):
        # It was good enough when the time ran out.
        return replace(best, status="budget" if best.status in STOPPED else best.status)
    status, message = (last.status, last.message) if last.status in STOPPED else (log.status, log.message)
    return replace(best, status=status, message=message) if status in STOPPED else best


def judged_apart(setup: DiscreteProblem, regular: Callable[[torch.Tensor], torch.Tensor]) -> DiscreteProblem:
    """The certificate's points apart from singular places and layers: of each block those that a mask keeps, if any.

    Measurements count wherever they were made.
    """

    def kept(block: Collocation) -> Collocation:
        if any(term.measured for term in block.terms):
            return block
        points = block.sample.points[0]
        numbers = torch.nonzero(regular(points.cpu()))[:, 0]
        return block if len(numbers) in (0, len(points)) else block.part(numbers.to(points.device))

    return replace(setup, fresh=tuple(map(kept, setup.fresh)))


_COUNTS = {1: (60, 120, 240, 480), 2: (200, 400, 800, 1200, 1600), 3: (400, 800, 1600, 2400)}
_COUNTS_BEYOND = (500, 3000)
# In many coordinates there are as many points on the faces.
_POINTS_A_FEATURE, _POINTS_BEYOND = 3, 2


def counts_of(dimension: int) -> tuple[int, ...]:
    """The numbers of features that are tried for a number of coordinates."""
    return _COUNTS.get(dimension, _COUNTS_BEYOND)


def most_points(dimension: int) -> int:
    """The number of points inside that the largest number of features asks for."""
    return (_POINTS_A_FEATURE if dimension <= 3 else _POINTS_BEYOND) * counts_of(dimension)[-1]

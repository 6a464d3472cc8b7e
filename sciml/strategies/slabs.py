"""Space-time slabs: windows of time in turn, and what those on elements, grids and cut tiles share.

Every window hands on how it ended and how far off it is: the linearised equations carry the error from window to window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sciml.diagnostics.estimated_error import significant
from sciml.geometry import Face, Interior, OnFaces, Within
from sciml.models import Scaled
from sciml.models.radau import RadauIIA
from sciml.problem import Problem
from sciml.slabs.newton_krylov import Inverse, SlabRates, driven, solve
from sciml.slabs.system import Evaluated, Site, Slab, Trace, at_time, initial_values
from sciml.solvers import DiscreteProblem
from sciml.strategies.search import Log

_STAGES = 12
# How much of a residual a shorter window may leave, by how much the target gives way otherwise, and how it comes back.
_USELESS, _GIVE_WAY, _BACK, _FLOOR = 0.7, 3.0, 0.5, 1e-5
_SHORT, _AT_ONCE = 0.01, 1e-5
_OFTEN, _FAR, _LOOSER = 30, 300, 10.0
# What rounding adds to the error in every window, and relative errors below which it may be all there is.
_ROUNDING, _NO_BETTER = 1e-15, 1e-12


def lacks_start(problem: Problem) -> str | None:
    """Why the initial conditions are not one value for each time derivative below the order of a field, or None."""
    time = str(problem.time)
    prescribed = [term.prescription for term in problem.terms() if term.place == OnFaces((Face(time, "lower"),))]
    given = sorted((each.field, len(each.index)) for each in prescribed if each is not None)
    needed = sorted((name, power) for name in problem.fields for power in range(problem.order(name, time)))
    return None if len(given) == len(prescribed) and given == needed else "its initial values are not those that it needs"


@dataclass(frozen=True)
class CarriedError:
    """The error of a window: mean squares of it and of the fields, ``(2, F)``, and its weights at the end like a start's."""

    squares: Tensor
    ends: tuple[Tensor, ...]

    @classmethod
    def of(cls, kept: Sequence[Tensor]) -> CarriedError | None:
        """What a journal keeps of it."""
        return cls(kept[0], tuple(kept[1:])) if kept else None

    @property
    def relative(self) -> float:
        """Of all fields together."""
        return float((self.squares[0].sum() / self.squares[1].sum().clamp_min(1e-300)).sqrt())


@dataclass(frozen=True)
class _Ended:
    """How a window of a ``span`` of time ended: its weights and those of its error. By the number of its trial function it is
    found, which stays with it, so that no other one can get the number.
    """

    span: tuple[float, float]
    trial: Scaled
    mesh: Any
    ends: tuple[Tensor, ...]
    error: CarriedError | None


@dataclass(frozen=True)
class Verdict:
    """What an attempt says of its windows: until when residuals are those of a layer that the start leaves, and at most how
    far from the solution each field is, about, in the root mean square over space and time as a fraction of its own.
    """

    layer: float = -math.inf
    at_most: Mapping[str, float] = field(default_factory=dict)


@dataclass
class SlabAttempt:
    """What attempts of slabs share: the problem's terms, the starts of windows, and a target that gives way and comes back.

    Where the target cannot be had, it gives way: to what there is when neither a finer space nor shorter windows help, and,
    where it ``loosens``, tenfold whenever windows stay so short that the end is hundreds of them away. It comes back by halves.
    """

    loosens: ClassVar[bool] = True
    phase: ClassVar[str] = "Elements"

    setup: DiscreteProblem
    log: Log
    target: float
    accepted: float
    stages: RadauIIA = field(default_factory=lambda: RadauIIA(_STAGES))

    def __post_init__(self) -> None:
        problem = self.setup.problem
        self._problem, self._goal = problem.bind_initial(), self.target
        self._time = str(problem.time)
        terms, start = problem.terms(), OnFaces((Face(self._time, "lower"),))
        self._initial = [term for term in terms if term.place == start]
        self._equations = [term for term in terms if isinstance(term.place, Interior | Within)]
        self._conditions = [term for term in terms if term.place != start and term not in self._equations]
        self._orders = tuple(problem.order(name, self._time) for name in problem.fields)
        self._units = tuple(self.setup.trial.scale.tolist())
        self._begin, self._count = math.nan, 0
        self._missed = (math.nan, math.inf)
        # By the trial function of a window: how it ended.
        self._ends: dict[int, _Ended] = {}
        # By the start of each window: the mean squares of its error and of the fields, ``(2, F)``, where they are known.
        self._squares: dict[float, Tensor] = {}
        self._kept: tuple[RadauIIA, float, Any, list[Tensor], Inverse] | None = None
        # Whether the last window that was as long as the one before could take its inverse.
        self._reuses = False

    def verdict(self, edges: Sequence[float]) -> Verdict:
        """What it says of the windows between some edges, each as it was returned last."""
        if not all(begin in self._squares for begin in edges[:-1]):
            return Verdict()
        squares = torch.stack([self._squares[begin] for begin in edges[:-1]])
        error, size = (torch.tensor(edges, dtype=torch.float64).diff() @ squares.flatten(1)).sqrt().view(2, -1)
        units = torch.tensor(significant(size.tolist()), dtype=torch.float64)
        return Verdict(at_most=dict(zip(self._problem.fields, (error / units).clamp(min=_NO_BETTER).tolist(), strict=True)))

    def _solved(
        self,
        slab: Slab[Any],
        sites: Sequence[Site],
        made: Callable[[Slab[Any], Sequence[Evaluated]], Inverse],
        tolerance: float,
        before: DiscreteProblem | None,
        start: Tensor | None = None,
    ) -> tuple[SlabRates, CarriedError | None]:
        """A slab's rates, and the error that its residuals and the one before lead to, where that is known."""

        def compute() -> dict[str, Any]:
            solved = solve(slab, sites, partial(self._inverted, slab, made), tolerance, start)
            between = slab.evaluate(sites, solved.rates, slab.stages.between) if solved.converged else []
            return {**solved.state, "error": self._error(slab, solved, [each.values for each in between], before)}

        found = dict(self.setup.journal.recalled(f"a slab of {slab.mesh.width} functions", compute))
        error = CarriedError.of(found.pop("error"))
        return SlabRates(**found), error

    def _keep_error(self, begin: float, window: DiscreteProblem) -> None:
        """The error of a window that is handed on is that of the one which begins then."""
        self._squares.pop(begin, None)
        if (error := self._ends[id(window.trial)].error) is not None:
            self._squares[begin] = error.squares

    def _error(
        self, slab: Slab[Any], solved: SlabRates, between: Sequence[Tensor], before: DiscreteProblem | None
    ) -> list[Tensor]:
        """The error of a slab, carried on from the window before by the linearised equations; nothing where it is not known.

        It is driven by the residuals ``between`` the stages, and by what equations leave in space. The latter has signs that
        add up to nothing between the places at which they hold, and counts with signs by chance.
        """
        ended = self._ended(before)
        if not solved.converged or (before is not None and (ended is None or ended.error is None)):
            return []
        # What a start lacks is of its own size and shape, for rounding and for what the space cannot represent.
        lacks, carried = _ROUNDING + (self._misfit(slab) if before is None else 0.0), None
        if ended is not None and ended.error is not None:
            carried = self._onto(slab.mesh, ended.mesh, ended.error.ends)
            lacks += ended.error.relative if carried is None else 0.0
        starts = tuple(lacks * each for each in slab.starts)
        if carried is not None:
            starts = tuple(one + two for one, two in zip(starts, carried, strict=True))
        chance, sources = torch.Generator().manual_seed(len(self._squares)), []
        for one, size in zip(between, self._unresolved(slab, solved), strict=True):
            # One for each element, or for each place of what is not divided.
            _, elements, places = one.shape
            signs = 2.0 * torch.randint(2, (1, elements, 1 if elements > 1 else places), generator=chance) - 1.0
            sources.append(one + size * signs)
        error, rates = driven(slab, solved, sources, starts)
        squares = torch.stack([self._mean_squares(error, rates), self._mean_squares(slab, solved.rates)])
        found = [squares, *(error.end(rates, number) for number in range(len(slab.orders)))]
        return found if bool(squares.isfinite().all()) else []

    def _unresolved(self, slab: Slab[Any], solved: SlabRates) -> list[Tensor]:
        """The size of what each site's rows leave in space at the stages, ``(p, elements, q)``."""
        return [each.values.abs() for each in solved.evaluated]

    def _misfit(self, slab: Slab[Any]) -> float:
        """What a space misses of the initial values, the largest relative root mean square."""
        missed, sizes = torch.zeros(2, len(slab.orders), max(1, *slab.orders), dtype=torch.float64)
        for trace, shares in self._everywhere(slab.mesh):
            columns = [each.flatten() for each in trace.columns]
            for (name, power), wanted in self._start_values(columns, slab.begin, None).items():
                number = self._problem.fields.index(name)
                own = trace.jet(slab.mesh.local(slab.starts[number][power][None]), ())[0]
                wanted = torch.where(shares[number] > 0, wanted.view_as(own), 0.0)
                missed[number, power] += ((own - wanted).square() * shares[number]).sum()
                sizes[number, power] += (wanted.square() * shares[number]).sum()
        return float(torch.where(sizes > 0, missed / sizes, 0.0).max().sqrt())

    def _mean_squares(self, slab: Slab[Any], rates: Tensor) -> Tensor:
        """The mean square of each field over the slab, ``(F,)``."""
        found = torch.zeros(len(slab.orders), dtype=torch.float64)
        weights = [slab.moved(rates, number, 0, None) + slab.kept(number, 0, None) for number in range(len(found))]
        for trace, shares in self._everywhere(slab.mesh):
            for number, own in enumerate(weights):
                found[number] += (trace.jet(slab.mesh.local(own), ()).square() * shares[number]).sum()
        return found / slab.stages.count

    def _everywhere(self, mesh: Any) -> list[tuple[Trace, Tensor]]:
        """Places apart from those of starts, and their shares of where each field lives, ``(F, elements, q)``."""
        raise NotImplementedError

    def _onto(self, mesh: Any, other: Any, ends: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Weights on another mesh as those on one, or None where nothing takes them there."""
        return ends if other is mesh else None

    def _inverted(
        self, slab: Slab[Any], made: Callable[[Slab[Any], Sequence[Evaluated]], Inverse], evaluated: Sequence[Evaluated]
    ) -> Inverse:
        """The approximate inverse of a slab's Jacobian, kept from window to window where nothing in it changes."""
        slopes = [part.slopes.mean(0) for each in evaluated for part in each.parts]
        if self._kept is not None:
            stages, length, mesh, before, inverse = self._kept
            same = stages is slab.stages and mesh is slab.mesh
            same = same and math.isclose(length, slab.length, rel_tol=1e-12) and len(before) == len(slopes)
            if same:
                self._reuses = all(torch.allclose(one, two, rtol=1e-12) for one, two in zip(before, slopes, strict=True))
                if self._reuses:
                    return inverse
        # The old one makes room before.
        self._kept = None
        inverse = made(slab, evaluated)
        self._kept = slab.stages, slab.length, slab.mesh, slopes, inverse
        return inverse

    def _window(self, slab: Slab[Any], model: nn.Module) -> DiscreteProblem:
        """The set-up of a window whose trial function is a model."""
        whole = self.setup.problem
        sub = whole.on(whole.domain.between(self._time, slab.begin, slab.begin + slab.length))
        return self.setup.with_model(model, problem=sub, raw={}, train=(), held=(), fresh=())

    def _go_on(self, begin: float, end: float) -> None:
        """A new window begins: what was not to be had before may be by now."""
        _, last = self.setup.problem.domain.bounds[self._time]
        self._begin, self._count = begin, self._count + 1
        if self.loosens and self._count % _OFTEN == 0 and last - begin > _FAR * (end - begin):
            self._goal = min(_LOOSER * self._goal, self.accepted)
        self.target = max(self._goal, _BACK * self.target)

    def _give_way(self, begin: float, whole: float) -> None:
        """A window was solved and misses the target by so much."""
        at, earlier = self._missed
        if at == begin and _USELESS * earlier < whole <= _FLOOR:
            # A shorter time does not help either: that is how well derivatives can be had.
            self.target = max(self.target, _GIVE_WAY * whole)
        self._missed = begin, whole

    def _fraction(self, begin: float, end: float) -> float:
        """What the residual of a short window counts: a jump at the start has some, however short the window is."""
        first, last = self.setup.problem.domain.bounds[self._time]
        return min(1.0, (end - begin) / (_SHORT * (last - first)))

    def _counted(self, whole: float, begin: float, end: float) -> float:
        """A window's relative residual as it is judged."""
        first, last = self.setup.problem.domain.bounds[self._time]
        reached = self._fraction(begin, end) * whole
        if end - first <= _AT_ONCE * (last - first) and math.isfinite(whole):
            # A jump at the start has no residual to speak of: what counts is how soon it is left behind.
            reached = min(reached, self.accepted)
        return reached

    def _start_values(
        self, columns: Sequence[Tensor], begin: float, before: DiscreteProblem | None
    ) -> dict[tuple[str, int], Tensor]:
        """Each field and its time derivatives at the start of a window, at places by the other coordinates."""
        points = at_time(self._problem, begin, columns)
        if before is None:
            return initial_values(self._problem, self._initial, points)
        supplier = before.rows.supplier(points.to(before.trial.offset))
        return {
            (name, power): supplier.jet(name, (self._time,) * power).detach().to(points)
            for name, order in zip(self._problem.fields, self._orders, strict=True)
            for power in range(order)
        }

    def _ended(self, before: DiscreteProblem | None) -> _Ended | None:
        """How the window before ended."""
        return None if before is None else self._ends.get(id(before.trial))

    def _remember(
        self,
        slab: Slab[Any],
        solved: SlabRates,
        trial: Scaled,
        before: DiscreteProblem | None,
        error: CarriedError | None = None,
    ) -> None:
        """Keep how a window ended: asking its function, the next one would begin with its rounding."""
        ends = tuple(slab.end(solved.rates, number) for number in range(len(self._orders)))
        span = slab.begin, slab.length
        # Of the window before, and of this one as it was tried before.
        own = {
            key: kept
            for key, kept in self._ends.items()
            if kept.span == span or (before is not None and key == id(before.trial))
        }
        self._ends = {**own, id(trial): _Ended(span, trial, slab.mesh, ends, error)}

    def _record(self, begin: float, solved: SlabRates, reached: float) -> None:
        """Tell the watchers; one of them may want it to end."""
        self.log.steps += solved.steps - 1
        self.log.evaluations += solved.products - 1
        _, last = self.setup.problem.domain.bounds[self._time]
        phase, most = f"{self.phase}, from {self._time} = {begin:.4g} of {last:g}", self.log.steps + 1
        self.log.solved(phase, reached**2, reached, {}, best=reached, most=most)

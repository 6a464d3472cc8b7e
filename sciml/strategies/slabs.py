"""Space-time slabs: windows of time on elements, piecewise polynomials in space, refined where the residual between
points is large.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sciml.diagnostics.estimated_error import relative_errors
from sciml.geometry import Box, Face, Interior, OnFaces, Opposite, Within
from sciml.models import PiecewisePolynomial, Scaled, Windowed
from sciml.models.bases import PiecewiseBasis, chebyshev_places, gauss
from sciml.models.radau import RadauIIA
from sciml.problem import Problem
from sciml.problem.thresholds import switched
from sciml.slabs.elements import ElementPreconditioner
from sciml.slabs.newton_krylov import Inverse, OutOfTimeError, SlabRates, driven, solve
from sciml.slabs.row_layout import outward
from sciml.slabs.system import Evaluated, Site, Slab, Trace, at_time, initial_values
from sciml.solvers import DiscreteProblem
from sciml.strategies.search import Log, Varied
from sciml.typing import Array

_STAGES = 12
_DEGREE = 20
_QUADRATURE = 1.5
_FIRST, _MOST, _MANY = 4, 96, 32
_NARROWEST, _REFINEMENTS = 1e-5, 16
_IN_SPACE, _LOCAL = 0.3, 0.5
_USELESS, _DOUBLED = 0.7, 0.25
GIVE_WAY, _BACK, _FLOOR = 3.0, 0.5, 1e-5
# What of the target elements have that are joined, and where there are more than so many elements.
_QUIET, _QUIET_ENOUGH, _CROWDED = 1e-4, 1e-2, 32
# For how many windows elements that were cut stay so, and where they had been joined too early.
_HOLD, _LONGEST_HOLD = 3, 24
# What of the target for residuals joined elements may lose of the fields.
_LOST = 1e-2
_SHORT, _AT_ONCE = 0.01, 1e-5
_OFTEN, _FAR, _LOOSER = 30, 300, 10.0
_TOLERANCE, _ROUGH, _ROUGH_START, _SMOOTH_START = 1e-15, 1e-3, 1e-6, 1e-10
# How closely, and by how many products at most, sensitivities are solved for.
_CLOSELY, _MANY_PRODUCTS = 1e-4, 30
# What rounding adds to the error in every window, and relative errors below which it may be all there is.
ROUNDING, _NO_BETTER = 1e-15, 1e-12
# How much of the budget of time windows may take.
_OF_TIME = 0.5
# What the first window of a rough start may make of the error.
IN_LAYER = 1e-5
# What of a residual is left in half the time where it stays: where a slope jumps seven tenths.
_STAYS = 0.5


def not_on_elements(problem: Problem) -> str | None:
    """Why a problem that can be solved in windows cannot be solved on elements in them, or None when it can."""
    beside = len(problem.coordinates) - len(problem.promoted) - (problem.time in problem.coordinates)
    if not isinstance(problem.domain, Box) or len(problem.coordinates) != 2 or beside != 1:
        return "it has not one coordinate beside time"
    if len(problem.equations) != len(problem.fields):
        return "it has not one equation for each field"
    time = str(problem.time)
    (space,) = (name for name in problem.coordinates if name != time)
    ends = {Face(space, "lower"), Face(space, "upper")}
    for term in problem.terms():
        if term.place == OnFaces((Face(time, "lower"),)):
            continue
        along = isinstance(term.place, OnFaces) and set(term.place.faces) <= ends
        if not along and term.place not in (Interior(), Opposite(space)):
            return f"{term.name!r} holds neither inside nor at the ends of {space}"
        if any(index.count(time) > problem.order(name, time) for name, index in problem.system.depends(term)):
            return f"{term.name!r} asks for higher time derivatives than the equations"
    return lacks_start(problem)


def lacks_start(problem: Problem) -> str | None:
    """Why the initial conditions are not one value for each time derivative below the order of a field, or None."""
    time = str(problem.time)
    prescribed = [term.prescription for term in problem.terms() if term.place == OnFaces((Face(time, "lower"),))]
    given = sorted((each.field, len(each.index)) for each in prescribed if each is not None)
    needed = sorted((name, power) for name in problem.fields for power in range(problem.order(name, time)))
    return None if len(given) == len(prescribed) and given == needed else "its initial values are not those that it needs"


@dataclass(frozen=True)
class _SlabTried:
    """A window on one mesh; ``reached`` is ``whole`` counted by the window's length where that is very short, or what it adds
    to the error where the start was rough; ``error`` is that of its fields.
    """

    setup: DiscreteProblem
    mesh: PiecewiseBasis
    solved: bool
    whole: float
    reached: float
    in_space: float
    places: Array
    error: float

    @property
    def shares(self) -> Array:
        """Equidistribution: the residual of each element, if all were as long, that adds as much to that of the window.

        What rounding leaves of derivatives on tiny elements is large there, and next to nothing on the whole.
        """
        widths = np.diff(self.mesh.breaks)
        return self.places * np.sqrt(len(widths) * widths / widths.sum())


@dataclass(frozen=True)
class CarriedError:
    """A posteriori error of a window: mean squares of it and the fields, ``(2, F)``, and its weights at the end."""

    squares: Tensor
    ends: tuple[Tensor, ...]

    def times(self, factor: float) -> CarriedError:
        """One of the same shape, so many times as large."""
        squares = torch.stack([factor**2 * self.squares[0], self.squares[1]])
        return CarriedError(squares, tuple(factor * each for each in self.ends))

    @classmethod
    def of(cls, kept: Sequence[Tensor]) -> CarriedError | None:
        """What a journal keeps of it."""
        return cls(kept[0], tuple(kept[1:])) if kept else None


@dataclass(frozen=True)
class Ended:
    """How a window of a ``span`` of time ended: its weights, those of its error, and of its derivatives by unknowns, which are
    trial functions ``beside`` its own. By the number of its trial function it is found, which stays with it, so that no other
    one can get the number.
    """

    span: tuple[float, float]
    trial: Scaled
    mesh: Any
    ends: tuple[Tensor, ...]
    error: CarriedError | None
    slopes: Sequence[tuple[Tensor, ...]]
    beside: Sequence[Scaled]


# What makes the approximate inverse of a slab, and when that of a window was made: before, for its first or for a later step.
Maker = Callable[[Slab[Any], Sequence[Evaluated]], Inverse]
_TAKEN, _AT_START, _MIDWAY = "taken", "at the start", "midway"


@dataclass
class _Kept:
    """A slab, and what gives the slopes that its Jacobian's approximate inverse was made for, and that inverse."""

    slab: Slab[Any]
    made: Callable[[], tuple[list[Tensor], Inverse]]

    def serves(self, slab: Slab[Any]) -> bool:
        """Whether another slab is of the same kind."""
        own = self.slab
        return own.stages is slab.stages and own.mesh is slab.mesh and math.isclose(own.length, slab.length, rel_tol=1e-12)


def _slopes(evaluated: Sequence[Evaluated]) -> list[Tensor]:
    return [part.slopes.mean(0) for each in evaluated for part in each.parts]


@dataclass(frozen=True)
class Verdict:
    """What an attempt says of its windows: at most how far from the solution each field is, about, in the root mean square over
    space and time as a fraction of its own; and at which points ``(n, D)`` residuals say something, ``regular`` ones, and why.
    """

    at_most: Mapping[str, float] = field(default_factory=dict)
    regular: Callable[[Tensor], Tensor] | None = None
    said: str = ""


@dataclass
class SlabAttempt(ABC):
    """What attempts of slabs share: the problem's terms, the starts of windows, and a target that gives way and comes back.

    Where the target cannot be had, it gives way: to what there is when neither a finer space nor shorter windows help, and,
    where it ``loosens``, tenfold whenever windows stay so short that the end is hundreds of them away. It comes back by halves.

    Where boundary values jump in time another attempt begins, with the problem on what is left of the time: ``earlier`` is the
    attempt whose last window, ``since``, its start is the end of. Where waves have grown one begins anew in another ``turn``.
    """

    loosens: ClassVar[bool] = True
    # What reports and what solutions call it.
    phase: ClassVar[str] = "Elements"
    title: ClassVar[str] = "piecewise polynomials"
    # What of a residual half the time must leave at most to be worth it, and the largest that is given way to.
    worth: ClassVar[float] = _USELESS
    floor: ClassVar[float] = _FLOOR
    # For how many windows a length that failed is not tried again.
    patience: ClassVar[int] = 8
    # Products of a window that an inverse of another Jacobian may cost, where a new one costs more.
    dear: ClassVar[int] = 0

    setup: DiscreteProblem
    log: Log
    target: float
    accepted: float
    stages: RadauIIA = field(default_factory=lambda: RadauIIA(_STAGES))
    varied: Varied | None = None
    earlier: SlabAttempt | None = None
    since: DiscreteProblem | None = None
    turn: int = 0

    def __post_init__(self) -> None:
        problem, earlier = self.setup.problem, self.earlier
        self._problem, self._goal = problem.bind_initial(), self.target
        self._time = str(problem.time)
        self._others = [name for name in problem.coordinates if name != self._time]
        self._origin, self._last = problem.domain.bounds[self._time]
        self._duration = self._last - self._origin
        terms, start = problem.terms(), OnFaces((Face(self._time, "lower"),))
        self._initial = [term for term in terms if term.place == start]
        self._equations = [term for term in terms if isinstance(term.place, Interior | Within)]
        self._conditions = [term for term in terms if term.place != start and term not in self._equations]
        self._orders = tuple(problem.order(name, self._time) for name in problem.fields)
        self._units = tuple(self.setup.trial.scale.tolist())
        self._begin, self._count = math.nan, 0
        # By how much the next window may be longer, and the length of one that was too long a moment ago.
        self.longer, self._too_long, self._short_for = 1.0, math.inf, 0
        # When the layer is over that a start leaves which contradicts the conditions, or their rates; those of starts before.
        self._over = -math.inf
        self._layers: list[tuple[float, float]] = [] if earlier is None else [*earlier._layers, *earlier._layer_left()]
        self._missed = (math.nan, math.inf)
        # By the trial function of a window: how it ended.
        self._ends: dict[int, Ended] = {}
        # By the start of each window: the mean squares of its error and of the fields, ``(2, F)``, where they are known.
        self._squares: dict[float, Tensor] = {} if earlier is None else earlier._squares
        # The derivatives of the last slab's rates by the unknowns that are varied; by the start of each window, its own.
        self._by_unknown: list[Tensor] = []
        self._slopes: dict[float, Sequence[Scaled]] = {} if earlier is None else earlier._slopes
        # How the last window of the attempt before ended, if it is known in the same spaces.
        self._carried = earlier._ended(self.since) if type(earlier) is type(self) else None
        self._kept: _Kept | None = None
        # The slab that asked for an inverse last, when the last window's was made, and how many products that window took.
        self._asked: Slab[Any] | None = None
        self._when, self._products = _TAKEN, 0
        # Whether the last window that was as long as the one before could take its inverse.
        self._reuses = False

    def verdict(self, edges: Sequence[float]) -> Verdict:
        """What it says of the windows between some edges, each as it was returned last."""
        if not all(begin in self._squares for begin in edges[:-1]):
            return Verdict()
        layers = [*self._layers, *self._layer_left()]
        squares = torch.stack([self._squares[begin] for begin in edges[:-1]])
        thin = torch.tensor([any(begin <= each < over for begin, over in layers) for each in edges[:-1]])
        if not thin.all():
            # What has no rate is as large as a layer is thin, and carries nothing on.
            squares[thin] *= torch.tensor(self._orders) > 0
        error, size = (torch.tensor(edges, dtype=torch.float64).diff() @ squares.flatten(1)).sqrt().view(2, -1)
        relative = [max(each, _NO_BETTER) for each in relative_errors(error.tolist(), size.tolist(), self.setup.trial)]
        found = Verdict(at_most=dict(zip(self._problem.fields, relative, strict=True)))
        if not layers:
            return found
        (first, over), *later = layers
        start = "the start is rough, or contradicts the conditions" if first == edges[0] else "boundary values jump"
        when = f"from {self._time} = {over:.4g} on"
        if first > edges[0] or later:
            when = "but for " + ", ".join(f"{self._time} = {begin:.4g} … {over:.4g}" for begin, over in layers)
        judged = "residuals" if all(self._orders) else "residuals, and fields without a rate,"
        said = f"{start}: {judged} are judged beyond the layer that it leaves, {when}"
        time, spans = self._problem.coordinates.index(self._time), torch.tensor(layers, dtype=torch.float64)

        def regular(points: Tensor) -> Tensor:
            begin, over = spans.to(points).unbind(1)
            at = points[:, time, None]
            return ((at < begin) | (at >= over)).all(1)

        return replace(found, regular=regular, said=said)

    def _layer_left(self) -> list[tuple[float, float]]:
        """From when until when there is a layer, if the start left one."""
        return [(self._origin, self._over)] if math.isfinite(self._over) else []

    def sensitivities(self, edges: Sequence[float]) -> tuple[Windowed, ...]:
        """Sensitivities: the derivatives of the windows between some edges by all unknowns; none where one is not known."""
        found = [self._slopes.get(begin, ()) for begin in edges[:-1]]
        column, order = self._problem.coordinates.index(self._time), max(1, *self._orders)
        if self.varied is None or any(len(each) < len(self.varied.raw) for each in found):
            return ()
        return tuple(Windowed(edges, each, column, order) for each in zip(*found, strict=True))

    def _solved(
        self,
        slab: Slab[Any],
        sites: Sequence[Site],
        made: Maker,
        tolerance: float,
        before: DiscreteProblem | None,
        start: Tensor | None = None,
    ) -> tuple[SlabRates, CarriedError | None, dict[str, Any]]:
        """A slab's rates, the error that its residuals and the one before lead to, where that is known, and what is judged."""

        def compute() -> dict[str, Any]:
            def rates() -> SlabRates:
                return solve(slab, sites, partial(self._inverted, slab, made), tolerance, start, self._late)

            solved = rates()
            if not solved.converged and self._when == _TAKEN:
                # The inverse of an earlier window was no help.
                self._kept = self._asked = None
                solved = rates()
            between = slab.evaluate(sites, solved.rates, slab.stages.between) if solved.converged else []
            judged = self._beside(slab, sites, solved, between)
            # Windows on which a space is refined are solved again.
            whole = slab.stages is self.stages
            error = self._error(slab, solved, between, before) if whole else list[Tensor]()
            slopes = self._sensitivities(slab, sites, solved, before) if whole else list[Tensor]()
            kept = {"error": error, "slopes": slopes, "judged": judged}
            return {**solved.state, **kept, "made": self._when, "reuses": self._reuses}

        self._when = _TAKEN
        try:
            found = dict(self.setup.journal.recalled(f"a slab of {slab.mesh.width} functions", compute))
        except OutOfTimeError:
            # A fit that is resumed with more time solves it.
            self.setup.journal.keep_no_more()
            given_up = SlabRates(slab.zero(), False, 0, 0)
            return given_up, None, self._beside(slab, sites, given_up, [])
        error, judged, made_when = CarriedError.of(found.pop("error")), found.pop("judged"), found.pop("made")
        self._by_unknown = found.pop("slopes")
        if made_when == _MIDWAY:
            self._kept = None
        elif made_when == _AT_START and (self._kept is None or self._kept.slab is not slab):
            # It was made before an interruption, and is again if it is asked for.
            self._kept = _Kept(slab, cache(partial(self._made_anew, slab, sites, made, start)))
        self._products, self._reuses = found["products"], found.pop("reuses")
        return SlabRates(**found), error, judged

    def _late(self) -> bool:
        """Whether a slab that is under way is not worth being waited for."""
        return self.log.long_overdue

    def _beside(
        self, slab: Slab[Any], sites: Sequence[Site], solved: SlabRates, between: Sequence[Evaluated]
    ) -> dict[str, Any]:
        """What is judged by a solution while its inverse is at hand, from residuals ``between`` the stages too."""
        return {}

    def _keep_error(self, begin: float, window: DiscreteProblem) -> None:
        """The error of a window that is handed on is that of the one which begins then."""
        ended = self._ends[id(window.trial)]
        self._squares.pop(begin, None)
        if ended.error is not None:
            self._squares[begin] = ended.error.squares
        self._slopes[begin] = ended.beside

    def _relative(self, error: CarriedError | None) -> float:
        """The largest relative error of a field in a window, in the root mean square."""
        return math.inf if error is None else self._largest(*error.squares)

    def _largest(self, squares: Tensor, size: Tensor) -> float:
        return math.sqrt(float((squares / size.maximum(size.new_tensor(self._units) ** 2)).max()))

    def _error(
        self, slab: Slab[Any], solved: SlabRates, between: Sequence[Evaluated], before: DiscreteProblem | None
    ) -> list[Tensor]:
        """A posteriori error of a slab, carried on from the window before by the linearised equations; nothing if not known."""
        ended, begun = self._carries(before), before is None and self.since is None
        if not solved.converged or not (begun or (ended is not None and ended.error is not None)):
            return []
        starts = self._lacking(slab) if before is None else self._lost(slab, before)
        if ended is not None and ended.error is not None:
            carried = self._onto(slab.mesh, ended.mesh, ended.error.ends)
            starts = tuple(one + two for one, two in zip(starts, carried, strict=True))
        error, rates = driven(slab, solved, self._sources(slab, solved, between), starts, over=self._late)
        squares = torch.stack([self._mean_squares(error, rates), self._mean_squares(slab, solved.rates)])
        found = [squares, *(error.end(rates, number) for number in range(len(slab.orders)))]
        return found if bool(squares.isfinite().all()) else []

    def _sources(self, slab: Slab[Any], solved: SlabRates, between: Sequence[Evaluated]) -> list[Tensor]:
        """What drives the error of a slab: the residuals ``between`` the stages, and what equations leave in space.

        The latter has signs that add up to nothing between the places at which they hold, and counts with signs by chance.
        """
        chance, sources = torch.Generator().manual_seed(len(self._squares)), []
        for one, size in zip(between, self._unresolved(slab, solved), strict=True):
            # One for each element, or for each place of what is not divided.
            _, elements, places = one.values.shape
            signs = 2.0 * torch.randint(2, (1, elements, 1 if elements > 1 else places), generator=chance) - 1.0
            sources.append(one.values + size * signs)
        return sources

    def _sensitivities(
        self, slab: Slab[Any], sites: Sequence[Site], solved: SlabRates, before: DiscreteProblem | None
    ) -> list[Tensor]:
        """Sensitivity equations: the derivatives of the rates by all unknowns that are varied; nothing if not known."""
        starts = self._slopes_at_start(slab, before)
        if not solved.converged or self.varied is None or starts is None:
            return []
        moved = slab.by_unknown(sites, solved.rates, self.varied.problem, self.varied.raw)
        pairs = zip(moved, starts, strict=True)
        return [driven(slab, solved, sources, each, _CLOSELY, _MANY_PRODUCTS, self._late)[1] for sources, each in pairs]

    def _slopes_at_start(self, slab: Slab[Any], before: DiscreteProblem | None) -> list[tuple[Tensor, ...]] | None:
        """The derivatives of the starts by all unknowns that are varied, or None where they are not known."""
        if self.varied is None:
            return None
        if before is None and self.since is None:
            return [tuple(map(torch.zeros_like, slab.starts)) for _ in self.varied.raw]
        ended = self._carries(before)
        if ended is None or not ended.slopes:
            return None
        return [self._onto(slab.mesh, ended.mesh, each) for each in ended.slopes]

    def _unresolved(self, slab: Slab[Any], solved: SlabRates) -> list[Tensor]:
        """What each site's rows leave in space at the stages, ``(p, elements, q)``, or its size."""
        return [each.values.abs() for each in solved.evaluated]

    def _lacking(self, slab: Slab[Any]) -> tuple[Tensor, ...]:
        """What a start lacks, of its own size and shape, for rounding and for what the space cannot represent."""
        missed, sizes = self._misfit(slab)
        lacks = ROUNDING + float(torch.where(sizes > 0, missed / sizes, 0.0).max().sqrt())
        return tuple(lacks * each for each in slab.starts)

    def _lost(self, slab: Slab[Any], before: DiscreteProblem) -> tuple[Tensor, ...]:
        """What a start lacks of how the window before ended."""
        return tuple(ROUNDING * each for each in slab.starts)

    def _misfit(self, slab: Slab[Any]) -> Tensor:
        """Mean squares of what a space misses of the initial values, and of these, by field and derivative ``(2, F, k)``."""
        found = torch.zeros(2, len(slab.orders), max(1, *slab.orders), dtype=torch.float64)
        for trace, shares in self._everywhere(slab.mesh):
            columns = [each.flatten() for each in trace.columns]
            for (name, power), wanted in self._start_values(columns, slab.begin, None).items():
                number = self._problem.fields.index(name)
                own = trace.jet(slab.mesh.local(slab.starts[number][power][None]), ())[0]
                wanted = torch.where(shares[number] > 0, wanted.view_as(own), 0.0)
                squares = torch.stack([(own - wanted).square(), wanted.square()])
                found[:, number, power] += (squares * shares[number]).sum((1, 2))
        return found

    def _mean_squares(self, slab: Slab[Any], rates: Tensor) -> Tensor:
        """The mean square of each field over the slab, ``(F,)``."""
        found = torch.zeros(len(slab.orders), dtype=torch.float64)
        weights = [slab.moved(rates, number, 0, None) + slab.kept(number, 0, None) for number in range(len(found))]
        for trace, shares in self._everywhere(slab.mesh):
            for number, own in enumerate(weights):
                squares = trace.jet(slab.mesh.local(own), ()).square() * shares[number]
                found[number] += slab.stages.weights @ squares.sum((1, 2))
        return found

    def _slab(
        self, mesh: Any, begin: float, end: float, before: DiscreteProblem | None, stages: RadauIIA | None = None
    ) -> Slab[Any]:
        """A window as a slab on a mesh, which starts as the one before has ended."""
        ended = self._ended(before)
        starts = self._starts(mesh, begin, before) if ended is None else self._onto(mesh, ended.mesh, ended.ends)
        return Slab(self._problem, mesh, stages or self.stages, begin, end - begin, self._orders, starts, self._units)

    @abstractmethod
    def _starts(self, mesh: Any, begin: float, before: DiscreteProblem | None) -> tuple[Tensor, ...]:
        """Each field's weights, and its time derivatives', at the start, by initial conditions or the function before."""

    @abstractmethod
    def _model(self, slab: Slab[Any], rates: Tensor, offset: Tensor) -> nn.Module:
        """The window's function in the fields' units, less an ``offset``, as a model."""

    @abstractmethod
    def _everywhere(self, mesh: Any) -> list[tuple[Trace, Tensor]]:
        """Places apart from those of starts, and their shares of where each field lives, ``(F, elements, q)``."""

    @abstractmethod
    def _onto(self, mesh: Any, other: Any, ends: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Weights on another mesh as those on one."""

    def _inverted(self, slab: Slab[Any], made: Maker, evaluated: Sequence[Evaluated]) -> Inverse:
        """The approximate inverse of a slab's Jacobian, kept from window to window where that is as good as a new one."""
        kept, again = self._kept, self._asked is slab
        self._asked, slopes = slab, _slopes(evaluated)
        if kept is not None and kept.serves(slab):
            before = kept.made()[0]
            pairs = zip(before, slopes, strict=False)
            alike = len(before) == len(slopes) and all(torch.allclose(one, two, rtol=1e-12) for one, two in pairs)
            # That of another Jacobian takes more products, which may be cheaper than a new one.
            self._reuses = alike or (not again and self._products <= self.dear)
            if self._reuses:
                return kept.made()[1]
        # The old one makes room before.
        kept = self._kept = None
        inverse = made(slab, evaluated)
        self._kept = _Kept(slab, lambda: (slopes, inverse))
        self._when = _MIDWAY if again else _AT_START
        return inverse

    def _made_anew(
        self, slab: Slab[Any], sites: Sequence[Site], made: Maker, start: Tensor | None
    ) -> tuple[list[Tensor], Inverse]:
        evaluated = slab.evaluate(sites, slab.zero() if start is None else start, slopes=True)
        return _slopes(evaluated), made(slab, evaluated)

    def _window(self, slab: Slab[Any], rates: Tensor) -> DiscreteProblem:
        """The set-up of a window."""
        whole = self.setup.problem
        sub = whole.on(whole.domain.between(self._time, slab.begin, slab.begin + slab.length))
        model = self._model(slab, rates, self.setup.trial.offset)
        return self.setup.with_model(model, problem=sub, raw={}, train=(), held=(), fresh=())

    def _go_on(self, begin: float, end: float) -> None:
        """A new window begins: what was not to be had before may be by now."""
        self._begin, self._count = begin, self._count + 1
        if self.loosens and self._count % _OFTEN == 0 and self._last - begin > _FAR * (end - begin):
            self._goal = min(_LOOSER * self._goal, self.accepted)
        self.target = max(self._goal, _BACK * self.target)

    def _keep_short(self, begin: float, end: float, *, failed: bool) -> None:
        """For some windows the next one is no longer than this where one of such a length has just failed."""
        self._short_for -= 1
        if failed:
            self._too_long, self._short_for = end - begin, self.patience
        elif self._short_for > 0 and 2 * (end - begin) >= self._too_long * (1 - 1e-9):
            self.longer = 1.0

    def _give_way(self, begin: float, whole: float) -> bool:
        """A window was solved and misses the target by so much; whether a shorter time does not help either."""
        at, earlier = self._missed
        useless = at == begin and self.worth * earlier < whole <= self.floor
        if useless:
            # That is how well derivatives can be had.
            self.target = max(self.target, GIVE_WAY * whole)
        self._missed = begin, whole
        return useless

    def _in_budget(self, seconds: float) -> bool:
        """Whether the budget of time leaves so many seconds for windows.

        Forecast and not measured: a run that is resumed decides as it did before, and one on a busy computer as on an idle one.
        """
        return seconds <= _OF_TIME * self.log.budget.seconds

    def _fraction(self, begin: float, end: float) -> float:
        """What the residual of a short window counts: a jump at the start has some, however short the window is."""
        return min(1.0, (end - begin) / (_SHORT * self._duration))

    def _counted(self, whole: float, begin: float, end: float) -> float:
        """A window's relative residual as it is judged."""
        reached = self._fraction(begin, end) * whole
        if end - self._origin <= _AT_ONCE * self._duration and math.isfinite(whole):
            # A jump at the start has no residual to speak of: what counts is how soon it is left behind.
            reached = min(reached, self.accepted)
        return reached

    def _start_values(
        self, columns: Sequence[Tensor], begin: float, before: DiscreteProblem | None
    ) -> dict[tuple[str, int], Tensor]:
        """Each field and its time derivatives at the start of a window, at places by the other coordinates."""
        points, before = at_time(self._problem, begin, columns), before or self.since
        if before is None:
            return initial_values(self._problem, self._initial, points)
        supplier = before.rows.supplier(points.to(before.trial.offset))
        return {
            (name, power): supplier.jet(name, (self._time,) * power).detach().to(points)
            for name, order in zip(self._problem.fields, self._orders, strict=True)
            for power in range(order)
        }

    def _ended(self, before: DiscreteProblem | None) -> Ended | None:
        """How the window before ended."""
        return None if before is None else self._ends.get(id(before.trial))

    def _carries(self, before: DiscreteProblem | None) -> Ended | None:
        """How the window before ended that hands its error on, which may be another attempt's."""
        return self._carried if before is None else self._ended(before)

    def _handed_on(
        self, slab: Slab[Any], solved: SlabRates, before: DiscreteProblem | None, error: CarriedError | None
    ) -> DiscreteProblem:
        """A window's set-up; how it ended is kept: asking its function, the next one would begin with its rounding."""
        setup, numbers = self._window(slab, solved.rates), range(len(self._orders))
        ends = tuple(slab.end(solved.rates, number) for number in numbers)
        span, domain, none = (slab.begin, slab.length), setup.problem.domain, torch.zeros_like(setup.trial.offset)
        slopes, beside = [], []
        for rates, starts in zip(self._by_unknown, self._slopes_at_start(slab, before) or (), strict=False):
            moved = replace(slab, starts=starts)
            slopes.append(tuple(moved.end(rates, number) for number in numbers))
            # A slope has no offset.
            units = none.tolist(), list(self._units)
            beside.append(Scaled(self._model(moved, rates, none), domain.lower, domain.upper, *units).to(none))
        # Of the window before, and of this one as it was tried before.
        own = {
            key: kept
            for key, kept in self._ends.items()
            if kept.span == span or (before is not None and key == id(before.trial))
        }
        self._ends = {**own, id(setup.trial): Ended(span, setup.trial, slab.mesh, ends, error, slopes, beside)}
        return setup

    def _record(self, begin: float, solved: SlabRates, reached: float) -> None:
        """Tell the watchers; one of them may want it to end."""
        self.log.steps += solved.steps - 1
        self.log.evaluations += solved.products - 1
        phase, most = f"{self.phase}, from {self._time} = {begin:.4g} of {self._last:g}", self.log.steps + 1
        self.log.solved(phase, reached**2, reached, {}, best=reached, most=most)


@dataclass
class ElementWindows(SlabAttempt):
    """Solves windows by slabs of time on elements: an attempt for ``time_marching.march``.

    Elements are halved where the residual between the points of the quadrature is large, and joined again where it has become
    small; they stay from window to window. The residual of a window shorter than a hundredth of the time counts by its length:
    a start that contradicts the conditions at the ends has a residual of its own size however short the window is, and does
    little harm.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = self.setup.problem
        (self._space,) = self._others
        inside, ends = (
            max((index.count(self._space) for term in part for _, index in problem.system.asked(term)), default=0)
            for part in (self._equations, self._conditions)
        )
        self._highest = max(inside, ends)
        self._smooth = max(1, inside, ends + 1)
        self._degree = max(_DEGREE, 4 * self._smooth)
        low, high = problem.domain.bounds[self._space]
        breaks, column = np.linspace(low, high, _FIRST + 1), problem.coordinates.index(self._space)
        jumps = np.array(switched(problem, self._space))
        # Where equations jump elements end, and none of another kind beside one.
        beside = np.abs(breaks[1:-1, None] - jumps).min(axis=1, initial=np.inf) < (high - low) / (2 * _FIRST)
        breaks = np.unique([low, *breaks[1:-1][~beside], *jumps, high])
        for sample in self.setup.narrow.values():
            # On elements of its own what is narrow is seen. Ends that nearly coincide are one.
            places = np.sort(sample.points[0][:, column].cpu().numpy())
            apart = np.diff(places) > (high - low) / _FIRST
            begins, ends = places[np.append(True, apart)], places[np.append(apart, True)]
            new = [each for each in (*begins, *ends) if np.abs(each - breaks).min() > _NARROWEST * (high - low)]
            breaks = np.unique([*breaks, *new[:_FIRST]])
        self._mesh = PiecewiseBasis(breaks, self._degree, self._smooth)
        # Windows so far; by the places at which elements were cut in which of them, and for how many they stay so.
        self._number, self._cut = 0, dict[float, tuple[int, int]]()
        if isinstance(self.earlier, ElementWindows):
            self._mesh, self._number, self._cut = self.earlier._mesh, self.earlier._number, self.earlier._cut
        self._found: tuple[PiecewiseBasis, Tensor] | None = None
        # Whether what is rough at the start is smooth soon after, the first window as it was solved last, which was longer, and
        # the error that a rough start left in it.
        self._smooths = all(self._diffuses(name) for name in problem.fields)
        self._tried_before: _SlabTried | None = None
        self._from_start = 0.0

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up, and its relative residual; that of very short windows counts by their length."""
        if begin != self._begin:
            self._go_on(begin, end)
        if before is None and not self._ends:
            self._mesh = self._resolving_start(begin)
        self.target = max(self.target, self._from_start)
        found = self._resolved(begin, end, before)
        for each in set(found.mesh.breaks.tolist()) - set(self._mesh.breaks.tolist()):
            # What was cut before had been joined too early.
            again = 2 * self._cut[each][1] if each in self._cut else _HOLD
            self._cut[each] = self._number, min(again, _LONGEST_HOLD)
        self._mesh = found.mesh
        past = before is None and not self._smooths and self._is_past_start(found, end)
        self._keep_error(begin, found.setup)
        if past:
            return found.setup, self._from_start
        if found.reached <= self.target:
            self._number += 1
            self._mesh = self._joined(found, end)
        elif found.solved:
            self._give_way(begin, found.reached if self._from_start else found.whole)
        return found.setup, found.reached

    def _joined(self, found: _SlabTried, end: float) -> PiecewiseBasis:
        """Coarsening: quiet elements are joined, unless this loses something of the fields, which may grow.

        What was cut lately stays: halves of what was too long by little are quiet. Elsewhere they may be joined meanwhile, as
        behind a front that moves.
        """
        crowded, breaks = found.mesh.count > _CROWDED, found.mesh.breaks.tolist()
        long_ago = np.array([self._number > sum(self._cut.get(each, (0, _HOLD))) for each in breaks])
        quiet = (found.shares < (_QUIET_ENOUGH if crowded else _QUIET) * self.target) & long_ago[:-1] & long_ago[1:]
        mesh, ends = found.mesh.merged(quiet), self._ends[id(found.setup.trial)].ends
        if mesh.count == found.mesh.count:
            return found.mesh
        lost = self._misfits(mesh, self._onto(mesh, found.mesh, ends), end, found.setup).values()
        return mesh if max(float(each.max()) for each in lost) <= (_LOST * self._goal) ** 2 else found.mesh

    def verdict(self, edges: Sequence[float]) -> Verdict:
        found = super().verdict(edges)
        return replace(found, said=f"{found.said}, and windows by what they add to the error") if self._from_start else found

    def _is_past_start(self, found: _SlabTried, end: float) -> bool:
        """Whether the first window, of a start that is rough and stays so, is as good as it has to be: then that is the target.

        Its residual becomes no less, as derivatives of what is rough are never right. Radau's method damps what is too fast for
        a window, and what of it a shorter one has kept is an error which residuals do not tell.
        """
        longer, self._tried_before = self._tried_before, found if found.solved else None
        ended = self._ends[id(found.setup.trial)]
        if longer is None or ended.error is None or found.whole <= _STAYS * longer.whole:
            return False
        misfits = self._misfits(found.mesh, ended.ends, end, longer.setup)
        spread = found.mesh.half / found.mesh.half.sum()
        apart = max(float(spread @ each) for (_, power), each in misfits.items() if not power)
        left = max(found.error, math.sqrt(apart))
        if left > IN_LAYER:
            return False
        self._ends[id(found.setup.trial)] = replace(ended, error=ended.error.times(left / found.error))
        self._over, self._from_start, self.target = end, left, max(self.target, left)
        return True

    def _diffuses(self, name: str) -> bool:
        """Whether a field of first order in time diffuses by an equation."""
        own = {(name, (self._time,)), (name, (self._space, self._space))}
        first = self._problem.order(name, self._time) == 1
        return first and any(own <= set(self._problem.system.asked(term)) for term in self._equations)

    def _resolved(self, begin: float, end: float, before: DiscreteProblem | None) -> _SlabTried:
        """The window on as many elements as it takes, or as are worth it."""
        found, earlier = self._tried(self._mesh, begin, end, before), None
        for _ in range(_REFINEMENTS):
            if self.log.stopped or found.reached <= self.target or not found.solved:
                return found
            if earlier is not None and found.in_space > _worth(earlier.mesh.count, found.mesh.count) * earlier.in_space:
                return self._as_good_as_it_gets(earlier)
            if found.in_space < _IN_SPACE * found.reached:
                return found
            widths = np.diff(found.mesh.breaks)
            coarse = (found.shares > _LOCAL * self.target) & (widths > _NARROWEST * widths.sum())
            if not coarse.any() or found.mesh.count + coarse.sum() > _MOST:
                return self._as_good_as_it_gets(found)
            mesh, earlier = found.mesh.split(coarse), found
            found = self._tried(mesh, begin, end, before)
        return found

    def _as_good_as_it_gets(self, found: _SlabTried) -> _SlabTried:
        if found.reached <= self.accepted:
            self.target = max(self.target, GIVE_WAY * found.reached)
        return found

    def _tried(self, mesh: PiecewiseBasis, begin: float, end: float, before: DiscreteProblem | None) -> _SlabTried:
        slab = self._slab(mesh, begin, end, before)
        places, quadrature = gauss(math.ceil(_QUADRATURE * (self._degree + 1)))
        inside, ends = self._sites(mesh, places)
        made = partial(ElementPreconditioner, quadrature)
        solved, error, own = self._solved(slab, [*inside, *ends], made, _TOLERANCE, before, self._guess(slab))
        if solved.converged:
            self._found = mesh, solved.rates[-1]
        setup = self._handed_on(slab, solved, before, error)
        whole, by_element = math.inf, np.full(mesh.count, math.inf)
        if solved.converged:
            whole, by_element = self._judged(slab, solved, before)
        in_space = float(np.sqrt(by_element**2 @ np.diff(mesh.breaks) / np.diff(mesh.breaks).sum()))
        self._record(begin, solved, whole)
        fraction, reached = self._fraction(begin, end), self._counted(whole, begin, end)
        if self._from_start:
            # Windows may add as much as the first one did, by chance with all signs.
            reached = min(reached, own["added"] * math.sqrt(self._duration / (end - begin)))
        left = self._relative(error)
        return _SlabTried(setup, mesh, solved.converged, whole, reached, fraction * in_space, fraction * by_element, left)

    def _beside(
        self, slab: Slab[Any], sites: Sequence[Site], solved: SlabRates, between: Sequence[Evaluated]
    ) -> dict[str, Any]:
        """What a window adds to the relative error, where that is judged in place of residuals."""
        if not (solved.converged and self._from_start):
            return {"added": math.inf}
        nothing = tuple(map(torch.zeros_like, slab.starts))
        error, rates = driven(slab, solved, self._sources(slab, solved, between), nothing)
        return {"added": self._largest(self._mean_squares(error, rates), self._mean_squares(slab, solved.rates))}

    def _everywhere(self, mesh: PiecewiseBasis) -> list[tuple[Trace, Tensor]]:
        places, quadrature = gauss(self._degree + 3)
        shares = (mesh.half / mesh.half.sum())[:, None] * (quadrature / 2)
        return [(mesh.inside(places, 0), shares.expand(len(self._orders), -1, -1))]

    def _onto(self, mesh: PiecewiseBasis, other: PiecewiseBasis, ends: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return ends if other is mesh else tuple(mesh.transferred(other, each) for each in ends)

    def _guess(self, slab: Slab[PiecewiseBasis]) -> Tensor | None:
        """Rates to begin with: fields without a time derivative, whose rates are their values, are as they were found last."""
        if self._found is None or all(self._orders):
            return None
        mesh, last = self._found
        before = last if mesh is slab.mesh else slab.mesh.transferred(mesh, last)
        return torch.stack(
            [slab.zero()[:, k] if order else before[k].expand(slab.stages.count, -1) for k, order in enumerate(self._orders)],
            dim=1,
        )

    def _starts(self, mesh: PiecewiseBasis, begin: float, before: DiscreteProblem | None) -> tuple[Tensor, ...]:
        at, (places, quadrature) = chebyshev_places(self._degree + 1), gauss(self._degree + 6)
        x, between = mesh.inside(at, 0).x, mesh.inside(places, 0)
        wanted = self._start_values([x.flatten()], begin, before)
        checked = self._start_values([between.x.flatten()], begin, before)
        starts = []
        for name, order, unit in zip(self._problem.fields, self._orders, self._units, strict=True):
            if not order:
                starts.append(x.new_zeros(0, mesh.width))
                continue
            values, true = (
                torch.stack([found[name, power].view_as(like) for power in range(order)])
                for found, like in ((wanted, x), (checked, between.x))
            )
            weights = mesh.interpolated(values)
            misfit = between.jet(mesh.local(weights), ()) - true
            if float(misfit.abs().max()) > _ROUGH * unit:
                weights = mesh.fitted(true, places, quadrature)
            starts.append(weights)
        return tuple(starts)

    def _sites(self, mesh: PiecewiseBasis, places: Tensor) -> tuple[list[Site], list[Site]]:
        """Where equations and conditions are taken, in their natural sizes."""
        scales = self.setup.scales
        everywhere = mesh.inside(places, self._highest)
        inside = [Site(term, (everywhere,), 1 / scales[term.name]) for term in self._equations]
        ends = []
        for term in self._conditions:
            factor = 1 / scales[term.name]
            if isinstance(term.place, Opposite):
                pair = mesh.end(upper=False, highest=self._highest), mesh.end(upper=True, highest=self._highest)
                ends.append(Site(term, pair, factor))
                continue
            assert isinstance(term.place, OnFaces)
            for face in term.place.faces:
                assert isinstance(face, Face)
                trace = mesh.end(upper=face.side == "upper", highest=self._highest)
                ends.append(Site(term, (trace,), factor, outward(self._problem, face, 1)))
        return inside, ends

    def _judged(self, slab: Slab[PiecewiseBasis], solved: SlabRates, before: DiscreteProblem | None) -> tuple[float, Array]:
        """The largest relative residual of any term between the stages, and in each element what is not of time's making."""
        mesh = slab.mesh
        places, quadrature = gauss(self._degree + 3)
        inside, ends = self._sites(mesh, places)
        spread = mesh.half / mesh.half.sum()

        def squares(evaluated: Evaluated) -> Tensor:
            return (evaluated.values.square() @ (quadrature / 2)).mean(0)

        judged = slab.evaluate([*inside, *ends], solved.rates, slab.stages.between)
        sizes = [spread @ squares(each) for each in judged[: len(inside)]]
        sizes += [each.values.square().mean() for each in judged[len(inside) :]]
        local = [squares(each) for each in slab.evaluate(inside, solved.rates)]
        for misfit in self._misfits(mesh, slab.starts, slab.begin, before).values():
            local.append(misfit)
            sizes.append(spread @ misfit)
        worst = float(torch.stack(sizes).max().sqrt())
        return worst if math.isfinite(worst) else math.inf, torch.stack(local).amax(0).sqrt().numpy()

    def _lost(self, slab: Slab[PiecewiseBasis], before: DiscreteProblem) -> tuple[Tensor, ...]:
        ended = self._ended(before)
        same = ended is not None and ended.mesh is slab.mesh
        return super()._lost(slab, before) if same else self._lacking(slab, before)

    def _lacking(self, slab: Slab[PiecewiseBasis], before: DiscreteProblem | None = None) -> tuple[Tensor, ...]:
        # As large as what is missed there, and not as the start: what is next to nothing ahead of a front may grow.
        mesh, misfits = slab.mesh, self._misfits(slab.mesh, slab.starts, slab.begin, before)
        up, found = (1 + chebyshev_places(self._degree + 1)) / 2, []
        for name, starts, unit in zip(self._problem.fields, slab.starts, self._units, strict=True):
            if not len(starts):
                found.append(starts)
                continue
            missed = ROUNDING + torch.stack([misfits[name, power] for power in range(len(starts))]).sqrt()
            sides = torch.nn.functional.pad(missed, (1, 0)).maximum(torch.nn.functional.pad(missed, (0, 1)))[..., None]
            found.append(unit * mesh.interpolated(sides[:, :-1] * (1 - up) + sides[:, 1:] * up))
        return tuple(found)

    def _misfits(
        self, mesh: PiecewiseBasis, starts: tuple[Tensor, ...], begin: float, before: DiscreteProblem | None
    ) -> dict[tuple[str, int], Tensor]:
        """For every field and derivative at the start the mean square of what the elements miss, in each of them."""
        places, quadrature = gauss(self._degree + 3)
        trace, found = mesh.inside(places, 0), {}
        for (name, power), wanted in self._start_values([trace.x.flatten()], begin, before).items():
            number = self._problem.fields.index(name)
            values = trace.jet(mesh.local(starts[number][power]), ())
            found[name, power] = ((values - wanted.view_as(values)) / self._units[number]).square() @ (quadrature / 2)
        return found

    def _resolving_start(self, begin: float) -> PiecewiseBasis:
        """Elements as narrow as the initial values ask for: where they jump, the jump's place is all that matters."""
        mesh, limit = self._mesh, _ROUGH_START
        while True:
            misfits = self._misfits(mesh, self._starts(mesh, begin, None), begin, None)
            widths = np.diff(mesh.breaks) / np.diff(mesh.breaks).sum()
            missed = torch.stack([*misfits.values()]).amax(0).sqrt().numpy() * np.sqrt(widths)
            if missed.max() <= _ROUGH_START:
                # Where nothing jumps, which would leave something everywhere, to more digits.
                limit = _SMOOTH_START
            coarse = (missed > limit) & (widths > _NARROWEST)
            if not coarse.any() or mesh.count + coarse.sum() > _MOST:
                return mesh
            mesh = mesh.split(coarse)

    def _model(self, slab: Slab[PiecewiseBasis], rates: Tensor, offset: Tensor) -> PiecewisePolynomial:
        mesh, whole, weights = slab.mesh, self._problem, slab.in_time(rates)
        low, high = whole.domain.bounds[self._space]
        inner = 2 * (mesh.breaks[1:-1] - low) / (high - low) - 1
        breaks, degrees = [[-1.0, *inner.tolist(), 1.0]], [mesh.degree]
        column = whole.coordinates.index(self._time)
        breaks.insert(column, [-1.0, 1.0])
        degrees.insert(column, weights.shape[1] - 1)
        model = PiecewisePolynomial(breaks, degrees, len(weights))
        coefficients = mesh.coefficients(weights).permute(2, 0, 1, 3)
        coefficients[:, :, 0, 0] -= offset.to(coefficients)
        coefficients /= self.setup.trial.scale.to(coefficients)[:, None, None]
        # Of the products' degrees that in time comes first here.
        coefficients = coefficients if column == 0 else coefficients.mT
        model.coefficients.copy_(coefficients.unsqueeze(column))
        return model


def _worth(before: int, after: int) -> float:
    """What fraction of a residual may be left by more elements: the more of them, the less."""
    if after <= _MANY:
        return _USELESS
    return max(_DOUBLED, 1 - (1 - _DOUBLED) * (after - before) / before)

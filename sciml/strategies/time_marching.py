"""Time marching: a problem solved in windows of time, each begun from the end of the one before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml.errors import SolverError
from sciml.geometry import (
    At,
    Average,
    Face,
    OnFaces,
    Opposite,
    default_count,
    default_face_count,
    draw,
)
from sciml.jets.calculus import describe
from sciml.models import MLP, Scaled, Windowed
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.observations import Observation
from sciml.solvers import DiscreteProblem
from sciml.solvers.discrete_problem import CONDITION_WEIGHT, blocks_of, independent_sets
from sciml.solvers.scaling import Sizes, field_sizes, term_sizes
from sciml.typing import Array

_SMALLEST = 1e-3
_MOST_WINDOWS = 1000
_MOST_MISSES = 40
# Windows that are a while; how many times as many as there may be would be needed where nothing goes on.
_A_WHILE, _HARDLY = 16, 4
_SHORTER = 0.75
_LONGER = 1.25
# A last window may be longer by so much; windows up to so many from the end are made equal.
_MORE, _EQUAL = 0.2, 12
_RELAXED = 3.0
_HELD = 4096
_BACK = 0.1
# Doublings of a solution before it is said to blow up, each in such a part of the time of the one before at most; at how many
# places, and at how many edges, it is looked at.
_DOUBLINGS, _SOONER, _PROBES, _LATEST = 3, 0.8, 1024, 64
# The relative residual of a window after which nothing goes on.
HOPELESS = 1e-2


@dataclass(frozen=True)
class Windows:
    """Solve a time-dependent problem in windows of time, each with a model of its own.

    Long times, sharp features that move and stiff transients are hard for one model and easy for several. A window begins from
    the values (and time derivatives, where the equations are of second order in time) at the end of the one before, and its
    model from that of the one before, continued in time. The windows' functions are joined to rounding.

    Args:
        count: the number of windows, of equal length.

    Raises:
        SolverError: not a positive whole number.

    Example:
        >>> import sciml
        >>> sciml.Windows(10).count
        10
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise SolverError(f"Windows needs a positive number of windows; given: {self.count!r}")


@dataclass(frozen=True)
class Marched:
    """Windows that were solved: their set-ups and edges, the largest relative residual on held-out rows of any, and whether
    they reach the end of time.

    ``failed`` counts those that missed the target; ``escalated`` are the times at which the next method took over;
    ``interrupted`` is whether Ctrl-C ended it between two windows.
    """

    setups: tuple[DiscreteProblem, ...]
    edges: tuple[float, ...]
    worst: float
    complete: bool
    failed: int = 0
    escalated: tuple[float, ...] = ()
    interrupted: bool = False

    def then(self, later: Marched) -> Marched:
        """These windows, and later ones that begin where they end."""
        return replace(
            later,
            setups=self.setups + later.setups,
            edges=self.edges[:-1] + later.edges,
            worst=max(self.worst, later.worst),
            failed=self.failed + later.failed,
            escalated=self.escalated + later.escalated,
        )


def not_in_windows(problem: Problem, measured: bool) -> str | None:
    """Why a problem cannot be solved in windows of time, or None when it can."""
    if problem.time is None or problem.time not in problem.coordinates:
        return "it has no time coordinate"
    if Face(problem.time, "lower") not in problem.domain.sides:
        return f"its domain {problem.domain!r} is not a product with an interval of time"
    if problem.unknowns or measured:
        return "its unknowns or measurements tie all times together"
    ties = []
    for term in problem.terms():
        faces = term.place.faces if isinstance(term.place, OnFaces) else ()
        if isinstance(term.place, At | Average) and not term.place.at_each(problem.coordinates, problem.time):
            return f"the condition {term.name!r} is about other times than the start"
        if Face(problem.time, "upper") in faces or term.place == Opposite(problem.time):
            ties.append(term.name)
        if Face(problem.time, "lower") in faces and len(faces) > 1:
            return f"the condition {term.name!r} joins the start of time with other faces: use Initial for the start"
    if ties:
        return f"the condition {ties[0]!r} ties the end of time to its start"
    start = OnFaces((Face(problem.time, "lower"),))
    given = sum(term.place == start for term in problem.terms())
    needed = sum(problem.order(field, problem.time) for field in problem.fields)
    return None if given >= needed > 0 else "the start of time is not given for every field"


def window(
    setup: DiscreteProblem,
    model: nn.Module,
    begin: float,
    end: float,
    before: DiscreteProblem | None,
    inside: int | None,
    seed: int,
) -> DiscreteProblem:
    """The set-up of one window."""
    problem, time = setup.problem, str(setup.problem.time)
    sub = problem.on(problem.domain.between(time, begin, end))
    start = OnFaces((Face(time, "lower"),))
    terms = tuple(term for term in sub.terms() if before is None or term.place != start)
    device, dtype = setup.trial.offset.device, setup.trial.offset.dtype

    def blocks(count: int, generator: np.random.Generator) -> tuple[Collocation, ...]:
        drawn = [block.to(device, dtype) for block in blocks_of(sub, terms, count, generator, setup.pulses)]
        if before is not None:
            sample = draw(start, sub.domain, default_face_count(sub.domain, count), generator).to(device, dtype)
            drawn.append(Collocation(sample, _start_terms(before, sub, start, sample.points[0])))
        return tuple(drawn)

    generator = np.random.default_rng([seed, 3])
    count = inside or default_count(sub.domain)
    # Layers that move take up a small part of a window: few points would miss them.
    judges = max(_HELD if len(sub.coordinates) > 1 else 0, default_count(sub.domain))
    train, held = blocks(count, generator), blocks(judges, generator)
    on_cpu = [block.to(torch.device("cpu"), torch.float64) for block in train]
    sizes = _sizes(sub, on_cpu, setup, before)
    scales = term_sizes(sub, on_cpu, sizes)
    trial = Scaled(model, sub.domain.lower, sub.domain.upper, *zip(*sizes.values(), strict=True)).to(device, dtype)
    # What takes the place of the initial conditions counts as much as they did.
    initial = [setup.weights[term.name] for term in sub.terms() if term.place == start and term.name in setup.weights]
    weights = {name: setup.weights.get(name, max(initial, default=CONDITION_WEIGHT)) for name in scales}
    return setup.with_trial(
        trial,
        problem=sub,
        train=train,
        held=held,
        scales=scales,
        weights=weights,
        leading=weights,
        draw=blocks,
    )


def _start_terms(before: DiscreteProblem, sub: Problem, start: OnFaces, points: Tensor) -> tuple[Term, ...]:
    """Fields, and their time derivatives below the highest, equal those of the window before."""
    time = str(sub.time)
    asked = [(field, (time,) * power) for field in sub.fields for power in range(sub.order(field, time))]
    supplier = before.rows.supplier(points)
    return tuple(
        Term(f"start.{describe(*pair)}", start, Observation(pair[0], values, pair[1]), pair[0] if not pair[1] else None)
        for pair, values in ((pair, supplier.jet(*pair).detach()) for pair in asked)
    )


def _sizes(sub: Problem, blocks: Sequence[Collocation], setup: DiscreteProblem, before: DiscreteProblem | None) -> Sizes:
    """The fields' sizes at the start of a window, but never a tiny fraction of what they were before."""
    if before is None:
        return setup.sizes
    earlier = zip(field_sizes(sub, blocks).items(), before.trial.scale.tolist(), strict=True)
    return {name: (centre, max(size, _SMALLEST * old)) for (name, (centre, size)), old in earlier}


def continued(before: Scaled, after: Scaled) -> None:
    """Give a window's network the function of the one before, continued in time."""
    after.model.load_state_dict(before.model.state_dict())
    if not isinstance(after.model, MLP):
        return
    first, last = after.model.layers[0], after.model.layers[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.bias.add_(first.weight @ ((after.center - before.center) / before.half_width))
        first.weight.mul_(after.half_width / before.half_width)
        ratio = before.scale / after.scale
        last.weight.mul_(ratio[:, None])
        last.bias.copy_(last.bias * ratio + (before.offset - after.offset) / after.scale)


def joined(setup: DiscreteProblem, marched: Marched, points: Any, seed: int) -> DiscreteProblem:
    """The set-up of the problem with the windows' functions as its trial function, up to the time that they reach."""
    problem, time = setup.problem, str(setup.problem.time)
    order = max(1, *(problem.order(field, time) for field in problem.fields))
    trials = [each.trial for each in marched.setups]
    trial = Windowed(marched.edges, trials, problem.coordinates.index(time), order).to(setup.trial.offset)
    if marched.complete:
        return setup.with_trial(trial)
    # Beyond it windows only continue: nothing is judged there, and who asks for values there is warned.
    reached = problem.on(problem.domain.between(time, marched.edges[0], marched.edges[-1]))
    sets, implied = independent_sets(reached, points, seed, setup.pulses)
    sets[-1] += implied
    train, held, fresh = (tuple(block.to(trial.edges.device, setup.trial.offset.dtype) for block in blocks) for blocks in sets)
    return setup.with_trial(trial, problem=reached, train=train, held=held, fresh=fresh)


def blow_up_time(problem: Problem, trial: Windowed) -> float | None:
    """About when the solution of windows becomes infinite (finite-time blow-up); None where nothing says that it does.

    Before a blow-up by a power of the time that is left, each doubling takes a certain part of the time of the one before, and
    the sum of those to come is finite. Where growth is exponential they all take as long.
    """
    points, within = problem.domain.inside(np.random.default_rng(0).random((_PROBES, len(problem.coordinates))))
    at, times = torch.from_numpy(points[within]).to(trial.edges), trial.edges[-_LATEST:].tolist()
    found = list[Array]()
    for edge in times:
        at[:, trial.column] = edge
        with torch.no_grad():
            found.append(trial(at).abs().amax(0).numpy(force=True))
    return min(filter(None, (_singular_at(times, own) for own in np.stack(found, axis=1))), default=None)


def _singular_at(times: Sequence[float], sizes: Array) -> float | None:
    """Where the doublings of a size end; None where it does not grow from time to time, or not faster and faster."""
    small = np.flatnonzero(2.0**_DOUBLINGS * sizes <= sizes[-1])
    if not len(small):
        return None
    times, sizes = times[small[-1] :], sizes[small[-1] :]
    if not (np.isfinite(sizes).all() and sizes[0] > 0 and (np.diff(sizes) > 0).all()):
        return None
    halves = math.log(sizes[-1]) - math.log(2.0) * np.arange(_DOUBLINGS, -1, -1)
    took = np.diff(np.interp(halves, np.log(sizes), times))
    shares = took[1:] / took[:-1]
    return float(times[-1] + took[-1] * shares[-1] / (1.0 - shares[-1])) if (shares <= _SOONER).all() else None


def _still_needed(edges: Sequence[float], residuals: Sequence[float], target: float, end: float) -> float:
    """How many windows it takes to the end where they have not become longer for a while, most of which missed the target.

    In a layer windows are short as well, but meet the target, and grow after it: then it is none.
    """
    if len(residuals) < _A_WHILE or 2 * sum(each > target for each in residuals[-_A_WHILE:]) <= _A_WHILE:
        return 0.0
    last, before = edges[-1] - edges[-2], edges[-_A_WHILE] - edges[-_A_WHILE - 1]
    return (end - edges[-1]) / last if last <= 2 * before else 0.0


Attempt = Callable[[float, float, DiscreteProblem | None], tuple[DiscreteProblem, float]]


@dataclass(frozen=True)
class WindowMethod:
    """A way to solve windows, with the first, shortest and longest length to use it at, as shares of the whole time.

    ``longer`` tells by how much the next window may be longer; then lengths are those of others times powers of two, so that
    factors can be kept from window to window.
    ``target`` tells the relative residual to choose lengths for, if not that of the march; ``accepted`` one that is still good
    enough where the shortest length misses the target. ``in_vain`` tells whether shorter ones would miss it by as much, so that
    the next method takes over at once, or the march ends. ``again`` tells whether a march that has ended may come farther in
    another turn. ``name`` says what solves the windows.
    """

    attempt: Attempt
    first: float
    shortest: float
    longest: float = 1.0
    target: Callable[[], float] | None = None
    accepted: float = 0.0
    longer: Callable[[], float] | None = None
    in_vain: Callable[[], bool] = lambda: False
    again: Callable[[], bool] = lambda: False
    name: str = ""


def march(
    setup: DiscreteProblem,
    methods: Sequence[WindowMethod],
    *,
    target: float,
    ended: Callable[[float], bool],
    hopeless: float = HOPELESS,
) -> Marched:
    """Solve window after window, their lengths chosen by the residual on held-out rows.

    A window whose residual misses the target is halved, down to the shortest; there the next method takes over, and on the last
    method the window stays as it is. A method that turns out to miss by more than the one below did gives the march back, which
    then aims for what can be had. A window far below the target is followed by a longer one. ``ended`` says whether the last
    window, which began at the time that it is given, is the last one.
    """
    begin, end = setup.problem.domain.bounds[str(setup.problem.time)]
    whole = end - begin
    edges: list[float] = [begin]
    residuals: list[float] = []
    setups: list[DiscreteProblem] = []
    method, interrupted, tried = 0, False, 0
    escalated: list[float] = []
    length, ceiling = methods[0].first * whole, math.inf
    missed, relaxed = [math.inf] * len(methods), [0.0] * len(methods)
    while edges[-1] < end:
        at = edges[-1]
        # In the middle of a pulse, which a longer window may step over, and at a jump one ends.
        goal = min([each for each in setup.stops if at < each < end], default=end)
        stop = at + length
        if stop > goal - _MORE * length:
            stop = goal
        try:
            found, reached = methods[method].attempt(at, stop, setups[-1] if setups else None)
        except KeyboardInterrupt:
            if not setups:
                raise
            interrupted = True
            break
        over, shortest = ended(at), methods[method].shortest * whole
        needed = _still_needed(edges, residuals, target, end)
        if needed > _MOST_WINDOWS and method + 1 < len(methods):
            # At such a pace it would not arrive: what takes over may.
            shortest = max(shortest, (end - at) / _MOST_WINDOWS)
        elif needed > _HARDLY * _MOST_WINDOWS:
            break
        own = methods[method].target
        aim = max(target if own is None else own(), relaxed[method])
        if reached > aim and not over:
            tried += 1
            ceiling = _SHORTER * (stop - at)
            vain = methods[method].in_vain()
            if length > 1.01 * shortest and tried < _MOST_MISSES and not vain:
                length = max(0.5 * min(length, stop - at), shortest)
                continue
            missed[method] = reached
            up = method + 1 < len(methods) and reached > methods[method].accepted and not relaxed[method]
            down = method > 0 and escalated[-1] == at and missed[method - 1] < reached
            if up or down:
                if up and not escalated:
                    # The method below was at its limit for a while: what it left is hard to begin with.
                    while setups and edges[-1] > at - _BACK * whole:
                        del edges[-1], setups[-1], residuals[-1]
                    at = edges[-1]
                escalated = [*escalated, at] if up else escalated[:-1]
                method += 1 if up else -1
                if down:
                    relaxed[method] = _RELAXED * missed[method]
                length, ceiling = methods[method].first * whole, math.inf
                tried = 0
                continue
        if over and reached > aim:
            # Somebody wanted the end before this window was solved.
            if setups:
                break
            # The first one, which may be shorter than what was asked for.
            stop = found.problem.domain.bounds[str(setup.problem.time)][1]
        tried = 0
        edges.append(stop)
        # Points are needed no more: the jets kept for them would fill the memory window after window.
        setups.append(replace(found, train=(), held=(), fresh=()))
        residuals.append(reached)
        if over or reached > hopeless or len(setups) >= _MOST_WINDOWS:
            break
        gain = 2.0**10 if reached == 0 else aim / reached
        tell = methods[method].longer
        gained = min(2.0, max(1.0, gain**0.1))
        length = (stop - at) * (gained if tell is None else 2.0 ** math.floor(math.log2(tell())))
        # A length that was too long a moment ago is tried again by and by, sooner where far more is met than has to be.
        ceiling = ceiling if tell is None else math.inf
        length, ceiling = min(length, max(ceiling, stop - at), methods[method].longest * whole), max(_LONGER, gained) * ceiling
        pieces = math.ceil((goal - stop) / length - _MORE)
        if tell is not None and length > 1.01 * (stop - at) and 1 < pieces <= _EQUAL:
            # The last ones are of one length: what was made for one serves all.
            length = (goal - stop) / pieces
    worst, failed = max(residuals, default=0.0), sum(each > target for each in residuals)
    return Marched(tuple(setups), tuple(edges), worst, edges[-1] >= end, failed, tuple(escalated), interrupted)

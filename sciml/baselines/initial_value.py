"""Initial-value problems of ordinary differential equations: integration, shooting, algebraic equations and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sciml._text import listed
from sciml.baselines.evolution import evolve
from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.integrate import Budget, integrate
from sciml.baselines.task import Solved, Task, unestimated
from sciml.errors import BaselineError, ProblemError
from sciml.geometry import Face, OnFaces
from sciml.jets.calculus import check_names, describe
from sciml.models import Grid, PiecewisePolynomial, hermite
from sciml.problem import Dirichlet, Initial, Problem
from sciml.problem.functions import argument_names
from sciml.problem.observations import Observation
from sciml.typing import Array

_STEP = 1e-4
_MOST_EXPLICIT, _MOST_KNOTS = 20_000, 100_000


def is_initial_value_problem(problem: Problem) -> bool:
    """Whether it has one coordinate, and nothing is prescribed but at its start."""
    if len(problem.coordinates) != 1:
        return False
    start = problem.domain.bounds[problem.coordinates[0]][0]

    def at_start(place: object) -> bool:
        return isinstance(place, OnFaces) and all(
            isinstance(face, Face) and face.value(problem.domain) == start for face in place.faces
        )

    return all(
        isinstance(condition, Initial)
        or (type(condition) is Dirichlet and all(at_start(term.place) for term in condition.terms(problem)))
        for condition in problem.conditions
    )


def solve_initial(task: Task) -> Solved:
    """Integrate an initial-value problem, or fit it to measurements by shooting."""
    problem, events = task.problem, task.events
    check_events(problem, events)
    (coordinate,) = problem.coordinates
    algebraic = [name for name in problem.fields if problem.order(name, coordinate) == 0]
    if algebraic and problem.equations and len(algebraic) < len(problem.fields) and problem.time is not None:
        return _with_algebraic(task)
    system = FirstOrderSystem(problem)
    rtol = max(1e-3 * task.tolerance, 1e-13)
    choices = (f"integrator tolerance {rtol:g}",)
    if task.measured and (problem.unknowns or set(system.prescribed) != set(system.state)):
        if events:
            raise BaselineError("events are looked for in problems without unknowns to be fitted; bind their values first")
        return replace(_shoot(task, system, rtol), choices=choices)
    _require_initial_values(system)
    constants = task.initial
    start = system.initial(constants, 1)
    functions = [system.event(name, function) for name, function in events.items()]
    path = trajectory(system, start, problem.domain.bounds[coordinate][1], constants, rtol, task.budget, task.method, functions)
    message = "solve_ivp reached the end"
    if constants:
        message += "; there are no measurements, so the unknowns have their initial values"
    rows = [
        {"event": name, coordinate: t} | {field: float(y[system.state.index((field, 0))]) for field in problem.fields}
        for name, (times, states) in zip(events, path.events, strict=False)
        for t, y in zip(times, states, strict=True)
    ]
    happened = pd.DataFrame(rows, columns=["event", coordinate, *problem.fields] if events else None)
    return Solved(
        trial_from(system, path, constants, task.tolerance),
        unestimated(constants),
        len(path.steps) - 1,
        f"solve_ivp ({path.method})",
        message=message,
        choices=choices,
        events=happened.sort_values(coordinate, ignore_index=True) if len(happened) else happened,
    )


def _with_algebraic(task: Task) -> Solved:
    """Differential and algebraic equations together, the latter differentiated once."""
    if task.events or (task.measured and task.problem.unknowns):
        raise BaselineError(
            f"{task.name} has algebraic equations beside its differential ones; such problems are integrated, "
            "without events and without fitting unknowns"
        )
    rtol = max(1e-3 * task.tolerance, 1e-12)
    return replace(
        evolve(task, Grid({}), task.initial, rtol),
        unknowns=unestimated(task.initial),
        message="solve_ivp reached the end; algebraic equations were differentiated once",
        choices=(f"integrator tolerance {rtol:g}",),
    )


def check_events(problem: Problem, events: Mapping[str, Callable[..., Tensor]]) -> None:
    """Refuse events that are no functions of fields and coordinates."""
    if not isinstance(events, Mapping) or not all(callable(each) for each in events.values()):
        raise ProblemError(
            f"events are functions by name, as in events={{'landing': lambda height: height}}; given: {events!r}"
        )
    for name, function in events.items():
        check_names(f"event {name!r}", argument_names(function), problem.fields, problem.coordinates)


def _require_initial_values(system: FirstOrderSystem) -> None:
    missing = [
        describe(field, (system.coordinate,) * order)
        for field, order in system.state
        if (field, order) not in system.prescribed
    ]
    if missing:
        raise BaselineError(
            f"{type(system.problem).__name__} has no initial value for {listed(missing)}, and no data to find it by: add "
            f"sciml.Initial({missing[0]}=...), or pass data"
        )


@dataclass(frozen=True)
class Trajectory:
    """An integrated batch: SciPy's dense output, its steps, the method, and times and states of each event."""

    dense: Callable[[Array], Array]
    steps: Array
    method: str
    events: tuple[tuple[Array, Array], ...]


def trajectory(
    system: FirstOrderSystem,
    start: Array,
    end: float,
    constants: Mapping[str, Tensor],
    rtol: float,
    budget: Budget,
    chosen: str = "auto",
    events: list[Callable[[float, Array], float]] | None = None,
    begin: float | None = None,
    **options: Any,
) -> Trajectory:
    """Integrate a batch of states ``(len(system.state), n)`` together, with the same steps for all of them.

    It begins where the domain does, unless ``begin`` is given. ``options`` are those of SciPy's methods.
    """
    rows, size = start.shape

    def batch(t: float, y: Array) -> tuple[Array, Array, dict[str, Tensor]]:
        count = 1 if y.ndim == 1 else y.shape[1]
        repeated = {name: value.repeat_interleave(count) if value.ndim else value for name, value in constants.items()}
        return np.full(size * count, t), y.reshape(rows, size * count), repeated

    begin = system.problem.domain.bounds[system.coordinate][0] if begin is None else begin
    integrated = partial(
        integrate,
        lambda t, y: system.rate(*batch(t, y)).reshape(y.shape),
        start,
        (begin, end),
        rtol,
        budget,
        chosen,
        coordinate=system.coordinate,
        most=_MOST_EXPLICIT,
        reason=lambda t, y: system.why_not_finite(*batch(t, y)),
        implicit={"vectorized": True},
        events=events or None,
        stops=system.stops,
        **options,
    )
    result, method = integrated()
    if not system.confirmed(np.tile(result.t, size), *batch(0.0, result.y)[1:]):
        result, method = integrated()
    found = tuple(zip(result.t_events, result.y_events, strict=True)) if events else ()
    return Trajectory(lambda t: result.sol(t).reshape(rows, size, len(t)), result.t, method, found)


def trial_from(
    system: FirstOrderSystem, path: Trajectory, constants: Mapping[str, Tensor], tolerance: float
) -> PiecewisePolynomial:
    """The first path of a batch as a piecewise polynomial, with knots until it is as exact as the integration."""
    fields = [system.state.index((name, 0)) for name in system.orders]
    pieces = 2
    while True:
        knots = np.interp(np.arange(pieces * (len(path.steps) - 1) + 1) / pieces, range(len(path.steps)), path.steps)
        states = path.dense(knots)[:, 0]
        rates = system.rate(knots, states, constants)
        # Each field and its derivatives up to the highest, which is the rate of change of the last of its states.
        jets = [
            np.vstack([states[row : row + order], rates[row + order - 1]])
            for row, order in zip(fields, system.orders.values(), strict=True)
        ]
        trial = hermite(torch.from_numpy(knots), [torch.from_numpy(each) for each in jets])
        between = (knots[1:] + knots[:-1]) / 2
        gap = np.abs(trial(torch.from_numpy(between[:, None])).numpy().T - path.dense(between)[fields, 0])
        size = np.array([[np.abs(each[0]).max()] for each in jets])
        if (gap <= 0.1 * tolerance * np.where(size > 0, size, 1.0)).all() or len(knots) > _MOST_KNOTS:
            return trial
        pieces *= 2


def _shoot(task: Task, system: FirstOrderSystem, rtol: float) -> Solved:
    """Fit the unknowns, and initial values that no condition prescribes, to measurements.

    The trajectory and its central differences by every fitted number are integrated as **one** system, with common steps, so
    that the differences are smooth.
    """
    problem, blocks = task.problem, task.measured
    free = [row for row, key in enumerate(system.state) if key not in system.prescribed]
    guess = np.array([_first_value(task, system, row) for row in free])
    spread = np.where(guess != 0, np.abs(guess), 1.0)
    end = max(problem.domain.bounds[system.coordinate][1], *(float(each.sample.points[0].max()) for each in blocks))
    split = len(problem.unknowns)

    def paths(batch: Array) -> Trajectory:
        constants = task.values(batch)
        state = system.initial(constants, batch.shape[1])
        state[free] = guess[:, None] + spread[:, None] * batch[split:]
        return trajectory(system, state, end, constants, rtol, task.budget, task.method)

    def misfits(batch: Array) -> Array:
        path, count, parts = paths(batch), batch.shape[1], []
        for block in blocks:
            times = block.sample.points[0][:, 0].numpy()
            states = path.dense(times).reshape(len(system.state), -1)
            values = {name: value.repeat_interleave(len(times)) for name, value in task.values(batch).items()}
            evaluation = system.evaluation(np.tile(times, count), states, values)
            for term in block.terms:
                evaluate: Any = term.evaluate
                if isinstance(evaluate, Observation):
                    evaluate = evaluate.part(torch.arange(len(times)).repeat(count))
                parts.append(evaluate(evaluation).detach().numpy().reshape(count, -1) / task.scales[term.name])
        return np.concatenate(parts, axis=1)

    @lru_cache(maxsize=1)
    def rows_and_slopes(numbers: tuple[float, ...]) -> tuple[Array, Array]:
        """The rows and their central differences by every number, from one batch."""
        count = len(numbers)
        shifts = np.concatenate([np.zeros((count, 1)), _STEP * np.eye(count), -_STEP * np.eye(count)], axis=1)
        rows = misfits(np.array(numbers)[:, None] + shifts)
        return rows[0], ((rows[1 : count + 1] - rows[count + 1 :]) / (2 * _STEP)).T

    start = np.concatenate([task.raw, np.zeros(len(free))])
    found, inference = task.fit(lambda x: rows_and_slopes(tuple(x))[0], lambda x: rows_and_slopes(tuple(x))[1], start, 1e-12)
    path = paths(found.x[:, None])
    constants = {name: value[0] for name, value in task.values(found.x[:, None]).items()}
    return Solved(
        trial_from(system, path, constants, task.tolerance),
        inference.estimates,
        int(found.nfev),
        f"least_squares over solve_ivp ({path.method})",
        success=bool(found.success),
        message=f"least_squares: {found.message.lower().rstrip('.')}",
    )


def _first_value(task: Task, system: FirstOrderSystem, row: int) -> float:
    """Where to start a free initial value: at the earliest measurement, if there is one."""
    field, order = system.state[row]
    for block in task.measured:
        for term in block.terms:
            misfit = term.evaluate
            if not isinstance(misfit, Observation) or misfit.function is not None:
                continue
            if (misfit.field, len(misfit.index)) == (field, order):
                return float(misfit.measured[block.sample.points[0][:, 0].argmin()])
    return 0.0 if order else 1.0

"""Ordinary differential equations with initial values: integration, shooting, algebraic equations and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.baselines.evolution import evolve
from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.integrate import Budget, integrate, trial_from
from sciml.baselines.shooting import shoot
from sciml.errors import BaselineError, ProblemError
from sciml.geometry import Face, OnFaces
from sciml.jets.calculus import check_names, describe
from sciml.models import Grid
from sciml.problem import Dirichlet, Initial, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.functions import argument_names
from sciml.uncertainty import Estimate, Inference


@dataclass(frozen=True)
class Found:
    """What any of the ways came to: integration, shooting, grids."""

    trial: nn.Module
    unknowns: dict[str, Estimate]
    success: bool
    message: str
    steps: int
    solver: str
    choices: tuple[str, ...] = ()
    events: pd.DataFrame = field(default_factory=pd.DataFrame)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    inference: Inference | None = None


def is_initial_value_problem(problem: Problem) -> bool:
    """Whether it has one coordinate, and nothing is prescribed but at its start."""
    if len(problem.coordinates) != 1:
        return False
    (coordinate,) = problem.coordinates
    start = problem.domain.bounds[coordinate][0]

    def at_start(place: object) -> bool:
        return isinstance(place, OnFaces) and all(
            isinstance(face, Face) and face.value(problem.domain) == start for face in place.faces
        )

    return all(
        isinstance(condition, Initial)
        or (type(condition) is Dirichlet and all(at_start(term.place) for term in condition.terms(problem)))
        for condition in problem.conditions
    )


def solve_initial(
    problem: Problem,
    blocks: Sequence[Collocation],
    scales: Mapping[str, float],
    method: str,
    tolerance: float,
    budget: Budget,
    events: Mapping[str, Callable[..., Tensor]],
    *,
    known: bool = False,
) -> Found:
    """Integrate an initial-value problem, or fit it to measurements by shooting.

    Args:
        problem: a problem in one coordinate.
        blocks: the measurements, if there are any.
        scales: what each column's misfit is divided by.
        method: ``"auto"`` or a method of ``solve_ivp``.
        tolerance: the relative accuracy aimed at.
        budget: the time that is left.
        events: functions by name whose zeros are recorded.
        known: whether the standard deviation of every column was given.

    Raises:
        BaselineError: the problem cannot be integrated.
    """
    check_events(problem, events)
    (coordinate,) = problem.coordinates
    algebraic = [name for name in problem.fields if problem.order(name, coordinate) == 0]
    if algebraic and problem.equations and len(algebraic) < len(problem.fields) and problem.time is not None:
        return _with_algebraic(problem, bool(blocks), method, tolerance, budget, events)
    system = FirstOrderSystem(problem)
    rtol = max(1e-3 * tolerance, 1e-13)
    if blocks and (problem.unknowns or set(system.prescribed()) != set(system.state)):
        if events:
            raise BaselineError(
                "events are looked for in problems without unknowns to be fitted; bind their values first"
            )
        shot = shoot(system, blocks, scales, rtol, budget, method, known=known)
        solver = f"least_squares over solve_ivp ({shot.trajectory.method})"
        trial = trial_from(system, shot.trajectory, shot.constants, tolerance)
        return Found(
            trial,
            shot.inference.estimates,
            shot.success,
            shot.message,
            shot.steps,
            solver,
            _said(rtol),
            inference=shot.inference,
        )
    _require_initial_values(system)
    constants = {name: torch.tensor(each.initial, dtype=torch.float64) for name, each in problem.unknowns.items()}
    start = system.initial(system.prescribed(), constants, 1)
    end = problem.domain.bounds[coordinate][1]
    functions = [system.event(name, function) for name, function in events.items()]
    trajectory = integrate(system, start, end, constants, rtol, budget, method, functions)
    message = "solve_ivp reached the end"
    if constants:
        message += "; there are no measurements, so the unknowns have their initial values"
    rows = [
        {"event": name, coordinate: t} | {field: float(y[system.state.index((field, 0))]) for field in problem.fields}
        for name, (times, states) in zip(events, trajectory.events, strict=False)
        for t, y in zip(times, states, strict=True)
    ]
    happened = pd.DataFrame(rows, columns=["event", coordinate, *problem.fields] if events else None)
    return Found(
        trial_from(system, trajectory, constants, tolerance),
        {name: Estimate(float(value), np.nan, np.nan, np.nan) for name, value in constants.items()},
        True,
        message,
        len(trajectory.steps) - 1,
        f"solve_ivp ({trajectory.method})",
        _said(rtol),
        happened.sort_values(coordinate, ignore_index=True) if len(happened) else happened,
    )


def _with_algebraic(
    problem: Problem,
    measured: bool,
    method: str,
    tolerance: float,
    budget: Budget,
    events: Mapping[str, Callable[..., Tensor]],
) -> Found:
    """Differential and algebraic equations together, the latter differentiated once."""
    if events or (measured and problem.unknowns):
        raise BaselineError(
            f"{type(problem).__name__} has algebraic equations beside its differential ones; such problems are integrated, "
            "without events and without fitting unknowns"
        )
    rtol = max(1e-3 * tolerance, 1e-12)
    constants = {name: each.initial for name, each in problem.unknowns.items()}
    found = evolve(problem, Grid({}), constants, rtol, budget, method)
    return Found(
        found.function,
        {name: Estimate(value, np.nan, np.nan, np.nan) for name, value in constants.items()},
        True,
        "solve_ivp reached the end; algebraic equations were differentiated once",
        found.steps,
        f"solve_ivp ({found.method})",
        _said(rtol),
    )


def _said(rtol: float) -> tuple[str, ...]:
    return (f"integrator tolerance {rtol:g}",)


def check_events(problem: Problem, events: Mapping[str, Callable[..., Tensor]]) -> None:
    """Refuse events that are no functions of fields and coordinates.

    Raises:
        ProblemError: with the wrong name and the right ones.
    """
    if not isinstance(events, Mapping) or not all(callable(each) for each in events.values()):
        raise ProblemError(
            f"events are functions by name, as in events={{'landing': lambda height: height}}; given: {events!r}"
        )
    for name, function in events.items():
        check_names(f"event {name!r}", argument_names(function), problem.fields, problem.coordinates)


def _require_initial_values(system: FirstOrderSystem) -> None:
    prescribed = system.prescribed()
    missing = [
        describe(field, (system.coordinate,) * order)
        for field, order in system.state
        if (field, order) not in prescribed
    ]
    if missing:
        raise BaselineError(
            f"{type(system.problem).__name__} has no initial value for {listed(missing)}, and no data to find it by: add "
            f"sciml.Initial({missing[0]}=...), or pass data"
        )

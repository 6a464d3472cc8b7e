"""Boundary-value problems and partial differential equations: which grids are tried, and what is made of the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from sciml.baselines.collocation import CollocationSystem, NotFiniteError, Steady
from sciml.baselines.evolution import Evolved, estimated, evolve
from sciml.baselines.integrate import BlowUpError, Budget
from sciml.baselines.refinement import RECOVERABLE, Refinement, check_box, grids, refine
from sciml.diagnostics.well_posedness import lacking
from sciml.errors import BaselineError
from sciml.models import Grid, GridFunction, Knots
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.typing import Array
from sciml.uncertainty import Estimate

FAMILIES = ("chebyshev", "differences")

# Nodes along each coordinate, by the number of coordinates that are gridded.
_SIZES = {
    "chebyshev": {0: (1, 1), 1: (20, 30, 45, 68, 102, 153, 230, 345), 2: (12, 18, 27, 40, 60), 3: (8, 11, 15)},
    "differences": {1: (129, 257, 513, 1025, 2049, 4097, 8193), 2: (33, 65, 129, 257), 3: (13, 25, 49)},
}

_MOST = {
    "chebyshev": {1: 1500, 2: 90, 3: 18},
    "differences": {1: 100_000, 2: 513, 3: 65},
}


@dataclass(frozen=True)
class Outcome:
    """What a family of grids came to."""

    function: GridFunction
    refinement: Refinement
    unknowns: dict[str, Estimate]
    solver: str
    steps: int


def solve_on_grids(
    problem: Problem,
    measured: Sequence[Collocation],
    scales: Mapping[str, float],
    sizes: Array,
    *,
    method: str,
    n: int | None,
    tolerance: float,
    budget: Budget,
    in_time: bool,
    known: bool,
) -> Outcome:
    """Solve on finer and finer grids: polynomials and waves first, then finite differences where these do not agree.

    Args:
        problem: the problem.
        measured: blocks of measurements.
        scales: the natural size of every term.
        sizes: the natural size of every field, ``(F,)``.
        method: ``"auto"``, one of ``FAMILIES``, or a method of ``solve_ivp`` for problems in time.
        n: nodes along each coordinate of the finest grid; None for as many as the tolerance takes.
        tolerance: how closely two grids must agree.
        budget: the time that is left.
        in_time: whether the problem starts somewhere in time.
        known: whether the standard deviation of every measured column was given.

    Raises:
        BaselineError: the problem is not of these kinds, or no grid could be solved.
    """
    names = [name for name in problem.coordinates if not (in_time and name == problem.time)]
    check_box(problem, len(problem.coordinates) - len(names) + (2 if in_time else 3))
    solve = (
        _integrating(problem, measured, scales, method, tolerance, budget, known=known)
        if in_time
        else _steady(problem, measured, scales, sizes, budget, known=known)
    )
    _check_count(n, len(names), method)
    families = [method] if method in FAMILIES else list(FAMILIES) if names else FAMILIES[:1]
    if n is not None and names and method not in FAMILIES and n > _MOST["chebyshev"][len(names)]:
        families = ["differences"]
    best: Refinement | None = None
    failure: BaselineError | None = None
    for family in families:
        counts = _SIZES[family][len(names)] if n is None or not names else (n // 2 + n % 2, n)
        try:
            found = refine(problem, grids(problem, names, family, counts), len(counts), solve, tolerance, sizes, budget)
        except RECOVERABLE as error:
            failure = failure or error
            if budget.spent > budget.seconds or isinstance(error, BlowUpError):
                break
            continue
        if best is None or (found.gaps and (not best.gaps or found.gaps[-1] < best.gaps[-1])):
            best = found
        if best.agreed or budget.spent > budget.seconds or not names:
            break
    if best is None:
        assert failure is not None
        raise failure
    return _outcome(best, names)


def _check_count(n: int | None, dimensions: int, method: str) -> None:
    """Refuse grids that no memory holds.

    Raises:
        BaselineError: with the most that is possible.
    """
    most = _MOST["chebyshev" if method == "chebyshev" else "differences"].get(dimensions, 1)
    if n is not None and n > most:
        raise BaselineError(f"n = {n} nodes along each of {dimensions} coordinate(s) are too many; {most} are possible")


def _outcome(found: Refinement, names: Sequence[str]) -> Outcome:
    solved = found.solved
    if isinstance(solved, Evolved):
        lines = f"method of lines ({_described(solved.function)}), solve_ivp ({solved.method})"
        solver = (
            f"least_squares over {lines}" if solved.unknowns else lines if names else f"solve_ivp ({solved.method})"
        )
        return Outcome(solved.function, found, solved.unknowns, solver, solved.steps)
    assert isinstance(solved, _Fitted)
    return Outcome(
        solved.function,
        found,
        solved.unknowns,
        f"collocation ({_described(solved.function)}), Newton",
        solved.steps,
    )


def _described(function: GridFunction) -> str:
    """What the axes beside time are: ``chebyshev, 48 nodes``."""
    axes = [axis for axis in function.axes if not isinstance(axis, Knots)]
    kinds, sizes = [axis.config["kind"] for axis in axes], [len(axis) for axis in axes]
    return f"{' and '.join(dict.fromkeys(kinds))}, {' x '.join(map(str, sizes))} nodes"


@dataclass(frozen=True)
class _Fitted:
    """A stationary solution with intervals of its unknowns."""

    function: GridFunction
    steady: Steady
    unknowns: dict[str, Estimate]

    @property
    def steps(self) -> int:
        return self.steady.steps


def _steady(
    problem: Problem,
    measured: Sequence[Collocation],
    scales: Mapping[str, float],
    sizes: Array,
    budget: Budget,
    *,
    known: bool,
) -> Callable[[Grid, Any], _Fitted]:
    if len(problem.equations) < len(problem.fields):
        raise BaselineError(
            f"{type(problem).__name__} has {len(problem.equations)} equation(s) for {len(problem.fields)} field(s); as many "
            "are needed"
        )
    if not measured and (missing := lacking(problem)):
        raise BaselineError(f"{type(problem).__name__}: {'; '.join(missing)}")
    raw = np.array([float(each.raw_initial()) for each in problem.unknowns.values()])

    def solve(grid: Grid, before: _Fitted | None) -> _Fitted:
        rows = CollocationSystem(problem if measured else problem.bind_initial(), grid, measured, scales, budget)
        if before is None:
            start = rows.guess()
            if measured and len(raw):
                # Begin with what the constants' first values give: unknowns times a constant field tell nothing.
                forward = CollocationSystem(problem.bind_initial(), grid, [], scales, budget)
                start = forward.solve(np.zeros_like(start), raw[:0]).values
            own = raw if measured else raw[:0]
            try:
                found = rows.solve(start, own)
            except NotFiniteError:
                # Logarithms, roots and quotients know no zero: begin at the size of what is prescribed.
                found = rows.solve(np.tile(sizes[:, None], grid.size), own)
        else:
            with torch.no_grad():
                start = before.function(torch.from_numpy(grid.points)).numpy().T.copy()
            found = rows.solve(start, before.steady.raw)
        return _Fitted(
            found.function, found, rows.intervals(found, known=known) if measured and problem.unknowns else {}
        )

    return solve


def _integrating(
    problem: Problem,
    measured: Sequence[Collocation],
    scales: Mapping[str, float],
    method: str,
    tolerance: float,
    budget: Budget,
    *,
    known: bool,
) -> Callable[[Grid, Any], Evolved]:
    integrator = "auto" if method in FAMILIES else method
    constants = {name: each.initial for name, each in problem.unknowns.items()}
    # Each grid is integrated more tightly than the one before: their difference is that of both errors.
    tolerances = chain([1e-1 * tolerance], _forever(1e-2 * tolerance))

    def solve(grid: Grid, before: Evolved | None) -> Evolved:
        rtol = float(np.clip(next(tolerances), 1e-12, 1e-4))
        if not (measured and problem.unknowns):
            return evolve(problem, grid, constants, rtol, budget, integrator)
        raw = None if before is None else before.raw
        return estimated(problem, grid, list(measured), scales, raw, rtol, budget, integrator, known=known)

    return solve


def _forever(value: float) -> Iterator[float]:
    while True:
        yield value

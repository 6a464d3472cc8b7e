"""Boundary-value problems and partial differential equations on refined grids, by families of bases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat

import numpy as np
import torch

from sciml.baselines.collocation import DENSE, CollocationSystem, NewtonError, NotFiniteError
from sciml.baselines.evolution import estimated, evolve
from sciml.baselines.integrate import BlowUpError
from sciml.baselines.refinement import RECOVERABLE, Refinement, check_domain, described, grids, refine
from sciml.baselines.task import FAMILIES, Solved, Task, unestimated
from sciml.diagnostics.well_posedness import lacking
from sciml.errors import BaselineError
from sciml.geometry import Box
from sciml.models import Grid
from sciml.problem import Problem
from sciml.problem.continuation import shorter
from sciml.typing import Array

# Nodes along each coordinate, by the number of coordinates that are gridded.
_SIZES = {
    "chebyshev": {0: (1, 1), 1: (20, 30, 45, 68, 102, 153, 230, 345), 2: (12, 18, 27, 40, 60), 3: (8, 11, 15)},
    "differences": {1: (129, 257, 513, 1025, 2049, 4097, 8193), 2: (33, 65, 129, 257), 3: (13, 25, 49)},
    "scattered": {2: (24, 34, 48, 68, 96, 136, 192, 272), 3: (10, 14, 20, 28)},
}
# In time explicit methods solve no large system, and of implicit ones the time that is left decides.
_FINER_IN_TIME = {2: (90, 135)}
_MOST = {
    "chebyshev": {1: 1500, 2: 90, 3: 18},
    "differences": {1: 100_000, 2: 513, 3: 65},
    "scattered": {2: 400, 3: 40},
}


def solve_on_grids(task: Task, *, in_time: bool) -> Solved:
    """Solve on finer and finer grids: polynomials and waves first, then finite differences where these do not agree."""
    problem, n, method, budget = task.problem, task.n, task.method, task.budget
    names = [name for name in problem.coordinates if not (in_time and name == problem.time)]
    box = isinstance(problem.domain, Box)
    check_domain(problem, len(problem.coordinates) - len(names) + (2 if in_time and box else 3))
    if not box and method == "chebyshev":
        raise BaselineError(f"{task.name} lives on {problem.domain!r}, where no tensor-product grid lies; use 'differences'")
    solve = _evolving(task) if in_time else _steady(task)
    kind = "chebyshev" if method == "chebyshev" else "differences" if box else "scattered"
    most = _MOST[kind].get(len(names), 1)
    if n is not None and n > most:
        raise BaselineError(f"n = {n} nodes along each of {len(names)} coordinate(s) are too many; {most} are possible")
    families = [method] if method in FAMILIES else list(FAMILIES) if names else FAMILIES[:1]
    if n is not None and names and method not in FAMILIES and n > _MOST["chebyshev"][len(names)]:
        families = ["differences"]
    if not box:
        families = ["scattered"]
    best: Refinement | None = None
    failure: BaselineError | None = None
    for family in families:
        counts = _SIZES[family][len(names)] if n is None or not names else (n // 2 + n % 2, n)
        if n is None and in_time and family == "chebyshev":
            counts += _FINER_IN_TIME.get(len(names), ())
        try:
            found = refine(task, grids(problem, names, family, counts), len(counts), solve)
        except RECOVERABLE as error:
            failure = failure or error
            if budget.exhausted or isinstance(error, BlowUpError):
                break
            continue
        if best is None or (found.gaps and (not best.gaps or found.gaps[-1] < best.gaps[-1])):
            best = found
        if best.agreed or budget.exhausted or not names:
            break
    if best is None:
        assert failure is not None
        raise failure
    return _concluded(task, best, in_time)


def _concluded(task: Task, found: Refinement, in_time: bool) -> Solved:
    """The solution on the finest grid, with what its refinement says."""
    solved, message = found.solved, found.sentence()
    if task.problem.unknowns and not solved.unknowns:
        solved = replace(solved, unknowns=unestimated(task.initial))
        message += "; there are no measurements, so the unknowns have their initial values"
    if task.measured and in_time and not task.problem.unknowns:
        message += "; the measurements were not used, for there is nothing unknown"
    if not found.agreed:
        message += f"; they do not agree to the tolerance {task.tolerance:g}"
    error, grids_tried = found.error if found.gaps else np.nan, found.history()
    return replace(solved, success=found.agreed, message=message, choices=(solved.solver,), history=grids_tried, error=error)


def _steady(task: Task) -> Callable[[Grid, Solved | None], Solved]:
    """What solves a problem without time on a grid, beginning with the solution on the grid before."""
    problem, measured = task.problem, task.measured
    if len(problem.equations) < len(problem.fields):
        raise BaselineError(
            f"{task.name} has {len(problem.equations)} equation(s) for {len(problem.fields)} field(s); as many are needed"
        )
    if not measured and (missing := lacking(problem)):
        raise BaselineError(f"{task.name}: {'; '.join(missing)}")
    bound = problem.bind_initial()

    def solve(grid: Grid, before: Solved | None) -> Solved:
        system = CollocationSystem(problem if measured else bound, grid, measured, task.scales, task.sizes, task.budget)
        raw = np.zeros(0) if not measured else task.raw if before is None or before.raw is None else before.raw
        if before is None:

            def begun(start: Array) -> tuple[Array, int]:
                if len(raw):
                    # Begin with what the constants' first values give: unknowns times a constant field tell nothing.
                    start, _ = CollocationSystem(bound, grid, [], task.scales, task.sizes, task.budget).solve(start)
                return system.solve(np.concatenate([start, raw]))

            start = np.repeat(task.centres, grid.size)
            try:
                if not measured and (continued := _continued(task, bound, grid)) is not None:
                    start = continued
                found, steps = begun(start)
            except NotFiniteError:
                # Logarithms, roots and quotients know no zero: begin at the size of what is prescribed.
                found, steps = begun(np.repeat(task.sizes, grid.size))
        else:
            with torch.no_grad():
                start = before.trial(torch.from_numpy(grid.points)).numpy().T.ravel()
            found, steps = system.solve(np.concatenate([start, raw]))
        raw, unknowns = found[len(start) :], {}
        if len(raw):
            rows, jacobian = system.rows(found)
            unknowns = unestimated(task.values(raw))
            if len(found) <= DENSE:
                full = jacobian.toarray()
                unknowns = task.inference(raw, rows, full[:, : len(start)], full[:, len(start) :]).estimates
        left = 0.0 if measured else system.left
        return Solved(system.function(found), unknowns, steps, f"collocation ({described(grid)}), Newton", raw=raw, left=left)

    return solve


def _continued(task: Task, problem: Problem, grid: Grid) -> Array | None:
    """Nodal values that continuation in the length of the domain leads to; None where it does not serve, or fails."""
    found: Array | None = None
    lengths = [short for _, short in shorter(problem)]
    for short in [*lengths, problem] if lengths else []:
        ((name, axis),) = grid.axes.items()
        nodes = Grid({name: type(axis)(*short.domain.bounds[name], len(axis.nodes))})
        system = CollocationSystem(short, nodes, [], task.scales, task.sizes, task.budget)
        try:
            found, _ = system.solve(np.repeat(task.centres, grid.size) if found is None else found)
        except NewtonError:
            return None
    return found


def _evolving(task: Task) -> Callable[[Grid, Solved | None], Solved]:
    """What solves a problem in time on a grid, beginning with the constants that were found on the grid before."""
    # Each grid is integrated more tightly than the one before: their difference is that of both errors.
    tolerances = chain([1e-1 * task.tolerance], repeat(1e-2 * task.tolerance))

    def solve(grid: Grid, before: Solved | None) -> Solved:
        rtol = float(np.clip(next(tolerances), 1e-12, 1e-4))
        if not (task.measured and task.problem.unknowns):
            return evolve(task, grid, task.initial, rtol)
        return estimated(task, grid, task.raw if before is None or before.raw is None else before.raw, rtol)

    return solve

"""Evolution equations by the method of lines and ``solve_ivp``, and unknown constants in them by least squares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml.baselines.integrate import BlowUp, Budget, integrate
from sciml.baselines.method_of_lines import MethodOfLines
from sciml.baselines.refinement import described
from sciml.baselines.task import INTEGRATORS, Solved, Task
from sciml.errors import BaselineError
from sciml.models import Grid, GridFunction, PiecewiseBasis
from sciml.solvers import ResidualSystem
from sciml.typing import Array

_MOST_EXPLICIT = 60_000
_MOST_VALUES = 2**25
_SHIFT = 1e-3
_BLOW_UP = BlowUp(sudden=100.0, least=1.0, patience=0, paced=False)
_STABLE = 2.5


def evolve(task: Task, grid: Grid, constants: Mapping[str, Tensor], rtol: float) -> Solved:
    """Integrate a problem in time by the method of lines.

    ``"auto"`` is DOP853, or Radau where the Jacobian is large or steps become too many.
    """
    lines = MethodOfLines(task.problem, grid, {name: float(value) for name, value in constants.items()})
    start = lines.start()
    # What a fine grid takes to be laid is part of the time.
    task.budget.check(lines.begin)
    fastest = lines.fastest(start)
    result, method = integrate(
        lines.rate,
        start.reshape(len(lines.levels), -1),
        (lines.begin, lines.end),
        rtol,
        task.budget,
        task.method if task.method in INTEGRATORS else "auto",
        coordinate=lines.time,
        first="Radau" if lines.stiff(fastest) else "DOP853",
        most=_MOST_EXPLICIT,
        blow_up=_BLOW_UP,
        # At the edge of stability steps are right, but what lies between them is noise.
        explicit={"max_step": _STABLE / max(fastest, 1e-300)},
        implicit={"jac": lines.jacobian},
        stops=task.stops,
    )
    over = f"method of lines ({described(grid)}), " if grid.axes else ""
    return Solved(_function(lines, result, rtol, task.budget), {}, len(result.t) - 1, f"{over}solve_ivp ({method})")


def _function(lines: MethodOfLines, result: Any, rtol: float, budget: Budget) -> GridFunction:
    """Cubic pieces in time through values and rates at the integrator's steps, cut until they follow its dense output."""
    knots = result.t
    size = np.abs(result.y).max()
    rows = [row for row, (_, level) in enumerate(lines.levels) if level == 0]
    for last in (*[False] * 7, True):
        found = _sampled(lines, result, knots, rows, budget)
        middle = (knots[1:] + knots[:-1]) / 2
        widths = np.diff(knots)
        change = (found[:-1, 1] - found[1:, 1]) * widths[:, None, None] / 8
        halves = (found[:-1, 0] + found[1:, 0]) / 2 + change
        dense = result.sol(middle).reshape(len(lines.levels), lines.grid.size, -1)[rows]
        gap = np.abs(halves - np.moveaxis(dense, -1, 0)).reshape(len(widths), -1).max(axis=1)
        coarse = gap > 30 * rtol * size
        if last or not coarse.any() or found.size * 2 > _MOST_VALUES:
            break
        knots = np.sort(np.concatenate([knots, middle[coarse]]))
    # (K, 2, F, N) to (2K, n_1, ..., F), then the coordinates in the problem's order.
    shaped = np.moveaxis(found.reshape(2 * len(knots), len(lines.top), *lines.grid.shape), 1, -1)
    # An axis of scattered nodes stands for several coordinates, which follow each other.
    firsts = accumulate((axis.columns for axis in lines.grid.axes.values()), initial=0)
    names = [lines.time, *(lines.grid.coordinates[first] for first, _ in zip(firsts, lines.grid.axes, strict=False))]
    order = np.argsort([lines.problem.coordinates.index(name) for name in names]).tolist()
    values = np.ascontiguousarray(shaped.transpose(*order, len(names)))
    # Cubic: a value and a slope at each knot.
    own = [PiecewiseBasis(knots, degree=3, smooth=2, scaled=False), *lines.grid.axes.values()]
    return GridFunction([own[k] for k in order], torch.from_numpy(values))


def _sampled(lines: MethodOfLines, result: Any, knots: Array, rows: list[int], budget: Budget) -> Array:
    """Values and rates of the fields at the nodes, ``(K, 2, F, N)``."""
    states = result.sol(knots).T
    rates = []
    for t, y in zip(knots, states, strict=True):
        if budget.over:
            budget.check(t)
        rates.append(lines.rate(t, y))
    both = np.stack([states, np.stack(rates)], axis=1).reshape(len(knots), 2, len(lines.levels), lines.grid.size)
    return both[:, :, rows]


def estimated(task: Task, grid: Grid, raw: Array, rtol: float) -> Solved:
    """Fit unknown constants to measurements over whole integrations, from raw numbers ``(q,)``."""

    def misfits(raw: Array) -> Array:
        constants = task.values(raw)
        trial = evolve(task, grid, constants, rtol).trial
        found = ResidualSystem(task.problem.bind(**constants), trial, {}).residuals(task.measured)
        return np.concatenate([values.detach().numpy() / task.scales[name] for name, values in found.items()])

    def slopes(raw: Array) -> Array:
        shifts = np.diag(_SHIFT * np.maximum(1.0, np.abs(raw)))
        columns = [(misfits(raw + each) - misfits(raw - each)) / (2 * each.sum()) for each in shifts]
        return np.stack(columns, axis=1)

    found, inference = task.fit(misfits, slopes, raw, 1e-9)
    if not found.success:
        raise BaselineError(f"least_squares: {found.message}")
    last = evolve(task, grid, task.values(found.x), rtol)
    return replace(
        last,
        unknowns=inference.estimates,
        steps=int(found.nfev),
        solver=f"least_squares over {last.solver}",
        raw=found.x,
    )

"""Problems in time, integrated on a grid by ``solve_ivp``, and unknown constants in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from sciml.baselines.integrate import BlowUpError, Budget, IntegrationError, TooManyStepsError
from sciml.baselines.method_of_lines import MethodOfLines
from sciml.errors import BaselineError
from sciml.models import Grid, GridFunction, Knots
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.observations import Prior
from sciml.solvers import ResidualSystem
from sciml.typing import Array
from sciml.uncertainty import Estimate
from sciml.uncertainty.covariance import covariance

_MOST_EXPLICIT = 60_000

_MOST_VALUES = 2**25

_SHIFT = 1e-3

_GROWTH, _SUDDEN = 1e8, 100.0

_STABLE = 2.5


@dataclass(frozen=True)
class Evolved:
    """The outcome on one grid: the function, SciPy's steps and method, and unknowns where they were fitted."""

    function: GridFunction
    steps: int
    method: str
    unknowns: dict[str, Estimate] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)
    raw: Array | None = None
    evaluations: int = 0


def evolve(
    problem: Problem,
    grid: Grid,
    constants: Mapping[str, float],
    rtol: float,
    budget: Budget,
    method: str = "auto",
) -> Evolved:
    """Integrate a problem in time by the method of lines.

    Args:
        problem: a problem with a time coordinate.
        grid: nodes in its other coordinates.
        constants: values of unknown constants.
        rtol: relative tolerance of the integrator; the absolute one follows from the size of each field.
        budget: the time that is left.
        method: a method of ``solve_ivp``; ``"auto"`` is DOP853, or Radau where the Jacobian is large or steps become too many.

    Raises:
        BaselineError: as for ``MethodOfLines``; the solution blows up, or the time is over.
    """
    lines = MethodOfLines(problem, grid, constants)
    start = lines.start()
    most, used = np.inf, 0
    fastest = lines.fastest(start)
    largest = max(float(np.abs(start).max()), 1.0)

    def rate(t: float, y: Array) -> Array:
        nonlocal used
        used += 1
        budget.check(t)
        if used > most:
            raise TooManyStepsError
        size = np.abs(y).max()
        if not size < _GROWTH * largest:
            # Growth that would go on like this to the end is none: a blow-up is over in a fraction of what is left.
            found = lines.rate(t, y)
            if np.isfinite(size) and np.abs(found).max() * (lines.end - t) < _SUDDEN * size:
                return found
            raise BlowUpError(
                f"the solution grows to {_GROWTH:g} times its size at {lines.time} = {t:.6g}: it blows up", t
            )
        return lines.rate(t, y)

    def attempt(name: str) -> Any:
        scale = np.abs(start.reshape(len(lines.levels), -1)).max(axis=1)
        floor = 1e-3 * max(float(scale.max()), 1e-3)
        options: dict[str, Any] = {"atol": rtol * np.repeat(np.maximum(scale, floor), grid.size), "rtol": rtol}
        if name in ("Radau", "BDF"):
            options["jac"] = lines.jacobian
        elif name != "LSODA":
            # At the edge of stability steps are right, but what lies between them is noise.
            options["max_step"] = _STABLE / max(fastest, 1e-300)
        return solve_ivp(rate, (lines.begin, lines.end), start, method=name, dense_output=True, **options)

    chosen = method
    if method == "auto":
        chosen, most = ("Radau", np.inf) if lines.stiff(fastest) else ("DOP853", _MOST_EXPLICIT)
    with np.errstate(all="ignore"):
        try:
            result = attempt(chosen)
        except (TooManyStepsError, IntegrationError):
            # What an explicit method cannot do may still be stiff.
            if method != "auto" or chosen == "Radau" or budget.over:
                raise
            most, chosen = np.inf, "Radau"
            result = attempt(chosen)
    if not result.success or not np.isfinite(result.y).all():
        raise IntegrationError(
            f"{chosen} stopped at {lines.time} = {result.t[-1]:.6g} of {lines.end:g}: {result.message}; the solution may blow "
            "up there, or the grid be too coarse"
        )
    return Evolved(_function(lines, result, rtol, budget), len(result.t) - 1, chosen, evaluations=used)


def _function(lines: MethodOfLines, result: Any, rtol: float, budget: Budget) -> GridFunction:
    """Cubic pieces in time through values and rates at the integrator's steps, cut until they follow its dense output."""
    knots = result.t
    size = np.abs(result.y).max()
    for last in (*[False] * 7, True):
        found = _sampled(lines, result, knots, budget)
        middle = (knots[1:] + knots[:-1]) / 2
        widths = np.diff(knots)
        change = (found[:-1, 1] - found[1:, 1]) * widths[:, None, None] / 8
        halves = (found[:-1, 0] + found[1:, 0]) / 2 + change
        rows = [row for row, (_, level) in enumerate(lines.levels) if level == 0]
        dense = result.sol(middle).reshape(len(lines.levels), lines.grid.size, -1)[rows]
        gap = np.abs(halves - np.moveaxis(dense, -1, 0)).reshape(len(widths), -1).max(axis=1)
        coarse = gap > 30 * rtol * size
        if last or not coarse.any() or found.size * 2 > _MOST_VALUES:
            break
        knots = np.sort(np.concatenate([knots, middle[coarse]]))
    axes = {**lines.grid.axes, lines.time: Knots(knots)}
    # (K, 2, F, N) to (2K, n_1, ..., F), then the coordinates in the problem's order.
    shaped = found.reshape(2 * len(knots), len(lines.top), *lines.grid.shape)
    shaped = np.moveaxis(shaped, 1, -1)
    names = [lines.time, *lines.grid.axes]
    order = [names.index(name) for name in lines.problem.coordinates]
    values = np.ascontiguousarray(shaped.transpose(*order, len(names)))
    return GridFunction([axes[name] for name in lines.problem.coordinates], torch.from_numpy(values))


def _sampled(lines: MethodOfLines, result: Any, knots: Array, budget: Budget) -> Array:
    """Values and rates of the fields at the nodes, ``(K, 2, F, N)``.

    Raises:
        IntegrationError: the time is over.
    """
    rows = [row for row, (_, level) in enumerate(lines.levels) if level == 0]
    states = result.sol(knots).T
    rates = []
    for t, y in zip(knots, states, strict=True):
        if budget.over:
            budget.check(t)
        rates.append(lines.rate(t, y))
    both = np.stack([states, np.stack(rates)], axis=1).reshape(len(knots), 2, len(lines.levels), lines.grid.size)
    return both[:, :, rows]


def estimated(
    problem: Problem,
    grid: Grid,
    blocks: list[Collocation],
    scales: Mapping[str, float],
    start: Array | None,
    rtol: float,
    budget: Budget,
    method: str = "auto",
    *,
    known: bool = False,
) -> Evolved:
    """Fit unknown constants to measurements by ``least_squares`` over whole integrations.

    Args:
        problem: a problem in time whose initial values are all known.
        grid: nodes in the other coordinates.
        blocks: the measurements.
        scales: what each column's misfit is divided by.
        start: the raw number at which each unknown begins, or None for its own.
        rtol: relative tolerance of the integrator.
        budget: the time that is left.
        method: a method of ``solve_ivp``.
        known: whether the standard deviation of every column was given.

    Raises:
        BaselineError: the first integration fails, or the time is over.

    Reference: G. A. F. Seber and C. J. Wild, Nonlinear Regression, Wiley 1989.
    """
    unknowns = problem.unknowns
    raw_start = np.array([float(each.raw_initial()) for each in unknowns.values()]) if start is None else start

    def constants_of(raw: Array) -> dict[str, float]:
        return {
            name: float(unknown.value(torch.tensor(raw[place], dtype=torch.float64)))
            for place, (name, unknown) in enumerate(unknowns.items())
        }

    def misfits(raw: Array) -> Array:
        function = evolve(problem, grid, constants_of(raw), rtol, budget, method).function
        bound = problem.bind(**{name: torch.tensor(value).double() for name, value in constants_of(raw).items()})
        found = ResidualSystem(bound, function, {}).residuals(blocks)
        return np.concatenate([values.detach().numpy() / scales[name] for name, values in found.items()])

    def slopes(raw: Array) -> Array:
        columns = []
        for place in range(len(raw)):
            shift = np.zeros(len(raw))
            shift[place] = _SHIFT * max(1.0, abs(raw[place]))
            columns.append((misfits(raw + shift) - misfits(raw - shift)) / (2 * shift[place]))
        return np.stack(columns, axis=1)

    first = misfits(raw_start)

    def guarded(raw: Array) -> Array:
        try:
            return misfits(raw)
        except IntegrationError:
            if budget.spent > budget.seconds:
                raise
            # A trial step to constants at which the solution blows up: too large to be taken, and finite.
            return np.full(len(first), 1e3)

    try:
        found = least_squares(guarded, raw_start, jac=slopes, x_scale="jac", xtol=1e-9, ftol=1e-10, gtol=1e-12)
    except ValueError as error:
        raise BaselineError(f"least_squares failed: {error}") from error
    if not found.success:
        raise BaselineError(f"least_squares: {found.message}")
    misfit, jacobian = misfits(found.x), slopes(found.x)
    terms = [(term, block.height) for block in blocks for term in block.terms]
    inference = covariance(
        unknowns,
        found.x,
        np.zeros((len(misfit), 0)),
        jacobian,
        misfit,
        np.ones(len(misfit), dtype=bool),
        prior=np.concatenate([np.full(height, isinstance(term.evaluate, Prior)) for term, height in terms]),
        variance=1.0 / scales[terms[0][0].name] ** 2 if known else None,
    )
    constants = constants_of(found.x)
    last = evolve(problem, grid, constants, rtol, budget, method)
    return Evolved(
        last.function, int(found.nfev), last.method, inference.estimates, constants, found.x, budget.evaluations
    )

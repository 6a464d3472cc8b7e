"""Unknown constants of an initial-value problem by shooting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.integrate import Budget, IntegrationError, Trajectory, integrate
from sciml.errors import BaselineError
from sciml.problem.collocation import Collocation
from sciml.problem.observations import Observation, Prior
from sciml.typing import Array
from sciml.uncertainty import Inference
from sciml.uncertainty.covariance import covariance

_STEP = 1e-4


@dataclass(frozen=True)
class Shot:
    """The outcome of a shooting fit."""

    inference: Inference
    constants: dict[str, Tensor]
    trajectory: Trajectory
    success: bool
    message: str
    steps: int


def shoot(
    system: FirstOrderSystem,
    blocks: Sequence[Collocation],
    scales: Mapping[str, float],
    rtol: float,
    budget: Budget,
    method: str = "auto",
    *,
    known: bool = False,
) -> Shot:
    """Fit the unknowns, and initial values that no condition prescribes, to measurements.

    ``scipy.optimize.least_squares`` varies raw unknowns and initial values; the trajectory and its central differences by
    every one of them are integrated as **one** system, with common steps, so that the differences are smooth.

    Args:
        system: the equations.
        blocks: the measurements, and what was known of constants before.
        scales: what each column's misfit is divided by.
        rtol: relative tolerance of the integrator.
        budget: the time that is left.
        method: a method of ``solve_ivp``.
        known: whether the standard deviation of every column was given.

    Raises:
        BaselineError: the first trajectory cannot be integrated, or the time is over.
    """
    problem = system.problem
    unknowns = problem.unknowns
    prescribed = system.prescribed()
    free = [row for row, key in enumerate(system.state) if key not in prescribed]
    guess = np.array([_first_value(system, blocks, row) for row in free])
    spread = np.where(guess != 0, np.abs(guess), 1.0)
    _, end = problem.domain.bounds[system.coordinate]
    latest = max(float(block.sample.points[0].max()) for block in blocks)
    raw_start = np.array([float(unknown.raw_initial()) for unknown in unknowns.values()])
    split = len(unknowns)

    def trajectory(batch: Array) -> Trajectory:
        constants = constants_of(batch)
        state = system.initial(prescribed, constants, batch.shape[1])
        state[free] = guess[:, None] + spread[:, None] * batch[split:]
        return integrate(system, state, max(end, latest), constants, rtol, budget, method)

    def constants_of(batch: Array) -> dict[str, Tensor]:
        return {
            name: unknown.value(torch.from_numpy(batch[row].copy()))
            for row, (name, unknown) in enumerate(unknowns.items())
        }

    def misfits(path: Trajectory, batch: Array) -> Array:
        count, parts = batch.shape[1], []
        repeated = constants_of(batch)
        for block in blocks:
            times = block.sample.points[0][:, 0].numpy()
            states = path.dense(times).reshape(len(system.state), -1)
            values = {name: value.repeat_interleave(len(times)) for name, value in repeated.items()}
            scene = system.scene(np.tile(times, count), states, values)
            for term in block.terms:
                evaluate = term.evaluate.repeated(count) if isinstance(term.evaluate, Observation) else term.evaluate
                parts.append(evaluate(scene).detach().numpy().reshape(count, -1) / scales[term.name])
        return np.concatenate(parts, axis=1)

    rows_and_slopes = _cached(lambda x: _differences(x, lambda batch: misfits(trajectory(batch), batch)))
    start = np.concatenate([raw_start, np.zeros(len(free))])
    size = len(rows_and_slopes(start)[0])

    def residual(x: Array) -> Array:
        try:
            return rows_and_slopes(x)[0]
        except IntegrationError:
            if budget.spent > budget.seconds:
                raise
            # A trial step into a region where the solution blows up: too large to be taken, and finite.
            return np.full(size, 1e3)

    try:
        found = least_squares(
            residual, start, jac=lambda x: rows_and_slopes(x)[1], x_scale="jac", xtol=1e-12, ftol=1e-12, gtol=1e-12
        )
    except ValueError as error:
        raise BaselineError(f"shooting failed: {error}") from error
    misfit, slopes = rows_and_slopes(found.x)
    terms = [(term, block.height) for block in blocks for term in block.terms]
    inference = covariance(
        unknowns,
        found.x[:split],
        slopes[:, split:],
        slopes[:, :split],
        misfit,
        np.ones(size, dtype=bool),
        prior=np.concatenate([np.full(height, isinstance(term.evaluate, Prior)) for term, height in terms]),
        variance=1.0 / scales[terms[0][0].name] ** 2 if known else None,
    )
    return Shot(
        inference=inference,
        constants={name: value[0] for name, value in constants_of(found.x[:, None]).items()},
        trajectory=trajectory(found.x[:, None]),
        success=bool(found.success),
        message=f"least_squares: {found.message.lower().rstrip('.')}",
        steps=int(found.nfev),
    )


def _differences(x: Array, rows_of: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The rows at x and their central differences by every component, from one batch."""
    count = len(x)
    shifts = np.concatenate([np.zeros((count, 1)), _STEP * np.eye(count), -_STEP * np.eye(count)], axis=1)
    rows = rows_of(x[:, None] + shifts)
    return rows[0], ((rows[1 : count + 1] - rows[count + 1 :]) / (2 * _STEP)).T


def _cached(function: Callable[[Array], tuple[Array, Array]]) -> Callable[[Array], tuple[Array, Array]]:
    """Remember the last result: the optimizer asks for rows and Jacobian of one point in two calls."""
    last: list[tuple[bytes, tuple[Array, Array]]] = []

    def remembered(x: Array) -> tuple[Array, Array]:
        key = x.tobytes()
        if not last or last[0][0] != key:
            last[:] = [(key, function(x))]
        return last[0][1]

    return remembered


def _first_value(system: FirstOrderSystem, blocks: Sequence[Collocation], row: int) -> float:
    """Where to start a free initial value: at the earliest measurement, if there is one."""
    field, order = system.state[row]
    for block in blocks:
        for term in block.terms:
            misfit = term.evaluate
            if not isinstance(misfit, Observation) or misfit.function is not None:
                continue
            if (misfit.field, len(misfit.index)) == (field, order):
                return float(misfit.measured[block.sample.points[0][:, 0].argmin()])
    return 0.0 if order else 1.0

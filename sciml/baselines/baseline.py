"""``baseline``: what a classical solver says about the same problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from sciml.baselines.ivp import Budget, integrate, trial_from
from sciml.baselines.shooting import shoot
from sciml.baselines.system import FirstOrderSystem
from sciml.certificate import certificate, failures
from sciml.derivative import describe
from sciml.errors import BaselineError, ProblemError, listed
from sciml.problem import Problem
from sciml.rows import Block, Rows, data_blocks
from sciml.sampling import draw
from sciml.scaling import field_sizes, term_sizes
from sciml.setup import resolve_data
from sciml.solution import Solution, unknowns_frame
from sciml.uncertainty import Estimate

_METHODS = ("auto", "RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")


def baseline(
    problem: Problem,
    data: Any = None,
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    time_limit: float = 120.0,
) -> Solution:
    """Solve a problem by SciPy, from the same residuals that a network is trained on.

    Ordinary differential equations with initial values are integrated by ``solve_ivp``; with measurements, unknown
    constants and free initial values are fitted by shooting with ``least_squares``. No right-hand side is written a second
    time: it is what makes the residuals vanish.

    Args:
        problem: a problem in one coordinate, affine in its highest derivatives.
        data: measurements, as for ``fit``; by default the problem's own ``measurements()``.
        method: ``"auto"`` (explicit, implicit where that proves stiff) or a method of ``solve_ivp``.
        tolerance: the relative accuracy aimed at.
        time_limit: seconds after which it gives up.

    Returns:
        A solution like that of ``fit``, without a network in it.

    Raises:
        BaselineError: the problem is none of these, the solution blows up, or the time is over.
        ProblemError, DataError: the problem or the data are not usable; as for ``fit``.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Decay(sciml.Problem):
        ...     domain = sciml.Interval(t=(0, 1))
        ...     fields = ["u"]
        ...     conditions = [sciml.Initial(u=1.0)]
        ...     @sciml.equation
        ...     def decay(self, u, t):
        ...         return d(u, t) + 2.0 * u
        >>> round(float(sciml.baseline(Decay())(t=1.0)["u"]), 6)
        0.135335
    """
    if not isinstance(problem, Problem):
        raise ProblemError(f"baseline needs a problem object; given: {problem!r}")
    if method not in _METHODS:
        raise BaselineError(f"method must be one of {listed(_METHODS)}; given: {method!r}")
    if not 1e-12 <= tolerance < 1:
        raise BaselineError(f"tolerance must lie between 1e-12 and 1; given: {tolerance!r}")
    budget = Budget(time_limit)
    system = FirstOrderSystem(problem)
    table = resolve_data(problem, data)
    blocks = _blocks(problem)
    if table is not None:
        blocks += data_blocks(problem, table)
    sizes = field_sizes(problem, blocks)
    rtol = max(1e-3 * tolerance, 1e-13)
    if table is not None and (problem.unknowns or not _complete(system)):
        scales = dict(zip(problem.fields, sizes.scale, strict=True))
        shot = shoot(system, table, scales, rtol, budget, method)
        unknowns, constants, trajectory = shot.unknowns, shot.constants, shot.trajectory
        success, message, steps = shot.success, shot.message, shot.steps
        solver = f"least_squares over solve_ivp ({trajectory.method})"
    else:
        _require_initial_values(system)
        constants = {name: torch.tensor(each.initial, dtype=torch.float64) for name, each in problem.unknowns.items()}
        unknowns = {name: Estimate(float(value), np.nan, np.nan, np.nan) for name, value in constants.items()}
        start = system.initial(system.prescribed(), constants, 1)
        end = problem.domain.bounds[system.coordinate][1]
        trajectory = integrate(system, start, end, constants, rtol, budget, method)
        success, message, steps = True, "solve_ivp reached the end", len(trajectory.steps) - 1
        if constants:
            message += "; there are no measurements, so the unknowns have their initial values"
        solver = f"solve_ivp ({trajectory.method})"
    trial = trial_from(system, trajectory, constants, tolerance)
    bound = problem.bind(**constants)
    residuals = certificate(Rows(bound, trial, {}), blocks, term_sizes(bound, blocks, sizes))
    misses = failures(residuals, 1e-2)
    if len(misses):
        message += (
            f"; the residual {misses['relative'].idxmax()!r} does not vanish: {misses['relative'].max():.1e} relative"
        )
    return Solution(
        trial=trial,
        problem=problem,
        name=type(problem).__name__,
        fields=tuple(problem.fields),
        domain=problem.domain,
        unknowns=unknowns_frame(unknowns),
        history=pd.DataFrame(),
        residuals=residuals,
        success=success and not len(misses),
        status="converged" if success else "budget",
        message=message,
        nit=steps,
        nfev=budget.evaluations,
        seconds=budget.spent,
        solver=solver,
        engine="SciPy",
        points={term.name: block.size for block in blocks for term in block.terms},
        choices=(f"integrator tolerance {rtol:g}",),
        data=table,
    )


def _blocks(problem: Problem) -> list[Block]:
    generator = np.random.default_rng(0)
    return [Block(draw(term.place, problem.domain, 256, generator), (term,)) for term in problem.terms()]


def _complete(system: FirstOrderSystem) -> bool:
    return set(system.prescribed()) == set(system.state)


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

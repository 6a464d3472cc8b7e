"""Classical reference solution of a problem by SciPy: ``baseline``."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.baselines.boundary_value import solve_on_grids
from sciml.baselines.initial_value import is_initial_value_problem, solve_initial
from sciml.baselines.integrate import Budget
from sciml.baselines.predictability import Doubt, doubt
from sciml.baselines.task import FAMILIES, INTEGRATORS, Solved, Task
from sciml.diagnostics.certificate import certificate, missed_features, uncertified, without_bounds
from sciml.diagnostics.estimated_error import missed
from sciml.diagnostics.preflight import checked
from sciml.errors import BaselineError, ProblemError
from sciml.geometry import Face, OnFaces, draw
from sciml.problem import Initial, Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import data_blocks, prior_blocks
from sciml.problem.narrow_features import narrow_features
from sciml.slabs.row_layout import periodic_coordinates
from sciml.solution import Solution, unknowns_frame
from sciml.solvers import ResidualSystem
from sciml.solvers.scaling import Sizes, field_sizes, judged_sizes, term_sizes

_METHODS = ("auto", *INTEGRATORS, *FAMILIES)
_CERTIFIED = 1e-2
# The relative error of an integration up to which it is a success, as for ``fit``; at least the tolerance.
_LARGEST = 1e-3
# Half as many, less one round a ring, still have room for differences at both ends.
_FEWEST = 24


# Residuals are differentiated wherever the caller does not need gradients.
@torch.inference_mode(False)
@torch.enable_grad()
def baseline(
    problem: Problem,
    data: Any = None,
    *,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    noise: Any = None,
    method: str = "auto",
    n: int | None = None,
    tolerance: float | None = None,
    time_limit: float = 120.0,
    events: Mapping[str, Callable[..., Tensor]] | None = None,
    preflight: str = "error",
) -> Solution:
    r"""Solve a problem by classical methods, from the same residuals that a network is trained on.

    No equation is written a second time. What is done depends on the problem:

    - *ordinary differential equations with initial values*, of any order, with mass matrices or algebraic equations: by
      ``scipy.integrate.solve_ivp``, explicit or, where that proves stiff, implicit; with measurements, unknown constants and
      free initial values are fitted by shooting with ``least_squares``;
    - *boundary-value problems, and partial differential equations without time* in one to three coordinates, or where
      something is prescribed at the end of time as well: nodal values on a grid, Newton's method with the exact sparse
      Jacobian :math:`\sum_k \operatorname{diag}(\partial R/\partial u_k) D_k` and ``splu``, or least squares where rows
      outnumber values;
    - *partial differential equations in time* with one or two other coordinates: the method of lines, ``solve_ivp`` with the
      exact sparse Jacobian; with measurements and one other coordinate, unknown constants by ``least_squares``.

    Grids are refined until two of them agree, so that the finer one is right to ``tolerance`` by the order at which they
    converge: polynomials at Chebyshev's nodes first (waves along periodic coordinates), finite differences of fourth order
    where these do not.

    Args:
        problem: a problem on a box.
        data: measurements, as for ``fit``; by default the problem's own ``measurements()``.
        observe: what columns measure that are not named after a field, as for ``fit``.
        noise: how columns scatter, as for ``fit``; sizes are not found here: without them columns scatter in proportion to
            their spread, and outliers and priors need one.
        method: ``"auto"``; ``"chebyshev"`` or ``"differences"`` for one kind of grid; a method of ``solve_ivp`` for problems
            in time.
        n: nodes along each coordinate of the finest grid, which is compared with one of half as many; by default as many as
            the tolerance takes.
        tolerance: the relative accuracy aimed at; 1e-6 by default.
        time_limit: seconds after which it gives up.
        events: for ordinary differential equations functions of fields and coordinate by name, whose zeros are recorded in
            ``solution.events``; each receives and returns tensors ``(n,)``.
        preflight: what becomes of mistakes in the problem that ``sciml.preflight`` finds, as for ``fit``.

    Returns:
        A solution like that of ``fit``, without a network in it. ``message`` says how closely the last two grids agree, and
        the order of convergence that was observed; ``history`` has the difference of each grid from the one before. It is a
        success if they agree to the tolerance and every residual at fresh points is below one per cent of its natural size. An
        integration from given initial values is compared with another by LSODA, or its errors follow from how neighbouring
        solutions part: more than 1e-3, or than a larger tolerance, is no success.

    Raises:
        BaselineError: the problem is none of these, it has too few or too many conditions or such as contradict its equations,
            the solution blows up, or the time is over before anything is found.
        ProblemError, DataError: the problem or the data are not usable; as for ``fit``.

    Example:
        >>> import sciml
        >>> round(float(sciml.baseline(sciml.gallery.problem("logistic_growth"))(t=6.0)["u"]), 6)
        0.978178
    """
    tolerance = _checked(problem, method, n, tolerance, time_limit)
    budget = Budget(time_limit)
    measurements = checked(preflight, problem, data, observe, noise)
    _check_sizes(problem, measurements)
    generator = np.random.default_rng(0)
    terms = (*problem.terms(), *problem.implied_terms())
    blocks = [Collocation(draw(term.place, problem.domain, 256, generator), (term,)) for term in terms]
    # The measurements, and with them what was known of constants before.
    measured = [] if measurements is None else [*data_blocks(problem, measurements), *prior_blocks(problem)]
    sizes = field_sizes(problem, [*blocks, *measured])
    task = Task(
        problem,
        measured,
        term_sizes(problem, [*blocks, *measured], sizes),
        np.array([centre for centre, _ in sizes.values()]),
        np.array([size for _, size in sizes.values()]),
        tolerance,
        budget,
        method,
        n,
        events or {},
        known=measurements is not None and measurements.known(problem),
    )
    initial = is_initial_value_problem(problem)
    if events and not initial:
        raise BaselineError(
            f"events are looked for in ordinary differential equations with initial values; {task.name} is none"
        )
    if initial and (method in FAMILIES or n is not None):
        raise BaselineError(
            f"{task.name} is integrated from its start, without a grid: leave n out and choose method from "
            f"{listed(('auto', *INTEGRATORS))}"
        )
    found = solve_initial(task) if initial else _from_grids(task)
    bound = problem.valued({name: each.value for name, each in found.unknowns.items()})
    fresh = [*blocks, *measured]
    # Reported relative to what ``fit`` reports by, judged by the size of what was found: of a growing field the surer measure.
    rows = ResidualSystem(bound, found.trial, {})
    natural, about = (
        judged_sizes(stated, fresh, known) for stated, known in ((problem, sizes), (bound, _sizes(bound, blocks, found.trial)))
    )
    residuals, judged = (certificate(rows, fresh, each) for each in (natural, about))
    valued = {term.name for block in blocks for term in block.terms if term.field is not None}
    # Of a prescribed value no digits are lost to derivatives.
    limits = {name: min(_CERTIFIED, max(1e-5, 1e3 * tolerance)) if name in valued else _CERTIFIED for name in judged.index}
    overlooked = list(missed_features(rows, blocks, natural, narrow_features(problem)))
    misses = [*uncertified(judged, pd.Series(limits)), *overlooked, *without_bounds(found.unknowns)]
    message = found.message
    look = budget.seconds - budget.spent
    beside = doubt(bound, found.trial, max(1e-3 * tolerance, 1e-13), look) if initial else Doubt()
    unknown = found.unknowns or (np.isnan(found.error) and not beside.apart) or overlooked
    errors = {} if unknown else {name: min(beside.apart.get(name, found.error), 1.0) for name in problem.fields}
    unsure = [] if beside.why is None else [beside.why]
    unsure += missed(errors, max(tolerance, _LARGEST)) if initial else []
    message = "; ".join([message, *unsure])
    lost = [str(name) for name, value in residuals["relative"].items() if not np.isfinite(value)]
    if lost:
        message += f"; the residual {lost[0]!r} is not finite at some of the points between"
    else:
        message = "; ".join([message, *misses])
    return Solution(
        trial=found.trial,
        problem=problem,
        name=task.name,
        fields=tuple(problem.fields),
        domain=problem.domain,
        unknowns=unknowns_frame(found.unknowns),
        history=found.history,
        residuals=residuals,
        success=found.success and not misses and not unsure,
        status="converged" if found.success else "budget",
        message=message,
        nit=found.steps,
        nfev=budget.evaluations,
        seconds=budget.spent,
        solver=found.solver,
        engine="SciPy",
        points={term.name: block.size for block in fresh for term in block.terms},
        choices=found.choices,
        data=None if measurements is None else measurements.table,
        events=found.events,
        estimated_error=errors,
    )


def _from_grids(task: Task) -> Solved:
    problem = task.problem
    starts = problem.time is not None and any(isinstance(each, Initial) for each in problem.conditions)
    # Where something is prescribed at the end of time, as in optimal control, it is a boundary-value problem.
    faces = {face for term in problem.terms() if isinstance(term.place, OnFaces) for face in term.place.faces}
    ends = problem.time is not None and Face(problem.time, "upper") in faces
    in_time = starts and not ends
    both = ends and Face(str(problem.time), "lower") in faces
    if problem.time is not None and not (in_time or both) and problem.time not in periodic_coordinates(problem):
        raise BaselineError(
            f"{task.name} has the time {problem.time!r} but no initial value: add sciml.Initial(...). A classical "
            "solver fits unknown constants only where initial and boundary values are known"
        )
    if task.method in INTEGRATORS and not in_time:
        raise BaselineError(f"{task.name} does not start in time, so {task.method!r} cannot integrate it")
    return solve_on_grids(task, in_time=in_time)


def _checked(problem: Problem, method: str, n: int | None, tolerance: float | None, time_limit: float) -> float:
    """The tolerance, after all arguments were looked at."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"baseline needs a problem object; given: {problem!r}")
    if problem.promoted:
        raise BaselineError(
            f"a classical solver takes one value of {listed(problem.promoted)} at a time: baseline({type(problem).__name__}("
            f"{problem.promoted[0]}=...)), in a loop over values"
        )
    if method not in _METHODS:
        raise BaselineError(f"method must be one of {listed(_METHODS)}; given: {method!r}")
    if tolerance is None:
        tolerance = 1e-6
    if not isinstance(tolerance, numbers.Real) or not 1e-12 <= tolerance < 1:
        raise BaselineError(f"tolerance must lie between 1e-12 and 1; given: {tolerance!r}")
    if n is not None and (not isinstance(n, numbers.Integral) or n < _FEWEST):
        raise BaselineError(f"n must be a whole number of nodes, {_FEWEST} or more; given: {n!r}")
    if isinstance(time_limit, bool) or not isinstance(time_limit, numbers.Real) or not time_limit > 0:
        raise BaselineError(f"time_limit must be a positive number of seconds; given: {time_limit!r}")
    return tolerance


def _check_sizes(problem: Problem, measurements: Measurements | None) -> None:
    """Refuse noise models that need the size of the noise, which a baseline does not estimate: robust ones, and priors."""
    if measurements is None:
        return
    noises = {column: measurements.noise_or_normal(column) for column in measurements.observables(problem)}
    believed = any(unknown.prior is not None for unknown in problem.unknowns.values())
    open_ended = [column for column, noise in noises.items() if not noise.known and (noise.robust or believed)]
    if open_ended:
        raise BaselineError(
            f"a baseline does not find the size of the noise, and {listed(open_ended)} needs one (outliers and priors count "
            "by it): name it, as in noise=sciml.Huber(0.1); sciml.fit finds it, solution.statistics['sigma.<column>']"
        )


def _sizes(problem: Problem, blocks: Sequence[Collocation], trial: nn.Module) -> Sizes:
    """How large the fields are that were found: a surer measure of residuals than what conditions prescribe."""
    points = torch.cat([each for block in blocks for each in block.sample.points])
    with torch.no_grad():
        largest = trial(points).abs().amax(dim=0)
    if not bool(torch.isfinite(largest).all()):
        raise BaselineError("what SciPy returned as a solution is not finite between its steps; it was thrown away")
    return {name: (0.0, float(each) or 1.0) for name, each in zip(problem.fields, largest, strict=True)}

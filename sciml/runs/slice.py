"""Parametric solutions at a value of their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from torch import nn

from sciml.diagnostics.certificate import certificate, uncertified
from sciml.errors import ProblemError
from sciml.geometry import Box
from sciml.models import Constrained, sliced
from sciml.problem import Problem
from sciml.problem.parametric import settled
from sciml.solution import Solution
from sciml.solvers import ResidualSystem
from sciml.solvers.discrete_problem import blocks_of
from sciml.solvers.hard_constraints import Conditions
from sciml.solvers.scaling import field_sizes, judged_sizes


def fix_parameters(solution: Solution, values: Mapping[str, float]) -> Solution:
    """A solution of a promoted problem at values of its constants; see ``Solution.at``."""
    if solution.problem is None:
        raise ProblemError("at() needs the problem: load the solution with it, sciml.load(path, problem)")
    promoted = solution.problem
    problem = settled(promoted, values)
    trial = _trial(solution.trial, promoted, problem, values)
    like = next(trial.buffers())
    # By their values, not through raw numbers, which an estimate at a bound has not.
    bound = problem.bind(**{name: like.new_tensor(solution.constants[name]) for name in problem.unknowns})
    rows = ResidualSystem(bound, trial, {})
    fresh = blocks_of(problem, problem.terms(), None, np.random.default_rng([solution.seed or 0, 7]))
    scales = judged_sizes(problem, fresh, field_sizes(problem, fresh))
    residuals = certificate(rows, [block.to(like.device, like.dtype) for block in fresh], scales)
    misses = uncertified(residuals, solution.tolerance, "fit(problem, start=this solution)")
    where = ", ".join(f"{name} = {value:g}" for name, value in values.items())
    bounds = promoted.domain.bounds
    ranges = ", ".join("{} from {:g} to {:g}".format(name, *bounds[name]) for name in values)
    message = "; ".join([f"at {where} of a solution for {ranges}", *misses])
    within = Box(**{name: bounds[name] for name in values}).contains([list(values.values())]).all()
    if not solution.success:
        message += f"; and that solution was no success itself: {solution.message}"
    return dataclasses.replace(
        solution,
        trial=trial.eval().requires_grad_(False),
        problem=problem,
        domain=problem.domain,
        residuals=residuals,
        spread=None,
        # Nothing estimates how far a polynomial is off where it was not fitted.
        estimated_error=solution.estimated_error if within else {},
        success=solution.success and not misses,
        message=message,
        nit=0,
        nfev=0,
        seconds=0.0,
        engine=rows.engine,
        points={term.name: block.size for block in fresh for term in block.terms},
        choices=(*solution.choices, message),
        data=None,
        statistics={},
    )


def _trial(trial: nn.Module, before: Problem, after: Problem, values: Mapping[str, float]) -> nn.Module:
    """The trial function without the columns of the constants that have values."""
    if isinstance(trial, Constrained):
        conditions = Conditions(after)
        return Constrained(_trial(trial.model, before, after, values), conditions.lift, conditions.distance)
    columns = {before.coordinates.index(name): float(value) for name, value in values.items()}
    # From behind, so that columns that are still to go keep their numbers.
    for column in sorted(columns, reverse=True):
        trial = sliced(trial, column, columns[column])
    return trial

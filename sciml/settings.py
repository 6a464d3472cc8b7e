"""What ``fit`` makes of solvers, samplers and other settings, before anything is computed."""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from sciml.callbacks import EarlyStopping
from sciml.errors import ProblemError, SolverError
from sciml.polish import Polish
from sciml.problem import Problem
from sciml.sampling.adaptive import Adaptive
from sciml.solvers import LBFGS, Adam, FirstOrder, Solver
from sciml.training import Stage


def check(problem: object, early_stopping: object, callbacks: object, tolerance: object, intervals: object) -> None:
    """Refuse what is of the wrong kind.

    Raises:
        SciMLError: with what was expected.
    """
    if not isinstance(problem, Problem):
        hint = f"; did you mean {problem.__name__}()?" if isinstance(problem, type) else ""
        raise ProblemError(f"fit needs a problem object; given: {problem!r}{hint}")
    if not isinstance(early_stopping, EarlyStopping | None):
        raise SolverError(f"early_stopping must be sciml.EarlyStopping(...) or None; given: {early_stopping!r}")
    if not isinstance(callbacks, list | tuple) or not all(callable(each) for each in callbacks):
        raise SolverError(f"callbacks must be a list of functions; given: {callbacks!r}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < math.inf:
        raise SolverError(f"tolerance must be a positive number; given: {tolerance!r}")
    if intervals not in ("covariance", "profile"):
        raise SolverError(f"intervals must be 'covariance' or 'profile'; given: {intervals!r}")


def stages_of(given: Any) -> list[Stage]:
    """The solvers that the argument ``solver`` of ``fit`` means.

    Raises:
        SolverError: it is none of those that it may be.
    """
    if given is None:
        return [Adam(1000), LBFGS(3000)]
    several = list(given) if isinstance(given, list | tuple) else [given]
    found: list[Stage] = []
    for each in several:
        if isinstance(each, Solver | Polish):
            found.append(each)
        elif isinstance(each, type) and issubclass(each, torch.optim.Optimizer):
            found.append(FirstOrder(each))
        elif isinstance(each, torch.optim.Optimizer):
            found.append(FirstOrder(cast(Any, each)))
        else:
            raise SolverError(
                f"a solver is sciml.Adam(...), sciml.LBFGS(...), sciml.FirstOrder(torch.optim...., ...), a class of "
                f"torch.optim, or a list of these; given: {each!r}"
            )
    if not found:
        raise SolverError("solver is an empty list; give at least one solver, or None for the default")
    return found


def sampler_of(given: Adaptive | str | None, problem: Problem) -> Adaptive | None:
    """The strategy that the argument ``sampler`` of ``fit`` means.

    Raises:
        SolverError: it is none.
    """
    if isinstance(given, str) and given == "auto":
        return Adaptive() if len(problem.coordinates) > 1 else None
    if given is None or isinstance(given, Adaptive):
        return given
    raise SolverError(f"sampler must be sciml.Adaptive(...), None or 'auto'; given: {given!r}")

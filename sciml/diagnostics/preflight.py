"""Preflight: checks of a problem, a model and data before the first step, whose findings are reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from sciml.diagnostics.findings import Finding, Findings
from sciml.diagnostics.model_checks import check_function, check_model
from sciml.diagnostics.problem_checks import check_constants, check_residuals
from sciml.diagnostics.well_posedness import condition_warnings
from sciml.errors import ProblemError, SolverError
from sciml.models import Scaled
from sciml.problem import Measurements, Problem
from sciml.problem.compatibility import impossible, slope_contradictions
from sciml.problem.measurements import resolve_data
from sciml.solvers import HardConstraints
from sciml.solvers.discrete_problem import built_model, device_of
from sciml.solvers.hard_constraints import construct

# About as many rows as a fit has.
_ROWS = 4000


def preflight(
    problem: Problem,
    model: nn.Module | None = None,
    data: Any = None,
    *,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    noise: Any = None,
    exact: bool | HardConstraints = False,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "auto",
) -> tuple[Finding, ...]:
    """Look for mistakes that would keep a fit from running, or let it run and mean nothing; nothing is fitted.

    ``fit`` does this before its first step, see its argument ``preflight``. Residuals are evaluated on random jets, the model
    on a few points with randomly perturbed weights.

    Args:
        problem: the problem.
        model: the model that is to be fitted; without one the problem and the data are checked.
        data: measurements, as for ``fit``.
        observe: as for ``fit``.
        noise: as for ``fit``.
        exact: as for ``fit``.
        dtype: of the fit.
        device: of the fit.

    Returns:
        The findings, none when all is well; ``pandas.DataFrame(findings)`` is a table of them.

    Raises:
        ProblemError: this is no problem object.

    Example:
        >>> import sciml
        >>> problem = sciml.gallery.problem("heat_rod")
        >>> sciml.preflight(problem, sciml.MLP(8))
        ()
        >>> (finding,) = sciml.preflight(problem, sciml.MLP(8, activation="relu"))
        >>> finding.where
        'layers.1 (ReLU)'
    """
    if not isinstance(problem, Problem):
        hint = f"; did you mean {problem.__name__}()?" if isinstance(problem, type) else ""
        raise ProblemError(f"preflight needs a problem object; given: {problem!r}{hint}")
    found, measurements = _findings(problem, data, observe, noise, model, exact, dtype, device)
    if not any(each.severity == "fatal" or each.kind == "residual" for each in found):
        sentences = [*condition_warnings(problem, measurements is not None), *slope_contradictions(problem)]
        found += [Finding("conditions", type(problem).__name__, each, severity="warning") for each in sentences]
    return tuple(dict.fromkeys(found))


def check_conditions(problem: Problem) -> Iterator[Finding]:
    """Conditions that contradict each other all over a side."""
    for each in impossible(problem):
        yield Finding("conditions", type(problem).__name__, each, "leave one of them out, or say by on= where each holds")


def checked(
    mode: str, problem: Problem, data: object, observe: Mapping[str, Callable[..., Any]] | None, noise: Any, **fit: Any
) -> Measurements | None:
    """The measurements of a fit, after everything that was handed to it has been checked; ``fit`` as for ``preflight``."""
    if not isinstance(mode, str) or mode not in ("error", "warn", "off"):
        raise SolverError(f"preflight must be 'error', 'warn' or 'off'; given: {mode!r}")
    if mode == "off":
        return resolve_data(problem, data, observe, noise)
    found, measurements = _findings(problem, data, observe, noise, **fit)
    found.report(mode, type(problem).__name__)
    return measurements


def _findings(
    problem: Problem,
    data: object,
    observe: Mapping[str, Callable[..., Any]] | None,
    noise: Any,
    model: nn.Module | None = None,
    exact: bool | HardConstraints = False,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
) -> tuple[Findings, Measurements | None]:
    """The findings of all checks of a problem, data and, if there is one, a model; and the measurements."""
    precise, found = dtype == torch.float64, Findings()
    measurements = found.attempt("data", resolve_data, problem, data, observe, noise)
    found.check("constants", check_constants, problem, precise=precise)
    imprecise = any(each.severity == "warning" for each in found)
    residuals, use = check_residuals(problem, measurements, precise=precise)
    found += [each for each in residuals if not (imprecise and each.severity == "warning")]
    if all(each.severity == "warning" for each in found):
        found.check("conditions", check_conditions, problem)
    construction = None
    if model is not None:
        construction = found.attempt("exact", lambda: construct(problem, HardConstraints.of(exact)))
    built = None if construction is None else found.attempt("model", built_model, model, problem, 0, [], construction)
    if built is None:
        return found, measurements
    ones = [1.0] * len(problem.fields)
    trial = Scaled(built, problem.domain.lower, problem.domain.upper, [0.0] * len(ones), ones)
    size = sum(parameter.numel() for parameter in trial.parameters())
    trial = trial.to(device=device_of(device, _ROWS * size), dtype=dtype).train()
    # A model that draws random numbers must not draw them from the caller's generator here.
    with torch.random.fork_rng(devices=[]):
        name = type(built).__name__
        if found.check(name, check_model, trial, problem):
            found.check(name, check_function, trial, problem, use.jets)
    return found, measurements

"""``preflight``: mistakes found before the first step, all of one look together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from sciml.diagnostics.findings import Finding, attempted, checked_mode, tell
from sciml.diagnostics.model_checks import check_model, findings_of
from sciml.diagnostics.problem_checks import check_constants, check_residuals
from sciml.diagnostics.well_posedness import condition_warnings
from sciml.errors import ProblemError
from sciml.models import Scaled
from sciml.problem import Measurements, Problem
from sciml.problem.compatibility import slope_contradictions
from sciml.problem.measurements import resolve_data
from sciml.solvers import HardConstraints
from sciml.solvers.discrete_problem import built_model, device_of
from sciml.solvers.hard_constraints import construct


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

    ``fit`` does this before its first step, see its argument ``preflight``. Residuals are evaluated on random numbers in the
    place of fields and their derivatives, the model on a few points with weights that are shaken.

    Args:
        problem: the problem.
        model: the model that is to be fitted; without one the problem and the data are looked at.
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
    found: list[Finding] = []
    measurements = attempted(found, "data", resolve_data, problem, data, observe, noise)
    found += looked_at(problem, model, measurements, exact, dtype, device)
    if not any(each.severity == "fatal" or each.kind == "residual" for each in found):
        sentences = [*condition_warnings(problem, measurements is not None), *slope_contradictions(problem)]
        found += [Finding("conditions", type(problem).__name__, each, severity="warning") for each in sentences]
    return tuple(dict.fromkeys(found))


def checked(
    problem: Problem,
    model: nn.Module | None,
    data: object,
    observe: Mapping[str, Callable[..., Any]] | None,
    noise: Any,
    exact: bool | HardConstraints,
    dtype: torch.dtype,
    device: str | torch.device,
    mode: str,
    depth: int = 1,
) -> Measurements | None:
    """The measurements of a fit, after a look at everything that was handed to it.

    Args:
        problem, model, data, observe, noise, exact, dtype, device: as for ``fit``.
        mode: ``"error"``, ``"warn"`` or ``"off"``.
        depth: how many calls lie between the user's and this one.

    Raises:
        SciMLError: with all findings together; see ``preflight``.
    """
    if checked_mode(mode) == "off":
        return resolve_data(problem, data, observe, noise)
    found: list[Finding] = []
    measurements = attempted(found, "data", resolve_data, problem, data, observe, noise)
    found += looked_at(problem, model, measurements, exact, dtype, device)
    tell(found, mode, type(problem).__name__, depth + 1)
    return measurements


def looked_at(
    problem: Problem,
    model: nn.Module | None,
    measurements: Measurements | None,
    exact: bool | HardConstraints,
    dtype: torch.dtype,
    device: str | torch.device,
) -> list[Finding]:
    """The findings of one look at a problem and, if there is one, a model."""
    precise = dtype == torch.float64
    found = list(check_constants(problem, precise=precise))
    residuals, use = check_residuals(problem, measurements, precise=precise)
    coarse = any(each.severity == "warning" for each in found)
    found += [each for each in residuals if not (coarse and each.severity == "warning")]
    if model is None:
        return found
    construction = attempted(found, "exact", lambda: construct(problem, HardConstraints.of(exact)))
    if construction is None:
        return found
    built = attempted(found, "model", built_model, model, problem, 0, [], construction)
    if built is None:
        return found
    ones = [1.0] * len(problem.fields)
    trial = Scaled(built, problem.domain.lower, problem.domain.upper, [0.0] * len(ones), ones)
    trial = trial.to(device=device_of(device), dtype=dtype).train()
    before = len(found)
    attempted(found, type(built).__name__, check_model, trial, problem)
    if len(found) > before:
        return found
    with torch.random.fork_rng(devices=[]):
        # A model that draws random numbers must not draw them from the caller's generator here.
        return found + findings_of(problem, trial, use.jets)

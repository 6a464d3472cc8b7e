"""Findings: what is wrong with a problem, a model or data before anything is trained, and how it is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sciml.errors import DataError, ModelError, PreflightWarning, ProblemError, SciMLError, SolverError

MODES = ("error", "warn", "off")

_ERRORS: dict[str, type[SciMLError]] = {
    "problem": ProblemError,
    "residual": ProblemError,
    "unknown": ProblemError,
    "field": ProblemError,
    "constant": ProblemError,
    "conditions": ProblemError,
    "data": DataError,
    "model": ModelError,
    "smoothness": ModelError,
    "detached": ModelError,
    "mixing": ModelError,
    "precision": ModelError,
    "solver": SolverError,
}

_ORDER = {"fatal": 0, "error": 1, "warning": 2}

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Finding:
    """One mistake, told before the first step.

    Args:
        kind: ``"residual"``, ``"unknown"``, ``"field"``, ``"constant"``, ``"conditions"`` or ``"problem"``; ``"data"``;
            ``"smoothness"``, ``"detached"``, ``"mixing"``, ``"precision"`` or ``"model"``; ``"solver"``.
        where: the equation, condition, field, column or layer, a layer by its path in ``model.named_modules()``.
        what: the finding in a sentence.
        remedy: what to do; empty where the sentence says so itself.
        severity: ``"fatal"`` (nothing can be fitted), ``"error"`` (a fit would run and mean nothing) or ``"warning"`` (it
            may be meant).

    Raises:
        ValueError: a kind or severity that does not exist.

    Example:
        >>> from sciml import Finding
        >>> print(Finding("unknown", "k", "the unknown 'k' appears in no equation", "use it, or remove it"))
        the unknown 'k' appears in no equation: use it, or remove it
    """

    kind: str
    where: str
    what: str
    remedy: str = ""
    severity: str = "error"

    def __post_init__(self) -> None:
        if self.kind not in _ERRORS or self.severity not in _ORDER:
            raise ValueError(f"kind is one of {sorted(_ERRORS)}, severity one of {list(_ORDER)}; given: {self!r}")

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


def caught(error: SciMLError, where: str) -> Finding:
    """A mistake that nothing can be fitted with, from the error that said so."""
    kinds: tuple[tuple[type[SciMLError], str], ...] = (
        (DataError, "data"),
        (ModelError, "model"),
        (SolverError, "solver"),
    )
    kind = next((kind for each, kind in kinds if isinstance(error, each)), "problem")
    return Finding(kind, where, str(error), severity="fatal")


def attempted(
    found: list[Finding], where: str, function: Callable[..., _Result], *arguments: object, **options: object
) -> _Result | None:
    """What a function returns; None, and a finding more, if it raises an error of ours."""
    try:
        return function(*arguments, **options)
    except SciMLError as error:
        found.append(caught(error, where))
        return None


def checked_mode(mode: object) -> str:
    """One of the three modes.

    Raises:
        SolverError: it is none of them.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise SolverError(f"preflight must be 'error', 'warn' or 'off'; given: {mode!r}")
    return mode


def tell(findings: Iterable[Finding], mode: str, name: str, depth: int) -> None:
    """Raise or warn, all findings together.

    Args:
        findings: of one look.
        mode: ``"error"`` or ``"warn"``; what nothing can be fitted with is an error in both.
        name: whose findings they are.
        depth: how many calls lie between the user's and this one.

    Raises:
        SciMLError: of the class of the gravest finding, with all of them in ``findings``.
    """
    ordered = tuple(sorted(dict.fromkeys(findings), key=lambda each: _ORDER[each.severity]))
    if not ordered:
        return
    refused = {"fatal"} if mode == "warn" else {"fatal", "error"}
    first, text = ordered[0], _together(ordered, name)
    if first.severity in refused:
        error = _ERRORS[first.kind](text)
        error.findings = ordered
        raise error
    warning = PreflightWarning(text)
    warning.findings = ordered
    warnings.warn(warning, stacklevel=depth + 2)


def _together(findings: Sequence[Finding], name: str) -> str:
    if len(findings) == 1:
        return str(findings[0])
    lines = [f"  {number}. {finding}" for number, finding in enumerate(findings, 1)]
    return "\n".join([f"{len(findings)} findings in {name} before the first step:", *lines])

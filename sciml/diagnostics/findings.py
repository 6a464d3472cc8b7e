"""Preflight findings: mistakes in a problem, a model or data, collected from checks and reported together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sciml._text import user_level
from sciml.errors import DataError, ModelError, PreflightWarning, ProblemError, SciMLError, SolverError

_ERRORS: dict[str, type[SciMLError]] = {
    **dict.fromkeys(("problem", "residual", "unknown", "field", "constant", "conditions"), ProblemError),
    "data": DataError,
    **dict.fromkeys(("model", "smoothness", "detached", "mixing", "precision"), ModelError),
    "solver": SolverError,
}
_ORDER = {"fatal": 0, "error": 1, "warning": 2}

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Finding:
    """One mistake, reported before the first step.

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


# A check yields a finding for each mistake that it sees; an error of the library that it raises is a finding too.
Check: TypeAlias = Callable[..., Iterable[Finding] | None]


class Findings(list[Finding]):
    """The findings of several checks, all of which are run whatever the others find."""

    def attempt(self, where: str, function: Callable[..., _Result], *arguments: object, **options: object) -> _Result | None:
        """What a function returns; None, and a fatal finding more, if it raises an error of the library."""
        try:
            return function(*arguments, **options)
        except SciMLError as error:
            kind = next((kind for kind in ("data", "model", "solver") if isinstance(error, _ERRORS[kind])), "problem")
            self.append(Finding(kind, where, str(error), severity="fatal"))
            return None

    def check(self, where: str, check: Check, *arguments: object, **options: object) -> bool:
        """Run a check; whether it came to its end."""

        def run() -> bool:
            for each in check(*arguments, **options) or ():
                self.append(each)
            return True

        return self.attempt(where, run) is not None

    def report(self, mode: str, name: str) -> None:
        """Raise or warn, all findings together."""
        ordered = tuple(sorted(dict.fromkeys(self), key=lambda each: _ORDER[each.severity]))
        if not ordered:
            return
        text = str(ordered[0])
        if len(ordered) > 1:
            lines = (f"  {number}. {finding}" for number, finding in enumerate(ordered, 1))
            text = "\n".join([f"{len(ordered)} findings in {name} before the first step:", *lines])
        if ordered[0].severity in ({"fatal"} if mode == "warn" else {"fatal", "error"}):
            error = _ERRORS[ordered[0].kind](text)
            error.findings = ordered
            raise error
        warning = PreflightWarning(text)
        warning.findings = ordered
        warnings.warn(warning, stacklevel=user_level())

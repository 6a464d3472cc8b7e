"""``load``: a solution from its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from sciml._text import listed
from sciml.data import archive
from sciml.errors import FileError, ProblemError, SciMLError
from sciml.geometry import Box, domain_from_config
from sciml.problem import Problem
from sciml.runs.save import PLAIN, table_of, trial_of, without_conditions
from sciml.solution import Solution
from sciml.uncertainty.error_bands import FieldCovariance

_FOREIGN = (
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    ValueError,
    MemoryError,
)

_NUMBERS = (int, float, type(None))

_KINDS: dict[str, Any] = {
    "name": str,
    "success": bool,
    "status": str,
    "message": str,
    "nit": int,
    "nfev": int,
    "seconds": int | float,
    "solver": str,
    "engine": str,
    "seed": int | None,
    "choices": list,
    "points": dict,
    "fields": list,
}


def load(path: str | Path, problem: Problem | None = None, model: nn.Module | None = None) -> Solution:
    """Read a solution that ``Solution.save`` wrote.

    Args:
        path: the file.
        problem: the problem, if residuals, references or plots of references are wanted from the loaded solution; needed for
            a solution that satisfies conditions exactly, because what they prescribe is code.
        model: for a solution with a model of the user's own: an object of the same class; its copy receives the state.

    Returns:
        The solution, on the CPU, with the same values as when it was saved.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, needs ``model`` or ``problem``, or
            belongs to another problem or model.
    """
    content = archive.load_tensors(Path(path))
    try:
        return _restored(Path(path), content, problem, model)
    except SciMLError:
        raise
    except _FOREIGN as error:
        raise _incomplete(path, error) from error


def load_weights(path: str | Path, model: nn.Module | None = None) -> tuple[Solution, bool]:
    """A saved solution as a beginning: its model without the conditions that it held exactly, and whether it held any.

    Raises:
        FileError: as ``load``.
    """
    content = archive.load_tensors(Path(path))
    try:
        exact = bool(content.get("exact"))
        return _restored(Path(path), without_conditions(content), None, model), exact
    except SciMLError:
        raise
    except _FOREIGN as error:
        raise _incomplete(path, error) from error


def _restored(path: Path, content: dict[str, Any], problem: Problem | None, model: nn.Module | None) -> Solution:
    _check(path, content)
    bounds = {key: (float(pair[0]), float(pair[1])) for key, pair in content["bounds"].items()}
    # Files of version 0.1 hold bounds alone.
    domain = domain_from_config(content["domain"]) if "domain" in content else Box(**bounds)
    if domain.bounds != bounds:
        raise FileError(f"{path} is not a saved solution: its domain has bounds {domain.bounds}, and it says {bounds}")
    fields = tuple(content["fields"])
    if problem is not None and not isinstance(problem, Problem):
        raise ProblemError(f"load: problem must be a problem object; given: {problem!r}")
    if problem is not None and (problem.coordinates != tuple(bounds) or tuple(problem.fields) != fields):
        raise FileError(
            f"{path} holds a solution of {content['name']} with coordinates {listed(bounds)} and fields {listed(fields)}, "
            f"not of {type(problem).__name__} with {listed(problem.coordinates)} and {listed(problem.fields)}"
        )
    frames: dict[str, Any] = {
        key: pd.DataFrame(stored["columns"], index=stored["index"]) for key, stored in content["frames"].items()
    }
    for name in ("history", "events"):
        if name in frames:
            frames[name] = frames[name].reset_index(drop=True)
    return Solution(
        trial=trial_of(path, content, bounds, problem, model),
        problem=problem,
        fields=fields,
        domain=domain,
        data=table_of(path, content),
        points=content["points"],
        choices=tuple(content["choices"]),
        statistics=content.get("statistics", {}),
        tolerance=content.get("tolerance", 0.05),
        spread=None if content.get("spread") is None else _spread(*content["spread"]),
        **frames,
        **{key: content[key] for key in PLAIN},
    )


def _incomplete(path: str | Path, error: Exception) -> FileError:
    return FileError(f"{path} is not a complete saved solution: {type(error).__name__}: {str(error)[:300]}")


def _check(path: Path, content: dict[str, Any]) -> None:
    """Refuse values of other kinds than ``state_of`` writes, and models that say they are larger than what is stored.

    Raises:
        FileError: with the first such value.
    """
    for name, kinds in _KINDS.items():
        if not isinstance(content[name], kinds) or (isinstance(content[name], bool) and kinds is not bool):
            raise FileError(f"{path} is not a saved solution: {name!r} is {str(content[name])[:50]!r}")
    for name, stored in content["frames"].items():
        plain = _NUMBERS if name in ("unknowns", "residuals") else (*_NUMBERS, str)
        for key, column in stored["columns"].items():
            if not isinstance(column, list) or not all(isinstance(value, plain) for value in column):
                raise FileError(f"{path} is not a saved solution: the column {key!r} of {name!r} holds other values")
    held = sum(value.numel() for value in content["trial"].values())
    said = max(_whole([content["model"], content.get("periodic")]), default=0)
    if said > max(held, 1000):
        raise FileError(
            f"{path} is not a saved solution: its model has {said} of something, and {held} numbers are stored for it"
        )


def _whole(value: Any) -> Iterator[int]:
    """The whole numbers in nested lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _whole(each)
    elif isinstance(value, int):
        yield abs(value)


def _spread(names: list[str], directions: Tensor, quantile: float) -> FieldCovariance:
    return FieldCovariance(tuple(names), directions, quantile)

"""Solutions side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sciml.errors import ProblemError
from sciml.solution import Solution


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """A table of solutions of one problem; ``print`` it, or take ``table`` (a DataFrame) and ``unknowns`` further.

    ``table`` has a row for each solution: the relative L2 error and largest absolute error of each field against the
    truth, seconds, the number of parameters, evaluated points per second, and success. ``against`` says what the truth is.
    """

    table: pd.DataFrame
    unknowns: pd.DataFrame
    against: str
    solutions: tuple[Solution, ...]

    def plot(self) -> Figure:
        """The first solution drawn beside the second one."""
        return self.solutions[0].plot(self.solutions[1])

    def __repr__(self) -> str:
        parts = [f"errors against {self.against}", self.table.to_string(float_format=lambda value: f"{value:.3g}")]
        if len(self.unknowns):
            parts += ["", self.unknowns.to_string(float_format=lambda value: f"{value:.4g}")]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        """For notebooks."""
        frames = [self.table, self.unknowns] if len(self.unknowns) else [self.table]
        return f"<p>errors against {self.against}</p>" + "".join(
            frame.to_html(float_format="{:.4g}".format) for frame in frames
        )


def compare(*solutions: Solution, truth: Any = None) -> Comparison:
    r"""Hold solutions of one problem against each other.

    Args:
        solutions: two or more, from ``fit`` or ``baseline``.
        truth: a solution or a function of the coordinates to measure errors against; by default the problem's
            ``reference``, and where it has none the last baseline among the solutions, or else the last solution.

    Returns:
        A ``Comparison`` with a row for each solution.

    Raises:
        ProblemError: fewer than two solutions, or solutions of different problems.

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
        >>> loose, tight = sciml.baseline(Decay(), tolerance=1e-4), sciml.baseline(Decay(), tolerance=1e-8)
        >>> bool(sciml.compare(loose, tight).table["u: relative L2"].iloc[0] < 1e-4)
        True
    """
    if len(solutions) < 2:
        raise ProblemError(f"compare needs at least two solutions; given: {len(solutions)}")
    for each in solutions:
        if not isinstance(each, Solution):
            raise ProblemError(f"compare needs solutions of fit or baseline; given: {type(each).__name__}")
    first = solutions[0]
    for other in solutions[1:]:
        if other.fields != first.fields or other.domain != first.domain:
            raise ProblemError(
                f"compare needs solutions of one problem; {first.name} has {first.fields} on {first.domain!r}, "
                f"{other.name} has {other.fields} on {other.domain!r}"
            )
    against, truth = _truth(solutions, truth)
    grid = first.grid()
    names = _names(solutions)
    rows = {name: _row(solution, truth, grid) for name, solution in zip(names, solutions, strict=True)}
    parts = {
        name: solution.unknowns[["estimate", "standard_error"]]
        for name, solution in zip(names, solutions, strict=True)
        if len(solution.unknowns)
    }
    unknowns = pd.concat(parts, axis=1) if parts else pd.DataFrame()
    return Comparison(pd.DataFrame.from_dict(rows, orient="index"), unknowns, against, solutions)


def _truth(solutions: tuple[Solution, ...], truth: Any) -> tuple[str, Any]:
    if truth is not None:
        return "the truth given", truth
    problem = next((each.problem for each in solutions if each.problem is not None), None)
    if problem is not None and problem.has_reference:
        return "the reference", None
    classical = [each for each in solutions if each.model is None]
    chosen = (classical or list(solutions))[-1]
    return f"{chosen.engine}'s solution, for want of a reference", chosen


def _row(solution: Solution, truth: Any, grid: dict[str, np.ndarray]) -> dict[str, Any]:
    start = time.perf_counter()
    values = solution(**grid)
    speed = next(iter(values.values())).size / (time.perf_counter() - start)
    exact = solution.truth(grid, truth)
    row: dict[str, Any] = {}
    for name, error in solution.error(truth).items():
        row[f"{name}: relative L2"] = error
        row[f"{name}: largest"] = float(np.abs(values[name] - exact[name]).max())
    return {
        **row,
        "seconds": solution.seconds,
        "parameters": solution.parameters,
        "points/s": speed,
        "success": solution.success,
    }


def _names(solutions: tuple[Solution, ...]) -> list[str]:
    names: list[str] = []
    for solution in solutions:
        name = "SciPy" if solution.model is None else type(solution.model).__name__
        count = sum(each == name or each.startswith(f"{name} #") for each in names)
        names.append(f"{name} #{count + 1}" if count else name)
    return names

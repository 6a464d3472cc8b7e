"""Comparison of solutions: errors against a reference, time, size and speed."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sciml import plots
from sciml._text import listed
from sciml.data import Table
from sciml.errors import ProblemError
from sciml.geometry import Interior, draw
from sciml.geometry.coordinates import points_from
from sciml.plots import Shown, side_by_side
from sciml.problem import Problem
from sciml.solution import Solution
from sciml.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MANY = 2**16
_TIMED = 2**14
_SECONDS = 0.1
_REPEATS = 5
BLOW_UP = "blow-up: no comparison made"


@dataclass(frozen=True)
class Truth:
    """What solutions are measured against, and how it is called."""

    name: str
    given: Any
    problem: Problem | None

    def values(self, solution: Solution, points: Mapping[str, Array]) -> dict[str, Array]:
        """What the fields of a solution should be at points."""
        # A solution that was loaded may have no problem of its own.
        own = solution if self.problem is None else replace(solution, problem=self.problem)
        return own.truth(points, self.given)


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """A table of solutions of one problem; ``print`` it, or take ``table`` (a DataFrame) and ``unknowns`` further.

    ``table`` has a row for each solution and these columns:

    - ``<field>: relative L2`` and ``<field>: largest``, for each field: the root mean square of the difference from the truth
      by that of the truth, and the largest absolute difference, in the field's unit;
    - ``estimated error``: what the solution estimates of the worst field, NaN where it does not;
    - ``seconds``: the wall-clock time of the solving;
    - ``degrees of freedom``: the numbers that describe the solution, a network's parameters or a grid's values;
    - ``points/s``: points evaluated in a second, measured here on at least 16,384 of them;
    - ``success``: whether the solution calls itself one;
    - ``remark``: empty, or ``taken as the truth``, the status of what is no success, or ``blow-up: no comparison made`` for
      a solution with values that are not finite, whose errors are NaN.

    Attributes:
        table: the solutions, indexed by what they are called.
        unknowns: the estimates of unknown constants and their standard errors.
        against: what errors are measured against.
        solutions: the solutions, in the order of the rows.
        truth: the same as ``against``, as a function.
        points: where errors were measured: each coordinate's values.
    """

    table: pd.DataFrame
    unknowns: pd.DataFrame
    against: str
    solutions: tuple[Solution, ...]
    truth: Truth
    points: Mapping[str, Array]

    def plot(self) -> Figure:
        """All solutions side by side, and the difference of each from the truth below it, with a colour scale of its own.

        Over one coordinate: the curves, and beside them the differences on a logarithmic scale. Over three and more: a
        slice, at the end of time and in the middle of what else is left. A solution that is no success is marked.
        """
        first = self.solutions[0]
        time = next((each.problem.time for each in self.solutions if each.problem is not None), "t")
        shown = []
        for name, solution in zip(self.table.index, self.solutions, strict=True):
            mark = "" if solution.success else " (not a success)"
            blown_up = self.table.loc[name, "remark"] == BLOW_UP
            if blown_up:
                mark = f"\n({BLOW_UP})"
            title, living, truth = f"{name}{mark}", partial(plots.living, solution), partial(self.truth.values, solution)
            shown.append(Shown(title, living, truth, is_truth=self.truth.given is solution, blown_up=blown_up))
        return side_by_side(shown, first.fields, first.domain, time, self.against)

    def __repr__(self) -> str:
        parts = [f"errors against {self.against}", self.table.to_string(float_format=lambda value: f"{value:.3g}")]
        if len(self.unknowns):
            parts += ["", self.unknowns.to_string(float_format=lambda value: f"{value:.4g}")]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        """For notebooks."""
        frames = [self.table, self.unknowns] if len(self.unknowns) else [self.table]
        return f"<p>errors against {html.escape(self.against)}</p>" + "".join(
            frame.to_html(float_format="{:.4g}".format) for frame in frames
        )


def compare(*solutions: Solution, truth: Any = None, on: Any = None) -> Comparison:
    r"""Hold solutions of one problem against each other: errors, time, size, speed and success.

    The relative error of a field is :math:`(\sum_i (u_i - u^*_i)^2 / \sum_i u_i^{*2})^{1/2}` over the points.

    Args:
        solutions: two or more, from ``fit``, ``baseline`` or ``load``, with the same fields on the same domain.
        truth: a solution or a function of the coordinates to measure errors against; by default the problem's
            ``reference``; where it has none the last baseline among the solutions that are successes, or else the last of
            these, and where none is one the last baseline, or else the last solution.
        on: the points to measure errors at: a dict of coordinates that broadcast, in their units, or a ``Table`` or
            DataFrame with a column for each coordinate; by default a dense grid of what lies inside the domain, and in four
            and more coordinates 65,536 low-discrepancy points.

    Returns:
        A ``Comparison`` with a row for each solution.

    Raises:
        ProblemError: fewer than two solutions, or solutions with other fields or on another domain; ``on`` lacks a
            coordinate; the truth is not finite.

    Example:
        >>> import sciml
        >>> growth = sciml.gallery.problem("logistic_growth")
        >>> loose, tight = sciml.baseline(growth, tolerance=1e-4), sciml.baseline(growth, tolerance=1e-8)
        >>> bool(sciml.compare(loose, tight, on={"t": [0.5, 1.0]}).table["u: relative L2"].iloc[0] < 1e-4)
        True
    """
    _check(solutions)
    points = _points(solutions[0], on)
    found = [solution(points) for solution in solutions]
    where = [solution.lives(points) for solution in solutions]
    finite = [
        all(np.isfinite(values[name][there]).all() for name, there in lives.items())
        for values, lives in zip(found, where, strict=True)
    ]
    against = _truth(solutions, finite, truth)
    rows = {}
    for name, solution, values, lives, sound in zip(_names(solutions), solutions, found, where, finite, strict=True):
        exact = against.values(solution, points)
        bad = max(int((~np.isfinite(exact[field][there])).sum()) for field, there in lives.items())
        if bad:
            raise ProblemError(
                f"{against.name} is not finite at {bad} of the points: no comparison made; pass truth= or on= points "
                "where it is"
            )
        rows[name] = {
            **_errors(lives, values, exact, sound),
            "estimated error": max(solution.estimated_error.values(), default=np.nan),
            "seconds": solution.seconds,
            "degrees of freedom": solution.parameters,
            "points/s": _speed(solution, points),
            "success": solution.success,
            "remark": _remark(solution, against, sound),
        }
    parts = {
        name: solution.unknowns[["estimate", "standard_error"]]
        for name, solution in zip(rows, solutions, strict=True)
        if len(solution.unknowns)
    }
    unknowns = pd.concat(parts, axis=1) if parts else pd.DataFrame()
    table = pd.DataFrame.from_dict(rows, orient="index")
    return Comparison(table, unknowns, against.name, solutions, against, points)


def _check(solutions: tuple[Any, ...]) -> None:
    if len(solutions) < 2:
        raise ProblemError(f"compare needs at least two solutions; given: {len(solutions)}")
    for each in solutions:
        if not isinstance(each, Solution):
            raise ProblemError(f"compare needs solutions of fit or baseline; given: {type(each).__name__}")
    first = solutions[0]
    for other in solutions[1:]:
        if set(other.fields) != set(first.fields) or other.domain != first.domain:
            raise ProblemError(
                f"compare needs solutions of one problem; {first.name} has {first.fields} on {first.domain!r}, "
                f"{other.name} has {other.fields} on {other.domain!r}"
            )


def _points(solution: Solution, on: Any) -> dict[str, Array]:
    """The points to measure errors at, by coordinate, of one shape."""
    names = solution.coordinates
    if on is None:
        if len(names) <= 3:
            return solution.grid()
        sample = draw(Interior(), solution.domain, _MANY, np.random.default_rng(0)).points[0].numpy()
        return dict(zip(names, sample.T, strict=True))
    if isinstance(on, Table | pd.DataFrame):
        missing = [name for name in names if name not in on.columns]
        if missing:
            raise ProblemError(
                f"compare: on= needs a column for each of {listed(names)}; it lacks {listed(missing)} and has "
                f"{listed(map(str, on.columns))}"
            )
        on = {name: np.asarray(on[name]) for name in names}
    if not isinstance(on, Mapping):
        raise ProblemError(f"compare: on= takes a dict of coordinates, a Table or a DataFrame; given: {type(on).__name__}")
    points, shape = points_from(on, names)
    if not len(points):
        raise ProblemError("compare: on= has no points")
    return {name: column.numpy().reshape(shape) for name, column in zip(names, points.unbind(1), strict=True)}


def _truth(solutions: tuple[Solution, ...], finite: list[bool], given: Any) -> Truth:
    if given is not None:
        name = given.engine if isinstance(given, Solution) else "the truth given"
        return Truth(name, given, None)
    problem = next((each.problem for each in solutions if each.problem is not None and each.problem.has_reference), None)
    if problem is not None:
        own = " at the estimated constants" if problem.unknowns else ""
        return Truth(f"the reference{own}", None, problem)
    sound = [each for each, good in zip(solutions, finite, strict=True) if good]
    if not sound:
        raise ProblemError(f"{BLOW_UP}; no solution has finite values at the points, and there is no reference")
    # What is no success is no truth for what is one.
    chosen = max(enumerate(sound), key=lambda each: (each[1].success, each[1].model is None, each[0]))[1]
    return Truth(f"{chosen.engine}'s solution, for want of a reference", chosen, None)


def _errors(
    lives: Mapping[str, Array], values: Mapping[str, Array], exact: Mapping[str, Array], sound: bool
) -> dict[str, float]:
    row = {}
    for name, there in lives.items():
        gap, size = (values[name] - exact[name])[there], float(np.linalg.norm(exact[name][there]))
        row[f"{name}: relative L2"] = float(np.linalg.norm(gap)) / (size or 1.0) if sound else np.nan
        row[f"{name}: largest"] = float(np.abs(gap).max(initial=0)) if sound else np.nan
    return row


def _speed(solution: Solution, points: Mapping[str, Array]) -> float:
    """Points evaluated in a second: the fastest of some evaluations, the first of which has been made before."""
    columns = {name: np.resize(values, max(values.size, _TIMED)) for name, values in points.items()}
    best, spent = np.inf, 0.0
    for _ in range(_REPEATS):
        start = time.perf_counter()
        solution(columns)
        taken = time.perf_counter() - start
        best, spent = min(best, taken), spent + taken
        if spent > _SECONDS:
            break
    return float(next(iter(columns.values())).size / best)


def _remark(solution: Solution, truth: Truth, sound: bool) -> str:
    if not sound:
        return BLOW_UP
    if not solution.success:
        return f"not a success: {solution.status}"
    return "taken as the truth" if truth.given is solution else ""


def _names(solutions: tuple[Solution, ...]) -> list[str]:
    names: list[str] = []
    for solution in solutions:
        name = solution.engine if solution.model is None else type(solution.model).__name__
        count = sum(each == name or each.startswith(f"{name} #") for each in names)
        names.append(f"{name} #{count + 1}" if count else name)
    return names

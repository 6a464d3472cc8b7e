"""A row of the table: what is solved or measured, how its error is taken, and what it should reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from sciml import Problem, Solution

from . import stored

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Target:
    """An error to be reached within some seconds; of a ratio or a rate there are no seconds."""

    value: float
    seconds: float | None = None


@dataclass(frozen=True)
class Case:
    """One benchmark.

    Attributes:
        name: what it is called on the command line.
        row: its row in the table of targets.
        title: the equation in a line of Markdown.
        targets: the first is what must be reached, the others are stretches.
        peers: what others reach, in words, measured on one core before this table was made or published.
        problem: makes the problem, for a benchmark that is solved by ``sciml.fit(problem, seed=seed)``.
        error: the relative error of a solution.
        measure: for a benchmark that is no fit: a number from a seed.
        unit: of what is measured; ``"error"`` for fits.
        more_is_better: whether the target is a lower bound.
    """

    name: str
    row: int
    title: str
    targets: tuple[Target, ...]
    peers: str = ""
    problem: Callable[[], Problem] | None = None
    error: Callable[[Solution], float] | None = None
    measure: Callable[[int], float] | None = None
    unit: str = "error"
    more_is_better: bool = False

    def meets(self, target: Target, value: float, seconds: float) -> bool:
        """Whether a figure reached in some seconds is as good as a target."""
        good = value >= target.value if self.more_is_better else value <= target.value
        return good and (target.seconds is None or seconds <= target.seconds)


def relative(found: Values, truth: Values) -> float:
    r"""The largest :math:`\lVert u - u^*\rVert_2/\lVert u^*\rVert_2` of all fields."""
    errors = [np.linalg.norm(found[name] - truth[name]) / np.linalg.norm(truth[name]) for name in truth]
    return float(np.max(errors))


def on_grid(points: int = 201) -> Callable[[Solution], float]:
    """The error against the problem's own exact solution on a grid with some points along each coordinate."""

    def error(solution: Solution) -> float:
        axes = [np.linspace(low, high, points) for low, high in solution.bounds.values()]
        grid = dict(zip(solution.bounds, np.meshgrid(*axes, indexing="ij"), strict=True))
        return relative(solution(**grid), solution.truth(grid))

    return error


def on_sobol_points(power: int = 16) -> Callable[[Solution], float]:
    """The same at ``2**power`` Sobol points, for many dimensions."""

    def error(solution: Solution) -> float:
        unit = qmc.Sobol(len(solution.bounds), seed=0).random_base2(power)
        low, high = np.array(list(solution.bounds.values())).T
        points = dict(zip(solution.bounds, (low + (high - low) * unit).T, strict=True))
        return relative(solution(**points), solution.truth(points))

    return error


def against(name: str) -> Callable[[Solution], float]:
    """The error against a stored reference at its own points, so that nothing is interpolated."""

    def error(solution: Solution) -> float:
        truth = stored.load(name)
        return relative(solution(**truth.grid()), truth.fields)

    return error


def of_unknowns(**truth: float) -> Callable[[Solution], float]:
    """The largest relative error of the unknown constants."""

    def error(solution: Solution) -> float:
        found: Any = solution.unknowns["estimate"]
        return float(np.max([abs(float(found[name]) - value) / abs(value) for name, value in truth.items()]))

    return error

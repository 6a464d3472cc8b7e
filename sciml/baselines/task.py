"""Task and result of a baseline, and nonlinear least squares over whole integrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import scipy
import torch
from torch import Tensor, nn

from sciml.baselines.integrate import Budget, IntegrationError
from sciml.errors import BaselineError
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.observations import Prior
from sciml.problem.pulses import pulses
from sciml.typing import Array
from sciml.uncertainty import Estimate, Inference
from sciml.uncertainty.covariance import covariance

INTEGRATORS = ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")
FAMILIES = ("chebyshev", "differences")


@dataclass(frozen=True)
class Task:
    """A problem, and how it is to be solved.

    Attributes:
        problem: the problem.
        measured: blocks of measurements, and what was known of constants before.
        scales: the natural size of every term, by which its rows are divided.
        centres: what every field lies about, ``(F,)``.
        sizes: the natural size of every field, ``(F,)``.
        tolerance: the relative accuracy aimed at.
        budget: the time that is left.
        method: as for ``baseline``.
        n: nodes along each coordinate of the finest grid; None for as many as the tolerance takes.
        events: functions by name whose zeros are recorded.
        known: whether the standard deviation of every measured column was given.
    """

    problem: Problem
    measured: list[Collocation]
    scales: Mapping[str, float]
    centres: Array
    sizes: Array
    tolerance: float
    budget: Budget
    method: str = "auto"
    n: int | None = None
    events: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    known: bool = False

    @property
    def name(self) -> str:
        """What the problem is called."""
        return type(self.problem).__name__

    @cached_property
    def stops(self) -> list[float]:
        """The times of pulses, which steps might leave out, and of jumps."""
        return pulses(self.problem)[1]

    @property
    def raw(self) -> Array:
        """The raw number at which each unknown begins, ``(q,)``."""
        return np.array([float(each.raw_initial()) for each in self.problem.unknowns.values()])

    @property
    def initial(self) -> dict[str, Tensor]:
        """The value at which each unknown begins."""
        return {name: torch.tensor(each.initial, dtype=torch.float64) for name, each in self.problem.unknowns.items()}

    def values(self, raw: Array) -> dict[str, Tensor]:
        """The unknowns' values from their raw numbers ``(q,)``, or of a batch ``(q, n)``."""
        return {
            name: unknown.value(torch.tensor(number, dtype=torch.float64))
            for (name, unknown), number in zip(self.problem.unknowns.items(), raw, strict=False)
        }

    def inference(self, raw: Array, rows: Array, by_model: Array, by_raw: Array) -> Inference:
        """Estimates of the unknowns; the last of the rows are the measurements, their derivatives as for ``covariance``."""
        terms = [(term, block.height) for block in self.measured for term in block.terms]
        prior = np.concatenate([np.full(height, isinstance(term.evaluate, Prior)) for term, height in terms])
        exact = len(rows) - len(prior)
        return covariance(
            self.problem.unknowns,
            raw,
            by_model,
            by_raw,
            rows,
            np.arange(len(rows)) >= exact,
            prior=np.concatenate([np.zeros(exact, dtype=bool), prior]),
            variance=1.0 / self.scales[terms[0][0].name] ** 2 if self.known else None,
        )

    def fit(
        self, rows: Callable[[Array], Array], slopes: Callable[[Array], Array], start: Array, tolerance: float
    ) -> tuple[scipy.optimize.OptimizeResult, Inference]:
        """Fit raw unknowns, and what else is free, to the measurements by ``scipy.optimize.least_squares``.

        Reference: G. A. F. Seber and C. J. Wild, Nonlinear Regression, Wiley 1989.
        """
        size, count = len(rows(start)), len(self.problem.unknowns)

        def guarded(x: Array) -> Array:
            try:
                return rows(x)
            except IntegrationError:
                if self.budget.exhausted:
                    raise
                # A trial step to where the solution blows up: too large to be taken, and finite.
                return np.full(size, 1e3)

        options = {"xtol": tolerance, "ftol": tolerance / 10, "gtol": 1e-12}
        try:
            found = scipy.optimize.least_squares(guarded, start, jac=slopes, x_scale="jac", **options)
        except ValueError as error:
            raise BaselineError(f"least_squares failed: {error}") from error
        return found, self.inference(found.x[:count], found.fun, found.jac[:, count:], found.jac[:, :count])


@dataclass(frozen=True)
class Solved:
    """The result of any of the methods: integration, shooting, grids.

    Attributes:
        trial: the solution as a function of points.
        unknowns: their estimates.
        steps: of the integrator, of Newton's method or of the fit.
        solver: the method in words.
        raw: the raw numbers of fitted unknowns.
        success: whether the tolerance was reached.
        message: how it ended.
        choices: what was chosen on the way.
        events: a row for each zero of an event.
        history: a row for each grid.
        error: the estimated relative error, where methods were compared.
        left: what least squares left of an equation, as a part of its natural size.
    """

    trial: nn.Module
    unknowns: dict[str, Estimate]
    steps: int
    solver: str
    raw: Array | None = None
    success: bool = True
    message: str = ""
    choices: tuple[str, ...] = ()
    events: pd.DataFrame = field(default_factory=pd.DataFrame)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    error: float = np.nan
    left: float = 0.0


def unestimated(values: Mapping[str, Tensor]) -> dict[str, Estimate]:
    """Values of unknowns without intervals."""
    return {name: Estimate(float(value), np.nan, np.nan, np.nan) for name, value in values.items()}

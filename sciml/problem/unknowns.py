"""Unknown constants of a problem, to be estimated from data."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml.errors import ProblemError
from sciml.problem.noise import Poisson, noise_of


@dataclass(frozen=True)
class Unknown:
    r"""A constant of a problem that ``fit`` estimates together with the solution.

    Solvers work on a raw number :math:`\rho` of order one, zero at the start:
    :math:`v_0 + s\rho` without bounds (:math:`s = |v_0|`, or 1 when that is zero), :math:`l + (v_0 - l)e^{\rho}` with a
    lower bound, its mirror image with an upper bound, and a logistic curve between two bounds. So the value never leaves
    its bounds, and constants of very different size are searched at the same pace.

    What was known before the data is a prior: ``prior=(0.5, 0.1)`` is a normal distribution of mean 0.5 and standard deviation
    0.1, ``prior=(0.5, sciml.LogNormal(0.2))`` another density. It is one row more, as though the constant had been measured.

    Args:
        initial: the value to start from, in the unit of the problem.
        lower: a bound that the value stays above, or None.
        upper: a bound that the value stays below, or None.
        prior: a value and its standard deviation in the unit of the problem, or a value and a noise model with its sigma.

    Raises:
        ProblemError: a number is not finite, ``initial`` is not strictly between the bounds, or the prior is no pair of a
            number and a standard deviation or noise of known sigma.

    Example:
        >>> import sciml
        >>> rate = sciml.Unknown(0.5, lower=0)
        >>> float(rate.value(rate.raw_initial()))
        0.5
    """

    initial: float
    lower: float | None = None
    upper: float | None = None
    prior: tuple[float, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("initial", "lower", "upper"):
            value = getattr(self, name)
            if value is None and name != "initial":
                continue
            if not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise ProblemError(f"Unknown: {name} must be a finite number; given: {value!r}")
        above = self.lower is None or self.lower < self.initial
        below = self.upper is None or self.initial < self.upper
        if not (above and below):
            raise ProblemError(
                f"Unknown: the initial value must lie strictly between the bounds; given: initial={self.initial:g}, "
                f"lower={self.lower}, upper={self.upper}"
            )
        if self.prior is None:
            return
        given = self.prior
        pair = isinstance(given, tuple | list) and len(given) == 2
        noise = noise_of(given[1]) if pair and isinstance(given[0], numbers.Real) and math.isfinite(given[0]) else None
        if noise is None or not isinstance(noise.sigma, int | float) or isinstance(noise, Poisson):
            raise ProblemError(
                f"Unknown: prior must be a value and its standard deviation, (0.5, 0.1), or a value and a noise model of known "
                f"sigma, (0.5, sciml.LogNormal(0.2)); given: {given!r}"
            )
        noise.check("the prior of an Unknown", np.array([float(given[0])]))
        object.__setattr__(self, "prior", (float(given[0]), noise))

    @property
    def _bound(self) -> float | None:
        """The bound, if there is only one."""
        return self.upper if self.lower is None else self.lower

    def raw_initial(self) -> Tensor:
        """The raw number that stands for the initial value."""
        return self.raw(self.initial)

    def raw(self, value: float) -> Tensor:
        """The raw number that stands for a value strictly between the bounds, a float64 scalar."""
        low, high = self.lower, self.upper
        if not math.isfinite(value) or (low is not None and value <= low) or (high is not None and value >= high):
            raise ProblemError(f"Unknown: {value:g} does not lie strictly between the bounds; lower={low}, upper={high}")
        return self.raw_of(torch.tensor(value, dtype=torch.float64))

    def raw_of(self, values: Tensor) -> Tensor:
        """The raw numbers of values between the bounds, differentiable: the inverse of ``value``."""
        if self.lower is not None and self.upper is not None:
            return torch.logit((values - self.lower) / (self.upper - self.lower))
        if self._bound is not None:
            return torch.log((values - self._bound) / (self.initial - self._bound))
        return (values - self.initial) / (abs(self.initial) or 1.0)

    def value(self, raw: Tensor) -> Tensor:
        """The value that a raw number stands for; differentiable, of the same shape."""
        if self.lower is not None and self.upper is not None:
            return self.lower + (self.upper - self.lower) * torch.sigmoid(raw)
        if self._bound is not None:
            return self._bound + (self.initial - self._bound) * torch.exp(raw)
        return self.initial + (abs(self.initial) or 1.0) * raw

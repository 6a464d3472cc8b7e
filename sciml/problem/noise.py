r"""Noise models: the scatter of measurements about what they measure, each the density that makes the loss.

A solver of least squares minimises sums of squares. Any other loss :math:`\rho \ge 0` of a standardised deviation z becomes
one by rows :math:`r(z) = \operatorname{sign}(z)\sqrt{2\rho(z)}`, smooth where :math:`\rho` is; so every noise model serves
every solver.

References: P. J. Huber, Robust Statistics, Wiley 1981 (scores, and the covariance of their estimates); P. McCullagh and
J. A. Nelder, Generalized Linear Models, 2nd ed., Chapman and Hall 1989, section 2.4 (deviance residuals).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sciml.errors import DataError, ProblemError
from sciml.typing import Array

_FLOOR, _NEAR, _SWEEPS = 0.01, 1e-2, 100
# Values that differ by less than this share of themselves do not scatter.
BILLIONTH = 1e-9


@dataclass(frozen=True)
class Noise(ABC):
    """The density of one column of measurements about what they measure."""

    sigma: float | str | None = None
    robust: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            given = getattr(self, name)
            if name == "sigma" and isinstance(given, str | None):
                continue
            if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
                column = ", the name of a column that holds one for every row, or None to find it from the data"
                raise ProblemError(
                    f"{type(self).__name__}: {name} must be a positive number{column * (name == 'sigma')}; given: {given!r}"
                )

    @property
    def known(self) -> bool:
        """True if the size of the scatter is given, and not to be found from the data."""
        return self.sigma is not None

    def check(self, what: str, measured: Array) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse values ``(n,)`` of what ``what`` names that this noise cannot have made, by a ``DataError``."""

    def deviation(self, model: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        """The standardised deviation z of a model's values from measured ones, shape ``(n,)``."""
        return (model - measured) / sigma

    def measured(self, model: Array, deviation: Array) -> Array:
        """The values that would be measured at given deviations, times sigma, of a model: the inverse of ``deviation``."""
        return model - deviation

    def rows(self, deviation: Tensor) -> Tensor:
        """Rows whose squares are twice the loss, shape ``(n,)``."""
        return deviation

    def score(self, deviation: Tensor) -> Tensor:
        """The derivative of the loss."""
        return deviation

    def curvature(self, deviation: Tensor) -> Tensor:
        """The second derivative of the loss."""
        return torch.ones_like(deviation)

    @abstractmethod
    def log_density(self, deviation: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        """The logarithm of the density of measured values, shape ``(n,)``."""

    def squares(self, model: Tensor, measured: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor] | None:
        """Squares of mean one where this noise is at work, and their variances; None where squares say little."""
        return None if self.robust else (deviation.square(), torch.full_like(deviation, 2.0))

    def spread(self, measured: Tensor) -> float:
        """The scatter of a column that nothing explains, in the unit of sigma."""
        return float(measured.std(correction=0)) if len(measured) else 0.0

    def rounding(self, measured: Tensor) -> float:
        """How large sigma is, at most, where a column scatters by no more than a billionth of its values."""
        moved = self.deviation((1 + BILLIONTH) * measured, measured, 1.0) - self.deviation(measured, measured, 1.0)
        return float(moved.abs().max()) if len(moved) else 0.0

    def estimate(self, deviations: Tensor, freedom: float) -> float:
        """Sigma from deviations of unit sigma, ``freedom`` of which are free."""
        return math.sqrt(float(deviations.square().sum()) / max(freedom, 1.0))

    def with_sigma(self, sigma: float) -> Noise:
        """The same density with a known sigma."""
        return replace(self, sigma=sigma)


@dataclass(frozen=True)
class Normal(Noise):
    r"""Gaussian noise of standard deviation :math:`\sigma`: squared losses.

    Args:
        sigma: the standard deviation in the column's unit, a number or the name of a column that holds one for every row; None
            to find it from the data.

    Raises:
        ProblemError: sigma is not a positive number, a name or None.

    Example:
        >>> import sciml
        >>> sciml.Normal(0.1)
        Normal(sigma=0.1)
    """

    def log_density(self, deviation: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        return -0.5 * deviation.square() - _log(sigma, deviation) - 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Huber(Noise):
    r"""Normal noise with outliers: squares up to :math:`\delta` standard deviations, straight lines beyond.

    .. math::  \rho(z) = \tfrac12 z^2 \ (|z| \le \delta), \qquad \delta|z| - \tfrac12\delta^2 \ (|z| > \delta).

    Args:
        sigma: as for ``Normal``; found from the data by the median of absolute deviations, which outliers hardly move.
        delta: where the loss begins to be straight; 1.345 keeps 95 % of the efficiency where there are no outliers.

    Raises:
        ProblemError: sigma or delta cannot be.

    Example:
        >>> import torch, sciml
        >>> sciml.Huber(1.0).rows(torch.tensor([0.5, 10.0])).round(decimals=2)
        tensor([0.5000, 5.0100])

    Reference: P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35 (1964).
    """

    delta: float = 1.345
    robust: ClassVar[bool] = True

    def rows(self, deviation: Tensor) -> Tensor:
        size = deviation.abs()
        beyond = size > self.delta
        outside = torch.where(beyond, 2 * self.delta * size - self.delta**2, torch.ones_like(size))
        return torch.where(beyond, deviation.sign() * outside.sqrt(), deviation)

    def score(self, deviation: Tensor) -> Tensor:
        return deviation.clamp(-self.delta, self.delta)

    def curvature(self, deviation: Tensor) -> Tensor:
        return (deviation.abs() <= self.delta).to(deviation)

    def log_density(self, deviation: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        inside = math.sqrt(2 * math.pi) * math.erf(self.delta / math.sqrt(2))
        whole = inside + 2 / self.delta * math.exp(-0.5 * self.delta**2)
        return -0.5 * self.rows(deviation).square() - _log(sigma, deviation) - math.log(whole)

    def estimate(self, deviations: Tensor, freedom: float) -> float:
        share = max(freedom, 1.0) / len(deviations)
        return 1.4826 * float(deviations.abs().quantile(0.5)) / math.sqrt(share)


@dataclass(frozen=True)
class StudentT(Noise):
    r"""Student's t with :math:`\nu` degrees of freedom and scale :math:`\sigma`: outliers count less the farther they are.

    .. math::  \rho(z) = \tfrac{\nu + 1}{2}\log(1 + z^2/\nu).

    Args:
        sigma: the scale in the column's unit, as for ``Normal``; None to find it from the data.
        nu: degrees of freedom; small ones expect large outliers.

    Raises:
        ProblemError: sigma or nu cannot be.

    Example:
        >>> import torch, sciml
        >>> sciml.StudentT(1.0, nu=4.0).score(torch.tensor([1.0, 100.0])).round(decimals=3)
        tensor([1.0000, 0.0500])

    Reference: K. L. Lange, R. J. A. Little and J. M. G. Taylor, Robust statistical modeling using the t distribution, Journal
    of the American Statistical Association 84 (1989).
    """

    nu: float = 4.0
    robust: ClassVar[bool] = True

    def rows(self, deviation: Tensor) -> Tensor:
        share = deviation.square() / self.nu
        small = share < _NEAR**2
        # log(1 + s) / s, whose own derivative at zero rounding would spoil.
        safe = torch.where(small, torch.ones_like(share), share)
        ratio = torch.where(small, 1 - share / 2 + share**2 / 3, safe.log1p() / safe)
        return deviation * ((self.nu + 1) / self.nu * ratio).sqrt()

    def score(self, deviation: Tensor) -> Tensor:
        return (self.nu + 1) * deviation / (self.nu + deviation.square())

    def curvature(self, deviation: Tensor) -> Tensor:
        square = deviation.square()
        return (self.nu + 1) * (self.nu - square) / (self.nu + square).square()

    def log_density(self, deviation: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        half = (self.nu + 1) / 2
        constant = math.lgamma(half) - math.lgamma(self.nu / 2) - 0.5 * math.log(self.nu * math.pi)
        return constant - half * (deviation.square() / self.nu).log1p() - _log(sigma, deviation)

    def estimate(self, deviations: Tensor, freedom: float) -> float:
        """The scale of largest likelihood, by the sweeps of expectation and maximisation."""
        squares, variance = deviations.square(), float(deviations.square().quantile(0.5)) or 1e-300
        for _ in range(_SWEEPS):
            before = variance
            variance = float(((self.nu + 1) * squares / (self.nu + squares / variance)).sum()) / max(freedom, 1.0)
            if abs(variance - before) <= 1e-9 * before or variance == 0:
                break
        return math.sqrt(variance)


@dataclass(frozen=True)
class LogNormal(Noise):
    r"""Errors that multiply: the logarithm of the measured value is that of the model with noise of standard deviation sigma.

    Below a hundredth of the measured value the model's logarithm is continued by its tangent, so that a solver may cross zero
    on its way.

    Args:
        sigma: the standard deviation of the logarithm, without unit (0.1 is about 10 %), as for ``Normal``.

    Raises:
        ProblemError: sigma cannot be; DataError when fitted to values that are not positive.

    Example:
        >>> import torch, sciml
        >>> sciml.LogNormal(0.5).deviation(torch.tensor([2.0]), torch.tensor([1.0]), 0.5).round(decimals=3)
        tensor([1.3860])
    """

    def check(self, what: str, measured: Array) -> None:
        if (measured <= 0).any():
            raise DataError(
                f"{what}: {int((measured <= 0).sum())} value(s) are not positive, the least {measured.min():g}: LogNormal "
                "noise has positive values only; remove them, or choose sciml.Normal()"
            )

    def deviation(self, model: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        least = _FLOOR * measured
        above = model > least
        inside = torch.where(above, model, least).log()
        continued = least.log() + (model - least) / least
        return (torch.where(above, inside, continued) - measured.log()) / sigma

    def measured(self, model: Array, deviation: Array) -> Array:
        return model * np.exp(-deviation)

    def log_density(self, deviation: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        return -0.5 * deviation.square() - _log(sigma, deviation) - measured.log() - 0.5 * math.log(2 * math.pi)

    def spread(self, measured: Tensor) -> float:
        return super().spread(measured.log())


@dataclass(frozen=True)
class Poisson(Noise):
    r"""Counts: whole numbers whose variance is their mean, the model's value.

    Rows are deviance residuals, :math:`\operatorname{sign}(\mu - y)\sqrt{2(y\log(y/\mu) - y + \mu)}`; nothing has to be
    known or found about their size. For means near zero or below they are continued by their tangent.

    Raises:
        ProblemError: sigma is given; DataError when fitted to values that are not counts.

    Example:
        >>> import torch, sciml
        >>> counts = torch.tensor([4.0, 0.0], dtype=torch.float64)
        >>> sciml.Poisson().deviation(torch.tensor([4.0, 2.0], dtype=torch.float64), counts, 1.0)
        tensor([0., 2.], dtype=torch.float64)
    """

    def __post_init__(self) -> None:
        if self.sigma is not None:
            raise ProblemError(f"Poisson noise has no sigma: the variance of a count is its mean; given: {self.sigma!r}")

    @property
    def known(self) -> bool:
        return True

    def check(self, what: str, measured: Array) -> None:
        bad = (measured < 0) | (measured != measured.round())
        if bad.any():
            raise DataError(
                f"{what}: {int(bad.sum())} value(s) are no counts, one of them {measured[bad][0]:g}: Poisson noise needs whole "
                "numbers that are not negative; choose sciml.Normal() for others"
            )

    def deviation(self, model: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        least = torch.where(measured > 0, _FLOOR * measured, torch.full_like(measured, _FLOOR**2))
        above = model > least
        mean = torch.where(above, model, least)
        start = _deviance(least, measured)
        # The derivative of the signed root by the mean, where the two differ.
        slope = (1 - measured / least) / start
        return torch.where(above, _deviance(mean, measured), start + slope * (model - least))

    def squares(self, model: Tensor, measured: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        # Pearson's, whose mean is one however small the counts are; that of deviances is not.
        mean = model.clamp(min=_FLOOR**2)
        return (measured - mean).square() / mean, 2 + 1 / mean

    def log_density(self, deviation: Tensor, measured: Tensor, sigma: Tensor | float) -> Tensor:
        # The density at a mean equal to the count, less half the deviance.
        full = torch.xlogy(measured, measured) - measured - torch.lgamma(measured + 1)
        return full - 0.5 * deviation.square()

    def spread(self, measured: Tensor) -> float:
        mean = float(measured.mean()) if len(measured) else 0.0
        return super().spread(measured) / math.sqrt(mean) if mean > 0 else 0.0


def _deviance(mean: Tensor, count: Tensor) -> Tensor:
    """Signed roots of the deviance, smooth where mean and count agree."""
    some = count > 0
    safe = torch.where(some, count, torch.ones_like(count))
    excess = (mean - safe) / safe
    near = excess.abs() < _NEAR
    far = torch.where(near, torch.ones_like(excess), excess)
    series = 1 - excess * (2 / 3 - excess * (1 / 2 - excess * (2 / 5 - excess * (1 / 3 - excess * (2 / 7)))))
    ratio = torch.where(near, series, 2 * (far - far.log1p()) / far.square())
    positive = torch.where(some, torch.ones_like(mean), mean)
    return torch.where(some, safe.sqrt() * excess * ratio.clamp(min=0).sqrt(), (2 * positive).sqrt())


def _log(sigma: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(sigma, dtype=like.dtype, device=like.device).log()


def noise_of(given: Any) -> Noise:
    """A noise model from one, a number (its sigma), or the name of a column of sigmas."""
    if isinstance(given, Noise):
        return given
    if isinstance(given, type) and issubclass(given, Noise):
        raise ProblemError(f"noise is {given.__name__}, a class: call it, as in sciml.{given.__name__}()")
    if isinstance(given, str | int | float) and not isinstance(given, bool):
        return Normal(given)
    raise ProblemError(
        f"noise must be sciml.Normal(...), Huber, StudentT, LogNormal or Poisson, a standard deviation, or the name of a "
        f"column that holds one for every row; given: {given!r}"
    )

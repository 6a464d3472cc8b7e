"""Observations and priors: measured values as residuals like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sciml.jets.calculus import check_names, check_residual
from sciml.problem.conditions import Evaluation
from sciml.problem.functions import argument_names, evaluated
from sciml.problem.noise import Noise, Normal
from sciml.problem.protocol import ProblemLike
from sciml.problem.unknowns import Unknown
from sciml.typing import MultiIndex

DATA, PRIOR = "data.", "prior."


def is_measured(name: str) -> bool:
    """True if a term of this name is a measurement or the prior of a constant."""
    return name.startswith((DATA, PRIOR))


@dataclass(frozen=True)
class Observation:
    """A field's derivative or a function of fields, less the values ``(n,)`` that it should have at these very points.

    ``sigma`` is ``(n,)``, ``()``, or None while unknown: rows then have the column's unit. Columns with one ``alike``
    scatter alike, such as the same column in another experiment.
    """

    field: str | None
    measured: Tensor
    index: MultiIndex = ()
    function: Callable[..., Any] | None = None
    noise: Noise = Normal()  # noqa: RUF009 - an immutable record
    sigma: Tensor | None = None
    name: str = ""
    alike: str = ""

    def __call__(self, evaluation: Evaluation) -> Tensor:
        return self.noise.rows(self.deviation(self.model(evaluation)))

    def deviation(self, model: Tensor) -> Tensor:
        """The deviations of a model's values, in units of sigma where that is known, shape ``(n,)``."""
        sigma = 1.0 if self.sigma is None else self.sigma.to(model)
        return self.noise.deviation(model, self.measured.to(model), sigma)

    def model(self, evaluation: Evaluation) -> Tensor:
        """The trial function's values of what was measured, shape ``(n,)``."""
        if self.function is None:
            assert self.field is not None
            return evaluation.space.jet(self.field, self.index)
        what, names = f"observe={{{self.name!r}: ...}}", argument_names(self.function)
        arguments = evaluation.problem.composites.arguments(evaluation.space, names)
        return check_residual(what, evaluated(what, self.function, arguments, evaluation.problem), evaluation.space)

    def to(self, device: torch.device) -> Observation:
        """The same values elsewhere."""
        return replace(self, measured=self.measured.to(device), sigma=None if self.sigma is None else self.sigma.to(device))

    def log_density(self, model: Tensor, sigma: float = 1.0) -> Tensor:
        """The logarithm of the density of each value; ``sigma`` where its own is not known."""
        own: Tensor | float = sigma if self.sigma is None else self.sigma.to(self.measured)
        deviation = self.deviation(model) / (sigma if self.sigma is None else 1.0)
        return self.noise.log_density(deviation, self.measured.to(model), own)

    def squares(self, model: Tensor) -> tuple[Tensor, Tensor] | None:
        """Squared deviations, of mean one where the noise is as it was said to be, and their variances; see ``Noise``."""
        return self.noise.squares(model, self.measured.to(model), self.deviation(model))

    @property
    def plain(self) -> bool:
        """True if a field itself was measured."""
        return self.function is None and self.index == ()

    @property
    def size(self) -> float:
        """The natural size of the rows: the scatter of the values in units of sigma."""
        return self.noise.spread(self.measured) / self.typical_sigma

    @property
    def typical_sigma(self) -> float:
        """The one standard deviation of equal information in all values; 1 where it is not known."""
        return 1.0 if self.sigma is None else float(self.sigma.reciprocal().square().mean().rsqrt())

    def part(self, chosen: Tensor) -> Observation:
        """The same at some of the points, by number, which may occur again, or one truth value for each."""
        chosen = chosen.to(self.measured.device)
        sigma = self.sigma if self.sigma is None or self.sigma.ndim == 0 else self.sigma[chosen]
        return replace(self, measured=self.measured[chosen], sigma=sigma)


@dataclass(frozen=True)
class Prior:
    """The prior of a constant as a residual, as though the constant had been measured, in standard deviations."""

    name: str
    unknown: Unknown

    def __call__(self, evaluation: Evaluation) -> Tensor:
        assert self.unknown.prior is not None
        value, noise = self.unknown.prior
        like = next(iter(evaluation.space.coordinates.values()))
        constant = torch.as_tensor(getattr(evaluation.problem, self.name)).to(like).expand(like.shape)
        sigma = noise.sigma if isinstance(noise.sigma, int | float) else 1.0
        return noise.rows(noise.deviation(constant, torch.full_like(like, value), sigma))


def derivative_named(name: str, fields: Sequence[str], coordinates: Sequence[str]) -> tuple[str, MultiIndex] | None:
    """The field and derivative that a column's name stands for, ``u_xt`` or ``u_x_t``; None if it stands for none."""
    for field in sorted(fields, key=len, reverse=True):
        if name.startswith(f"{field}_"):
            index = _coordinates_of(name[len(field) + 1 :], coordinates)
            if index:
                return field, tuple(sorted(index, key=list(coordinates).index))
    return None


def _coordinates_of(text: str, coordinates: Sequence[str]) -> MultiIndex | None:
    if text in ("", "_"):
        return ()
    for coordinate in sorted(coordinates, key=len, reverse=True):
        if text.startswith(coordinate):
            rest = _coordinates_of(text[len(coordinate) :].removeprefix("_"), coordinates)
            if rest is not None:
                return (coordinate, *rest)
    return None


def check_observed(name: str, function: Any, problem: ProblemLike) -> None:
    """Refuse an observed function that asks for names that the problem does not have."""
    fields = (*problem.fields, *problem.composites.names)
    check_names(f"observe={{{name!r}: ...}}", argument_names(function), fields, problem.coordinates, problem.unknowns)

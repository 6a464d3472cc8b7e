"""Series expansion of unknown fields: Chebyshev polynomials whose coefficients are unknown constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sciml.problem.problem import Problem
from sciml.problem.unknowns import Unknown


@dataclass(frozen=True)
class Series:
    r"""A Chebyshev series :math:`a(x) = o + s \sum_k c_k \prod_i T_{k_i}(\xi_i)` of a field, :math:`\xi` scaled to [-1, 1].

    Attributes:
        field: its name.
        products: the degrees k of all products, for each coordinate of the problem, the constant among them.
        offset: o, in the unit of the field.
        scale: s, in the unit of the field.
    """

    field: str
    products: Sequence[tuple[int, ...]]
    offset: float
    scale: float

    @property
    def names(self) -> tuple[str, ...]:
        """What the coefficients are called, in the order of the products."""
        return tuple(f"coefficient_{self.field}_{'_'.join(map(str, each))}" for each in self.products)


def expanded(problem: Problem, series: Sequence[Series]) -> Any:
    """A problem whose free fields are Chebyshev series: one equation more for each, and its coefficients unknown constants.

    At first each field is its natural size everywhere, o + s.
    """
    cls = type(problem)
    members: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    for each in series:
        members[f"series_{each.field}"] = _equation(each, problem.coordinates, problem.domain.bounds)
        members |= {name: Unknown(float(not any(product))) for name, product in zip(each.names, each.products, strict=True)}
    made: Any = object.__new__(type(cls.__name__, (cls,), members))
    made.__dict__.update({key: value for key, value in problem.__dict__.items() if key != "_system"}, _is_complex={})
    return made


def _equation(
    series: Series, coordinates: Sequence[str], bounds: Mapping[str, tuple[float, float]]
) -> Callable[..., Tensor]:
    """The field less its series, in units of its scale, as a method that is an equation."""
    orders = torch.tensor(series.products, dtype=torch.float64)

    def residual(self: Any, **values: Tensor) -> Tensor:
        field, found = values[series.field], 0.0
        table = torch.ones((), dtype=torch.float64)
        for column, name in enumerate(coordinates):
            lower, upper = bounds[name]
            place = ((2 * values[name].detach() - lower - upper) / (upper - lower)).clamp(-1, 1)
            table = table * torch.cos(orders[:, column, None].to(place) * torch.arccos(place))
        for name, product in zip(series.names, table, strict=True):
            found = found + getattr(self, name) * product
        return (field - series.offset) / series.scale - found

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(name, kind) for name in ("self", series.field, *coordinates)]
    residual.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    residual._sciml_equation = True  # type: ignore[attr-defined]
    return residual

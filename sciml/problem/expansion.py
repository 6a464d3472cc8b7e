"""Series expansion of unknown fields: Chebyshev polynomials whose coefficients are unknown constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sciml.problem.conditions import Residual
from sciml.problem.functions import named
from sciml.problem.problem import Problem
from sciml.problem.unknowns import Unknown


@dataclass(frozen=True)
class Series:
    r"""A Chebyshev series :math:`a(x) = o + s \sum_k c_k \prod_i T_{k_i}(\xi_i)` of a field, :math:`\xi` scaled to [-1, 1].

    Attributes:
        field: its name.
        products: the degrees k of all products, for each coordinate of the problem, the constant among them.
        bounds: of the coordinates, in their order.
        offset: o, in the unit of the field.
        scale: s, in the unit of the field.
        constant: the first coefficient at the start, where all others vanish.
    """

    field: str
    products: Sequence[tuple[int, ...]]
    bounds: Mapping[str, tuple[float, float]]
    offset: float
    scale: float
    constant: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """What the coefficients are called, in the order of the products."""
        return tuple(f"coefficient_{self.field}_{'_'.join(map(str, each))}" for each in self.products)

    def table(self, coordinates: Mapping[str, Tensor]) -> Tensor:
        """All products at coordinates ``(n,)``, differentiable by these, ``(K, n)``."""
        found: Tensor | None = None
        for column, (name, (lower, upper)) in enumerate(self.bounds.items()):
            orders = torch.tensor([each[column] for each in self.products])
            if not bool(orders.any()):
                continue
            place = (2 * coordinates[name] - lower - upper) / (upper - lower)
            powers = [torch.ones_like(place), place]
            for _ in range(int(orders.max()) - 1):
                powers.append(2 * place * powers[-1] - powers[-2])
            own = torch.stack(powers)[orders]
            found = own if found is None else found * own
        return torch.ones_like(next(iter(coordinates.values())))[None] if found is None else found

    def values(self, problem: Any, coordinates: Mapping[str, Tensor]) -> Tensor:
        """The field at coordinates ``(n,)``, with the coefficients that a problem has."""
        table = self.table(coordinates)
        coefficients = torch.stack([torch.as_tensor(getattr(problem, name)).to(table) for name in self.names])
        return self.offset + self.scale * (coefficients.view(len(table), -1) * table).sum(0)


def expanded(problem: Problem, series: Sequence[Series]) -> Any:
    """A problem whose unknown constants are, beside its own, the coefficients of the series of some fields."""
    members: dict[str, Any] = {}
    for each in series:
        starts = {product: each.constant if not any(product) else 0.0 for product in each.products}
        members |= {name: Unknown(starts[product]) for name, product in zip(each.names, each.products, strict=True)}
    return _made(problem, members)


def reduced(problem: Problem, series: Sequence[Series]) -> Any:
    """An ``expanded`` problem for its other fields alone, whose equations and conditions are given the series of these.

    Raises:
        ProblemError: conditions prescribe these fields.
    """
    cls = type(problem)
    gone = {each.field: each for each in series}
    fields = [name for name in problem.fields if name not in gone]
    members: dict[str, Any] = {
        "fields": {name: cls._spans.get(name, problem.coordinates) for name in fields},
        "reference": None,
    }
    for name, names in [*cls._equations.items(), *((name, each.names) for name, each in cls._methods.items())]:
        if gone.keys() & set(names):
            members[name] = _given(inspect.getattr_static(cls, name), names, gone, problem.coordinates)
    made = _made(problem, members)
    # Those of methods are made anew with their class.
    stated = [each for each in problem.conditions if not isinstance(each, Residual)]
    made.__dict__.update(fields=tuple(fields), conditions=(*stated, *type(made)._methods.values()))
    return made


def _made(problem: Problem, members: Mapping[str, Any]) -> Any:
    """A copy of a problem whose class has more members."""
    cls = type(problem)
    made: Any = object.__new__(type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **members}))
    made.__dict__.update({key: value for key, value in problem.__dict__.items() if key != "system"}, _is_complex={})
    return made


def _given(
    original: Callable[..., Any], names: Sequence[str], gone: Mapping[str, Series], coordinates: Sequence[str]
) -> Callable[..., Any]:
    """A residual of fields and coordinates as one of fewer fields: the others are series of the coordinates."""

    def residual(self: Any, **values: Any) -> Any:
        known = {name: each.values(self, values) for name, each in gone.items() if name in names}
        return original(self, **{name: known[name] if name in known else values[name] for name in names})

    residual.__dict__.update(original.__dict__)
    return named(residual, dict.fromkeys(("self", *(name for name in names if name not in gone), *coordinates)))

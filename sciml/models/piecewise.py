"""Polynomials in time times piecewise polynomials in another coordinate: what is found in a slab of time.

Piecewise polynomials in every coordinate: what is found on a tiling of space and time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.models.spectral import chebyshev

_CHUNK_OF_ELEMENTS = 2**14


class Elements(nn.Module):
    r"""Polynomials of time and of one other coordinate, the latter by pieces.

    .. math::  u(x, t) = \sum_{ij} c_{eij}\, T_i(t)\, T_j(\xi_e(x)), \qquad x \in [b_e, b_{e+1}]

    in coordinates scaled to [-1, 1], with :math:`\xi_e` the coordinate scaled to element e. Nothing here is trained: the
    coefficients are found by ``sciml.slabs``, and saved with the state. Derivatives of any order are polynomials as well.

    Args:
        breaks: increasing, from -1 to 1.
        time_degree: the degree in time.
        degree: the degree in the other coordinate on each element.
        outputs: the number of fields F.
        time: the column of time, 0 or 1.

    Raises:
        ModelError: breaks that do not increase, or degrees and columns that are none.

    Example:
        >>> import torch
        >>> model = Elements([-1.0, 0.0, 1.0], time_degree=2, degree=4, outputs=1, time=1)
        >>> model(torch.zeros(3, 2, dtype=torch.float64)).shape
        torch.Size([3, 1])
    """

    breaks: Tensor
    coefficients: Tensor

    def __init__(self, breaks: Sequence[float], *, time_degree: int, degree: int, outputs: int, time: int) -> None:
        super().__init__()
        found = torch.tensor(list(breaks), dtype=torch.float64)
        if len(found) < 2 or not bool((found.diff() > 0).all()) or min(time_degree, degree) < 0 or time not in (0, 1):
            raise ModelError(
                "Elements needs increasing breaks, degrees that are not negative and 0 or 1 for the column of time; given: "
                f"{list(breaks)}, {time_degree}, {degree} and {time}"
            )
        self.time = time
        self.register_buffer("breaks", found)
        shape = (len(found) - 1, outputs, time_degree + 1, degree + 1)
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds this architecture: the keywords of ``Elements.from_config``."""
        _, outputs, times, places = self.coefficients.shape
        degrees = {"time_degree": times - 1, "degree": places - 1}
        return {"breaks": self.breaks.tolist(), **degrees, "outputs": outputs, "time": self.time}

    @classmethod
    def from_config(cls, **options: Any) -> Elements:
        """The architecture that ``config`` describes."""
        return cls(**options)

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, 2)``; the outermost pieces continue outside."""
        return self.partial(points, (0, 0))

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, by so many times each coordinate."""
        both = orders[self.time], orders[1 - self.time]
        found: Tensor = _PiecewiseElements.apply(points, self.breaks, self.coefficients, self.time, both)
        return found

    def extra_repr(self) -> str:
        elements, _, times, places = self.coefficients.shape
        return f"{elements} elements of degree {places - 1}, degree {times - 1} in time"


class _PiecewiseElements(torch.autograd.Function):
    """A derivative of the pieces; its gradient by the points is the next derivative."""

    @staticmethod
    def forward(
        ctx: Any, points: Tensor, breaks: Tensor, coefficients: Tensor, time: int, orders: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(points, breaks, coefficients)
        ctx.time, ctx.orders = time, orders
        if not len(points):
            return points.new_zeros(0, coefficients.shape[1])
        return torch.cat(
            [_values_of_elements(part, breaks, coefficients, time, orders) for part in points.split(_CHUNK_OF_ELEMENTS)]
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        points, breaks, coefficients = ctx.saved_tensors
        in_time, in_space = ctx.orders
        columns: list[Tensor] = []
        for column in range(2):
            orders = (in_time + 1, in_space) if column == ctx.time else (in_time, in_space + 1)
            slopes = _PiecewiseElements.apply(points, breaks, coefficients, ctx.time, orders)
            columns.append((grads[0] * slopes).sum(1))
        return torch.stack(columns, dim=1), None, None, None, None


def _values_of_elements(
    points: Tensor, breaks: Tensor, coefficients: Tensor, time: int, orders: tuple[int, int]
) -> Tensor:
    when, where = points[:, time], points[:, 1 - time]
    element = torch.bucketize(where.contiguous(), breaks[1:-1], right=True)
    half = breaks.diff() / 2
    inside = (where - breaks[element]) / half[element] - 1
    _, fields, times, places = coefficients.shape
    in_time = chebyshev(when, times - 1, orders[0])[-1]
    in_space = chebyshev(inside, places - 1, orders[1])[-1] / half[element, None] ** orders[1]
    own = coefficients.flatten(1)[element].view(len(points), fields * times, places)
    return ((own * in_space[:, None, :]).sum(2).view(len(points), fields, times) * in_time[:, None, :]).sum(2)


_CHUNK = 2**13


class PiecewisePolynomial(nn.Module):
    r"""Products of polynomials, one a coordinate, on each tile of a box.

    .. math::  u(x) = \sum_k c_{ek} \prod_i T_{k_i}(\xi_{e_i}(x_i)), \qquad x_i \in [b_{i,e_i}, b_{i,e_i+1}]

    in coordinates scaled to [-1, 1], with :math:`\xi_{e_i}` the coordinate scaled to its element. Nothing here is trained: the
    coefficients are found by ``sciml.tiles`` and saved with the state. Derivatives of any order are polynomials as well.

    Args:
        breaks: for each coordinate increasing numbers from -1 to 1.
        degrees: the degree along each coordinate.
        outputs: the number of fields F.

    Raises:
        ModelError: breaks that do not increase, or degrees that are none.

    Example:
        >>> import torch
        >>> model = PiecewisePolynomial([[-1.0, 0.0, 1.0], [-1.0, 1.0]], degrees=[4, 3], outputs=1)
        >>> model(torch.zeros(5, 2, dtype=torch.float64)).shape
        torch.Size([5, 1])
    """

    coefficients: Tensor

    def __init__(self, breaks: Sequence[Sequence[float]], degrees: Sequence[int], outputs: int) -> None:
        super().__init__()
        found = [torch.tensor(list(each), dtype=torch.float64) for each in breaks]
        increasing = all(len(each) > 1 and bool((each.diff() > 0).all()) for each in found)
        if not found or not increasing or len(degrees) != len(found) or min(degrees) < 0:
            raise ModelError(
                "PiecewisePolynomial needs increasing breaks and a degree that is not negative for every coordinate; given: "
                f"{[list(each) for each in breaks]} and {list(degrees)}"
            )
        for column, each in enumerate(found):
            self.register_buffer(f"breaks_{column}", each)
        shape = (*(len(each) - 1 for each in found), outputs, *(degree + 1 for degree in degrees))
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))

    @property
    def breaks(self) -> tuple[Tensor, ...]:
        """For each coordinate where its elements meet, and both ends."""
        return tuple(getattr(self, f"breaks_{column}") for column in range((self.coefficients.dim() - 1) // 2))

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds this architecture: the keywords of ``PiecewisePolynomial.from_config``."""
        count = len(self.breaks)
        shape = self.coefficients.shape
        degrees = [places - 1 for places in shape[count + 1 :]]
        return {"breaks": [each.tolist() for each in self.breaks], "degrees": degrees, "outputs": shape[count]}

    @classmethod
    def from_config(cls, **options: Any) -> PiecewisePolynomial:
        """The architecture that ``config`` describes."""
        return cls(**options)

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, D)``; the outermost pieces continue outside."""
        return self.partial(points, (0,) * len(self.breaks))

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, by so many times each coordinate."""
        found: Tensor = _Piecewise.apply(points, self.coefficients, tuple(orders), *self.breaks)
        return found

    def extra_repr(self) -> str:
        elements = " x ".join(str(len(each) - 1) for each in self.breaks)
        return f"{elements} tiles of degree {' x '.join(map(str, self.config['degrees']))}"


class _Piecewise(torch.autograd.Function):
    """A derivative of the pieces; its gradient by the points is the next derivative."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, coefficients: Tensor, orders: tuple[int, ...], *breaks: Tensor) -> Tensor:
        ctx.save_for_backward(points, coefficients, *breaks)
        ctx.orders = orders
        if not len(points):
            return points.new_zeros(0, coefficients.shape[len(breaks)])
        return torch.cat([_values(part, coefficients, orders, breaks) for part in points.split(_CHUNK)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        points, coefficients, *breaks = ctx.saved_tensors
        columns: list[Tensor] = []
        for column in range(len(breaks)):
            orders = tuple(order + (place == column) for place, order in enumerate(ctx.orders))
            slopes = _Piecewise.apply(points, coefficients, orders, *breaks)
            columns.append((grads[0] * slopes).sum(1))
        return torch.stack(columns, dim=1), None, None, *itertools.repeat(None, len(breaks))


def _values(points: Tensor, coefficients: Tensor, orders: Sequence[int], breaks: Sequence[Tensor]) -> Tensor:
    count = len(breaks)
    elements, tables = [], []
    for column, (own, order) in enumerate(zip(breaks, orders, strict=True)):
        where = points[:, column]
        element = torch.bucketize(where.contiguous(), own[1:-1], right=True)
        half = own.diff() / 2
        inside = (where - own[element]) / half[element] - 1
        degree = coefficients.shape[count + 1 + column] - 1
        tables.append(chebyshev(inside, degree, order)[-1] / half[element, None] ** order)
        elements.append(element)
    found = coefficients[tuple(elements)]
    for table in reversed(tables):
        found = (found * table.view(len(points), *[1] * (found.dim() - 2), -1)).sum(-1)
    return found

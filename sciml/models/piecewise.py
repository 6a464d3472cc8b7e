"""Piecewise polynomials in several variables, and Hermite interpolation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.models.base import Block
from sciml.models.bases import PiecewiseBasis, chebyshev, located
from sciml.models.one_graph import one_graph

_CHUNK = 2**13

Partial = Callable[[Tensor, Sequence[int]], Tensor]


class Pieces(Block):
    """Polynomials on the boxes of a grid, with closed forms of all derivatives: what such trial functions share."""

    arguments: ClassVar[tuple[str, ...]] = ("breaks", "degrees", "outputs")
    table: ClassVar[str] = "coefficients"
    coefficients: Tensor

    def __init__(self, breaks: Sequence[Sequence[float]], degrees: Sequence[int], outputs: int) -> None:
        super().__init__()
        found = [torch.tensor(list(each), dtype=torch.float64) for each in breaks]
        increasing = all(len(each) > 1 and bool((each.diff() > 0).all()) for each in found)
        if not found or not increasing or len(degrees) != len(found) or min(degrees) < 0:
            raise ModelError(
                f"{type(self).__name__} needs increasing breaks and a degree that is not negative for every coordinate; given: "
                f"{[list(each) for each in breaks]} and {list(degrees)}"
            )
        self.degrees, self.outputs = tuple(degrees), outputs
        for column, each in enumerate(found):
            self.register_buffer(f"breaks_{column}", each)

    @property
    @abstractmethod
    def axis(self) -> int:
        """The axis of the coefficients along which fields lie."""

    @property
    def breaks(self) -> tuple[Tensor, ...]:
        """The ends of the elements along each coordinate."""
        return tuple(getattr(self, f"breaks_{column}") for column in range(len(self.degrees)))

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, D)``; the outermost pieces continue outside."""
        return self.partial(points, (0,) * len(self.breaks))

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, of given orders by each coordinate."""
        return self._values(points, orders) if one_graph() else differentiable(self._in_chunks, points, orders)

    def _in_chunks(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        return torch.cat([self._values(part, orders) for part in points.split(_CHUNK)])

    @abstractmethod
    def _values(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """The same at some thousand points, without a graph."""


class PiecewisePolynomial(Pieces):
    r"""Piecewise polynomials in several variables: products of polynomials, one a coordinate, on each tile of a box.

    .. math::  u(x) = \sum_k c_{ek} \prod_i T_{k_i}(\xi_{e_i}(x_i)), \qquad x_i \in [b_{i,e_i}, b_{i,e_i+1}]

    with :math:`\xi_{e_i}` the coordinate scaled to [-1, 1] on its element. There are no parameters: the coefficients are a
    buffer, ``(E_1, ..., E_D, F, J_1, ..., J_D)``. Derivatives of any order are polynomials as well.

    Args:
        breaks: for each coordinate increasing numbers, in its unit; from -1 to 1 inside a ``Scaled``.
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

    def __init__(self, breaks: Sequence[Sequence[float]], degrees: Sequence[int], outputs: int) -> None:
        super().__init__(breaks, degrees, outputs)
        shape = (*(len(each) - 1 for each in self.breaks), outputs, *(degree + 1 for degree in degrees))
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))

    @property
    def axis(self) -> int:
        return len(self.degrees)

    def _values(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        tables, tile, dims = [], torch.zeros(len(points), dtype=torch.int64, device=points.device), len(self.degrees)
        for x, own, order, degree in zip(points.unbind(1), self.breaks, orders, self.degrees, strict=True):
            element, half, inside = located(x, own)
            tables.append(chebyshev(inside, degree, order)[-1] / half[:, None] ** order)
            tile = tile * (len(own) - 1) + element
        # One number a tile: to look up by one index is several times faster than by one for each coordinate.
        return _combined(self.coefficients.flatten(0, dims - 1).index_select(0, tile), tables)

    def extra_repr(self) -> str:
        elements = " x ".join(str(len(each) - 1) for each in self.breaks)
        return f"{elements} tiles of degree {' x '.join(map(str, self.degrees))}"


class StackedPolynomials(nn.Module):
    """Several ``PiecewisePolynomial`` of the same coordinates and fields, as one table in which each point has its own.

    Breaks and degrees are filled up to the most that any of them has. It is made where all of them are to be one graph of
    operations, which would otherwise hold each of them.
    """

    counts: Tensor
    begins: Tensor
    table: Tensor

    def __init__(self, stacked: Sequence[PiecewisePolynomial]) -> None:
        super().__init__()
        first = stacked[0].coefficients
        self.dims = len(stacked[0].degrees)
        self.degrees = [max(each.degrees[k] for each in stacked) for k in range(self.dims)]
        counts = torch.tensor([[len(own) - 1 for own in each.breaks] for each in stacked], device=first.device)
        for k in range(self.dims):
            breaks = first.new_full((len(stacked), max(len(each.breaks[k]) for each in stacked)), torch.inf)
            for row, each in zip(breaks, stacked, strict=True):
                row[: len(each.breaks[k])] = each.breaks[k]
            self.register_buffer(f"breaks_{k}", breaks)
        tables = []
        for each in stacked:
            room = [(0, most - degree) for most, degree in zip(reversed(self.degrees), reversed(each.degrees), strict=True)]
            filled = nn.functional.pad(each.coefficients, [size for pair in room for size in pair])
            tables.append(filled.flatten(0, self.dims - 1))
        begins = torch.tensor([0, *map(len, tables[:-1])], device=first.device).cumsum(0)
        self.register_buffer("counts", counts)
        self.register_buffer("begins", begins)
        self.register_buffer("table", torch.cat(tables))

    def partial(self, points: Tensor, number: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, of given orders, at points in the coordinates of the polynomials numbered."""
        tables, tile = [], torch.zeros_like(number)
        for k, (x, order, degree) in enumerate(zip(points.unbind(1), orders, self.degrees, strict=True)):
            breaks: Tensor = getattr(self, f"breaks_{k}")[number]
            inner = (x[:, None] >= breaks[:, 1:]).sum(1)
            element = torch.minimum(inner, self.counts[number, k] - 1)
            low, high = (breaks.gather(1, at[:, None])[:, 0] for at in (element, element + 1))
            half = (high - low) / 2
            tables.append(chebyshev((x - low) / half - 1, degree, order)[-1] / half[:, None] ** order)
            tile = tile * self.counts[number, k] + element
        return _combined(self.table.index_select(0, self.begins[number] + tile), tables)


def _combined(coefficients: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """The sum of products, ``(n, F)``: coefficients ``(n, F, J_1, ..., J_D)`` and a table ``(n, J)`` for each coordinate."""
    found = coefficients
    for table in reversed(tables):
        found = torch.bmm(found.flatten(1, -2), table[:, :, None]).view(found.shape[:-1])
    return found


class _Derivative(torch.autograd.Function):
    """A derivative of a function that knows them all; its gradient by the points is the next derivative."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, compute: Partial, orders: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(points)
        ctx.compute, ctx.orders = compute, orders
        return compute(points, orders)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (points,) = ctx.saved_tensors
        columns: list[Tensor] = []
        for column in range(points.shape[1]):
            orders = tuple(order + (place == column) for place, order in enumerate(ctx.orders))
            columns.append((grads[0] * _Derivative.apply(points, ctx.compute, orders)).sum(1))
        return torch.stack(columns, dim=1), None, None


def differentiable(compute: Partial, points: Tensor, orders: Sequence[int]) -> Tensor:
    """A derivative ``compute(points, orders)`` as a function of points ``(n, D)`` that autograd may go through."""
    return _Derivative.apply(points, compute, tuple(orders))


def hermite(knots: Tensor, jets: Sequence[Tensor]) -> PiecewisePolynomial:
    """Hermite interpolation of F fields of one coordinate: the piecewise polynomial with given derivatives at knots.

    With derivatives up to order m a field has degree 2m + 1 and m continuous derivatives, and its error is of order 2m + 2 in
    the distance of the knots.

    Args:
        knots: increasing, shape ``(k,)``, with k at least 2.
        jets: for each field its value and derivatives at the knots, shape ``(m + 1, k)``; m may differ.

    Raises:
        ModelError: the shapes do not match, or the knots do not increase.

    Example:
        >>> import torch
        >>> knots = torch.tensor([0.0, 1.0], dtype=torch.float64)
        >>> cubic = hermite(knots, [torch.stack([knots**3, 3 * knots**2])])
        >>> round(float(cubic(torch.tensor([[0.5]], dtype=torch.float64))), 12)
        0.125

    Reference: P. J. Davis, Interpolation and Approximation, Dover 1975, section 2.5.
    """
    if knots.ndim != 1 or not jets or any(each.shape[1:] != knots.shape for each in jets):
        raise ModelError(
            f"knots (k,) and for each field jets (m + 1, k) are needed; given: {tuple(knots.shape)} and "
            f"{[tuple(each.shape) for each in jets]}"
        )
    found = PiecewisePolynomial([knots.tolist()], [2 * max(map(len, jets)) - 1], len(jets))
    for field, each in enumerate(jets):
        basis = PiecewiseBasis(knots.numpy(), 2 * len(each) - 1, len(each), scaled=False)
        found.coefficients[:, field, : basis.reach] = basis.coefficients(each.T.flatten())
    return found

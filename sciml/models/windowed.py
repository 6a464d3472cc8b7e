"""Time windows: trial functions of consecutive intervals of time, joined continuously."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.autograd import knows_derivatives
from sciml.models.base import Block
from sciml.models.bases import element_of
from sciml.models.one_graph import one_graph
from sciml.models.piecewise import PiecewisePolynomial, StackedPolynomials, differentiable
from sciml.models.scaled import Scaled

# So many points, and comparisons of them with ends of elements, take less time together than window after window; and what it
# takes to put a window into the table, as a share of the time of a window by itself.
_FEW, _COMPARISONS, _PREPARED = 4096, 2**20, 0.05


class Windowed(Block):
    r"""Trial functions of windows in time that follow one another, joined to rounding.

    Where two windows meet, their functions differ by the residuals of their least-squares problems. The later one adds that
    difference, and those of its first m - 1 time derivatives, times a function that fades over its window of length L:

    .. math::  u(x, t) = N_k(x, t) + \chi\Big(\frac{t - t_k}{L}\Big) \sum_{j<m} \frac{(t - t_k)^j}{j!}\,
               \partial_t^j (N_{k-1} - N_k)(x, t_k),

    with :math:`\chi(0) = 1`, :math:`\chi(1) = 0` and three vanishing derivatives at both ends.

    Args:
        edges: the times at which windows begin and end, increasing, one more than there are windows.
        windows: the trial function of each window, points ``(n, D)`` to fields ``(n, F)``.
        column: the column of the points that is time.
        order: the number m of time derivatives, the value included, that are continuous.

    Raises:
        ModelError: not as many windows as edges less one, or edges that do not increase.

    Example:
        >>> import torch
        >>> from sciml.models.mlp import MLP
        >>> from sciml.models.scaled import Scaled
        >>> halves = [Scaled(MLP(8, inputs=1, outputs=1), [a], [a + 1.0], [0.0], [1.0]).double() for a in (0.0, 1.0)]
        >>> joined = Windowed([0.0, 1.0, 2.0], halves, column=0)
        >>> left, right = joined(torch.tensor([[1.0 - 1e-9], [1.0 + 1e-9]], dtype=torch.float64))
        >>> bool(abs(left - right) < 1e-6)
        True
    """

    arguments = ("edges", "column", "order")
    edges: Tensor

    def __init__(self, edges: Sequence[float], windows: Sequence[nn.Module], column: int, order: int = 1) -> None:
        super().__init__()
        times = torch.tensor(list(edges), dtype=torch.float64)
        if len(times) != len(windows) + 1 or not windows or not bool((times.diff() > 0).all()):
            raise ModelError(
                f"windows need increasing edges, one more than there are windows; given: {len(windows)} windows and the edges "
                f"{list(edges)}"
            )
        self.register_buffer("edges", times)
        self.windows = nn.ModuleList(windows)
        self.column = column
        self.order = order

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, D)``; the first and last window continue outside."""
        return self.partial(points, [0] * points.shape[1])

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, of given orders by each coordinate, if the windows have a ``partial``."""
        if self._in_one_table(points):
            return self._stacked(points, orders) if one_graph() else differentiable(self._stacked, points, orders)
        where = element_of(points[:, self.column], self.edges)
        if one_graph():
            every = torch.stack([self._inside(number, points, orders) for number in range(len(self.windows))], dim=1)
            return every.gather(1, where[:, None, None].expand(-1, 1, every.shape[2]))[:, 0]
        order = where.argsort(stable=True)
        parts = points[order].split(where.bincount(minlength=len(self.windows)).tolist())
        pieces = [self._inside(number, part, orders) for number, part in enumerate(parts) if len(part)]
        if not pieces:
            return self._inside(0, points, orders)
        return torch.cat(pieces)[order.argsort()]

    def _inside(self, number: int, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative in one window, of the fading differences too."""
        window: Any = self.windows[number]
        values = window.partial(points, orders) if any(orders) else window(points)
        if number == 0:
            return values
        length = self.edges[number + 1] - self.edges[number]
        share = (points[:, self.column] - self.edges[number]) / length
        gaps = self._gaps(number, self._at_time(points, self.edges[number].expand(len(points))), orders)
        for power, gap in enumerate(gaps):
            values = values + _faded(share, length, power, orders[self.column])[:, None] * gap
        return values

    def _gaps(self, number: int, at: Tensor, orders: Sequence[int]) -> list[Tensor]:
        """The differences of two windows where they meet, and of their time derivatives; derivatives of these by the others."""
        here: Any = self.windows[number]
        before: Any = self.windows[number - 1]
        if any(orders) or (knows_derivatives(before) and knows_derivatives(here)):
            each = (self._across(orders, power) for power in range(self.order))
            return [before.partial(at, across) - here.partial(at, across) for across in each]
        if self.order == 1:
            return [before(at) - here(at)]
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            when = at[:, self.column].clone().requires_grad_()
            moving = self._at_time(at, when)
            found = [before(moving) - here(moving)]
            for _ in range(1, self.order):
                slopes = [torch.autograd.grad(each.sum(), when, create_graph=True)[0] for each in found[-1].unbind(1)]
                found.append(torch.stack(slopes, dim=1))
        return found if keep else [each.detach() for each in found]

    def _across(self, orders: Sequence[int], power: int) -> list[int]:
        """The same orders by all coordinates but time, a power by time."""
        return [power if column == self.column else order for column, order in enumerate(orders)]

    def _in_one_table(self, points: Tensor) -> bool:
        """Whether points look up their pieces in one table of all windows."""
        windows: Any = list(self.windows)
        if not all(isinstance(each, Scaled) and isinstance(each.model, PiecewisePolynomial) for each in windows):
            return False
        if one_graph():
            return True
        # Each point is compared with all ends of elements.
        most = max(len(own) for each in windows for own in each.model.breaks)
        if len(points) > _FEW or len(points) * most > _COMPARISONS:
            return False
        return len(element_of(points[:, self.column], self.edges).unique()) > 1 + _PREPARED * len(windows)

    def _stacked(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative by one table of all windows' polynomials, in which every point looks up its own."""
        windows: Any = list(self.windows)
        pieces = StackedPolynomials([each.model for each in windows])
        center, half, offset, scale = (
            torch.stack([getattr(each, name) for each in windows]) for name in ("center", "half_width", "offset", "scale")
        )

        def partial(at: Tensor, number: Tensor, wanted: Sequence[int]) -> Tensor:
            found = pieces.partial((at - center[number]) / half[number], number, wanted) * scale[number]
            for column, order in enumerate(wanted):
                found = found / half[number, column, None] ** order if order else found
            return found if any(wanted) else found + offset[number]

        number = element_of(points[:, self.column], self.edges)
        length = self.edges.diff()[number]
        begin = self._at_time(points, self.edges[number])
        share, order = (points[:, self.column] - self.edges[number]) / length, orders[self.column]
        values = partial(points, number, orders)
        for power in range(self.order):
            across = self._across(orders, power)
            # The first window follows none: there the difference is that of itself, zero.
            gap = partial(begin, (number - 1).clamp_min(0), across) - partial(begin, number, across)
            values = values + _faded(share, length, power, order)[:, None] * gap
        return values

    def _at_time(self, points: Tensor, time: Tensor) -> Tensor:
        return torch.cat([points[:, : self.column], time[:, None], points[:, self.column + 1 :]], dim=1)


# One at 0, zero at 1, with three vanishing derivatives at both ends.
_FADING = Polynomial([1, 0, 0, 0, -35, 84, -70, 20])


def _faded(share: Tensor, length: Tensor, power: int, order: int) -> Tensor:
    """A power of the time since a window began, by its factorial, as it fades over the window; a derivative by time."""
    fading = (_FADING * Polynomial([0.0] * power + [1.0 / math.factorial(power)])).deriv(order)
    s = share.clamp(0, 1)
    found = torch.zeros_like(s)
    for coefficient in np.flip(fading.coef):
        found = found * s + float(coefficient)
    return torch.where(share < 1, found, torch.zeros_like(found)) * length ** (power - order)

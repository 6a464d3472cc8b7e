"""Vector-valued functions by components: trial functions of some of the fields each, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams
from sciml.models.blocks import Concatenation
from sciml.models.grid import GridFunction
from sciml.models.scaled import Scaled
from sciml.models.windowed import Windowed


class Components(Concatenation):
    r"""A vector-valued function by components: what each branch gives are some of the fields.

    .. math::  u_{o_k}(x) = v_k(x), \qquad v = (a(x), b(x), \dots)

    Args:
        branches: trial functions, points ``(n, D)`` to ``(n, F_i)``.
        order: for each column of all branches side by side the number of the field that it is.

    Raises:
        ModelError: ``order`` does not number the fields.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> both = Components([nn.Linear(2, 1), nn.Linear(2, 2)], order=[1, 0, 2])
        >>> both(torch.zeros(5, 2)).shape
        torch.Size([5, 3])
    """

    arguments = ("order",)

    def __init__(self, branches: Sequence[nn.Module], order: Sequence[int]) -> None:
        super().__init__(*branches)
        if sorted(order) != list(range(len(order))):
            raise ModelError(f"order must hold each number of a field once, from 0 on; given: {list(order)}")
        self.order = tuple(order)
        self._places = [self.order.index(number) for number in range(len(self.order))]

    def forward(self, inputs: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, D)``."""
        return self._ordered(lambda branch: branch(inputs))

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, of given orders by each coordinate, if all branches have a ``partial``."""
        return self._ordered(lambda branch: branch.partial(points, orders))

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The streams of all branches, field by field."""
        found = super().jets(streams, propagation)
        return Streams(found.indices, found.values[:, :, self._places])

    def _ordered(self, values: Callable[[Any], Tensor]) -> Tensor:
        return torch.cat([values(branch) for branch in self.branches], dim=1)[:, self._places]


def side_by_side(trials: Sequence[Any]) -> Any:
    """Stacked outputs ``(n, k F)`` of k functions linear in a table, or of windows of such, that differ by it alone."""
    first = trials[0]
    if isinstance(first, Windowed):
        windows = [side_by_side(each) for each in zip(*(trial.windows for trial in trials), strict=True)]
        return Windowed(first.edges.tolist(), windows, first.column, first.order).to(first.edges)
    if isinstance(first, Scaled):
        bounds = (first.center - first.half_width).tolist(), (first.center + first.half_width).tolist()
        units = (torch.cat([getattr(each, name) for each in trials]).tolist() for name in ("offset", "scale"))
        return Scaled(side_by_side([each.model for each in trials]), *bounds, *units).to(first.scale)
    if isinstance(first, GridFunction):
        return GridFunction(first.axes, torch.cat([each.values for each in trials], dim=-1))
    found = type(first).from_config(**{**first.config, "outputs": len(trials) * first.outputs}).to(first.coefficients)
    found.coefficients.copy_(torch.cat([each.coefficients for each in trials], dim=first.axis))
    return found

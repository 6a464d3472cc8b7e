"""The function behind a solution on a grid: values at nodes, and what the axes make of them in between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml.grids.axes import Axis, axis_from

_ENTRIES = 2**22


class GridFunction(nn.Module):
    """Values at the nodes of a tensor grid as a function of points, which knows its derivatives.

    Args:
        axes: an axis for each coordinate, in order.
        values: at the nodes, shape ``(n_1, ..., n_D, F)``; an axis of knots has two entries a knot, value and slope.

    Example:
        >>> import torch
        >>> from sciml.grids import Chebyshev
        >>> axis = Chebyshev(0.0, 1.0, 5)
        >>> square = GridFunction([axis], torch.from_numpy(axis.nodes[:, None] ** 2))
        >>> round(float(square(torch.tensor([[0.3]], dtype=torch.float64))), 12)
        0.09
    """

    values: Tensor

    def __init__(self, axes: Sequence[Axis], values: Tensor) -> None:
        super().__init__()
        self.axes = tuple(axes)
        self.register_buffer("values", values)

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds this function, its values apart: the keywords of ``GridFunction.from_config``."""
        return {"axes": [axis.config for axis in self.axes], "shape": list(self.values.shape)}

    @classmethod
    def from_config(cls, axes: Sequence[Mapping[str, Any]], shape: Sequence[int]) -> GridFunction:
        """A function with these axes and no values yet."""
        return cls([axis_from(dict(each)) for each in axes], torch.zeros(*shape, dtype=torch.float64))

    def forward(self, points: Tensor) -> Tensor:
        """Values ``(n, F)`` at points ``(n, D)``."""
        return self.partial(points, (0,) * len(self.axes))

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A partial derivative of all fields, ``(n, F)``, its orders given for each coordinate."""
        reached = math.prod(axis.reach or size for axis, size in zip(self.axes, self.values.shape, strict=False))
        size = max(1, _ENTRIES // (reached * self.values.shape[-1]))
        parts = [self._partial(chunk, orders) for chunk in points.split(size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        count, dims = len(points), len(self.axes)
        tables = [axis.table(points[:, k], orders[k]) for k, axis in enumerate(self.axes)]
        near = [k for k, axis in enumerate(self.axes) if axis.reach is not None]
        far = [k for k, axis in enumerate(self.axes) if axis.reach is None]
        # Axes with few neighbours first: of their nodes only some are looked up, and summed with their factors.
        values = self.values.permute(*near, *far, dims)
        if not near:
            first, *far = far
            found = (tables[first][1] @ values.flatten(1)).unflatten(1, values.shape[1:])
        else:
            numbers, factors = tables[near[0]]
            assert numbers is not None
            for k in near[1:]:
                more, other = tables[k]
                assert more is not None
                numbers = (numbers[:, :, None] * self.values.shape[k] + more[:, None, :]).flatten(1)
                factors = (factors[:, :, None] * other[:, None, :]).flatten(1)
            picked = values.flatten(0, len(near) - 1)[numbers]
            found = torch.bmm(factors[:, None, :], picked.flatten(2))[:, 0].unflatten(1, values.shape[len(near) :])
        for k in far:
            found = torch.bmm(tables[k][1][:, None, :], found.flatten(2))[:, 0].unflatten(1, found.shape[2:])
        return found.reshape(count, -1)

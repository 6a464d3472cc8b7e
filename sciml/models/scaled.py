"""Nondimensionalisation: a model between physical units and numbers of order one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml.jets.propagation import Propagation, Streams
from sciml.models.base import Block


class Scaled(Block):
    r"""A model seen from outside in physical units: :math:`x \mapsto o + s \odot N((x - c)/h)`.

    The domain is mapped to :math:`[-1, 1]^D`, and the model's outputs of order one to the size of the fields. The
    numbers are buffers: they travel with the state of the module.

    Args:
        model: maps ``(n, D)`` to ``(n, F)``.
        lower: lower bounds of the coordinates.
        upper: upper bounds of the coordinates.
        offset: centre of each field, in its unit.
        scale: size of each field, in its unit.

    Example:
        >>> import torch
        >>> from sciml.models.mlp import MLP
        >>> trial = Scaled(MLP(8, inputs=1, outputs=1), lower=[0.0], upper=[10.0], offset=[5.0], scale=[2.0]).double()
        >>> trial(torch.tensor([[5.0]], dtype=torch.float64)).shape
        torch.Size([1, 1])
    """

    arguments = ("center", "half_width", "offset", "scale")
    center: Tensor
    half_width: Tensor
    offset: Tensor
    scale: Tensor

    def __init__(
        self,
        model: nn.Module,
        lower: Sequence[float],
        upper: Sequence[float],
        offset: Sequence[float],
        scale: Sequence[float],
    ) -> None:
        super().__init__()
        self.model = model
        low, high = (torch.tensor(list(bounds), dtype=torch.float64) for bounds in (lower, upper))
        self.register_buffer("center", (low + high) / 2)
        self.register_buffer("half_width", (high - low) / 2)
        self.register_buffer("offset", torch.tensor(list(offset), dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(list(scale), dtype=torch.float64))

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` in their units at points ``(n, D)`` in theirs."""
        return self.offset + self.scale * self.model((points - self.center) / self.half_width)

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of the fields, ``(n, F)``, of given orders by each coordinate, if the model has a ``partial``."""
        model: Any = self.model
        found: Tensor = self.scale * model.partial((points - self.center) / self.half_width, orders)
        for order, half_width in zip(orders, self.half_width, strict=True):
            found = found / half_width**order
        return found if any(orders) else found + self.offset

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """Fields and their derivatives, in their units."""
        inside = propagation.affine(streams, 1 / self.half_width, -self.center / self.half_width)
        return propagation.affine(propagation.through(self.model, inside), self.scale, self.offset)

"""What a residual asks for: a supplier that answers with noise and remembers every request."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sciml.typing import MultiIndex, Values


class Recorder:
    """Answers any request with random values, so that a residual can be asked what it needs.

    Args:
        size: the number of points ``n``.
        seed: seed of the recorder's own generator; the caller's generators are not touched.
    """

    name = "recorder"

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._generator = torch.Generator().manual_seed(seed)

    def jet(self, field: str, index: MultiIndex) -> Values:
        """Random values of shape ``(n,)``, positive so that logarithms and roots are defined."""
        return 0.5 + torch.rand(self._size, dtype=torch.float64, generator=self._generator)


def orders_asked(jets: Mapping[tuple[str, MultiIndex], object], coordinate: str) -> dict[str, int]:
    """The highest derivative by ``coordinate`` that was asked of each field."""
    orders: dict[str, int] = {}
    for field, index in jets:
        orders[field] = max(orders.get(field, 0), index.count(coordinate))
    return orders

"""Jets of trial functions that know their own derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml.typing import MultiIndex, Points, Values


class AnalyticJets:
    """Partial derivatives of a trial function with a method ``partial(points, orders)``, where ``orders`` are by column.

    The function and its derivatives map points ``(n, D)``, with the columns ``coordinates``, to ``(n, F)``, with the columns
    ``fields``.
    """

    name = "closed form"

    def __init__(self, trial: Any, points: Points, coordinates: Sequence[str], fields: Sequence[str]) -> None:
        self._trial, self._points, self._coordinates = trial, points.detach(), tuple(coordinates)
        self._column = {name: column for column, name in enumerate(fields)}
        self._found: dict[MultiIndex, Tensor] = {}

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        if index not in self._found:
            with torch.no_grad():
                orders = tuple(index.count(name) for name in self._coordinates)
                self._found[index] = self._trial.partial(self._points, orders)
        return self._found[index][:, self._column[field]]


def knows_derivatives(trial: nn.Module) -> bool:
    """Whether a trial function is made of parts that all know their derivatives, and has nothing to be varied."""
    parts = [trial, *(getattr(trial, "windows", None) or [])]
    inner = [each.model if hasattr(each, "model") else each for each in parts[1:] or parts]
    return all(hasattr(each, "partial") for each in [*parts, *inner]) and not any(
        parameter.requires_grad for parameter in trial.parameters()
    )

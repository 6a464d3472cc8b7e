"""Piecewise cubics through values and slopes: the trial function behind a solution of an initial-value problem."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sciml.errors import ModelError


class Hermite(nn.Module):
    """The piecewise cubic that has given values and slopes at knots, for each of F fields of one coordinate.

    It continues with its first and last piece outside the knots. Its error is of fourth order in their distance.

    Args:
        knots: increasing, shape ``(m,)``, with m at least 2.
        values: shape ``(m, F)``.
        slopes: shape ``(m, F)``.

    Raises:
        ModelError: the shapes do not match, or the knots do not increase.

    Example:
        >>> import torch
        >>> from sciml.models.hermite import Hermite
        >>> knots = torch.tensor([0.0, 1.0], dtype=torch.float64)
        >>> cubic = Hermite(knots, knots[:, None] ** 3, 3 * knots[:, None] ** 2)
        >>> float(cubic(torch.tensor([[0.5]], dtype=torch.float64)))
        0.125
    """

    knots: Tensor
    values: Tensor
    slopes: Tensor

    def __init__(self, knots: Tensor, values: Tensor, slopes: Tensor) -> None:
        super().__init__()
        if knots.ndim != 1 or len(knots) < 2 or values.shape != slopes.shape or len(values) != len(knots):
            raise ModelError(
                f"knots (m,), values (m, F) and slopes (m, F) are needed; given: {tuple(knots.shape)}, "
                f"{tuple(values.shape)}, {tuple(slopes.shape)}"
            )
        if not bool((knots.diff() > 0).all()):
            raise ModelError("the knots must increase")
        self.register_buffer("knots", knots)
        self.register_buffer("values", values)
        self.register_buffer("slopes", slopes)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Hermite:
        """The function that a ``state_dict`` describes."""
        return cls(state["knots"], state["values"], state["slopes"])

    def forward(self, points: Tensor) -> Tensor:
        """Values ``(n, F)`` at points ``(n, 1)``."""
        at = points[:, 0]
        piece = (torch.searchsorted(self.knots, at.detach().contiguous(), right=True) - 1).clamp(0, len(self.knots) - 2)
        left, right = self.knots[piece], self.knots[piece + 1]
        width = (right - left)[:, None]
        s = ((at - left) / (right - left))[:, None]
        rest = 1.0 - s
        return (
            (1.0 + 2.0 * s) * rest * rest * self.values[piece]
            + s * s * (3.0 - 2.0 * s) * self.values[piece + 1]
            + width * s * rest * (rest * self.slopes[piece] - s * self.slopes[piece + 1])
        )

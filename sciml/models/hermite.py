"""Piecewise polynomials through values and derivatives: the trial function behind a solution of an initial-value problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sciml.errors import ModelError


class Hermite(nn.Module):
    """The piecewise polynomial that has given values and derivatives at knots, for each of F fields of one coordinate.

    With derivatives up to order m it has degree 2m + 1 and m continuous derivatives, and its error is of order 2m + 2 in the
    distance of the knots. It continues with its first and last piece outside them.

    Args:
        knots: increasing, shape ``(k,)``, with k at least 2.
        jets: for each field its value and derivatives at the knots, shape ``(m + 1, k)``; m may differ.

    Raises:
        ModelError: the shapes do not match, or the knots do not increase.

    Example:
        >>> import torch
        >>> knots = torch.tensor([0.0, 1.0], dtype=torch.float64)
        >>> cubic = Hermite(knots, [torch.stack([knots**3, 3 * knots**2])])
        >>> round(float(cubic(torch.tensor([[0.5]], dtype=torch.float64))), 12)
        0.125

    Reference: P. J. Davis, Interpolation and Approximation, Dover 1975, section 2.5.
    """

    knots: Tensor

    def __init__(self, knots: Tensor, jets: Sequence[Tensor]) -> None:
        super().__init__()
        if knots.ndim != 1 or len(knots) < 2 or not jets or any(each.shape[1:] != knots.shape for each in jets):
            raise ModelError(
                f"knots (k,) and for each field jets (m + 1, k) are needed; given: {tuple(knots.shape)} and "
                f"{[tuple(each.shape) for each in jets]}"
            )
        if not bool((knots.diff() > 0).all()):
            raise ModelError("the knots must increase")
        self.register_buffer("knots", knots)
        for position, each in enumerate(jets):
            self.register_buffer(f"jets_{position}", each)
            self.register_buffer(f"pieces_{position}", _coefficients(knots, each), persistent=False)
        self._fields = len(jets)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Hermite:
        """The function that a ``state_dict`` describes."""
        return cls(state["knots"], [state[f"jets_{position}"] for position in range(len(state) - 1)])

    def forward(self, points: Tensor) -> Tensor:
        """Values ``(n, F)`` at points ``(n, 1)``."""
        at = points[:, 0]
        piece = (torch.searchsorted(self.knots, at.detach().contiguous(), right=True) - 1).clamp(0, len(self.knots) - 2)
        left, right = self.knots[piece], self.knots[piece + 1]
        share = (at - left) / (right - left)
        columns = []
        for position in range(self._fields):
            pieces = self.get_buffer(f"pieces_{position}")[:, piece]
            value = pieces[-1]
            for coefficient in pieces[:-1].flip(0):
                value = value * share + coefficient
            columns.append(value)
        return torch.stack(columns, dim=1)


def _coefficients(knots: Tensor, jets: Tensor) -> Tensor:
    """Coefficients of each piece in powers of the share of its length, shape ``(2m + 2, k - 1)``."""
    count = len(jets)
    powers = torch.arange(count, dtype=jets.dtype)[:, None]
    width = knots.diff() ** powers
    ends = torch.cat([jets[:, :-1] * width, jets[:, 1:] * width])
    # Derivative j of share**i is i!/(i-j)! share**(i-j): at the left end only i = j is left, at the right end all are.
    conditions = torch.zeros(2 * count, 2 * count, dtype=jets.dtype)
    for j in range(count):
        conditions[j, j] = math.factorial(j)
        for i in range(j, 2 * count):
            conditions[count + j, i] = math.factorial(i) / math.factorial(i - j)
    return torch.linalg.solve(conditions, ends)

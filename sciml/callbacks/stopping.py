"""When to stop a phase."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EarlyStopping:
    """Stop a phase when the loss on held-out rows has not fallen for a while.

    Args:
        patience: the number of looks without improvement that are waited for.
        improvement: the relative fall that counts as one.

    Example:
        >>> import sciml
        >>> sciml.EarlyStopping(patience=5).over([1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
        True

    Reference: L. Prechelt, Early stopping - but when?, in Neural Networks: Tricks of the Trade, Springer 1998.
    """

    patience: int = 15
    improvement: float = 1e-2

    def over(self, held_out: list[float]) -> bool:
        """Whether a phase with these held-out losses, one a look, should stop."""
        if len(held_out) <= self.patience:
            return False
        before = min(held_out[: -self.patience])
        return not min(held_out[-self.patience :]) < before * (1.0 - self.improvement)

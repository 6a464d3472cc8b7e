"""Trial functions that satisfy conditions whatever the model does."""

from __future__ import annotations

from torch import Tensor, nn

from sciml.models.periodic import PeriodicInputs
from sciml.models.scaled import Scaled
from sciml.typing import TrialFunction


class Transformed(nn.Module):
    r"""A trial function plus a lift, :math:`u(x) = g(x) + \varphi(x) \odot N(x)`.

    Where :math:`\varphi` vanishes u is g, whatever N is.

    Args:
        inner: the trial function N, points ``(n, D)`` to fields ``(n, F)``.
        lift: the function g, without parameters; points ``(n, D)`` to fields ``(n, F)``, differentiable.
        distance: the function :math:`\varphi`, likewise.

    Example:
        >>> import torch
        >>> from sciml.models import MLP, Scaled
        >>> inner = Scaled(MLP(8, inputs=1, outputs=1), lower=[0.0], upper=[1.0], offset=[0.0], scale=[1.0]).double()
        >>> trial = Transformed(inner, lift=lambda x: 3.0 + 0.0 * x, distance=lambda x: x)
        >>> float(trial(torch.zeros(1, 1, dtype=torch.float64)).detach())
        3.0

    Reference: I. E. Lagaris, A. Likas and D. I. Fotiadis, Artificial neural networks for solving ordinary and partial
    differential equations, IEEE Transactions on Neural Networks 9 (1998).
    """

    def __init__(self, inner: Scaled, lift: TrialFunction, distance: TrialFunction) -> None:
        super().__init__()
        self.inner = inner
        self.lift = lift
        self.distance = distance

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` in their units at points ``(n, D)`` in theirs."""
        return self.lift(points) + self.distance(points) * self.inner(points)


def scaled_of(trial: nn.Module) -> Scaled | None:
    """The scaled model inside a trial function, if there is one."""
    inner = trial.inner if isinstance(trial, Transformed) else trial
    return inner if isinstance(inner, Scaled) else None


def model_of(trial: nn.Module) -> nn.Module | None:
    """The model inside a trial function, without anything that was put around it."""
    scaled = scaled_of(trial)
    if scaled is None:
        return None
    return scaled.model.model if isinstance(scaled.model, PeriodicInputs) else scaled.model

"""Jets of any trial function: in closed form where it knows its own, else by nested reverse-mode differentiation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.errors import ModelError
from sciml.jets.differentiable import differentiable
from sciml.typing import MultiIndex, Points, TrialFunction, Values


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


class AutogradJets:
    """Partial derivatives of a trial function at points, each by differentiating the one below it.

    One reverse sweep gives the derivatives of one jet by **all** coordinates, so u_x and u_t cost one sweep, and u_xx
    and u_xt one more. The trial function must treat each row by itself.

    Args:
        trial: maps ``(n, D)`` to ``(n, F)``.
        points: shape ``(n, D)``.
        coordinates: the names of the columns of ``points``.
        fields: the names of the columns of the trial function's output.

    Raises:
        ModelError: the trial function's output has not the shape ``(n, F)``.
    """

    name = "nested autograd"

    def __init__(self, trial: TrialFunction, points: Points, coordinates: Sequence[str], fields: Sequence[str]) -> None:
        self._points = points.detach().requires_grad_()
        self._position = {name: column for column, name in enumerate(coordinates)}
        with differentiable():
            output = trial(self._points)
        if not isinstance(output, Tensor) or output.shape != (len(points), len(fields)):
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ModelError(
                f"the model returned {shape} for {len(points)} points; expected ({len(points)}, {len(fields)}): one "
                f"column for each field, {listed(fields)}"
            )
        self._values = dict(zip(fields, output.unbind(1), strict=True))
        self._gradients: dict[tuple[str, MultiIndex], Tensor] = {}

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        if not index:
            return self._values[field]
        *parent, last = index
        return self._gradient(field, tuple(parent))[:, self._position[last]]

    def _gradient(self, field: str, index: MultiIndex) -> Tensor:
        key = (field, index)
        if key not in self._gradients:
            values = self.jet(field, index)
            # No path to the points means the derivative is zero: a constant, or the derivative of a linear function.
            if values.requires_grad:
                options: Any = {"create_graph": True, "allow_unused": True, "materialize_grads": True}
                (self._gradients[key],) = torch.autograd.grad(values.sum(), self._points, **options)
            else:
                self._gradients[key] = torch.zeros_like(self._points)
        return self._gradients[key]


def knows_derivatives(trial: nn.Module) -> bool:
    """Whether a trial function is made of parts that all know their derivatives, and has nothing to be varied."""
    return _has_partial(trial) and not any(parameter.requires_grad for parameter in trial.parameters())


def _has_partial(module: Any) -> bool:
    parts: Any = [module.model] if hasattr(module, "model") else getattr(module, "windows", getattr(module, "branches", ()))
    return hasattr(module, "partial") and all(map(_has_partial, parts))


def jets_of(trial: nn.Module, points: Tensor, coordinates: Sequence[str], fields: Sequence[str]) -> AnalyticJets | AutogradJets:
    """The derivatives of any trial function at points ``(n, D)``: in closed form, or else by nested autograd."""
    kind = AnalyticJets if knows_derivatives(trial) else AutogradJets
    with torch.enable_grad():
        return kind(trial, points.to(next(trial.buffers())), coordinates, fields)

"""Hard constraints: trial functions that satisfy conditions exactly, a model between two known functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams
from sciml.models.base import Block
from sciml.models.blocks import PeriodicInputs
from sciml.models.scaled import Scaled
from sciml.models.windowed import Windowed


class Constrained(Block):
    r"""A model between two known functions, :math:`x \mapsto g(x) + \varphi(x)\,N(x)`.

    Where :math:`\varphi` vanishes, the value is g's whatever N is: so conditions are satisfied exactly. All three take the
    points as the block is given them. Around a ``Scaled`` model these are physical coordinates and fields in their units,
    which is where conditions are known; inside one they are scaled to [-1, 1] and of order one.

    Jets of g and :math:`\varphi` come from nested differentiation, so the two must be smooth, made of torch's operations and
    treat each row by itself. They may not have parameters, and the block must be given coordinates, not a layer's outputs;
    otherwise all jets come from nested differentiation, which is right and slower.

    Args:
        model: N, maps ``(n, D)`` to ``(n, F)``.
        g: maps ``(n, D)`` to ``(n, F)`` or ``(n, 1)``.
        phi: maps ``(n, D)`` to ``(n, F)`` or ``(n, 1)``.

    Raises:
        ModelError: ``model`` is not a module, ``g`` or ``phi`` cannot be called, or returns another shape.

    Example:
        >>> import torch, sciml
        >>> model = sciml.MLP(8, inputs=1, outputs=1)
        >>> fixed = sciml.Constrained(model, g=lambda points: 1 + points, phi=lambda points: points * (1 - points))
        >>> fixed(torch.tensor([[0.0], [1.0]])).flatten().tolist()
        [1.0, 2.0]

    Reference: I. E. Lagaris, A. Likas and D. I. Fotiadis, Artificial neural networks for solving ordinary and partial
    differential equations, IEEE Transactions on Neural Networks 9 (1998).
    """

    arguments = ("g", "phi")
    takes_coordinates = True

    def __init__(self, model: nn.Module, g: Callable[[Tensor], Tensor], phi: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        if not isinstance(model, nn.Module) or not callable(g) or not callable(phi):
            raise ModelError(
                "Constrained needs a torch.nn.Module and two functions of the points (n, D); given: "
                f"{type(model).__name__}, {type(g).__name__} and {type(phi).__name__}"
            )
        self.model = model
        self.g = g
        self.phi = phi

    def forward(self, points: Tensor) -> Tensor:
        """``(n, D)`` to ``(n, F)``."""
        output = self.model(points)
        shift, factor = self._checked("g", self.g(points), output), self._checked("phi", self.phi(points), output)
        return shift + factor * output

    def parts(self) -> Sequence[nn.Module]:
        """The model."""
        return [self.model]

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The rule of Leibniz with the jets of the two functions."""
        output = propagation.through(self.model, streams)
        shift, factor = (propagation.closed_form(function, streams) for function in (self.g, self.phi))
        return propagation.sum(shift, propagation.product(factor, output))

    @staticmethod
    def _checked(name: str, values: object, output: Tensor) -> Tensor:
        # len() of a tensor is a number of Python's own, which a traced graph would hold as a constant.
        if not isinstance(values, Tensor) or values.shape not in (output.shape, (output.shape[0], 1)):
            given = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ModelError(
                f"{name} must return a tensor of shape {tuple(output.shape)} or ({output.shape[0]}, 1) here, one row a point; "
                f"it returned {given}"
            )
        return values


def scaled_of(trial: nn.Module) -> Scaled | None:
    """The scaled model inside a trial function, if there is one."""
    inner = trial.model if isinstance(trial, Constrained) else trial
    return inner if isinstance(inner, Scaled) else None


def model_of(trial: nn.Module) -> nn.Module | None:
    """The model inside a trial function, without anything that was put around it; windows as a whole."""
    if isinstance(trial, Windowed):
        return trial
    scaled = scaled_of(trial)
    if scaled is None:
        return None
    return scaled.model.model if isinstance(scaled.model, PeriodicInputs) else scaled.model


def with_model(trial: nn.Module, model: nn.Module) -> nn.Module:
    """A trial function like another one, with another model inside."""
    if isinstance(trial, Constrained):
        return Constrained(with_model(trial.model, model), trial.g, trial.phi)
    assert isinstance(trial, Scaled)
    found, old = copy.copy(trial), trial.model
    found._modules = dict(trial._modules)
    found.model = PeriodicInputs(model, old.columns, old.harmonics) if isinstance(old, PeriodicInputs) else model
    return found

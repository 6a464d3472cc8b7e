"""The multilayer perceptron."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

from sciml._text import among
from sciml.errors import ModelError
from sciml.models.base import SequentialModel, linear

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
}


class MLP(SequentialModel):
    r"""A multilayer perceptron :math:`x \mapsto W_L\,\sigma(\dots\sigma(W_1 x + b_1)\dots) + b_L`.

    Made without ``inputs`` and ``outputs`` it is a shape that ``fit`` fills in (in its own copy) from the problem's
    coordinates and fields. Weights are drawn by Glorot's normal rule from a generator of their own, biases are zero.

    Args:
        hidden: the widths of the hidden layers.
        activation: ``"tanh"``, ``"sigmoid"``, ``"softplus"``, ``"silu"``, ``"gelu"`` or ``"relu"`` (of these, only relu
            has no second derivative).
        inputs: the number of coordinates D, or None.
        outputs: the number of fields F, or None.
        seed: seed of the weights when ``inputs`` and ``outputs`` are given.

    Raises:
        ModelError: no hidden layer, a width that is not a positive integer, or an unknown activation.

    Example:
        >>> import torch, sciml
        >>> model = sciml.MLP(20, 20, inputs=2, outputs=1)
        >>> model(torch.zeros(5, 2)).shape
        torch.Size([5, 1])

    Reference: X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural networks,
    AISTATS 2010.
    """

    arguments = ("hidden", "activation")

    def __init__(
        self,
        *hidden: int,
        activation: str = "tanh",
        inputs: int | None = None,
        outputs: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not hidden or any(isinstance(width, bool) or not isinstance(width, int) or width < 1 for width in hidden):
            raise ModelError(f"MLP needs the widths of its hidden layers, as in MLP(20, 20); given: {hidden!r}")
        if activation not in ACTIVATIONS:
            raise ModelError(f"MLP has no activation {activation!r}; it has {among(activation, ACTIVATIONS)}")
        self.hidden = tuple(hidden)
        self.activation = activation
        self.build_if_asked(inputs, outputs, seed)

    @classmethod
    def from_config(cls, hidden: list[int], **options: Any) -> MLP:
        return cls(*hidden, **options)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Create the layers for D inputs and F outputs, in float64, by Glorot's normal rule."""
        widths = (inputs, *self.hidden, outputs)
        for depth, (before, after) in enumerate(itertools.pairwise(widths)):
            layer = linear(before, after)
            nn.init.xavier_normal_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)
            if depth < len(self.hidden):
                self.layers.append(ACTIVATIONS[self.activation]())

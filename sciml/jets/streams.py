"""Streams, which are derivatives on their way through a model, and the layers with parameters that they passed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from sciml.jets.activations import Derivatives
from sciml.jets.faa_di_bruno import Rule, compose
from sciml.typing import MultiIndex


@dataclass(eq=False)
class Streams:
    """A module's outputs and their derivatives ``indices``, the values ``()`` first; others vanish.

    They are ``before``, ``(S, n, width)``, or follow from it by ``rule`` through the activation ``known``.
    """

    indices: tuple[MultiIndex, ...]
    before: Tensor
    rule: Rule | None = None
    known: Derivatives | None = None

    @cached_property
    def values(self) -> Tensor:
        """The streams themselves, shape ``(len(indices), n, width)``. A linear layer takes them without asking for this."""
        if self.rule is None or self.known is None:
            return self.before
        return compose(self.before, self.rule, self.known)

    def parts(self) -> dict[MultiIndex, Tensor]:
        """Each stream by its derivative, shape ``(n, width)``."""
        return dict(zip(self.indices, self.values.unbind(0), strict=True))

    def units(self) -> dict[str, Tensor]:
        """What the columns of coordinates, scaled one by one, rise by each coordinate, shape ``(width,)``."""
        return {index[0]: row[0] for index, row in self.parts().items() if len(index) == 1}

    def aligned(self, indices: tuple[MultiIndex, ...]) -> Tensor:
        """The streams of ``indices``, zeros for those that vanish."""
        if indices == self.indices:
            return self.values
        parts = self.parts()
        zero = torch.zeros_like(self.values[0])
        return torch.stack([parts.get(index, zero) for index in indices])


@dataclass(eq=False)
class Layer:
    """A linear layer as it was passed: its module, the streams it received and the ones it returned, ``(S, n, width)``."""

    module: nn.Linear | nn.LayerNorm
    streams: Streams
    outputs: Tensor

    @cached_property
    def inputs(self) -> Tensor:
        """What was multiplied by the weights, shape ``(S, n, inputs)``, without a graph."""
        with torch.no_grad():
            return replace(self.streams).values

    def outer(self, back: Tensor) -> Tensor:
        """Each point's sum over streams of outer products of cotangents ``(S, n, outputs)`` with inputs."""
        return back.permute(1, 2, 0) @ self.inputs.detach().permute(1, 0, 2)

    def times(self, back: Tensor, weight: Tensor) -> Tensor:
        """The product of each point's ``outer`` with a change of the weight, shape ``(n,)``."""
        return (back * (self.inputs @ weight.T)).sum((0, 2))

    def transposed(self, back: Tensor, weights: Tensor) -> Tensor:
        """The sum over points of ``outer`` times a weight ``(n,)``, of the shape of the layer's weight."""
        return (back * weights[:, None]).flatten(0, 1).T @ self.inputs.flatten(0, 1)


@dataclass(eq=False)
class ElementwiseLayer(Layer):
    """A layer that multiplies every column by a weight of its own, such as the last part of a layer normalisation."""

    def outer(self, back: Tensor) -> Tensor:
        """Each point's sum over streams of cotangents ``(S, n, width)`` times inputs, ``(n, width)``."""
        return (back * self.inputs.detach()).sum(0)

    def times(self, back: Tensor, weight: Tensor) -> Tensor:
        return self.outer(back) @ weight

    def transposed(self, back: Tensor, weights: Tensor) -> Tensor:
        return weights @ self.outer(back)

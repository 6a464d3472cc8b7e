r"""Jets of layered models by Taylor-mode propagation: derivatives travel forward through the layers.

A *stream* is one partial derivative of a layer's output at all points, shape ``(n, width)``. A linear layer maps every stream
alike; an activation f combines them by Faà di Bruno's formula, with the sum over the partitions of the derivative's
coordinates into blocks:

.. math::  \partial_\alpha f(h) = \sum_{\pi} f^{(|\pi|)}(h) \prod_{B \in \pi} \partial_{\alpha_B} h .

Reference: A. Griewank and A. Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 13; for partial differential
equations J. Bettencourt, M. Johnson and D. Duvenaud, Taylor-mode automatic differentiation for higher-order derivatives in
JAX, 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor, nn

from sciml.jets.activations import Derivatives, derivatives_of
from sciml.typing import MultiIndex, Points, Values

Streams = dict[MultiIndex, Tensor]
HIGHEST = 4


@cache
def partitions(count: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """All partitions of ``range(count)`` into blocks."""
    if count == 0:
        return ((),)
    found = []
    for smaller in partitions(count - 1):
        found.append((*smaller, (count - 1,)))
        for position, block in enumerate(smaller):
            found.append((*smaller[:position], (*block, count - 1), *smaller[position + 1 :]))
    return tuple(found)


def closed(indices: Iterable[MultiIndex]) -> tuple[MultiIndex, ...]:
    """All sub-derivatives of some derivatives, lowest first: what must travel so that these arrive."""
    found: set[MultiIndex] = {()}
    for index in indices:
        for mask in range(1 << len(index)):
            found.add(tuple(name for position, name in enumerate(index) if mask >> position & 1))
    return tuple(sorted(found, key=lambda index: (len(index), index)))


@dataclass(frozen=True)
class Layer:
    """A linear layer as it was passed: its module, inputs ``A`` and outputs ``Z``, each ``(S, n, width)``."""

    module: nn.Linear
    inputs: Tensor
    outputs: Tensor


def layers_of(model: nn.Module) -> list[nn.Module] | None:
    """The linear layers and known activations that a model passes in turn, or None for any other model."""
    if isinstance(model, nn.Linear) or derivatives_of(model) is not None:
        return [model]
    inner = getattr(model, "layers", None) if type(model).__module__.startswith("sciml.") else None
    children = model if isinstance(model, nn.Sequential) else inner
    if not isinstance(children, nn.Sequential):
        return None
    found: list[nn.Module] = []
    for child in children:
        deeper = layers_of(child)
        if deeper is None:
            return None
        found += deeper
    return found if any(isinstance(layer, nn.Linear) for layer in found) else None


class ScaledModel(Protocol):
    """What Taylor mode needs of a trial function: a layered model and the affine maps around it (``models.Scaled``)."""

    model: nn.Module
    center: Tensor
    reach: Tensor
    offset: Tensor
    scale: Tensor


class TaylorJets:
    """Partial derivatives of a layered model at points, all of them in one forward pass.

    Args:
        trial: a ``Scaled`` model of layers known to ``layers_of``.
        points: shape ``(n, D)``.
        coordinates: the names of the columns of ``points``.
        fields: the names of the columns of the output.
        plan: the derivatives that will be asked for; a request outside it starts a second pass.

    Example:
        >>> import torch
        >>> from sciml.models import MLP, Scaled
        >>> trial = Scaled(MLP(8, inputs=1, outputs=1), [0.0], [2.0], [0.0], [1.0]).double()
        >>> jets = TaylorJets(trial, torch.rand(5, 1, dtype=torch.float64), ("x",), ("u",), [("x", "x")])
        >>> jets.jet("u", ("x", "x")).shape
        torch.Size([5])
    """

    name = "Taylor mode"

    def __init__(
        self,
        trial: ScaledModel,
        points: Points,
        coordinates: Sequence[str],
        fields: Sequence[str],
        plan: Iterable[MultiIndex] = (),
    ) -> None:
        self._trial = trial
        self._points = points.detach()
        self._coordinates = tuple(coordinates)
        self._fields = {name: column for column, name in enumerate(fields)}
        self._plan = closed(plan)
        self._streams: Streams = {}
        self.layers: list[Layer] = []

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        if index not in self._streams:
            self._plan = closed([*self._plan, index])
            self._propagate()
        return self._streams[index][:, self._fields[field]]

    def _propagate(self) -> None:
        trial = self._trial
        layers = layers_of(trial.model)
        assert layers is not None
        streams = self._seeds()
        # Layers of an earlier pass stay listed: jets that were handed out then depend on its outputs.
        for layer in layers:
            if isinstance(layer, nn.Linear):
                streams = self._linear(layer, streams)
            else:
                known = derivatives_of(layer)
                assert known is not None
                streams = self._activation(known, streams)
        zero = torch.zeros_like(streams[()])
        for index in self._plan:
            values = streams.get(index)
            scaled = zero if values is None else values * trial.scale
            self._streams[index] = scaled if index else scaled + trial.offset

    def _seeds(self) -> Streams:
        """The scaled coordinates and their first derivatives; all higher ones are zero and do not travel."""
        reach = self._trial.reach
        scaled = (self._points - self._trial.center) / reach
        seeds: Streams = {(): scaled}
        for index in self._plan:
            if len(index) == 1:
                unit = torch.zeros_like(scaled)
                column = self._coordinates.index(index[0])
                unit[:, column] = 1.0 / reach[column]
                seeds[index] = unit
        return seeds

    def _linear(self, layer: nn.Linear, streams: Streams) -> Streams:
        inputs = torch.stack(list(streams.values()))
        outputs = inputs @ layer.weight.T
        if layer.bias is not None:
            outputs = torch.cat([outputs[:1] + layer.bias, outputs[1:]])
        self.layers.append(Layer(layer, inputs, outputs))
        return dict(zip(streams, outputs.unbind(0), strict=True))

    def _activation(self, known: Derivatives, streams: Streams) -> Streams:
        highest = max(len(index) for index in self._plan)
        values = known(streams[()], highest)
        found: Streams = {(): values[0]}
        for index in self._plan[1:]:
            total = None
            for blocks in partitions(len(index)):
                factors = [streams.get(tuple(index[position] for position in block)) for block in blocks]
                product: Tensor | None = values[len(blocks)]
                for factor in factors:
                    product = None if factor is None or product is None else product * factor
                if product is not None:
                    total = product if total is None else total + product
            if total is not None:
                found[index] = total
        return found


def supports(trial: nn.Module, highest: int) -> bool:
    """Whether a trial function's jets up to an order can be had by Taylor mode."""
    model = getattr(trial, "model", None)
    return (
        isinstance(model, nn.Module) and hasattr(trial, "reach") and highest <= HIGHEST and layers_of(model) is not None
    )

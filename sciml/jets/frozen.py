"""Jets of trial functions that are linear in what is varied: the features' jets are computed once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sciml.jets.propagation import Layer, Streams
from sciml.jets.taylor import TaylorJets
from sciml.typing import MultiIndex, Points, Values


@dataclass(frozen=True)
class Features:
    """The jets of frozen features at some points, ``streams``, as they arrive at the ``layer`` that is varied."""

    layer: nn.Linear
    streams: Streams

    @property
    def plan(self) -> tuple[MultiIndex, ...]:
        """The derivatives there are."""
        return self.streams.indices


def output_layer(trial: nn.Module) -> nn.Linear | None:
    """The last linear layer of a scaled model in which nothing else is varied, or None for any other model."""
    layers = getattr(getattr(trial, "model", None), "layers", None)
    if not isinstance(layers, nn.Sequential) or len(layers) < 2 or type(layers[-1]) is not nn.Linear:
        return None
    own = {id(parameter) for parameter in layers[-1].parameters()}
    varied = [id(parameter) for parameter in trial.parameters() if parameter.requires_grad]
    return layers[-1] if varied and own.issuperset(varied) else None


def features_at(
    trial: nn.Module, points: Points, coordinates: Sequence[str], plan: Iterable[MultiIndex], fields: Sequence[str]
) -> Features:
    """The jets of all features of a trial function at points, for a plan of derivatives."""
    with torch.no_grad():
        jets = TaylorJets(trial, points, coordinates, fields, plan)
        jets.stream(())
        layer = jets.layers[-1]
        return Features(layer.module, Streams(layer.streams.indices, layer.inputs))


class FrozenJets:
    """Partial derivatives of ``offset + scale * (W features + b)`` at points, from kept derivatives of the features.

    Args:
        trial: a ``Scaled`` model of which only the last layer is varied (``output_layer``).
        fields: the names of the columns of the output.
        features: what ``features_at`` found at the points.
    """

    name = TaylorJets.name

    def __init__(self, trial: Any, fields: Sequence[str], features: Features) -> None:
        kept, last = features.streams.values, features.layer
        outputs = kept @ last.weight.T
        if last.bias is not None:
            outputs = torch.cat([outputs[:1] + last.bias, outputs[1:]])
        self.layers = [Layer(last, features.streams, outputs)]
        self._column = {name: column for column, name in enumerate(fields)}
        self._stream = {index: position for position, index in enumerate(features.plan)}
        self._values: Tensor = outputs * trial.scale
        self._offset: Tensor = trial.offset

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        column = self._column[field]
        if index not in self._stream:
            return torch.zeros_like(self._values[0, :, column])
        values = self._values[self._stream[index], :, column]
        return values if index else values + self._offset[column]

"""Jets of trial functions that are linear in what is varied: the features' jets are computed once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sciml.jets.taylor import Layer, ScaledModel, TaylorJets, closed, layers_of
from sciml.typing import MultiIndex, Points, Values


@dataclass(frozen=True)
class Features:
    """Derivatives of frozen features at some points: for each of them a matrix, stacked to ``(S, n, M)``."""

    plan: tuple[MultiIndex, ...]
    streams: Tensor


class _Front(nn.Module):
    """All layers of a scaled model but the last, in the same scaled coordinates, seen without units."""

    def __init__(self, trial: ScaledModel, layers: Sequence[nn.Module], width: int) -> None:
        super().__init__()
        self.model: nn.Module = nn.Sequential(*layers)
        self.center: Tensor = trial.center
        self.reach: Tensor = trial.reach
        self.offset = torch.zeros(width).to(trial.center)
        self.scale = torch.ones(width).to(trial.center)


def output_layer(model: nn.Module) -> nn.Linear | None:
    """The last linear layer of a model in which nothing else is varied, or None for any other model."""
    layers = layers_of(model)
    if layers is None or len(layers) < 2 or not isinstance(layers[-1], nn.Linear):
        return None
    frozen = not any(parameter.requires_grad for layer in layers[:-1] for parameter in layer.parameters())
    return layers[-1] if frozen and layers[-1].weight.requires_grad else None


def features_at(trial: ScaledModel, points: Points, coordinates: Sequence[str], plan: Iterable[MultiIndex]) -> Features:
    """The jets of all features of a trial function at points, for a plan of derivatives."""
    layers = layers_of(trial.model)
    assert layers is not None
    whole = closed(plan)
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    names = [str(number) for number in range(last.in_features)]
    with torch.no_grad():
        front = TaylorJets(_Front(trial, layers[:-1], len(names)), points, coordinates, names, whole)
        return Features(whole, torch.stack([front.stream(index) for index in whole]))


class FrozenJets:
    """Partial derivatives of ``offset + scale * (W features + b)`` at points, from kept derivatives of the features.

    Args:
        trial: a ``Scaled`` model of which only the last layer is varied (``output_layer``).
        fields: the names of the columns of the output.
        features: what ``features_at`` found at the points.
    """

    name = TaylorJets.name

    def __init__(self, trial: ScaledModel, fields: Sequence[str], features: Features) -> None:
        layers = layers_of(trial.model)
        assert layers is not None
        last = layers[-1]
        assert isinstance(last, nn.Linear)
        outputs = features.streams @ last.weight.T
        if last.bias is not None:
            outputs = torch.cat([outputs[:1] + last.bias, outputs[1:]])
        self.layers = [Layer(last, features.streams, outputs)]
        self._column = {name: column for column, name in enumerate(fields)}
        self._stream = {index: position for position, index in enumerate(features.plan)}
        self._values = outputs * trial.scale
        self._offset = trial.offset

    def covers(self, index: MultiIndex) -> bool:
        """Whether a derivative is among those that were kept."""
        return index in self._stream

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        column = self._column[field]
        values = self._values[self._stream[index], :, column]
        return values if index else values + self._offset[column]

"""Jets of trial functions that are linear in their parameters, such as random features: the features' jets are kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.jets.activations import sine
from sciml.jets.propagation import Layer, Streams
from sciml.jets.taylor import TaylorJets
from sciml.typing import MultiIndex, Points, Values


@dataclass(frozen=True)
class Features:
    """The jets of frozen features at some points, ``streams``, as they arrive at the ``layer`` that is varied."""

    layer: nn.Linear
    streams: Streams

    def passed(self) -> Layer:
        """The layer with its outputs, ``(S, n, outputs)``."""
        return Layer(self.layer, self.streams, self.streams.values @ self.layer.weight.T)


@dataclass(frozen=True)
class SineFeatures:
    r"""The jets of sines of affine functions of the coordinates, :math:`\sin z`, :math:`z_k = \omega_k\cdot x + b_k`.

    Every derivative is a multiple of a sine or a cosine, :math:`\pm\omega^\alpha \sin z` or
    :math:`\pm\omega^\alpha \cos z`, with ``factors``, ``(S, M)``, that are the same at all points: two matrices
    ``(n, M)``, ``sines`` and ``cosines``, or None where none of the derivatives in ``plan`` is even or ``odd``, hold
    all, and the factors go into the weights of ``layer``.
    """

    layer: nn.Linear
    plan: tuple[MultiIndex, ...]
    odd: tuple[bool, ...]
    factors: Tensor
    sines: Tensor | None
    cosines: Tensor | None

    def passed(self) -> Layer:
        """The layer with its outputs, ``(S, n, outputs)``."""
        weight = self.layer.weight
        outputs: dict[int, Tensor] = {}
        for waves, places in self.halves():
            weights = self.factors[places][:, None, :] * weight
            found = (waves @ weights.flatten(0, 1).T).unflatten(1, (len(places), -1))
            outputs |= zip(places, found.unbind(1), strict=True)
        stacked = torch.stack([outputs[place] for place in range(len(self.plan))])
        return WaveLayer(self.layer, Streams(self.plan, self.factors), stacked, self)

    def halves(self) -> list[tuple[Tensor, list[int]]]:
        """Sines and cosines, each with the places of its derivatives in the plan."""
        places = [[place for place, each in enumerate(self.odd) if each is odd] for odd in (False, True)]
        halves = zip((self.sines, self.cosines), places, strict=True)
        return [(waves, where) for waves, where in halves if waves is not None]


@dataclass(eq=False)
class WaveLayer(Layer):
    """A linear layer behind ``SineFeatures``; what it received is not spread out."""

    waves: SineFeatures

    def outer(self, back: Tensor) -> Tensor:
        halves = self.waves.halves()
        parts = (back[places].permute(1, 2, 0) @ self.waves.factors[places] for _, places in halves)
        first, *rest = (part.mul_(waves[:, None, :]) for part, (waves, _) in zip(parts, halves, strict=True))
        return first.add_(rest[0]) if rest else first

    def times(self, back: Tensor, weight: Tensor) -> Tensor:
        return (self.outer(back) * weight).sum((1, 2))

    def transposed(self, back: Tensor, weights: Tensor) -> Tensor:
        return torch.tensordot(weights, self.outer(back), 1)


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
) -> Features | SineFeatures:
    """The jets of all features of a trial function at points, for a plan of derivatives."""
    with torch.no_grad():
        waves = _waves_at(trial, points.detach(), coordinates, tuple(plan), fields)
        if waves is not None:
            return waves
        jets = TaylorJets(trial, points, coordinates, fields, plan)
        jets.stream(())
        layer = jets.layers[-1]
        return Features(cast(nn.Linear, layer.module), Streams(layer.streams.indices, layer.inputs))


def _waves_at(
    trial: nn.Module, points: Points, coordinates: Sequence[str], plan: tuple[MultiIndex, ...], fields: Sequence[str]
) -> SineFeatures | None:
    """Sines and cosines at points, or None for features that are no sines of affine functions."""
    # Asked for second derivatives at one point, an affine function passes none on: that is how it is known.
    probe = TaylorJets(trial, points[:1], coordinates, fields, [(name, name) for name in coordinates])
    probe.stream(())
    inner, outer = probe.layers[0], probe.layers[-1]
    first = inner.streams.indices[1:]
    affine = len(probe.layers) == 2 and inner.streams.rule is None and {(name,) for name in coordinates} == set(first)
    if not affine or outer.streams.known is not sine:
        return None
    phases, slopes = outer.streams.before[0, 0], outer.streams.before[1:, 0]
    row = {name: slope for (name,), slope in zip(first, slopes, strict=True)}
    angles = torch.addmm(phases, points - points[:1], torch.stack([row[name] for name in coordinates]))
    # Every second derivative of a sine or cosine changes its sign.
    ones = {order: torch.full_like(phases, 1.0 if order % 4 < 2 else -1.0) for order in map(len, plan)}
    factors = torch.stack([math.prod((row[name] for name in index), start=ones[len(index)]) for index in plan])
    odd = tuple(len(index) % 2 == 1 for index in plan)
    cosines = torch.cos(angles) if any(odd) else None
    # In place, for touching new memory takes longer than the sine.
    return SineFeatures(cast(nn.Linear, outer.module), plan, odd, factors, angles.sin_() if not all(odd) else None, cosines)


class LinearJets:
    """Partial derivatives of ``offset + scale * (W features + b)`` at points, from kept derivatives of the features.

    Args:
        trial: a ``Scaled`` model of which only the last layer is varied (``output_layer``).
        fields: the names of the columns of the output.
        features: what ``features_at`` found at the points.
    """

    name = TaylorJets.name

    def __init__(self, trial: Any, fields: Sequence[str], features: Features | SineFeatures) -> None:
        layer = features.passed()
        if layer.module.bias is not None:
            layer.outputs = torch.cat([layer.outputs[:1] + layer.module.bias, layer.outputs[1:]])
        self.features = features
        self.layers = [layer]
        self._column = {name: column for column, name in enumerate(fields)}
        self._stream = {index: position for position, index in enumerate(layer.streams.indices)}
        self._values: Tensor = layer.outputs * trial.scale
        self._offset: Tensor = trial.offset

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        column = self._column[field]
        if index not in self._stream:
            if isinstance(self.features, SineFeatures):
                # Sines have every derivative; only those planned are there. Zeros would be wrong.
                raise ProblemError(
                    f"a residual asks for the derivative of {field!r} by {listed(index)}, which it did not ask for when its "
                    "derivatives were recorded: let it ask for the same ones whatever the values are"
                )
            return torch.zeros_like(self._values[0, :, column])
        values = self._values[self._stream[index], :, column]
        return values if index else values + self._offset[column]

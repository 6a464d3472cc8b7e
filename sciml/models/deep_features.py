"""Random features of a network's last hidden layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from sciml.errors import ModelError
from sciml.jets.activations import SinOfFirst
from sciml.models.base import SequentialModel, linear
from sciml.models.mlp import MLP
from sciml.models.random_features import check_draw


class DeepFeatures(SequentialModel):
    r"""Random features of a network's last hidden layer, :math:`u = W\,[\sin(\Omega h(x) + b),\, h(x)] + c`, with W and c free.

    The last hidden layer h is frozen: coordinates that resolve the thin layers of the solution, in which the rest of it is
    smooth. Random sines of h, :math:`\Omega \sim N(0, R^2/\text{width})`, are a trial function that is linear in its
    parameters. W is the network's own last layer at first, so the function is the same.

    Args:
        network: a trained ``MLP``.
        features: the number M of sines.
        scale: R.
        seed: seed of the draw.

    Raises:
        ModelError: the network is not an ``MLP`` that has been built, no feature, or a scale that is not positive.

    Example:
        >>> import torch, sciml
        >>> network = sciml.MLP(8, 8, inputs=2, outputs=1)
        >>> deep = sciml.DeepFeatures(network, 50)
        >>> bool(torch.allclose(deep(torch.ones(3, 2)), network(torch.ones(3, 2))))
        True

    See ``docs/method.md`` for the method and its relatives.
    """

    arguments = ("network", "features", "scale")

    def __init__(self, network: nn.Module, features: int = 800, scale: float = 0.5, seed: int = 0) -> None:
        super().__init__(None, None)
        if not isinstance(network, MLP) or not len(network.layers):
            raise ModelError(f"deep features need a trained sciml.MLP; given: {type(network).__name__}")
        check_draw(features, scale, [scale])
        self.features, self.scale = features, scale
        self.network: dict[str, Any] = network.config
        last = network.layers[-1]
        assert isinstance(last, nn.Linear)
        width = last.in_features
        inner = linear(width, features + width, like=last.weight)
        outer = linear(features + width, last.out_features, zero=True, like=last.weight)
        generator = torch.Generator().manual_seed(seed)
        drawn = scale * torch.randn(features, width, generator=generator, dtype=torch.float64) / math.sqrt(width)
        phases = 2 * math.pi * torch.rand(features, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            inner.weight.copy_(torch.cat([drawn, torch.eye(width, dtype=torch.float64)]))
            inner.bias.copy_(torch.cat([phases, torch.zeros(width, dtype=torch.float64)]))
            outer.weight[:, features:] = last.weight
            outer.bias.copy_(last.bias)
        self.layers.extend([*list(network.layers)[:-1], inner, SinOfFirst(features), outer])
        self.layers[:-1].requires_grad_(False)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Nothing: the layers come from the network."""

    @property
    def widths(self) -> dict[str, int | None]:
        """None of its own: the network has them."""
        return {}

    @classmethod
    def from_config(cls, network: dict[str, Any], **options: Any) -> DeepFeatures:
        """The architecture that ``config`` describes."""
        return cls(MLP.from_config(**network), **options)

    def narrowed(self, column: int) -> None:
        self.network = {**self.network, "inputs": self.network["inputs"] - 1}

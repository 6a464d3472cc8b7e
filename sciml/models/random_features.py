"""Random features, of coordinates or of a network's last hidden layer: trial functions linear in their parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.activations import Sin, SinOfFirst
from sciml.jets.propagation import Propagation, Streams, layers_of, tried
from sciml.models.base import Block, SequentialModel, linear
from sciml.models.layer_outputs import head_of
from sciml.models.mlp import MLP


def check_draw(features: object, scale: object, scales: Sequence[float]) -> None:
    """Refuse numbers of features and scales that are not positive with a ``ModelError``."""
    whole_number = isinstance(features, int) and not isinstance(features, bool) and features >= 1
    if not whole_number or not scales or not all(0 < each < math.inf for each in scales):
        raise ModelError(f"features must be a positive integer and scale positive; given: {features!r} and {scale!r}")


class RandomFeatures(SequentialModel):
    r"""Random sines of the coordinates, :math:`u(x) = \sum_k w_k \sin(\omega_k \cdot x + b_k)`, with only :math:`w` free.

    The frequencies are drawn once, :math:`\omega_k \sim N(0, R^2)` in coordinates scaled to [-1, 1], the phases uniformly.
    A linear problem is then one linear least-squares problem. The scale R changes the error by orders of magnitude; the
    residual on fresh points measures it. Where the solution varies faster along one coordinate, give one R a coordinate.

    Args:
        features: the number M of features.
        scale: the standard deviation R of the frequencies: a number, or one for each coordinate.
        inputs: the number of coordinates D, or None to be filled in by ``fit``.
        outputs: the number of fields F, or None.
        seed: seed of the draw when ``inputs`` and ``outputs`` are given.

    Raises:
        ModelError: no feature, or a scale that is not positive.

    Example:
        >>> import torch, sciml
        >>> model = sciml.RandomFeatures(50, scale=3.0, inputs=2, outputs=1)
        >>> model(torch.zeros(5, 2)).shape
        torch.Size([5, 1])

    Reference: A. Rahimi and B. Recht, Random features for large-scale kernel machines, NIPS 2007; for differential equations
    J. Chen, X. Chi, W. E and Z. Yang, Bridging traditional and machine learning-based algorithms for solving PDEs: the
    random feature method, Journal of Machine Learning 1 (2022).
    """

    arguments = ("features", "scale")

    def __init__(
        self,
        features: int = 400,
        scale: float | Sequence[float] = 4.0,
        *,
        inputs: int | None = None,
        outputs: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        scales = [scale] if isinstance(scale, int | float) else list(scale)
        check_draw(features, scale, scales)
        self.features = features
        self.scale = float(scale) if isinstance(scale, int | float) else tuple(map(float, scale))
        self.build_if_asked(inputs, outputs, seed)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Draw the features and set all their weights to zero.

        Raises:
            ModelError: there are scales, but not one for each of D coordinates.
        """
        if not isinstance(self.scale, float) and len(self.scale) != inputs:
            raise ModelError(f"scale has {len(self.scale)} numbers for {inputs} coordinates; give one, or one for each")
        inner = linear(inputs, self.features)
        with torch.no_grad():
            scale = torch.tensor(self.scale, dtype=torch.float64)
            inner.weight.copy_(scale * torch.randn(self.features, inputs, generator=generator, dtype=torch.float64))
            inner.bias.copy_(2 * math.pi * torch.rand(self.features, generator=generator, dtype=torch.float64))
        inner.requires_grad_(False)
        self.layers.extend([inner, Sin(), linear(self.features, outputs, zero=True, bias=False)])

    def narrowed(self, column: int) -> None:
        if not isinstance(self.scale, float):
            self.scale = self.scale[:column] + self.scale[column + 1 :]


class DeepFeatures(SequentialModel):
    r"""Random features of a network's last hidden layer, :math:`u = W\,[\sin(\Omega h(x) + b),\, h(x)] + c`, with W and c free.

    The last hidden layer h is frozen, that of a copy: coordinates that resolve the thin layers of the solution, in which the
    rest of it is smooth. Random sines of h, :math:`\Omega \sim N(0, R^2/\text{width})`, are a trial function that is linear in
    its parameters. W is the network's own last layer at first, so the function is the same.

    Args:
        network: a trained ``MLP``, or any module whose outputs are those of a linear layer.
        features: the number M of sines.
        scale: R.
        seed: seed of the draw.

    Raises:
        ModelError: the network has not been built or does not end in a linear layer, no feature, or a scale that is not
            positive.

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
        super().__init__()
        # The caller's network stays free.
        network = copy.deepcopy(network)
        last = head_of(network)
        if last is None:
            raise ModelError(
                "deep features need a trained network whose outputs are those of a linear layer; given: "
                f"{type(network).__name__}"
            )
        check_draw(features, scale, [scale])
        self.features, self.scale = features, scale
        kind = type(network)
        self.network: dict[str, Any] = (
            network.config if isinstance(network, MLP) else {"class": f"{kind.__module__}.{kind.__qualname__}"}
        )
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
            outer.bias.copy_(0.0 if last.bias is None else last.bias)
        below = list(network.layers)[:-1] if isinstance(network, MLP) else [_below(network, last)]
        self.layers.extend([*below, inner, SinOfFirst(features), outer])
        self.layers[:-1].requires_grad_(False)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Nothing: the layers come from the network."""

    @property
    def widths(self) -> dict[str, int | None]:
        """None of its own: the network has them."""
        return {}

    @classmethod
    def from_config(cls, network: dict[str, Any], **options: Any) -> DeepFeatures:
        """The architecture that ``config`` describes, if the network is an ``MLP``."""
        return cls(MLP.from_config(**network), **options)

    def narrowed(self, column: int) -> None:
        self.network = {**self.network, "inputs": self.network["inputs"] - 1}


class Below(Block):
    """What comes before the last layer of a network of any kind, as it is: jets of coordinates by nested autograd."""

    takes_coordinates = True
    still = True

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, points: Tensor) -> Tensor:
        """The last hidden layer, ``(n, width)``."""
        return self.body(points)

    def parts(self) -> Sequence[nn.Module]:
        """Nothing that jets are handed to."""
        return []

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The streams of the last hidden layer."""
        return propagation.closed_form(self.body, streams)


def _below(network: nn.Module, head: nn.Linear) -> nn.Module:
    """A copy of a network that gives what its last layer is given."""
    name = next(name for name, part in network.named_modules() if part is head)
    if not name:
        return nn.Identity()
    body = copy.deepcopy(network)
    body.set_submodule(name, nn.Identity())
    (_, own), (_, hidden) = tried(network), tried(body)
    with torch.no_grad():
        if own is None or hidden is None or not torch.allclose(head(hidden), own):
            raise ModelError(
                f"the {type(network).__name__} does more with its last linear layer, {name}, than to apply it: deep features "
                "need what is put into it"
            )
    return body.eval() if layers_of(body) is not None else Below(body.eval())

"""Random features: a trial function that is linear in its parameters."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from sciml.errors import ModelError
from sciml.jets.activations import Sin
from sciml.models.layered import Layered


class RandomFeatures(Layered):
    r"""Random sines of the coordinates, :math:`u(x) = \sum_k w_k \sin(\omega_k \cdot x + b_k)`, with only :math:`w` free.

    The frequencies are drawn once, :math:`\omega_k \sim N(0, R^2)` in coordinates scaled to [-1, 1], the phases uniformly.
    A linear problem is then one linear least-squares problem. The scale R matters by orders of magnitude; the residual on
    fresh points tells a good one.

    Args:
        features: the number M of features.
        scale: the standard deviation R of the frequencies.
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

    def __init__(
        self,
        features: int = 400,
        scale: float = 4.0,
        *,
        inputs: int | None = None,
        outputs: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(inputs, outputs)
        if isinstance(features, bool) or not isinstance(features, int) or features < 1 or not 0 < scale < math.inf:
            raise ModelError(
                f"features must be a positive integer and scale positive; given: {features!r} and {scale!r}"
            )
        self.features = features
        self.scale = scale
        self.build_if_asked(seed)

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds this architecture: the keywords of ``RandomFeatures.from_config``."""
        return {"features": self.features, "scale": self.scale, **self.widths}

    @classmethod
    def from_config(cls, **options: Any) -> RandomFeatures:
        """The architecture that ``config`` describes."""
        return cls(**options)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Draw the features and set all their weights to zero."""
        inner = nn.utils.skip_init(nn.Linear, inputs, self.features, dtype=torch.float64)
        outer = nn.utils.skip_init(nn.Linear, self.features, outputs, bias=False, dtype=torch.float64)
        with torch.no_grad():
            shape = (self.features, inputs)
            inner.weight.copy_(self.scale * torch.randn(shape, generator=generator, dtype=torch.float64))
            inner.bias.copy_(2 * math.pi * torch.rand(self.features, generator=generator, dtype=torch.float64))
            outer.weight.zero_()
        inner.requires_grad_(False)
        self.layers.extend([inner, Sin(), outer])

    def extra_repr(self) -> str:
        return f"features={self.features}, scale={self.scale:g}"

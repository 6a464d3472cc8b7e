"""Random features: a trial function that is linear in its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sciml.errors import ModelError
from sciml.jets.activations import Sin
from sciml.models.base import SequentialModel, linear


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
        super().__init__(inputs, outputs)
        scales = [scale] if isinstance(scale, int | float) else list(scale)
        check_draw(features, scale, scales)
        self.features = features
        self.scale = float(scale) if isinstance(scale, int | float) else tuple(map(float, scale))
        self.build_if_asked(seed)

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

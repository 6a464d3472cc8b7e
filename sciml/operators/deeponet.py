"""Deep operator networks: a branch for the input, a trunk for the place, continuous and differentiable in the coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sciml.models import PeriodicInputs
from sciml.operators.codes import PrincipalComponents, parts_of
from sciml.operators.learning import Frame, LearnedOperator, mlp
from sciml.operators.pairs import Pairs
from sciml.typing import Array

_HARMONICS = 4


class DeepONet(LearnedOperator):
    r"""Deep operator network: :math:`u(a)(x) = \sum_k b_k(a)\,t_k(x) + b_0`, branch b and trunk t.

    The trunk is a function of the coordinates, so predictions are evaluated and differentiated anywhere, and the equation can
    train it: ``sciml.fit(family, DeepONet())`` needs no pairs.

    Args:
        width: of the layers of both networks.
        depth: their number.
        products: the number of terms K.
        batch: pairs in a step.
        lr: the largest learning rate.

    Raises:
        ModelError: a number that is none.

    Example:
        >>> from sciml import operators
        >>> operators.DeepONet(width=64, depth=3).products
        64

    Reference: L. Lu, P. Jin, G. Pang, Z. Zhang and G. E. Karniadakis, Learning nonlinear operators via DeepONet, Nature Machine
    Intelligence 3 (2021).
    """

    dtype: ClassVar[torch.dtype] = torch.float64
    any_grid = True

    width: int
    depth: int
    products: int

    def __init__(self, width: int = 96, depth: int = 3, products: int = 64, *, batch: int = 32, lr: float = 2e-3) -> None:
        super().__init__(width=width, depth=depth, products=products, batch=batch, lr=lr)

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        count, fields = len(frame.bounds), len(frame.fields)
        self.around = [list(frame.bounds).index(name) for name in frame.periodic if name in frame.bounds]
        trunk = mlp(count + (2 * _HARMONICS - 1) * len(self.around), self.width, self.depth, self.products * fields, nn.Tanh)
        # Of layers that Taylor mode knows: the equation may ask for its derivatives.
        self.trunk = (PeriodicInputs(trunk, self.around, _HARMONICS) if self.around else trunk).to(self.dtype)
        numbers = sum(self.scaling.sizes)
        self.branch = mlp(numbers, self.width, self.depth, self.products * fields, nn.GELU).to(self.dtype)
        self.bias = nn.Parameter(torch.zeros(fields, dtype=self.dtype))

    def places(self, frame: Frame) -> Tensor:
        """The points of the outputs in [-1, 1], ``(points, D)``."""
        return torch.from_numpy(frame.places).to(self.bias)

    def terms(self, places: Tensor) -> Tensor:
        """The trunk at scaled points, ``(points, products, fields)``."""
        return self.trunk(places).view(len(places), self.products, -1)

    def coefficients(self, rows: Tensor) -> Tensor:
        """The branch, ``(samples, products, fields)``."""
        return self.branch(rows).view(len(rows), self.products, -1) / math.sqrt(self.products)

    def forward(self, rows: Tensor, frame: Frame) -> Tensor:
        return torch.einsum("nkf,pkf->npf", self.coefficients(rows), self.terms(self.places(frame))) + self.bias


class PODDeepONet(LearnedOperator):
    r"""DeepONet whose trunk is the proper orthogonal decomposition of the outputs: a network from codes to codes.

    .. math::  u(a) = \bar u + \sum_k b_k(a)\,\phi_k

    Args:
        width: of the layers of the branch.
        depth: their number.
        components: principal components of inputs and outputs.
        batch, lr: as for ``DeepONet``.

    Example:
        >>> from sciml import operators
        >>> operators.PODDeepONet(components=32).config["components"]
        32

    Reference: L. Lu et al., A comprehensive and fair comparison of two neural operators (with practical extensions) based on
    FAIR data, Computer Methods in Applied Mechanics and Engineering 393 (2022).
    """

    dtype: ClassVar[torch.dtype] = torch.float64
    kept = ("count_in", "count_out")

    width: int
    depth: int
    components: int

    def __init__(self, width: int = 128, depth: int = 3, components: int = 64, *, batch: int = 32, lr: float = 2e-3) -> None:
        super().__init__(width=width, depth=depth, components=components, batch=batch, lr=lr)
        self.count_in = self.count_out = 0

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        numbers, points = sum(self.scaling.sizes), math.prod(frame.shape) * len(frame.fields)
        if pairs is None:
            self.codes = PrincipalComponents(shape=(numbers, self.count_in))
            self.modes = PrincipalComponents(shape=(points, self.count_out))
        else:
            self.codes = PrincipalComponents(self.scaling.rows(parts_of(pairs.inputs)), most=self.components)
            self.modes = PrincipalComponents(self.scaled(pairs).reshape(len(pairs), -1), most=self.components)
            self.count_in, self.count_out = self.codes.count, self.modes.count
        self.branch = mlp(self.codes.count, self.width, self.depth, self.modes.count, nn.GELU).to(self.dtype)

    def features(self, frame: Frame, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        codes = self.codes.encode(self.scaling.rows(parts_of(inputs)))
        # A common scale, not one for each: those that vary little mostly matter little.
        return (torch.from_numpy(codes / float(np.sqrt(np.mean(self.codes.spread.cpu().numpy() ** 2)))).to(self.dtype),)

    def forward(self, codes: Tensor, frame: Frame) -> Tensor:
        found = (self.branch(codes) * self.modes.spread) @ self.modes.directions + self.modes.mean
        return found.view(len(codes), -1, len(frame.fields))

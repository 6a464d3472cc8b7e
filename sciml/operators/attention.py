"""Transformers between functions: attention over points with their coordinates, for grids and for scattered points."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from sciml.errors import ModelError
from sciml.operators.learning import Frame, LearnedOperator, mlp
from sciml.operators.pairs import Pairs
from sciml.typing import Array


class _Layer(nn.Module):
    """Attention through a few learned slices: points are gathered, talk, and are scattered again, linear in their number."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, self.slices = heads, slices
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.values, self.assign = nn.Linear(width, width), nn.Linear(width, heads * slices)
        self.talk, self.out = nn.Linear(width // heads, 3 * (width // heads)), nn.Linear(width, width)
        self.mix = mlp(width, 2 * width, 1, width, nn.GELU)

    def forward(self, tokens: Tensor) -> Tensor:
        count, points, width = tokens.shape
        given = self.before(tokens)
        share = self.assign(given).view(count, points, self.heads, self.slices).softmax(dim=-1)
        values = self.values(given).view(count, points, self.heads, width // self.heads)
        gathered = torch.einsum("nphs,nphd->nhsd", share, values) / (share.sum(dim=1)[..., None] + 1e-5)
        query, key, value = self.talk(gathered).chunk(3, dim=-1)
        spoken = functional.scaled_dot_product_attention(query, key, value)
        back = torch.einsum("nphs,nhsd->nphd", share, spoken).reshape(count, points, width)
        tokens = tokens + self.out(back)
        return tokens + self.mix(self.after(tokens))


class Transformer(LearnedOperator):
    """Transformer between functions: attention over points that know their coordinates and the inputs there.

    Points are assigned to a few slices, softly, and attention is between slices, so its cost is linear in the number of points.
    It serves scattered points, and answers on another grid.

    Args:
        width: numbers that describe a point.
        layers: the number of layers of attention.
        heads: of attention, a divisor of ``width``.
        slices: of each head.
        batch, lr: as for ``DeepONet``.

    Raises:
        ModelError: ``heads`` does not divide ``width``; a number that is none.

    Example:
        >>> from sciml import operators
        >>> operators.Transformer(width=32, heads=4).slices
        32

    Reference: H. Wu, H. Luo, H. Wang, J. Wang and M. Long, Transolver: a fast transformer solver for PDEs on general
    geometries, ICML 2024.
    """

    any_grid = True

    width: int
    layers: int
    heads: int
    slices: int

    def __init__(
        self, width: int = 64, layers: int = 4, heads: int = 4, slices: int = 32, *, batch: int = 16, lr: float = 1e-3
    ) -> None:
        super().__init__(width=width, layers=layers, heads=heads, slices=slices, batch=batch, lr=lr)
        if width % heads:
            raise ModelError(f"Transformer: heads must divide width; given: {heads} and {width}")

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        self.lift = mlp(self.channel_count(frame), 2 * self.width, 1, self.width, nn.GELU)
        self.body = nn.ModuleList(_Layer(self.width, self.heads, self.slices) for _ in range(self.layers))
        self.last = nn.Sequential(nn.LayerNorm(self.width), nn.Linear(self.width, len(frame.fields)))

    def features(self, frame: Frame, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        return (self.channels(frame, inputs).flatten(2).mT.contiguous(),)

    def forward(self, tokens: Tensor, frame: Frame) -> Tensor:
        tokens = self.lift(tokens)
        for layer in self.body:
            tokens = layer(tokens)
        return self.last(tokens)

"""U-nets: convolutions on a grid and on coarser ones, with skip connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sciml.errors import ModelError
from sciml.operators.learning import Frame, LearnedOperator
from sciml.operators.pairs import Pairs
from sciml.typing import Array


class _Block(nn.Module):
    """Two convolutions of three points with group normalisation, around which the values go as well."""

    def __init__(self, dimension: int, inputs: int, outputs: int, around: bool) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimension]
        mode: Any = "circular" if around else "replicate"
        self.first = conv(inputs, outputs, 3, padding=1, padding_mode=mode)
        self.second = conv(outputs, outputs, 3, padding=1, padding_mode=mode)
        self.one, self.two = (nn.GroupNorm(min(8, outputs), outputs) for _ in range(2))
        self.past = conv(inputs, outputs, 1)

    def forward(self, values: Tensor) -> Tensor:
        found = functional.gelu(self.one(self.first(values)))
        return self.past(values) + functional.gelu(self.two(self.second(found)))


class UNet(LearnedOperator):
    """U-net between functions on a grid of one, two or three coordinates: convolutions over several resolutions.

    Its convolutions see neighbours on the grid, so it answers on the grid of its training alone.

    Args:
        width: channels on the finest grid; twice as many on every coarser one.
        levels: how often the grid is coarsened by two.
        batch: pairs in a step.
        lr: the largest learning rate.

    Raises:
        ModelError: more than three coordinates, or scattered points.

    Example:
        >>> from sciml import operators
        >>> operators.UNet(width=16).levels
        2

    Reference: O. Ronneberger, P. Fischer and T. Brox, U-Net: convolutional networks for biomedical image segmentation, MICCAI
    2015.
    """

    width: int
    levels: int

    def __init__(self, width: int = 24, levels: int = 2, *, batch: int = 32, lr: float = 2e-3) -> None:
        super().__init__(width=width, levels=levels, batch=batch, lr=lr)

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        if frame.points is not None or not 1 <= len(frame.axes) <= 3:
            raise ModelError("UNet needs outputs on a grid of one to three coordinates: take Transformer or DeepONet")
        dimension, around = len(frame.axes), all(name in frame.periodic for name in frame.axes)
        widths = [self.width * 2**level for level in range(self.levels + 1)]
        self.down = nn.ModuleList(
            _Block(dimension, one, two, around)
            for one, two in zip([self.channel_count(frame), *widths[:-1]], widths, strict=True)
        )
        self.up = nn.ModuleList(
            _Block(dimension, one + two, two, around) for one, two in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimension]
        self.last = conv(self.width, len(frame.fields), 1)

    def features(self, frame: Frame, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        return (self.channels(frame, inputs),)

    def forward(self, channels: Tensor, frame: Frame) -> Tensor:
        pool = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}[channels.dim() - 2]
        values, kept = channels, []
        for level, block in enumerate(self.down):
            if level:
                kept.append(values)
                values = pool(values, 2, ceil_mode=True)
            values = block(values)
        mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[channels.dim() - 2]
        for block in self.up:
            before = kept.pop()
            values = functional.interpolate(values, size=before.shape[2:], mode=mode, align_corners=False)
            values = block(torch.cat([values, before], dim=1))
        return self.last(values).flatten(2).mT

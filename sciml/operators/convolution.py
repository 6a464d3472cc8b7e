"""U-nets: convolutions on a grid and on coarser ones, with skip connections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sciml.operators.learning import Frame, GridOperator
from sciml.operators.pairs import Pairs


class _Block(nn.Module):
    """Two convolutions of three points with group normalisation, around which the values go as well."""

    def __init__(self, conv: Any, inputs: int, outputs: int, around: bool) -> None:
        super().__init__()
        mode: Any = "circular" if around else "replicate"
        self.first = conv(inputs, outputs, 3, padding=1, padding_mode=mode)
        self.second = conv(outputs, outputs, 3, padding=1, padding_mode=mode)
        self.one, self.two = (nn.GroupNorm(min(8, outputs), outputs) for _ in range(2))
        self.past = conv(inputs, outputs, 1)

    def forward(self, values: Tensor) -> Tensor:
        found = functional.gelu(self.one(self.first(values)))
        return self.past(values) + functional.gelu(self.two(self.second(found)))


class UNet(GridOperator):
    """U-net between functions on a grid of one, two or three coordinates: convolutions over several resolutions.

    Its convolutions see neighbours on the grid, so it answers on the grid of its training alone.

    Args:
        width: channels on the finest grid; twice as many on every coarser one.
        levels: how often the grid is coarsened by two.
        batch, lr: as for ``DeepONet``.

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
        conv, around = self.convolution(frame), all(name in frame.periodic for name in frame.axes)
        widths = [self.width * 2**level for level in range(self.levels + 1)]
        self.down = nn.ModuleList(
            _Block(conv, one, two, around) for one, two in zip([self.channel_count(frame), *widths[:-1]], widths, strict=True)
        )
        self.up = nn.ModuleList(
            _Block(conv, one + two, two, around) for one, two in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.last = conv(self.width, len(frame.fields), 1)

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

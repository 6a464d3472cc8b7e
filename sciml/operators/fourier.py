"""Fourier neural operators: convolutions in the lowest frequencies, at any resolution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sciml.errors import ModelError
from sciml.operators.learning import Frame, GridOperator
from sciml.operators.pairs import Pairs

_PADDING = 0.125


class SpectralConvolution(nn.Module):
    r"""A convolution by its Fourier coefficients: :math:`\hat y_k = R_k\hat x_k` for the lowest frequencies, 0 for all others.

    Args:
        width: channels in and out.
        modes: frequencies along each dimension.
        generator: draws the weights.

    The complex weights R are kept as pairs of real numbers, so that they are counted, saved and optimised as what they are.
    """

    def __init__(self, width: int, modes: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.modes = tuple(modes)
        shape = [2 * each for each in self.modes[:-1]] + [self.modes[-1]]
        self.weight = nn.Parameter(torch.randn(width, width, *shape, 2, generator=generator) / width)

    def forward(self, values: Tensor) -> Tensor:
        axes = tuple(range(2, values.dim()))
        found = torch.fft.rfftn(values, dim=axes, norm="ortho")
        weight, grid = torch.view_as_complex(self.weight), found.shape[2:]
        kept = [min(each, (length + 1) // 2) for each, length in zip(self.modes[:-1], grid[:-1], strict=True)]
        kept.append(min(self.modes[-1], grid[-1]))
        result = torch.zeros_like(found)
        # Of all dimensions but the last, frequencies are positive and negative ones.
        for signs in itertools.product((False, True), repeat=len(kept) - 1):
            ours, theirs = [slice(None), slice(None)], [slice(None), slice(None)]
            for negative, count, most in zip(signs, kept[:-1], self.modes[:-1], strict=True):
                ours.append(slice(-count, None) if negative else slice(count))
                theirs.append(slice(2 * most - count, None) if negative else slice(count))
            last = slice(kept[-1])
            result[(*ours, last)] = torch.einsum("nc...,co...->no...", found[(*ours, last)], weight[(*theirs, last)])
        return torch.fft.irfftn(result, s=values.shape[2:], dim=axes, norm="ortho")


class FNO(GridOperator):
    r"""Fourier neural operator, on grids of one, two or three coordinates.

    .. math::  v_{l+1} = \sigma(W_l v_l + \mathcal{F}^{-1}R_l\,\mathcal{F}v_l), \qquad v_0 = P(a, x), \qquad u = Q(v_L)

    Its weights do not depend on the grid, so it answers on another one. Coordinates that are not periodic are padded by an
    eighth.

    Args:
        modes: frequencies along each coordinate, or for each.
        width: channels.
        layers: the number L of convolutions.
        batch, lr: as for ``DeepONet``.

    Raises:
        ModelError: more than three coordinates, or scattered points.

    Example:
        >>> from sciml import operators
        >>> operators.FNO(modes=8, width=16).layers
        4

    Reference: Z. Li et al., Fourier neural operator for parametric partial differential equations, ICLR 2021.
    """

    any_grid = True

    width: int
    layers: int

    def __init__(
        self, modes: int | Sequence[int] = 16, width: int = 32, layers: int = 4, *, batch: int = 32, lr: float = 3e-3
    ) -> None:
        super().__init__(width=width, layers=layers, batch=batch, lr=lr)
        self.modes = modes

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        conv, dimension = self.convolution(frame), len(frame.axes)
        modes = [self.modes] * dimension if isinstance(self.modes, int) else list(self.modes)
        if len(modes) != dimension:
            raise ModelError(f"FNO: modes must be a number or {dimension} of them; given: {self.modes!r}")
        longest = [max(length // 2, 1) for length in self._padded(frame)]
        modes = [min(each, most) for each, most in zip(modes, longest, strict=True)]
        width, count = self.width, self.channel_count(frame)
        # By convolutions of one point, channels stay where FFTs want them.
        self.lift = nn.Sequential(conv(count, 2 * width, 1), nn.GELU(), conv(2 * width, width, 1))
        self.spectral = nn.ModuleList(SpectralConvolution(width, modes, generator) for _ in range(self.layers))
        self.local = nn.ModuleList(conv(width, width, 1) for _ in range(self.layers))
        self.project = nn.Sequential(conv(width, 2 * width, 1), nn.GELU(), conv(2 * width, len(frame.fields), 1))

    def _padded(self, frame: Frame) -> list[int]:
        """The lengths of the grid with the padding of coordinates that are not periodic."""
        lengths = zip(frame.axes, frame.shape, strict=True)
        return [each if name in frame.periodic or each == 1 else each + math.ceil(_PADDING * each) for name, each in lengths]

    def forward(self, channels: Tensor, frame: Frame) -> Tensor:
        values = self.lift(channels)
        more = [new - old for new, old in zip(self._padded(frame), frame.shape, strict=True)]
        values = functional.pad(values, [each for extra in reversed(more) for each in (0, extra)])
        for number, (spectral, local) in enumerate(zip(self.spectral, self.local, strict=True)):
            found = spectral(values) + local(values)
            values = values + functional.gelu(found) if number < self.layers - 1 else values + found
        values = values[(..., *(slice(length) for length in frame.shape))]
        return self.project(values).flatten(2).mT

"""Derivatives of activation functions, as far as jets need them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Derivatives = Callable[[Tensor, int], list[Tensor]]


class Sin(nn.Module):
    """The sine as an activation."""

    def forward(self, values: Tensor) -> Tensor:
        """The sine of every value."""
        return torch.sin(values)


class SinOfFirst(nn.Module):
    """The sine of the first columns; the others pass as they are."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, values: Tensor) -> Tensor:
        """The activated values, of the same shape."""
        return torch.cat([torch.sin(values[..., : self.count]), values[..., self.count :]], dim=-1)


def _tanh(z: Tensor, order: int) -> list[Tensor]:
    t = torch.tanh(z)
    square = t * t
    u = 1 - square
    found = [t, u]
    if order >= 2:
        found.append(-2 * (t * u))
    if order >= 3:
        found.append((6 * square - 2) * u)
    if order >= 4:
        found.append((12 * square - 8) * found[2])
    if order >= 5:
        found.append((16 - 120 * square * u) * u)
    return found[: order + 1]


def _sigmoid(z: Tensor, order: int) -> list[Tensor]:
    s = torch.sigmoid(z)
    v = s * (1 - s)
    found = [s, v]
    if order >= 2:
        found.append(v * (1 - 2 * s))
    if order >= 3:
        found.append(v * (1 - 6 * v))
    if order >= 4:
        found.append(v * (1 - 2 * s) * (1 - 12 * v))
    if order >= 5:
        found.append(v * (1 - 30 * v * (1 - 4 * v)))
    return found[: order + 1]


def _softplus(z: Tensor, order: int) -> list[Tensor]:
    value = nn.functional.softplus(z, threshold=40.0)
    return [value] if order == 0 else [value, *_sigmoid(z, order - 1)]


def _silu(z: Tensor, order: int) -> list[Tensor]:
    s = _sigmoid(z, order)
    return [z * s[0]] + [z * s[k] + k * s[k - 1] for k in range(1, order + 1)]


def _gelu(z: Tensor, order: int) -> list[Tensor]:
    below = 0.5 * (1 + torch.erf(z / math.sqrt(2.0)))
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    square = z * z
    found = [z * below, below + z * density]
    if order >= 2:
        found.append((2 - square) * density)
    if order >= 3:
        found.append((square - 4) * z * density)
    if order >= 4:
        found.append((7 * square - square * square - 4) * density)
    if order >= 5:
        found.append((square * square - 11 * square + 18) * z * density)
    return found[: order + 1]


def sine(z: Tensor, order: int) -> list[Tensor]:
    """The sine and its derivatives up to an order."""
    s, c = torch.sin(z), torch.cos(z)
    return [s, c, -s, -c, s, c][: order + 1]


def cosine(z: Tensor, order: int) -> list[Tensor]:
    """The cosine and its derivatives up to an order."""
    s, c = torch.sin(z), torch.cos(z)
    return [c, -s, -c, s, c, -s][: order + 1]


def _sin_of_first(count: int) -> Derivatives:
    def derivatives(z: Tensor, order: int) -> list[Tensor]:
        sines, rest = sine(z[..., :count], order), z[..., count:]
        plain = [rest, torch.ones_like(rest), *[torch.zeros_like(rest)] * 4][: order + 1]
        return [torch.cat(pair, dim=-1) for pair in zip(sines, plain, strict=True)]

    return derivatives


def derivatives_of(layer: nn.Module) -> Derivatives | None:
    """The function that gives an activation and its derivatives to fifth order, or None for a layer not known here.

    It takes the layer's inputs and the highest order wanted and returns the values of order 0, 1, and so on. Jets of fourth
    order need the fifth for their gradient.
    """
    if isinstance(layer, nn.GELU) and layer.approximate != "none":
        return None
    if isinstance(layer, nn.Softplus) and layer.beta != 1:
        return None
    if isinstance(layer, SinOfFirst):
        return _sin_of_first(layer.count)
    return _KNOWN.get(type(layer))


_KNOWN: dict[type[nn.Module], Derivatives] = {
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.Softplus: _softplus,
    nn.SiLU: _silu,
    nn.GELU: _gelu,
    Sin: sine,
}

"""Activation functions and their derivatives to fifth order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

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


def _lazily(values: Callable[[Tensor], Iterator[Tensor]]) -> Derivatives:
    """The first values of a generator of a function and its derivatives, computed up to the order that is wanted."""
    return lambda z, order: list(itertools.islice(values(z), order + 1))


def _tanh_values(z: Tensor) -> Iterator[Tensor]:
    t = torch.tanh(z)
    yield t
    square = t * t
    u = 1 - square
    yield u
    second = -2 * (t * u)
    yield second
    yield (6 * square - 2) * u
    yield (12 * square - 8) * second
    yield (16 - 120 * square * u) * u


def _sigmoid_values(z: Tensor) -> Iterator[Tensor]:
    s = torch.sigmoid(z)
    yield s
    v = s * (1 - s)
    yield v
    yield v * (1 - 2 * s)
    yield v * (1 - 6 * v)
    yield v * (1 - 2 * s) * (1 - 12 * v)
    yield v * (1 - 30 * v * (1 - 4 * v))


def _softplus_values(z: Tensor) -> Iterator[Tensor]:
    yield nn.functional.softplus(z, threshold=40.0)
    yield from _sigmoid_values(z)


def _silu_values(z: Tensor) -> Iterator[Tensor]:
    before = None
    for order, s in enumerate(_sigmoid_values(z)):
        yield z * s if before is None else z * s + order * before
        before = s


def _gelu_values(z: Tensor) -> Iterator[Tensor]:
    below = 0.5 * (1 + torch.erf(z / math.sqrt(2.0)))
    yield z * below
    square = z * z
    density = torch.exp(-0.5 * square) / math.sqrt(2 * math.pi)
    yield below + z * density
    yield (2 - square) * density
    yield (square - 4) * z * density
    yield (7 * square - square * square - 4) * density
    yield (square * square - 11 * square + 18) * z * density


def sine(z: Tensor, order: int) -> list[Tensor]:
    """The sine and its derivatives up to an order."""
    s, c = torch.sin(z), torch.cos(z)
    return [s, c, -s, -c, s, c][: order + 1]


def cosine(z: Tensor, order: int) -> list[Tensor]:
    """The cosine and its derivatives up to an order."""
    s, c = torch.sin(z), torch.cos(z)
    return [c, -s, -c, s, c, -s][: order + 1]


def exponential(z: Tensor, order: int) -> list[Tensor]:
    """The exponential, which is its own derivative."""
    return [torch.exp(z)] * (order + 1)


def power(exponent: float) -> Derivatives:
    """A power and its derivatives; those of a whole positive power end."""

    def derivatives(z: Tensor, order: int) -> list[Tensor]:
        found, factor, left = list[Tensor](), 1.0, exponent
        for _ in range(order + 1):
            found.append(factor * z**left if factor else torch.zeros_like(z))
            factor, left = factor * left, left - 1
        return found

    return derivatives


def _sin_of_first(count: int) -> Derivatives:
    def derivatives(z: Tensor, order: int) -> list[Tensor]:
        sines, rest = sine(z[..., :count], order), z[..., count:]
        plain = [rest, torch.ones_like(rest), *[torch.zeros_like(rest)] * 4][: order + 1]
        return [torch.cat(pair, dim=-1) for pair in zip(sines, plain, strict=True)]

    return derivatives


def derivatives_of(layer: nn.Module) -> Derivatives | None:
    """From inputs and an order an activation and its derivatives, or None; jets of order k need the order k + 1."""
    if isinstance(layer, nn.GELU) and layer.approximate != "none":
        return None
    if isinstance(layer, nn.Softplus) and layer.beta != 1:
        return None
    if isinstance(layer, SinOfFirst):
        return _sin_of_first(layer.count)
    return _KNOWN.get(type(layer))


_KNOWN: dict[type[nn.Module], Derivatives] = {
    nn.Tanh: _lazily(_tanh_values),
    nn.Sigmoid: _lazily(_sigmoid_values),
    nn.Softplus: _lazily(_softplus_values),
    nn.SiLU: _lazily(_silu_values),
    nn.GELU: _lazily(_gelu_values),
    Sin: sine,
}

# The same as functions and as methods of tensors.
FUNCTIONS: dict[Any, Derivatives] = {
    **dict.fromkeys((torch.tanh, nn.functional.tanh, "tanh"), _KNOWN[nn.Tanh]),
    **dict.fromkeys((torch.sigmoid, nn.functional.sigmoid, "sigmoid"), _KNOWN[nn.Sigmoid]),
    **dict.fromkeys((torch.sin, "sin"), sine),
    **dict.fromkeys((torch.cos, "cos"), cosine),
    **dict.fromkeys((torch.exp, "exp"), exponential),
    **{target: power(2) for target in (torch.square, "square")},
    **{target: power(0.5) for target in (torch.sqrt, "sqrt")},
    nn.functional.silu: _KNOWN[nn.SiLU],
    nn.functional.gelu: _KNOWN[nn.GELU],
    nn.functional.softplus: _KNOWN[nn.Softplus],
}

r"""Streams through an activation: Faà di Bruno's formula and its gradient, each as one operation.

With :math:`f_k = f^{(k)}(h)` and the sum over the partitions of the coordinates of :math:`\alpha` into blocks,

.. math::  \partial_\alpha f(h) = \sum_k f_k B_{\alpha k}, \qquad
           B_{\alpha k} = \sum_{|\pi| = k} \prod_{\beta \in \pi} \partial_\beta h .

For cotangents :math:`g_\alpha` put :math:`P_k = \sum_\alpha g_\alpha B_{\alpha k}`. The gradient by a derived stream is
:math:`\sum_k f_k\,\partial P_k / \partial h_\beta`, that by the values :math:`f_1 g_0 + \sum_k f_{k+1} P_k`. As :math:`P_k`
is homogeneous of degree k, Euler's identity :math:`k P_k = \sum_\beta h_\beta\,\partial P_k / \partial h_\beta` gives it for a
multiplication a stream.

Only the inputs are saved. Written in terms of torch's own operations the gradient can be differentiated again.

Reference: A. Griewank and A. Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 13; M. Hardy, Combinatorics of
partial derivatives, Electronic Journal of Combinatorics 13 (2006).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sciml.jets.activations import Derivatives
from sciml.typing import MultiIndex

# Numbers of a stream that are worked on at a time, so that all of a step's operands stay in the processor's cache.
_TILE = 1 << 14


@cache
def partitions(count: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """All partitions of ``range(count)`` into blocks."""
    if count == 0:
        return ((),)
    found = []
    for smaller in partitions(count - 1):
        found.append((*smaller, (count - 1,)))
        for position, block in enumerate(smaller):
            found.append((*smaller[:position], (*block, count - 1), *smaller[position + 1 :]))
    return tuple(found)


Monomial = tuple[int, ...]
"""A product of streams by their positions, in increasing order."""


@dataclass(frozen=True)
class Rule:
    """How the streams behind an activation follow from those before it.

    Attributes:
        indices: the derivatives behind the activation, the values first.
        bells: for each of them after the first, by order k, the monomials of ``B`` and how often each occurs.
        slopes: by order k, for each stream before the activation, what ``P_k`` differentiated by it is a sum of: how often,
            the position of the cotangent, and the monomial it is multiplied by.
    """

    indices: tuple[MultiIndex, ...]
    bells: tuple[dict[int, tuple[tuple[int, Monomial], ...]], ...]
    slopes: dict[int, dict[int, tuple[tuple[int, int, Monomial], ...]]]

    @property
    def highest(self) -> int:
        """The highest derivative of the activation that occurs."""
        return max(self.slopes, default=0)


@cache
def rule_of(present: tuple[MultiIndex, ...], plan: tuple[MultiIndex, ...]) -> Rule:
    """The rule for the streams ``present``, of which all others vanish, and the derivatives of ``plan``."""
    position = {index: place for place, index in enumerate(present)}
    indices, bells = [()], []
    slopes: dict[int, dict[int, Counter[tuple[int, Monomial]]]] = {}
    for index in plan:
        found: dict[int, Counter[Monomial]] = {}
        for blocks in partitions(len(index)):
            factors = [tuple(index[place] for place in block) for block in blocks]
            if index and all(factor in position for factor in factors):
                monomial = tuple(sorted(position[factor] for factor in factors))
                found.setdefault(len(blocks), Counter())[monomial] += 1
        if not found:
            continue
        for order, monomials in found.items():
            for monomial, times in monomials.items():
                for place, factor in enumerate(monomial):
                    rest = (*monomial[:place], *monomial[place + 1 :])
                    slopes.setdefault(order, {}).setdefault(factor, Counter())[len(indices), rest] += times
        indices.append(index)
        bells.append({order: tuple((times, each) for each, times in found[order].items()) for order in sorted(found)})
    return Rule(
        tuple(indices),
        tuple(bells),
        {
            order: {
                factor: tuple((times, output, rest) for (output, rest), times in parts.items())
                for factor, parts in sorted(slopes[order].items())
            }
            for order in sorted(slopes)
        },
    )


class _Products:
    """Products of streams, each computed once."""

    def __init__(self, streams: Sequence[Tensor]) -> None:
        self._known: dict[Monomial, Tensor] = {(place,): stream for place, stream in enumerate(streams)}

    def __getitem__(self, monomial: Monomial) -> Tensor:
        if monomial not in self._known:
            self._known[monomial] = self[monomial[:-1]] * self[monomial[-1:]]
        return self._known[monomial]


def _tiles(streams: Tensor) -> Iterator[slice]:
    """Ranges of points, short enough for the cache on a processor and for the memory elsewhere."""
    _, count, width = streams.shape
    step = max(1, (_TILE if streams.device.type == "cpu" else 1 << 24) // max(1, width))
    return (slice(start, start + step) for start in range(0, count, step))


def _push(rule: Rule, known: Derivatives, streams: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    """Write the streams behind the activation."""
    values = known(streams[0], rule.highest)
    products = _Products(streams)
    into[0].copy_(values[0])
    for target, bell in zip(into[1:], rule.bells, strict=True):
        for count, (order, monomials) in enumerate(bell.items()):
            total = None
            for times, monomial in monomials:
                product = products[monomial]
                if total is None:
                    total = product if times == 1 else times * product
                else:
                    total = torch.add(total, product, alpha=times)
            assert total is not None
            if count == 0:
                torch.mul(values[order], total, out=target)
            else:
                target.addcmul_(values[order], total)


def _pull(rule: Rule, known: Derivatives, streams: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients by the streams before the activation; None where one has no part in the result.

    Accumulates in place only what it has made itself and nobody has saved, so that autograd may watch.
    """
    values = known(streams[0], rule.highest + 1)
    products = _Products(streams)
    found: list[Tensor | None] = [values[1] * cotangents[0], *([None] * (len(streams) - 1))]
    for order, factors in rule.slopes.items():
        power = None
        for factor, parts in factors.items():
            slope = None
            for times, output, rest in parts:
                cotangent = cotangents[output]
                if slope is None:
                    slope = cotangent * products[rest] if rest else cotangent
                    slope = times * slope if times != 1 else slope
                else:
                    slope = slope.addcmul_(cotangent, products[rest], value=times)
            assert slope is not None
            found[factor] = _added(found[factor], values[order], slope)
            power = _added(power, streams[factor], slope)
        assert power is not None
        found[0] = found[0].addcmul_(values[order + 1], power, value=1 / order)
    return found


def _pushed(rule: Rule, known: Derivatives, streams: Tensor) -> Tensor:
    found = streams.new_empty(len(rule.indices), *streams.shape[1:])
    _push(rule, known, streams.unbind(0), found.unbind(0))
    return found


def _pulled(rule: Rule, known: Derivatives, streams: Tensor, cotangent: Tensor) -> Tensor:
    found = _pull(rule, known, streams.unbind(0), cotangent.unbind(0))
    zero = torch.zeros_like(streams[0]) if None in found else None
    return torch.stack([zero if each is None else each for each in found])


def _added(total: Tensor | None, first: Tensor, second: Tensor) -> Tensor:
    return first * second if total is None else total.addcmul_(first, second)


class _Compose(torch.autograd.Function):
    """All streams behind an activation from all streams before it."""

    @staticmethod
    def forward(streams: Tensor, rule: Rule, known: Derivatives) -> Tensor:
        found = streams.new_empty(len(rule.indices), *streams.shape[1:])
        for tile in _tiles(streams):
            _push(rule, known, streams[:, tile].unbind(0), found[:, tile].unbind(0))
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        streams, ctx.rule, ctx.known = inputs
        ctx.save_for_backward(streams)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None, None]:
        (streams,), (cotangent,) = ctx.saved_tensors, cotangents
        if torch.is_grad_enabled():
            return _pulled(ctx.rule, ctx.known, streams, cotangent), None, None
        gradient = torch.empty_like(streams)
        for tile in _tiles(streams):
            gradient[:, tile] = _pulled(ctx.rule, ctx.known, streams[:, tile], cotangent[:, tile])
        return gradient, None, None


class _Dense(torch.autograd.Function):
    """A linear layer on all streams, and the activation before it if there is one.

    What lies between the two is made tile by tile, here and once more in the gradient, and never as a whole: new memory
    costs more than the arithmetic.
    """

    @staticmethod
    def forward(
        streams: Tensor, weight: Tensor, bias: Tensor | None, rule: Rule | None, known: Derivatives | None
    ) -> Tensor:
        found = streams.new_empty(len(rule.indices) if rule else len(streams), streams.shape[1], len(weight))
        across = weight.T
        for tile in _tiles(streams):
            inputs = streams[:, tile] if rule is None else _pushed(rule, known, streams[:, tile])
            for source, target in zip(inputs, found[:, tile], strict=True):
                torch.mm(source, across, out=target)
        if bias is not None:
            found[0] += bias
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        streams, weight, _, ctx.rule, ctx.known = inputs
        ctx.save_for_backward(streams, weight)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (streams, weight), (cotangent,) = ctx.saved_tensors, cotangents
        rule, known = ctx.rule, ctx.known
        of_streams, of_weight, of_bias = ctx.needs_input_grad[:3]
        bias = cotangent[0].sum(0) if of_bias else None
        if torch.is_grad_enabled():
            inputs = streams if rule is None else compose(streams, rule, known)
            across = cotangent.flatten(0, 1).T @ inputs.flatten(0, 1) if of_weight else None
            if not of_streams:
                return None, across, bias, None, None
            back = cotangent @ weight
            return back if rule is None else _pulled(rule, known, streams, back), across, bias, None, None
        across = torch.zeros_like(weight) if of_weight else None
        found = torch.empty_like(streams) if of_streams else None
        for tile in _tiles(streams):
            here, there = streams[:, tile], cotangent[:, tile]
            if across is not None:
                inputs = here if rule is None else _pushed(rule, known, here)
                for left, right in zip(there, inputs, strict=True):
                    torch.addmm(across, left.T, right, out=across)
            if found is not None:
                back = there @ weight
                found[:, tile] = back if rule is None else _pulled(rule, known, here, back)
        return found, across, bias, None, None


def compose(streams: Tensor, rule: Rule, known: Derivatives) -> Tensor:
    """Streams through an activation, differentiable as often as the activation is known.

    Args:
        streams: shape ``(S, n, width)``: the values, then the derivatives in the order that ``rule_of`` was told.
        rule: from ``rule_of``.
        known: the activation and its derivatives.

    Returns:
        Shape ``(len(rule.indices), n, width)``.
    """
    found: Tensor = _Compose.apply(streams, rule, known)
    return found


def dense(
    streams: Tensor, weight: Tensor, bias: Tensor | None, rule: Rule | None = None, known: Derivatives | None = None
) -> Tensor:
    """Streams through an activation, if one is given, and a linear layer.

    Args:
        streams: shape ``(S, n, inputs)``, as ``compose`` takes them.
        weight: shape ``(outputs, inputs)``.
        bias: shape ``(outputs,)``, or None.
        rule: from ``rule_of``, with ``known`` the activation before the layer.

    Returns:
        Shape ``(len(rule.indices), n, outputs)``, or ``(S, n, outputs)`` without an activation.
    """
    found: Tensor = _Dense.apply(streams, weight, bias, rule, known)
    return found

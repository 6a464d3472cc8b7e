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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sciml.jets.activations import Derivatives
from sciml.typing import MultiIndex

# Numbers of a stream that are worked on at a time, so that all of a step's operands stay in the processor's cache.
_TILE = 1 << 15


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


# A product of streams by their positions, in increasing order.
Monomial = tuple[int, ...]


@dataclass(frozen=True)
class Rule:
    """How the streams behind an activation follow from those before it.

    ``indices`` are the derivatives behind it, the values first; ``bells``, for each after the first, by order k the
    monomials of ``B`` and how often each occurs; ``slopes``, by order k and stream before it, the terms of ``P_k``
    differentiated by it: how often, the position of the cotangent, the monomial it is multiplied by.
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
    indices: list[MultiIndex] = [()]
    bells = []
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
    by_order = {
        order: {factor: tuple((times, *place) for place, times in parts.items()) for factor, parts in sorted(each.items())}
        for order, each in sorted(slopes.items())
    }
    return Rule(tuple(indices), tuple(bells), by_order)


class _Expansion:
    """An activation's derivatives and products of streams, each once; nothing that autograd saved is changed."""

    def __init__(self, rule: Rule, known: Derivatives, streams: Tensor, *, extra: int = 0) -> None:
        self._rule = rule
        self._streams = streams.unbind(0)
        self._values = known(self._streams[0], rule.highest + extra)
        self._products: dict[Monomial, Tensor] = {(place,): stream for place, stream in enumerate(self._streams)}
        self._zero = streams.new_zeros(())

    def push(self, into: Tensor) -> Tensor:
        """Write the streams behind the activation, shape ``(len(rule.indices), n, width)``."""
        values, target = self._values, into.unbind(0)
        target[0].copy_(values[0])
        for position, bell in enumerate(self._rule.bells, 1):
            found = None
            for order, monomials in bell.items():
                total: Any = self._streams[monomials[0][1][0]] if order == 1 else None
                for times, monomial in monomials if order > 1 else ():
                    total = self._added(total, self._product(monomial[:-1]), self._streams[monomial[-1]], times)
                found = self._added(found, values[order], total, out=target[position])
        return into

    def pull(self, cotangents: Tensor, into: Tensor | None = None) -> Tensor:
        """The gradient by the streams before (``extra=1``), written to ``into`` or, if that is None, differentiable."""
        values, given = self._values, cotangents.unbind(0)
        count = len(self._streams)
        target: Sequence[Tensor | None] = [None] * count if into is None else into.unbind(0)
        found: list[Tensor | None] = [None] * count
        found[0] = self._added(None, values[1], given[0], out=target[0])
        for order, factors in self._rule.slopes.items():
            power: Any = None
            for factor, parts in factors.items():
                slope: Any = given[parts[0][1]] if order == 1 else None
                for times, output, rest in parts if order > 1 else ():
                    slope = self._added(slope, given[output], self._product(rest), times)
                found[factor] = self._added(found[factor], values[order], slope, out=target[factor])
                power = self._added(power, self._streams[factor], slope)
            found[0] = self._added(found[0], values[order + 1], power, 1 / order)
        if into is None:
            return torch.stack([torch.zeros_like(self._streams[0]) if each is None else each for each in found])
        for each, row in zip(found, into, strict=True):
            if each is None:
                row.zero_()
        return into

    def _product(self, monomial: Monomial) -> Tensor:
        if monomial not in self._products:
            self._products[monomial] = self._product(monomial[:-1]) * self._streams[monomial[-1]]
        return self._products[monomial]

    def _added(
        self, total: Tensor | None, first: Tensor, second: Tensor, times: float = 1.0, out: Tensor | None = None
    ) -> Tensor:
        """``total + times * first * second``, in the memory of ``total`` or, if that is None, of ``out``."""
        if total is not None:
            return total.addcmul_(first, second, value=times)
        if times == 1:
            return torch.mul(first, second, out=out)
        return torch.addcmul(self._zero, first, second, value=times, out=out)


def _tiles(streams: Tensor) -> list[slice]:
    """Ranges of points, short enough for the cache of a processor and for the memory of an accelerator."""
    _, count, width = streams.shape
    step = max(1, (_TILE if streams.device.type == "cpu" else 1 << 24) // max(1, width))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _room(streams: Tensor, tiles: Sequence[slice], count: int) -> Tensor:
    """Memory for ``count`` streams at the points of one tile, used again for the next."""
    return streams.new_empty(count, tiles[0].stop if tiles else 0, streams.shape[2])


class _Dense(torch.autograd.Function):
    """An activation on all streams, if there is one, and the linear layer behind it, if its weight is not None.

    What lies between the two is made tile by tile, here and once more in the gradient, and never as a whole: new memory
    costs more than the arithmetic.
    """

    @staticmethod
    def forward(
        streams: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Rule | None, known: Derivatives | None
    ) -> Tensor:
        count = len(streams) if rule is None else len(rule.indices)
        found = streams.new_empty(count, streams.shape[1], streams.shape[2] if weight is None else len(weight))
        tiles = _tiles(streams)
        room = found if weight is None else _room(streams, tiles, count)
        for tile in tiles:
            inputs, outputs = streams[:, tile], found[:, tile]
            if rule is not None and known is not None:
                between = outputs if weight is None else room[:, : inputs.shape[1]]
                inputs = _Expansion(rule, known, inputs).push(between)
            if weight is not None:
                for source, target in zip(inputs, outputs, strict=True):
                    torch.mm(source, weight.T, out=target)
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
        of_the_bias = cotangent[0].sum(0) if of_bias else None
        if torch.is_grad_enabled():
            back = across = None
            if of_weight:
                inputs = streams if rule is None else compose(streams, rule, known)
                across = cotangent.flatten(0, 1).T @ inputs.flatten(0, 1)
            if of_streams:
                back = cotangent if weight is None else cotangent @ weight
                back = back if rule is None else _Expansion(rule, known, streams, extra=1).pull(back)
            return back, across, of_the_bias, None, None
        found = torch.empty_like(streams) if of_streams else None
        across = torch.zeros_like(weight) if of_weight else None
        tiles = _tiles(streams)
        room = cotangent if weight is None else _room(streams, tiles, len(cotangent))
        for tile in tiles:
            inputs, given = streams[:, tile], cotangent[:, tile]
            between = given if weight is None else room[:, : inputs.shape[1]]
            expansion = None if rule is None else _Expansion(rule, known, inputs, extra=int(of_streams))
            if across is not None:
                for left, right in zip(given, inputs if expansion is None else expansion.push(between), strict=True):
                    torch.addmm(across, left.T, right, out=across)
            if found is not None:
                back = found[:, tile] if expansion is None else between
                if weight is not None:
                    for source, target in zip(given, back, strict=True):
                        torch.mm(source, weight, out=target)
                if expansion is not None:
                    expansion.pull(back, found[:, tile])
        return found, across, of_the_bias, None, None


def compose(streams: Tensor, rule: Rule, known: Derivatives) -> Tensor:
    """Streams ``(S, n, width)`` through an activation, to ``(len(rule.indices), n, width)``; differentiable."""
    return _Dense.apply(streams, None, None, rule, known)


def dense(
    streams: Tensor, weight: Tensor, bias: Tensor | None, rule: Rule | None = None, known: Derivatives | None = None
) -> Tensor:
    """Streams ``(S, n, inputs)`` through an activation, if one is given, and a linear layer: ``(S', n, outputs)``."""
    return _Dense.apply(streams, weight, bias, rule, known)

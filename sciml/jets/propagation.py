"""Streams through the modules of a model, and which modules can be passed."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sciml.jets.activations import Derivatives, derivatives_of
from sciml.jets.autograd import AutogradJets
from sciml.jets.faa_di_bruno import Rule, compose, dense, rule_of
from sciml.typing import MultiIndex


@dataclass(eq=False)
class Streams:
    """A module's outputs and their derivatives ``indices``, the values ``()`` first; others vanish.

    They are ``before``, ``(S, n, width)``, or follow from it by ``rule`` through the activation ``known``.
    """

    indices: tuple[MultiIndex, ...]
    before: Tensor
    rule: Rule | None = None
    known: Derivatives | None = None

    @cached_property
    def values(self) -> Tensor:
        """The streams themselves, shape ``(len(indices), n, width)``. A linear layer takes them without asking for this."""
        if self.rule is None or self.known is None:
            return self.before
        return compose(self.before, self.rule, self.known)

    def parts(self) -> dict[MultiIndex, Tensor]:
        """Each stream by its derivative, shape ``(n, width)``."""
        return dict(zip(self.indices, self.values.unbind(0), strict=True))

    def aligned(self, indices: tuple[MultiIndex, ...]) -> Tensor:
        """The streams of ``indices``, zeros for those that vanish."""
        if indices == self.indices:
            return self.values
        parts = self.parts()
        zero = torch.zeros_like(self.values[0])
        return torch.stack([parts.get(index, zero) for index in indices])


@dataclass(eq=False)
class Layer:
    """A linear layer as it was passed: its module, the streams it received and the ones it returned, ``(S, n, width)``."""

    module: nn.Linear
    streams: Streams
    outputs: Tensor

    @cached_property
    def inputs(self) -> Tensor:
        """What was multiplied by the weights, shape ``(S, n, inputs)``, without a graph."""
        with torch.no_grad():
            return replace(self.streams).values

    def outer(self, back: Tensor) -> Tensor:
        """Each point's sum over streams of outer products of cotangents ``(S, n, outputs)`` with inputs."""
        return back.permute(1, 2, 0) @ self.inputs.detach().permute(1, 0, 2)


@runtime_checkable
class JetBlock(Protocol):
    """A module that jets can pass: what a class must have beside ``forward`` to be propagated.

    The two say the same thing, for values and for jets; a subclass that overrides ``forward`` alone is propagated no more.
    Parameters may stand in linear layers only. One that must be given coordinates, not a layer's outputs, has an attribute
    ``takes_coordinates`` that is true.
    """

    def parts(self) -> Sequence[nn.Module]:
        """The modules inside that ``jets`` hands to the propagation."""
        ...

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The streams behind the module."""
        ...


@cache
def splittings(index: MultiIndex) -> tuple[tuple[MultiIndex, MultiIndex], ...]:
    """The parts of a derivative and what is left of it, for each choice of its coordinates."""
    masks = itertools.product((False, True), repeat=len(index))
    return tuple(
        (tuple(itertools.compress(index, mask)), tuple(itertools.compress(index, map(operator.not_, mask)))) for mask in masks
    )


class Propagation:
    """One pass of streams: ``plan`` is closed under differentiation, ``layers`` are the linear layers passed so far."""

    def __init__(self, plan: tuple[MultiIndex, ...], coordinates: tuple[str, ...]) -> None:
        self.plan = plan
        self.coordinates = coordinates
        self.layers: list[Layer] = []
        self._passed: dict[tuple[int, int], tuple[Streams, Streams]] = {}

    def through(self, module: nn.Module, streams: Streams) -> Streams:
        """The streams behind a module. A module met again with the same streams is not computed again."""
        key = (id(module), id(streams))
        if key not in self._passed:
            # The streams are kept beside the result, so that their id stays theirs.
            self._passed[key] = streams, self._through(module, streams)
        return self._passed[key][1]

    def met(self, module: nn.Module) -> list[tuple[Streams, Streams]]:
        """The streams before and behind a module, once for every time it was computed."""
        return [passed for (number, _), passed in self._passed.items() if number == id(module)]

    def _through(self, module: nn.Module, streams: Streams) -> Streams:
        if isinstance(module, nn.Linear):
            outputs = dense(streams.before, module.weight, module.bias, streams.rule, streams.known)
            self.layers.append(Layer(module, streams, outputs))
            return Streams(streams.indices, outputs)
        known = derivatives_of(module)
        if known is not None:
            return self.activation(known, streams)
        if isinstance(module, nn.Sequential):
            for child in module:
                streams = self.through(child, streams)
            return streams
        assert isinstance(module, JetBlock)
        return module.jets(streams, self)

    def activation(self, known: Derivatives, streams: Streams) -> Streams:
        """Streams through an activation, computed when they are asked for."""
        rule = rule_of(streams.indices, self.plan)
        return Streams(rule.indices, streams.values, rule, known)

    def product(self, first: Streams, second: Streams) -> Streams:
        r"""Elementwise products by the rule of Leibniz, :math:`\partial_\alpha(ab) = \sum_\beta a_\beta b_{\alpha-\beta}`."""
        left, right = first.parts(), second.parts()
        found: dict[MultiIndex, Tensor] = {}
        for index in self.plan:
            for here, there in splittings(index):
                if here in left and there in right:
                    # Multiplication saves its factors, not its result, so the sum may grow in place.
                    a, b = left[here], right[there]
                    found[index] = found[index].addcmul_(a, b) if index in found else a * b
        return Streams(tuple(found), torch.stack(list(found.values())))

    def concatenation(self, branches: Iterable[Streams]) -> Streams:
        """Streams side by side."""
        branches = list(branches)
        indices = self._union(branches)
        return Streams(indices, torch.cat([branch.aligned(indices) for branch in branches], dim=2))

    def sum(self, first: Streams, second: Streams, alpha: float = 1.0) -> Streams:
        """``first + alpha * second``."""
        indices = self._union([first, second])
        return Streams(indices, torch.add(first.aligned(indices), second.aligned(indices), alpha=alpha))

    def affine(self, streams: Streams, scale: Tensor, offset: Tensor) -> Streams:
        """Every column multiplied by a number, and a number added to it."""
        values = streams.values * scale
        return Streams(streams.indices, torch.cat([values[:1] + offset, values[1:]]))

    def closed_form(self, function: Callable[[Tensor], Tensor], streams: Streams) -> Streams:
        """The jets of a function without parameters of the coordinates, which may be scaled one by one; without a graph."""
        points = streams.values[0].detach()
        units = {index[0]: row[0] for index, row in streams.parts().items() if len(index) == 1}
        columns = {name: self.coordinates.index(name) for name in units}
        with torch.enable_grad():
            fields = tuple(map(str, range(function(points).shape[1])))
            nested = AutogradJets(function, points, self.coordinates, fields)
            found = []
            for index in self.plan:
                values = torch.stack([nested.jet(field, index).detach() for field in fields], dim=1)
                for name in index:
                    values = values * units[name][columns[name]]
                found.append(values)
        return Streams(self.plan, torch.stack(found))

    def _union(self, branches: Sequence[Streams]) -> tuple[MultiIndex, ...]:
        return tuple(index for index in self.plan if any(index in branch.indices for branch in branches))


def layers_of(module: nn.Module, at_coordinates: bool = True) -> list[nn.Linear] | None:
    """The linear layers that jets pass in a module, given coordinates (at most scaled) or not; None: they cannot."""
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        # Weight normalisation of the old kind, for instance: what is computed is not what the class says.
        return None
    if type(module) is nn.Linear:
        return [module]
    if derivatives_of(module) is not None:
        return []
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        parts = [(child, at_coordinates and place == 0) for place, child in enumerate(module)]
    elif isinstance(module, JetBlock) and _says_both(type(module)):
        if getattr(module, "takes_coordinates", False) and not at_coordinates:
            return None
        parts = [(part, at_coordinates) for part in module.parts()]
    else:
        return None
    found: list[nn.Linear] = []
    for part, there in parts:
        deeper = layers_of(part, there)
        if deeper is None:
            return None
        found += deeper
    return found


def _says_both(kind: type) -> bool:
    """Whether ``forward`` and ``jets`` come from the same class."""
    source = [next((each for each in kind.__mro__ if name in vars(each)), None) for name in ("forward", "jets")]
    return source[0] is not None and source[0] is source[1]

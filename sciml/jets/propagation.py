"""Streams through the modules of a model, and which modules can be passed."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, fx, nn

from sciml.jets import tracing
from sciml.jets.activations import Derivatives, derivatives_of, power
from sciml.jets.autograd import AutogradJets
from sciml.jets.faa_di_bruno import dense, rule_of
from sciml.jets.streams import ElementwiseLayer, Layer, Streams
from sciml.typing import MultiIndex


@runtime_checkable
class JetBlock(Protocol):
    """A module that jets can pass: what a class must have beside ``forward`` to be propagated.

    The two say the same thing, for values and for jets; a subclass that overrides ``forward`` alone is propagated no more.
    Parameters may stand in linear layers only, unless an attribute ``still`` is true: then nothing inside is ever varied. One
    that must be given coordinates, not a layer's outputs, has an attribute ``takes_coordinates`` that is true.
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
        if type(module) is nn.Linear:
            outputs = dense(streams.before, module.weight, module.bias, streams.rule, streams.known)
            self.layers.append(Layer(module, streams, outputs))
            return Streams(streams.indices, outputs)
        known = derivatives_of(module)
        if known is not None:
            return self.activation(known, streams)
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            for child in module:
                streams = self.through(child, streams)
            return streams
        if type(module) is nn.Identity:
            return streams
        if type(module) is nn.LayerNorm:
            return self.normalised(module, streams)
        if isinstance(module, JetBlock):
            return module.jets(streams, self)
        graph = _graph(module)
        assert graph is not None
        return tracing.run(graph, module, streams, self)

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
        first = values[:1] + offset
        return Streams(streams.indices, torch.cat([first, values[1:].expand(-1, -1, first.shape[2])]))

    def normalised(self, module: nn.LayerNorm, streams: Streams) -> Streams:
        r"""Layer normalisation, :math:`g\odot (x - \bar x)/\sqrt{\operatorname{var} x + \varepsilon} + b`, of columns."""
        values = streams.values
        centred = Streams(streams.indices, values - values.mean(-1, keepdim=True))
        square = self.product(centred, centred)
        mean, unit = square.values.mean(-1, keepdim=True), values.new_ones(())
        variance = self.affine(Streams(square.indices, mean), unit, module.eps * unit)
        found = self.product(centred, self.activation(power(-0.5), variance))
        if not module.elementwise_affine:
            return found
        offset = torch.zeros_like(module.weight) if module.bias is None else module.bias
        after = self.affine(found, module.weight, offset)
        self.layers.append(ElementwiseLayer(module, found, after.values))
        return after

    def closed_form(self, function: Callable[[Tensor], Tensor], streams: Streams) -> Streams:
        """The jets of a function without parameters of the coordinates, which may be scaled one by one; without a graph."""
        points = streams.values[0].detach()
        units = streams.units()
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


def layers_of(module: nn.Module, at_coordinates: bool = True) -> list[nn.Linear | nn.LayerNorm] | None:
    """The layers with parameters that jets pass in a module, given coordinates (at most scaled) or not; None: they cannot."""
    if _altered(module):
        return None
    if type(module) is nn.Linear:
        return [module]
    if type(module) is nn.LayerNorm and len(module.normalized_shape) == 1:
        return [module] if module.elementwise_affine else []
    if type(module) is nn.Identity or derivatives_of(module) is not None:
        return []
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        parts = [(child, at_coordinates and place == 0) for place, child in enumerate(module)]
    elif isinstance(module, JetBlock) and _says_both(type(module)):
        if getattr(module, "takes_coordinates", False) and not at_coordinates:
            return None
        parts = [(part, at_coordinates) for part in module.parts()]
    elif (graph := _graph(module)) is not None:
        parts = [(part, at_coordinates and first) for part, first in tracing.parts(graph, module)]
    else:
        return None
    found: list[nn.Linear | nn.LayerNorm] = []
    for part, there in parts:
        deeper = layers_of(part, there)
        if deeper is None:
            return None
        found += deeper
    return found


def _altered(module: nn.Module) -> bool:
    """Whether what is computed is not what the class says: weight normalisation of the old kind, for instance."""
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)


def _graph(module: nn.Module) -> fx.Graph | None:
    """The operations of a module whose ``forward`` is its own, if jets can pass them."""
    if hasattr(module, "jets") or any(map(_altered, module.modules())):
        # What says how jets pass it, and is not propagated, has a forward that says something else.
        return None

    def values(graph: fx.Graph, points: Tensor) -> Tensor:
        # With second derivatives, so that what only fails with these is known before it matters.
        names = tuple(map(str, range(points.shape[1])))
        first = tuple((name,) for name in names)
        plan = ((), *first, *itertools.combinations_with_replacement(names, 2))
        units = torch.eye(len(names)).to(points)[:, None].expand(-1, *points.shape)
        streams = Streams(((), *first), torch.cat([points[None], units]))
        return tracing.run(graph, module, streams, Propagation(plan, names)).values[0]

    return tracing.traced(module, lambda part: layers_of(part, at_coordinates=False) is not None, values)


def _says_both(kind: type) -> bool:
    """Whether ``forward`` and ``jets`` come from the same class."""
    source = [next((each for each in kind.__mro__ if name in vars(each)), None) for name in ("forward", "jets")]
    return source[0] is not None and source[0] is source[1]

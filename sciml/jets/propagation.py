"""Streams through the modules of a model, and which modules can be passed.

A module that someone wrote is followed once (torch.fx) with a symbol in the place of its inputs. What its ``forward`` does with
them is known then, as long as it consists of layers, activations, sums, products, slices and concatenations. A module that
looks at values, or does anything else, is not followed: its derivatives are left to nested autograd.

Reference: J. K. Reed, Z. DeVito, H. He, A. Ussery and J. Ansel, torch.fx: practical program capture and transformation for deep
learning in Python, MLSys 2022.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from sciml.jets.activations import FUNCTIONS, Derivatives, derivatives_of, power
from sciml.jets.autograd import AutogradJets
from sciml.jets.faa_di_bruno import dense, rule_of
from sciml.jets.streams import ElementwiseLayer, Layer, Streams
from sciml.typing import MultiIndex

# Points that a module is tried on, and numbers of coordinates it may have then.
_PROBES, _WIDEST = 3, 32
_AGREE = 1e-5
# The name that a tracer gives to a tensor it met, and the mark of a step that depends on the inputs.
_BAKED, _VARIED = "_tensor_constant", "varied"


@runtime_checkable
class JetBlock(Protocol):
    """A module that jets can pass: what a class must have beside ``forward`` to be propagated.

    The two say the same thing, for values and for jets; a subclass that overrides ``forward`` alone is propagated no more.
    Parameters may stand in linear layers only, unless an attribute ``still`` is true: then nothing inside is ever varied. One
    that must be given coordinates, not a layer's outputs, has an attribute ``takes_coordinates`` that is true.
    """

    def parts(self) -> Sequence[nn.Module]:
        """The modules inside that ``jets`` hands to the propagation."""

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The streams behind the module."""


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
        return _run(graph, module, streams, self)

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
        called = [node for node in graph.nodes if node.op == "call_module"]
        parts = [(module.get_submodule(node.target), at_coordinates and node.args[0].op == "placeholder") for node in called]
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


def _says_both(kind: type) -> bool:
    """Whether ``forward`` and ``jets`` come from the same class."""
    source = [next((each for each in kind.__mro__ if name in vars(each)), None) for name in ("forward", "jets")]
    return source[0] is not None and source[0] is source[1]


class _UnknownOperationError(Exception):
    """An operation that jets cannot pass."""


_graphs: WeakKeyDictionary[nn.Module, tuple[Any, fx.Graph | None]] = WeakKeyDictionary()


def _graph(module: nn.Module) -> fx.Graph | None:
    """The operations of a module whose ``forward`` is its own, or None where jets cannot pass one of them."""
    if hasattr(module, "jets") or any(map(_altered, module.modules())) or type(module).__module__.startswith("torch."):
        # What says how jets pass it, and is not propagated, has a forward that says something else.
        return None
    # Plain numbers become part of what was followed: with other ones it is followed anew.
    settings = [
        (name, value) for part in module.modules() for name, value in vars(part).items() if isinstance(value, int | float | str)
    ]
    known = _graphs.get(module)
    if known is None or known[0] != settings:
        known = _graphs[module] = settings, _followed(module)
    return known[1]


def _passable(part: nn.Module) -> bool:
    """Whether jets pass a module inside, which stays whole then."""
    return layers_of(part, at_coordinates=False) is not None


def _followed(module: nn.Module) -> fx.Graph | None:
    # Known before the tracing begins, during which modules cannot be called.
    whole = {id(part) for part in module.modules() if part is not module and _passable(part)}

    class Tracer(fx.Tracer):
        # Symbols, not the numbers of now: what a buffer holds may change.
        proxy_buffer_attributes = True

        def is_leaf_module(self, part: nn.Module, name: str) -> bool:
            return id(part) in whole or super().is_leaf_module(part, name)

    try:
        graph = Tracer().trace(module)
    except Exception:
        return None
    # Tensors that were computed on the way stand for what may have changed by the time they are used.
    baked = [node.target for node in graph.nodes if node.op == "get_attr" and node.target.startswith(_BAKED)]
    for name in baked:
        delattr(module, name)
    if baked:
        return None
    inside = [module.get_submodule(node.target) for node in graph.nodes if node.op == "call_module"]
    for node in graph.nodes:
        # Whether a step depends on the inputs; others are constants.
        varied = node.op in ("placeholder", "call_module") or any(each.meta[_VARIED] for each in node.all_input_nodes)
        node.meta[_VARIED] = varied
    called = [node.target for node in graph.nodes if node.meta[_VARIED] and node.op in ("call_function", "call_method")]
    if not all(map(_passable, inside)) or not all(target in _OPERATIONS for target in called):
        return None
    return graph if _agrees(graph, module) else None


def _agrees(graph: fx.Graph, module: nn.Module) -> bool:
    """Whether a graph gives the values of the module at some points."""
    points, own = tried(module)
    if own is None:
        return False
    # With second derivatives, so that what only fails with these is known before it matters.
    names = tuple(map(str, range(points.shape[1])))
    first = tuple((name,) for name in names)
    plan = ((), *first, *itertools.combinations_with_replacement(names, 2))
    units = torch.eye(len(names)).to(points)[:, None].expand(-1, *points.shape)
    streams = Streams(((), *first), torch.cat([points[None], units]))
    try:
        with torch.no_grad():
            found = _run(graph, module, streams, Propagation(plan, names)).values[0]
    except (_UnknownOperationError, AttributeError, TypeError, RuntimeError, IndexError):
        return False
    return own.shape == found.shape and torch.allclose(own, found, rtol=_AGREE, atol=_AGREE)


def tried(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Random points of as many coordinates as a module takes, and its outputs there, or None."""
    like = next((each for each in (*module.parameters(), *module.buffers()) if each.is_floating_point()), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    points = torch.zeros(())
    for count in range(1, _WIDEST + 1):
        points = torch.rand(_PROBES, count, generator=generator).to(like)
        with torch.no_grad():
            try:
                own = module(points)
            except Exception:
                continue
        return points, own if isinstance(own, Tensor) else None
    return points, None


def _run(graph: fx.Graph, module: nn.Module, streams: Streams, propagation: Propagation) -> Streams:
    """Streams behind a module that was traced."""
    known: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        given = fx.map_arg(node.args, known.__getitem__)
        if node.op == "placeholder":
            known[node] = streams
        elif node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(module)
        elif node.op == "call_module":
            known[node] = propagation.through(module.get_submodule(node.target), *given)
        elif node.op == "output":
            known[node] = given[0]
        else:
            options = fx.map_arg(node.kwargs, known.__getitem__)
            varied = node.meta[_VARIED]
            known[node] = _OPERATIONS[node.target](propagation, *given, **options) if varied else _made(node, given, options)
    found = known[node]
    if not isinstance(found, Streams):
        raise _UnknownOperationError
    return found


def _made(node: fx.Node, given: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """A constant that follows from others."""
    target: Any = node.target
    return getattr(given[0], target)(*given[1:], **options) if node.op == "call_method" else target(*given, **options)


def _row(value: Any, like: Tensor) -> Tensor:
    """A constant that is the same at all points: a number, or one for each column."""
    if isinstance(value, int | float):
        return like.new_tensor(value)
    if isinstance(value, Tensor) and (value.ndim < 2 or (value.ndim == 2 and len(value) == 1)):
        return value.reshape(-1) if value.ndim else value
    raise _UnknownOperationError


def _add(propagation: Propagation, first: Any, second: Any, *, alpha: float = 1.0) -> Streams:
    if isinstance(first, Streams) and isinstance(second, Streams):
        return propagation.sum(first, second, alpha)
    if isinstance(first, Streams):
        like = first.values
        return propagation.affine(first, like.new_ones(()), alpha * _row(second, like))
    like = second.values
    return propagation.affine(second, like.new_tensor(alpha), _row(first, like))


def _subtract(propagation: Propagation, first: Any, second: Any) -> Streams:
    return _add(propagation, first, second, alpha=-1.0)


def _multiply(propagation: Propagation, first: Any, second: Any) -> Streams:
    if isinstance(first, Streams) and isinstance(second, Streams):
        return propagation.product(first, second)
    streams, other = (first, second) if isinstance(first, Streams) else (second, first)
    return propagation.affine(streams, _row(other, streams.values), streams.values.new_zeros(()))


def _divide(propagation: Propagation, first: Any, second: Any) -> Streams:
    if isinstance(second, Streams):
        return _multiply(propagation, first, propagation.activation(power(-1), second))
    return _multiply(propagation, first, 1 / _row(second, first.values))


def _matrix(propagation: Propagation, streams: Streams, matrix: Tensor) -> Streams:
    if not isinstance(streams, Streams) or not isinstance(matrix, Tensor) or matrix.ndim != 2:
        raise _UnknownOperationError
    return Streams(streams.indices, streams.values @ matrix)


def _power(propagation: Propagation, streams: Any, exponent: Any) -> Streams:
    if not isinstance(streams, Streams) or not isinstance(exponent, int | float):
        raise _UnknownOperationError
    return propagation.activation(power(exponent), streams)


def _along_columns(dim: Any) -> None:
    if dim not in (-1, 1):
        raise _UnknownOperationError


def _concatenate(propagation: Propagation, branches: Sequence[Streams], dim: int = 0) -> Streams:
    _along_columns(dim)
    return propagation.concatenation(branches)


def _columns(propagation: Propagation, given: Any, where: Any) -> Any:
    if isinstance(given, tuple):
        return given[where]
    chosen = where[-1] if isinstance(where, tuple) and len(where) == 2 and where[0] in (slice(None), ...) else None
    if not isinstance(chosen, slice | list):
        raise _UnknownOperationError
    return Streams(given.indices, given.values[..., chosen])


def _parted(cut: Callable[..., Sequence[Tensor]]) -> Callable[..., tuple[Streams, ...]]:
    def apply(propagation: Propagation, streams: Streams, size: Any, dim: int = 0) -> tuple[Streams, ...]:
        _along_columns(dim)
        return tuple(Streams(streams.indices, each) for each in cut(streams.values, size, dim=-1))

    return apply


def _gathered(gather: Callable[..., Tensor]) -> Callable[..., Streams]:
    def apply(propagation: Propagation, streams: Streams, dim: Any = None, keepdim: bool = False) -> Streams:
        _along_columns(dim)
        if not keepdim:
            raise _UnknownOperationError
        return Streams(streams.indices, gather(streams.values, dim=-1, keepdim=True))

    return apply


def _elementwise(known: Derivatives) -> Callable[..., Streams]:
    def apply(propagation: Propagation, streams: Streams, **options: Any) -> Streams:
        if any(value not in (False, "none") for value in options.values()):
            raise _UnknownOperationError
        return propagation.activation(known, streams)

    return apply


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add"), _add),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub"), _subtract),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul"), _multiply),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div"), _divide),
    **dict.fromkeys((operator.matmul, torch.matmul, "matmul", torch.mm, "mm"), _matrix),
    **dict.fromkeys((operator.pow, torch.pow, "pow"), _power),
    **dict.fromkeys((operator.neg, torch.neg, "neg"), lambda propagation, streams: _multiply(propagation, streams, -1.0)),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), _concatenate),
    **{target: _parted(torch.chunk) for target in (torch.chunk, "chunk")},
    **{target: _parted(torch.split) for target in (torch.split, "split")},
    **{target: _gathered(torch.mean) for target in (torch.mean, "mean")},
    **{target: _gathered(torch.sum) for target in (torch.sum, "sum")},
    **{target: _elementwise(known) for target, known in FUNCTIONS.items()},
    operator.getitem: _columns,
}

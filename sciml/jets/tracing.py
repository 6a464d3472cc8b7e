"""Tracing (torch.fx) of a module's own ``forward`` into operations that jets can pass.

A module that someone wrote is followed once with a symbol in the place of its inputs. What it does with them is known then, as
long as it consists of layers, activations, sums, products, slices and concatenations. A module that looks at values, or does
anything else, is not followed: its derivatives are left to nested autograd.

Reference: J. K. Reed, Z. DeVito, H. He, A. Ussery and J. Ansel, torch.fx: practical program capture and transformation for deep
learning in Python, MLSys 2022.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from sciml.jets.activations import FUNCTIONS, Derivatives, power
from sciml.jets.streams import Streams

# Points that a module is tried on, and numbers of coordinates it may have then.
_PROBES, _WIDEST = 3, 32
_AGREE = 1e-5
# The name that a tracer gives to a tensor it met, and the mark of a step that depends on the inputs.
_BAKED, _VARIED = "_tensor_constant", "varied"


class Passing(Protocol):
    """What streams can be put through."""

    def through(self, module: nn.Module, streams: Streams) -> Streams: ...
    def activation(self, known: Derivatives, streams: Streams) -> Streams: ...
    def product(self, first: Streams, second: Streams) -> Streams: ...
    def concatenation(self, branches: Sequence[Streams]) -> Streams: ...
    def sum(self, first: Streams, second: Streams, alpha: float = 1.0) -> Streams: ...
    def affine(self, streams: Streams, scale: Tensor, offset: Tensor) -> Streams: ...


class _UnknownOperationError(Exception):
    """An operation that jets cannot pass."""


_graphs: WeakKeyDictionary[nn.Module, tuple[Any, fx.Graph | None]] = WeakKeyDictionary()


def traced(
    module: nn.Module, passed: Callable[[nn.Module], bool], values: Callable[[fx.Graph, Tensor], Tensor]
) -> fx.Graph | None:
    """The operations of a module's ``forward``, or None where jets cannot pass one of them.

    Args:
        module: maps ``(n, D)`` to ``(n, F)``. What ``torch.nn`` defines is not followed.
        passed: whether jets pass a module inside, which stays whole then.
        values: runs a graph, derivatives included, and gives its values at points, which are compared with the module's.
    """
    if type(module).__module__.startswith("torch."):
        return None
    # Plain numbers become part of what was followed: with other ones it is followed anew.
    settings = [
        (name, value) for part in module.modules() for name, value in vars(part).items() if isinstance(value, int | float | str)
    ]
    known = _graphs.get(module)
    if known is None or known[0] != settings:
        known = _graphs[module] = settings, _followed(module, passed, values)
    return known[1]


def _followed(
    module: nn.Module, passed: Callable[[nn.Module], bool], values: Callable[[fx.Graph, Tensor], Tensor]
) -> fx.Graph | None:
    # Known before the tracing begins, during which modules cannot be called.
    whole = {id(part) for part in module.modules() if part is not module and passed(part)}

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
    if not all(map(passed, inside)) or not all(target in _OPERATIONS for target in called):
        return None
    return graph if _agrees(graph, module, values) else None


def _agrees(graph: fx.Graph, module: nn.Module, values: Callable[[fx.Graph, Tensor], Tensor]) -> bool:
    """Whether a graph gives the values of the module at some points."""
    points, own = tried(module)
    if own is None:
        return False
    try:
        with torch.no_grad():
            found = values(graph, points)
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


def parts(graph: fx.Graph, module: nn.Module) -> Iterator[tuple[nn.Module, bool]]:
    """The modules inside that a graph calls, and whether their inputs are those of the whole."""
    for node in graph.nodes:
        if node.op == "call_module":
            yield module.get_submodule(node.target), node.args[0].op == "placeholder"


def run(graph: fx.Graph, module: nn.Module, streams: Streams, passing: Passing) -> Streams:
    """Streams behind a module that was traced."""
    known: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        given = fx.map_arg(node.args, known.__getitem__)
        if node.op == "placeholder":
            known[node] = streams
        elif node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(module)
        elif node.op == "call_module":
            known[node] = passing.through(module.get_submodule(node.target), *given)
        elif node.op == "output":
            known[node] = given[0]
        else:
            options = fx.map_arg(node.kwargs, known.__getitem__)
            varied = node.meta[_VARIED]
            known[node] = _OPERATIONS[node.target](passing, *given, **options) if varied else _made(node, given, options)
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


def _add(passing: Passing, first: Any, second: Any, *, alpha: float = 1.0) -> Streams:
    if isinstance(first, Streams) and isinstance(second, Streams):
        return passing.sum(first, second, alpha)
    if isinstance(first, Streams):
        like = first.values
        return passing.affine(first, like.new_ones(()), alpha * _row(second, like))
    like = second.values
    return passing.affine(second, like.new_tensor(alpha), _row(first, like))


def _subtract(passing: Passing, first: Any, second: Any) -> Streams:
    return _add(passing, first, second, alpha=-1.0)


def _multiply(passing: Passing, first: Any, second: Any) -> Streams:
    if isinstance(first, Streams) and isinstance(second, Streams):
        return passing.product(first, second)
    streams, other = (first, second) if isinstance(first, Streams) else (second, first)
    return passing.affine(streams, _row(other, streams.values), streams.values.new_zeros(()))


def _divide(passing: Passing, first: Any, second: Any) -> Streams:
    if isinstance(second, Streams):
        return _multiply(passing, first, passing.activation(power(-1), second))
    return _multiply(passing, first, 1 / _row(second, first.values))


def _matrix(passing: Passing, streams: Streams, matrix: Tensor) -> Streams:
    if not isinstance(streams, Streams) or not isinstance(matrix, Tensor) or matrix.ndim != 2:
        raise _UnknownOperationError
    return Streams(streams.indices, streams.values @ matrix)


def _power(passing: Passing, streams: Any, exponent: Any) -> Streams:
    if not isinstance(streams, Streams) or not isinstance(exponent, int | float):
        raise _UnknownOperationError
    return passing.activation(power(exponent), streams)


def _along_columns(dim: Any) -> None:
    if dim not in (-1, 1):
        raise _UnknownOperationError


def _concatenate(passing: Passing, branches: Sequence[Streams], dim: int = 0) -> Streams:
    _along_columns(dim)
    return passing.concatenation(branches)


def _columns(passing: Passing, given: Any, where: Any) -> Any:
    if isinstance(given, tuple):
        return given[where]
    chosen = where[-1] if isinstance(where, tuple) and len(where) == 2 and where[0] in (slice(None), ...) else None
    if not isinstance(chosen, slice | list):
        raise _UnknownOperationError
    return Streams(given.indices, given.values[..., chosen])


def _parted(cut: Callable[..., Sequence[Tensor]]) -> Callable[..., tuple[Streams, ...]]:
    def apply(passing: Passing, streams: Streams, size: Any, dim: int = 0) -> tuple[Streams, ...]:
        _along_columns(dim)
        return tuple(Streams(streams.indices, each) for each in cut(streams.values, size, dim=-1))

    return apply


def _gathered(gather: Callable[..., Tensor]) -> Callable[..., Streams]:
    def apply(passing: Passing, streams: Streams, dim: Any = None, keepdim: bool = False) -> Streams:
        _along_columns(dim)
        if not keepdim:
            raise _UnknownOperationError
        return Streams(streams.indices, gather(streams.values, dim=-1, keepdim=True))

    return apply


def _elementwise(known: Derivatives) -> Callable[..., Streams]:
    def apply(passing: Passing, streams: Streams, **options: Any) -> Streams:
        if any(value not in (False, "none") for value in options.values()):
            raise _UnknownOperationError
        return passing.activation(known, streams)

    return apply


def _negative(passing: Passing, streams: Streams) -> Streams:
    return _multiply(passing, streams, -1.0)


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add"), _add),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub"), _subtract),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul"), _multiply),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div"), _divide),
    **dict.fromkeys((operator.matmul, torch.matmul, "matmul", torch.mm, "mm"), _matrix),
    **dict.fromkeys((operator.pow, torch.pow, "pow"), _power),
    **dict.fromkeys((operator.neg, torch.neg, "neg"), _negative),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), _concatenate),
    **{target: _parted(torch.chunk) for target in (torch.chunk, "chunk")},
    **{target: _parted(torch.split) for target in (torch.split, "split")},
    **{target: _gathered(torch.mean) for target in (torch.mean, "mean")},
    **{target: _gathered(torch.sum) for target in (torch.sum, "sum")},
    **{target: _elementwise(known) for target, known in FUNCTIONS.items()},
    operator.getitem: _columns,
}

"""Operator tracing: the elementwise operations of a function of tensors, recorded once and repeated on NumPy's arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sciml.typing import Array

# Functions such as exp are rounded differently: how far values may be apart, relative to the largest of a residual.
_ROUNDING = 1e-12

# ATen's elementwise operations by name.
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("mul", "neg", "abs", "pow", "lt", "le", "eq", "ne", "ge", "gt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log1p", "log2", "log10", "sqrt", "reciprocal", "hypot", "sinc")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "maximum", "minimum", "where")},
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_not")},
    **{name: getattr(np, name) for name in ("bitwise_and", "bitwise_or", "bitwise_not")},
    **{"a" + name: getattr(np, "arc" + name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "add": lambda one, other, alpha=1: one + (other if alpha == 1 else alpha * other),
    "sub": lambda one, other, alpha=1: one - (other if alpha == 1 else alpha * other),
    "rsub": lambda one, other, alpha=1: other - (one if alpha == 1 else alpha * one),
    "div": lambda one, other: one / other,
    "remainder": operator.mod,
    # NumPy's own make NaN of it.
    "sign": lambda values: 1.0 * (values > 0) - (values < 0),
    "heaviside": lambda values, zero: np.where(values == 0, zero, values > 0),
    "atan2": np.arctan2,
    "clamp": lambda values, min=None, max=None: np.clip(values, min, max),
    "relu": lambda values: np.maximum(values, 0.0),
    "sigmoid": scipy.special.expit,
    "erf": scipy.special.erf,
    "_to_copy": lambda values: np.asarray(values, dtype=np.float64),
}
# Those that leave values as they are where they leave their shape, and those that make equal numbers.
_SAME = {"detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "view", "expand", "squeeze"}
_EQUAL = {"scalar_tensor", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zeros", "ones", "full"}


class _Step(NamedTuple):
    """An operation, where the value that it makes is put, and where its arguments lie."""

    place: int
    operation: Callable[..., Any]
    arguments: tuple[int, ...]
    keywords: Mapping[str, Any]


class _Recorder(TorchDispatchMode):
    """Elementwise operations on columns ``(n,)`` and numbers ``()``, in the order in which they are made."""

    def __init__(self, columns: Sequence[Tensor]) -> None:
        super().__init__()
        self.values: list[Any] = [None] * len(columns)
        self.steps, self.complete, self._shape = list[_Step](), True, columns[0].shape
        # Tensors are kept: another one could come to lie where one was.
        self._kept, self._places = list(columns), {id(each): place for place, each in enumerate(columns)}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first call imports PyTorch's compiler, which takes a second.
        return False

    def _put(self, value: Any, tensor: Tensor | None = None) -> int:
        self.values.append(value)
        if tensor is not None:
            self._kept.append(tensor)
            self._places[id(tensor)] = len(self.values) - 1
        return len(self.values) - 1

    def place(self, argument: Any) -> int:
        """Where an argument lies among the values; columns that no operation made are no part of a program."""
        if not isinstance(argument, Tensor):
            return self._put(argument)
        if id(argument) not in self._places:
            self.complete = self.complete and argument.ndim == 0
            return self._put(np.float64(argument.item()) if self.complete else None, argument)
        return self._places[id(argument)]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, name = function(*args, **(kwargs or {})), function.overloadpacket.__name__
        keywords = {} if name == "_to_copy" else dict(kwargs or {})
        if not isinstance(found, Tensor) or found.shape not in (self._shape, ()):
            self.complete = False
        elif name in _SAME and args[0].shape == found.shape and args[0].dtype == found.dtype:
            self._kept.append(found)
            self._places[id(found)] = self.place(args[0])
        elif name in _EQUAL:
            self._put(np.float64(found.flatten()[0].item()), found)
        elif name in _OPERATIONS and keywords.keys() <= {"alpha"} and found.dtype in (torch.float64, torch.bool):
            places = tuple(map(self.place, args))
            self.steps.append(_Step(self._put(None, found), _OPERATIONS[name], places, keywords))
        else:
            self.complete = False
        return found


@dataclass(frozen=True)
class NumpyProgram:
    """Elementwise operations in order, on columns ``(n,)`` of any length or numbers ``()``."""

    values: tuple[Any, ...]
    steps: tuple[_Step, ...]
    results: tuple[int, ...]

    def __call__(self, columns: Sequence[Array]) -> Array:
        """The values of the function, ``(m, n)`` for as long columns as the first one is."""
        values = [*columns, *self.values]
        with np.errstate(all="ignore"):
            for place, operation, arguments, keywords in self.steps:
                values[place] = operation(*[values[each] for each in arguments], **keywords)
        found = np.empty((len(self.results), len(columns[0])))
        for row, place in enumerate(self.results):
            found[row] = values[place]
        return found


def numpy_program(
    function: Callable[[Sequence[Tensor]], Sequence[Tensor]], columns: Sequence[Array], others: Iterable[Sequence[Array]]
) -> NumpyProgram | None:
    """A function of columns as a program of NumPy calls, the same operations in the same order.

    PyTorch takes microseconds for an operation on three numbers, NumPy a tenth of that.

    Args:
        function: it makes columns ``(n,)`` of columns ``(n,)`` and of numbers ``()``, point by point.
        columns: what it is called with.
        others: more of these, at which the program is compared with the function.

    Returns:
        The program; None where the function holds other operations, or takes decisions on values.
    """
    given = [torch.tensor(each) for each in columns]
    with _Recorder(given) as recorder:
        results = function(given)
    places = tuple(map(recorder.place, results))
    if not recorder.complete:
        return None
    program = NumpyProgram(tuple(recorder.values[len(columns) :]), tuple(recorder.steps), places)
    for each in [columns, *others]:
        wanted = torch.stack(list(function([torch.tensor(column) for column in each]))).detach().numpy()
        sizes = np.abs(wanted).max(axis=1, keepdims=True, initial=0.0, where=np.isfinite(wanted))
        if not np.isclose(program(each), wanted, rtol=0.0, atol=_ROUNDING * sizes, equal_nan=True).all():
            return None
    return program

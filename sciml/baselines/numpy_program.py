"""Operator tracing: the elementwise operations of a function of tensors, recorded once and repeated on NumPy's arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sciml.errors import SciMLError
from sciml.typing import Array

# Functions such as exp are rounded differently: how far values may be apart, relative to the largest of a residual.
_ROUNDING = 1e-12

# ATen's elementwise operations by name.
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("mul", "neg", "abs", "pow", "lt", "le", "eq", "ne", "ge", "gt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log1p", "log2", "log10", "sqrt", "reciprocal", "hypot", "sinc")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "round", "fmod", "maximum", "minimum", "where", "isnan")},
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
    **{name: getattr(np, name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")},
    **{"a" + name: getattr(np, "arc" + name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "add": lambda one, other, alpha=1: one + (other if alpha == 1 else alpha * other),
    "sub": lambda one, other, alpha=1: one - (other if alpha == 1 else alpha * other),
    "rsub": lambda one, other, alpha=1: other - (one if alpha == 1 else alpha * one),
    "div": operator.truediv,
    "remainder": operator.mod,
    "atan2": np.arctan2,
    # NumPy's own make NaN of it.
    "sign": lambda values: 1.0 * (values > 0) - (values < 0),
    "heaviside": lambda values, zero: np.where(values == 0, zero, values > 0),
    "clamp": lambda values, least=None, most=None: np.clip(values, least, most),
    "clamp_min": np.maximum,
    "clamp_max": np.minimum,
    "relu": lambda values: np.maximum(values, 0.0),
    "rsqrt": lambda values: 1 / np.sqrt(values),
    "sigmoid": scipy.special.expit,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "_to_copy": lambda values: np.asarray(values, dtype=np.float64),
}
# Those that leave values as they are where they leave their shape, and those that make equal numbers.
_SAME = {"detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "view", "expand", "squeeze"}
_EQUAL = {"scalar_tensor", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zeros", "ones", "full"}
# By which values leave a tensor: what is made of them is unseen.
_LEAVING = {"numpy", "tolist", "item", "data_ptr", "untyped_storage", "__array__", "__dlpack__"}
_LEAVING |= {"__float__", "__int__", "__bool__", "__index__", "__complex__"}


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

    def _put(self, value: Any, tensor: Tensor) -> int:
        self._kept.append(tensor)
        self._places[id(tensor)] = len(self.values)
        self.values.append(value)
        return len(self.values) - 1

    def _number(self, tensor: Tensor) -> Any:
        """The one value of a tensor, as NumPy has it."""
        self.complete = self.complete and not tensor.is_complex()
        return (np.bool_ if tensor.dtype == torch.bool else np.float64)(tensor.flatten()[0].item()) if self.complete else None

    def place(self, argument: Any) -> int:
        """Where an argument lies among the values; columns that no operation made are no part of a program."""
        if not isinstance(argument, Tensor):
            self.values.append(argument)
            return len(self.values) - 1
        if id(argument) not in self._places:
            self.complete = self.complete and argument.ndim == 0
            return self._put(self._number(argument), argument)
        return self._places[id(argument)]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, name = function(*args, **(kwargs or {})), function.overloadpacket.__name__
        self.complete = self.complete and function.namespace == "aten" and isinstance(found, Tensor)
        if not self.complete or found.shape not in (self._shape, ()):
            self.complete = False
        elif name in _SAME and (args[0].shape, args[0].dtype) == (found.shape, found.dtype):
            self._kept.append(found)
            self._places[id(found)] = self.place(args[0])
        elif name in _EQUAL:
            self._put(self._number(found), found)
        elif name in _OPERATIONS and self._exact(name, found.dtype, args):
            keywords = {} if name == "_to_copy" else dict(kwargs or {})
            self.complete = keywords.keys() <= {"alpha"}
            places = tuple(map(self.place, args))
            self.steps.append(_Step(self._put(None, found), _OPERATIONS[name], places, keywords))
        else:
            self.complete = False
        return found

    def _exact(self, name: str, kind: torch.dtype, args: Sequence[Any]) -> bool:
        """Whether an operation makes the same of numbers in double precision: others are rounded."""
        if name == "_to_copy":
            return (kind.is_floating_point and args[0].dtype in (torch.bool, kind)) or kind == torch.float64
        return kind in (torch.float64, torch.bool) or (name == "where" and kind == torch.float32)


class _Leaving(TorchFunctionMode):
    """Whether values leave tensors while it is on, as for a decision or for NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = self.seen or getattr(function, "__name__", "") in _LEAVING
        return function(*args, **(kwargs or {}))


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


def numpy_program(function: Callable[[Sequence[Tensor]], Sequence[Tensor]], columns: Sequence[Array]) -> NumpyProgram | None:
    """A function of columns as a program of NumPy calls, the same operations in the same order.

    PyTorch takes microseconds for an operation on three numbers, NumPy a tenth of that.

    Args:
        function: it makes columns ``(n,)`` of columns ``(n,)`` and of numbers ``()``, point by point.
        columns: what it is called with.

    Returns:
        The program; None where the function holds other operations, takes decisions on values or hands them to NumPy.
    """
    given = [torch.tensor(each) for each in columns]
    wanted = torch.stack(list(function(given))).detach().numpy()
    try:
        with _Recorder(given) as recorder, _Leaving() as leaving:
            places = tuple(map(recorder.place, function(given)))
    except (SciMLError, NotImplementedError):
        # What cannot be traced is called as it is.
        return None
    if leaving.seen or not recorder.complete:
        return None
    program = NumpyProgram(tuple(recorder.values[len(columns) :]), tuple(recorder.steps), places)
    sizes = np.abs(wanted).max(axis=1, keepdims=True, initial=0.0, where=np.isfinite(wanted))
    same = np.isclose(program(columns), wanted, rtol=0.0, atol=_ROUNDING * sizes, equal_nan=True).all()
    return program if same else None

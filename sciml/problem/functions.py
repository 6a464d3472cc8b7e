"""Calls of user functions by the names of their parameters, with errors that name the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch

from sciml.errors import ProblemError, SciMLError

# An integrator evaluates conditions ten thousands of times, and a signature takes as long as a residual.
_KNOWN: WeakKeyDictionary[Callable[..., Any], Mapping[str, inspect.Parameter]] = WeakKeyDictionary()


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name; those of plain functions are looked up once."""
    if not inspect.isfunction(function):
        return inspect.signature(function).parameters
    if function not in _KNOWN:
        _KNOWN[function] = inspect.signature(function).parameters
    return _KNOWN[function]


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters of a function that must be filled by name: all but ``self`` and those with a default."""
    called = getattr(function, "__name__", repr(function))
    try:
        parameters = _parameters(function).values()
    except ValueError:
        raise ProblemError(
            f"{called!r} does not tell the names of its parameters, as functions written in C do not: wrap it, "
            f"as in lambda x: {called}(x)"
        ) from None
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ProblemError(f"{called!r} takes *{parameter.name}: name the fields and coordinates it needs instead")
    return tuple(each.name for each in parameters if each.name != "self" and each.default is each.empty)


def named(function: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """The function, with these as the names of its parameters; it takes arguments by any name."""
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def evaluated(what: str, function: Callable[..., Any], arguments: Mapping[str, object], problem: object | None = None) -> Any:
    """The value of a user's function, which receives the problem as ``self``; its exceptions become a ``ProblemError``."""
    if problem is not None and "self" in _parameters(function):
        arguments = {"self": problem, **arguments}
    try:
        return function(**arguments)
    except (SciMLError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        hint = (
            "it receives torch tensors of shape (n,), so use torch's functions (torch.sin, not math.sin or numpy.sin), or "
            "torch.from_numpy(f(x.detach().numpy())) for a function f of coordinates alone that torch lacks"
        )
        if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
            hint = f"define or import it; a constant of the class is self.{error.name}"
        if isinstance(error, AttributeError) and error.obj is getattr(function, "__self__", problem):
            hint = "set it in the class"
        if isinstance(error, RuntimeError) and "ambiguous" in str(error):
            hint = "it is called for all points at once: choose by torch.where(condition, one, other) instead of if"
        if isinstance(error, ValueError) and "to unpack" in str(error) and "normal" in arguments:
            hint = "normal has a component for each coordinate of the domain, time included: nx, ny, _ = normal of x, y and t"
        raise ProblemError(f"{what} failed: {type(error).__name__}: {error}; {hint}") from error

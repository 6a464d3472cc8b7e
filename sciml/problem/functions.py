"""Calling functions that a user wrote: by the names of their parameters, with failures that say where they happened."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from sciml.errors import ProblemError, SciMLError


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters of a function that must be filled by name: all but ``self`` and those with a default.

    Raises:
        ProblemError: the function takes ``*args`` or ``**kwargs``, which name nothing, or does not tell its parameters.
    """
    names = []
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        name = getattr(function, "__name__", repr(function))
        raise ProblemError(
            f"{name!r} does not tell the names of its parameters, as functions written in C do not: wrap it, "
            f"as in lambda x: {name}(x)"
        ) from None
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            name = getattr(function, "__name__", repr(function))
            raise ProblemError(f"{name!r} takes *{parameter.name}: name the fields and coordinates it needs instead")
        if parameter.name != "self" and parameter.default is parameter.empty:
            names.append(parameter.name)
    return tuple(names)


def evaluated(what: str, function: Callable[..., Any], arguments: Mapping[str, object]) -> Any:
    """What a function of the user's returns.

    Raises:
        ProblemError: it fails in a way that is not ours; the message names it.
    """
    try:
        return function(**arguments)
    except (SciMLError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ProblemError(
            f"{what} failed: {type(error).__name__}: {error}; it receives torch tensors of shape (n,), so use torch's "
            "functions (torch.sin, not math.sin or numpy.sin)"
        ) from error

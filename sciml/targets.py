"""Targets: what a condition prescribes, a number or a function of the coordinates that it names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sciml.calls import argument_names, evaluated
from sciml.derivative import check_precision
from sciml.errors import ProblemError, listed, nearest
from sciml.promotion import with_columns
from sciml.typing import Target

if TYPE_CHECKING:
    from sciml.problem import Problem


def prescribed_values(what: str, target: Target, problem: Problem, coordinates: Mapping[str, Tensor]) -> Tensor:
    """The values of a target at coordinates of shape ``(n,)``, differentiable by them; shape ``(n,)`` or ``()``.

    Raises:
        ProblemError: the target's function fails, or returns something that is neither.
    """
    like = next(iter(coordinates.values()))
    value: object = target
    if callable(target):
        arguments: dict[str, object] = {name: coordinates[name] for name in argument_names(target)}
        if "self" in inspect.signature(target).parameters:
            arguments["self"] = with_columns(problem, coordinates)
        value = evaluated(f"the target function of {what}", target, arguments)
    if isinstance(value, Tensor):
        check_precision(f"the target of {what}", value, like)
    values = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if values.shape not in ((), like.shape):
        raise ProblemError(
            f"the target of {what} has shape {tuple(values.shape)} at {len(like)} points; expected ({len(like)},) or "
            "a single number"
        )
    return values


def check_target(what: str, target: Target, coordinates: Sequence[str]) -> None:
    """Refuse a target that is neither a number nor a function of coordinates.

    Raises:
        ProblemError: with what was given and what may be asked for.
    """
    if callable(target):
        for name in argument_names(target):
            if name not in coordinates:
                raise ProblemError(
                    f"the target function of {what} asks for {name!r}; it may ask for the coordinates "
                    f"{listed(coordinates)} and for self.{nearest(name, coordinates)}"
                )
    elif not isinstance(target, int | float | Tensor):
        raise ProblemError(
            f"the target of {what} must be a number or a function of coordinates; given: {type(target).__name__}"
        )

"""Points from coordinates by name: arrays or tensors that broadcast, as columns of one tensor; how many along each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import ProblemError

# What may be rounding of places: some of that of sin(9 pi), which is no zero.
_ROUNDING = 2.0**-46


def points_from(given: Mapping[str, Any], names: Sequence[str], like: Tensor | None = None) -> tuple[Tensor, tuple[int, ...]]:
    """Points ``(n, D)`` and their shape before: finite float64 or, where a tensor ``like`` is given, differentiable like it."""
    if set(given) != set(names):
        raise ProblemError(f"expected the coordinates {listed(names)}; given: {listed(given)}")
    if like is None:
        columns = [_finite(name, given[name]) for name in names]
    else:
        # A number beside tensors would come in torch's default type, with half of its digits.
        each = (given[name] for name in names)
        columns = [(it if isinstance(it, Tensor) else torch.tensor(np.asarray(it), dtype=like.dtype)).to(like) for it in each]
    try:
        broadcast = torch.broadcast_tensors(*columns)
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(column.shape)}" for name, column in zip(names, columns, strict=True))
        raise ProblemError(f"the coordinates do not broadcast to one shape: {shapes}") from None
    return torch.stack([column.reshape(-1) for column in broadcast], dim=1), tuple(broadcast[0].shape)


def _finite(name: str, value: Any) -> Tensor:
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"the coordinate {name!r} is not an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"the coordinate {name!r} must hold real numbers; given: {array.dtype} ({value!r})")
    bad = int((~np.isfinite(array) | np.ma.getmask(value)).sum())
    if bad:
        raise ProblemError(f"the coordinate {name!r} has {bad} value(s) that are not finite")
    return torch.from_numpy(array.astype(np.float64))


def points_along(resolution: int | None, usual: int) -> int:
    """Resolution: the number of points along each coordinate that was asked for, or the usual one.

    Raises:
        ProblemError: a number that is no whole one from 1 on.
    """
    if resolution is None:
        return usual
    if isinstance(resolution, bool) or not isinstance(resolution, Integral) or resolution < 1:
        raise ProblemError(f"resolution must be a whole number of points along each coordinate; given: {resolution!r}")
    return int(resolution)


def moved_inwards(points: Tensor, lower: Sequence[float], upper: Sequence[float]) -> Tensor:
    """Perturbation by rounding: points ``(n, D)`` moved towards the middle of a box by some units in their last place."""
    low, high = (points.new_tensor(each) for each in (lower, upper))
    return points + _ROUNDING * (points.abs() + high - low) * ((low + high) / 2 - points).sign()

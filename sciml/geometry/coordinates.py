"""Coordinates by name as columns of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.typing import Array


def points_from(given: Mapping[str, Any], names: Sequence[str]) -> tuple[Tensor, tuple[int, ...]]:
    """Points ``(n, D)`` in float64 from coordinates by name, and the shape to which they broadcast.

    Raises:
        ProblemError: a coordinate is missing or unknown, or the shapes do not broadcast.
    """
    if set(given) != set(names):
        raise ProblemError(f"expected the coordinates {listed(names)}; given: {listed(given)}")
    arrays = [_coordinate(name, given[name]) for name in names]
    try:
        broadcast = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(names, arrays, strict=True))
        raise ProblemError(f"the coordinates do not broadcast to one shape: {shapes}") from None
    points = np.stack([array.ravel() for array in broadcast], axis=1).astype(np.float64)
    return torch.from_numpy(points), broadcast[0].shape


def _coordinate(name: str, value: Any) -> Array:
    """One coordinate's values as float64.

    Raises:
        ProblemError: they are not finite real numbers.
    """
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"the coordinate {name!r} is not an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"the coordinate {name!r} must hold real numbers; given: {array.dtype} ({value!r})")
    if not np.isfinite(array).all():
        raise ProblemError(
            f"the coordinate {name!r} has {int((~np.isfinite(array)).sum())} value(s) that are not finite"
        )
    return array.astype(np.float64)

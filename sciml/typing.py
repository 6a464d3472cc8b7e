"""Names for the shapes and kinds of argument that return throughout the library.

Shapes are written with ``n`` points, ``D`` coordinates and ``F`` fields: points are ``(n, D)`` tensors whose columns
follow ``problem.coordinates``, a trial function maps them to ``(n, F)``, and every field, coordinate and residual that
a user's function meets is a tensor of shape ``(n,)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from torch import Tensor

Points: TypeAlias = Tensor
"""A tensor of shape ``(n, D)``: one row a point, one column a coordinate."""

Values: TypeAlias = Tensor
"""A tensor of shape ``(n,)``: one number a point."""

MultiIndex: TypeAlias = tuple[str, ...]
"""A partial derivative by the names it differentiates by, in the problem's order: ``("x", "x")`` is u_xx, () is u."""

TrialFunction: TypeAlias = Callable[[Tensor], Tensor]
"""Anything that maps points ``(n, D)`` to fields ``(n, F)``, each row by itself."""

Target: TypeAlias = float | int | Tensor | Callable[..., object]
"""The target of a condition: a number, or a function of the coordinates it names (and of ``self``, if it asks)."""

Array: TypeAlias = np.ndarray
"""A NumPy array."""

"""Tensor-product interpolating splines of values on a grid, made of torch operations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.typing import Array

_ROUNDING = 1e-9


class TensorSpline:
    """Splines through values ``(F, N_1, N_2, ...)`` on a grid, whose axes are nodes, degree and condition at the ends.

    Where they are linear values may be missing, NaN: they are then missing beside these nodes, too.
    """

    def __init__(self, axes: Iterable[tuple[Array, int, str | None]], values: Array) -> None:
        self._bases = []
        for number, (nodes, degree, ends) in enumerate(axes, start=1):
            options = {"axis": number, "bc_type": ends, "check_finite": degree > 1}
            spline = scipy.interpolate.make_interp_spline(nodes, values, degree, **options)
            # SciPy's coefficients have the axis first, whichever it was.
            values = np.moveaxis(spline.c, 0, number)
            self._bases.append((torch.from_numpy(spline.t), degree))
        self._whole = bool(np.isfinite(values).all())
        self._coefficients = torch.from_numpy(np.ascontiguousarray(values))

    def __call__(self, points: Tensor) -> Tensor:
        """Values ``(n, F)`` at points ``(n, D)``, float64."""
        device, coefficients = points.device, self._coefficients.to(points.device)
        flat, weight = torch.zeros(len(points), 1, dtype=torch.int64, device=device), points.new_ones(len(points), 1)
        for (knots, degree), x, length in zip(self._bases, points.T, coefficients.shape[1:], strict=True):
            first, share = _basis(knots.to(device), degree, x)
            near = first[:, None] + torch.arange(degree + 1, device=device)
            flat = (flat[:, :, None] * length + near[:, None, :]).flatten(1)
            weight = (weight[:, :, None] * share[:, None, :]).flatten(1)
        parts = (field[flat] * weight for field in coefficients.flatten(1))
        if not self._whole:
            # A point on a side of its cell has nothing of what lies across.
            parts = (torch.where(weight.abs() > _ROUNDING, part, 0.0) for part in parts)
        return torch.stack([part.sum(1) for part in parts], dim=1)


def _basis(knots: Tensor, degree: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the first B-spline that is not zero at each point, and the values of ``degree + 1`` of them.

    The recursion of Cox and de Boor; the points beside an interval's knots stay differentiable (C. de Boor, A Practical Guide
    to Splines, 1978, chapter X).
    """
    span = torch.searchsorted(knots, x.detach().contiguous(), right=True) - 1
    span = span.clamp(degree, len(knots) - degree - 2)
    left = [x - knots[span + 1 - step] for step in range(1, degree + 1)]
    right = [knots[span + step] - x for step in range(1, degree + 1)]
    values = [torch.ones_like(x)]
    for step in range(1, degree + 1):
        carried, raised = torch.zeros_like(x), []
        for number, value in enumerate(values):
            share = value / (right[number] + left[step - number - 1])
            raised.append(carried + right[number] * share)
            carried = left[step - number - 1] * share
        values = [*raised, carried]
    return span - degree, torch.stack(values, dim=1)

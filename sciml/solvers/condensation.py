"""Condensed normal equations: weights of one tile alone are eliminated there, the rest by a banded Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.models.tensor_product import TensorProductBasis
from sciml.parallel.blas_threads import one_blas_thread
from sciml.typing import Array


class WeightLayout:
    """Which weights live on one tile of a basis alone, and how the others are numbered; each field has its own.

    ``columns`` are the weights of every tile, ``(T, S)``, the ``own`` that live on it alone first; ``order`` sorts
    them so, from fields outermost and functions as a ``Spot`` has them. ``shared`` are the others in their order,
    ``number`` the place of each weight among these (-1: none), ``band`` how many diagonals pairs of them fill.
    """

    def __init__(self, tiling: TensorProductBasis, fields: int) -> None:
        functions, inside = tiling.local()
        alone = inside.repeat(fields)
        self.order = torch.cat([torch.nonzero(alone)[:, 0], torch.nonzero(~alone)[:, 0]])
        every = (functions[:, None, :] * fields + torch.arange(fields)[:, None]).flatten(1)
        self.columns, self.own = every[:, self.order], int(alone.sum())
        self.width = tiling.width * fields
        apart = torch.ones(self.width, dtype=torch.bool)
        apart[self.columns[:, : self.own].flatten()] = False
        self.shared = torch.nonzero(apart)[:, 0]
        self.number = torch.full((self.width,), -1)
        self.number[self.shared] = torch.arange(len(self.shared))
        local = self.number[self.columns[:, self.own :]]
        self.band = int((local.amax(1) - local.amin(1)).max()) + 1
        self._places = _places(local, len(self.shared))

    @property
    def effort(self) -> float:
        """About how many operations a factorisation takes."""
        tiles, size = self.columns.shape
        return float(len(self.shared)) * self.band**2 + tiles * self.own * size**2

    def banded(self, grams: Tensor, more: tuple[Tensor, Tensor] | None) -> Array:
        """The lower diagonals of the sum of small matrices, one a tile, and of ``more`` of them at columns of their own."""
        keep, place = self._places
        values, band, count = grams.flatten()[keep], self.band, len(self.shared)
        if more is not None:
            # Weights that live on one tile alone vanish where two tiles meet.
            keep, other = _places(self.number[more[0]], count)
            band = max(band, int(other.max()) // count + 1)
            place, values = torch.cat([place, other]), torch.cat([values, more[1].flatten()[keep]])
        flat = np.bincount(place.numpy(), weights=values.numpy(), minlength=band * count)
        return flat.reshape(band, count)


@dataclass
class NormalEquations:
    """The normal equations of weights and unknowns.

    Rows on a tile add ``grams``, ``(T, S, S)``, rows that join two tiles the matrices ``more`` at their columns.
    ``border``, ``(width, q + 1)``, are products of the weights' columns with those of the unknowns and, last, the
    rows; ``corner`` of these with one another.
    """

    layout: WeightLayout
    grams: Tensor
    border: Tensor
    corner: Tensor
    more: tuple[Tensor, Tensor] | None = None

    def factorised(self, damping: float) -> Callable[[Tensor], Tensor]:
        """The inverse for right-hand sides ``(width, k)``, diagonal entries enlarged by a fraction, or a LinAlgError."""
        layout, own = self.layout, self.layout.own
        grams = _damped(self.grams, damping)
        inner, info = torch.linalg.cholesky_ex(grams[:, :own, :own])
        if bool(info.any()):
            raise np.linalg.LinAlgError("the rows do not determine the weights of a tile")
        coupling = torch.linalg.solve_triangular(inner, grams[:, :own, own:], upper=False)
        left = grams[:, own:, own:] - coupling.mT @ coupling
        more = None if self.more is None else (self.more[0], _damped(self.more[1], damping))
        banded = layout.banded(left, more)
        with one_blas_thread():
            rows = scipy.linalg.cholesky_banded(banded, overwrite_ab=True, lower=True, check_finite=False)

        def solve(right: Tensor) -> Tensor:
            mine, shared = layout.columns[:, :own], layout.columns[:, own:]
            reduced = torch.linalg.solve_triangular(inner, right[mine], upper=False)
            outer = right.clone()
            outer.index_add_(0, shared.flatten(), (coupling.mT @ reduced).flatten(0, 1), alpha=-1)
            found = torch.empty_like(right)
            with one_blas_thread():
                solved = scipy.linalg.cho_solve_banded((rows, True), outer[layout.shared].numpy(), check_finite=False)
            found[layout.shared] = torch.from_numpy(solved)
            rest = reduced - coupling @ found[shared]
            found[mine] = torch.linalg.solve_triangular(inner.mT, rest, upper=True)
            return found

        return solve


def _damped(grams: Tensor, damping: float) -> Tensor:
    """Small matrices with each diagonal entry enlarged by a fraction of itself."""
    found = grams.clone()
    found.diagonal(dim1=1, dim2=2).mul_(1 + damping)
    return found


def _places(local: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Which entries of small matrices at some columns are below the diagonal, and where they stand in the band."""
    first, second = torch.broadcast_tensors(local[:, :, None], local[:, None, :])
    keep = torch.nonzero(((first >= second) & (second >= 0)).flatten())[:, 0]
    first, second = first.flatten()[keep], second.flatten()[keep]
    return keep, (first - second) * count + second

r"""Cut tiles in slabs of time: collocation in time, in space the normal equations of least squares of one implicit Euler step.

At every stage equations, conditions and the continuity of the fields and of their derivatives below the order are rows r of
the rates K. With :math:`J = M + sK`, their derivative for a step of implicit Euler about as long as the distance of the
stages, all stages solve :math:`J^\top r = 0`: one test space for all of them (Petrov and Galerkin). Least squares of each
eigenvector of the method of Radau by itself would be another projection for each, and what these do not have in common is
amplified by the condition of the eigenvectors: on some cut tiles fortyfold in every window. One real factor, that of
:math:`J^\top J`, preconditions all stages.

References: J. C. Butcher, On the implementation of implicit Runge-Kutta methods, BIT 16 (1976); L. F. Demkowicz and J.
Gopalakrishnan, Analysis of the DPG method for the Poisson equation, SIAM Journal on Numerical Analysis 49 (2011).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sciml.slabs.system import Evaluated, Slab
from sciml.slabs.tile_least_squares import TileLeastSquares
from sciml.slabs.tile_nodes import Reach, TileNodes
from sciml.slabs.tile_space import TileSpace


# Combinations of the coefficients of cut tiles that rows see less are left as they are: they would grow from window to window.
_UNSEEN = 1e-10


class TilePreconditioner:
    """Preconditioner of a slab on cut tiles: maps residuals at the stages to rates that make them as nearly as can be."""

    def __init__(self, slab: Slab[TileSpace], evaluated: Sequence[Evaluated]) -> None:
        self._slab, space = slab, slab.mesh
        self._reaches = [Reach(each) for each in evaluated]
        of = self._of = TileNodes(space, self._reaches)
        self._nodes = [of.nodes(number) for number in range(len(evaluated))]
        # A step as long as the stages are apart: what it does not amplify, Radau's method damps.
        scale = slab.length * float(slab.stages.eigenvalues.abs().mean())
        unit = lambda part: scale ** (slab.orders[part.field] - part.in_time) * slab.units[part.field]  # noqa: E731
        self._weights = [space.row_weights(each, unit) for each in evaluated]
        self._alone = [number for number, nodes in enumerate(self._nodes) if nodes.dim() == 1]
        self._joined = [number for number, nodes in enumerate(self._nodes) if nodes.dim() == 2]
        self._slots = self._numbered([evaluated[k].values.shape[2] for k in self._alone])
        slopes = [space.rows(each, own, unit) for each, own in zip(evaluated, self._weights, strict=True)]
        rows = [of.rows(number, each) for number, each in enumerate(slopes)]
        joined = [(self._nodes[k], rows[k]) for k in self._joined]
        self._rows = TileLeastSquares(self._placed([rows[k] for k in self._alone]), joined, _UNSEEN)
        self._rows.factor()

    def _numbered(self, sizes: Sequence[int]) -> list[Tensor]:
        """For each site of single nodes the numbers of its rows ``(E, q)`` among those of all nodes."""
        used = torch.zeros(self._of.count, dtype=torch.int64)
        found = []
        for number, size in zip(self._alone, sizes, strict=True):
            nodes = self._nodes[number]
            found.append(used[nodes, None] + torch.arange(size))
            used[nodes] += size
        self._most = int(used.max())
        return [self._nodes[number][:, None] * self._most + own for number, own in zip(self._alone, found, strict=True)]

    def _placed(self, rows: Sequence[Tensor]) -> Tensor:
        """Rows ``(E, q, ...)`` of sites of single nodes as rows of all nodes, ``(N, m, ...)``."""
        count = self._of.count
        found = rows[0].new_zeros(count * self._most, *rows[0].shape[2:])
        for slots, own in zip(self._slots, rows, strict=True):
            found[slots] = own
        return found.unflatten(0, (count, self._most))

    def by_tile(self, values: Sequence[Tensor]) -> Tensor:
        """The weighted squares of residuals ``(p, E, q)`` at all stages, summed by tile, ``(T,)``."""
        found = self._weights[0].new_zeros(len(self._slab.mesh.model.live))
        for each, weight, reach in zip(values, self._weights, self._reaches, strict=True):
            squares = (each * weight[:, None]).square().sum((0, 2))
            for tiles in reach.tiles:
                found.index_add_(0, tiles, squares)
        return found

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """Rates ``(p, F, T K)`` from residuals, each ``(p, E, q)``."""
        own = [(each * weight[:, None]).permute(1, 2, 0) for each, weight in zip(values, self._weights, strict=True)]
        found = self._rows.projected([self._placed([own[k] for k in self._alone]), *(own[k] for k in self._joined)])
        return torch.stack([self._of.coefficients(each).transpose(0, 1).flatten(1) for each in found.unbind(2)])

r"""Cut tiles in slabs of time: an approximate inverse of a slab's Jacobian, stage by stage by least squares.

At every stage equations, conditions and the continuity of the fields and of their derivatives below the order are rows of
one least-squares problem. Frozen at their mean over the stages these are taken apart by the eigenvectors of the method of
Radau, and for each eigenvalue there is one factor. Least squares damps what diffuses; waves, which nothing damps, it may
amplify over hundreds of slabs.

Reference: J. C. Butcher, On the implementation of implicit Runge-Kutta methods, BIT 16 (1976).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sciml.geometry import Interior, Within
from sciml.slabs.system import Evaluated, Part, Slab
from sciml.slabs.tile_least_squares import CPU, TileLeastSquares, combinations
from sciml.slabs.tile_nodes import Reach, TileNodes
from sciml.slabs.tile_space import TileSpace

# What steps may leave of residuals; that does not bring back what smaller rows lose, as more steps do where tiles are at rest.
_LEFT, _UNSEEN = 1e-8, 1e-10
# What of a field's own rate one that an equation couples may be to be left out.
_WEAK = 1.0


class TilePreconditioner:
    """Preconditioner of a slab on cut tiles: maps residuals at the stages to rates that make them as nearly as can be.

    Large factors are made on an ``accelerator``. Combinations of coefficients are left out whose rows are smaller than a part
    ``unseen`` of the largest: what a domain with a corner of a tile alone sees of its polynomials.
    """

    def __init__(
        self,
        slab: Slab[TileSpace],
        evaluated: Sequence[Evaluated],
        accelerator: torch.device = CPU,
        unseen: float = _UNSEEN,
    ) -> None:
        self._slab, space = slab, slab.mesh
        scale = slab.length * float(slab.stages.eigenvalues.abs().mean())
        self._reaches = [Reach(each, self._weakly(each, scale)) for each in evaluated]
        of = self._of = TileNodes(space, self._reaches)
        self._nodes = [of.nodes(number) for number in range(len(evaluated))]
        self._weights = [space.row_weights(each, lambda part: float(abs(self._unit(part, scale)))) for each in evaluated]
        self._alone = [number for number, nodes in enumerate(self._nodes) if nodes.dim() == 1]
        self._joined = [number for number, nodes in enumerate(self._nodes) if nodes.dim() == 2]
        self._slots = self._numbered([evaluated[k].values.shape[2] for k in self._alone])
        values = slab.length * slab.stages.eigenvalues
        # Eigenvalues differ little: what is orthonormal for their mean is nearly so for all.
        known = combinations(*self._rows(evaluated, _simplest(values.mean())), unseen)
        self._solvers = [TileLeastSquares(*self._rows(evaluated, _simplest(each)), known, accelerator) for each in values]
        for solver in self._solvers:
            solver.factor()

    def _rows(self, evaluated: Sequence[Evaluated], value: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The rows of all nodes, and those of pairs of nodes, for an eigenvalue of the stages."""
        unit = lambda part: self._unit(part, value)  # noqa: E731
        of, space = self._of, self._slab.mesh
        slopes = [space.rows(each, own, unit, value.dtype) for each, own in zip(evaluated, self._weights, strict=True)]
        rows = [of.rows(number, each) for number, each in enumerate(slopes)]
        return self._placed([rows[k] for k in self._alone]), [(self._nodes[k], rows[k]) for k in self._joined]

    def _weakly(self, evaluated: Evaluated, scale: float) -> set[int]:
        """Fields that an equation couples weakly, as a reaction does within a short slab: rates hardly change with them.

        Without them fields that nothing else couples have factors of their own, a ninth of the work for three.
        """
        orders = self._slab.orders
        rates = [part for part in evaluated.parts if part.in_time == orders[part.field] > 0]
        if not (rates and evaluated.values.numel() and isinstance(evaluated.site.term.place, Interior | Within)):
            return set()
        size = lambda part: float(part.slopes.abs().max() * abs(self._unit(part, scale)))  # noqa: E731
        least = min(map(size, rates))
        strong = {part.field for part in evaluated.parts if part.in_time or part.in_space or not orders[part.field]}
        others = [part for part in evaluated.parts if part.field not in strong]
        return {part.field for part in others if size(part) <= _WEAK * least}

    def _unit(self, part: Part, scaled: Any) -> Any:
        """What a jet's rate counts where a slab is as long as ``scaled``."""
        return scaled ** (self._slab.orders[part.field] - part.in_time) * self._slab.units[part.field]

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
        slab, into = self._slab, self._slab.stages.inverse
        weighted = [each * weight[:, None] for each, weight in zip(values, self._weights, strict=True)]
        turned = [(into @ each.to(into).flatten(1)).view(len(into), *each.shape[1:]) for each in weighted]
        found = []
        for pair, solver in enumerate(self._solvers):
            own = [each[pair] if solver.dtype.is_complex else each[pair].real for each in turned]
            alone = self._placed([own[k] for k in self._alone])
            rows = [each[:, :, None] for each in (alone, *(own[k] for k in self._joined))]
            solved = solver.solve(rows, _LEFT)[:, :, 0]
            found.append(self._of.coefficients(solved).transpose(0, 1).to(into))
        modes = torch.stack(found).flatten(1)
        return (slab.stages.vectors @ modes).real.view(slab.stages.count, len(slab.orders), -1)


def _simplest(value: Tensor) -> Tensor:
    """A number without an imaginary part as a real one: its factor takes a quarter of the work."""
    return value if bool(value.imag) else value.real

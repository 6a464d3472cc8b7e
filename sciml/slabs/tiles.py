r"""Cut tiles in slabs of time: polynomials on the boxes of a grid that the domain cuts, solved stage by stage by least squares.

At every stage equations, conditions and the continuity of the fields and of their derivatives below the order are rows of
one least-squares problem. Frozen at their mean over the stages these are taken apart by the eigenvectors of the method of
Radau, and for each eigenvalue there is one factor. Least squares damps what diffuses; waves, which nothing damps, it may
amplify over hundreds of slabs.

References: J. C. Butcher, On the implementation of implicit Runge-Kutta methods, BIT 16 (1976); P. B. Bochev and M. D.
Gunzburger, Least-Squares Finite Element Methods, Springer 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor

from sciml.geometry import Interior
from sciml.models import Tiles
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, Term
from sciml.slabs.system import Evaluated, Part, Site, Slab
from sciml.solvers.tile_system import SIDES, TileLeastSquares, gauss_grid
from sciml.typing import MultiIndex

_REFINEMENTS = 4
# Points along each coordinate of a cut tile to choose from, for one of a whole tile.
_FINER = 3
_OUTSIDE = 1e-6


class TileSpace:
    """The functions on tiles of the coordinates beside time, as slabs of time use them.

    Args:
        problem: whose domain cuts the tiles.
        model: tiles in coordinates scaled to [-1, 1].
        side: Gauss points along each coordinate of a whole tile.
    """

    def __init__(self, problem: Problem, model: Tiles, side: int) -> None:
        self.model, self.side = model, side
        self.names = tuple(name for name in problem.coordinates if name != problem.time)
        self._place = [problem.coordinates.index(name) for name in self.names]
        bounds = torch.tensor([problem.domain.bounds[name] for name in self.names], dtype=torch.float64)
        self._center, self._half = bounds.mean(1), bounds.diff(dim=1)[:, 0] / 2
        self.halves = model.halves * self._half
        self._degrees = torch.tensor([max(1, each) for each in model.degrees], dtype=torch.float64)
        self._problem = problem
        begin, end = problem.domain.bounds[str(problem.time)]
        self._when = (begin + end) / 2

    @property
    def width(self) -> int:
        """The number of coefficients of a field."""
        return len(self.model.live) * self.model.width

    def local(self, weights: Tensor) -> Tensor:
        """Coefficients by tile, ``(times, T, K)``."""
        return weights.unflatten(1, (len(self.model.live), self.model.width))

    def unit(self, tiles: Tensor, index: MultiIndex) -> Tensor:
        """By how much a derivative exceeds the function, at most about: ``(E,)``."""
        found = torch.ones(len(tiles), dtype=torch.float64)
        for name in index:
            column = self.names.index(name)
            found = found * self._degrees[column] / self.halves[tiles, column]
        return found

    def points(self, tiles: Tensor, local: Tensor) -> Tensor:
        """Places ``(E, q, D)`` in local coordinates of tiles ``(E,)``, in the units of the coordinates."""
        scaled = self.model.centers[tiles][:, None] + local * self.model.halves[tiles][:, None]
        return self._center + self._half * scaled

    def contains(self, points: Tensor) -> Tensor:
        """Which of places ``(E, q, D)`` lie in the domain, ``(E, q)``."""
        return contained(self._problem, self._place, self._when, points)

    @cached_property
    def inside(self) -> tuple[TileTrace, Tensor]:
        """Gauss points of whole tiles, as many points inside of cut ones, and which of them lie in the domain, ``(T, q)``.

        Where a small part of a tile lies inside, the points of the whole one would miss it.
        """
        tiles = torch.arange(len(self.model.live))
        local = gauss_grid(self.side, len(self.names)).expand(len(tiles), -1, -1)
        inside = self.contains(self.points(tiles, local))
        cut = torch.nonzero(~inside.all(1))[:, 0]
        if len(cut):
            local = local.clone()
            fine = gauss_grid(_FINER * self.side, len(self.names))
            within = self.contains(self.points(cut, fine.expand(len(cut), -1, -1)))
            for tile, own in zip(cut.tolist(), within, strict=True):
                numbers = torch.nonzero(own)[:, 0]
                if len(numbers):
                    places = torch.linspace(0, len(numbers) - 1, min(len(numbers), local.shape[1])).round().long()
                    local[tile, : len(places)] = fine[numbers[places]]
                    inside[tile] = torch.arange(local.shape[1]) < len(places)
        return TileTrace(self, tiles, local), inside

    def scattered(self, points: Sequence[Tensor]) -> tuple[tuple[TileTrace, ...], Tensor, Tensor]:
        """Places ``(n, D)`` or pairs of such gathered by tiles: traces, the number of each place ``(E, q)``, which are real."""
        scaled = [(each[:, self._place] - self._center) / self._half for each in points]
        tiles = [self.model.tile(each) for each in scaled]
        key = tiles[0] if len(tiles) == 1 else tiles[0] * len(self.model.live) + tiles[1]
        order = torch.argsort(key, stable=True)
        _, groups, counts = torch.unique_consecutive(key[order], return_inverse=True, return_counts=True)
        starts = torch.cumsum(counts, 0) - counts
        place = torch.arange(len(order)) - starts[groups]
        # What is missing repeats the first one, and counts nothing.
        numbers = order[starts][:, None].expand(-1, int(counts.max())).clone()
        numbers[groups, place] = order
        real = torch.arange(numbers.shape[1]) < counts[:, None]
        found = []
        for own, each in zip(tiles, scaled, strict=True):
            of = own[numbers[:, 0]]
            found.append(
                TileTrace(
                    self, of, self.model.local(each[numbers].flatten(0, 1), own[numbers].flatten()).view(*numbers.shape, -1)
                )
            )
        return tuple(found), numbers, real

    def continuity(self) -> list[Site]:
        """Every field, and its derivatives across a side below the order, is the same on both tiles of a side."""
        found = []
        problem = self._problem
        for column, pairs in self.model.neighbours():
            across = gauss_grid(self.side, len(self.names) - 1)
            one = torch.cat([across[:, :column], torch.ones(len(across), 1), across[:, column:]], dim=1).double()
            two = one.clone()
            two[:, column] = -1.0
            inside = (
                self.contains(self.points(pairs[:, 0], one.expand(len(pairs), -1, -1))) if len(pairs) else torch.zeros(0, 1)
            )
            kept = inside.any(1)
            pairs, inside = pairs[kept], inside[kept]
            if not len(pairs):
                continue
            traces = tuple(TileTrace(self, pairs[:, k], each.expand(len(pairs), -1, -1)) for k, each in enumerate((one, two)))
            for name in problem.fields:
                for power in range(max(1, problem.order(name, self.names[column]))):
                    index = (self.names[column],) * power
                    term = Term(f"continuity.{name}", Interior(), partial(_jump, name, index))
                    found.append(Site(term, traces, inside.double()))
        return found

    def sizes(self, weights: Tensor) -> Tensor:
        """The root mean squares in the domain of functions with coefficients ``(..., T K)``."""
        trace, inside = self.inside
        values = trace.jet(self.local(weights.flatten(0, -2)), ()).square() * inside
        return (values.sum((1, 2)) / inside.sum()).sqrt().view(weights.shape[:-1])

    def interpolated(self, values: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
        """Coefficients ``(k, T K)`` of the polynomials nearest to functions of places ``(n,)`` by coordinate, ``(k, n)``.

        Where they are numbers outside the domain as well, these say how a polynomial goes on there, with little weight.
        """
        trace, inside = self.inside
        whole = TileTrace(self, trace.tiles, gauss_grid(self.side, len(self.names)).expand(len(trace.tiles), -1, -1))
        rows, wanted = [], []
        for each, weight in ((trace, inside.double()), (whole, torch.full((1, 1), _OUTSIDE, dtype=torch.float64))):
            found = values([column.flatten() for column in each.columns]).unflatten(1, each.columns[0].shape)
            weights = weight * found.isfinite().all(0)
            rows.append(each.basis(()) * weights[:, :, None])
            wanted.append((torch.nan_to_num(found, 0.0, 0.0, 0.0) * weights).permute(1, 2, 0))
        found = torch.linalg.lstsq(torch.cat(rows, dim=1), torch.cat(wanted, dim=1), driver="gelsd", rcond=1e-13).solution
        return found.permute(2, 0, 1).flatten(1)


def contained(problem: Problem, place: Sequence[int], when: float, points: Tensor) -> Tensor:
    """Which of places ``(..., D)`` by the coordinates beside time lie in the domain at some time."""
    whole = torch.full((points[..., 0].numel(), len(problem.coordinates)), when, dtype=torch.float64)
    whole[:, list(place)] = points.reshape(-1, points.shape[-1])
    return torch.from_numpy(problem.domain.contains(whole.numpy())).view(points.shape[:-1])


class TileTrace:
    """Jets at places of tiles: ``tiles`` ``(E,)``, and as many places in each, in local coordinates ``(E, q, D)``."""

    def __init__(self, space: TileSpace, tiles: Tensor, local: Tensor) -> None:
        self._space, self.tiles, self._local = space, tiles, local
        self.columns = tuple(column.contiguous() for column in space.points(tiles, local).unbind(2))
        self._kept: dict[MultiIndex, Tensor] = {}

    def basis(self, index: MultiIndex) -> Tensor:
        """A derivative of all products, ``(E, q, K)``."""
        index = tuple(sorted(index))
        if index not in self._kept:
            space = self._space
            orders = [index.count(name) for name in space.names]
            # Places that all tiles share have one table.
            shared = self._local.stride(0) == 0 and len(self._local) > 1
            local = self._local[:1] if shared else self._local
            table = space.model.functions(local.reshape(-1, local.shape[2]), orders).view(*local.shape[:2], -1)
            factor = torch.ones(len(self.tiles), dtype=torch.float64)
            for column, order in enumerate(orders):
                factor = factor / space.halves[self.tiles, column] ** order
            self._kept[index] = table * factor[:, None, None]
        return self._kept[index]

    def jet(self, local: Tensor, index: MultiIndex) -> Tensor:
        """A derivative there, ``(times, E, q)``."""
        return torch.bmm(local[:, self.tiles].transpose(0, 1), self.basis(index).mT).transpose(0, 1)


def _jump(field: str, index: MultiIndex, evaluation: Evaluation) -> Tensor:
    one, two = evaluation.spaces
    return one.jet(field, index) - two.jet(field, index)


class TilePreconditioner:
    """Maps residuals at the stages to rates that make them as nearly as can be, approximately."""

    def __init__(self, slab: Slab[TileSpace], evaluated: Sequence[Evaluated]) -> None:
        self._slab = slab
        self._tiles = [tuple(cast(TileTrace, trace).tiles for trace in each.site.traces) for each in evaluated]
        self._weights = [self._weight(each) for each in evaluated]
        self._alone = [number for number, tiles in enumerate(self._tiles) if len(tiles) == 1]
        self._joined = [number for number, tiles in enumerate(self._tiles) if len(tiles) == 2]
        self._solvers = []
        for value in slab.length * slab.stages.eigenvalues:
            joined = [(torch.stack(self._tiles[k], dim=1), self._rows(k, evaluated[k], value)) for k in self._joined]
            rows = torch.cat([self._placed(k, self._rows(k, evaluated[k], value)) for k in self._alone], dim=1)
            self._solvers.append(TileLeastSquares(rows, joined))
            self._solvers[-1].factor()

    def _weight(self, evaluated: Evaluated) -> Tensor:
        """What the rows at each tile are multiplied by: the reciprocal of their size, and of the root of their number."""
        slab, space = self._slab, self._slab.mesh
        scale = slab.length * float(slab.stages.eigenvalues.abs().mean())
        size = torch.zeros_like(evaluated.values[0])
        for part in evaluated.parts:
            unit = slab.units[part.field] * space.unit(cast(TileTrace, part.trace).tiles, part.in_space)
            power = slab.orders[part.field] - part.in_time
            size += part.slopes.mean(0).abs() * unit[:, None] * scale**power
        counted = (size > 0).sum(1).clamp_min(1)
        typical = (size.square().sum(1) / counted).sqrt()
        whole = evaluated.site.term.name in slab.problem.equations
        rows = space.side ** (len(space.names) if whole else len(space.names) - 1)
        return torch.where(typical > 0, (1.0 if whole else SIDES) / (typical * math.sqrt(rows)), torch.zeros_like(typical))

    def _rows(self, number: int, evaluated: Evaluated, scaled: Tensor) -> Tensor:
        """A site's rows for one eigenvalue: ``(E, q, w)``, for pairs ``(E, q, 2 w)``."""
        slab, traces = self._slab, evaluated.site.traces
        shape = *evaluated.values.shape[1:], len(traces), len(slab.orders), slab.mesh.model.width
        found = torch.zeros(shape, dtype=scaled.dtype)
        for part in evaluated.parts:
            factor = scaled ** (slab.orders[part.field] - part.in_time) * slab.units[part.field]
            slopes = part.slopes.mean(0) * self._weights[number][:, None]
            basis = cast(TileTrace, part.trace).basis(part.in_space)
            found[:, :, _member(traces, part), part.field] += factor * (slopes[:, :, None] * basis)
        return found.flatten(2)

    def _placed(self, number: int, rows: Tensor) -> Tensor:
        """Rows of some tiles as rows of all of them."""
        (tiles,) = self._tiles[number]
        found = rows.new_zeros(len(self._slab.mesh.model.live), *rows.shape[1:])
        found[tiles] = rows
        return found

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """Rates ``(p, F, T K)`` from residuals, each ``(p, E, q)``."""
        slab, into = self._slab, self._slab.stages.inverse
        weighted = [each * weight[:, None] for each, weight in zip(values, self._weights, strict=True)]
        turned = [(into @ each.to(into).flatten(1)).view(len(into), *each.shape[1:]) for each in weighted]
        found = []
        for pair, solver in enumerate(self._solvers):
            alone = torch.cat([self._placed(k, turned[k][pair]) for k in self._alone], dim=1)
            found.append(solver.solve([alone, *(turned[k][pair] for k in self._joined)], _REFINEMENTS))
        fields, tiles = len(slab.orders), len(slab.mesh.model.live)
        modes = torch.stack(found).view(len(into), tiles, fields, -1).transpose(1, 2).flatten(1)
        return 2 * (slab.stages.vectors @ modes).real.view(slab.stages.count, fields, -1)


def _member(traces: Sequence[object], part: Part) -> int:
    """Which of a pair's traces a part belongs to."""
    return next(number for number, trace in enumerate(traces) if trace is part.trace)

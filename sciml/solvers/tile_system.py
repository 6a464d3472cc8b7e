r"""Least squares on cut tiles: equations, conditions and continuity as rows, condensed tile by tile, solved by a banded factor.

The rows on one tile are reduced to a triangle by Householder's QR, which loses nothing; the rows that join tiles stay as they
are. Their normal equations have the sparsity of the tiles' neighbourhood, a band after reverse Cuthill-McKee. What their
squared condition number loses, conjugate gradients on the rows themselves bring back (CGLS, preconditioned by the factor).

Reference: A. Bjorck, Numerical Methods for Least Squares Problems, SIAM 1996, sections 2.4 and 7.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from sciml.geometry import Interior, PointSet, Within
from sciml.jets import RandomJets
from sciml.jets.random import USUAL
from sciml.models import Scaled, Tiles
from sciml.models.bases import gauss
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.linearize import linearize
from sciml.typing import MultiIndex

# Rows of conditions and of continuity, which hold on sets of lower dimension, against those of equations.
SIDES = 3.0
# Numbers in the rows that are made at once.
_CHUNK = 2e7
_RIDGE = 1e-13
# Combinations whose rows are smaller than that are left out.
_UNSEEN = 1e-10
_REFINEMENTS, _REFINED = 30, 1e-13


class _Jets:
    """Jets at points of tiles, of polynomials with known coefficients."""

    def __init__(self, rows: TileRows, tile: Tensor, local: Tensor, coefficients: Tensor) -> None:
        self._rows, self._tile, self._local = rows, tile, local
        self._own = coefficients[tile]
        self.functions: dict[tuple[int, ...], Tensor] = {}

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        """The derivative ``index`` of ``field`` at all points."""
        column = self._rows.problem.fields.index(field)
        values = (self._own[:, column] * self.basis(index)).sum(1) * self._rows.scale[column]
        return values if index else values + self._rows.offset[column]

    def basis(self, index: MultiIndex) -> Tensor:
        """A derivative of all products, by coordinates in their units, ``(n, K)``."""
        orders = tuple(index.count(name) for name in self._rows.problem.coordinates)
        if orders not in self.functions:
            found = self._rows.model.functions(self._local, orders)
            halves = self._rows.halves[self._tile]
            for column, order in enumerate(orders):
                found = found / halves[:, column, None] ** order if order else found
            self.functions[orders] = found
        return self.functions[orders]


@dataclass(frozen=True)
class _Part:
    """Points of some tiles with the terms that hold there: ``tiles`` ``(n, 1)``, or ``(n, 2)`` for pairs; row factors."""

    block: Collocation
    tiles: Tensor
    factors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Joined:
    """Rows that join pairs of tiles, ``(P, 2)``: matrices ``(P, m, 2 F K)`` and residuals ``(P, m)``, padded by zeros."""

    tiles: Tensor
    slopes: Tensor
    values: Tensor


class TileRows:
    """All rows of a problem on tiles.

    Args:
        problem: with its unknowns bound.
        trial: the tiles in units of coordinates and fields.
        blocks: points and the terms that hold there; for paired points both members.
        points_a_side: how many points along one coordinate of a whole tile: the density that all rows are scaled by.
    """

    def __init__(self, problem: Problem, trial: Scaled, blocks: Iterable[Collocation], points_a_side: int) -> None:
        self.problem, self.trial = problem, trial
        model = self.model = cast(Tiles, trial.model)
        self.offset, self.scale = trial.offset.tolist(), trial.scale.tolist()
        self.halves = model.halves * trial.half_width
        self._degrees = torch.tensor([max(1, each) for each in model.degrees], dtype=torch.float64)
        self._side = points_a_side
        self.width = len(problem.fields) * model.width
        self._parts = [part for block in blocks for part in self._placed(block)]
        self._continuity = self._continuous()

    def _local(self, points: Tensor) -> Tensor:
        """Points in the coordinates of the background grid."""
        return (points - self.trial.center) / self.trial.half_width

    def _placed(self, block: Collocation) -> Iterable[_Part]:
        tiles = torch.stack([self.model.tile(self._local(points)) for points in block.sample.points], dim=1)
        key = tiles[:, 0] if tiles.shape[1] == 1 else tiles[:, 0] * len(self.model.live) + tiles[:, 1]
        order = torch.argsort(key, stable=True)
        count = max(1, int(_CHUNK / (self.width * tiles.shape[1] * max(1, len(block.terms)))))
        for some in _whole_groups(key[order], count):
            chosen = order[some]
            part = block.part(chosen)
            yield _Part(part, tiles[chosen], self._factors(part, tiles[chosen]))

    def _factors(self, block: Collocation, tiles: Tensor) -> dict[str, Tensor]:
        """What every row is multiplied by: the reciprocal of its size on its tile, and of the root of the number of rows."""
        half_widths = self.problem.domain.half_widths
        fields = dict(zip(self.problem.fields, zip(self.offset, self.scale, strict=True), strict=True))
        generator = torch.Generator().manual_seed(0)
        jets = [RandomJets(block.size, fields, half_widths, USUAL[0], generator=generator) for _ in block.sample.points]
        at = Evaluation.of(self.problem, block.sample.points, jets, block.sample.normals)
        dimension = len(self.problem.coordinates)
        found = {}
        for term in block.terms:
            whole = isinstance(term.place, Interior | Within)
            size = torch.zeros(block.size, dtype=torch.float64)
            for space, tile in zip(linearize(term, at).by_jet, tiles.unbind(1), strict=True):
                for (field, index), slope in space.items():
                    size += slope.detach().abs() * self._unit(field, index, tile)
            key = tiles[:, 0]
            mean = torch.zeros(len(self.model.live), dtype=torch.float64).index_add_(0, key, size.square())
            count = torch.bincount(key, minlength=len(self.model.live)).clamp_min(1)
            typical = (mean / count).sqrt()[key].clamp_min(1e-300)
            rows = self._side ** (dimension if whole else dimension - 1)
            found[term.name] = (1.0 if whole else SIDES) / (math.sqrt(rows) * typical)
        return found

    def _unit(self, field: str, index: MultiIndex, tile: Tensor) -> Tensor:
        """How large a derivative is where a field is as large as it is, for each point's tile."""
        found = torch.full((len(tile),), self.scale[self.problem.fields.index(field)], dtype=torch.float64)
        for name in index:
            column = self.problem.coordinates.index(name)
            found = found * self._degrees[column] / self.halves[tile, column]
        return found

    def _continuous(self) -> list[Joined]:
        """Fields, and their derivatives across a side below the order, are the same on both of its tiles."""
        found = []
        problem, model, dimension = self.problem, self.model, len(self.problem.coordinates)
        for column, pairs in model.neighbours():
            across = gauss_grid(self._side, dimension - 1)
            local = torch.cat([across[:, :column], torch.ones(len(across), 1), across[:, column:]], dim=1).double()
            other = local.clone()
            other[:, column] = -1.0
            orders = [max(1, problem.order(field, problem.coordinates[column])) for field in problem.fields]
            if not len(pairs):
                continue
            points = model.centers[pairs[:, 0], None] + local * model.halves[pairs[:, 0], None]
            physical = self.trial.center + self.trial.half_width * points
            inside = torch.from_numpy(problem.domain.contains(physical.flatten(0, 1).numpy())).view(points.shape[:2])
            kept = inside.any(1)
            pairs, inside = pairs[kept], inside[kept]
            rows = []
            for number, order in enumerate(orders):
                for power in range(order):
                    powers = tuple(power if place == column else 0 for place in range(dimension))
                    one, two = model.functions(local, powers), model.functions(other, powers)
                    ratio = (model.halves[pairs[:, 0], column] / model.halves[pairs[:, 1], column]) ** power
                    both = one.new_zeros(len(pairs), len(local), 2, len(problem.fields), model.width)
                    both[:, :, 0, number] = one
                    both[:, :, 1, number] = -two * ratio[:, None, None]
                    both *= inside[:, :, None, None, None] * SIDES / float(self._degrees[column]) ** power
                    rows.append(both.flatten(2) / math.sqrt(len(local)))
            slopes = torch.cat(rows, dim=1)
            found.append(Joined(pairs, slopes, slopes.new_zeros(slopes.shape[:2])))
        return found

    def values(self, coefficients: Tensor) -> list[Tensor]:
        """All rows at some coefficients ``(T, F, K)``."""
        found = [values for part in self._parts for values, _ in self._rows(part, coefficients, slopes=False)]
        flat = coefficients.flatten(1)
        for each in self._continuity:
            found.append(torch.einsum("pms,ps->pm", each.slopes, flat[each.tiles].flatten(1)).flatten())
        return found

    def jumps(self, coefficients: Tensor) -> float:
        """The largest root mean square of a jump of the fields between tiles, as a share of their size."""
        flat = coefficients.flatten(1)
        found = [torch.einsum("pms,ps->pm", each.slopes, flat[each.tiles].flatten(1)) for each in self._continuity]
        return max((float((each.square().sum(1).mean()).sqrt()) / SIDES for each in found), default=0.0)

    def _rows(self, part: _Part, coefficients: Tensor, *, slopes: bool) -> list[tuple[Tensor, Tensor]]:
        """Each residual's values ``(n,)`` and its slopes by the coefficients of its tiles ``(n, S, F, K)``."""
        points = part.block.sample.points
        jets = [
            _Jets(self, tile, self.model.local(self._local(each), tile), coefficients)
            for each, tile in zip(points, part.tiles.unbind(1), strict=True)
        ]
        at = Evaluation.of(self.problem, points, jets, part.block.sample.normals)
        found = []
        for term in part.block.terms:
            factor = part.factors[term.name]
            if not slopes:
                found.append((factor * term.evaluate(at).detach(), factor[:0]))
                continue
            linear = linearize(term, at)
            whole = factor.new_zeros(len(factor), len(points), len(self.problem.fields), self.model.width)
            for number, (by_jet, supplier) in enumerate(zip(linear.by_jet, jets, strict=True)):
                for (field, index), slope in by_jet.items():
                    column = self.problem.fields.index(field)
                    unit = self.scale[column] * factor * slope.detach()
                    whole[:, number, column].addcmul_(unit[:, None], supplier.basis(index))
            found.append((factor * linear.values.detach(), whole))
        return found

    def linearised(self, coefficients: Tensor) -> TileLinearization:
        """The rows and their slopes at some coefficients, condensed."""
        tiles, width = len(self.model.live), self.width
        triangles = coefficients.new_zeros(tiles, width + 1, width + 1)
        flat = coefficients.flatten(1)
        joined = [
            Joined(each.tiles, each.slopes, torch.einsum("pms,ps->pm", each.slopes, flat[each.tiles].flatten(1)))
            for each in self._continuity
        ]
        for part in self._parts:
            rows = self._rows(part, coefficients, slopes=True)
            values = torch.stack([value for value, _ in rows], dim=1)
            matrix = torch.stack([slope for _, slope in rows], dim=1).flatten(3)
            same = part.tiles[:, 0] == part.tiles[:, -1]
            alone = matrix.sum(2)[same] if part.tiles.shape[1] > 1 else matrix[:, :, 0]
            _condense(triangles, part.tiles[same, 0], torch.cat([alone, values[same][..., None]], dim=2))
            if not bool(same.all()):
                joined.append(_paired(part.tiles[~same], matrix[~same].flatten(2), values[~same]))
        return TileLinearization(triangles, joined)


def _whole_groups(key: Tensor, most: int) -> Iterable[slice]:
    """Slices of a sorted key of about so many entries, none of which divides a group."""
    _, counts = torch.unique_consecutive(key, return_counts=True)
    start = size = 0
    for count in counts.tolist():
        if size and size + count > most:
            yield slice(start, start + size)
            start, size = start + size, 0
        size += count
    if size:
        yield slice(start, start + size)


def _padded(key: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted keys ``(G,)`` and the rows ``(n, k, w)`` of each, one below another and zeros, ``(G, m, w)``."""
    names, groups, counts = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    starts = torch.cumsum(counts, 0) - counts
    place = torch.arange(len(key)) - starts[groups]
    found = rows.new_zeros(len(names), int(counts.max()), *rows.shape[1:])
    found[groups, place] = rows
    return names, found.flatten(1, 2)


def _condense(triangles: Tensor, tile: Tensor, rows: Tensor) -> None:
    """Take rows ``(n, k, w)`` of tiles into the triangles of these."""
    if not len(tile):
        return
    names, padded = _padded(tile, rows)
    whole = torch.cat([triangles[names], padded], dim=1)
    triangles[names] = torch.linalg.qr(whole, mode="r").R


def _paired(tiles: Tensor, slopes: Tensor, values: Tensor) -> Joined:
    """Rows ``(n, k, 2 w)`` of pairs of tiles, gathered by pair."""
    key = tiles[:, 0] * (int(tiles.max()) + 1) + tiles[:, 1]
    names, padded = _padded(key, torch.cat([slopes, values[..., None]], dim=2))
    first = torch.searchsorted(key, names)
    if padded.shape[1] > padded.shape[2]:
        padded = torch.linalg.qr(padded, mode="r").R
    return Joined(tiles[first], padded[:, :, :-1], padded[:, :, -1])


class TileLinearization:
    """Condensed rows at one position; ``step`` solves for the change of all coefficients."""

    def __init__(self, triangles: Tensor, joined: Sequence[Joined]) -> None:
        self._values = [triangles[:, :, -1], *(each.values for each in joined)]
        self._rows = TileLeastSquares(triangles[:, :, :-1], [(each.tiles, each.slopes) for each in joined])

    def step(self, damping: float = 0.0) -> Tensor | None:
        """The least-squares step for all coefficients, flat, or None where the factorisation fails."""
        try:
            self._rows.factor(damping)
        except np.linalg.LinAlgError:
            return None
        return -self._rows.solve(self._values).flatten()


class TileLeastSquares:
    """Least squares of rows on tiles and rows that join pairs of them, real or complex, for many right-hand sides.

    Args:
        slopes: the rows of each tile, ``(T, m, w)``.
        joined: pairs of tiles ``(P, 2)`` and their rows ``(P, m, 2 w)``.
    """

    def __init__(self, slopes: Tensor, joined: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._count, _, self._width = slopes.shape
        self._turn = self._orthonormal(slopes, joined)
        self._slopes = slopes @ self._turn
        self._joined = []
        for tiles, rows in joined:
            both = rows.unflatten(2, (2, self._width))
            turned = [both[:, :, member] @ self._turn[tiles[:, member]] for member in (0, 1)]
            self._joined.append((tiles, torch.cat(turned, dim=2)))
        self._order = self._arranged()
        self._damping, self._factored = 0.0, np.zeros((0, 0))

    def _orthonormal(self, slopes: Tensor, joined: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """For each tile the coefficients of combinations whose rows are orthonormal on it, ``(T, w, w)``.

        What the rows hardly see, polynomials that are large outside the domain alone, is left out: zero columns. Scaled one by
        one, columns would leave a condition number whose square is beyond all digits.
        """
        triangles = torch.linalg.qr(slopes, mode="r").R
        triangles = torch.cat(
            [triangles, triangles.new_zeros(self._count, self._width - triangles.shape[1], self._width)], dim=1
        )
        for tiles, rows in joined:
            for member, own in enumerate(rows.split(self._width, dim=2)):
                order = torch.argsort(tiles[:, member], stable=True)
                _condense(triangles, tiles[order, member], own[order])
        _, sizes, right = torch.linalg.svd(triangles)
        seen = sizes > _UNSEEN * sizes[:, :1].clamp_min(1e-300)
        return right.mH * torch.where(seen, 1 / sizes, torch.zeros_like(sizes))[:, None]

    def _arranged(self) -> Tensor:
        """The place of every tile in an order in which neighbours are close."""
        pairs = torch.cat([torch.zeros(0, 2, dtype=torch.int64), *(tiles for tiles, _ in self._joined)])
        rows, columns = torch.cat([pairs, pairs.flip(1)]).T.numpy()
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(self._count, self._count))
        place = torch.empty(self._count, dtype=torch.int64)
        place[torch.from_numpy(reverse_cuthill_mckee(graph, symmetric_mode=True).astype(np.int64))] = torch.arange(self._count)
        return place

    @property
    def band(self) -> int:
        """How many diagonals the factor fills."""
        apart = [int((self._order[tiles[:, 0]] - self._order[tiles[:, 1]]).abs().max()) for tiles, _ in self._joined]
        return (max(apart, default=0) + 1) * self._width

    def factor(self, damping: float = 0.0) -> None:
        """Factor the normal equations; numpy's LinAlgError where they are not positive definite."""
        width, size, band = self._width, self._count * self._width, self.band
        flat = self._slopes.new_zeros(band * size)
        blocks = [(self._order, self._order, self._slopes.mH @ self._slopes)]
        for tiles, rows in self._joined:
            one, two = rows.split(width, dim=2)
            first, second = self._order[tiles].unbind(1)
            # The later one's rows: the band holds what is below the diagonal.
            swap = (first < second)[:, None, None]
            late, early = torch.where(swap, two, one), torch.where(swap, one, two)
            blocks += [(first, first, one.mH @ one), (second, second, two.mH @ two)]
            blocks.append((torch.maximum(first, second), torch.minimum(first, second), late.mH @ early))
        number = torch.arange(width)
        for first, second, products in blocks:
            row = first[:, None, None] * width + number[:, None]
            column = (second[:, None, None] * width + number).expand_as(products)
            below = row - column
            keep = (below >= 0).flatten()
            place = (below * size + column).flatten()[keep]
            flat.index_add_(0, place, products.flatten()[keep])
        table = flat.numpy().reshape(band, size)
        table[0] += damping + _RIDGE
        self._damping = damping
        self._factored = cholesky_banded(table, overwrite_ab=True, lower=True, check_finite=False)

    def _product(self, x: Tensor) -> list[Tensor]:
        """The slopes times coefficients ``(T, w)``."""
        found = [torch.bmm(self._slopes, x[:, :, None])[:, :, 0]]
        return found + [torch.bmm(rows, x[tiles].flatten(1)[:, :, None])[:, :, 0] for tiles, rows in self._joined]

    def _adjoint(self, values: Sequence[Tensor]) -> Tensor:
        found = torch.bmm(self._slopes.mH, values[0][:, :, None])[:, :, 0]
        for (tiles, rows), own in zip(self._joined, values[1:], strict=True):
            both = torch.bmm(rows.mH, own[:, :, None])[:, :, 0].view(-1, 2, self._width)
            found.index_add_(0, tiles[:, 0], both[:, 0]).index_add_(0, tiles[:, 1], both[:, 1])
        return found

    def _preconditioned(self, x: Tensor) -> Tensor:
        right = torch.empty_like(x)
        right[self._order] = x
        found = cho_solve_banded((self._factored, True), right.flatten().numpy(), check_finite=False)
        return torch.from_numpy(found).view_as(x)[self._order]

    def _coefficients(self, x: Tensor) -> Tensor:
        """Coefficients of the products from those of the combinations."""
        return torch.bmm(self._turn, x[:, :, None])[:, :, 0]

    def solve(self, values: Sequence[Tensor], most: int = _REFINEMENTS) -> Tensor:
        """The coefficients ``(T, w)`` whose rows are nearest to values: of the tiles' ``(T, m)``, then of each joined ones'."""
        # Conjugate gradients on the rows: what the squared condition number has lost.
        rows = list(values)
        found = self._slopes.new_zeros(self._count, self._width)
        gradient = self._adjoint(rows)
        direction = ready = self._preconditioned(gradient)
        size = first = _inner(gradient, ready)
        for _ in range(most):
            image = self._product(direction)
            curvature = sum(_inner(each, each) for each in image) + self._damping * _inner(direction, direction)
            if not curvature > 0:
                break
            length = size / curvature
            found = found + length * direction
            rows = [own - length * each for own, each in zip(rows, image, strict=True)]
            gradient = self._adjoint(rows) - self._damping * found
            ready = self._preconditioned(gradient)
            size, before = _inner(gradient, ready), size
            if not size > _REFINED**2 * first:
                break
            direction = ready + (size / before) * direction
        return self._coefficients(found)


def _inner(one: Tensor, other: Tensor) -> float:
    return float(torch.vdot(one.flatten(), other.flatten()).real)


def gauss_grid(side: int, dimension: int) -> Tensor:
    """Products of Gauss points on [-1, 1], ``(side**D, D)``."""
    if dimension == 0:
        return torch.zeros(1, 0, dtype=torch.float64)
    places, _ = gauss(side)
    return torch.cartesian_prod(*[places] * dimension).reshape(-1, dimension)


def gauss_points(trial: Scaled, side: int) -> Tensor:
    """Products of Gauss points on every tile, in their units, ``(T, side**D, D)``."""
    model = cast(Tiles, trial.model)
    points = model.centers[:, None] + gauss_grid(side, len(model.degrees)) * model.halves[:, None]
    return trial.center + trial.half_width * points


def interior_blocks(problem: Problem, trial: Scaled, side: int) -> list[Collocation]:
    """Gauss points of every tile inside the places where equations hold."""
    points = gauss_points(trial, side).flatten(0, 1)
    found = []
    terms = [term for term in problem.terms() if isinstance(term.place, Interior | Within)]
    for place in dict.fromkeys(term.place for term in terms):
        domain = place.part if isinstance(place, Within) else problem.domain
        inside = torch.from_numpy(np.asarray(domain.contains(points.numpy())))
        found.append(Collocation(PointSet((points[inside],)), tuple(term for term in terms if term.place == place)))
    return found


def live_boxes(problem: Problem, trial: Scaled, side: int, least: int) -> list[int]:
    """The boxes of a full grid of tiles with at least so many Gauss points inside the domain."""
    points = gauss_points(trial, side)
    inside = problem.domain.contains(points.flatten(0, 1).numpy()).reshape(len(points), -1)
    return np.flatnonzero(inside.sum(1) >= least).tolist()

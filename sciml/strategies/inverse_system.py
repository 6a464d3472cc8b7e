"""A problem's rows on a tiling, and their derivatives by weights and unknowns: sparse, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.models.tensor_product import Spot, TensorProductBasis
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.linearize import linearize, per_point
from sciml.solvers.condensation import NormalEquations, WeightLayout
from sciml.typing import MultiIndex

# Points to a tile, in the mean, from which on jets are taken tile by tile.
_MANY = 100


@dataclass(frozen=True)
class Units:
    """From the coordinates and fields of a tiling, which are of order one, to those of a problem."""

    center: Tensor
    half_width: Tensor
    offset: Tensor
    scale: Tensor


class _Jets:
    """Jets at the points of a spot."""

    def __init__(self, owner: ElementRows, spot: Spot, weights: Tensor) -> None:
        self._owner, self._spot, self._weights = owner, spot, weights
        # With many points to a tile, tile by tile; with few, all at once.
        self._own = None if _MANY * len(owner.groups) < owner.block.size else weights[spot.functions]

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        """The derivative ``index`` of ``field`` at all points."""
        column, orders, unit = self._owner.place(field, index)
        basis = self._spot.basis(orders)
        if self._own is not None:
            values = (basis * self._own[:, :, column]).sum(1)
        else:
            values = basis.new_empty(len(basis))
            for group in self._owner.groups:
                values[group] = basis[group] @ self._weights[self._spot.functions[group[0]], column]
        return unit * values if index else unit * values + self._owner.units.offset[column]


class ElementRows:
    """A block of rows on a tiling."""

    def __init__(
        self,
        problem: Problem,
        block: Collocation,
        factors: Mapping[str, Tensor],
        tiling: TensorProductBasis,
        units: Units,
        highest: Sequence[int],
    ) -> None:
        self.problem, self.block, self.units, self.factors = problem, block, units, factors
        self._spots = tuple(tiling.spot((points - units.center) / units.half_width, highest) for points in block.sample.points)
        key = torch.zeros(block.size, dtype=torch.int64)
        for spot in self._spots:
            key = key * tiling.tiles + spot.tile
        order = torch.argsort(key, stable=True)
        _, counts = torch.unique_consecutive(key[order], return_counts=True)
        self.groups = order.split(counts.tolist())
        first = torch.stack([group[0] for group in self.groups])
        self.tiles = torch.stack([spot.tile[first] for spot in self._spots], dim=1)

    def place(self, field: str, index: MultiIndex) -> tuple[int, tuple[int, ...], float]:
        """A jet's field, its orders by each coordinate, and what a derivative of the tiling is multiplied by."""
        column = self.problem.fields.index(field)
        orders = tuple(index.count(name) for name in self.problem.coordinates)
        half_width = math.prod(float(each) ** order for each, order in zip(self.units.half_width, orders, strict=True))
        return column, orders, float(self.units.scale[column]) / half_width

    def columns(self) -> Tensor:
        """The weights that each row depends on, in the order of its slopes, ``(n, S)``."""
        fields = torch.arange(len(self.problem.fields))[:, None]
        parts = [(spot.functions[:, None, :] * len(fields) + fields).flatten(1) for spot in self._spots]
        return torch.cat(parts, dim=1)

    def rows(self, weights: Tensor, raw: Mapping[str, Tensor], *, slopes: bool) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Each residual's values ``(n,)``, and slopes by the tile's weights ``(n, S)`` and by the unknowns ``(n, q)``."""
        problem, size = self.problem, self.block.size
        leaves, unknowns = per_point(problem, raw, size)
        jets = [_Jets(self, spot, weights) for spot in self._spots]
        evaluation = Evaluation.of(problem.bind(**unknowns), self.block.sample.points, jets, self.block.sample.normals)
        found = []
        for term in self.block.terms:
            factor = self.factors[term.name]
            if not slopes:
                values = factor * term.evaluate(evaluation).detach()
                found.append((values, values[:, None][:, :0], values[:, None][:, :0]))
                continue
            linear = linearize(term, evaluation, leaves)
            values = factor * linear.values.detach()
            parts = [values.new_zeros(size, len(problem.fields), spot.functions.shape[1]) for spot in self._spots]
            for part, spot, by_jet in zip(parts, self._spots, linear.by_jet, strict=True):
                for key, slope in by_jet.items():
                    column, orders, unit = self.place(*key)
                    part[:, column].addcmul_((unit * factor * slope)[:, None], spot.basis(orders))
            zero = torch.zeros_like(values)
            columns = [factor * linear.by_unknown.get(name, zero) for name in leaves]
            by_raw = torch.stack(columns, dim=1) if columns else values.new_zeros(size, 0)
            found.append((values, torch.cat([part.flatten(1) for part in parts], dim=1), by_raw))
        return found


class TilingSystem:
    """All rows of a least-squares problem on a tiling; ``judge`` weighs them to judge steps, ``pull`` holds unknowns."""

    def __init__(
        self,
        tiling: TensorProductBasis,
        placed: Sequence[ElementRows],
        weights: Mapping[str, float],
        fields: int,
        pull: Mapping[str, float] | None = None,
        judge: Mapping[str, float] | None = None,
    ) -> None:
        self.layout = WeightLayout(tiling, fields)
        self._judge = dict(weights if judge is None else judge)
        self.placed, self.weights, self.pull = tuple(placed), dict(weights), dict(pull or {})

    def loss(self, weights: Tensor, raw: Mapping[str, Tensor]) -> float:
        """The weighted sum of squares."""
        pulled = sum(weight * float(raw[name]) ** 2 for name, weight in self.pull.items())
        return pulled + sum(self.terms(weights, raw).values())

    def judged(self, weights: Tensor, raw: Mapping[str, Tensor]) -> float:
        """The sum of squares that steps are to lower."""
        pulled = sum(weight * float(raw[name]) ** 2 for name, weight in self.pull.items())
        terms = self.terms(weights, raw)
        return pulled + sum(
            value * self._judge[name] / self.weights[name] for name, value in terms.items() if self.weights[name] > 0
        )

    def terms(self, weights: Tensor, raw: Mapping[str, Tensor]) -> dict[str, float]:
        """Each term's weighted sum of squares."""
        found: dict[str, float] = {}
        for placed in self.placed:
            for term, (values, _, _) in zip(placed.block.terms, placed.rows(weights, raw, slopes=False), strict=True):
                found[term.name] = found.get(term.name, 0.0) + self.weights[term.name] * float(values @ values)
        return found

    def normal(self, weights: Tensor, raw: Mapping[str, Tensor], *, pulled: bool = True) -> tuple[NormalEquations, float]:
        """The normal equations of the linearised rows, and the loss; with what pulls at unknowns, or without."""
        layout, count = self.layout, len(raw)
        tiles, size = layout.columns.shape
        border, corner, grams = _zeros(layout.width, count + 1), _zeros(count + 1, count + 1), _zeros(tiles, size, size)
        pairs: list[tuple[Tensor, Tensor]] = []
        for placed in self.placed:
            joined = placed.tiles.shape[1]
            columns = torch.cat([layout.columns[each] for each in placed.tiles.unbind(1)], dim=1)
            order = torch.cat([layout.order + size * number for number in range(joined)])
            matrices = _zeros(len(placed.groups), joined * size, joined * size)
            edges = _zeros(len(placed.groups), joined * size, count + 1)
            rows = placed.rows(weights, raw, slopes=True)
            for term, (values, slopes, by_raw) in zip(placed.block.terms, rows, strict=True):
                weight = self.weights[term.name]
                edge = torch.cat([by_raw, values[:, None]], dim=1)
                corner += weight * (edge.T @ edge)
                slopes = slopes[:, order]
                for number, group in enumerate(placed.groups):
                    part = slopes[group]
                    matrices[number].addmm_(part.T, part, alpha=weight)
                    edges[number].addmm_(part.T, edge[group], alpha=weight)
            border.index_add_(0, columns.flatten(), edges.flatten(0, 1))
            if joined == 1:
                grams.index_add_(0, placed.tiles[:, 0], matrices)
            else:
                pairs.append((columns, matrices))
        for place, name in enumerate(raw if pulled else ()):
            weight, held = self.pull.get(name, 0.0), float(raw[name])
            corner[place, place] += weight
            corner[place, -1] += weight * held
            corner[-1, place] += weight * held
            corner[-1, -1] += weight * held**2
        more = (torch.cat([each for each, _ in pairs]), torch.cat([each for _, each in pairs])) if pairs else None
        return NormalEquations(layout, grams, border, corner, more), float(corner[-1, -1])


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)

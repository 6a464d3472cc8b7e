"""A problem's rows on a tiling, and their derivatives by weights and unknowns: sparse, tile by tile.

They are taken at Gauss points in every tile of a box and on its sides, with the weights of their quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

import scipy
import torch
from torch import Tensor

from sciml.geometry import At, Box, Face, Interior, OnFaces, Opposite, Place, PointSet, Within
from sciml.models import Scaled
from sciml.models.bases import PiecewiseBasis, gauss
from sciml.models.tensor_product import Spot, TensorProductBasis
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term, jet_value
from sciml.problem.linearize import linearize, per_point
from sciml.problem.noise import Normal
from sciml.problem.observations import Observation
from sciml.solvers.condensation import NormalEquations, WeightLayout
from sciml.typing import MultiIndex

# Points to a tile, in the mean, from which on jets are taken tile by tile.
_MANY = 100
# The order of the derivative that says how a field bends along a side.
ROUGH = 3
# What keeps Gram matrices of too few measurements positive definite.
_TINY = 1e-13


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
    """A block of rows on a tiling, each at a point of its own.

    Args:
        units: the trial function that scales coordinates and fields of the tiling, which are of order one, to the problem's.

    Attributes:
        terms: the residuals, in the order of ``rows``.
        size: how many rows each of them stands for.
        rest: what no weights can lower of the sum of squares of each, beside its rows'.
        groups: which rows lie in the same tiles.
        tiles: for each group those that its rows depend on, ``(g, m)``.
    """

    rest = 0.0

    def __init__(
        self,
        problem: Problem,
        block: Collocation,
        factors: Mapping[str, Tensor],
        tiling: TensorProductBasis,
        units: Scaled,
        highest: Sequence[int],
    ) -> None:
        self.problem, self.block, self.units, self.factors = problem, block, units, factors
        self.terms, self.size = block.terms, block.size
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


class CompressedRows:
    r"""Sufficient statistics of measured values of a field: as many rows as a tile has functions, of the same normal equations.

    :math:`\|Aw - b\|^2 = \|L^T w - c\|^2 + \|b\|^2 - \|c\|^2` with Cholesky's :math:`L L^T = A^TA` and
    :math:`c = L^{-1} A^T b`, tile by tile; the sums over measurements are taken once for a tiling.

    Args:
        term: a ``compressible`` one.
        points: where it was measured, ``(n, D)``, in the problem's units.
        factor: by which rows are multiplied.
    """

    def __init__(
        self, problem: Problem, term: Term, points: Tensor, factor: float, tiling: TensorProductBasis, units: Scaled
    ) -> None:
        observation = term.evaluate
        assert isinstance(observation, Observation)
        assert observation.field is not None
        self.terms, self.size = (term,), len(points)
        self._fields, self._column = len(problem.fields), problem.fields.index(observation.field)
        scale = float(units.scale[self._column])
        sigma = 1.0 if observation.sigma is None else observation.sigma
        weight = (factor * scale / sigma) * points.new_ones(len(points))
        wanted = (observation.measured - units.offset[self._column]) / scale
        sums = torch.stack([weight.square(), weight.square() * wanted], dim=1)
        functions, slopes, found = [], [], []
        for nodes, quadrature in tiling.quadratures((points - units.center) / units.half_width, sums):
            spot = tiling.spot(nodes, [0] * len(tiling.meshes))
            basis = spot.basis([0] * len(tiling.meshes))
            gram = basis.T @ (quadrature[:, :1] * basis)
            gram.diagonal().add_(_TINY * float(gram.diagonal().max()))
            lower = scipy.linalg.cholesky(gram.numpy(), lower=True)
            right = scipy.linalg.solve_triangular(lower, (basis.T @ quadrature[:, 1]).numpy(), lower=True)
            functions.append((spot.tile[0], spot.functions[0]))
            slopes.append(torch.from_numpy(lower.T.copy()))
            found.append(torch.from_numpy(right))
        self._slopes, self._found = torch.stack(slopes), torch.stack(found)
        self.rest = max(float((weight * wanted).square().sum() - self._found.square().sum()), 0.0)
        self.tiles = torch.stack([tile for tile, _ in functions])[:, None]
        self._functions = torch.stack([own for _, own in functions])
        self.groups = torch.arange(self._found.numel()).split(self._found.shape[1])

    def columns(self) -> Tensor:
        own = (self._functions[:, None, :] * self._fields + torch.arange(self._fields)[:, None]).flatten(1)
        return own.repeat_interleave(self._found.shape[1], 0)

    def rows(self, weights: Tensor, raw: Mapping[str, Tensor], *, slopes: bool) -> list[tuple[Tensor, Tensor, Tensor]]:
        own = weights[self._functions, self._column]
        values = (torch.einsum("tij,tj->ti", self._slopes, own) - self._found).flatten()
        if not slopes:
            return [(values, values[:, None][:, :0], values[:, None][:, :0])]
        by_weights = values.new_zeros(len(values), self._fields, own.shape[1])
        by_weights[:, self._column] = self._slopes.flatten(0, 1)
        return [(values, by_weights.flatten(1), values.new_zeros(len(values), len(raw)))]


RowsOnTiles: TypeAlias = ElementRows | CompressedRows


def compressible(term: Term) -> bool:
    """Whether a residual is a measurement of a field itself with normal noise, which is linear in weights."""
    return isinstance(term.evaluate, Observation) and term.evaluate.plain and isinstance(term.evaluate.noise, Normal)


class TilingSystem:
    """All rows of a least-squares problem on a tiling; ``judge`` weighs them to judge steps, ``pull`` holds unknowns."""

    def __init__(
        self,
        tiling: TensorProductBasis,
        placed: Sequence[RowsOnTiles],
        weights: Mapping[str, float],
        fields: int,
        pull: Mapping[str, float] | None = None,
        judge: Mapping[str, float] | None = None,
    ) -> None:
        self.layout = WeightLayout(tiling, fields)
        self.judge = dict(weights if judge is None else judge)
        self.placed, self.weights, self.pull = tuple(placed), dict(weights), dict(pull or {})

    def loss(self, weights: Tensor, raw: Mapping[str, Tensor], by: Mapping[str, float] | None = None) -> float:
        """The weighted sum of squares, with the weights of terms or by others."""
        pulled = sum(weight * float(raw[name]) ** 2 for name, weight in self.pull.items())
        terms = self.terms(weights, raw)
        if by is not None:
            terms = {name: value * by[name] / self.weights[name] for name, value in terms.items() if self.weights[name] > 0}
        return pulled + sum(terms.values())

    def terms(self, weights: Tensor, raw: Mapping[str, Tensor]) -> dict[str, float]:
        """Each term's weighted sum of squares."""
        found: dict[str, float] = {}
        for placed in self.placed:
            for term, (values, _, _) in zip(placed.terms, placed.rows(weights, raw, slopes=False), strict=True):
                squares = float(values @ values) + placed.rest
                found[term.name] = found.get(term.name, 0.0) + self.weights[term.name] * squares
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
            for term, (values, slopes, by_raw) in zip(placed.terms, rows, strict=True):
                weight = self.weights[term.name]
                edge = torch.cat([by_raw, values[:, None]], dim=1)
                corner += weight * (edge.T @ edge)
                corner[-1, -1] += weight * placed.rest
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


def roughness(problem: Problem, units: Scaled) -> list[Term]:
    r"""Residuals :math:`\partial_s^3 u` on the sides of a box, s along them, as numbers of order one."""
    found = []
    for column, name in enumerate(problem.coordinates):
        faces = OnFaces((Face(name, "lower"),) if name == problem.time else (Face(name, "lower"), Face(name, "upper")))
        for other, along in enumerate(problem.coordinates):
            if other == column:
                continue
            for number, field in enumerate(problem.fields):
                factor = float(units.half_width[other]) ** ROUGH / float(units.scale[number])
                found.append(Term(f"roughness.{field}.{name}", faces, partial(jet_value, field, (along,) * ROUGH, factor)))
    return found


def placeable(place: Place) -> bool:
    """Whether there are points of a tiling for residuals at a place."""
    if isinstance(place, OnFaces):
        return all(isinstance(face, Face) for face in place.faces)
    # Tiles end where a part that is a box does; others would cut them, and what cuts tiles is for solving.
    return isinstance(place, Interior | Opposite | At) or (isinstance(place, Within) and isinstance(place.part, Box))


def blocks_on(tiling: TensorProductBasis, problem: Problem, terms: Sequence[Term], more: int = 0) -> list[Collocation]:
    """The residuals of a problem at Gauss points of every tile, as many along each coordinate as there are functions."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    samples = {place: _placed(tiling, problem, place, more) for place in places}
    return [Collocation(samples[place][0], tuple(there), samples[place][1]) for place, there in places.items()]


def _placed(tiling: TensorProductBasis, problem: Problem, place: Place, more: int) -> tuple[PointSet, Tensor]:
    lines = [
        _line(mesh, *problem.domain.bounds[name], more) for name, mesh in zip(problem.coordinates, tiling.meshes, strict=True)
    ]
    if isinstance(place, Interior | Within):
        points, quadrature = _grid(lines)
        # Rows outside the part count nothing.
        share = torch.from_numpy(place.part.contains(points.numpy())) if isinstance(place, Within) else 1.0
        return PointSet((points,)), quadrature * share
    if isinstance(place, At):
        alone = torch.ones(1, dtype=torch.float64)
        points, quadrature = _grid(
            [line if at is None else (at * alone, alone) for line, at in zip(lines, place.position, strict=True)]
        )
        return PointSet((points,)), quadrature
    if isinstance(place, Opposite):
        pair = [_side(lines, problem, place.coordinate, end) for end in (0, 1)]
        return PointSet(tuple(points for points, _, _ in pair)), pair[0][2]
    assert isinstance(place, OnFaces)
    faces = [face for face in place.faces if isinstance(face, Face)]
    sides = [_side(lines, problem, face.coordinate, int(face.side == "upper")) for face in faces]
    points, normals, quadrature = (torch.cat([side[part] for side in sides]) for part in range(3))
    return PointSet((points,), normals, tuple(len(side[0]) for side in sides)), quadrature / len(sides)


def _side(
    lines: Sequence[tuple[Tensor, Tensor]], problem: Problem, coordinate: str | None, end: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Points of one face, the outward normals and the quadrature."""
    assert coordinate is not None
    column = problem.coordinates.index(coordinate)
    bound = torch.tensor([problem.domain.bounds[coordinate][end]], dtype=torch.float64)
    own = [(bound, torch.ones_like(bound)) if each == column else line for each, line in enumerate(lines)]
    points, quadrature = _grid(own)
    normals = torch.zeros_like(points)
    normals[:, column] = 2.0 * end - 1.0
    return points, normals, quadrature


def _line(mesh: PiecewiseBasis, low: float, high: float, more: int) -> tuple[Tensor, Tensor]:
    """Places of one coordinate, in its unit, and their quadrature."""
    places, weights = gauss(mesh.degree + 1 + more)
    breaks = torch.from_numpy(mesh.breaks)
    unit = breaks[:-1, None] + mesh.half[:, None] * (1 + places)
    quadrature = mesh.half[:, None] * weights / 2 / mesh.half.sum()
    return (low + (high - low) * (unit + 1) / 2).flatten(), quadrature.flatten()


def _grid(lines: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    points = torch.cartesian_prod(*(at for at, _ in lines)).reshape(-1, len(lines))
    quadrature = torch.cartesian_prod(*(share for _, share in lines)).reshape(-1, len(lines)).prod(1)
    return points, quadrature


def orders_asked_by(problem: Problem, terms: Sequence[Term]) -> tuple[int, ...]:
    """The highest derivative by each coordinate that some residuals ask for."""
    asked = {index for term in terms for _, index in problem.system.asked(term)}
    return tuple(max((index.count(name) for index in asked), default=0) for name in problem.coordinates)

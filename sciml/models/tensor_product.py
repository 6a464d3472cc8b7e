"""Tensor-product bases of piecewise polynomials, whose functions extend over neighbouring tiles only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sciml.models.bases import PiecewiseBasis, chebyshev, chebyshev_places, from_values, located

# Scattered points whose products of Lagrange polynomials are in memory at once.
_PORTION = 2_000


@dataclass(frozen=True)
class Spot:
    """Scattered points: tiles ``(n,)``, functions there ``(n, L)``, derivatives by coordinate and order ``(n, J)``."""

    tile: Tensor
    functions: Tensor
    tables: Sequence[Sequence[Tensor]]

    def basis(self, orders: Sequence[int]) -> Tensor:
        """A derivative of the products by so many times each coordinate, ``(n, L)``."""
        return _khatri_rao([table[order] for table, order in zip(self.tables, orders, strict=True)])


def _khatri_rao(tables: Sequence[Tensor]) -> Tensor:
    """The row-wise Khatri-Rao product of tables ``(n, J_i)``: all products of their columns, the last fastest."""
    found, *others = tables
    for table in others:
        found = (found[:, :, None] * table[:, None, :]).flatten(1)
    return found


class TensorProductBasis:
    r"""The functions :math:`\prod_i \phi_{k_i}(x_i)`, numbered so that those that share a tile have close numbers.

    A coordinate's functions are sorted along it; ``outer`` is outermost, and a band of width
    :math:`J\,\prod_{i \ne outer} W_i` holds all pairs of functions that meet. Coordinates are scaled to [-1, 1].
    """

    def __init__(self, meshes: Sequence[PiecewiseBasis], outer: int) -> None:
        self.meshes, self.outer = tuple(meshes), outer
        columns = [outer, *(column for column in range(len(meshes)) if column != outer)]
        strides, stride = [0] * len(meshes), 1
        for column in reversed(columns):
            strides[column] = stride
            stride *= meshes[column].width
        self.width = stride
        self.band = (meshes[outer].degree + 1) * strides[outer]
        self._numbers = tuple(mesh.ranks * strides[column] for column, mesh in enumerate(meshes))

    @property
    def tiles(self) -> int:
        """How many there are."""
        return math.prod(mesh.count for mesh in self.meshes)

    def spot(self, points: Tensor, highest: Sequence[int]) -> Spot:
        """The functions at points ``(n, D)``, with derivatives up to the highest by each coordinate."""
        tile = torch.zeros(len(points), dtype=torch.int64)
        functions, tables = torch.zeros(len(points), 1, dtype=torch.int64), list[Sequence[Tensor]]()
        for column, (mesh, most) in enumerate(zip(self.meshes, highest, strict=True)):
            element, places, found = mesh.scattered(points[:, column], most)
            tile = tile * mesh.count + element
            functions = (functions[:, :, None] + self._numbers[column][places][:, None, :]).flatten(1)
            tables.append(found)
        return Spot(tile, functions, tables)

    def local(self) -> tuple[Tensor, Tensor]:
        """The functions of every tile, ``(T, L)``, and which of a tile's functions live on no other, ``(L,)``."""
        middles = [torch.from_numpy((mesh.breaks[:-1] + mesh.breaks[1:]) / 2) for mesh in self.meshes]
        points = torch.cartesian_prod(*middles).reshape(-1, len(middles))
        inside = torch.ones(1, dtype=torch.bool)
        for mesh in self.meshes:
            own = torch.arange(mesh.degree + 1) < mesh.bubbles
            inside = (inside[:, None] & own).flatten()
        return self.spot(points, [0] * len(middles)).functions, inside

    def quadratures(self, points: Tensor, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        r"""Quadrature in the place of sums over scattered points: nodes of each tile that has points, and weights there.

        :math:`\sum_n w_n p(x_n) = \sum_g v_g p(y_g)` for all polynomials p up to twice the degree of the tile's functions,
        where :math:`v_g = \sum_n w_n \ell_g(x_n)` and the :math:`\ell_g` are the Lagrange polynomials of Chebyshev's nodes.
        Products of two functions are such polynomials, so that their Gram matrix takes one pass over the points.

        Args:
            points: ``(n, D)``.
            weights: ``(n, k)``, several sums over the same points.

        Returns:
            For each tile with points the nodes ``(G, D)`` and their weights ``(G, k)``, G the product of twice the degrees plus
            one.
        """
        counts = [2 * mesh.degree + 1 for mesh in self.meshes]
        key, places = torch.zeros(len(points), dtype=torch.int64), list[Tensor]()
        for mesh, x in zip(self.meshes, points.unbind(1), strict=True):
            element, _, inside = located(x, torch.from_numpy(mesh.breaks))
            key = key * mesh.count + element
            places.append(inside)
        order = torch.argsort(key, stable=True)
        tiles, sizes = torch.unique_consecutive(key[order], return_counts=True)
        found = []
        for tile, group in zip(tiles.tolist(), order.split(sizes.tolist()), strict=True):
            total = weights.new_zeros(math.prod(counts[:-1]) * weights.shape[1], counts[-1])
            for part in group.split(_PORTION):
                tables = [
                    chebyshev(inside[part], count - 1, 0)[0] @ from_values(count)
                    for inside, count in zip(places, counts, strict=True)
                ]
                total.addmm_(_khatri_rao([weights[part], *tables[:-1]]).T, tables[-1])
            lines = []
            for mesh, element in zip(self.meshes, np.unravel_index(tile, [mesh.count for mesh in self.meshes]), strict=True):
                low, high = mesh.breaks[element : element + 2]
                lines.append(low + (high - low) * (1 + chebyshev_places(2 * mesh.degree + 1)) / 2)
            nodes = torch.cartesian_prod(*lines).reshape(-1, len(lines))
            found.append((nodes, total.reshape(weights.shape[1], -1).T))
        return found

    def table(self, weights: Tensor) -> Tensor:
        """Weights ``(width, F)`` by each coordinate's own numbers, ``(F, W_1, ..., W_D)``."""
        numbers = self._numbers[0]
        for own in self._numbers[1:]:
            numbers = numbers[..., None] + own
        return weights[numbers].movedim(-1, 0)

    def flat(self, table: Tensor) -> Tensor:
        """The inverse of ``table``."""
        own = torch.arange(self.width)[:, None]
        numbers = self.table(own)[0].flatten()
        found = table.new_empty(self.width, len(table))
        found[numbers] = table.flatten(1).T
        return found

    def coefficients(self, weights: Tensor) -> Tensor:
        """Each tile's Chebyshev coefficients, ``(E_1, ..., E_D, F, J_1, ..., J_D)``."""
        found, count = self.table(weights), len(self.meshes)
        for mesh in self.meshes:
            # Each step takes the next coordinate's axis and leaves its elements and degrees at the end.
            found = mesh.coefficients(found.movedim(1, -1))
        elements = [1 + 2 * column for column in range(count)]
        degrees = [2 + 2 * column for column in range(count)]
        return found.permute(*elements, 0, *degrees).contiguous()

    def transferred(self, other: TensorProductBasis, weights: Tensor) -> Tensor:
        """The weights ``(width, F)`` of the function that has some weights on another tiling."""
        found = other.table(weights)
        for mesh, old in zip(self.meshes, other.meshes, strict=True):
            moved = found.movedim(1, -1)
            found = moved if mesh is old else mesh.transferred(old, moved)
        return self.flat(found)

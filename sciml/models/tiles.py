"""Unfitted (cut) spectral elements: polynomials on the boxes of a background grid, of which a domain may cut any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property, reduce

import scipy
import torch
from torch import Tensor

from sciml.errors import ModelError
from sciml.models.bases import chebyshev, element_of
from sciml.models.one_graph import one_graph
from sciml.models.piecewise import Pieces
from sciml.models.spectral import ellipsoid

# How near a side of a box is to be, as a share of the smallest one, for a point to lie on it.
_BESIDE = 1e-6
# Fields from which on points are evaluated tile by tile.
_MANY = 16
# Products from which on as well, and points then.
_WIDE, _POINTS_A_TILE = 200, 8


class Tiles(Pieces):
    r"""Polynomials on the boxes of a background grid that meet a domain: unfitted spectral elements.

    .. math::  u(x) = \sum_k c_{ek} \prod_i T_{k_i}(\xi_i), \qquad \sum_i (k_i/n_i)^2 \le 1, \qquad \xi = (x - m_e)/h_e

    on tile e with the centre :math:`m_e` and half widths :math:`h_e`. A tile need not lie inside the domain: its polynomials
    are those of the whole box. Points in a box without a tile take the nearest tile. There are no parameters: the
    coefficients are a buffer, ``(T, F, K)``. Derivatives of any order are polynomials as well.

    Args:
        breaks: for each coordinate increasing numbers, in its unit; from -1 to 1 inside a ``Scaled``.
        degrees: the degree n along each coordinate.
        outputs: the number of fields F.
        live: the numbers of the boxes that carry a tile, the last coordinate counting fastest; None for all.
        spans: for each tile how many boxes it takes along each coordinate, the one in ``live`` being the lowest; None for one.
        full: columns of coordinates all of whose degrees are combined with those of the others; they are left out of the sum.

    Raises:
        ModelError: breaks that do not increase, degrees that are none, no such box, or tiles that overlap.

    Example:
        >>> import torch, sciml
        >>> model = sciml.models.Tiles([[-1.0, 0.0, 1.0], [-1.0, 1.0]], degrees=[4, 3], outputs=1, live=[1])
        >>> model(torch.zeros(5, 2, dtype=torch.float64)).shape
        torch.Size([5, 1])

    Reference: P. B. Bochev and M. D. Gunzburger, Least-Squares Finite Element Methods, Springer 2009; E. Burman and others,
    CutFEM: discretizing geometry and partial differential equations, International Journal for Numerical Methods in
    Engineering 104 (2015).
    """

    arguments = ("breaks", "degrees", "outputs", "live", "full", "spans")
    centers: Tensor
    first: Tensor
    extent: Tensor
    halves: Tensor
    _tile_of: Tensor
    _empty: Tensor
    products: Tensor
    _firsts: Tensor
    _run: Tensor

    def __init__(
        self,
        breaks: Sequence[Sequence[float]],
        degrees: Sequence[int],
        outputs: int,
        live: Sequence[int] | None = None,
        full: Sequence[int] = (),
        spans: Sequence[Sequence[int]] | None = None,
    ) -> None:
        super().__init__(breaks, degrees, outputs)
        found, counts = self.breaks, self.counts
        boxes = math.prod(counts)
        chosen = torch.arange(boxes) if live is None else torch.tensor(list(live), dtype=torch.int64)
        if not len(chosen) or int(chosen.min()) < 0 or int(chosen.max()) >= boxes:
            raise ModelError(f"live must name some of the {boxes} boxes, from 0; given: {live!r}")
        taken = torch.ones(len(chosen), len(found), dtype=torch.int64) if spans is None else torch.tensor(spans)
        self.live, self.full = tuple(chosen.tolist()), tuple(full)
        self.spans = None if bool((taken == 1).all()) else tuple(map(tuple, taken.tolist()))
        self.register_buffer("first", torch.stack(torch.unravel_index(chosen, counts), dim=1), persistent=False)
        self.register_buffer("extent", taken, persistent=False)
        if taken.shape != self.first.shape or bool(((taken < 1) | (self.first + taken > torch.tensor(counts))).any()):
            raise ModelError(f"spans must say how many boxes each of {len(chosen)} tiles takes each way; given: {spans}")
        low, high = self._ends()
        products = ellipsoid(self.degrees, full=self.full)
        self.register_buffer("centers", (low + high) / 2, persistent=False)
        self.register_buffer("halves", (high - low) / 2, persistent=False)
        covered = self._covered()
        if int((covered >= 0).sum()) != int(taken.prod(1).sum()):
            raise ModelError("tiles must not overlap; look at live and spans")
        # Of a box without a tile the nearest one, in units of a typical box.
        empty, tile_of = covered < 0, covered.clone()
        if bool(empty.any()):
            middles = torch.cartesian_prod(*((each[1:] + each[:-1]) / 2 for each in found)).reshape(-1, len(found))
            middles = middles / torch.stack([each.diff().mean() for each in found])
            nearest = scipy.spatial.KDTree(middles[~empty]).query(middles[empty])[1]
            tile_of[empty] = covered[~empty][torch.from_numpy(nearest)]
        self.register_buffer("_tile_of", tile_of, persistent=False)
        self.register_buffer("_empty", empty, persistent=False)
        self._whole = not bool(empty.any())
        self.register_buffer("products", products, persistent=False)
        # The degrees of all but the last coordinate (R, D - 1), and for each product the number of its own (K,).
        key = torch.zeros(len(products), dtype=torch.int64)
        for column, degree in enumerate(self.degrees[:-1]):
            key = key * (degree + 1) + products[:, column]
        kept, run = key.unique(return_inverse=True)
        firsts = products.new_zeros(len(kept), len(self.degrees) - 1).index_copy_(0, run, products[:, :-1])
        self.register_buffer("_firsts", firsts, persistent=False)
        self.register_buffer("_run", run, persistent=False)
        shape = len(chosen), outputs, len(products)
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))

    @property
    def axis(self) -> int:
        return 1

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of boxes along each coordinate."""
        return tuple(len(each) - 1 for each in self.breaks)

    @property
    def width(self) -> int:
        """The number of products on each tile."""
        return len(self.products)

    def _ends(self) -> Tensor:
        """Where the tiles begin and end along each coordinate, ``(2, T, D)``."""
        tiles = zip(self.breaks, self.first.T, self.extent.T, strict=True)
        return torch.stack([torch.stack([own[low], own[low + many]]) for own, low, many in tiles], dim=2)

    def _covered(self) -> Tensor:
        """The tile that takes each box, -1 where there is none."""
        found = torch.full(self.counts, -1)
        first, extent = self.first.cpu(), self.extent.cpu()
        one = (extent == 1).all(1)
        found[tuple(first[one].T)] = torch.nonzero(one)[:, 0]
        large = torch.nonzero(~one)[:, 0]
        for number, begin, many in zip(large.tolist(), first[large].tolist(), extent[large].tolist(), strict=True):
            found[tuple(slice(low, low + each) for low, each in zip(begin, many, strict=True))] = number
        return found.flatten().to(self.first)

    def split(self, halved: Tensor) -> tuple[list[list[float]], list[int], list[list[int]]]:
        """Breaks, ``live`` and ``spans`` where each tile is halved along the coordinates that are marked, ``(T, D)``."""
        low, high = self._ends()
        for column in range(halved.shape[1]):
            some = halved[:, column]
            middles, first_high, second_low = (low + high)[some, column] / 2, high.clone(), low[some]
            first_high[some, column] = second_low[:, column] = middles
            low, high = torch.cat([low, second_low]), torch.cat([first_high, high[some]])
            halved = torch.cat([halved, halved[some]])
        # No more breaks than the tiles have ends: a table of all boxes of the smallest size would be long.
        breaks = [each.unique() for each in torch.cat([low, high]).T]
        places = [
            torch.searchsorted(own, ends)
            for own, ends in zip(breaks, torch.stack([low, high]).permute(2, 0, 1).contiguous(), strict=True)
        ]
        first, last = torch.stack(places, dim=2)
        number = torch.zeros(len(first), dtype=torch.int64)
        for column, each in enumerate(breaks):
            number = number * (len(each) - 1) + first[:, column]
        order = torch.argsort(number)
        return [each.tolist() for each in breaks], number[order].tolist(), (last - first)[order].tolist()

    @property
    def alike(self) -> bool:
        """Uniform grid: whether all tiles are of one size."""
        return bool((self.halves.amax(0) <= self.halves.amin(0) * (1 + 1e-9)).all())

    def tile(self, points: Tensor) -> Tensor:
        """The tile of each of points ``(n, D)``; on the side of a box without a tile, that of a box beyond the side."""
        number = self._box(points)
        if self._whole:
            return self._tile_of[number]
        if one_graph():
            return self._tile_of[self._beside(points, number)]
        lost = torch.nonzero(self._empty[number])[:, 0]
        number[lost] = self._beside(points[lost], number[lost])
        return self._tile_of[number]

    def _beside(self, points: Tensor, number: Tensor) -> Tensor:
        """The boxes of points ``(n, D)``, or beside these where they have no tile and the other has one."""
        # A domain that ends at a side of boxes has conditions there, which no tile further away can hold.
        near = self.halves.amin(0) * _BESIDE
        for beside in itertools.product((-1, 0, 1), repeat=points.shape[1]):
            number = torch.where(self._empty[number], self._box(points + points.new_tensor(beside) * near), number)
        return number

    def _box(self, points: Tensor) -> Tensor:
        """The number of the box of each of points ``(n, D)``."""
        found = torch.zeros(len(points), dtype=torch.int64, device=points.device)
        for x, own in zip(points.unbind(1), self.breaks, strict=True):
            found = found * (len(own) - 1) + element_of(x, own)
        return found

    def local(self, points: Tensor, tile: Tensor) -> Tensor:
        """Points ``(n, D)`` in the coordinates of their tiles, [-1, 1] inside."""
        return (points - self.centers[tile]) / self.halves[tile]

    def functions(self, local: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of every product by local coordinates ``(n, D)``, ``(n, K)``."""
        tables = [chebyshev(local[:, column], *each)[-1] for column, each in enumerate(zip(self.degrees, orders, strict=True))]
        if one_graph():
            return reduce(torch.mul, [table.index_select(1, self.products[:, column]) for column, table in enumerate(tables)])
        # Products that differ in the last coordinate alone at once: to gather each one's factors takes four times as long.
        found, one, (*leading, last) = local.new_empty(len(local), self.width), local.new_ones(1, 1), tables
        for (*degrees, first), start, stop in self._runs:
            columns = [table[:, degree, None] for table, degree in zip(leading, degrees, strict=True)]
            torch.mul(last[:, first : first + stop - start], reduce(torch.mul, columns, one), out=found[:, start:stop])
        return found

    @cached_property
    def _runs(self) -> list[tuple[list[int], int, int]]:
        """Products that follow one another in the last degree alone: the first of them, where they begin and end."""
        ends = torch.nonzero((self.products.diff(dim=0)[:, :-1] != 0).any(1))[:, 0] + 1
        starts = [0, *ends.tolist()]
        return list(zip(self.products[starts].tolist(), starts, [*starts[1:], self.width], strict=True))

    def _values(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        tile = self.tile(points)
        local = self.local(points, tile)
        narrow = self.width <= _WIDE or len(points) < _POINTS_A_TILE * len(self.live)
        if one_graph() or (self.outputs <= _MANY and narrow):
            found = torch.bmm(self.coefficients[tile], self.functions(local, orders)[:, :, None])[:, :, 0]
        else:
            # Tile by tile: a copy of the coefficients for each point would take much memory, and time.
            found, sorted_by = local.new_empty(len(points), self.outputs), torch.argsort(tile)
            tiles, counts = torch.unique_consecutive(tile[sorted_by], return_counts=True)
            for number, some in zip(tiles.tolist(), sorted_by.split(counts.tolist()), strict=True):
                found[some] = self._factorised(local[some], number, orders)
        for column, order in enumerate(orders):
            found = found / self.halves[tile, column, None] ** order if order else found
        return found

    def _factorised(self, local: Tensor, tile: int, orders: Sequence[int]) -> Tensor:
        """Sum factorisation: values ``(n, F)`` at places of one tile, the sums over the last coordinate's degrees first.

        Reference: S. A. Orszag, Spectral methods for problems in complex geometries, Journal of Computational Physics 37, 1980.
        """
        *leading, last = (
            chebyshev(local[:, column], *each)[-1] for column, each in enumerate(zip(self.degrees, orders, strict=True))
        )
        weights = local.new_zeros(self.outputs, len(self._firsts), last.shape[1])
        weights[:, self._run, self.products[:, -1]] = self.coefficients[tile]
        factors = [table.index_select(1, self._firsts[:, column]) for column, table in enumerate(leading)]
        products = reduce(torch.mul, factors, local.new_ones(len(local), len(self._firsts)))
        return torch.einsum("frn,nr->nf", weights @ last.T, products)

    def like(self, outputs: int) -> Tiles:
        """The same tiles for another number of fields, which vanish."""
        spans = None if self.spans is None else self.extent.tolist()
        return Tiles([each.tolist() for each in self.breaks], self.degrees, outputs, self.live, self.full, spans)

    def neighbours(self) -> list[tuple[int, Tensor]]:
        """For each coordinate its column, and the pairs of tiles that share a side across it, lower first, ``(P, 2)``."""
        table = self._covered().view(self.counts)
        found = []
        for column, count in enumerate(self.counts):
            lower, upper = table.narrow(column, 0, count - 1).flatten(), table.narrow(column, 1, count - 1).flatten()
            both = (lower >= 0) & (upper >= 0) & (lower != upper)
            # One number for each pair: to sort rows takes far longer.
            keys = (lower[both] * len(self.live) + upper[both]).unique_consecutive().unique()
            found.append((column, torch.stack([keys // len(self.live), keys % len(self.live)], dim=1)))
        return found

    def shared(self, pairs: Tensor) -> Tensor:
        """The common part of the ranges of pairs of tiles ``(P, 2)``, from -1 to 1 of each: ``(P, 2, D, 2)``."""
        ends = torch.stack([self.centers - self.halves, self.centers + self.halves], dim=2)[pairs]
        low, high = ends[..., 0].amax(1), ends[..., 1].amin(1)
        both = torch.stack([low, high], dim=2)[:, None]
        return (both - self.centers[pairs][..., None]) / self.halves[pairs][..., None]

    def extra_repr(self) -> str:
        widths = torch.stack([own[-1] - own[0] for own in self.breaks])
        boxes = " x ".join(f"{each:g}" for each in (widths / (2 * self.halves.amax(0))).round(decimals=2).tolist())
        degrees = " x ".join(map(str, self.degrees))
        if self.spans is not None:
            return f"{len(self.live)} tiles, the largest those of {boxes}, of degree {degrees}"
        all_of = "" if len(self.live) == len(self._tile_of) else f"{len(self.live)} of "
        return f"{all_of}{boxes} tiles of degree {degrees}"

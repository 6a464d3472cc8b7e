"""Unfitted (cut) spectral elements: polynomials on the boxes of a background grid, of which a domain may cut any."""

from __future__ import annotations

from collections.abc import Sequence

import scipy
import torch
from torch import Tensor

from sciml.errors import ModelError
from sciml.models.bases import chebyshev, located
from sciml.models.piecewise import Pieces
from sciml.models.spectral import ellipsoid


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
        full: columns of coordinates all of whose degrees are combined with those of the others; they are left out of the sum.

    Raises:
        ModelError: breaks that do not increase, degrees that are none, or no such box.

    Example:
        >>> import torch, sciml
        >>> model = sciml.models.Tiles([[-1.0, 0.0, 1.0], [-1.0, 1.0]], degrees=[4, 3], outputs=1, live=[1])
        >>> model(torch.zeros(5, 2, dtype=torch.float64)).shape
        torch.Size([5, 1])

    Reference: P. B. Bochev and M. D. Gunzburger, Least-Squares Finite Element Methods, Springer 2009; E. Burman and others,
    CutFEM: discretizing geometry and partial differential equations, International Journal for Numerical Methods in
    Engineering 104 (2015).
    """

    arguments = ("breaks", "degrees", "outputs", "live", "full")
    centers: Tensor
    halves: Tensor
    _tile_of: Tensor
    products: Tensor

    def __init__(
        self,
        breaks: Sequence[Sequence[float]],
        degrees: Sequence[int],
        outputs: int,
        live: Sequence[int] | None = None,
        full: Sequence[int] = (),
    ) -> None:
        super().__init__(breaks, degrees, outputs)
        found = self.breaks
        middles = torch.cartesian_prod(*((each[1:] + each[:-1]) / 2 for each in found)).reshape(-1, len(found))
        halves = torch.cartesian_prod(*(each.diff() / 2 for each in found)).reshape(-1, len(found))
        chosen = torch.arange(len(middles)) if live is None else torch.tensor(list(live), dtype=torch.int64)
        if not len(chosen) or int(chosen.min()) < 0 or int(chosen.max()) >= len(middles):
            raise ModelError(f"live must name some of the {len(middles)} boxes, from 0; given: {live!r}")
        self.live = tuple(chosen.tolist())
        self.full = tuple(full)
        products = ellipsoid(self.degrees, full=self.full)
        self.register_buffer("centers", middles[chosen], persistent=False)
        self.register_buffer("halves", halves[chosen], persistent=False)
        # Of a box without a tile the nearest one, in units of a typical box.
        unit = halves.mean(0)
        nearest = scipy.spatial.KDTree(middles[chosen] / unit).query(middles / unit)[1]
        self.register_buffer("_tile_of", torch.from_numpy(nearest), persistent=False)
        self.register_buffer("products", products, persistent=False)
        shape = len(chosen), outputs, len(products)
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))

    @property
    def width(self) -> int:
        """The number of products on each tile."""
        return len(self.products)

    def tile(self, points: Tensor) -> Tensor:
        """The tile of each of points ``(n, D)``."""
        box = torch.zeros(len(points), dtype=torch.int64, device=points.device)
        for x, own in zip(points.unbind(1), self.breaks, strict=True):
            box = box * (len(own) - 1) + located(x, own)[0]
        return self._tile_of[box]

    def local(self, points: Tensor, tile: Tensor) -> Tensor:
        """Points ``(n, D)`` in the coordinates of their tiles, [-1, 1] inside."""
        return (points - self.centers[tile]) / self.halves[tile]

    def functions(self, local: Tensor, orders: Sequence[int]) -> Tensor:
        """A derivative of every product by local coordinates ``(n, D)``, ``(n, K)``."""
        found: Tensor | None = None
        for column, (degree, order) in enumerate(zip(self.degrees, orders, strict=True)):
            table = chebyshev(local[:, column], degree, order)[-1].index_select(1, self.products[:, column])
            found = table if found is None else found * table
        assert found is not None
        return found

    def _values(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        tile = self.tile(points)
        found = torch.bmm(self.coefficients[tile], self.functions(self.local(points, tile), orders)[:, :, None])[:, :, 0]
        for column, order in enumerate(orders):
            found = found / self.halves[tile, column, None] ** order if order else found
        return found

    def tails(self) -> Tensor:
        """For each tile and coordinate the share of the weights in the highest sixth of its degrees, ``(T, D)``."""
        squares = self.coefficients.square().sum(1)
        whole = squares.sum(1).clamp_min(1e-300)
        high = [self.products[:, column] >= -(-5 * max(n, 1) // 6) for column, n in enumerate(self.degrees)]
        return torch.stack([(squares[:, each].sum(1) / whole).sqrt() for each in high], dim=1)

    def neighbours(self) -> list[tuple[int, Tensor]]:
        """For each coordinate its column, and the pairs of tiles that share a side across it, lower first, ``(P, 2)``."""
        counts = [len(each) - 1 for each in self.breaks]
        number = torch.full((len(self._tile_of),), -1)
        number[list(self.live)] = torch.arange(len(self.live))
        table = number.view(counts)
        found = []
        for column, count in enumerate(counts):
            lower, upper = table.narrow(column, 0, count - 1).flatten(), table.narrow(column, 1, count - 1).flatten()
            both = (lower >= 0) & (upper >= 0)
            found.append((column, torch.stack([lower[both], upper[both]], dim=1)))
        return found

    def extra_repr(self) -> str:
        boxes = " x ".join(str(len(each) - 1) for each in self.breaks)
        all_of = "" if len(self.live) == len(self._tile_of) else f"{len(self.live)} of "
        return f"{all_of}{boxes} tiles of degree {' x '.join(map(str, self.degrees))}"

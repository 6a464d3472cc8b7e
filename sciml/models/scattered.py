r"""Finite differences on scattered nodes (RBF-FD): polyharmonic splines with polynomials on stencils of nearest nodes.

On the stencil :math:`x_1, \dots, x_k` of the nearest node, functions are written as
:math:`s(x) = \sum_j \lambda_j |x - x_j|^5 + p(x)` with a polynomial p of some degree and
:math:`\sum_j \lambda_j\,\pi(x_j) = 0` for all polynomials :math:`\pi` of that degree. Values and derivatives of s anywhere
are weights times the values at the stencil; they are exact for polynomials.

Reference: V. Bayona, N. Flyer, B. Fornberg and G. A. Barnett, On the role of polynomials in RBF-FD approximations: II,
Journal of Computational Physics 332 (2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, reduce
from itertools import product
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.errors import BaselineError
from sciml.geometry import Domain, Side
from sciml.geometry.nodes import scattered
from sciml.models.bases import Basis1D
from sciml.models.grid import Grid
from sciml.typing import Array, MultiIndex

# Nodes of a stencil to a polynomial: with twice as many, some at straight sides are singular.
_NODES = 2.5
# Numbers in the matrices of stencils that are solved at once.
_CHUNK = 2**24
# Numbers that are kept for points at which other derivatives may be asked for.
_KEPT = 2**23
# Points to a stencil from which on its matrix is inverted for all of them.
_SHARED = 4


class ScatteredBasis(Basis1D):
    """Cardinal functions of scattered nodes in two or three coordinates, by finite differences from radial functions.

    Args:
        nodes: shape ``(N, D)``.
        degree: of the polynomials; derivatives of order m converge with the power ``degree + 1 - m`` of the distance of the
            nodes.

    Example:
        >>> import numpy as np, torch
        >>> nodes = np.random.default_rng(0).random((200, 2))
        >>> numbers, factors = ScatteredBasis(nodes, 4).table(torch.tensor([[0.4, 0.6]], dtype=torch.float64), (1, 0))
        >>> cubes = torch.from_numpy(nodes[:, 0] ** 3)
        >>> round(float((factors * cubes[numbers]).sum()), 6)
        0.48
    """

    kind = "scattered"
    reach: int

    def __init__(self, nodes: Sequence[Sequence[float]] | Array, degree: int) -> None:
        places = np.asarray(nodes, dtype=np.float64)
        super().__init__(float(places.min()), float(places.max()), places)
        self.degree, self.columns = degree, places.shape[1]
        self.theory = degree
        powers = product(range(degree + 1), repeat=self.columns)
        self._powers = np.array([each for each in powers if sum(each) <= degree])
        self.reach = min(round(_NODES * len(self._powers)), len(places))
        self._tree = scipy.spatial.cKDTree(places)
        self._derivatives = [each for each in product(range(3), repeat=self.columns) if 0 < sum(each) <= 2]
        # The latest points, the node nearest to each, and their tables.
        self._latest: tuple[Array, Array, dict[tuple[int, ...], Array]] | None = None

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "nodes": self.nodes.tolist(), "degree": self.degree}

    def __repr__(self) -> str:
        return f"ScatteredBasis({len(self)} nodes, degree={self.degree})"

    @cached_property
    def _stencils(self) -> tuple[Array, Array]:
        """The nearest nodes of each node ``(N, k)``, itself first, and the distance of the farthest ``(N,)``."""
        away, near = self._tree.query(self.nodes, self.reach)
        return near, away[:, -1]

    def table(self, x: Tensor, order: Sequence[int]) -> tuple[Tensor, Tensor]:
        """A derivative at points ``(m, D)``, its orders by coordinate: the numbers and weights of a stencil, ``(m, k)``."""
        points, order = x.detach().cpu().numpy(), tuple(order)
        if self._latest is None or not np.array_equal(self._latest[0], points):
            self._latest = points.copy(), self._tree.query(points)[1], {}
        _, centre, tables = self._latest
        if order not in tables:
            # Whoever asks for one derivative asks for others at the same points, and their stencils take most of the time.
            several = len(points) * self.reach * len(self._derivatives) <= _KEPT
            wanted = self._derivatives if order in self._derivatives and several else [order]
            # Points about the same node share the matrix of its stencil.
            turn = np.argsort(centre, kind="stable")
            found = np.empty((len(points), len(wanted), self.reach))
            flat = found.reshape(len(points), -1)
            flat[turn] = np.concatenate([flat[:0], *self._weights(points[turn], centre[turn], wanted)])
            tables.update(zip(wanted, np.ascontiguousarray(found.swapaxes(0, 1)), strict=True))
        return torch.from_numpy(self._stencils[0][centre]), torch.from_numpy(tables[order]).to(x, copy=True)

    def matrices(self, go_on: Callable[[], object] = bool) -> dict[tuple[int, ...], scipy.sparse.csr_array]:
        """The matrices ``(N, N)`` from values at the nodes to first and second derivatives there; see ``Grid.prepare``."""
        count, portions, orders = len(self), list[Array](), self._derivatives
        for each in self._weights(self.nodes, np.arange(count), orders):
            portions.append(each.reshape(-1, len(orders), self.reach))
            go_on()
        data = np.concatenate(portions)
        starts = np.arange(count + 1) * self.reach
        return {
            order: scipy.sparse.csr_array((data[:, row].ravel(), self._stencils[0].ravel(), starts), shape=(count, count))
            for row, order in enumerate(orders)
        }

    def _weights(self, points: Array, centre: Array, orders: Sequence[tuple[int, ...]]) -> Iterator[Array]:
        """Weights of some derivatives at points from the stencils of some nodes, ``(m, len(orders) * k)``, in portions."""
        near, radius = self._stencils
        k, extra = self.reach, len(self._powers)
        some = max(1, _CHUNK // (k + extra) ** 2)
        for first in range(0, len(points), some):
            at, which = np.unique(centre[first : first + some], return_inverse=True)
            # In units of the stencil, about its node.
            size = radius[at][:, None, None]
            places = (self.nodes[near[at]] - self.nodes[at][:, None]) / size
            matrix = np.zeros((len(at), k + extra, k + extra))
            matrix[:, :k, :k] = _radial(places[:, :, None] - places[:, None], (0,) * self.columns)
            matrix[:, :k, k:] = self._polynomials(places, (0,) * self.columns)
            matrix[:, k:, :k] = matrix[:, :k, k:].transpose(0, 2, 1)
            places, size = places[which], size[which]
            target = (points[first : first + some] - self.nodes[at][which])[:, None] / size
            sides = np.empty((len(which), len(orders), k + extra))
            for row, order in enumerate(orders):
                sides[:, row, :k] = _radial(target - places, order) / size[:, 0] ** sum(order)
                sides[:, row, k:] = self._polynomials(target, order)[:, 0] / size[:, 0] ** sum(order)
            try:
                if len(which) < _SHARED * len(at):
                    found = np.linalg.solve(matrix[which], sides.transpose(0, 2, 1))[:, :k].transpose(0, 2, 1)
                else:
                    found = sides @ np.linalg.inv(matrix)[which, :, :k]
            except np.linalg.LinAlgError as error:
                raise BaselineError(
                    f"scattered nodes: the {k} nearest ones to some node lie on so few lines that they determine no polynomial "
                    f"of degree {self.degree}; take more nodes, or coordinates in which the domain is less thin"
                ) from error
            yield found.reshape(len(which), -1)

    def _polynomials(self, places: Array, order: tuple[int, ...]) -> Array:
        """A derivative of all monomials at places ``(..., D)``, ``(..., M)``."""
        found: Any = 1.0
        for column, times in enumerate(order):
            powers = self._powers[:, column]
            falling = np.array([math.perm(int(power), times) for power in powers])
            # Products of powers that are there: to raise each number to each power takes four times as long.
            raised = np.vander(places[..., column].ravel(), self.degree + 1, increasing=True)
            found = found * (falling * raised[:, np.maximum(powers - times, 0)])
        return np.asarray(found).reshape(*places.shape[:-1], len(self._powers))


def _radial(away: Array, order: tuple[int, ...]) -> Array:
    """A derivative, up to the second, of the fifth power of the distance by the vectors ``(..., D)`` from the centres."""
    # Products, which take a fifth of the time of powers.
    square = np.einsum("...d,...d->...", away, away)
    r = np.sqrt(square)
    along = [column for column, times in enumerate(order) for _ in range(times)]
    if not along:
        return square * square * r
    if len(along) == 1:
        return 5 * square * r * away[..., along[0]]
    one, two = along
    return 5 * r * (3 * away[..., one] * away[..., two] + (square if one == two else 0.0))


class ScatteredNodes(Grid):
    """Quasi-uniform nodes of a domain of any shape, those of its boundary on their sides, as a grid without axes.

    Args:
        domain: of two or three coordinates.
        spacing: the distance of neighbours.
        degree: of the polynomials in the differences, as for ``ScatteredBasis``.
        sides: the sides of the domain; where two meet, the nodes of the earlier one are kept.
        ghosts: those of them on which slopes are prescribed. There the equations hold too, and the conditions take the rows of
            as many nodes outside: with differences to one side alone diffusion is unstable in time.

    Example:
        >>> import sciml
        >>> disk = sciml.Disk((0, 0), 1)
        >>> nodes = ScatteredNodes(disk, 0.1, 4, disk.sides)
        >>> nodes.size, len(nodes.layer(disk.sides[0]))
        (390, 63)

    Reference: for nodes outside, N. Flyer, G. A. Barnett and L. J. Wicker, Enhancing finite differences with radial basis
    functions, Journal of Computational Physics 316 (2016).
    """

    weighted, few_neighbours = False, True

    def __init__(
        self, domain: Domain, spacing: float, degree: int, sides: Sequence[Side], ghosts: Collection[Side] = ()
    ) -> None:
        super().__init__({})
        self._domain = domain
        inside, self._sides = scattered(domain, spacing, sides)
        self._rows = {side: own.numbers for side, own in self._sides.items()}
        points, places = [inside], [inside]
        count = len(inside)
        for side in ghosts:
            own = self._sides[side]
            self._rows[side] = count + np.arange(len(own.numbers))
            points.append(inside[own.numbers] + own.spacing * own.normals)
            places.append(inside[own.numbers])
            count += len(own.numbers)
        self.points, self.places = np.concatenate(points), np.concatenate(places)
        self.coordinates = domain.coordinates
        self.axes = {", ".join(self.coordinates): ScatteredBasis(self.points, degree)}
        self.size = len(self.points)
        self.shape = (self.size,)
        self.resolution = round(2 * max(domain.half_widths.values()) / spacing) + 1

    def prepare(self, go_on: Callable[[], object] = bool) -> None:
        if not self._matrices:
            (basis,) = self.axes.values()
            self._matrices = basis.matrices(go_on)
            self._matrices[(0,) * len(self.coordinates)] = scipy.sparse.csr_array(scipy.sparse.eye_array(self.size))

    def matrix(self, index: MultiIndex) -> scipy.sparse.csr_array:
        self.prepare()
        return super().matrix(index)

    def holds(self, side: Side) -> bool:
        return side in self._sides

    def ends(self) -> Iterator[tuple[str, tuple[str, ...], tuple[Side, ...]]]:
        for side in self._sides:
            yield side.describe(self._domain), self.coordinates, (side,)

    def layer(self, face: Side, depth: int = 0) -> Array:
        return self._sides[face].numbers

    def rows(self, face: Side, rank: int) -> Array:
        return self._rows[face]

    def normals(self, face: Side) -> Array:
        return self._sides[face].normals

    def smooth(self, degree: int) -> Array:
        lower, upper = self.points.min(axis=0), self.points.max(axis=0)
        unit = (2 * self.points - lower - upper) / (upper - lower)
        tables = (np.polynomial.chebyshev.chebvander(column, degree).T for column in unit.T)
        few = [sum(each) <= degree for each in product(range(degree + 1), repeat=len(self.coordinates))]
        return np.linalg.qr(reduce(scipy.linalg.khatri_rao, tables)[few].T)[0]

r"""Tensor-product grids: differentiation matrices of nodal values, and functions between the nodes.

A residual is pointwise in the jets, :math:`r = R(x, u, u_x, \dots)`, and a jet of nodal values :math:`U` is a matrix times
:math:`U`. Therefore

.. math::  \partial r/\partial U = \sum_k \operatorname{diag}(\partial R/\partial u_k)\, D_k .
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.geometry import Face, Side
from sciml.models.base import Block
from sciml.models.bases import Basis1D, Nodal, axis_from, chebyshev, products, tabulated, waves
from sciml.models.one_graph import one_graph
from sciml.typing import Array, MultiIndex, Values


class Grid:
    """A tensor-product grid: all combinations of the nodes of some axes.

    Args:
        axes: an axis for each coordinate, in the order of the problem's; without any there is one node.

    Attributes:
        weighted: whether its nodes have weights of a quadrature.
        few_neighbours: whether derivatives at a node need few others.

    Example:
        >>> from sciml.models.bases import Chebyshev
        >>> grid = Grid({"x": Chebyshev(0, 1, 5), "y": Chebyshev(0, 2, 7)})
        >>> grid.size, grid.matrix(("x", "y")).shape
        (35, (35, 35))
    """

    weighted, few_neighbours = True, False

    def __init__(self, axes: Mapping[str, Nodal]) -> None:
        self.axes: dict[str, Any] = dict(axes)
        self.coordinates = tuple(self.axes)
        self.shape = tuple(len(axis) for axis in self.axes.values())
        self.size = int(np.prod(self.shape))
        self.resolution = max(self.shape, default=1)
        columns = np.meshgrid(*(axis.nodes for axis in self.axes.values()), indexing="ij")
        self.points = np.stack([column.ravel() for column in columns], axis=1) if columns else np.empty((1, 0))
        # Where starting values are taken from.
        self.places = self.points
        self._numbers = np.arange(self.size).reshape(self.shape)
        self._matrices: dict[tuple[int, ...], scipy.sparse.csr_array] = {}

    @property
    def weights(self) -> Array:
        """A quadrature over the nodes, ``(N,)``."""
        return reduce(np.multiply.outer, (axis.weights for axis in self.axes.values())).ravel()

    def prepare(self, go_on: Callable[[], object] = bool) -> None:
        """Make what takes long before it is asked for; ``go_on`` is called now and then, and ends it by an error."""

    def matrix(self, index: MultiIndex) -> scipy.sparse.csr_array:
        """From values at the nodes to a partial derivative there, ``(N, N)``."""
        orders = tuple(index.count(name) for name in self.coordinates)
        if orders not in self._matrices:
            factors = (axis.matrix(order) for axis, order in zip(self.axes.values(), orders, strict=True))
            one = scipy.sparse.csr_array(scipy.sparse.eye_array(1))
            self._matrices[orders] = reduce(lambda a, b: scipy.sparse.csr_array(scipy.sparse.kron(a, b)), factors, one)
        return self._matrices[orders]

    def holds(self, side: Side) -> bool:
        """Whether nodes lie on a side of the domain."""
        return isinstance(side, Face) and side.coordinate in self.axes

    def ends(self) -> Iterator[tuple[str, tuple[str, ...], tuple[Side, ...]]]:
        """Sides that share the conditions of what is differentiated across them: a name, the coordinates and the sides."""
        for name, axis in self.axes.items():
            if not axis.periodic:
                yield f"the faces of {name!r}", (name,), (Face(name, "lower"), Face(name, "upper"))

    def layer(self, face: Side, depth: int = 0) -> Array:
        """The numbers of the nodes on a face, or ``depth`` nodes below it."""
        assert isinstance(face, Face)
        column = list(self.axes).index(face.coordinate)
        # Both faces of a periodic axis are the first node.
        upper = face.side == "upper" and not self.axes[face.coordinate].periodic
        position = self.shape[column] - 1 - depth if upper else depth
        return np.take(self._numbers, position, axis=column).ravel()

    def rows(self, face: Side, rank: int) -> Array:
        """The nodes whose rows a condition on a face takes: of the first the outermost, of each other one layer below."""
        return self.layer(face, rank)

    def normals(self, face: Side) -> Array:
        """The outward normals at the nodes on a face, ``(n, D)``."""
        assert isinstance(face, Face)
        outward = face.sign * np.eye(len(self.coordinates))[self.coordinates.index(face.coordinate)]
        return np.broadcast_to(outward, (len(self.layer(face)), len(outward)))

    def smooth(self, degree: int) -> Array:
        """An orthonormal basis of polynomials along every axis (waves round periodic ones), ``(N, k)``."""
        tables = []
        for axis in self.axes.values():
            unit = torch.from_numpy((2 * axis.nodes - axis.low - axis.high) / (axis.high - axis.low))
            few = min(degree, 2 * len(axis) // 3)
            table = waves(unit, few // 2, 0)[0] if axis.periodic else chebyshev(unit, few, 0)[0]
            tables.append(table.numpy())
        return np.linalg.qr(reduce(np.kron, tables))[0]

    def face_weights(self, face: Face) -> Array:
        """A quadrature over the nodes of a face."""
        others = [axis.weights for name, axis in self.axes.items() if name != face.coordinate]
        return reduce(np.multiply.outer, others, np.ones(())).ravel()

    def at_nodes(self, numbers: Array) -> Sites:
        """Some of the nodes as the points of a residual."""
        return Sites(self.points[numbers], lambda index: self.matrix(index)[numbers])

    def at_points(self, points: Array) -> Sites:
        """Any points ``(m, D)`` as those of a residual, by interpolation between the nodes."""
        return Sites(points, lambda index: self._between(points, index))

    def _between(self, points: Array, index: MultiIndex) -> scipy.sparse.csr_array:
        orders = [index.count(name) for name in self.coordinates]
        numbers, factors = products(list(self.axes.values()), self.shape, torch.from_numpy(points), orders)
        starts = np.arange(len(points) + 1) * factors.shape[1]
        table = factors.numpy().ravel(), numbers.numpy().ravel(), starts
        return scipy.sparse.csr_array(table, shape=(len(points), self.size))


class Sites:
    """Points ``(m, D)`` of a residual, and the matrix ``(m, N)`` of each partial derivative there, computed once."""

    def __init__(self, points: Array, operator: Callable[[MultiIndex], scipy.sparse.csr_array]) -> None:
        self.points, self.operator = points, cache(operator)


class GridJets:
    """Jets of nodal values ``(N,)``, given by field and number of derivatives by ``time`` where that is no axis."""

    name = "differentiation matrices"

    def __init__(self, values: Mapping[tuple[str, int], Array], sites: Sites, time: str | None = None) -> None:
        self._values, self._sites, self._time = values, sites, time

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(m,)``."""
        passed, space = split(index, self._time)
        return torch.from_numpy(self._sites.operator(space) @ self._values[field, passed])


def split(index: MultiIndex, time: str | None) -> tuple[int, MultiIndex]:
    """The number of derivatives by time, and the others."""
    return sum(name == time for name in index), tuple(name for name in index if name != time)


_ENTRIES = 2**22


class GridFunction(Block):
    """Interpolation of values at the nodes of a tensor-product grid, with its derivatives.

    Args:
        axes: an axis for each coordinate, in order.
        values: at the nodes, shape ``(n_1, ..., n_D, F)``; an axis of knots has two entries a knot, value and slope.

    Example:
        >>> import torch
        >>> from sciml.models.bases import Chebyshev
        >>> axis = Chebyshev(0.0, 1.0, 5)
        >>> square = GridFunction([axis], torch.from_numpy(axis.nodes[:, None] ** 2))
        >>> round(float(square(torch.tensor([[0.3]], dtype=torch.float64))), 12)
        0.09
    """

    arguments = ("axes",)
    table = "values"
    values: Tensor

    def __init__(self, axes: Sequence[Basis1D], values: Tensor) -> None:
        super().__init__()
        self.axes = tuple(axes)
        self._first = [sum(axis.columns for axis in self.axes[:k]) for k in range(len(self.axes))]
        self.register_buffer("values", values)

    @property
    def config(self) -> dict[str, Any]:
        return {"axes": [axis.config for axis in self.axes], "shape": list(self.values.shape)}

    @property
    def axis(self) -> int:
        """The axis of the values along which fields lie."""
        return len(self.axes)

    @classmethod
    def from_config(cls, axes: Sequence[Mapping[str, Any]], shape: Sequence[int]) -> GridFunction:
        """A function with these axes and no values yet."""
        return cls([axis_from(dict(each)) for each in axes], torch.zeros(*shape, dtype=torch.float64))

    def forward(self, points: Tensor) -> Tensor:
        """Values ``(n, F)`` at points ``(n, D)``."""
        return self.partial(points, (0,) * points.shape[1])

    def partial(self, points: Tensor, orders: Sequence[int]) -> Tensor:
        """A partial derivative of all fields, ``(n, F)``, its orders given for each coordinate."""
        far = [k for k, axis in enumerate(self.axes) if axis.reach is None]
        if one_graph():
            near = [k for k in range(len(self.axes)) if k not in far]
            return self._partial(points, orders, self.values, near, far)
        # Where all points agree in a coordinate, as at the edge of a window, its nodes are summed once for all of them.
        several = len(points) > 1 and not points.requires_grad
        first = self._first
        alike = [k for k in far if several and bool((points[:, first[k]] == points[0, first[k]]).all())][: len(self.axes) - 1]
        values = self.values
        for k in alike:
            factors = tabulated(self.axes[k], points[:1], orders, first[k])[1]
            values = torch.tensordot(factors, values.movedim(k, 0), dims=1).movedim(0, k)
        # The longest axis first, for all points at once: what is left to sum point by point is the smaller for it.
        far = sorted((k for k in far if k not in alike), key=lambda k: -values.shape[k])
        reached = [axis.reach or size for axis, size in zip(self.axes, values.shape, strict=False)]
        near = [k for k, axis in enumerate(self.axes) if axis.reach is not None]
        left = math.prod(reached) // (1 if near or not far else reached[far[0]])
        size = max(1, _ENTRIES // (left * values.shape[-1]))
        # Of a coordinate summed already one entry is left, without a table.
        parts = [self._partial(chunk, orders, values, near, far) for chunk in points.split(size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _partial(self, points: Tensor, orders: Sequence[int], values: Tensor, near: list[int], far: list[int]) -> Tensor:
        count, dims = len(points), len(self.axes)
        summed = [k for k in range(dims) if k not in near and k not in far]

        def table(k: int) -> Tensor:
            return tabulated(self.axes[k], points, orders, self._first[k])[1]

        # Axes with few neighbours first: of their nodes only some are looked up, and summed with their factors.
        values = values.permute(*near, *far, *summed, dims)
        if not near:
            first, *far = far
            found = (table(first) @ values.flatten(1)).unflatten(1, values.shape[1:])
        else:
            sizes = [values.shape[k] for k in range(len(near))]
            own = [c for k in near for c in range(self._first[k], self._first[k] + self.axes[k].columns)]
            numbers, factors = products([self.axes[k] for k in near], sizes, points[:, own], [orders[c] for c in own])
            picked = values.flatten(0, len(near) - 1)[numbers]
            found = torch.bmm(factors[:, None, :], picked.flatten(2))[:, 0].unflatten(1, values.shape[len(near) :])
        for k in far:
            found = torch.bmm(table(k)[:, None, :], found.flatten(2))[:, 0].unflatten(1, found.shape[2:])
        return found.reshape(count, -1)

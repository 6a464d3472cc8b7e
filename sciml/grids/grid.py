r"""Tensor grids: jets of nodal values are sparse matrices, and so is the exact Jacobian of any residual.

A residual is pointwise in the jets, :math:`r = R(x, u, u_x, \dots)`, and a jet of nodal values :math:`U` is a matrix times
:math:`U`. Therefore

.. math::  \partial r/\partial U = \sum_k \operatorname{diag}(\partial R/\partial u_k)\, D_k .
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from sciml.conditions import Scene, Term
from sciml.derivative import JetSpace
from sciml.domains.region import Face
from sciml.grids.axes import Nodal
from sciml.problem import Problem
from sciml.typing import Array, MultiIndex, Values


class Grid:
    """All combinations of the nodes of some axes.

    Args:
        axes: an axis for each coordinate, in the order of the problem's; without any there is one node.

    Example:
        >>> from sciml.grids import Chebyshev
        >>> grid = Grid({"x": Chebyshev(0, 1, 5), "y": Chebyshev(0, 2, 7)})
        >>> grid.size, grid.matrix(("x", "y")).shape
        (35, (35, 35))
    """

    def __init__(self, axes: Mapping[str, Nodal]) -> None:
        self.axes = dict(axes)
        self.shape = tuple(len(axis) for axis in self.axes.values())
        self.size = int(np.prod(self.shape))
        columns = np.meshgrid(*(axis.nodes for axis in self.axes.values()), indexing="ij")
        self.points = np.stack([column.ravel() for column in columns], axis=1) if columns else np.empty((1, 0))
        self._numbers = np.arange(self.size).reshape(self.shape)
        self._matrices: dict[tuple[int, ...], sparse.csr_array] = {}

    @property
    def weights(self) -> Array:
        """A quadrature over the nodes, ``(N,)``."""
        return reduce(np.multiply.outer, (axis.weights for axis in self.axes.values())).ravel()

    def matrix(self, index: MultiIndex) -> sparse.csr_array:
        """From values at the nodes to a partial derivative there, ``(N, N)``."""
        orders = tuple(index.count(name) for name in self.axes)
        if orders not in self._matrices:
            factors = (axis.matrix(order) for axis, order in zip(self.axes.values(), orders, strict=True))
            one = sparse.csr_array(sparse.eye_array(1))
            self._matrices[orders] = reduce(lambda a, b: sparse.csr_array(sparse.kron(a, b)), factors, one)
        return self._matrices[orders]

    def layer(self, face: Face, depth: int = 0) -> Array:
        """The numbers of the nodes on a face, or in the layer so many nodes below it."""
        column = list(self.axes).index(face.coordinate)
        # Round a periodic axis both faces are the first node.
        upper = face.side == "upper" and not self.axes[face.coordinate].periodic
        position = self.shape[column] - 1 - depth if upper else depth
        return np.take(self._numbers, position, axis=column).ravel()

    def face_weights(self, face: Face) -> Array:
        """A quadrature over the nodes of a face."""
        others = [axis.weights for name, axis in self.axes.items() if name != face.coordinate]
        return reduce(np.multiply.outer, others).ravel() if others else np.ones(1)

    def at_nodes(self, numbers: Array) -> Sites:
        """Some of the nodes as the places of a residual."""
        return Sites(self.points[numbers], lambda index: self.matrix(index)[numbers])

    def at_points(self, points: Array) -> Sites:
        """Any points ``(m, D)`` as the places of a residual; the function between the nodes is what its axes make of it."""
        return Sites(points, lambda index: self._between(points, index))

    def _between(self, points: Array, index: MultiIndex) -> sparse.csr_array:
        found: sparse.csr_array | None = None
        for column, (name, axis) in enumerate(self.axes.items()):
            numbers, factors = axis.table(torch.from_numpy(points[:, column]), index.count(name))
            count = factors.shape[1]
            columns = np.arange(count)[None].repeat(len(points), 0) if numbers is None else numbers.numpy()
            rows = np.repeat(np.arange(len(points)), count)
            table = sparse.csr_array((factors.numpy().ravel(), (rows, columns.ravel())), shape=(len(points), len(axis)))
            found = table if found is None else _row_products(found, table)
        assert found is not None
        return found


def _row_products(one: sparse.csr_array, other: sparse.csr_array) -> sparse.csr_array:
    """In each row the products of all entries of one with all of the other; every row has equally many entries."""
    rows = one.shape[0]
    first, second = (each.indices.reshape(rows, -1).astype(np.int64) for each in (one, other))
    columns = (first[:, :, None] * other.shape[1] + second[:, None, :]).reshape(rows, -1)
    values = (one.data.reshape(rows, -1)[:, :, None] * other.data.reshape(rows, -1)[:, None, :]).reshape(rows, -1)
    starts = np.arange(rows + 1) * columns.shape[1]
    return sparse.csr_array((values.ravel(), columns.ravel(), starts), shape=(rows, one.shape[1] * other.shape[1]))


class Sites:
    """Places of a residual: points ``(m, D)``, and the matrix ``(m, N)`` of each partial derivative there.

    Args:
        points: the points.
        operator: makes the matrix of a multi-index; asked once for each.
    """

    def __init__(self, points: Array, operator: Callable[[MultiIndex], sparse.csr_array]) -> None:
        self.points = points
        self._operator = operator
        self._kept: dict[MultiIndex, sparse.csr_array] = {}

    def operator(self, index: MultiIndex) -> sparse.csr_array:
        """From values at the nodes to a partial derivative at the points."""
        if index not in self._kept:
            self._kept[index] = self._operator(index)
        return self._kept[index]


class GridJets:
    """Jets of nodal values at sites.

    Args:
        values: of each field the values at the nodes, and of its time derivatives where time is no axis, by field and the
            number of time derivatives; each ``(N,)``.
        sites: where.
        time: the name of the coordinate that is no axis, if there is one.
    """

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


@dataclass(frozen=True)
class Linearised:
    """A residual at sites and its derivatives by jets and by unknown constants, all of shape ``(m,)``."""

    residual: Array
    slopes: Mapping[tuple[str, MultiIndex], Array]
    by_unknown: Mapping[str, Array] = field(default_factory=dict)


def evaluated(
    term: Term,
    problem: Problem,
    points: Mapping[str, Tensor],
    jets: GridJets,
    *,
    normals: Array | None = None,
    after: Callable[[Tensor, JetSpace], Tensor] | None = None,
) -> tuple[Tensor, JetSpace]:
    """A residual ``(m,)``, and the jet space that it was evaluated on; arguments as for ``linearised``."""
    space = JetSpace(points, problem.fields, jets)
    value = term.evaluate(Scene(problem, (space,), None if normals is None else torch.from_numpy(normals)))
    return value if after is None else after(value, space), space


def linearised(
    term: Term,
    problem: Problem,
    points: Mapping[str, Tensor],
    jets: GridJets,
    *,
    normals: Array | None = None,
    unknowns: Mapping[str, float] | None = None,
    after: Callable[[Tensor, JetSpace], Tensor] | None = None,
) -> Linearised:
    """Evaluate a term and differentiate it by every jet that it asked for.

    Args:
        term: the residual.
        problem: the problem.
        points: each coordinate ``(m,)``.
        jets: the supplier.
        normals: outward normals ``(m, D)``, on sides.
        unknowns: values of unknown constants; the residual is differentiated by them too.
        after: what is done to the residual before it is differentiated, such as a total derivative.
    """
    count = len(next(iter(points.values())))
    constants = {
        name: torch.full((count,), value, dtype=torch.float64, requires_grad=True)
        for name, value in (unknowns or {}).items()
    }
    bound = problem.bind(**constants) if constants else problem
    value, space = evaluated(term, bound, points, jets, normals=normals, after=after)
    keys = list(space.jets)
    inputs = [space.jets[key] for key in keys] + list(constants.values())
    found: list[Tensor | None] = [None] * len(inputs)
    if value.requires_grad and inputs:
        found = list(torch.autograd.grad(value.sum(), inputs, allow_unused=True))
    slopes = {
        key: grad.numpy() for key, grad in zip(keys, found, strict=False) if grad is not None and bool(grad.any())
    }
    by_unknown = {
        name: np.zeros(count) if grad is None else grad.numpy()
        for name, grad in zip(constants, found[len(keys) :], strict=True)
    }
    return Linearised(value.detach().numpy(), slopes, by_unknown)

r"""L2 projection onto a tensor-product grid of functions that it does not resolve, as initial values that jump.

The projection has the moments of the function,

.. math::  \int_\Omega (P f - f)\,v\,dx = 0 \quad\text{for every function } v \text{ of the grid},

to the error of a quadrature, so that modes that last are right, and only those are missing that a grid cannot hold, which
diffusion damps first. Values at the nodes would tell the place of a jump to no more than their distance. The quadrature halves
its cells, which lie between the nodes, where the function is no polynomial along them. A cell hands on the polynomial of degree
four that has its moments; functions that the grid resolves are interpolated more exactly.

References: W. Gander, W. Gautschi, Adaptive quadrature - revisited, BIT 40 (2000); P. J. Davis, P. Rabinowitz, Methods of
Numerical Integration, Academic Press 1984.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor

from sciml.models.bases import Nodal, axis_from, gauss

# Functions of places, ``(n,)`` by coordinate, as ``(k, n)``.
Sampled = Callable[[Sequence[Tensor]], Tensor]

# Places in a cell along each axis: with its ends, so that no jump hides between two cells.
_PLACES = 5
# What of a function's size is no polynomial of lower degree in a cell that is halved, and that times its share of the domain.
_ROUGH, _SMALL = 1e-4, 1e-10
# Values of all functions that may be asked for beyond those of the first cells: of a grid, and of boxes around jumps alone.
_MOST, _ON_BOXES = 2**23, 2**21
# Numbers that are held at once for each place: for each function, and for each coordinate.
_FOR_FUNCTIONS, _FOR_COORDINATES = 7, 4
# Cells of a box along each axis, by their number.
_CELLS = {1: 4, 2: 4, 3: 2}


def _lobatto() -> tuple[Tensor, Tensor, Tensor]:
    """Places and weights of Gauss and Lobatto on [0, 1], and from values there to Legendre coefficients, by rows."""
    highest = [0.0] * (_PLACES - 1) + [1.0]
    places = np.concatenate([[-1.0], legendre.legroots(legendre.legder(highest)), [1.0]])
    weights = 2 / (_PLACES * (_PLACES - 1) * legendre.legval(places, highest) ** 2)
    expanded = np.linalg.inv(legendre.legvander(places, _PLACES - 1))
    return torch.from_numpy((places + 1) / 2), torch.from_numpy(weights / 2), torch.from_numpy(expanded)


_AT, _WEIGHTS, _EXPANDED = _lobatto()


def projected(axes: Sequence[Nodal], sampled: Sampled, memory: float = math.inf) -> Tensor:
    """The values at the nodes of a grid, ``(k, n_1, ...)``, of the projection of some functions.

    Cells are halved as far as so many bytes of memory allow; the first ones take about 3 kB for each node and function.

    Example:
        >>> import torch
        >>> from sciml.models import Chebyshev
        >>> axis = Chebyshev(-1.0, 1.0, 20)
        >>> step = projected([axis], lambda columns: (columns[0] < 0.3).double()[None])
        >>> round(float(torch.from_numpy(axis.weights) @ step[0]), 6)
        1.3
    """
    # In space as many as in the plane would be too many.
    step = 1 if len(axes) < 3 else 2
    edges = [torch.from_numpy(np.append(axis.nodes[: None if axis.periodic else -1 : step], axis.high)) for axis in axes]
    values = _in_cells(_product([each[:-1] for each in edges]), _product([each.diff() for each in edges]), sampled, memory)
    # One axis of places after the other, cell by cell.
    counts, beside = [len(each) - 1 for each in edges], len(axes)
    values = values.unflatten(2, [_PLACES] * beside).unflatten(1, counts)
    values = values.permute(0, *chain.from_iterable((1 + k, 1 + beside + k) for k in range(beside)))
    values = values.reshape(len(values), *(_PLACES * count for count in counts))
    for column, (axis, edge) in enumerate(zip(axes, edges, strict=True), start=1):
        places = (edge[:-1, None] + edge.diff()[:, None] * _AT).flatten()
        roots = (edge.diff()[:, None] * _WEIGHTS).flatten().sqrt()
        matrix = _least_squares(roots[:, None] * axis.table(places, 0)[1]) * roots
        values = (values.movedim(column, -1) @ matrix.T).movedim(-1, column)
    return values


def projected_on_boxes(lows: Tensor, sides: Tensor, table: Callable[[Tensor], Tensor], sampled: Sampled) -> Tensor:
    """Coefficients ``(k, E, K)`` of the projections of some functions on boxes, each for itself.

    Args:
        lows: the lower corners of the boxes, ``(E, D)``.
        sides: their sides, ``(E, D)``.
        table: the K functions at places ``(n, D)`` of a box that is [-1, 1] along each axis: ``(n, K)``.
        sampled: the functions that are projected.
    """
    beside, count = lows.shape[1], _CELLS[lows.shape[1]]
    cells = _product([torch.arange(count, dtype=torch.float64) / count] * beside)
    starts, wide = lows[:, None] + sides[:, None] * cells, (sides[:, None] / count).expand(-1, len(cells), -1)
    values = _in_cells(starts.flatten(0, 1), wide.flatten(0, 1), sampled, math.inf, _ON_BOXES)
    places = (cells[:, None] + _product([_AT] * beside) / count).flatten(0, 1)
    roots = _product([_WEIGHTS] * beside).prod(1).sqrt().repeat(len(cells))
    matrix = _least_squares(roots[:, None] * table(2 * places - 1)) * roots
    return values.unflatten(1, (len(lows), len(cells))).flatten(2) @ matrix.T


def rough_part(axes: Sequence[Nodal], values: Tensor) -> Tensor:
    """High-frequency part of nodal values ``(k, n_1, ...)``: orthogonal to the functions of a grid with a sixth fewer nodes."""
    smooth = values
    for column, axis in enumerate(axes, start=1):
        fewer = axis_from({**axis.config, "count": max(3, 5 * len(axis) // 6)})
        at, weights = gauss(2 * len(axis))
        places, roots = axis.low + (axis.high - axis.low) * (at + 1) / 2, weights.sqrt()[:, None]
        onto = _least_squares(roots * fewer.table(places, 0)[1]) @ (roots * axis.table(places, 0)[1])
        matrix = fewer.table(torch.from_numpy(axis.nodes), 0)[1] @ onto
        smooth = (smooth.movedim(column, -1) @ matrix.T).movedim(-1, column)
    return values - smooth


def _least_squares(table: Tensor) -> Tensor:
    """The pseudo-inverse of a matrix of full rank."""
    rotation, triangle = torch.linalg.qr(table)
    return torch.linalg.solve_triangular(triangle, rotation.T, upper=True)


def _product(columns: Sequence[Tensor]) -> Tensor:
    """All combinations ``(n, D)``, the last column's fastest."""
    return torch.cartesian_prod(*columns).reshape(-1, len(columns))


def _in_cells(starts: Tensor, sides: Tensor, sampled: Sampled, memory: float, most: float = _MOST) -> Tensor:
    """At the places of cells values ``(k, cells, places)`` that have the moments of the functions in each of them."""
    (count, beside), grid = starts.shape, _product([_AT] * starts.shape[1])
    shares = sides.prod(1) / sides.prod(1).sum()
    cells, lows, widths = torch.arange(count), torch.zeros_like(starts), torch.ones_like(starts)
    found, sizes, asked = torch.empty(0), torch.empty(0), 0.0
    while len(cells):
        places = starts[cells][:, None] + sides[cells][:, None] * (lows[:, None] + widths[:, None] * grid)
        values = sampled(list(places.flatten(0, 1).T)).unflatten(1, (len(cells), len(grid)))
        if not len(found):
            sizes, found = values.abs().amax((1, 2)).clamp_min(1e-300), torch.zeros_like(values)
            most = min(most, memory / (8 * (_FOR_FUNCTIONS + _FOR_COORDINATES * beside / len(values))))
        by_place = values.unflatten(2, [_PLACES] * beside) / sizes.view(-1, *[1] * (beside + 1))
        along = (by_place.movedim(column, -1) @ _EXPANDED[-2:].T for column in range(2, 2 + beside))
        worst = torch.stack([each.flatten(2).abs().amax((0, 2)) for each in along])
        left = worst * shares[cells] * widths.prod(1)
        rough = (worst > _ROUGH) & (left > _SMALL) & (2 * worst > worst.amax(0))
        # The cells that may miss most, as far as the values go.
        order = left.amax(0).argsort(descending=True)
        needed = asked + (rough.any(0) * 2 ** rough.sum(0) * values.numel() / len(cells))[order].cumsum(0)
        rough[:, order[needed > most]] = False
        asked = max([asked, *needed[needed <= most][-1:].tolist()])
        done = ~rough.any(0)
        moments = values[:, done].unflatten(2, [_PLACES] * beside)
        for column in range(beside):
            unit = lows[done, column, None] + widths[done, column, None] * _AT
            table = torch.from_numpy(legendre.legvander(2 * unit.numpy() - 1, _PLACES - 1)) @ _EXPANDED
            table = table * widths[done, column, None, None] * _WEIGHTS[:, None] / _WEIGHTS
            along = moments.movedim(2 + column, -1)
            moments = (along.unflatten(-1, (1, -1)).flatten(2, -2) @ table).view_as(along).movedim(-1, 2 + column)
        found.index_add_(1, cells[done], moments.flatten(2))
        cells, lows, widths, rough = cells[~done], lows[~done], widths[~done], rough[:, ~done]
        for column in range(beside):
            split = rough[column]
            widths[split, column] /= 2
            beyond = lows[split]
            beyond[:, column] += widths[split, column]
            cells, lows = torch.cat([cells, cells[split]]), torch.cat([lows, beyond])
            widths, rough = torch.cat([widths, widths[split]]), torch.cat([rough, rough[:, split]], dim=1)
    return found

"""Quadrature rules: Gauss points on intervals, their products, and iterated integrals over plane domains with curved sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sciml.typing import Array

_MOST_NODES = 512
# Points along a line that are asked for what lies inside, points of a rule on an interval at least, and how often ends are
# bisected.
_ALONG, _FEWEST, _BISECTIONS = 64, 8, 52
# Into how many parts steps along a line are divided that may hide something, and how often.
_PARTS, _FINER = 8, 3
# What lies closer together than this, as a share of the width, is one place.
_SAME = 1e-9


def gauss(nodes: int) -> tuple[Array, Array]:
    """Gauss' points in [0, 1] and their weights, which add up to 1; very many of them by parts of the interval."""
    parts = math.ceil(nodes / _MOST_NODES)
    # One rule of n nodes is the eigenvalues of a matrix of n by n numbers.
    at, weights = np.polynomial.legendre.leggauss(math.ceil(nodes / parts))
    inside = (np.arange(parts)[:, None] + 0.5 + 0.5 * at) / parts
    return inside.ravel(), np.tile(0.5 * weights / parts, parts)


def grid(*rules: tuple[Array, Array]) -> tuple[Array, Array]:
    """All combinations of the points of several rules, a column for each, and the products of their weights."""
    points = np.meshgrid(*(at for at, _ in rules), indexing="ij")
    weights = np.meshgrid(*(weight for _, weight in rules), indexing="ij")
    return np.stack([each.ravel() for each in points], axis=1), np.prod(weights, axis=0).ravel()


def iterated(
    distance: Callable[[Array], Array], lower: Sequence[float], upper: Sequence[float], breaks: Array, count: int
) -> tuple[Array, Array]:
    r"""Iterated integral by Gauss' rules: about ``count`` points ``(n, 2)`` in a plane domain and weights that sum to its area.

    Lines across the first coordinate meet the domain in intervals, whose ends are bisected. Between ``breaks``, where the
    lengths of these are not smooth, that coordinate is :math:`x = a + (b - a)(1 - \cos\theta)/2`: the roots with which circles
    begin and end are smooth in :math:`\theta`, and the rule converges exponentially.

    Args:
        distance: of points ``(n, 2)`` from the boundary, negative inside, or a lower bound of it.
        lower, upper: the box around the domain.
        breaks: values of the first coordinate, in any order: those of corners and of vertical tangents.
        count: of points, about, or more where there are many breaks.

    Reference: P. J. Davis and P. Rabinowitz, Methods of Numerical Integration, 2nd edition, Academic Press 1984, sections 2.9
    and 5.6.
    """
    (left, bottom), (right, top) = lower, upper
    ends = np.unique(np.clip([left, right, *breaks], left, right))
    ends = ends[np.concatenate([[True], np.diff(ends) > _SAME * (right - left)])]
    ends[-1] = right
    nodes = max(_FEWEST, round(math.sqrt(count / (len(ends) - 1))))
    turn, weights = gauss(nodes)
    widths = np.diff(ends)
    columns = (ends[:-1, None] + widths[:, None] * (1 - np.cos(math.pi * turn)) / 2).ravel()
    shares = (widths[:, None] * (math.pi / 2) * np.sin(math.pi * turn) * weights).ravel()

    line, low, high = _crossings(lambda at, x: distance(np.stack([columns[at], x], axis=1)), len(columns), bottom, top)
    lengths = high - low
    points = np.stack(np.broadcast_arrays(columns[line, None], low[:, None] + lengths[:, None] * turn), axis=-1)
    return points.reshape(-1, 2), ((shares[line] * lengths)[:, None] * weights).ravel()


def _crossings(distance: Callable[[Array, Array], Array], count: int, bottom: float, top: float) -> tuple[Array, Array, Array]:
    """Root finding by bisection: the intervals inside on each of some lines: their lines, lower and upper ends, each ``(m,)``.

    ``distance`` is from numbers of lines and places on them; places inside are nearer to each other than it says.
    """
    heights = bottom + (top - bottom) * np.arange(_ALONG + 1) / _ALONG
    line = np.repeat(np.arange(count), _ALONG + 1)
    far = distance(line, np.tile(heights, count)).reshape(count, -1)
    # Nothing lies beyond the box.
    far[:, [0, -1]] = np.maximum(far[:, [0, -1]], 0.0)
    steps: list[Array] = [np.arange(count).repeat(_ALONG), np.tile(heights[:-1], count), np.tile(heights[1:], count)]
    steps += [far[:, :-1].ravel(), far[:, 1:].ravel()]
    found = []
    for finer in range(_FINER + 1):
        line, low, high, one, two = steps
        changes = (one < 0) != (two < 0)
        found.append([line[changes], low[changes], high[changes], one[changes] < 0])
        # Between places on the same side of a boundary it may come and go only where both are near it.
        hidden = ~changes & (np.abs(one) + np.abs(two) < high - low)
        if finer == _FINER or not hidden.any():
            break
        line, low, high, one, two = (each[hidden] for each in steps)
        at = low[:, None] + (high - low)[:, None] * np.arange(_PARTS + 1) / _PARTS
        far = np.column_stack([one, distance(line.repeat(_PARTS - 1), at[:, 1:-1].ravel()).reshape(-1, _PARTS - 1), two])
        steps = [line.repeat(_PARTS), at[:, :-1].ravel(), at[:, 1:].ravel(), far[:, :-1].ravel(), far[:, 1:].ravel()]
    line, low, high, known = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((low, line))
    line, low, high, known = line[order], low[order], high[order], known[order]
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        same = (distance(line, middle) < 0) == known
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    # Along a line one crossing begins an interval, and the next one ends it.
    ends = (low + high) / 2
    return line[::2], ends[::2], ends[1::2]

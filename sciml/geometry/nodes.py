"""Quasi-uniform nodes of a domain of any shape: a lattice inside, and points as far apart on every side of the boundary."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import qmc

from sciml.geometry.domain import Domain, Side
from sciml.typing import Array

# Nodes of different sides, and those inside and on the boundary, in units of their distance elsewhere.
_APART, _SURFACE, _OFF = 0.5, 0.75, 0.6
_MORE = 12
_SHAKEN = 0.1


def scattered(domain: Domain, spacing: float, sides: Sequence[Side]) -> tuple[Array, dict[Side, tuple[Array, Array]]]:
    """Nodes about ``spacing`` apart in two or three coordinates, those of the boundary first.

    Args:
        domain: in the unit of ``spacing``; it has two or three coordinates.
        spacing: the distance of neighbours in the lattice inside.
        sides: the sides of the domain; where two of them meet, the nodes of the earlier one are kept.

    Returns:
        The nodes ``(N, D)``, and for each side the numbers ``(n,)`` of its nodes and the outward normals ``(n, D)`` there.
    """
    made = {side: _on_side(domain, side, spacing) for side in sides}
    boundary = np.concatenate([points for points, _ in made.values()])
    kept = _thinned(boundary, _APART * spacing)
    number = np.cumsum(kept) - 1
    found, first = {}, 0
    for side, (points, normals) in made.items():
        own = kept[first : first + len(points)]
        found[side] = number[first : first + len(points)][own], normals[own]
        first += len(points)
    inside = _lattice(domain, spacing)
    boundary = boundary[kept]
    inside = inside[cKDTree(boundary).query(inside)[0] > _OFF * spacing]
    return np.concatenate([boundary, inside]), found


def _lattice(domain: Domain, spacing: float) -> Array:
    """The triangular lattice in the plane, the body-centred cubic one in space, two rectangular ones each, a little shaken."""
    dimension = len(domain.bounds)
    cell = spacing * np.array([1.0, math.sqrt(3)] if dimension == 2 else [2 / math.sqrt(3)] * 3)
    lower, upper = np.array(domain.lower), np.array(domain.upper)
    axes = [np.arange(low, high + width, width) for low, high, width in zip(lower, upper, cell, strict=True)]
    corners = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
    points = np.concatenate([corners, corners + cell / 2])
    # Rows as straight as those of a lattice do not determine polynomials near a straight side.
    points += _SHAKEN * spacing * np.random.default_rng(0).uniform(-1, 1, points.shape)
    return points[domain.distance(points) < 0]


def _on_side(domain: Domain, side: Side, spacing: float) -> tuple[Array, Array]:
    freedom, size = domain.freedom(side), domain.extent(side) / domain.kept(side)
    if freedom == 1:
        count = max(3, math.ceil(size / spacing))
        unit = (np.arange(count)[:, None] + 0.5) / count
    else:
        count = _MORE * max(8, math.ceil(size / spacing**freedom))
        unit = qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(2 ** math.ceil(math.log2(count)))
    points, normals, keep = domain.on_side(side, unit)
    points, normals = points[keep], normals[keep]
    if freedom > 1:
        few = _thinned(points, _SURFACE * spacing)
        points, normals = points[few], normals[few]
    return points, normals


def _thinned(points: Array, distance: float) -> Array:
    """Which points remain, earlier ones before later ones, so that no two are nearer than a distance."""
    pairs = cKDTree(points).query_pairs(distance, output_type="ndarray")
    earlier, later = pairs.min(axis=1), pairs.max(axis=1)
    kept = np.ones(len(points), dtype=bool)
    while len(earlier):
        # Those before which no near one is left are kept; what is near to them goes.
        waiting = np.zeros(len(points), dtype=bool)
        waiting[later] = True
        sure = ~waiting & kept
        gone = np.zeros(len(points), dtype=bool)
        gone[later[sure[earlier]]] = True
        kept &= ~gone
        left = ~sure[earlier] & ~gone[earlier] & ~gone[later]
        earlier, later = earlier[left], later[left]
    return kept

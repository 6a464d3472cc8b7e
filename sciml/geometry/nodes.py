"""Scattered nodes of a domain of any shape: lattices inside, points as far apart on every side, denser at small holes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy

from sciml.geometry.domain import Domain, Side
from sciml.typing import Array

# Nodes of different sides, of curved surfaces and lattices that meet, and those inside and on the boundary, in units of
# their distance; by how much those of a lattice are moved at random.
_APART, _THIN, _OFF, _SHAKEN = 0.5, 0.75, 0.6, 0.1
_MORE, _FEWEST = 12, 64
# The radius of curvature below which nodes are denser, as a share of the domain, how fast that ends, and how much denser, by
# the number of coordinates: the densest lattice is laid over all of the domain before most of it is left out.
_SMALL, _GRADED = 0.125, 0.2
_DENSEST = {2: 1 / 16, 3: 1 / 4}


@dataclass(frozen=True)
class SideNodes:
    """The nodes on a side: their numbers ``(n,)``, the outward normals there ``(n, D)``, and how far they are apart."""

    numbers: Array
    normals: Array
    spacing: float


def scattered(domain: Domain, spacing: float, sides: Sequence[Side]) -> tuple[Array, dict[Side, SideNodes]]:
    """Nodes about ``spacing`` apart in two or three coordinates, those of the boundary first.

    Where a side is curved more strongly than an eighth of the domain they are denser, by the radius of curvature, and grow
    apart with the distance from it.

    Args:
        domain: in the unit of ``spacing``; it has two or three coordinates.
        spacing: the distance of neighbours in the lattice inside.
        sides: the sides of the domain; where two of them meet, the nodes of the earlier one are kept.

    Returns:
        The nodes ``(N, D)``, and those of each side.
    """
    share = {side: _density(domain, side) for side in sides}
    made = {side: _on_side(domain, side, share[side] * spacing) for side in sides}
    boundary = np.concatenate([points for points, _ in made.values()])
    own = np.concatenate([np.full(len(points), share[side] * spacing) for side, (points, _) in made.items()])
    kept = _thinned(boundary, _APART * own)
    number = np.cumsum(kept) - 1
    found, first = {}, 0
    for side, (points, normals) in made.items():
        here = slice(first, first + len(points))
        found[side] = SideNodes(number[here][kept[here]], normals[kept[here]], share[side] * spacing)
        first += len(points)
    boundary, own = boundary[kept], own[kept]
    inside = _inside(domain, spacing, boundary, own)
    return np.concatenate([boundary, inside]), found


def _inside(domain: Domain, spacing: float, boundary: Array, own: Array) -> Array:
    """Nodes inside, from lattices as fine as the boundary near by asks for."""
    apart = partial(_apart, spacing, [(each, scipy.spatial.cKDTree(boundary[own == each])) for each in np.unique(own)])
    levels = math.ceil(2 * math.log2(spacing / own.min()) - 1e-9)
    nodes, wanted = [], []
    for level in range(levels + 1):
        finer = spacing * 2 ** (-level / 2)
        points = _lattice(domain, finer)
        found = apart(points)
        # Between this lattice and the next ones.
        least = finer * 2**-0.25 if level < levels else 0.0
        most = finer * 2**0.25 if level else math.inf
        chosen = (found > least) & (found <= most)
        nodes.append(points[chosen])
        wanted.append(found[chosen])
    points, distances = np.concatenate(nodes), np.concatenate(wanted)
    clear = scipy.spatial.cKDTree(boundary).query(points)[0] > _OFF * distances
    points, distances = points[clear], distances[clear]
    return points[_thinned(points, _THIN * distances)] if levels else points


def _apart(spacing: float, sides: Sequence[tuple[float, scipy.spatial.cKDTree]], points: Array) -> Array:
    """How far nodes are to be apart at points ``(n, D)``."""
    found = np.full(len(points), spacing)
    for own, tree in sides:
        if own < spacing:
            found = np.minimum(found, own + _GRADED * tree.query(points, distance_upper_bound=spacing / _GRADED)[0])
    return found


def _density(domain: Domain, side: Side) -> float:
    """The distance of nodes on a side as a share of that elsewhere, by its curvature."""
    freedom = domain.freedom(side)
    points, normals, _ = domain.on_side(side, scipy.stats.qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(256))
    away, near = scipy.spatial.cKDTree(points).query(points, 2)
    turned = np.linalg.norm(normals - normals[near[:, 1]], axis=1)
    curvature = float(np.median(turned / np.maximum(away[:, 1], 1e-300)))
    share = 1 / max(curvature * _SMALL * 2 * max(domain.half_widths.values()), 1e-300)
    return min(1.0, max(_DENSEST[len(domain.bounds)], share))


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
        count = max(_FEWEST, math.ceil(_MORE * size / spacing**freedom))
        unit = scipy.stats.qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(2 ** math.ceil(math.log2(count)))
    points, normals, keep = domain.on_side(side, unit)
    points, normals = points[keep], normals[keep]
    if freedom > 1:
        few = _thinned(points, np.full(len(points), _THIN * spacing))
        points, normals = points[few], normals[few]
    return points, normals


def _thinned(points: Array, distances: Array) -> Array:
    """Which points remain, earlier ones before later ones, so that no two are nearer than the smaller of their distances."""
    pairs = scipy.spatial.cKDTree(points).query_pairs(float(distances.max(initial=0.0)), output_type="ndarray")
    near = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1) < distances[pairs].min(axis=1)
    earlier, later = np.sort(pairs[near], axis=1).T
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

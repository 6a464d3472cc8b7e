"""Which elements of which coordinate to halve, told by the residuals between the points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor

from sciml.slabs.mesh import gauss
from sciml.tiles.tiling import Tiling
from sciml.typing import Array

_SHARE = 0.8
_CLOSE = 0.8


def energies(tiling: Tiling, residuals: Sequence[Tensor], more: int) -> tuple[Array, Array]:
    """What each tile adds to the mean square of residuals on its Gauss points, and along which coordinates they oscillate.

    A residual that least squares leaves for want of functions along a coordinate is of high degree along it. So the mean degree
    of its Legendre polynomials, as a share of the highest, tells the coordinate.

    Args:
        tiling: the tiles.
        residuals: values at the points of ``blocks_on``, times the root of their shares, each ``(n,)``.
        more: the same as there.

    Returns:
        The energy of every tile, ``(E_1, ..., E_D)``; and the mean degree along each coordinate, ``(D, E_1, ..., E_D)``.
    """
    count, shape = len(tiling.meshes), []
    for mesh in tiling.meshes:
        shape += [mesh.count, mesh.degree + 1 + more]
    elements, places = list(range(0, 2 * count, 2)), list(range(1, 2 * count, 2))
    tiles = [mesh.count for mesh in tiling.meshes]
    energy = torch.zeros(tiles, dtype=torch.float64)
    degrees = torch.zeros(count, *tiles, dtype=torch.float64)
    for values in residuals:
        found = values.reshape(shape).permute(*elements, *places)
        for column, mesh in enumerate(tiling.meshes):
            at, weights = gauss(mesh.degree + 1 + more)
            table = legendre.legvander(at.numpy(), len(at) - 1) * np.sqrt(np.arange(len(at)) + 0.5)
            transform = torch.from_numpy(table) * weights.sqrt()[:, None]
            found = (found.movedim(count + column, -1) @ transform).movedim(-1, count + column)
        squares = found.square()
        energy = energy + squares.sum(dim=tuple(range(count, 2 * count)))
        each = []
        for column in range(count):
            others = tuple(count + other for other in range(count) if other != column)
            along = squares.sum(dim=others) if others else squares
            numbers = torch.arange(along.shape[-1], dtype=torch.float64) / (along.shape[-1] - 1)
            each.append((along * numbers).sum(-1))
        degrees = degrees + torch.stack(each)
    return energy.numpy(), (degrees / energy.clamp_min(1e-300)).numpy()


def refined(tiling: Tiling, energy: Array, degrees: Array) -> Tiling:
    """The tiling with those elements halved that hold most of the energy, along the coordinates in which it oscillates."""
    guilty = degrees >= _CLOSE * degrees.max(axis=0)
    per_element: list[Array] = []
    for column in range(len(tiling.meshes)):
        others = tuple(other for other in range(len(tiling.meshes)) if other != column)
        per_element.append((energy * guilty[column]).sum(axis=others))
    flat = np.concatenate(per_element)
    order = np.argsort(flat)[::-1]
    enough = int(np.searchsorted(np.cumsum(flat[order]), _SHARE * flat.sum())) + 1
    marked = np.zeros(len(flat), dtype=bool)
    marked[order[:enough]] = True
    meshes, start = [], 0
    for mesh, own in zip(tiling.meshes, per_element, strict=True):
        which = marked[start : start + len(own)]
        meshes.append(mesh.split(np.flatnonzero(which)) if which.any() else mesh)
        start += len(own)
    return Tiling(meshes, tiling.outer)

"""Low-discrepancy points inside a box and on its faces."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from sciml.domains import Box, Face, Interior, OnFaces, Place
from sciml.typing import Array, Points


@dataclass(frozen=True)
class Sample:
    """Points of one place.

    ``points`` holds one tensor ``(n, D)``, or two with the partners on the lower and the upper face; ``normals`` the
    outward normals ``(n, D)`` on faces; ``faces`` the number of points on each face, in order.
    """

    points: tuple[Points, ...]
    normals: Tensor | None = None
    faces: tuple[int, ...] = ()

    def to(self, device: torch.device, dtype: torch.dtype) -> Sample:
        """The same points elsewhere."""
        normals = None if self.normals is None else self.normals.to(device, dtype)
        return Sample(tuple(points.to(device, dtype) for points in self.points), normals, self.faces)


def default_count(box: Box) -> int:
    """How many points to use inside when the user does not say: by the number of coordinates."""
    return {1: 256, 2: 1024}.get(len(box.coordinates), 4096)


def default_face_count(box: Box, inside: int) -> int:
    """How many points to use on each face: twice as dense along every edge as ``inside`` points are in the box.

    In four and more coordinates all faces together get as many as the inside.
    """
    dimension = len(box.coordinates)
    if dimension > 3:
        # That many points on each of many faces would be far more than inside: as many on all of them together.
        return max(1, inside // (2 * dimension))
    return 1 if dimension == 1 else round(2 * inside ** ((dimension - 1) / dimension))


def draw(place: Place, box: Box, count: int, generator: np.random.Generator) -> Sample:
    """Scrambled Sobol points of one place of a box.

    Args:
        place: the inside, some faces, or the opposite faces of a coordinate.
        box: the domain.
        count: the number of points; on faces, of points on **each** face (a face that is a single point gets one).
        generator: scrambles the sequence.

    Example:
        >>> import numpy as np, sciml
        >>> from sciml.domains import Interior
        >>> sample = draw(Interior(), sciml.Box(x=(0, 1), t=(0, 2)), 100, np.random.default_rng(0))
        >>> sample.points[0].shape
        torch.Size([100, 2])

    Reference: A. B. Owen, Scrambling Sobol' and Niederreiter-Xing points, Journal of Complexity 14 (1998).
    """
    if isinstance(place, Interior):
        return Sample((torch.from_numpy(_inside(box, box.coordinates, count, generator)),))
    if isinstance(place, OnFaces):
        pieces = [_on_face(face, box, count, generator) for face in place.faces]
        normals = np.concatenate(
            [_normals(face, box, len(piece)) for face, piece in zip(place.faces, pieces, strict=True)]
        )
        points = torch.from_numpy(np.concatenate(pieces))
        return Sample((points,), torch.from_numpy(normals), tuple(len(piece) for piece in pieces))
    lower = _on_face(Face(place.coordinate, "lower"), box, count, generator)
    upper = lower.copy()
    upper[:, box.coordinates.index(place.coordinate)] = box.bounds[place.coordinate][1]
    return Sample((torch.from_numpy(lower), torch.from_numpy(upper)))


def _inside(box: Box, names: tuple[str, ...], count: int, generator: np.random.Generator) -> Array:
    if not names:
        return np.empty((1, 0))
    # A whole power of two keeps the sequence balanced; its beginning is a good sequence of the length asked for.
    unit = qmc.Sobol(len(names), rng=generator).random_base2(math.ceil(math.log2(max(count, 1))))[:count]
    lower = np.array([box.bounds[name][0] for name in names])
    upper = np.array([box.bounds[name][1] for name in names])
    return lower + (upper - lower) * unit


def _on_face(face: Face, box: Box, count: int, generator: np.random.Generator) -> Array:
    free = tuple(name for name in box.coordinates if name != face.coordinate)
    inside = _inside(box, free, count, generator)
    return np.insert(inside, box.coordinates.index(face.coordinate), face.value(box), axis=1)


def _normals(face: Face, box: Box, count: int) -> Array:
    normals = np.zeros((count, len(box.coordinates)))
    normals[:, box.coordinates.index(face.coordinate)] = face.sign
    return normals

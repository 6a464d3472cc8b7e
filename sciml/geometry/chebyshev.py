"""Chebyshev points: denser towards the ends of every coordinate, for least squares by polynomials."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from sciml.geometry.domain import Domain, Face, Interior, OnFaces, Opposite, Place
from sciml.geometry.sampling import PointSet, draw
from sciml.typing import Points


def clustered(sample: PointSet, box: Domain, around: Collection[int] = ()) -> PointSet:
    r"""Evenly spread points, moved so that they have the density :math:`\prod_i (1-x_i^2)^{-1/2}` on [-1, 1].

    Least squares by polynomials of degree n needs some n² evenly spread points along a line, and some n of these. Points on
    faces stay on them.

    Args:
        sample: points of one place, evenly spread.
        box: the domain, a box.
        around: the columns of coordinates that are left as they are, because what is fitted is periodic along them.

    Example:
        >>> import torch, sciml
        >>> evenly = PointSet((torch.tensor([[0.0], [0.25], [0.5]], dtype=torch.float64),))
        >>> [round(float(x), 3) for x in clustered(evenly, sciml.Box(x=(0, 1))).points[0]]
        [0.0, 0.146, 0.5]

    Reference: A. Narayan, J. D. Jakeman and T. Zhou, A Christoffel function weighted least squares algorithm for collocation
    approximations, Mathematics of Computation 86 (2017).
    """
    free = [column for column in range(len(box.coordinates)) if column not in around]

    def moved(points: Points) -> Points:
        low, high = (points.new_tensor(ends) for ends in (box.lower, box.upper))
        scaled = (2 * points - low - high) / (high - low)
        there = torch.where(scaled.abs() < 1, low + (high - low) * (math.pi / 4 * (1 + scaled)).sin().square(), points)
        found = points.clone()
        found[:, free] = there[:, free]
        return found

    return replace(sample, points=tuple(map(moved, sample.points)))


@dataclass(frozen=True)
class SpectralPoints:
    """Numbers of clustered points inside and on faces across each coordinate; columns ``around`` stay evenly spread."""

    inside: int
    across: Mapping[str, int]
    around: tuple[int, ...] = ()

    def draw(self, place: Place, box: Domain, generator: np.random.Generator) -> PointSet:
        """Points of one place, as many as it asks for."""
        if isinstance(place, Interior):
            count = self.inside
        elif isinstance(place, OnFaces):
            count = max(self.across[face.coordinate] for face in place.faces if isinstance(face, Face))
        elif isinstance(place, Opposite):
            # Waves join by themselves at the ends of their coordinate.
            waves = box.coordinates.index(place.coordinate) in self.around
            count = 2 if waves else self.across[place.coordinate]
        else:
            return draw(place, box, self.inside, generator)
        return clustered(draw(place, box, count, generator), box, self.around)

"""Integral conditions and conditions at single points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.geometry import At, Average, Interior, OnFaces, Place, Region
from sciml.problem.conditions import Evaluation, Targets, checked_region
from sciml.problem.protocol import ProblemLike
from sciml.typing import MultiIndex, Target


class Point(Targets):
    """Values at one point: ``Point(p=0.0, at={"x": 0, "y": 0})`` pins a pressure that equations give up to a constant.

    Args:
        at: the point, a number for every coordinate in its unit; it lies in the domain or on its boundary. Without the time
            it holds at each time.
        name: name of the condition in histories and reports.
        targets: for each field, in its unit, a number or a function of the coordinates that it names.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name; when the problem is solved: a
            point outside its domain.

    Example:
        >>> import sciml
        >>> datum = sciml.Point(p=0.0, at={"x": 0.5, "y": 0.0})
    """

    def __init__(self, *, at: Mapping[str, float], name: str | None = None, **targets: Target) -> None:
        super().__init__(targets, name)
        if not isinstance(at, Mapping) or not all(isinstance(value, int | float) for value in at.values()):
            raise ProblemError(f"Point: at= must be a number for every coordinate, as in {{'x': 0, 'y': 1}}; given: {at!r}")
        self.at = {name: float(value) for name, value in at.items()}

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        super().check(fields, coordinates, time)
        if set(self.at) | {time} != {*coordinates, time} or not self.at:
            raise ProblemError(f"Point: at= must name {listed(coordinates)}; given: {listed(self.at)}")

    def place(self, problem: ProblemLike) -> Place:
        position = tuple(self.at.get(name) for name in problem.coordinates)
        bounds = problem.domain.bounds
        probe = [sum(bounds[name]) / 2 if at is None else at for name, at in zip(problem.coordinates, position, strict=True)]
        if not bool(problem.domain.contains(np.array([probe]))[0]):
            raise ProblemError(f"Point: at={self.at} lies outside the domain {problem.domain!r}")
        return At(position)


class Mean(Targets):
    """Means over the domain or part of its boundary: ``Mean(p=0.0)`` fixes a pressure that is given up to a constant.

    It is found by Gauss' quadrature inside boxes, disks, balls, polygons, what set operations make of them in the plane, and
    their products; in other solids and on boundaries by low-discrepancy points, to three or four digits. In problems with time
    it holds at each time.

    Args:
        on: a region of the problem's domain to average over; by default the whole inside.
        each_time: False for one mean over all of time.
        name, targets: as for ``Dirichlet``, which raises the same errors; of a function the mean counts.

    Example:
        >>> import sciml
        >>> level = sciml.Mean(p=0.0)
    """

    def __init__(self, *, on: Region | None = None, each_time: bool = True, name: str | None = None, **targets: Target) -> None:
        super().__init__(targets, name)
        self.each_time = each_time
        self.on = None if on is None else checked_region(type(self).__name__, on)

    def place(self, problem: ProblemLike) -> Average:
        sides = self.on and self.on.resolve(problem.domain, problem.time, problem.promoted)
        # A mean over the only coordinate is one over all of it.
        time = problem.time if self.each_time and len(problem.coordinates) > 1 + len(problem.promoted) else None
        return Average(OnFaces(sides) if sides else Interior(), time)


class Integral(Mean):
    """Integrals over the domain or part of its boundary: ``Integral(u=1.0)`` gives the whole of a density.

    Args:
        on, each_time, name: as for ``Mean``, which raises the same errors.
        targets: for each field the integral, in the field's unit times those of the coordinates, at each time over the others.

    Example:
        >>> import sciml
        >>> whole = sciml.Integral(density=1.0)
    """

    valued = False

    def operator(self, problem: ProblemLike, place: Place) -> Callable[[Evaluation, str, MultiIndex], Tensor]:
        assert isinstance(place, Average)
        domain, over = problem.domain, place.over
        measure = domain.measure if isinstance(over, Interior) else sum(domain.extent(side) for side in over.faces)
        if place.each is not None:
            low, high = domain.bounds[place.each]
            measure /= high - low
        return lambda evaluation, field, index: measure * evaluation.space.jet(field, index)

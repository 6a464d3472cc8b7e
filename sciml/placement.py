"""Where equations and conditions hold: sides of the domain, surfaces inside it, parts of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sciml.domains import Interface, OnFaces, Place, Region
from sciml.domains.geometry import Geometry
from sciml.errors import ProblemError, listed
from sciml.promotion import extended

if TYPE_CHECKING:
    from sciml.problem import Problem

_PROBES = 64


def checked_region(what: str, on: object) -> Region:
    """The argument ``on`` of a condition.

    Raises:
        ProblemError: it is no region.
    """
    if not isinstance(on, Region):
        raise ProblemError(
            f"{what}: on= must be a region such as domain.faces('x'), domain.piece('inlet') or domain.boundary; given: {on!r}"
        )
    return on


def checked_place(what: str, on: object) -> Region | Interface:
    """The argument ``on`` of a condition that may lie on an inner surface.

    Raises:
        ProblemError: it is neither a region nor an interface.
    """
    return on if isinstance(on, Interface) else checked_region(what, on)


def place_of(on: Region | Interface, problem: Problem) -> Place:
    """Where a condition lies, for one problem.

    Raises:
        ProblemError: on a side that the problem's domain lacks, or on an inner surface that reaches beyond the domain.
    """
    if isinstance(on, Region):
        return OnFaces(on.resolve(problem.domain, problem.time, problem.promoted))
    if problem.time is not None:
        on = on.between(problem.time, *problem.domain.bounds[problem.time])
    if problem.promoted:
        on = Interface(extended(on.first, problem), extended(on.second, problem), on.names)
    for part in (on.first, on.second):
        check_part(repr(on), part, problem)
    return on


def check_part(what: str, part: Geometry, problem: Problem) -> None:
    """Refuse a part that is no part of a problem's domain.

    Raises:
        ProblemError: other coordinates, or points beyond the domain.
    """
    own = problem.domain
    if part.coordinates == own.coordinates:
        unit = np.random.default_rng(0).random((_PROBES, len(own.coordinates)))
        points, inside = part.inside(unit)
        if own.contains(points[inside]).all():
            return
    raise ProblemError(
        f"{type(problem).__name__}: {what} must lie inside the domain {own!r} and have its coordinates "
        f"{listed(own.coordinates)}, time among them: sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 2))"
    )

"""Conditions at single points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sciml.conditions import Targets, Term, value_residual
from sciml.domains import At
from sciml.errors import ProblemError, listed
from sciml.typing import Target

if TYPE_CHECKING:
    from sciml.problem import Problem


class Point(Targets):
    """Values at one point: ``Point(p=0.0, at={"x": 0, "y": 0})`` pins a pressure that equations give up to a constant.

    Args:
        at: the point, a number for every coordinate; it lies in the domain or on its boundary.
        name: name of the condition in histories and reports.
        targets: for each field a number or a function of the coordinates that it names.

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
            raise ProblemError(
                f"Point: at= must be a number for every coordinate, as in {{'x': 0, 'y': 1}}; given: {at!r}"
            )
        self.at = {name: float(value) for name, value in at.items()}

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        super().check(fields, coordinates, time)
        if set(self.at) != set(coordinates):
            raise ProblemError(f"Point: at= must name {listed(coordinates)}; given: {listed(self.at)}")

    def terms(self, problem: Problem) -> tuple[Term, ...]:
        position = tuple(self.at[name] for name in problem.coordinates)
        if not bool(problem.domain.contains(np.array([position]))[0]):
            raise ProblemError(f"Point: at={self.at} lies outside the domain {problem.domain!r}")
        return tuple(
            Term(self.label(field, len(self.targets)), At(position), value_residual(self, field, (), target), field)
            for field, target in self.targets.items()
        )

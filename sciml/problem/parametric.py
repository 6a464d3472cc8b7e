"""Parametric problems: constants promoted to coordinates."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sciml._text import among, listed
from sciml.errors import ProblemError
from sciml.geometry import At, Average, Box, Domain
from sciml.problem.protocol import ProblemLike
from sciml.problem.unknowns import Unknown


class Promoted:
    """The descriptor of a constant that is a coordinate, whose values are known at points alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, problem: ProblemLike | None, owner: type) -> Promoted:
        if problem is None:
            return self
        raise ProblemError(
            f"{owner.__name__}: {self.name!r} is a coordinate of this problem and has no single value; self.{self.name} is "
            "a tensor in equations, conditions, targets and the reference, and nowhere else"
        )


def promoted(problem: ProblemLike, ranges: Mapping[str, tuple[float, float]]) -> Any:
    """The problem with constants as further coordinates; see ``Problem.promote``."""
    owner = type(problem).__name__
    if not ranges:
        raise ProblemError(f"{owner}.promote: name a constant and its range, as in promote(nu=(0.01, 0.1))")
    if hasattr(type(problem), "_members"):
        # Experiments bind the constants of each member to single values.
        raise ProblemError(
            f"{owner}.promote: several experiments cannot have {listed(ranges)} as a coordinate; promote it in a single "
            f"problem and give measurements the column {next(iter(ranges))!r}, its value in each row, in place of experiments"
        )
    constants = problem.constants
    for name in ranges:
        if name not in constants:
            raise ProblemError(f"{owner} has no constant {name!r} to promote; constants: {among(name, constants)}")
        value = constants[name]
        scalar = isinstance(value, int | float | Unknown) or (isinstance(value, Tensor) and value.ndim == 0)
        if not scalar or isinstance(value, bool):
            raise ProblemError(f"{owner}.promote: {name!r} must be a single number; it is {value!r}")
    tied = [term.name for term in problem.terms() if isinstance(term.place, At | Average)]
    if tied:
        raise ProblemError(
            f"{owner}.promote: the condition {tied[0]!r} holds at one point or for a mean, which with {listed(ranges)} as a "
            "coordinate would be one for all values together: use Initial or Dirichlet, or solve for each value"
        )

    origin: Any = problem.__dict__.get("_origin", problem)
    names, domain = (*problem.promoted, *ranges), problem.domain * Box(**ranges)
    made = _blank(type(origin), names, domain)
    kept = {key: value for key, value in problem.__dict__.items() if key not in ranges and key != "system"}
    given = tuple(name for name in problem.__dict__["_given"] if name not in names)
    made.__dict__.update(kept, domain=domain, _origin=origin, _given=given, _is_complex={})
    return made


def _blank(cls: Any, names: tuple[str, ...], domain: Domain) -> Any:
    """An object of a problem class whose constants of these names are coordinates, without anything of its own."""

    def reference(self: Any, **coordinates: Any) -> Any:
        own = {name: values for name, values in coordinates.items() if name not in self.promoted}
        return super(type(self), with_columns(self, coordinates)).reference(**own)

    members: dict[str, Any] = {name: Promoted(name) for name in names}
    members |= {"domain": domain, "promoted": names, "__module__": cls.__module__, "__doc__": cls.__doc__}
    if hasattr(cls, "reference"):
        # A stored reference belongs to one value of the constants; a formula holds for all.
        static = inspect.getattr_static(cls, "reference")
        formula = isinstance(static, staticmethod | classmethod) or inspect.isfunction(cls.reference)
        members["reference"] = reference if formula else None
    made = type(cls.__name__, (cls,), members)

    def reduced(self: Any) -> Any:
        # A pickle names the class that is in a module, and makes this one anew; of a class that is made of it none does.
        return (_blank, (cls, names, domain), self.__getstate__()) if type(self) is made else object.__reduce_ex__(self, 2)

    made.__reduce__ = reduced  # type: ignore[method-assign,assignment]
    # Problems do not change, and those that are compared are asked for their class.
    made.__copy__ = made.__deepcopy__ = lambda self, *_: self.bind()  # type: ignore[attr-defined]
    return object.__new__(made)


def with_columns(problem: ProblemLike, coordinates: Mapping[str, Any]) -> Any:
    """The problem as its functions see it at points: constants that are coordinates have the values there."""
    if not problem.promoted:
        return problem
    seen = problem.bind()
    seen.__dict__.update({name: coordinates[name] for name in problem.promoted})
    return seen


def settled(problem: ProblemLike, values: Mapping[str, float]) -> Any:
    """The problem with some or all of its promoted constants at one value each."""
    owner = type(problem).__name__
    if not problem.promoted:
        raise ProblemError(
            f"{owner} has no constant that is a coordinate: at(...) belongs to a solution of {owner}().promote(...)"
        )
    if not values:
        raise ProblemError(f"at() needs a value, as in at({problem.promoted[0]}=0.1)")
    for name, value in values.items():
        if name not in problem.promoted:
            raise ProblemError(f"{name!r} is no promoted constant of {owner}; promoted: {among(name, problem.promoted)}")
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ProblemError(f"at({name}=...) needs a finite number; given: {value!r}")
    origin: Any = problem.__dict__["_origin"]
    bound = {name: problem.__dict__[name] for name in origin.constants if name in problem.__dict__}
    found = origin.bind(**bound, **{name: float(value) for name, value in values.items()})
    left = {name: problem.domain.bounds[name] for name in problem.promoted if name not in values}
    return promoted(found, left) if left else found


def extended(part: Domain, problem: ProblemLike) -> Domain:
    """A part of a domain without promoted constants, for all of their values."""
    ranges = {name: problem.domain.bounds[name] for name in problem.promoted if name not in part.bounds}
    return part * Box(**ranges) if ranges else part

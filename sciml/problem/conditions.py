"""Conditions: what holds on parts of the boundary, each a residual like any equation.

Targets: what a condition prescribes, a number or a function of the coordinates that it names.

Where equations and conditions hold: sides of the domain, surfaces inside it, parts of it.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed, nearest
from sciml.errors import ProblemError
from sciml.geometry import Face, Interface, OnFaces, Opposite, Place, Region
from sciml.geometry.domain import Geometry
from sciml.jets import JetSpace
from sciml.jets.calculus import check_names, check_precision, describe
from sciml.problem.functions import argument_names, evaluated
from sciml.problem.parametric import extended, with_columns
from sciml.problem.protocol import ProblemLike
from sciml.typing import MultiIndex, Target


def prescribed_values(what: str, target: Target, problem: ProblemLike, coordinates: Mapping[str, Tensor]) -> Tensor:
    """The values of a target at coordinates of shape ``(n,)``, differentiable by them; shape ``(n,)`` or ``()``.

    Raises:
        ProblemError: the target's function fails, or returns something that is neither.
    """
    like = next(iter(coordinates.values()))
    value: object = target
    if callable(target):
        arguments: dict[str, object] = {name: coordinates[name] for name in argument_names(target)}
        if "self" in inspect.signature(target).parameters:
            arguments["self"] = with_columns(problem, coordinates)
        value = evaluated(f"the target function of {what}", target, arguments)
    if isinstance(value, Tensor):
        check_precision(f"the target of {what}", value, like)
    values = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if values.shape not in ((), like.shape):
        raise ProblemError(
            f"the target of {what} has shape {tuple(values.shape)} at {len(like)} points; expected ({len(like)},) or "
            "a single number"
        )
    return values


def check_target(what: str, target: Target, coordinates: Sequence[str]) -> None:
    """Refuse a target that is neither a number nor a function of coordinates.

    Raises:
        ProblemError: with what was given and what may be asked for.
    """
    if callable(target):
        for name in argument_names(target):
            if name not in coordinates:
                raise ProblemError(
                    f"the target function of {what} asks for {name!r}; it may ask for the coordinates "
                    f"{listed(coordinates)} and for self.{nearest(name, coordinates)}"
                )
    elif not isinstance(target, int | float | Tensor):
        raise ProblemError(
            f"the target of {what} must be a number or a function of coordinates; given: {type(target).__name__}"
        )


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


def place_of(on: Region | Interface, problem: ProblemLike) -> Place:
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


def check_part(what: str, part: Geometry, problem: ProblemLike) -> None:
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


NORMAL = "normal"


@dataclass(frozen=True)
class Evaluation:
    """What a residual is evaluated on: a problem with its unknowns bound, jets at points, outward normals.

    ``spaces`` has one entry, or two (lower and upper face) for paired points; ``normals`` has shape ``(n, D)`` on sides.
    """

    problem: ProblemLike
    spaces: tuple[JetSpace, ...]
    normals: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", with_columns(self.problem, self.space.coordinates))

    @property
    def space(self) -> JetSpace:
        """The first, and usually only, jet space."""
        return self.spaces[0]


@dataclass(frozen=True)
class Prescription:
    """A derivative of a field (``index`` is ``()`` for its value), what it must be, and as what part of which condition."""

    field: str
    index: MultiIndex
    target: Target
    what: str


@dataclass(frozen=True)
class Term:
    """One named residual: where it holds, and the function that evaluates it to a tensor of shape ``(n,)``.

    ``field`` is set where the residual is a field's value less a prescribed one, and ``measured`` where that was measured.
    ``prescription`` says what an initial or Dirichlet condition prescribes, for trial functions that satisfy it exactly.
    """

    name: str
    place: Place
    evaluate: Callable[[Evaluation], Tensor]
    field: str | None = None
    measured: bool = False
    prescription: Prescription | None = None


class Condition(ABC):
    """What a problem demands on part of its boundary.

    Subclasses check their names when a problem class is defined and list their terms when a problem is solved.
    """

    def __init__(self, *, name: str | None = None) -> None:
        self.name = name or type(self).__name__.lower()

    @abstractmethod
    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        """Refuse names that the problem does not have.

        Raises:
            ProblemError: with the wrong name and the right ones.
        """

    @abstractmethod
    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        """The residuals of this condition for one problem."""

    def label(self, part: str, parts: int) -> str:
        """The name of one of ``parts`` terms."""
        return self.name if parts == 1 else f"{self.name}.{part}"


class Targets(Condition):
    """A condition that prescribes a value for each of some derivatives, by name."""

    def __init__(self, targets: Mapping[str, Target], name: str | None) -> None:
        super().__init__(name=name)
        if not targets:
            raise ProblemError(f"{type(self).__name__} prescribes nothing: name at least one field, as in u=0.0")
        self.targets = dict(targets)

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        for key, target in self.targets.items():
            self.split(key, fields, time)
            check_target(f"{type(self).__name__}({key}=...)", target, coordinates)

    def split(self, key: str, fields: Sequence[str], time: str | None) -> tuple[str, int]:
        """The field and the number of time derivatives that the name ``key`` stands for."""
        if key in fields:
            return key, 0
        raise ProblemError(f"{type(self).__name__} names {key!r}; fields: {listed(fields)}.{nearest(key, fields)}")


class Initial(Targets):
    """Values at the start of time: ``Initial(u=..., u_t=...)`` prescribes u and its first time derivative.

    Args:
        name: name of the condition in histories and reports.
        targets: for each field, or field and time derivatives (``u_t``, ``u_tt``), a number or a function of the
            coordinates that it names; a parameter called ``self`` receives the problem with its constants.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name, or no time coordinate.

    Example:
        >>> import torch, sciml
        >>> rest = sciml.Initial(u=lambda x: torch.sin(torch.pi * x), u_t=0.0)
    """

    def __init__(self, *, name: str | None = None, **targets: Target) -> None:
        super().__init__(targets, name)

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        if time is None:
            raise ProblemError(
                f"Initial needs a time coordinate, but the domain has {listed(coordinates)}: name it 't', or say which "
                "one it is with time = '...' in the class"
            )
        super().check(fields, coordinates, time)

    def split(self, key: str, fields: Sequence[str], time: str | None) -> tuple[str, int]:
        if key in fields:
            return key, 0
        for field in fields:
            match = re.fullmatch(re.escape(field) + f"_((?:{re.escape(str(time))})+)", key)
            if match:
                return field, len(match.group(1)) // len(str(time))
        right = [f"{field}{suffix}" for field in fields for suffix in ("", f"_{time}")]
        raise ProblemError(f"Initial names {key!r}; it may name {listed(right)}.{nearest(key, right)}")

    def orders(self, problem: ProblemLike) -> dict[tuple[str, int], Target]:
        """The targets by field and number of time derivatives."""
        return {self.split(key, problem.fields, problem.time): target for key, target in self.targets.items()}

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        assert problem.time is not None
        if Face(problem.time, "lower") not in problem.domain.sides:
            raise ProblemError(
                f"Initial needs a domain with a start of time, a product such as sciml.Disk(...) * "
                f"sciml.Interval({problem.time}=(0, 1)); {type(problem).__name__} has "
                f"{problem.domain!r}, whose pieces are {listed(problem.domain.pieces)}"
            )
        start = OnFaces((Face(problem.time, "lower"),))
        found = []
        for key, target in self.targets.items():
            field, order = self.split(key, problem.fields, problem.time)
            index = (problem.time,) * order
            residual = value_residual(self, field, index, target)
            prescription = Prescription(field, index, target, _what(self, field, index))
            name, valued = self.label(key, len(self.targets)), None if order else field
            found.append(Term(name, start, residual, valued, prescription=prescription))
        return tuple(found)


class Dirichlet(Targets):
    """Values on part of the boundary: ``Dirichlet(u=0.0, on=domain.faces("x"))``.

    Args:
        on: where; faces, pieces or the whole boundary of the problem's domain, or an inner surface.
        name: name of the condition in histories and reports.
        targets: for each field a number or a function of the coordinates that it names.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(0, 1), y=(0, 1))
        >>> walls = sciml.Dirichlet(u=lambda x, y: x * y, on=box.boundary)
    """

    def __init__(self, *, on: Region | Interface, name: str | None = None, **targets: Target) -> None:
        super().__init__(targets, name)
        self.on = checked_place(type(self).__name__, on)

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        place = place_of(self.on, problem)
        return tuple(
            Term(
                self.label(field, len(self.targets)),
                place,
                self.residual(field, target),
                self.valued(field),
                prescription=None
                if self.valued(field) is None
                else Prescription(field, (), target, _what(self, field)),
            )
            for field, target in self.targets.items()
        )

    def valued(self, field: str) -> str | None:
        """The field whose value is prescribed, as ``Term.field``."""
        return field

    def residual(self, field: str, target: Target) -> Callable[[Evaluation], Tensor]:
        """The residual of one field."""
        return value_residual(self, field, (), target)


class Periodic(Condition):
    """Equal values, and equal derivatives below the order of the equations, on the two faces of a coordinate.

    Args:
        coordinate: the periodic coordinate.
        fields: the periodic fields; all when none is named.
        name: name of the condition in histories and reports.

    Raises:
        ProblemError: when a problem class is defined: an unknown coordinate or field.

    Example:
        >>> import sciml
        >>> ring = sciml.Periodic("x")
    """

    def __init__(self, coordinate: str, *fields: str, name: str | None = None) -> None:
        super().__init__(name=name)
        self.coordinate = coordinate
        self.fields = fields

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        if self.coordinate not in coordinates:
            raise ProblemError(
                f"Periodic names the coordinate {self.coordinate!r}; coordinates: {listed(coordinates)}."
                f"{nearest(self.coordinate, coordinates)}"
            )
        check_names("Periodic", self.fields, fields, ())

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        if Face(self.coordinate, "lower") not in problem.domain.sides:
            raise ProblemError(
                f"Periodic({self.coordinate!r}) needs two opposite faces, and {problem.domain!r}, the domain of "
                f"{type(problem).__name__}, has none of {self.coordinate!r}; its pieces are {listed(problem.domain.pieces)}"
            )
        matched = [
            (field, (self.coordinate,) * order)
            for field in self.fields or problem.fields
            for order in range(max(1, problem.order(field, self.coordinate)))
        ]

        def jump(field: str, index: MultiIndex) -> Callable[[Evaluation], Tensor]:
            return lambda scene: scene.spaces[1].jet(field, index) - scene.spaces[0].jet(field, index)

        return tuple(
            Term(self.label(describe(*pair), len(matched)), Opposite(self.coordinate), jump(*pair)) for pair in matched
        )


class Residual(Condition):
    """A residual of the user's own on part of the boundary; made by the decorator ``condition``."""

    def __init__(self, function: Callable[..., Any], on: Region | Interface, name: str) -> None:
        super().__init__(name=name)
        self.function = function
        self.on = on
        self.names = argument_names(function)

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        check_names(f"condition {self.name!r}", self.names, (*fields, NORMAL), coordinates)

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        def value(scene: Evaluation) -> object:
            problem, normals = scene.problem, scene.normals
            if normals is not None and problem.promoted:
                normals = normals[:, : -len(problem.promoted)]
            named = {"self": problem, **problem.composites.arguments(scene.space, self.names, normals)}
            return evaluated(f"condition {self.name!r}", self.function, named)

        place = place_of(self.on, problem)
        parts = problem.parts_of(self.name, self.names, value)
        return tuple(Term(name, place, residual) for name, residual in parts.items())


def condition(*, on: Region | Interface) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a method of a problem is a residual that must vanish on part of the boundary.

    The method receives fields and coordinates by name, each of shape ``(n,)``, and returns a tensor of that shape. One that
    asks for ``normal`` receives the components of the outward normal, a tuple with one tensor for each coordinate.

    Args:
        on: where; faces, pieces or the whole boundary of the problem's domain, or an inner surface:
            ``left.interface(right)``, ``domain.inner(x=0.5)``.

    Raises:
        ProblemError: ``on`` is not a region or an interface.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Cooling(sciml.Problem):
        ...     domain = sciml.Interval(x=(0, 1))
        ...     fields = ["u"]
        ...     @sciml.condition(on=domain.face(x=1))
        ...     def convection(self, u, x):
        ...         return d(u, x) + 2.0 * u
        >>> [condition.name for condition in Cooling().conditions]
        ['convection']
    """
    region = checked_place("condition", on)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function._sciml_region = region  # type: ignore[attr-defined]
        return function

    return mark


def target_values(what: str, target: Target, scene: Evaluation) -> Tensor:
    """The values of a target at the points of a scene, shape ``(n,)`` or ``()``.

    Raises:
        ProblemError: the target's function fails, or returns something that is neither.
    """
    return prescribed_values(what, target, scene.problem, scene.space.coordinates)


def value_residual(owner: Condition, field: str, index: MultiIndex, target: Target) -> Callable[[Evaluation], Tensor]:
    """The residual of a prescribed value or derivative."""
    what = _what(owner, field, index)
    return lambda scene: scene.space.jet(field, index) - target_values(what, target, scene)


def _what(owner: Condition, field: str, index: MultiIndex = ()) -> str:
    """A part of a condition as people write it: ``Initial(u_t=...)``."""
    return f"{type(owner).__name__}({describe(field, index)}=...)"

"""Conditions: residuals on parts of the boundary, and the terms that equations and conditions consist of."""

from __future__ import annotations

import copy
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sciml._text import among, listed, nearest
from sciml.errors import ProblemError
from sciml.geometry import Domain, Interface, OnFaces, Place, Region
from sciml.jets import JetSpace, Supplier
from sciml.jets.calculus import check_names, check_precision, describe
from sciml.problem.composite_fields import NORMAL, Composites
from sciml.problem.functions import argument_names, evaluated
from sciml.problem.parametric import extended, with_columns
from sciml.problem.protocol import ProblemLike
from sciml.typing import MultiIndex, Target

_PROBES = 64


def prescribed_values(what: str, target: Target, problem: ProblemLike, coordinates: Mapping[str, Tensor]) -> Tensor:
    """The values of a target at coordinates of shape ``(n,)``, differentiable by them; shape ``(n,)`` or ``()``."""
    like = next(iter(coordinates.values()))
    value: object = target
    if callable(target):
        arguments = {name: coordinates[name] for name in argument_names(target)}
        value = evaluated(f"the target function of {what}", target, arguments, with_columns(problem, coordinates))
    if isinstance(value, Tensor):
        check_precision(f"the target of {what}", value, like, given=True)
    if isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()):
        raise ProblemError(f"the target of {what} is complex, and what it is for is real: state a field by complex_fields")
    if isinstance(value, numbers.Real):
        value = _number(value)
    try:
        values = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"the target of {what} is {value!r}; expected numbers, a tensor of shape ({len(like)},)") from error
    if values.shape not in ((), like.shape):
        raise ProblemError(
            f"the target of {what} has shape {tuple(values.shape)} at {len(like)} points; expected ({len(like)},) or "
            "a single number"
        )
    return values


def _number(target: Any) -> Any:
    """A number of any kind in double precision, infinite where that holds none as large; tensors as they are."""
    try:
        return target if isinstance(target, Tensor) else float(target)
    except OverflowError:
        return math.inf


def check_target(what: str, target: Target, coordinates: Sequence[str]) -> None:
    """Refuse a target that is neither a number nor a function of coordinates."""
    if callable(target):
        for name in argument_names(target):
            if name not in coordinates:
                raise ProblemError(
                    f"the target function of {what} asks for {name!r}; it may ask for the coordinates "
                    f"{listed(coordinates)} and for self.{nearest(name, coordinates)}"
                )
    elif not isinstance(target, numbers.Real | Tensor):
        raise ProblemError(
            f"the target of {what} must be a number or a function of coordinates; given: {type(target).__name__}"
        )
    elif not bool(torch.as_tensor(_number(target)).isfinite().all()):
        raise ProblemError(f"the target of {what} must be finite; given: {target}")


def checked_region(what: str, on: object) -> Region:
    """The argument ``on`` of a condition, which must be a region."""
    if not isinstance(on, Region):
        raise ProblemError(
            f"{what}: on= must be a region such as domain.faces('x'), domain.piece('inlet') or domain.boundary; given: {on!r}"
        )
    return on


def checked_place(what: str, on: object) -> Region | Interface:
    """The argument ``on`` of a condition that may lie on an inner surface, too."""
    return on if isinstance(on, Interface) else checked_region(what, on)


def place_of(on: Region | Interface, problem: ProblemLike) -> Place:
    """The place of a condition in one problem: sides that its domain has, or an inner surface inside it."""
    if isinstance(on, Region):
        return OnFaces(on.resolve(problem.domain, problem.time, problem.promoted))
    if problem.time is not None:
        on = on.between(problem.time, *problem.domain.bounds[problem.time])
    if problem.promoted:
        on = Interface(extended(on.first, problem), extended(on.second, problem), on.names)
    for part in (on.first, on.second):
        check_part(repr(on), part, problem)
    return on


def check_part(what: str, part: Domain, problem: ProblemLike) -> None:
    """Refuse a part of a problem's domain with other coordinates, or with points beyond it."""
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


@dataclass(frozen=True)
class Evaluation:
    """A bound problem, jets at points (two, lower and upper face, for paired ones), outward normals ``(n, D)`` on sides."""

    problem: ProblemLike
    spaces: tuple[JetSpace, ...]
    normals: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", with_columns(self.problem, self.space.coordinates))

    @classmethod
    def of(
        cls,
        problem: ProblemLike,
        points: Sequence[Tensor],
        suppliers: Sequence[Supplier],
        normals: Tensor | None = None,
    ) -> Evaluation:
        """The same from point sets ``(n, D)`` and the suppliers of jets at each."""
        spaces = tuple(
            JetSpace(dict(zip(problem.coordinates, each.unbind(1), strict=True)), problem.fields, supplier)
            for each, supplier in zip(points, suppliers, strict=True)
        )
        return cls(problem, spaces, normals)

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

    def values(self, problem: ProblemLike, points: Tensor) -> Tensor:
        """What it must be at points ``(n, D)``, shape ``(n,)``, differentiable by the points."""
        columns = dict(zip(problem.coordinates, points.unbind(1), strict=True))
        return prescribed_values(self.what, self.target, problem, columns).expand(len(points))


@dataclass(frozen=True, eq=False)
class Term:
    """One named residual ``(n,)`` and its place; ``field`` is set where it is a field's value less a prescribed one."""

    name: str
    place: Place
    evaluate: Callable[[Evaluation], Tensor]
    field: str | None = None
    measured: bool = False
    prescription: Prescription | None = None


def jet_value(field: str, index: MultiIndex, factor: float, evaluation: Evaluation) -> Tensor:
    """A multiple of a field or of a derivative of it, as the residual of a term."""
    return factor * evaluation.space.jet(field, index)


class Condition(ABC):
    """A condition of a problem on part of its boundary: names to check when a class is defined, terms to solve."""

    def __init__(self, *, name: str | None = None) -> None:
        self.name = name or type(self).__name__.lower()

    @abstractmethod
    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        """Refuse names that the problem does not have, by a ``ProblemError`` with the right ones."""

    @abstractmethod
    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        """The residuals of this condition for one problem."""

    def by_field(self, composites: Composites, time: str | None) -> Condition:
        """The condition with fields in place of the complex fields and vectors that it names."""
        return self

    def begun(self, values: Mapping[str, Target]) -> Condition:
        """The condition with other initial values of some fields; itself, where it prescribes none."""
        return self

    def label(self, part: str, parts: int) -> str:
        """The name of one of ``parts`` terms."""
        return self.name if parts == 1 else f"{self.name}.{part}"


class Targets(Condition):
    """A condition that prescribes, for each of some fields or derivatives, what an operator on it is equal to."""

    # Whether the derivative itself is prescribed, and whether trial functions may satisfy that exactly.
    valued: ClassVar[bool] = True
    exact: ClassVar[bool] = False

    def __init__(self, targets: Mapping[str, Target], name: str | None) -> None:
        super().__init__(name=name)
        if not targets:
            raise ProblemError(f"{type(self).__name__} prescribes nothing: name at least one field, as in u=0.0")
        self.targets = dict(targets)

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        for key, target in self.targets.items():
            self.split(key, fields, time)
            check_target(f"{type(self).__name__}({key}=...)", target, coordinates)

    def by_field(self, composites: Composites, time: str | None) -> Condition:
        found = copy.copy(self)
        found.targets = composites.targets(type(self).__name__, self.targets, time)
        return found

    def split(self, key: str, fields: Sequence[str], time: str | None) -> tuple[str, MultiIndex]:
        """The field and the derivative that the name ``key`` stands for."""
        if key in fields:
            return key, ()
        raise ProblemError(f"{type(self).__name__} names {key!r}; fields: {among(key, fields)}")

    @abstractmethod
    def place(self, problem: ProblemLike) -> Place:
        """The place where the condition holds."""

    def operator(self, problem: ProblemLike, place: Place) -> Callable[[Evaluation, str, MultiIndex], Tensor]:
        """The left-hand side of the condition, as a function of a field and a derivative, shape ``(n,)``."""
        return lambda evaluation, field, index: evaluation.space.jet(field, index)

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        place = self.place(problem)
        operator = self.operator(problem, place)

        def term(key: str, target: Target) -> Term:
            field, index = self.split(key, problem.fields, problem.time)
            what = f"{type(self).__name__}({describe(field, index)}=...)"
            return Term(
                self.label(key, len(self.targets)),
                place,
                lambda evaluation: operator(evaluation, field, index) - target_values(what, target, evaluation),
                field if self.valued and not index else None,
                prescription=Prescription(field, index, target, what) if self.exact else None,
            )

        return tuple(term(key, target) for key, target in self.targets.items())


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
        def value(evaluation: Evaluation) -> object:
            problem, normals = evaluation.problem, evaluation.normals
            if normals is not None and problem.promoted:
                normals = normals[:, : -len(problem.promoted)]
            named = problem.composites.arguments(evaluation.space, self.names, normals)
            return evaluated(f"condition {self.name!r}", self.function, named, problem)

        place = place_of(self.on, problem)
        parts = problem.parts_of(self.name, self.names, value)
        return tuple(Term(name, place, residual) for name, residual in parts.items())


def equation(function: Callable[..., Any] | None = None, *, on: Domain | None = None) -> Any:
    """Decorator: a method of a problem is a residual that must vanish everywhere inside the domain, or a part of it.

    The method receives fields and coordinates by name, each of shape ``(n,)``, and returns a tensor of that shape.

    Args:
        function: the method; left out where there are arguments, ``@sciml.equation(on=left)``.
        on: the part of the domain where it holds, a domain with the same coordinates; by default all of it. A field that
            only equations of a part ask for lives there: elsewhere its values mean nothing, and errors and pictures leave
            them out.

    Raises:
        ProblemError: ``on`` is no domain.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> @sciml.equation
        ... def decay(self, u, t):
        ...     return d(u, t) + self.rate * u
    """
    if on is not None and not isinstance(on, Domain):
        raise ProblemError(f"equation: on= must be a domain, the part where the equation holds; given: {on!r}")
    if function is None:
        return lambda method: equation(method, on=on)
    function._sciml_equation = True  # type: ignore[attr-defined]
    function._sciml_part = on  # type: ignore[attr-defined]
    return function


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
        >>> @sciml.condition(on=sciml.Interval(x=(0, 1)).face(x=1))
        ... def convection(self, u, x):
        ...     return d(u, x) + 2.0 * u
    """
    region = checked_place("condition", on)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function._sciml_region = region  # type: ignore[attr-defined]
        return function

    return mark


def target_values(what: str, target: Target, evaluation: Evaluation) -> Tensor:
    """The values of a target at the points of an evaluation; see ``prescribed_values``."""
    return prescribed_values(what, target, evaluation.problem, evaluation.space.coordinates)

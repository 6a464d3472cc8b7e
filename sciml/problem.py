"""Problems: equations and conditions on a domain, as a class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sciml.calls import argument_names, evaluated
from sciml.conditions import Condition, Residual, Scene, Term
from sciml.derivative import JetSpace, check_names, check_residual
from sciml.domains import Domain, Interior
from sciml.errors import ProblemError, listed, nearest
from sciml.jets import AutogradJets, Recorder, orders_asked
from sciml.typing import Array, MultiIndex
from sciml.unknowns import Unknown


def equation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a method of a problem is a residual that must vanish everywhere inside the domain.

    The method receives fields and coordinates by name, each of shape ``(n,)``, and returns a tensor of that shape.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Decay(sciml.Problem):
        ...     domain = sciml.Interval(t=(0, 1))
        ...     fields = ["u"]
        ...     rate = 2.0
        ...     @sciml.equation
        ...     def decay(self, u, t):
        ...         return d(u, t) + self.rate * u
        >>> Decay().equations
        ('decay',)
    """
    function._sciml_equation = True  # type: ignore[attr-defined]
    return function


class Problem:
    """A differential equation as a class: domain, fields, conditions and equations.

    A subclass sets ``domain`` (a ``Box``, a ``Disk``, ...), ``fields`` (names), ``conditions`` (a list) and methods
    marked by ``@sciml.equation`` or ``@sciml.condition(on=...)``. Everything else that is public and not a method is a
    constant: a number, or a ``sciml.Unknown`` to be estimated. Keywords of the constructor replace constants. The time
    coordinate is the one called ``t`` unless the class says ``time = "..."``.

    Two methods are optional: ``reference(self, **coordinates)`` returns the exact or trusted solution (torch in, torch
    out; a dict by field, or one tensor for a single field; ``reference = sciml.Stored(path)`` reads it from a file), and
    ``measurements(self)`` the table that ``fit`` and ``baseline`` use when no data are given.

    Problems are immutable. Wrong names, shapes and regions are refused when the class is defined.

    Args:
        constants: values that replace the class's constants, by name; an ``Unknown`` may become a number and a number an
            ``Unknown``.

    Raises:
        ProblemError: a constant that the class does not have.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Decay(sciml.Problem):
        ...     domain = sciml.Interval(t=(0, 1))
        ...     fields = ["u"]
        ...     conditions = [sciml.Initial(u=1.0)]
        ...     rate = 2.0
        ...     @sciml.equation
        ...     def decay(self, u, t):
        ...         return d(u, t) + self.rate * u
        >>> Decay(rate=3.0)
        Decay(rate=3.0)
    """

    domain: Domain
    fields: Sequence[str] = ()
    conditions: Sequence[Condition] = ()
    time: str | None = "t"
    _given: tuple[str, ...]
    _equations: ClassVar[dict[str, tuple[str, ...]]] = {}
    _methods: ClassVar[dict[str, Residual]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._equations, cls._methods = {}, {}
        for owner in reversed(cls.__mro__):
            for name, member in vars(owner).items():
                was_equation = cls._equations.pop(name, None) is not None
                was_condition = cls._methods.pop(name, None)
                # A method that overrides an equation or condition is one too, marked or not; None takes it away.
                if getattr(member, "_sciml_equation", False) or (was_equation and callable(member)):
                    cls._equations[name] = argument_names(member)
                elif hasattr(member, "_sciml_region") or (was_condition is not None and callable(member)):
                    region = getattr(member, "_sciml_region", None) or was_condition.on  # type: ignore[union-attr]
                    cls._methods[name] = Residual(member, region, name)
        if "domain" in {name for owner in cls.__mro__ for name in vars(owner)}:
            _check_definition(cls)

    def __init__(self, **constants: Any) -> None:
        if not isinstance(getattr(type(self), "domain", None), Domain):
            raise ProblemError(f"{type(self).__name__} has no domain: set domain = sciml.Box(...) in the class")
        known = type(self)._constants()
        for name, value in constants.items():
            if name not in (*known, "domain"):
                raise ProblemError(
                    f"{type(self).__name__} has no constant {name!r}; constants: {listed(known)}.{nearest(name, known)}"
                )
            if name == "domain" and (not isinstance(value, Domain) or value.coordinates != self.domain.coordinates):
                raise ProblemError(
                    f"domain= must be a domain with the coordinates {listed(self.domain.coordinates)} in this order; "
                    f"given: {value!r}"
                )
            if name != "domain" and not isinstance(value, int | float | Unknown | Tensor | type(getattr(self, name))):
                raise ProblemError(
                    f"the constant {name!r} of {type(self).__name__} must be a number, a sciml.Unknown or a tensor; given: "
                    f"{value!r}"
                )
        self.__dict__.update(constants)
        self.__dict__["_given"] = tuple(constants)
        self.__dict__["fields"] = tuple(type(self).fields)
        self.__dict__["conditions"] = (*type(self).conditions, *type(self)._methods.values())
        self.__dict__["time"] = _time(type(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise ProblemError(
            f"a problem is immutable; make another one with {type(self).__name__}({name}=...) instead of setting {name!r}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self._given)})"

    @classmethod
    def _constants(cls) -> tuple[str, ...]:
        """Names of the public class attributes that are not part of the machinery."""
        own = {name: getattr(cls, name) for owner in reversed(cls.__mro__) for name in vars(owner)}
        return tuple(
            name
            for name, value in own.items()
            if not name.startswith("_")
            and not hasattr(Problem, name)
            and name != "domain"
            and not isinstance(value, property | classmethod | staticmethod)
            and (not callable(value) or isinstance(value, Unknown))
        )

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates, in the order of the columns of points."""
        return self.domain.coordinates

    @property
    def equations(self) -> tuple[str, ...]:
        """The names of the equations."""
        return tuple(type(self)._equations)

    @property
    def constants(self) -> dict[str, Any]:
        """The values of the constants, unknown ones included."""
        return {name: getattr(self, name) for name in self._constants()}

    @property
    def unknowns(self) -> dict[str, Unknown]:
        """The constants that are to be estimated."""
        return {name: value for name, value in self.constants.items() if isinstance(value, Unknown)}

    @property
    def has_reference(self) -> bool:
        """Whether the class brings a trusted solution along."""
        return callable(getattr(self, "reference", None))

    def bind(self, **values: object) -> Problem:
        """A copy in which constants, usually the unknown ones, have these values (numbers or tensors).

        Raises:
            ProblemError: a constant that the class does not have.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        known = self._constants()
        for name, value in values.items():
            if name not in known:
                raise ProblemError(f"{type(self).__name__} has no constant {name!r}; constants: {listed(known)}")
            copy.__dict__[name] = value
        copy.__dict__["_given"] = tuple(dict.fromkeys((*self._given, *values)))
        return copy

    def on(self, domain: Domain) -> Problem:
        """A copy on another domain with the same coordinates."""
        copy = self.bind()
        copy.__dict__["domain"] = domain
        return copy

    def bind_initial(self) -> Problem:
        """A copy in which every unknown has its initial value."""
        return self.bind(
            **{name: torch.tensor(value.initial, dtype=torch.float64) for name, value in self.unknowns.items()}
        )

    def terms(self) -> tuple[Term, ...]:
        """Every residual of the problem: the equations, then the conditions, each under a name of its own."""
        found = [Term(name, Interior(), self._equation_residual(name)) for name in self.equations]
        taken = {term.name for term in found}
        for condition in self.conditions:
            for term in condition.terms(self):
                name, count = term.name, 1
                while name in taken:
                    count += 1
                    name = f"{term.name}_{count}"
                taken.add(name)
                found.append(dataclasses.replace(term, name=name))
        return tuple(found)

    def _equation_residual(self, name: str) -> Callable[[Scene], Tensor]:
        names = type(self)._equations[name]

        def residual(scene: Scene) -> Tensor:
            value = evaluated(f"equation {name!r}", getattr(scene.problem, name), scene.space.named(names))
            return check_residual(name, value, scene.space)

        return residual

    def space(self, points: Tensor, trial: Callable[[Tensor], Tensor]) -> JetSpace:
        """Coordinates and jets of a trial function at points ``(n, D)``, by nested autograd."""
        columns = dict(zip(self.coordinates, points.unbind(1), strict=True))
        return JetSpace(columns, self.fields, AutogradJets(trial, points, self.coordinates, self.fields))

    def asked(self) -> dict[tuple[str, MultiIndex], Tensor]:
        """The derivatives that the equations ask for, found by evaluating them once on random jets."""
        generator = torch.Generator().manual_seed(0)
        lower = torch.tensor(self.domain.lower, dtype=torch.float64)
        upper = torch.tensor(self.domain.upper, dtype=torch.float64)
        points = lower + (upper - lower) * torch.rand(4, len(lower), dtype=torch.float64, generator=generator)
        space = JetSpace(dict(zip(self.coordinates, points.unbind(1), strict=True)), self.fields, Recorder(4))
        scene = Scene(self.bind_initial(), (space,))
        for name in self.equations:
            self._equation_residual(name)(scene)
        return dict(space.jets)

    def order(self, field: str, coordinate: str) -> int:
        """The highest derivative of a field by a coordinate that the equations contain."""
        return orders_asked(self.asked(), coordinate).get(field, 0)

    def residuals(self, fields: Callable[..., Any], **coordinates: Any) -> dict[str, Array]:
        """The equations' residuals of given functions, for checking a formula against the equations.

        Unknown constants have their initial values.

        Args:
            fields: receives the coordinates by name as tensors ``(n,)`` and returns a dict of tensors by field, or one
                tensor for a single field; for example a problem's own ``reference``.
            coordinates: the points, by coordinate; arrays that broadcast against one another.

        Returns:
            For each equation an array of shape ``(n,)``, in the unit of the equation.

        Raises:
            ProblemError: wrong coordinates or fields.
        """
        points, _ = self.points(coordinates)
        space = self.space(
            points, lambda at: self._stack(fields(**dict(zip(self.coordinates, at.unbind(1), strict=True))), at)
        )
        scene = Scene(self.bind_initial(), (space,))
        return {name: self._equation_residual(name)(scene).detach().numpy() for name in self.equations}

    def points(self, coordinates: Mapping[str, Any]) -> tuple[Tensor, tuple[int, ...]]:
        """Points ``(n, D)`` in float64 from coordinates by name, and the shape they broadcast to.

        Raises:
            ProblemError: a coordinate is missing or unknown, or the shapes do not broadcast.
        """
        return points_from(coordinates, self.coordinates)

    def reference_values(
        self, coordinates: Mapping[str, Any], constants: Mapping[str, float] | None = None
    ) -> dict[str, Array] | None:
        """The problem's own reference at points, by field, or None when it has none.

        ``constants`` are the values of unknown constants to evaluate it with; by default their initial values.
        """
        if not self.has_reference:
            return None
        points, shape = self.points(coordinates)
        bound = self.bind_initial().bind(**{name: torch.tensor(value) for name, value in (constants or {}).items()})
        with torch.no_grad():
            values = self._stack(bound.reference(**dict(zip(self.coordinates, points.unbind(1), strict=True))), points)  # type: ignore[attr-defined]
        return {field: values[:, column].numpy().reshape(shape) for column, field in enumerate(self.fields)}

    def _stack(self, values: Any, points: Tensor) -> Tensor:
        """Values by field as one tensor ``(n, F)``."""
        if isinstance(values, Tensor) and len(self.fields) == 1:
            values = {self.fields[0]: values}
        if not isinstance(values, Mapping) or set(values) != set(self.fields):
            given = listed(values) if isinstance(values, Mapping) else type(values).__name__
            raise ProblemError(f"expected a dict with the fields {listed(self.fields)}; given: {given}")
        columns = [torch.as_tensor(values[field], dtype=points.dtype) for field in self.fields]
        for field, column in zip(self.fields, columns, strict=True):
            if column.shape not in ((), (len(points),)):
                raise ProblemError(
                    f"the values of {field!r} have shape {tuple(column.shape)} at {len(points)} points; expected "
                    f"({len(points)},)"
                )
        return torch.stack([column.expand(len(points)) for column in columns], dim=1)


def points_from(given: Mapping[str, Any], names: Sequence[str]) -> tuple[Tensor, tuple[int, ...]]:
    """Points ``(n, D)`` in float64 from coordinates by name, and the shape to which they broadcast.

    Raises:
        ProblemError: a coordinate is missing or unknown, or the shapes do not broadcast.
    """
    if set(given) != set(names):
        raise ProblemError(f"expected the coordinates {listed(names)}; given: {listed(given)}")
    arrays = [_coordinate(name, given[name]) for name in names]
    try:
        broadcast = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(names, arrays, strict=True))
        raise ProblemError(f"the coordinates do not broadcast to one shape: {shapes}") from None
    points = np.stack([array.ravel() for array in broadcast], axis=1).astype(np.float64)
    return torch.from_numpy(points), broadcast[0].shape


def _coordinate(name: str, value: Any) -> Array:
    """One coordinate's values as float64.

    Raises:
        ProblemError: they are not finite real numbers.
    """
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"the coordinate {name!r} is not an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"the coordinate {name!r} must hold real numbers; given: {array.dtype} ({value!r})")
    if not np.isfinite(array).all():
        raise ProblemError(
            f"the coordinate {name!r} has {int((~np.isfinite(array)).sum())} value(s) that are not finite"
        )
    return array.astype(np.float64)


def _time(cls: type[Problem]) -> str | None:
    name = cls.time
    if name in cls.domain.coordinates:
        return name
    if name is not None and "time" in {key for owner in cls.__mro__ if owner is not Problem for key in vars(owner)}:
        raise ProblemError(
            f"{cls.__name__}: time = {name!r} is not a coordinate of its domain; coordinates: "
            f"{listed(cls.domain.coordinates)}"
        )
    return None


def _check_definition(cls: type[Problem]) -> None:
    name, domain = cls.__name__, cls.domain
    if not isinstance(domain, Domain):
        raise ProblemError(f"{name}: domain must be a sciml.Box, sciml.Disk or another domain; given: {domain!r}")
    fields = cls.fields
    if not isinstance(fields, list | tuple) or not all(
        isinstance(field, str) and field.isidentifier() for field in fields
    ):
        raise ProblemError(f"{name}: fields must be a list of names, as in fields = ['u', 'v']; given: {fields!r}")
    if not fields:
        raise ProblemError(f"{name} has no fields: name what is to be solved for, as in fields = ['u']")
    doubled = {field for field in fields if list(fields).count(field) > 1 or field in domain.coordinates}
    if doubled:
        raise ProblemError(
            f"{name}: {listed(sorted(doubled))} is named twice; fields: {listed(fields)}; coordinates: "
            f"{listed(domain.coordinates)}"
        )
    time = _time(cls)
    for equation_name, names in cls._equations.items():
        check_names(f"{name}: equation {equation_name!r}", names, fields, domain.coordinates)
    if isinstance(cls.conditions, Condition) or not isinstance(cls.conditions, list | tuple):
        raise ProblemError(f"{name}: conditions must be a list; given: {cls.conditions!r}")
    for condition in (*cls.conditions, *cls._methods.values()):
        if not isinstance(condition, Condition):
            raise ProblemError(
                f"{name}: conditions holds {condition!r}, which is not a condition; use sciml.Initial, Dirichlet, "
                "Neumann, Robin, Point or Periodic, or mark a method with @sciml.condition(on=...)"
            )
        condition.check(fields, domain.coordinates, time)

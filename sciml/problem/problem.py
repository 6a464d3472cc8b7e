"""Problems: equations and conditions on a domain, as a class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed, nearest
from sciml.errors import ProblemError
from sciml.geometry import Domain, Interior, Place, Region, Within, clipped
from sciml.geometry.coordinates import points_from
from sciml.jets import AutogradJets, JetSpace
from sciml.jets.calculus import check_names, check_residual, describe
from sciml.problem.composite_fields import Composites, checked
from sciml.problem.conditions import Condition, Evaluation, Residual, Term, check_part, jet_value
from sciml.problem.functions import argument_names, evaluated
from sciml.problem.parametric import Promoted, extended, promoted
from sciml.problem.structure import System
from sciml.problem.unknowns import Unknown
from sciml.typing import Array


class Problem:
    """A differential equation as a class: domain, fields, conditions and equations.

    A subclass sets ``domain`` (a ``Box``, a ``Disk``, ...), ``fields`` (names), ``conditions`` (a list) and methods
    marked by ``@sciml.equation`` or ``@sciml.condition(on=...)``. Everything else that is public and not a method is a
    constant: a number, or a ``sciml.Unknown`` to be estimated. Keywords of the constructor replace constants. The time
    coordinate is the one called ``t`` unless the class says ``time = "..."``.

    Fields that belong together may have a name together: ``complex_fields = {"h": ("u", "v")}`` makes h = u + iv, and
    ``vectors = {"velocity": ("u", "v")}`` a tuple. Equations and conditions receive them under that name beside the fields
    themselves, targets are given to them (``Initial(h=...)``, ``Dirichlet(velocity=(1.0, 0.0), on=...)``), and an equation
    that asks for a complex field and returns complex numbers becomes two, ``name.real`` and ``name.imag``.

    A field may depend on fewer coordinates than the domain has: ``fields = {"u": ("x", "y", "t"), "a": ("x", "y")}``, as a
    conductivity that is to be found and does not change in time. Where the equations leave a field free, that ``a_t`` vanishes
    is a condition of this name; where they are enough, they must imply it, and the certificate looks whether they do.

    ``units = {"t": "a", "u": "kg"}`` says units of coordinates and fields; pictures and files show them. Nothing is converted,
    and measurements in other units are refused.

    Two methods are optional: ``reference(self, **coordinates)`` returns the exact or trusted solution (torch in, torch
    out; a dict by field, or one tensor for a single field; ``reference = sciml.StoredReference(path)`` reads it from a
    file), and ``measurements(self)`` the table that ``fit`` and ``baseline`` use when no data are given.

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
    # A class may give a mapping; what it and its objects have are names.
    fields: Any = ()
    conditions: Sequence[Condition] = ()
    time: str | None = "t"
    complex_fields: Mapping[str, Sequence[str]] = {}
    vectors: Mapping[str, Sequence[str]] = {}
    units: Mapping[str, str] = {}
    _given: tuple[str, ...]
    _equations: ClassVar[dict[str, tuple[str, ...]]] = {}
    _methods: ClassVar[dict[str, Residual]] = {}
    # The complex fields and vectors.
    composites: ClassVar[Composites] = Composites()
    # The names of the constants that are coordinates here, the last ones; see ``promote``.
    promoted: ClassVar[tuple[str, ...]] = ()
    _is_complex: dict[str, bool]
    _initial: Mapping[str, Any] = {}
    _spans: ClassVar[Mapping[str, Sequence[str]]] = {}

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
        if "fields" in vars(cls):
            cls._spans = cls.fields if isinstance(cls.fields, Mapping) else {}
            cls.fields = list(cls.fields) if isinstance(cls.fields, Mapping) else cls.fields
        if "domain" in {name for owner in cls.__mro__ for name in vars(owner)}:
            cls.composites = _check_definition(cls)

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
            number = int | float | np.integer | np.floating
            if name != "domain" and not isinstance(value, number | Unknown | Tensor | type(getattr(self, name))):
                raise ProblemError(
                    f"the constant {name!r} of {type(self).__name__} must be a number, a sciml.Unknown or a tensor; given: "
                    f"{value!r}"
                )
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in constants.items()}
        time = _time_of(type(self))
        self.__dict__.update(plain, _given=tuple(constants), fields=tuple(type(self).fields), time=time, _is_complex={})
        self._begin()

    def _begin(self) -> None:
        """Take the conditions of the class, with the initial values that were found in place of its own."""
        own = [each.by_field(self.composites, self.time) for each in type(self).conditions]
        self.__dict__["conditions"] = tuple(each.begun(self._initial) for each in (*own, *type(self)._methods.values()))

    def __getstate__(self) -> dict[str, Any]:
        """What the object has beside its class; functions in conditions are the class's, which a pickle names."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("system", "conditions")}
        return {**state, "_is_complex": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __setattr__(self, name: str, value: object) -> None:
        raise ProblemError(
            f"a problem is immutable; make another one with {type(self).__name__}({name}=...) instead of setting {name!r}"
        )

    def __repr__(self) -> str:
        ranges = ", ".join(f"{name}={self.domain.bounds[name]}" for name in self.promoted)
        given = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._given)
        return f"{type(self).__name__}({given})" + (f".promote({ranges})" if ranges else "")

    @classmethod
    def _constants(cls) -> tuple[str, ...]:
        """Names of the public class attributes that are not part of the machinery."""
        # Every evaluation asks for them: what is looked at is what is not the machinery's.
        owners = [owner for owner in reversed(cls.__mro__) if not issubclass(Problem, owner)]
        own = dict.fromkeys(name for owner in owners for name in vars(owner) if name[0] != "_" and not hasattr(Problem, name))
        return tuple(
            name
            for name, value in ((name, getattr(cls, name)) for name in own if name != "domain")
            if not isinstance(value, property | classmethod | staticmethod | Promoted)
            and (not callable(value) or isinstance(value, Unknown))
        )

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates, in the order of the columns of points."""
        return self.domain.coordinates

    @property
    def equations(self) -> tuple[str, ...]:
        """The names of the equations; of one with complex values, those of its real and imaginary part."""
        return tuple(part for name in type(self)._equations for part in self._equation(name))

    @property
    def constant_along(self) -> dict[str, tuple[str, ...]]:
        """The coordinates of the domain on which a field does not depend, for each field that has such."""
        own = [name for name in self.coordinates if name not in self.promoted]
        found = {field: tuple(name for name in own if name not in names) for field, names in type(self)._spans.items()}
        return {field: names for field, names in found.items() if names}

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
        """A copy in which constants, usually the unknown ones, have these values, numbers or tensors."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__.pop("system", None)
        known = self._constants()
        for name, value in values.items():
            if name not in known:
                raise ProblemError(f"{type(self).__name__} has no constant {name!r}; constants: {listed(known)}")
            copy.__dict__[name] = value
        copy.__dict__["_given"] = tuple(dict.fromkeys((*self._given, *values)))
        return copy

    def unmeasured(self) -> Problem:
        """A copy that brings no measurements along."""
        copy = self.bind()
        copy.__dict__["measurements"] = None
        return copy

    def on(self, domain: Domain) -> Problem:
        """A copy on another domain with the same coordinates."""
        copy = self.bind()
        copy.__dict__["domain"] = domain
        return copy

    def supplied(self, functions: Mapping[str, Any], initial: Mapping[str, Any]) -> Problem:
        """A copy whose equations call these functions, by the names of attributes, and whose fields begin with these values."""
        copy = self.bind()
        copy.__dict__.update(functions)
        begun = tuple(condition.begun(initial) for condition in self.conditions)
        copy.__dict__.update(conditions=begun, _initial={**self._initial, **initial})
        return copy

    def promote(self, **ranges: tuple[float, float]) -> Problem:
        """The problem for all values of some constants at once: each becomes one more coordinate, the last one.

        Equations and conditions stay as they are; ``self.nu`` is then a tensor of shape ``(n,)`` in them, by which they may
        even be differentiated. ``fit`` solves for the whole range, and ``Solution.at`` takes a value out of it.

        Args:
            ranges: the lowest and highest value of each constant, in its unit: ``promote(nu=(0.01, 0.1))``.

        Raises:
            ProblemError: no such constant, no number, no range, or a condition at a single point or on a mean.

        Example:
            >>> import sciml
            >>> sciml.gallery.problem("heat_rod").promote(kappa=(0.1, 0.4)).coordinates
            ('x', 't', 'kappa')
        """
        return promoted(self, ranges)

    def bind_initial(self) -> Problem:
        """A copy in which every unknown has its initial value."""
        return self.valued({name: value.initial for name, value in self.unknowns.items()})

    def valued(self, constants: Mapping[str, float]) -> Problem:
        """A copy in which constants have these values, in float64."""
        return self.bind(**{name: torch.tensor(value, dtype=torch.float64) for name, value in constants.items()})

    def terms(self) -> tuple[Term, ...]:
        """Every residual of the problem: the equations, then the conditions, each under a name of its own."""
        return self.system.terms

    def stated_terms(self) -> tuple[Term, ...]:
        """What ``terms`` keeps, made anew."""
        found = [term for name in type(self)._equations for term in self.equation_terms(name)]
        if len(found) < len(self.fields):
            found += self.constancies()
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

    def implied_terms(self) -> list[Term]:
        """Residuals that no one solves for, since equations and conditions imply them; a certificate looks at them."""
        return self.constancies() if len(self.equations) >= len(self.fields) else []

    def constancies(self) -> list[Term]:
        """The derivatives that vanish because a field depends on fewer coordinates."""
        along = [(field, name) for field, names in self.constant_along.items() for name in names]
        return [Term(describe(field, (name,)), Interior(), partial(jet_value, field, (name,), 1.0)) for field, name in along]

    def equation_residuals(self) -> list[Term]:
        """The residuals of all equations, without a check of the places where they hold."""
        return [
            Term(part, Interior(), residual)
            for each in type(self)._equations
            for part, residual in self._equation(each).items()
        ]

    def equation_terms(self, name: str) -> list[Term]:
        """The residual of one equation, or those of its real and imaginary part."""
        return [Term(part, self._place(name), residual) for part, residual in self._equation(name).items()]

    def _place(self, name: str) -> Place:
        """Where an equation holds."""
        part = getattr(getattr(type(self), name), "_sciml_part", None)
        if part is None:
            return Interior()
        if self.time is not None and self.time in part.bounds:
            part = clipped(part, self.time, *self.domain.bounds[self.time])
        part = extended(part, self)
        check_part(f"the part of equation {name!r}", part, self)
        return Within(part)

    def parts(self, field: str) -> list[Domain]:
        """The parts of the domain where equations that ask for a field hold; none where one of them holds everywhere."""
        asking = [
            self._place(name)
            for name, names in type(self)._equations.items()
            if any(field in self.composites.parts(each) for each in names)
        ]
        found = [place.part for place in asking if isinstance(place, Within)]
        return found if len(found) == len(asking) else []

    def lives(self, field: str, coordinates: Mapping[str, Any]) -> Array:
        """Whether points, arrays by coordinate that broadcast, lie where an equation that asks for a field holds."""
        parts = self.parts(field)
        if not parts:
            return np.ones(np.broadcast_shapes(*(np.shape(each) for each in coordinates.values())), dtype=bool)
        points, shape = self.points(coordinates)
        return np.logical_or.reduce([part.contains(points.numpy()) for part in parts]).reshape(shape)

    def lives_at(self, field: str, points: Tensor) -> Tensor:
        """Whether points ``(n, D)`` lie where an equation that asks for a field holds, ``(n,)``."""
        return torch.from_numpy(self.lives(field, dict(zip(self.coordinates, points.cpu().numpy().T, strict=True))))

    def _equation(self, name: str) -> dict[str, Callable[[Evaluation], Tensor]]:
        """The residual of an equation under its name, or those of its real and imaginary part."""
        names = type(self)._equations[name]

        def value(evaluation: Evaluation) -> object:
            arguments = evaluation.problem.composites.arguments(evaluation.space, names)
            return evaluated(f"equation {name!r}", getattr(evaluation.problem, name), arguments)

        return self.parts_of(name, names, value)

    def parts_of(
        self, name: str, names: Sequence[str], value: Callable[[Evaluation], object]
    ) -> dict[str, Callable[[Evaluation], Tensor]]:
        """A residual by its name, or by ``name.real`` and ``name.imag`` where its arguments and values are complex."""
        if name not in self._is_complex:
            probed = value(self.system.probe()) if self.composites.has_complex(names) else None
            self._is_complex[name] = isinstance(probed, Tensor) and probed.is_complex()
        if not self._is_complex[name]:
            return {name: lambda evaluation: check_residual(name, value(evaluation), evaluation.space)}

        def part(which: str) -> Callable[[Evaluation], Tensor]:
            return lambda evaluation: check_residual(name, getattr(value(evaluation), which), evaluation.space)

        return {f"{name}.{which}": part(which) for which in ("real", "imag")}

    def space(self, points: Tensor, trial: Callable[[Tensor], Tensor]) -> JetSpace:
        """Coordinates and jets of a trial function at points ``(n, D)``, by nested autograd."""
        columns = dict(zip(self.coordinates, points.unbind(1), strict=True))
        return JetSpace(columns, self.fields, AutogradJets(trial, points, self.coordinates, self.fields))

    @cached_property
    def system(self) -> System:
        """The compiled problem: terms, the jets that each asks for, orders."""
        return System(self)

    def order(self, field: str, coordinate: str) -> int:
        """The highest derivative of a field by a coordinate that the equations contain."""
        return self.system.order(field, coordinate)

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

        def trial(at: Tensor) -> Tensor:
            columns = dict(zip(self.coordinates, at.unbind(1), strict=True))
            return self.composites.stacked(fields(**columns), self.fields, at)

        evaluation = Evaluation(self.bind_initial(), (self.space(points, trial),))
        return {term.name: term.evaluate(evaluation).detach().numpy() for term in self.equation_residuals()}

    def points(self, coordinates: Mapping[str, Any]) -> tuple[Tensor, tuple[int, ...]]:
        """Points ``(n, D)`` in float64 from coordinates by name, and the shape they broadcast to; wrong ones are refused."""
        return points_from(coordinates, self.coordinates)

    def reference_values(
        self, coordinates: Mapping[str, Any], constants: Mapping[str, float] | None = None
    ) -> dict[str, Array] | None:
        """The problem's own reference at points, by field, with unknowns at ``constants``, else initial; None without one."""
        if not self.has_reference:
            return None
        points, shape = self.points(coordinates)
        bound = self.bind_initial().valued(constants or {})
        with torch.no_grad():
            columns = dict(zip(self.coordinates, points.unbind(1), strict=True))
            try:
                given = bound.reference(**columns)  # type: ignore[attr-defined]
            except Exception as error:
                error.add_note(f"raised by {type(self).__name__}.reference, of which a fit asks one point before it begins")
                raise
            values = self.composites.stacked(given, self.fields, points)
        return {field: values[:, column].numpy().reshape(shape) for column, field in enumerate(self.fields)}


def _time_of(cls: type[Problem]) -> str | None:
    """The name of the time coordinate of a problem class, or None."""
    name = cls.time
    if name in cls.domain.coordinates:
        return name
    if name is not None and "time" in {key for owner in cls.__mro__ if owner is not Problem for key in vars(owner)}:
        raise ProblemError(
            f"{cls.__name__}: time = {name!r} is not a coordinate of its domain; coordinates: {listed(cls.domain.coordinates)}"
        )
    return None


def _is_own(cls: type[Problem], condition: Condition) -> bool:
    """Whether a class states both its domain and a condition; what is inherited means the same sides of another domain."""
    own = vars(cls)
    if "domain" not in own or "_members" in own:
        return False
    if isinstance(condition, Residual):
        return hasattr(own.get(condition.name), "_sciml_region")
    inherited = (each for base in cls.__mro__[1:] for each in vars(base).get("conditions", ()))
    return "conditions" in own and not any(condition is each for each in inherited)


def _check_definition(cls: type[Problem]) -> Composites:
    """Refuse a problem class with wrong names, shapes or regions, and return its complex fields and vectors."""
    name, domain = cls.__name__, cls.domain
    if not isinstance(domain, Domain):
        raise ProblemError(f"{name}: domain must be a sciml.Box, sciml.Disk or another domain; given: {domain!r}")
    fields = cls.fields
    if not isinstance(fields, list | tuple) or not all(isinstance(field, str) and field.isidentifier() for field in fields):
        raise ProblemError(f"{name}: fields must be a list of names, as in fields = ['u', 'v']; given: {fields!r}")
    if not fields:
        raise ProblemError(f"{name} has no fields: name what is to be solved for, as in fields = ['u']")
    doubled = {field for field in fields if list(fields).count(field) > 1 or field in domain.coordinates}
    if doubled:
        raise ProblemError(
            f"{name}: {listed(sorted(doubled))} is named twice; fields: {listed(fields)}; coordinates: "
            f"{listed(domain.coordinates)}"
        )
    for field, names in cls._spans.items():
        own = names if isinstance(names, list | tuple) else ()
        if not own or not set(own) <= set(domain.coordinates):
            if names is complex:
                instead = f"A complex field is stated by its parts, as in complex_fields = {{{field!r}: ('re', 'im')}}"
            else:
                instead = "A number that is to be found is a sciml.Unknown"
            raise ProblemError(
                f"{name}: fields[{field!r}] must name the coordinates on which {field!r} depends, one or more of "
                f"{listed(domain.coordinates)}; given: {names!r}. {instead}"
            )
    composites = checked(name, cls.complex_fields, cls.vectors, fields, domain.coordinates)
    known = (*fields, *composites.names)
    time = _time_of(cls)
    for equation_name, names in cls._equations.items():
        check_names(f"{name}: equation {equation_name!r}", names, known, domain.coordinates, cls._constants())
    if isinstance(cls.conditions, Condition) or not isinstance(cls.conditions, list | tuple):
        raise ProblemError(f"{name}: conditions must be a list; given: {cls.conditions!r}")
    for condition in (*cls.conditions, *cls._methods.values()):
        if not isinstance(condition, Condition):
            raise ProblemError(
                f"{name}: conditions holds {condition!r}, which is not a condition; use sciml.Initial, Dirichlet, "
                "Neumann, Robin, Point or Periodic, or mark a method with @sciml.condition(on=...)"
            )
        other = getattr(condition, "on", None) if _is_own(cls, condition) else None
        if isinstance(other, Region) and (elsewhere := other.stranger(domain, time)) is not None:
            raise ProblemError(
                f"{name}: the condition {condition.name!r} lies on the boundary of {elsewhere!r}, and not of {domain!r}: name "
                f"it by the problem's own domain, as in domain.boundary or domain.piece(...) of {listed(domain.pieces)}; an "
                "inner surface is first.interface(second)"
            )
        if isinstance(condition, Residual):
            condition.check(known, domain.coordinates, time)
        else:
            condition.by_field(composites, time).check(fields, domain.coordinates, time)
    return composites

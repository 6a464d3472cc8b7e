"""The definition of a problem class: the decorator of its equations, and what is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.geometry import Domain
from sciml.jets.calculus import check_names
from sciml.problem.composite_fields import Composites, checked
from sciml.problem.conditions import Condition, Residual


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


def time_of(cls: type[Any], base: type) -> str | None:
    """The name of the time coordinate of a problem class, or None; ``base`` is ``Problem``."""
    name = cls.time
    if name in cls.domain.coordinates:
        return name
    if name is not None and "time" in {key for owner in cls.__mro__ if owner is not base for key in vars(owner)}:
        raise ProblemError(
            f"{cls.__name__}: time = {name!r} is not a coordinate of its domain; coordinates: {listed(cls.domain.coordinates)}"
        )
    return None


def check_definition(cls: type[Any], base: type) -> Composites:
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
    time = time_of(cls, base)
    for equation_name, names in cls._equations.items():
        check_names(f"{name}: equation {equation_name!r}", names, known, domain.coordinates)
    if isinstance(cls.conditions, Condition) or not isinstance(cls.conditions, list | tuple):
        raise ProblemError(f"{name}: conditions must be a list; given: {cls.conditions!r}")
    for condition in (*cls.conditions, *cls._methods.values()):
        if not isinstance(condition, Condition):
            raise ProblemError(
                f"{name}: conditions holds {condition!r}, which is not a condition; use sciml.Initial, Dirichlet, "
                "Neumann, Robin, Point or Periodic, or mark a method with @sciml.condition(on=...)"
            )
        if isinstance(condition, Residual):
            condition.check(known, domain.coordinates, time)
        else:
            condition.by_field(composites, time).check(fields, domain.coordinates, time)
    return composites

"""Joint problems: several experiments that share constants, as one problem."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from sciml._text import among, listed
from sciml.data import Table
from sciml.errors import DataError, ProblemError
from sciml.geometry import Domain
from sciml.problem.boundary_conditions import Outflow, Periodic
from sciml.problem.conditions import Condition, Residual, Targets
from sciml.problem.measurements import Measurements
from sciml.problem.noise import Noise
from sciml.problem.observations import derivative_named
from sciml.problem.problem import Problem
from sciml.typing import Array


class Experiments(Problem):
    """The problem that ``experiments`` makes: each field, equation and condition once for every experiment."""

    _members: ClassVar[dict[str, Problem]] = {}
    _own: ClassVar[tuple[str, ...]] = ()

    @property
    def members(self) -> dict[str, Problem]:
        """The problems by experiment, with the values that constants have at present."""
        shared = self.constants
        found: dict[str, Problem] = {}
        for experiment, member in type(self)._members.items():
            names = {name: f"{name}_{experiment}" if name in type(self)._own else name for name in member.unknowns}
            found[experiment] = member.bind(**{name: shared[key] for name, key in names.items()})
        return found

    def joined(
        self, data: Any, observe: Mapping[str, Callable[..., Any]] | None = None, noise: Any = None
    ) -> Measurements | None:
        """The measurements of all experiments in one table, a column for each of theirs; without data the problems' own."""
        members = type(self)._members
        tables = self._tables(data)
        parts = {name: Measurements.of(each).with_more(observe, noise) for name, each in tables.items()}
        if not parts:
            return None
        columns: dict[str, Array] = {}
        functions: dict[str, Callable[..., Any]] = {}
        noises: dict[str, Noise] = {}
        alike: dict[str, str] = {}
        total = sum(len(each) for each in parts.values())
        start = 0
        for experiment, part in parts.items():
            place = slice(start, start + len(part))
            start += len(part)
            for column in part.table.columns:
                coordinate = column in self.coordinates
                name = column if coordinate else self._named(column, experiment)
                columns.setdefault(name, np.full(total, np.nan))[place] = part.table[column]
                if coordinate:
                    continue
                alike[name] = column
                own = part.noise_of(column)
                if own is not None and column not in part.sizes:
                    sigma = self._named(own.sigma, experiment) if isinstance(own.sigma, str) else own.sigma
                    noises[name] = replace(own, sigma=sigma)
            for column, function in part.observe.items():
                functions[self._named(column, experiment)] = renamed(function, experiment, members[experiment])
        source = ", ".join(dict.fromkeys(each.table.source for each in parts.values()))
        table = Table(columns, source=source, missing="mask")
        found = Measurements(table, observe=functions, noise=noises or None)
        found.alike = alike
        return found

    def _named(self, column: str, experiment: str) -> str:
        """The column of one experiment: ``u_t`` of ``warm`` is ``u_warm_t``."""
        member = type(self)._members[experiment]
        derivative = None if column in member.fields else derivative_named(column, member.fields, self.coordinates)
        if derivative is None:
            return f"{column}_{experiment}"
        return f"{derivative[0]}_{experiment}_{''.join(derivative[1])}"

    def _tables(self, data: Any) -> dict[str, Any]:
        names = list(type(self)._members)
        if data is None:
            own = {name: getattr(member, "measurements", None) for name, member in type(self)._members.items()}
            return {name: each() for name, each in own.items() if each is not None}
        if isinstance(data, Measurements) and data.table.groups:
            data = {name: data.on(data.table.group(name)) for name in data.table.groups}
        if isinstance(data, Table) and data.groups:
            data = {name: data.group(name) for name in data.groups}
        kinds = (Table, Measurements, Mapping, pd.DataFrame)
        if not isinstance(data, Mapping) or not all(isinstance(each, kinds) for each in data.values()):
            kinds_given = {type(each).__name__ for each in data.values()} if isinstance(data, Mapping) else set()
            raise DataError(
                f"data of several experiments are tables by name, {{{names[0]!r}: table, ...}}, or one table with groups "
                f"that are called {listed(names)}; given: {listed(sorted(kinds_given)) or type(data).__name__}"
            )
        for name in data:
            if name not in names:
                raise DataError(f"there is no experiment {name!r}; experiments: {among(name, names)}")
        silent = [name for name in names if name not in data]
        if silent:
            raise DataError(f"the experiment {listed(silent)} has no data; given: {listed(data)}")
        return dict(data)


def experiments(problems: Mapping[str, Problem], *, own: Collection[str] = ()) -> Experiments:
    """One problem made of several experiments, so that constants they share are estimated from all of their data.

    Every field ``u`` is there once for each experiment, as ``u_<experiment>``, with the equations and conditions of that
    experiment's problem. ``fit`` and ``baseline`` take ``data={"<experiment>": table, ...}``, or one table with groups of these
    names, with columns called as in a single problem.

    Args:
        problems: by name of the experiment: objects of one class on one domain, whose known constants may differ.
        own: the unknown constants that each experiment has for itself, ``first_<experiment>``; all others are shared.

    Returns:
        The problem.

    Raises:
        ProblemError: fewer than two, other classes or domains, names that cannot be part of a name, or unknowns that the
            problems do not have.

    Example:
        >>> import sciml
        >>> Growth, rate = sciml.gallery.problem_class("logistic_growth"), sciml.Unknown(1.0)
        >>> both = sciml.experiments({"few": Growth(start=0.1, rate=rate), "more": Growth(start=0.2, rate=rate)})
        >>> both.fields, both.equations, list(both.unknowns)
        (('u_few', 'u_more'), ('growth_few', 'growth_more'), ['rate'])
    """
    members = checked_members(problems, own)
    conditions = [condition_of(each, name, member) for name, member in members.items() for each in member.conditions]
    return united(Experiments, members, own, conditions, {})


def united(
    base: type[Any],
    members: Mapping[str, Problem],
    own: Collection[str],
    conditions: Sequence[Condition],
    parts: Mapping[str, Domain],
) -> Any:
    """One problem with the fields and equations of all members, each under its name; equations hold on the member's part."""
    first = next(iter(members.values()))
    kind, attributes = type(first), dict[str, Any]()
    fields = [f"{field}_{name}" for name in members for field in first.fields]
    attributes |= {"domain": first.domain, "fields": fields, "time": first.time}
    for what, groups in (("complex_fields", first.composites.complexes), ("vectors", first.composites.vectors)):
        attributes[what] = {
            f"{key}_{name}": tuple(f"{part}_{name}" for part in parts) for name in members for key, parts in groups.items()
        }
    for name, member in members.items():
        for unknown, value in member.unknowns.items():
            attributes[f"{unknown}_{name}" if unknown in own else unknown] = value
        for equation in kind._equations:
            function = renamed(getattr(kind, equation), name, member)
            function._sciml_equation = True  # type: ignore[attr-defined]
            part = parts.get(name, getattr(getattr(kind, equation), "_sciml_part", None))
            function._sciml_part = part  # type: ignore[attr-defined]
            attributes[f"{equation}_{name}"] = function
    attributes |= {"conditions": [*conditions], "_members": members, "_own": tuple(own), "__doc__": kind.__doc__}
    if parts:
        attributes["_parts"] = parts
    if all(each.has_reference for each in members.values()):
        attributes["reference"] = _reference
    return type(f"{kind.__name__}{base.__name__}", (base,), attributes)()


def _reference(self: Experiments, **coordinates: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for experiment, member in self.members.items():
        values = member.reference(**coordinates)  # type: ignore[attr-defined]
        by_field = values if isinstance(values, Mapping) else dict.fromkeys(member.fields, values)
        found |= {f"{field}_{experiment}": value for field, value in member.composites.separated(by_field).items()}
    return found


def renamed(function: Callable[..., Any], experiment: str, member: Problem) -> Callable[..., Any]:
    """A function of one experiment's fields as one of all fields; as ``self`` it receives its own problem."""
    known = {*member.fields, *member.composites.names}
    signature = inspect.signature(function)
    names = {key: f"{key}_{experiment}" if key in known else key for key in signature.parameters}
    back = {ours: theirs for theirs, ours in names.items()}

    def wrapped(*problem: Any, **arguments: Any) -> Any:
        given = {back[key]: value for key, value in arguments.items()}
        if "self" in signature.parameters:
            given["self"] = (problem[0] if problem else given["self"]).members[experiment]
        return function(**given)

    parameters = [each.replace(name=names[key]) for key, each in signature.parameters.items()]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__name__ = f"{getattr(function, '__name__', 'function')}_{experiment}"
    return wrapped


def condition_of(given: Condition, experiment: str, member: Problem) -> Condition:
    """A condition of one experiment among the others."""
    if isinstance(given, Residual):
        return Residual(renamed(given.function, experiment, member), given.on, f"{given.name}_{experiment}")
    found: Any = copy.copy(given)
    found.name = f"{given.name}_{experiment}"
    if isinstance(given, Periodic):
        found.fields = tuple(f"{field}_{experiment}" for field in given.fields or member.fields)
        return found
    if isinstance(given, Outflow):
        found.velocity = tuple(f"{field}_{experiment}" for field in given.velocity)
        found.pressure = f"{given.pressure}_{experiment}"
        found.viscosity = renamed(given.viscosity, experiment, member) if callable(given.viscosity) else given.viscosity
        return found
    assert isinstance(given, Targets)
    found.targets = {}
    for key, target in given.targets.items():
        # A target's key is a field, or one with time derivatives after it: ``u_t``.
        field = max((each for each in member.fields if key == each or key.startswith(f"{each}_")), key=len)
        found.targets[f"{field}_{experiment}{key[len(field) :]}"] = (
            renamed(target, experiment, member) if callable(target) else target
        )
    if callable(getattr(given, "coefficient", None)):
        found.coefficient = renamed(given.coefficient, experiment, member)  # type: ignore[attr-defined]
    return found


def checked_members(problems: Any, own: Collection[str], *, alike: bool = True) -> dict[str, Problem]:
    """The problems by name, of one class; ``alike`` asks for the same unknowns, which say the same, as of experiments."""
    what, verb = ("experiment", "experiments") if alike else ("part", "composite")
    if not isinstance(problems, Mapping) or len(problems) < 2:
        raise ProblemError(f"{verb} needs at least two problems by name; given: {problems!r}")
    for name, each in problems.items():
        if not isinstance(each, Problem):
            raise ProblemError(f"the {what} {name!r} must be a problem object; given: {each!r}")
        if not isinstance(name, str) or not f"u_{name}".isidentifier():
            raise ProblemError(f"the name of each {what} becomes part of names: letters, digits and _; given: {name!r}")
    members = {str(name): each for name, each in problems.items()}
    first = next(iter(members.values()))
    for name, each in members.items():
        same = not alike or set(each.unknowns) == set(first.unknowns)
        if type(each) is not type(first) or each.domain != first.domain or not same:
            rule = (
                "with the same unknowns on the same domain (the longest, where times differ)"
                if alike
                else "on the same domain, the whole, and may differ in constants, as in "
                f"{type(first).__name__}(k=sciml.Unknown(1.0))"
            )
            raise ProblemError(
                f"{what}s are objects of one class {rule}; {name!r} is {each!r} on {each.domain!r}, the first is {first!r} on "
                f"{first.domain!r}"
            )
        for field in first.fields:
            if derivative_named(f"{field}_{name}", first.fields, first.coordinates) is not None:
                raise ProblemError(f"the {what} {name!r} is called like a coordinate: {field}_{name} would be a derivative")
        for unknown, value in each.unknowns.items() if alike else ():
            if unknown not in own and value != first.unknowns[unknown]:
                raise ProblemError(
                    f"the experiments share {unknown!r} and say different things of it: {first.unknowns[unknown]!r} and, in "
                    f"{name!r}, {value!r}; say the same, or name it in own="
                )
    for name in own:
        if name not in first.unknowns:
            raise ProblemError(
                f"own names {name!r}, which is no unknown of {type(first).__name__}; unknowns: {among(name, first.unknowns)}"
            )
    return members

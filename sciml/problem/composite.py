"""Interface (transmission) problems: parts of a domain with constants of their own, stated once, as one problem."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import DataError, ProblemError
from sciml.geometry import Domain, Interface, Region, common_surface
from sciml.problem.boundary_conditions import Dirichlet, Initial
from sciml.problem.conditions import Condition, Residual
from sciml.problem.experiments import Experiments, checked_members, condition_of, renamed, united
from sciml.problem.functions import argument_names, named
from sciml.problem.measurements import Measurements
from sciml.problem.problem import Problem


class Composite(Experiments):
    """The problem that ``composite`` makes: each field and equation once for every part."""

    _parts: ClassVar[dict[str, Domain]] = {}

    def _tables(self, data: Any) -> dict[str, Any]:
        """Measurements of one table, by the part in which they lie."""
        if data is None or (isinstance(data, Mapping) and set(data) <= set(type(self)._members)):
            return super()._tables(data)
        given = Measurements.of(data)
        lacking = [name for name in self.coordinates if name not in given.table.columns]
        if lacking:
            raise DataError(
                f"measurements of parts need the coordinate(s) {listed(lacking)}; given: {listed(given.table.columns)}"
            )
        points = np.stack([given.table[name] for name in self.coordinates], axis=1)
        left, found = np.ones(len(points), dtype=bool), {}
        for name, part in type(self)._parts.items():
            own = part.contains(points) & left
            left &= ~own
            if own.any():
                found[name] = given.on(given.table.take(own))
        if left.any():
            raise DataError(
                f"{int(left.sum())} of {len(points)} measurements lie in none of the parts {listed(type(self)._parts)}, the "
                f"first at {dict(zip(self.coordinates, points[left][0].tolist(), strict=True))}: leave them out"
            )
        return found


def composite(problems: Mapping[str, Problem], on: Mapping[str, Domain], *, flux: str = "flux") -> Composite:
    r"""An interface (transmission) problem: a domain of parts that differ in constants, such as layers of several materials.

    The physics is one class, stated as if there were one material. It has a method that returns the flux of each field, a
    tensor for each coordinate of space, such as :math:`-k\,\nabla u`. Every field ``u`` is there once for each part, as
    ``u_<part>``, and lives there. Where two parts meet, fields are equal, and so is what flows across,

    .. math::  u_1 = u_2, \qquad n \cdot q_1 = n \cdot q_2.

    Initial values hold in every part, conditions on the boundary where the part has a share in it. Unknown constants belong to
    their part, ``k_<part>``. Measurements are one table with columns called as in the class: each row belongs to the part in
    which it lies.

    Args:
        problems: objects of one class with one field, by name of the part.
        on: the parts by the same names, with the coordinates of the domain, which they fill together.
        flux: the name of the method; it receives the field and coordinates by name.

    Returns:
        The problem.

    Raises:
        ProblemError: names that differ, parts that do not meet, a class without such a method, several fields, or conditions
            that hold neither at the start nor on the boundary.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Rod(sciml.Problem):
        ...     domain = sciml.Interval(x=(0, 2))
        ...     fields = ["u"]
        ...     k = 1.0
        ...     conditions = [sciml.Dirichlet(u=lambda x: x, on=domain.faces("x"))]
        ...     def flux(self, u, x):
        ...         return (-self.k * d(u, x),)
        ...     @sciml.equation
        ...     def balance(self, u, x):
        ...         return d(self.flux(u, x)[0], x)
        >>> halves = {"left": sciml.Interval(x=(0, 1)), "right": sciml.Interval(x=(1, 2))}
        >>> rod = sciml.composite({"left": Rod(k=1.0), "right": Rod(k=3.0)}, halves)
        >>> round(float(sciml.fit(rod)(x=1.0)["u_left"]), 6)
        1.5

    Reference: Z. Li and K. Ito, The Immersed Interface Method, SIAM 2006, chapter 1.
    """
    members = checked_members(problems, (), alike=False)
    first = next(iter(members.values()))
    _check(members, on, flux)
    parts = {name: on[name] for name in members}
    common = {(one, two): common_surface(parts[one], parts[two]) for one, two in combinations(parts, 2)}
    surfaces = {pair: surface for pair, surface in common.items() if surface is not None}
    alone = [name for name in on if not any(name in pair for pair in surfaces)]
    if alone:
        raise ProblemError(f"the part {listed(alone)} meets no other one: parts must share a piece of their boundaries")
    conditions: list[Condition] = []
    for name, member in members.items():
        for each in member.conditions:
            here = _placed(each, first.domain, parts[name], first.time)
            if here is not None:
                conditions.append(condition_of(here, name, member))
    for (one, two), surface in surfaces.items():
        conditions += _joints(members, surface, one, two, flux)
    own = tuple(dict.fromkeys(name for member in members.values() for name in member.unknowns))
    return united(Composite, members, own, conditions, parts)


def _check(members: Mapping[str, Problem], on: Mapping[str, Domain], flux: str) -> None:
    first = next(iter(members.values()))
    kind = type(first)
    if not isinstance(on, Mapping) or set(on) != set(members) or not all(isinstance(each, Domain) for each in on.values()):
        raise ProblemError(f"on= must have a domain for each of {listed(members)}; given: {on!r}")
    if len(first.fields) != 1:
        raise ProblemError(f"composite takes classes with one field; {kind.__name__} has {listed(first.fields)}")
    if not callable(getattr(kind, flux, None)):
        raise ProblemError(
            f"{kind.__name__} has no method {flux!r}: it returns what flows, a tensor for each coordinate of space, and is "
            "continuous where parts meet"
        )


def _placed(given: Condition, whole: Domain, part: Domain, time: str | None) -> Condition | None:
    """A condition where a part has a share in it; None where it has none."""
    if isinstance(given, Initial):
        return given
    if not isinstance(given, Dirichlet | Residual) or not isinstance(given.on, Region):
        raise ProblemError(
            f"composite: {given!r} must be an initial condition, or lie on faces or pieces of the boundary of the whole"
        )
    names = {side.describe(whole) for side in given.on.resolve(whole, time)}
    common = common_surface(whole, part)
    own = () if common is None else common.sides
    here = [name for name in dict.fromkeys(side.describe(whole) for side in own) if name in names]
    if common is None or not here:
        return None
    found: Any = copy.copy(given)
    found.on = common.piece(*here)
    return found


def _joints(members: Mapping[str, Problem], surface: Interface, one: str, two: str, flux: str) -> list[Condition]:
    """Equal fields and equal fluxes where two parts meet."""
    first = members[one]
    (field,) = first.fields
    own, other = f"{field}_{one}", f"{field}_{two}"
    coordinates = [name for name in argument_names(getattr(type(first), flux)) if name != field]
    flows = {name: renamed(getattr(type(first), flux), name, members[name]) for name in (one, two)}
    space = [index for index, name in enumerate(first.coordinates) if name != first.time]

    def through(problem: Any, name: str, arguments: Mapping[str, Any]) -> Tensor:
        normal = arguments["normal"]
        given = {key: value for key, value in arguments.items() if key in coordinates or key == f"{field}_{name}"}
        parts = flows[name](problem, **given)
        return sum((normal[index] * part for index, part in zip(space, parts, strict=True)), torch.zeros_like(parts[0]))

    def balance(self: Any, **arguments: Any) -> Tensor:
        return through(self, one, arguments) - through(self, two, arguments)

    def contact(**arguments: Any) -> Tensor:
        return arguments[own] - arguments[other]

    return [
        Residual(named(contact, [own, other]), surface, f"contact_{one}_{two}"),
        Residual(named(balance, ["self", own, other, *coordinates, "normal"]), surface, f"flux_{one}_{two}"),
    ]

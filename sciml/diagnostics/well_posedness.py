r"""Well-posedness: the number of conditions that the equations of a problem take, against the number that it has.

How many a coordinate takes follows from the orders :math:`\sigma_{ij}` of the highest derivatives of field j by it in
equation i: the largest sum of orders over all ways of giving every equation a field of its own,

.. math:: N = \max_\pi \sum_i \sigma_{i\pi(i)}.

It is 2 for Poisson's equation, 4 for Stokes' (continuity has the pressure's share), 2 for the wave equation as a system of
first order. For linear equations with constant coefficients it is the degree of the characteristic determinant, unless leading
terms cancel; then, and for conditions that others imply, the number is wrong: all of this is a warning and no error.

Reference: J. D. Pryce, A simple structural analysis method for DAEs, BIT Numerical Mathematics 41 (2001).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml._text import listed, user_level
from sciml.errors import ConditionWarning
from sciml.geometry import (
    At,
    Average,
    Domain,
    Face,
    Interface,
    Interior,
    OnFaces,
    Opposite,
    Side,
    Within,
    common_surface,
    draw,
)
from sciml.jets import RandomJets
from sciml.jets.calculus import describe
from sciml.problem import Problem
from sciml.problem.compatibility import contradictions
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Jet, linearize
from sciml.typing import Array

_NEVER = -1000.0
# Points of each side, and so near to a boundary, as a share of the thickness, that they lie on it.
_LOOKED_AT, _ON = 64, 1e-8
# Exponentials that a determinant is taken of, and parts that are rounding.
_WAVES, _ROUNDING = 8, 1e-11


@dataclass(frozen=True)
class Dependency:
    """A term of a problem, and the derivatives of fields that it truly depends on."""

    term: Term
    jets: frozenset[Jet]

    @property
    def fields(self) -> frozenset[str]:
        """The fields among them."""
        return frozenset(field for field, _ in self.jets)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides it lies on, both for a periodic one."""
        place = self.term.place
        if isinstance(place, Opposite):
            return place.sides
        return place.faces if isinstance(place, OnFaces) else ()

    def times(self, sides: Iterable[Side]) -> int:
        """How many of the conditions on some sides it is."""
        return len(set(self.sides) & set(sides)) if isinstance(self.term.place, OnFaces) else 1

    def order(self, field: str, coordinate: str) -> float:
        """The highest derivative of a field by a coordinate, a large negative number without any."""
        return max((float(index.count(coordinate)) for own, index in self.jets if own == field), default=_NEVER)


def warn_of_conditions(problem: Problem, measured: bool, earlier: list[str]) -> None:
    """Issue a ``ConditionWarning`` for each sentence of ``condition_warnings`` that is not in ``earlier``, and add it there."""
    for sentence in condition_warnings(problem, measured):
        if sentence not in earlier:
            earlier.append(sentence)
            warnings.warn(f"{type(problem).__name__}: {sentence}", ConditionWarning, stacklevel=user_level())


def condition_warnings(problem: Problem, measured: bool = False) -> list[str]:
    """A sentence for each likely mistake in the conditions; where measurements may stand in for them, none is missing."""
    return contradictions(problem) + miscounted(problem, measured)


def miscounted(problem: Problem, measured: bool = False) -> list[str]:
    """Over- and underdetermined: a sentence for each place with more or fewer conditions than it takes."""
    demands = _dependencies(problem)
    found, systems = _twice(problem, demands), list(_systems(problem, demands))
    between = [] if measured else _missing_between_parts(problem, systems)
    for system in systems:
        counted, too_many = system.mistakes(measured), system.mistakes(measured=True)
        # What lacks conditions lacks them for its level, too.
        lacks = measured or any(each not in too_many for each in counted) or (between and system.part)
        found += counted if lacks else counted + (system.dependent() or system.levels())
    return found + between


def lacking(problem: Problem) -> list[str]:
    """A sentence for equations that are missing, and for every side and coordinate on which conditions are, or for every level
    that nothing gives.
    """
    count, fields = len(problem.equations) + len(problem.constancies()), len(problem.fields)
    found = (
        [] if count >= fields else [f"{fields} field(s) need as many equations, and there are {count}: add one, or pass data"]
    )
    # With measurements none is called missing: what remains is too many.
    others = miscounted(problem, measured=True)
    return found + [each for each in miscounted(problem) if each not in others]


def _dependencies(problem: Problem) -> list[Dependency]:
    return [Dependency(term, frozenset(problem.system.depends(term))) for term in problem.terms()]


def _twice(problem: Problem, demands: Iterable[Dependency]) -> list[str]:
    """The same derivative prescribed twice on one side."""
    found = []
    for one, two in combinations(demands, 2):
        common = [side for side in one.sides if side in two.sides]
        single = len(one.jets) == 1 and isinstance(one.term.place, OnFaces) and isinstance(two.term.place, OnFaces)
        if common and single and one.jets == two.jets:
            (jet,) = one.jets
            found.append(
                f"{describe(*jet)} is prescribed twice on {_described(problem, common)}, by {one.term.name!r} and "
                f"{two.term.name!r}: leave one of them out"
            )
    return found


def _systems(problem: Problem, demands: list[Dependency]) -> Iterator[_System]:
    """The systems of as many equations as fields that no term of their place joins with others.

    Those of a part of the domain are left out where equations of other places know their fields.
    """
    equations = [each for each in demands if each.term.name in problem.equations]
    for place in dict.fromkeys(each.term.place for each in equations):
        own = [each for each in equations if each.term.place == place]
        others = frozenset[str]().union(*(each.fields for each in equations if each not in own))
        if not isinstance(place, Interior | Within) or any(each.fields & others for each in own):
            continue
        groups: list[set[str]] = [{field} for field in problem.fields if field not in others]
        for each in demands:
            joined = [group for group in groups if group & each.fields]
            if joined:
                groups = [group for group in groups if group not in joined] + [set().union(*joined)]
        for group in sorted(groups, key=lambda group: min(map(problem.fields.index, group))):
            held = [each for each in own if each.fields & group]
            if len(held) == len(group):
                conditions = [each for each in demands if each not in equations and each.fields & group]
                part = place.part if isinstance(place, Within) else None
                yield _System(problem, sorted(group, key=problem.fields.index), held, conditions, part)


def _missing_between_parts(problem: Problem, systems: Iterable[_System]) -> list[str]:
    """Interface conditions: a sentence for each surface between parts of a domain that has fewer than it takes."""
    found, generator = list[str](), np.random.default_rng(0)
    parts: dict[Domain, list[_System]] = {}
    for each in systems:
        if each.part is not None:
            parts.setdefault(each.part, []).append(each)
    plane = len(problem.coordinates) - len(problem.promoted) > 1
    for one, two in combinations(parts, 2) if plane else ():
        if (surface := common_surface(one, two)) is None:
            continue
        (points,) = draw(surface, problem.domain, _LOOKED_AT, generator).points
        # Parts that overlap have boundaries in common that lie on that of the whole.
        points = points[~_near(problem.domain, points)]
        beside = [*parts[one], *parts[two]]
        # Nothing is said where transport ends: it may ask for nothing.
        takes = [max(system.asks(side)[0] for side in surface.sides) for system in beside]
        conditions = {each.term.name: each for system in beside for each in system.conditions}.values()
        if len(points) and all(takes) and (there := _fewest(points, None, conditions)) < sum(takes):
            fields = listed([name for each in beside for name in each.fields])
            found.append(
                f"{_few(there)} on {surface!r}, where the equations of {fields} take {sum(takes)}, such as "
                "that fields are equal, and fluxes: add @sciml.condition(on=first.interface(second))"
            )
    return found


def _near(place: Domain | Interface, points: Tensor) -> Array:
    """Which points ``(n, D)`` lie on a boundary, or on the boundaries of both parts of an interface."""
    parts = (place.first, place.second) if isinstance(place, Interface) else (place,)
    return np.all([np.abs(each.distance(points.numpy())) <= _ON * each.thickness for each in parts], axis=0)


def _fewest(points: Tensor, side: Side | None, conditions: Iterable[Dependency]) -> float:
    """How many conditions hold at each of the points of a surface, which is a ``side`` of the domain or lies inside."""
    there = np.zeros(len(points))
    for each in conditions:
        place = each.term.place
        there += _near(place, points) if isinstance(place, Interface) else side is not None and side in each.sides
    return float(there.min(initial=math.inf))


@dataclass(frozen=True)
class _System:
    """Fields that have to do with each other, as many equations, and their conditions, on a part of the domain or all of it."""

    problem: Problem
    fields: list[str]
    equations: list[Dependency]
    conditions: list[Dependency]
    part: Domain | None

    def mistakes(self, measured: bool) -> list[str]:
        """Coordinates with too few conditions, which measurements may stand in for, or too many."""
        problem, found = self.problem, list[str]()
        # Nothing is asked for on the faces of promoted constants.
        own = [name for name in problem.coordinates if name not in problem.promoted]
        space = [name for name in own if name != problem.time]
        if len(own) == 1 and self.part is not None:
            # Conditions of one end may stand for those of the other.
            return found
        if not measured and problem.time is not None and Face(problem.time, "lower") in problem.domain.sides:
            found += self._in_time(problem.time, only=len(own) == 1)
        if len(own) == 1 and space:
            found += self._ordinary(own[0], measured)
        elif space:
            found += self._around(space, measured)
        return found

    def levels(self) -> list[str]:
        """Fields of which only derivatives and differences are prescribed: any constant may be added to them."""
        # A periodic field is only compared with itself.
        stated = [each for each in (*self.equations, *self.conditions) if not isinstance(each.term.place, Opposite)]
        problem, found = self.problem, []
        time = problem.time if len(problem.coordinates) > 1 + len(problem.promoted) else None
        for field in self.fields:
            places = [each.term.place for each in stated if (field, ()) in each.jets]
            free = "a constant"
            if time is not None and not problem.order(field, time):
                free = f"a function of {time}"
                places = [
                    each for each in places if not isinstance(each, At | Average) or each.at_each(problem.coordinates, time)
                ]
            if any(field in each.fields for each in self.equations) and not places:
                found.append(
                    f"{field} is determined up to {free}: equations and conditions contain its derivatives alone; add "
                    f"sciml.Mean({field}=0.0), or sciml.Point({field}=..., at=...)"
                )
        return found

    def dependent(self) -> list[str]:
        """Equations of constant coefficients whose characteristic determinant vanishes: a function of all coordinates is free.

        Where the determinant of ``L(s)``, the equations on ``exp(s . x)``, is zero for every ``s``, some operator ``M`` has
        ``L M = 0``, and the fields ``M phi`` of any ``phi`` that vanishes near the boundary may be added to a solution.
        """
        names = [name for name in self.problem.coordinates if name not in self.problem.promoted]
        widths = np.array([self.problem.domain.half_widths[name] for name in names])
        waves = np.random.default_rng(0).uniform(0.5, 2.0, (_WAVES, len(names))) / widths
        symbols = np.zeros((_WAVES, len(self.fields), len(self.fields)))
        for row, each in enumerate(self.equations):
            for (field, index), values in self.problem.system.slopes(each.term).items():
                if values.ndim > 1 or bool(((values - values[0]).abs() > _ROUNDING * values.abs().amax()).any()):
                    return []
                powers = [index.count(name) for name in names]
                symbols[:, row, self.fields.index(field)] += float(values[0]) * np.prod(waves**powers, axis=1)
        if not (symbols.any(axis=2).all() and np.isfinite(symbols).all()):
            # An unknown that starts at zero may hide what an equation contains, and an overflow what it is.
            return []
        for axis in (2, 1, 2, 1):
            symbols /= np.maximum(np.abs(symbols).max(axis=axis, keepdims=True), np.finfo(float).tiny)
        _, sizes, right = np.linalg.svd(symbols)
        if np.any(sizes[:, -1] > _ROUNDING * sizes[:, 0]):
            return []
        free = [field for field, shares in zip(self.fields, np.abs(right[:, -1]).T, strict=True) if shares.max() > _ROUNDING]
        return [
            f"{listed(free)} {'is' if len(free) == 1 else 'are'} determined up to a function of {listed(names)}: the equations "
            f"{listed([each.term.name for each in self.equations])} follow from each other in part, as those of a potential "
            "whose curl alone counts; add what fixes it, such as the equation d(a, x) + d(b, y)"
        ]

    def _in_time(self, time: str, *, only: bool) -> list[str]:
        """Too few or too many conditions in time, which may be the ``only`` coordinate."""
        start = Face(time, "lower")
        if self.part is not None and self._there(start) != sum(start in each.sides for each in self.conditions):
            # It begins later, or from what is given on a surface of its own: which derivatives that gives is not asked.
            return []
        orders = dict(zip(self.fields, self._orders(time), strict=True))
        ends = {Face(time, "lower"), Face(time, "upper")}
        moving = [each for each in self.conditions if any(orders[field] for field in each.fields & set(self.fields))]
        given = [each for each in moving if ends & set(each.sides) or (only and not each.sides)]
        takes, place = self._takes(time), f"{time}={self.problem.domain.bounds[time][0]:g}"
        there = sum(each.times(ends) for each in given)
        count = f"the equations take {_few(takes)} in {time} and there are {there or 'none'}"
        if there < takes and not (max(orders.values()) == 1 and self._static(time)):
            prescribed = {jet for each in given for jet in each.jets}
            wanted = [(field, (time,) * k) for field in self.fields for k in range(orders[field])]
            missing = [describe(*jet) for jet in [jet for jet in wanted if jet not in prescribed] or wanted]
            return [f"nothing prescribes {', '.join(missing)} at {place}: {count}; add sciml.Initial({missing[0]}=...)"]
        if there > sum(orders.values()) and not self.problem.unknowns:
            return [
                f"too many conditions at {place}: {count}, {_names(given)}; what is prescribed beyond that follows from the "
                "equations, or contradicts them"
            ]
        return []

    def _static(self, time: str) -> bool:
        """Whether equations without rates give all fields at the start that no condition gives there."""
        start = Face(time, "lower")
        static = [each for each in self.equations if all(time not in index for _, index in each.jets)]
        given = {field for each in self.conditions if start in each.sides for field, index in each.jets if not index}
        lost = [field for field in self.fields if field not in given]
        known = np.array([[field in each.fields for each in static] for field in lost]).reshape(len(lost), len(static))
        rows, columns = scipy.optimize.linear_sum_assignment(known, maximize=True)
        return bool(given) and int(known[rows, columns].sum()) == len(lost)

    def _ordinary(self, name: str, measured: bool) -> list[str]:
        """Too few or too many conditions over the only coordinate, wherever they lie."""
        problem, conditions, takes = self.problem, self.conditions, self._takes(name)
        sides = [side for side in problem.domain.sides if side.coordinate not in problem.promoted]
        given = sum(each.times(sides) for each in conditions)
        bound = sum(each.times(sides) for each in conditions if each.sides)
        count = f"the equations of {listed(self.fields)} take {_few(takes)} in {name} and there are {given or 'none'}"
        if given < takes and not measured and not any(map(self.degenerate, sides)):
            free = [side for side in sides if not any(side in each.sides for each in conditions)]
            return [f"too few conditions: {count}{f'; there is none on {_described(problem, free)}' if free else ''}"]
        if bound > sum(self._orders(name)) + self._levelled(conditions) and not problem.unknowns:
            return [f"too many conditions: {count}, {_names(conditions)}"]
        return []

    def _around(self, space: list[str], measured: bool) -> list[str]:
        """Too few or too many conditions on the sides around the inside of a partial differential equation."""
        problem, sides = self.problem, self.problem.domain.sides
        takes = {name: self._takes(name) for name in space}
        orders = {name: self._orders(name) for name in space}
        found = []
        # Along one coordinate a mean or a value at each time stands for a condition at an end, if not that of a pressure.
        tied = 0
        for each in self.conditions if problem.time is not None and len(space) == 1 else ():
            place, bent = each.term.place, all(problem.order(name, space[0]) > 1 for name in each.fields)
            tied += isinstance(place, At | Average) and bent and place.at_each(problem.coordinates, str(problem.time))
        spare = float(tied)
        for side in sides if not measured else ():
            on_side, (least, words) = self._there(side), self.asks(side)
            if on_side < least and not self.degenerate(side):
                if spare >= least - on_side:
                    spare -= least - on_side
                    continue
                where = side.describe(problem.domain)
                found.append(
                    f"{_few(on_side)} on {where}, where the equations of {listed(self.fields)}, {words}: add a condition with "
                    f"on=domain.piece({where!r})"
                )
        if self.part is not None:
            # What its other ends take is asked for at interfaces.
            return found
        lacks = bool(found)
        for name in space:
            faces = [side for side in sides if side.coordinate == name]
            bounding = [each for each in self.conditions if set(faces) & set(each.sides)]
            given = sum(each.times(faces) for each in bounding)
            count = f"the equations of {listed(self.fields)} take {_few(takes[name])} and there are"
            if faces and given > sum(orders[name]) + self._levelled(bounding) and not problem.unknowns:
                found.append(
                    f"too many conditions on the two faces of {name}: {count} {given}, {_names(bounding)}; they can only "
                    "agree by chance"
                )
            elif (
                faces
                and given + tied < takes[name] - min(map(self._standing, faces))
                and not (measured or lacks or any(map(self.degenerate, faces)))
            ):
                found.append(f"too few conditions on the two faces of {name}: {count} {given or 'none'}")
        return found

    def asks(self, side: Side) -> tuple[int, str]:
        """How many conditions the equations take at least on a side, and that as words."""
        space = [name for name in self.problem.coordinates if name not in (self.problem.time, *self.problem.promoted)]
        if side.coordinate is not None and side.coordinate not in space:
            return 0, ""
        names = space if side.coordinate is None else [side.coordinate]
        orders = [order for name in names for order in self._orders(name)]
        needed = min(map(self._takes, names))
        paired = needed % 2 == 0 and all(order % 2 == 0 for order in orders if order > 1)
        least = needed // 2 if paired else 1
        # First order may need its conditions at one end alone, where its characteristics enter.
        words = f"of order {max(orders)} in {', '.join(names)}, take {'at least ' if not paired else ''}{least}"
        return (least, words) if max(orders) >= 2 else (0, "")

    def _there(self, side: Side) -> float:
        """How many conditions it has on a side, where there are fewest; infinitely many if no point of its part lies there."""
        if self.part is None:
            return sum(side in each.sides for each in self.conditions)
        (points,) = draw(OnFaces((side,)), self.problem.domain, _LOOKED_AT, np.random.default_rng(0)).points
        return _fewest(points[_near(self.part, points)], side, self.conditions)

    def _matrix(self, coordinate: str) -> Array:
        """The orders of equations (rows) in fields (columns)."""
        return np.array([[each.order(field, coordinate) for field in self.fields] for each in self.equations])

    def _takes(self, coordinate: str) -> int:
        """The largest sum of orders by a coordinate over all ways of giving every equation a field of its own."""
        orders = self._matrix(coordinate)
        rows, columns = scipy.optimize.linear_sum_assignment(orders, maximize=True)
        return max(0, round(float(orders[rows, columns].sum())))

    def _orders(self, coordinate: str) -> list[int]:
        """The highest derivative of each field by a coordinate."""
        return [max(0, round(order)) for order in self._matrix(coordinate).max(axis=0).tolist()]

    def degenerate(self, side: Side) -> bool:
        """True if an equation degenerates on a side, as at a cylinder's axis: regularity stands in for a condition there."""
        for each in self.equations:
            gradients = self.problem.system.slopes(each.term, OnFaces((side,)))
            highest = max((len(index) for _, index in gradients), default=0)
            across = [
                values
                for (_, index), values in gradients.items()
                if len(index) == highest and (side.coordinate is None or index.count(side.coordinate) == highest)
            ]
            if not all(bool(values.isfinite().all()) for values in gradients.values()):
                return True
            if highest and across and not any(bool(values.any()) for values in across):
                return True
        return False

    def _standing(self, side: Side) -> int:
        """Characteristics: how many of a first-order system run along a side, as a fluid does along a wall that holds it.

        Beside equations of higher order, those of the fields and equations that are of first order: density beside viscosity.
        """
        if side.coordinate is None:
            return 0
        orders = self._matrix(side.coordinate)
        rows, columns = (np.flatnonzero(orders.max(axis=axis) <= 1) for axis in (1, 0))
        if not len(rows) or len(rows) != len(columns):
            return 0
        problem, sample = self.problem, draw(OnFaces((side,)), self.problem.domain, _LOOKED_AT, np.random.default_rng(0))
        (points,), bound = sample.points, problem.bind_initial()
        given = [each.term.prescription for each in self.conditions if side in each.sides]
        held = {(each.field, each.index): each.values(bound, points) for each in given if each is not None}

        def rank(table: dict[Jet, Tensor]) -> int:
            at = Evaluation.of(bound, sample.points, [RandomJets(len(points), table=table)], sample.normals)
            found = torch.zeros(len(points), len(self.equations), len(self.fields), dtype=torch.float64)
            for row in rows:
                for (field, index), slope in linearize(self.equations[row].term, at).jets.items():
                    if index == (side.coordinate,):
                        found[:, row, self.fields.index(field)] = slope
            return int(torch.linalg.matrix_rank(found[:, rows][:, :, columns]).max())

        return rank({}) - rank(held)

    def _levelled(self, conditions: Iterable[Dependency]) -> int:
        """How many more conditions are in order: periodic ones leave levels open, which a value on a side may pin."""
        return len(self.fields) if any(isinstance(each.term.place, Opposite) for each in conditions) else 0


def _described(problem: Problem, sides: Iterable[Side]) -> str:
    return ", ".join(dict.fromkeys(side.describe(problem.domain) for side in sides))


def _names(conditions: Iterable[Dependency]) -> str:
    return listed([each.term.name for each in conditions])


def _few(count: float) -> str:
    return f"{f'{count:g}' if count else 'no'} condition{'' if count == 1 else 's'}"

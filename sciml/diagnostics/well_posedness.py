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

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy

from sciml._text import listed, user_level
from sciml.errors import ConditionWarning
from sciml.geometry import At, Average, Face, Interior, OnFaces, Opposite, Side
from sciml.jets.calculus import describe
from sciml.problem import Problem
from sciml.problem.compatibility import contradictions
from sciml.problem.conditions import Term
from sciml.problem.linearize import Jet
from sciml.typing import Array

_NEVER = -1000.0


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
    found = _twice(problem, demands)
    for system in _systems(problem, demands):
        counted = system.mistakes(measured)
        # What lacks conditions lacks them for its level, too.
        found += counted if counted or measured else system.levels()
    return found


def lacking(problem: Problem) -> list[str]:
    """A sentence for every side and coordinate on which conditions are missing, or for every level that nothing gives."""
    found: list[str] = []
    for system in _systems(problem, _dependencies(problem)):
        # With measurements none is called missing: what remains is too many.
        others = system.mistakes(measured=True)
        found += [each for each in system.mistakes(measured=False) if each not in others] or system.levels()
    return found


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
    """The systems of as many equations as fields that no term joins."""
    equations = [each for each in demands if each.term.name in problem.equations]
    if not all(isinstance(each.term.place, Interior) for each in equations):
        return
    groups: list[set[str]] = [{field} for field in problem.fields]
    for each in demands:
        joined = [group for group in groups if group & each.fields]
        if joined:
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    for group in sorted(groups, key=lambda group: min(map(problem.fields.index, group))):
        own = [each for each in equations if each.fields & group]
        if len(own) == len(group):
            conditions = [each for each in demands if each not in equations and each.fields & group]
            yield _System(problem, sorted(group, key=problem.fields.index), own, conditions)


@dataclass(frozen=True)
class _System:
    """Fields that have to do with each other, their equations, as many, and their conditions."""

    problem: Problem
    fields: list[str]
    equations: list[Dependency]
    conditions: list[Dependency]

    def mistakes(self, measured: bool) -> list[str]:
        """Coordinates with too few conditions, which measurements may stand in for, or too many."""
        problem, found = self.problem, list[str]()
        # Nothing is asked for on the faces of promoted constants.
        own = [name for name in problem.coordinates if name not in problem.promoted]
        space = [name for name in own if name != problem.time]
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

    def _in_time(self, time: str, *, only: bool) -> list[str]:
        """Too few or too many conditions in time, which may be the ``only`` coordinate."""
        orders = dict(zip(self.fields, self._orders(time), strict=True))
        ends = {Face(time, "lower"), Face(time, "upper")}
        moving = [each for each in self.conditions if any(orders[field] for field in each.fields & set(self.fields))]
        given = [each for each in moving if ends & set(each.sides) or (only and not each.sides)]
        takes, place = self._takes(time), f"{time}={self.problem.domain.bounds[time][0]:g}"
        there = sum(each.times(ends) for each in given)
        count = f"the equations take {_few(takes)} in {time} and there are {there or 'none'}"
        if there < takes:
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

    def _ordinary(self, name: str, measured: bool) -> list[str]:
        """Too few or too many conditions over the only coordinate, wherever they lie."""
        problem, conditions, takes = self.problem, self.conditions, self._takes(name)
        sides = [side for side in problem.domain.sides if side.coordinate not in problem.promoted]
        given = sum(each.times(sides) for each in conditions)
        bound = sum(each.times(sides) for each in conditions if each.sides)
        count = f"the equations of {listed(self.fields)} take {_few(takes)} in {name} and there are {given or 'none'}"
        if given < takes and not measured and not any(map(self._degenerate, sides)):
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
        spare = tied
        for side in sides if not measured else ():
            if side.coordinate is not None and side.coordinate not in space:
                continue
            names = space if side.coordinate is None else [side.coordinate]
            there = sum(side in each.sides for each in self.conditions)
            highest = max(max(orders[name]) for name in names)
            needed = min(takes[name] for name in names)
            paired = needed % 2 == 0 and all(order % 2 == 0 for name in names for order in orders[name] if order > 1)
            least = needed // 2 if paired else 1
            # First order may need its conditions at one end alone, where its characteristics enter.
            if highest >= 2 and there < least and not self._degenerate(side):
                if spare >= least - there:
                    spare -= least - there
                    continue
                where = side.describe(problem.domain)
                found.append(
                    f"{_few(there)} on {where}, where the equations of {listed(self.fields)}, of order {highest} in "
                    f"{', '.join(names)}, take {'at least ' if not paired else ''}{least}: add a condition with "
                    f"on=domain.piece({where!r})"
                )
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
            elif faces and given + tied < takes[name] and not (measured or lacks or any(map(self._degenerate, faces))):
                found.append(f"too few conditions on the two faces of {name}: {count} {given or 'none'}")
        return found

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

    def _degenerate(self, side: Side) -> bool:
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

    def _levelled(self, conditions: Iterable[Dependency]) -> int:
        """How many more conditions are in order: periodic ones leave levels open, which a value on a side may pin."""
        return len(self.fields) if any(isinstance(each.term.place, Opposite) for each in conditions) else 0


def _described(problem: Problem, sides: Iterable[Side]) -> str:
    return ", ".join(dict.fromkeys(side.describe(problem.domain) for side in sides))


def _names(conditions: Iterable[Dependency]) -> str:
    return listed([each.term.name for each in conditions])


def _few(count: int) -> str:
    return f"{count or 'no'} condition{'' if count == 1 else 's'}"

r"""Whether a problem has as many conditions as its equations take: counted before training, and told as warnings.

How many a coordinate takes follows from the orders :math:`\sigma_{ij}` of the highest derivatives of field j by it in
equation i: the largest sum of orders over all ways of giving every equation a field of its own,

.. math:: N = \max_\pi \sum_i \sigma_{i\pi(i)}.

It is 2 for Poisson's equation, 4 for Stokes' (continuity has the pressure's share), 2 for the wave equation as a system of
first order. For linear equations with constant coefficients it is the degree of the characteristic determinant, unless leading
terms cancel; then, and for conditions that others imply, the count is wrong: all of this is a warning and no error.

Reference: J. D. Pryce, A simple structural analysis method for DAEs, BIT Numerical Mathematics 41 (2001).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from sciml._text import listed
from sciml.errors import ConditionWarning
from sciml.geometry import Face, Interior, OnFaces, Opposite, Place, Side, draw
from sciml.jets import JetSpace, Recorder
from sciml.jets.calculus import describe
from sciml.problem import Problem
from sciml.problem.compatibility import contradictions
from sciml.problem.conditions import Evaluation, Term
from sciml.typing import MultiIndex

_PROBES = 8

_NEVER = -1000.0

Jet = tuple[str, MultiIndex]


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
            return Face(place.coordinate, "lower"), Face(place.coordinate, "upper")
        return place.faces if isinstance(place, OnFaces) else ()

    def times(self, sides: Iterable[Side]) -> int:
        """How many of the conditions on some sides it is."""
        return len(set(self.sides) & set(sides)) if isinstance(self.term.place, OnFaces) else 1

    def order(self, field: str, coordinate: str) -> float:
        """The highest derivative of a field by a coordinate, a large negative number without any."""
        return max((float(index.count(coordinate)) for own, index in self.jets if own == field), default=_NEVER)


def warn_of_conditions(problem: Problem, measured: bool, told: list[str], depth: int) -> None:
    """Issue a ``ConditionWarning`` for each sentence of ``condition_warnings`` that is not in ``told``, and add it there.

    Args:
        problem: the mathematics.
        measured: whether measurements may stand in for conditions.
        told: what was told before.
        depth: how many calls lie between the user's and this one.
    """
    for sentence in condition_warnings(problem, measured):
        if sentence not in told:
            told.append(sentence)
            warnings.warn(f"{type(problem).__name__}: {sentence}", ConditionWarning, stacklevel=depth + 2)


def condition_warnings(problem: Problem, measured: bool = False) -> list[str]:
    """A sentence for whatever in the conditions of a problem looks like a mistake, with its name and place.

    Args:
        problem: the mathematics.
        measured: whether measurements may stand in for conditions: then none is called missing.

    Returns:
        Sentences on conditions that contradict each other where they meet, on prescriptions that are made twice, on
        coordinates with too few or too many conditions, and on fields of which only derivatives are spoken of.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Wave(sciml.Problem):
        ...     domain = sciml.Box(x=(0, 1), t=(0, 1))
        ...     fields = ["u"]
        ...     conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]
        ...     @sciml.equation
        ...     def wave(self, u, x, t):
        ...         return d(u, t, t) - d(u, x, x)
        >>> condition_warnings(Wave())[0][:59]
        'nothing prescribes u_t at t=0: the equations take 2 conditi'
    """
    equations, conditions = _demands(problem)
    found = contradictions(problem) + _twice(problem, conditions)
    for fields, own, given in _apart(problem, equations, conditions):
        counted = _counted(problem, fields, own, given, measured)
        # What lacks conditions lacks them for its level, too.
        found += counted if counted or measured else _levels(fields, own, given)
    return found


def lacking(problem: Problem) -> list[str]:
    """A sentence for every side and coordinate on which conditions are missing.

    Args:
        problem: the mathematics.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Bar(sciml.Problem):
        ...     domain = sciml.Interval(x=(0, 1))
        ...     fields = ["u"]
        ...     conditions = [sciml.Dirichlet(u=0.0, on=domain.face(x=0))]
        ...     @sciml.equation
        ...     def balance(self, u, x):
        ...         return d(u, x, x) + 1.0
        >>> lacking(Bar())[0][:23]
        'too few conditions: the'
    """
    found: list[str] = []
    for fields, own, given in _apart(problem, *_demands(problem)):
        # With measurements none is called missing: what remains is too many.
        others = _counted(problem, fields, own, given, measured=True)
        found += [each for each in _counted(problem, fields, own, given, measured=False) if each not in others]
    return found


def _demands(problem: Problem) -> tuple[list[Dependency], list[Dependency]]:
    """Of the equations and of the conditions."""
    demands = [_demand(problem, term) for term in problem.terms()]
    equations = [each for each in demands if each.term.name in problem.equations]
    return equations, [each for each in demands if each.term.name not in problem.equations]


def _apart(
    problem: Problem, equations: list[Dependency], conditions: list[Dependency]
) -> Iterator[tuple[list[str], list[Dependency], list[Dependency]]]:
    """Fields that have to do with each other, their equations, as many, and their conditions."""
    if not all(isinstance(each.term.place, Interior) for each in equations):
        return
    for fields in _coupled(equations + conditions, problem.fields):
        own = [each for each in equations if each.fields & fields]
        if len(own) == len(fields):
            given = [each for each in conditions if each.fields & fields]
            yield sorted(fields, key=problem.fields.index), own, given


def _demand(problem: Problem, term: Term) -> Dependency:
    return Dependency(term, frozenset(_gradients(problem, term, term.place)))


def _gradients(problem: Problem, term: Term, place: Place) -> dict[Jet, Tensor]:
    """The derivatives of a term by the jets that it depends on, at some points of a place."""
    sample = draw(place, problem.domain, _PROBES, np.random.default_rng(0))
    spaces = tuple(
        JetSpace(dict(zip(problem.coordinates, points.unbind(1), strict=True)), problem.fields, Recorder(len(points)))
        for points in sample.points
    )
    values = term.evaluate(Evaluation(problem.bind_initial(), spaces, sample.normals))
    jets = [(key, jet) for space in spaces for key, jet in space.jets.items()]
    if not jets or not values.requires_grad:
        return {}
    used = torch.autograd.grad(values.sum(), [jet for _, jet in jets], allow_unused=True)
    return {key: gradient for (key, _), gradient in zip(jets, used, strict=True) if gradient is not None}


def _twice(problem: Problem, conditions: Sequence[Dependency]) -> list[str]:
    """The same derivative prescribed twice on one side."""
    found = []
    for one, two in combinations(conditions, 2):
        common = [side for side in one.sides if side in two.sides]
        single = len(one.jets) == 1 and isinstance(one.term.place, OnFaces) and isinstance(two.term.place, OnFaces)
        if common and single and one.jets == two.jets and len(one.fields) == 1:
            (jet,) = one.jets
            found.append(
                f"{describe(*jet)} is prescribed twice on {_named(problem, common)}, by {one.term.name!r} and "
                f"{two.term.name!r}: leave one of them out"
            )
    return found


def _counted(
    problem: Problem,
    fields: Sequence[str],
    equations: Sequence[Dependency],
    conditions: Sequence[Dependency],
    measured: bool,
) -> list[str]:
    found = []
    if not measured and problem.time is not None and Face(problem.time, "lower") in problem.domain.sides:
        found += _start(problem, fields, equations, conditions)
    space = [name for name in _own(problem) if name != problem.time]
    if len(_own(problem)) == 1 and space:
        found += _ordinary(problem, fields, equations, conditions, measured)
    elif space:
        found += _around(problem, fields, equations, conditions, measured)
    return found


def _own(problem: Problem) -> tuple[str, ...]:
    """The coordinates that are no promoted constants: nothing is asked for on the faces of those."""
    return tuple(name for name in problem.coordinates if name not in problem.promoted)


def _start(
    problem: Problem, fields: Sequence[str], equations: Sequence[Dependency], conditions: Sequence[Dependency]
) -> list[str]:
    """Too few or too many conditions in time."""
    time = str(problem.time)
    orders = {field: _highest(equations, field, time) for field in fields}
    ends = {Face(time, "lower"), Face(time, "upper")}
    only = len(_own(problem)) == 1
    moving = [each for each in conditions if any(orders[field] for field in each.fields & set(fields))]
    given = [each for each in moving if ends & set(each.sides) or (only and not each.sides)]
    takes, most = _takes(equations, fields, time), sum(orders.values())
    place = f"{time}={problem.domain.bounds[time][0]:g}"
    there = sum(each.times(ends) for each in given)
    count = f"the equations take {_few(takes)} in {time} and there are {there or 'none'}"
    if there < takes:
        prescribed = {jet for each in given for jet in each.jets}
        wanted = [(field, (time,) * k) for field in fields for k in range(orders[field])]
        lacking = _jets_listed(jet for jet in wanted if jet not in prescribed) or _jets_listed(wanted)
        return [f"nothing prescribes {lacking} at {place}: {count}; add sciml.Initial({lacking.split(', ')[0]}=...)"]
    if there > most and not problem.unknowns:
        return [
            f"too many conditions at {place}: {count}, {listed([each.term.name for each in given])}; what is prescribed "
            "beyond that follows from the equations, or contradicts them"
        ]
    return []


def _ordinary(
    problem: Problem,
    fields: Sequence[str],
    equations: Sequence[Dependency],
    conditions: Sequence[Dependency],
    measured: bool,
) -> list[str]:
    """Too few or too many conditions over the only coordinate, wherever they lie."""
    (name,) = _own(problem)
    sides = [side for side in problem.domain.sides if side.coordinate not in problem.promoted]
    takes, most = _takes(equations, fields, name), sum(_highest(equations, field, name) for field in fields)
    given = sum(each.times(sides) for each in conditions)
    bound = sum(each.times(sides) for each in conditions if each.sides)
    count = f"the equations of {listed(fields)} take {_few(takes)} in {name} and there are {given or 'none'}"
    if given < takes and not measured and not any(_singular(problem, side, equations) for side in sides):
        free = [side for side in sides if not any(side in each.sides for each in conditions)]
        where = f"; there is none on {_named(problem, free)}" if free else ""
        return [f"too few conditions: {count}{where}"]
    if bound > most + _levelled(fields, conditions) and not problem.unknowns:
        return [f"too many conditions: {count}, {listed([each.term.name for each in conditions])}"]
    return []


def _around(
    problem: Problem,
    fields: Sequence[str],
    equations: Sequence[Dependency],
    conditions: Sequence[Dependency],
    measured: bool,
) -> list[str]:
    """Too few or too many conditions on the sides around the inside of a partial differential equation."""
    space = [name for name in _own(problem) if name != problem.time]
    takes = {name: _takes(equations, fields, name) for name in space}
    orders = {name: [_highest(equations, field, name) for field in fields] for name in space}
    found = []
    for side in problem.domain.sides:
        if side.coordinate is not None and side.coordinate not in space:
            continue
        names = space if side.coordinate is None else [side.coordinate]
        needed = min(takes[name] for name in names)
        there = [each for each in conditions if side in each.sides]
        here = f"{_few(len(there))} on {side.describe(problem.domain)}"
        # First order may need its conditions at one end alone, where its characteristics enter.
        if max(max(orders[name]) for name in names) >= 2 and not measured:
            paired = needed % 2 == 0 and all(order % 2 == 0 for name in names for order in orders[name] if order > 1)
            least = needed // 2 if paired else 1
            if len(there) < least and not _singular(problem, side, equations):
                found.append(
                    f"{here}, where the equations of {listed(fields)}, of order {max(max(orders[name]) for name in names)} in "
                    f"{', '.join(names)}, take {'at least ' if not paired else ''}{least}: add a condition with "
                    f"on=domain.piece({side.describe(problem.domain)!r})"
                )
    for name in space:
        faces = [side for side in problem.domain.sides if side.coordinate == name]
        there = [each for each in conditions if set(faces) & set(each.sides)]
        given = sum(each.times(faces) for each in there)
        most = sum(orders[name])
        if faces and given > most + _levelled(fields, there) and not problem.unknowns:
            found.append(
                f"too many conditions on the two faces of {name}: the equations of {listed(fields)} take {_few(takes[name])} "
                f"and there are {given}, {listed([each.term.name for each in there])}; they can only agree by chance"
            )
        elif (
            given < takes[name]
            and faces
            and not measured
            and not any("on=domain" in each for each in found)
            and not any(_singular(problem, face, equations) for face in faces)
        ):
            found.append(
                f"too few conditions on the two faces of {name}: the equations of {listed(fields)} take {_few(takes[name])} "
                f"and there are {given or 'none'}"
            )
    return found


def _levels(fields: Iterable[str], equations: Sequence[Dependency], conditions: Sequence[Dependency]) -> list[str]:
    """Fields of which only derivatives and differences are spoken of: any constant may be added to them."""
    found = []
    # A periodic field is only compared with itself.
    spoken = [each for each in (*equations, *conditions) if not isinstance(each.term.place, Opposite)]
    for field in fields:
        derived = any(field in each.fields for each in equations)
        if derived and not any((field, ()) in each.jets for each in spoken):
            found.append(
                f"{field} is determined up to a constant: equations and conditions speak of its derivatives alone; add "
                f"sciml.Mean({field}=0.0), or sciml.Point({field}=..., at=...)"
            )
    return found


def _takes(equations: Sequence[Dependency], fields: Sequence[str], coordinate: str) -> int:
    """The largest sum of orders by a coordinate over all ways of giving every equation a field of its own."""
    orders = np.array([[each.order(field, coordinate) for field in fields] for each in equations])
    rows, columns = linear_sum_assignment(orders, maximize=True)
    return max(0, round(float(orders[rows, columns].sum())))


def _singular(problem: Problem, side: Side, equations: Sequence[Dependency]) -> bool:
    """Whether an equation degenerates on a side, as at the axis of a cylinder: there regularity stands in for a condition."""
    place = OnFaces((side,))
    for each in equations:
        gradients = _gradients(problem, each.term, place)
        highest = max((len(index) for _, index in gradients), default=0)
        finite = all(bool(values.isfinite().all()) for values in gradients.values())
        across = [
            values
            for (_, index), values in gradients.items()
            if len(index) == highest and (side.coordinate is None or index.count(side.coordinate) == highest)
        ]
        if not finite or (highest and across and not any(bool(values.any()) for values in across)):
            return True
    return False


def _levelled(fields: Sequence[str], conditions: Iterable[Dependency]) -> int:
    """How many more conditions are in order: periodic ones leave levels open, which a value on a side may pin."""
    return len(fields) if any(isinstance(each.term.place, Opposite) for each in conditions) else 0


def _highest(equations: Iterable[Dependency], field: str, coordinate: str) -> int:
    return max(0, round(max((each.order(field, coordinate) for each in equations), default=0)))


def _coupled(demands: Sequence[Dependency], fields: Sequence[str]) -> list[set[str]]:
    """The fields in groups that no term joins."""
    groups: list[set[str]] = [{field} for field in fields]
    for each in demands:
        joined = [group for group in groups if group & each.fields]
        if joined:
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return sorted(groups, key=lambda group: min(map(list(fields).index, group)))


def _named(problem: Problem, sides: Iterable[Side]) -> str:
    return ", ".join(dict.fromkeys(side.describe(problem.domain) for side in sides))


def _jets_listed(jets: Iterable[Jet]) -> str:
    """Derivatives as people write them: ``u, u_t``."""
    return ", ".join(describe(*jet) for jet in jets)


def _few(count: int) -> str:
    return f"{count or 'no'} condition{'' if count == 1 else 's'}"

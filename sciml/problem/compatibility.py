r"""Compatibility of conditions: what they prescribe on faces, and where two of them contradict each other.

A value prescribed on one face determines its derivatives along that face, :math:`\partial_x u_0(x)` at the start of time for
instance, and a Neumann condition on another face prescribes the same derivative where the two meet. Two Neumann conditions on
faces of different coordinates both determine :math:`u_{xy}` there. Where slopes contradict each other solutions exist all the
same, and are less smooth at that place.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import torch
from torch import Tensor

from sciml._text import located
from sciml.errors import ProblemError
from sciml.geometry import Box, Face, OnFaces, Piece, Side, draw
from sciml.geometry.coordinates import moved_inwards
from sciml.geometry.sampling import on_side
from sciml.jets import AutogradJets
from sciml.jets.calculus import describe
from sciml.problem.boundary_conditions import Neumann, Periodic
from sciml.problem.conditions import Evaluation, Prescription, place_of
from sciml.problem.problem import Problem
from sciml.typing import MultiIndex, Points

_PROBES = 64
_AGREEMENT = 1e-6
# Sentences about one pair of conditions: a body has many edges.
_TOLD = 2


@dataclass(frozen=True)
class Prescribed:
    """What one term prescribes on one side; a derivative along the outward normal has the ``sign`` of the normal."""

    term: str
    face: Side
    prescription: Prescription
    sign: float = 1.0

    def values(self, problem: Problem, points: Points) -> Tensor:
        """The prescribed values at points ``(n, D)``, shape ``(n,)``, differentiable by the points."""
        values = self.prescription.values(problem, points)
        # A difference keeps -0 out of messages.
        return values if self.sign > 0 else 0.0 - values

    def constant(self) -> float | None:
        """The value, if it is one number everywhere."""
        target = self.prescription.target
        return None if callable(target) or isinstance(target, Tensor) else self.sign * float(target)


def prescribed(problem: Problem) -> tuple[Prescribed, ...]:
    """Everything that initial and Dirichlet conditions prescribe, face by face."""
    return tuple(
        Prescribed(term.name, face, term.prescription)
        for term in problem.terms()
        if term.prescription is not None and isinstance(term.place, OnFaces)
        for face in term.place.faces
    )


def condition_orders(problem: Problem) -> dict[Side, frozenset[tuple[frozenset[str], int]]]:
    """Mixed boundary conditions: the fields and the highest order of each condition on a side, where there are any.

    Where two sides meet on which they differ, as those of Dirichlet and Neumann do, solutions are not smooth.
    """
    found = dict[Side, frozenset[tuple[frozenset[str], int]]]()
    for term in problem.terms():
        if isinstance(term.place, OnFaces):
            jets = problem.system.depends(term)
            own = frozenset(field for field, _ in jets), max((len(index) for _, index in jets), default=0)
            found |= {side: found.get(side, frozenset()) | {own} for side in term.place.faces}
    return found


def depends_on_unknowns(problem: Problem, given: Prescribed) -> bool:
    """True if what is prescribed changes with an unknown constant of the problem."""
    if not problem.unknowns:
        return False
    leaves = {
        name: torch.tensor(unknown.initial, dtype=torch.float64, requires_grad=True)
        for name, unknown in problem.unknowns.items()
    }
    return given.values(problem.bind(**leaves), probes(problem, given.face)).requires_grad


def probes(problem: Problem, *faces: Side) -> Points:
    """Points ``(64, D)`` of the domain, or of what some of its sides have in common; half of a box's lie in its corners."""
    if not isinstance(problem.domain, Box) and faces:
        curved = next((face for face in faces if isinstance(face, Piece)), faces[0])
        points, _ = on_side(curved, problem.domain, _PROBES, np.random.default_rng(0))
        return on_faces(problem, torch.from_numpy(points), *faces)
    generator = torch.Generator().manual_seed(0)
    unit = torch.rand(_PROBES, len(problem.coordinates), dtype=torch.float64, generator=generator)
    unit[_PROBES // 2 :] = unit[_PROBES // 2 :].round()
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in (problem.domain.lower, problem.domain.upper))
    return on_faces(problem, lower + (upper - lower) * unit, *faces)


def on_faces(problem: Problem, points: Points, *faces: Side) -> Points:
    """The points moved to those of the sides that are flat faces."""
    columns = dict(zip(problem.coordinates, points.unbind(1), strict=True))
    for face in faces:
        if isinstance(face, Face):
            columns[face.coordinate] = torch.full_like(points[:, 0], face.value(problem.domain))
    return torch.stack(list(columns.values()), dim=1)


def contradictions(problem: Problem, least: float = _AGREEMENT, *, beside_start: bool = False) -> list[str]:
    """A sentence for each pair of conditions that prescribe different values where their faces meet, by a ``least`` share.

    What depends on unknown constants is left out: they may still come to agree. Where pieces meet is known of the corners of
    boxes and polygons and of what is cut from these, and not of curves that cross. With ``beside_start`` initial conditions
    are left out too: the others contradict each other at all times.
    """
    given = _settled(problem, prescribed(problem))
    if beside_start:
        given = [each for each in given if each.face != Face(str(problem.time), "lower")]
    found = _compared(problem, combinations(given, 2), least)
    for condition in (each for each in problem.conditions if isinstance(each, Periodic)):
        lower, upper = Face(condition.coordinate, "lower"), Face(condition.coordinate, "upper")
        # Of pieces it is not known where they meet others.
        for each in given if lower in problem.domain.sides else ():
            across = each.face.coordinate != condition.coordinate
            if across and each.prescription.field in (condition.fields or problem.fields):
                names = f"{each.term!r} (here and on the opposite face) and {condition.name!r}"
                points = probes(problem, each.face, lower)
                told = mismatch(problem, names, [(each, ())] * 2, points, on_faces(problem, points, upper), least)
                found.setdefault(names, []).extend(told)
    return _summed(found)


def impossible(problem: Problem) -> Iterator[str]:
    """Contradictory conditions: a sentence for each pair that prescribes different values all over one side.

    What rounding of places makes of a value is no difference.
    """
    bound, ends = problem.bind_initial(), (problem.domain.lower, problem.domain.upper)
    for first, second in combinations(_settled(problem, [*prescribed(problem), *_slopes(problem)]), 2):
        one, two = first.prescription, second.prescription
        if first.face != second.face or (one.field, one.index) != (two.field, two.index):
            continue
        points = probes(problem, first.face)
        this, that = (each.values(bound, points).detach() for each in (first, second))
        beside = [each.values(bound, moved_inwards(points, *ends)).detach() for each in (first, second)]
        rounding = _finite(beside[0] - this) + _finite(beside[1] - that)
        if bool(((this - that).abs() > rounding + _AGREEMENT * torch.maximum(this.abs(), that.abs())).all()):
            place, what = located(problem.coordinates, points[0].tolist()), describe(one.field, one.index)
            yield (
                f"the conditions {first.term!r} and {second.term!r} prescribe different values of {what} wherever both hold: "
                f"{float(this[0]):.4g} and {float(that[0]):.4g} at {place}"
            )


def slope_contradictions(problem: Problem) -> list[str]:
    """A sentence for each pair of conditions, one of them Neumann's, that prescribe different slopes where flat faces meet."""
    slopes = _settled(problem, _slopes(problem))
    values = _settled(problem, (each for each in prescribed(problem) if isinstance(each.face, Face))) if slopes else []
    pairs = (*product(values, slopes), *combinations(slopes, 2))
    across = [(one, two) for one, two in pairs if one.face.coordinate != two.face.coordinate]
    return _summed(_compared(problem, across))


def left_by_start(problem: Problem) -> dict[str, float]:
    """Compatibility of the start: the largest residual of each condition on other sides at that time, of initial values alone.

    Conditions that ask for what no initial condition prescribes are left out.
    """
    start, bound = Face(str(problem.time), "lower"), problem.bind_initial()
    given = {(each.prescription.field, each.prescription.index): each for each in prescribed(problem) if each.face == start}
    column, found = problem.coordinates.index(str(problem.time)), dict[str, float]()
    for term in problem.terms():
        if not isinstance(term.place, OnFaces) or start in term.place.faces:
            continue
        sample = draw(term.place, problem.domain, _PROBES, np.random.default_rng(0))
        points = sample.points[0].clone()
        points[:, column] = start.value(problem.domain)
        evaluation = Evaluation.of(bound, (points,), [_Start(bound, given, points)], sample.normals)
        # Of what no initial condition prescribes nothing is known; a method says so in words of its own.
        with contextlib.suppress(KeyError, ProblemError):
            found[term.name] = float(_finite(term.evaluate(evaluation).detach()).max())
    return found


@dataclass(frozen=True)
class _Start:
    """The supplier of initial values and of their derivatives along the start."""

    problem: Problem
    given: Mapping[tuple[str, MultiIndex], Prescribed]
    points: Points

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        rates = tuple(name for name in index if name == self.problem.time)
        along = tuple(name for name in index if name != self.problem.time)
        return _derivative(self.problem, self.given[field, rates], along, self.points)


def _settled(problem: Problem, given: Iterable[Prescribed]) -> list[Prescribed]:
    return [each for each in given if not depends_on_unknowns(problem, each)]


def _compared(
    problem: Problem, pairs: Iterable[tuple[Prescribed, Prescribed]], least: float = _AGREEMENT
) -> dict[str, list[str]]:
    """A sentence for each two sides on whose meeting two conditions determine different values of one derivative, by names."""
    found = dict[str, list[str]]()
    for first, second in pairs:
        one, two = first.prescription, second.prescription
        # One and the same number is prescribed on the many faces of a box in many coordinates.
        same = one.index == two.index and first.constant() is not None and first.constant() == second.constant()
        if one.field == two.field and not same:
            pair = [(first, _beyond(one.index, two.index)), (second, _beyond(two.index, one.index))]
            # Values on a face determine no derivative that points away from it.
            if all(given.face.coordinate not in rate for given, rate in pair):
                points, names = common_points(problem, first.face, second.face), f"{first.term!r} and {second.term!r}"
                found.setdefault(names, []).extend(mismatch(problem, names, pair, points, points, least))
    return found


def _summed(found: Mapping[str, Sequence[str]]) -> list[str]:
    """The first sentences about each pair of conditions, and on how many further meetings of sides they are at odds."""
    sentences = []
    for told in (list(dict.fromkeys(each)) for each in found.values()):
        sentences += told[:_TOLD]
        if len(told) > _TOLD:
            sentences[-1] += f", and likewise where further sides meet ({len(told) - _TOLD})"
    return sentences


def _beyond(own: MultiIndex, other: MultiIndex) -> MultiIndex:
    """What the first index lacks of both together."""
    return tuple((Counter(other) - Counter(own)).elements())


def _slopes(problem: Problem) -> Iterator[Prescribed]:
    """What Neumann conditions prescribe on flat faces."""
    for condition in (each for each in problem.conditions if isinstance(each, Neumann)):
        place = place_of(condition.on, problem)
        faces = [face for face in place.faces if isinstance(face, Face)] if isinstance(place, OnFaces) else []
        for (field, target), face in product(condition.targets.items(), faces):
            given = Prescription(field, (face.coordinate,), target, f"Neumann({field}=...)")
            yield Prescribed(condition.label(field, len(condition.targets)), face, given, face.sign)


def common_points(problem: Problem, one: Side, two: Side) -> Points:
    """Points that two sides have in common, as far as that is known."""
    if isinstance(one, Piece) and isinstance(two, Piece) and one != two:
        unit = np.random.default_rng(0).random((_PROBES, len(problem.coordinates)))
        return torch.from_numpy(problem.domain.meeting(one, two, unit))
    if isinstance(one, Face) and isinstance(two, Face) and one != two and one.coordinate == two.coordinate:
        return torch.empty(0, len(problem.coordinates), dtype=torch.float64)
    return probes(problem, one, two)


def _derivative(problem: Problem, given: Prescribed, rate: MultiIndex, points: Points) -> Tensor:
    """A derivative of what is prescribed at points, shape ``(n,)``."""
    field = given.prescription.field
    jets = AutogradJets(lambda at: given.values(problem, at)[:, None], points, problem.coordinates, [field])
    return jets.jet(field, rate).detach()


def mismatch(
    problem: Problem,
    names: str,
    pair: Sequence[tuple[Prescribed, MultiIndex]],
    points: Points,
    others: Points,
    least: float = _AGREEMENT,
) -> list[str]:
    """A sentence about the point where derivatives of two prescriptions, the second's at ``others``, differ most."""
    if not len(points):
        return []
    bound = problem.bind_initial()
    one, two = (_derivative(bound, *each, at) for each, at in zip(pair, (points, others), strict=True))
    size = max(float(_finite(_derivative(bound, *each, probes(problem, each[0].face))).max()) for each in pair)
    gap = _finite(one - two)
    worst = int(gap.argmax())
    if not float(gap[worst]) > least * size:
        return []
    given, rate = pair[0][0].prescription, pair[0][1]
    what = describe(given.field, (*given.index, *rate))
    place = located(problem.coordinates, points[worst].tolist())
    return [
        f"the conditions {names} contradict each other: at {place} they prescribe {what} = {float(one[worst]):.4g} and "
        f"{float(two[worst]):.4g}, {float(gap[worst]):.4g} apart"
    ]


def _finite(values: Tensor) -> Tensor:
    """Sizes of values, zero where they are not finite."""
    return torch.nan_to_num(values.abs(), nan=0.0, posinf=0.0)

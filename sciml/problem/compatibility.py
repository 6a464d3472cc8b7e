r"""What conditions prescribe on faces, and where two of them contradict each other.

Slopes that contradict each other where faces meet: what Neumann conditions prescribe, and what others imply.

A value prescribed on one face says what its derivatives along that face are, :math:`\partial_x u_0(x)` at the start of time for
instance, and a Neumann condition on another face prescribes the same derivative where the two meet. Two Neumann conditions on
faces of different coordinates both determine :math:`u_{xy}` there. Solutions exist all the same, and are less smooth
at that place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Box, Face, OnFaces, Piece, Side
from sciml.geometry.sampling import on_side
from sciml.jets.calculus import describe
from sciml.problem.boundary_conditions import Neumann
from sciml.problem.conditions import Periodic, Prescription, place_of, prescribed_values
from sciml.problem.problem import Problem
from sciml.typing import MultiIndex, Points

_PROBES = 64

_AGREEMENT = 1e-6


@dataclass(frozen=True)
class Prescribed:
    """What one term prescribes on one side."""

    term: str
    face: Side
    prescription: Prescription

    def values(self, problem: Problem, points: Points) -> Tensor:
        """The prescribed values at points ``(n, D)``, shape ``(n,)``, differentiable by the points."""
        columns = dict(zip(problem.coordinates, points.unbind(1), strict=True))
        values = prescribed_values(self.prescription.what, self.prescription.target, problem, columns)
        return values.expand(points.shape[0])

    def constant(self) -> float | None:
        """The value, if it is one number everywhere."""
        target = self.prescription.target
        return None if callable(target) or isinstance(target, Tensor) else float(target)


def prescribed(problem: Problem) -> tuple[Prescribed, ...]:
    """Everything that initial and Dirichlet conditions prescribe, face by face."""
    return tuple(
        Prescribed(term.name, face, term.prescription)
        for term in problem.terms()
        if term.prescription is not None and isinstance(term.place, OnFaces)
        for face in term.place.faces
    )


def depends_on_unknowns(problem: Problem, given: Prescribed) -> bool:
    """Whether what is prescribed changes with an unknown constant of the problem."""
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


def contradictions(problem: Problem) -> list[str]:
    """A sentence for each pair of conditions that prescribe different values where their faces meet.

    What depends on unknown constants is left out: they may still come to agree. Where pieces meet is known of the corners of
    boxes and polygons and of what is cut from these, and not of curves that cross.
    """
    given = [each for each in prescribed(problem) if not depends_on_unknowns(problem, each)]
    found = []
    for first, second in combinations(given, 2):
        if first.prescription.field == second.prescription.field and not _alike(first, second):
            index = max(first.prescription.index, second.prescription.index, key=len)
            pair = [Reading(each, index[len(each.prescription.index) :]) for each in (first, second)]
            if all(reading.possible for reading in pair):
                names = f"{first.term!r} and {second.term!r}"
                found += mismatch(problem, names, pair, common_points(problem, first.face, second.face))
    for condition in (each for each in problem.conditions if isinstance(each, Periodic)):
        lower, upper = Face(condition.coordinate, "lower"), Face(condition.coordinate, "upper")
        for each in given:
            across = each.face.coordinate != condition.coordinate
            if across and each.prescription.field in (condition.fields or problem.fields):
                names = f"{each.term!r} (here and on the opposite face) and {condition.name!r}"
                pair = [Reading(each), Reading(each, moved=(upper,))]
                found += mismatch(problem, names, pair, probes(problem, each.face, lower))
    return list(dict.fromkeys(found))


def _alike(first: Prescribed, second: Prescribed) -> bool:
    """Whether both prescribe one and the same number, as on the many faces of a box in many coordinates."""
    constant = first.constant()
    same = first.prescription.index == second.prescription.index
    return same and constant is not None and constant == second.constant()


def common_points(problem: Problem, one: Side, two: Side) -> Points:
    """Points that two sides have in common, as far as that is known."""
    if isinstance(one, Piece) and isinstance(two, Piece) and one != two:
        unit = np.random.default_rng(0).random((_PROBES, len(problem.coordinates)))
        return torch.from_numpy(problem.domain.meeting(one, two, unit))
    if isinstance(one, Face) and isinstance(two, Face) and one != two and one.coordinate == two.coordinate:
        return torch.empty(0, len(problem.coordinates), dtype=torch.float64)
    return probes(problem, one, two)


@dataclass(frozen=True)
class Reading:
    """What is prescribed, or its derivative ``rate``, at points that may be moved to faces first."""

    given: Prescribed
    rate: MultiIndex = ()
    moved: tuple[Face, ...] = ()

    @property
    def possible(self) -> bool:
        """Whether values on the face determine the rate: not if it points away from the face."""
        return self.given.face.coordinate not in self.rate

    def values(self, problem: Problem, points: Points) -> Tensor:
        """Shape ``(n,)``."""
        points = on_faces(problem, points, *self.moved).requires_grad_()
        values = self.given.values(problem, points)
        for name in self.rate:
            gradient = None
            if values.requires_grad:
                (gradient,) = torch.autograd.grad(values.sum(), points, create_graph=True, allow_unused=True)
            slopes = torch.zeros_like(points) if gradient is None else gradient
            values = slopes[:, problem.coordinates.index(name)]
        return values.detach()


def mismatch(problem: Problem, names: str, pair: Sequence[Reading], points: Points) -> list[str]:
    """A sentence about the point where two readings differ most, if they do."""
    if not len(points):
        return []
    bound = problem.bind_initial()
    one, two = (reading.values(bound, points) for reading in pair)
    size = max(_largest(reading.values(bound, probes(problem, reading.given.face))) for reading in pair)
    gap = torch.nan_to_num((one - two).abs(), nan=0.0, posinf=0.0)
    worst = int(gap.argmax())
    if not float(gap[worst]) > _AGREEMENT * size:
        return []
    given = pair[0].given.prescription
    what = describe(given.field, (*given.index, *pair[0].rate))
    place = ", ".join(
        f"{name}={value:.4g}" for name, value in zip(problem.coordinates, points[worst].tolist(), strict=True)
    )
    return [
        f"the conditions {names} contradict each other: at {place} they prescribe {what} = {float(one[worst]):.4g} and "
        f"{float(two[worst]):.4g}, {float(gap[worst]):.4g} apart"
    ]


def _largest(values: Tensor) -> float:
    return float(torch.nan_to_num(values.abs(), nan=0.0, posinf=0.0).max())


@dataclass(frozen=True)
class _Slope(Prescribed):
    """A derivative along a coordinate, from one along the outward normal."""

    sign: float = 1.0

    def values(self, problem: Problem, points: Points) -> Tensor:
        # Added zeros keep -0 out of messages.
        return self.sign * super().values(problem, points) + 0.0


def slope_contradictions(problem: Problem) -> list[str]:
    """A sentence for each pair of conditions, one of them Neumann's, that prescribe different slopes where their faces meet.

    Flat faces are looked at, and what does not depend on unknown constants.

    Args:
        problem: the mathematics.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Rod(sciml.Problem):
        ...     domain = sciml.Box(x=(0, 1), t=(0, 1))
        ...     fields = ["u"]
        ...     conditions = [sciml.Initial(u=lambda x: 2 * x), sciml.Neumann(u=0.0, on=domain.face(x=1))]
        ...     @sciml.equation
        ...     def heat(self, u, x, t):
        ...         return d(u, t) - d(u, x, x)
        >>> print(slope_contradictions(Rod())[0])
        the conditions 'initial' and 'neumann' contradict each other: at x=1, t=0 they prescribe u_x = 2 and 0, 2 apart
    """
    slopes = [each for each in _slopes(problem) if not depends_on_unknowns(problem, each)]
    if not slopes:
        return []
    flat = [each for each in prescribed(problem) if isinstance(each.face, Face)]
    values = [each for each in flat if not depends_on_unknowns(problem, each)]
    found = []
    for first, second in (*((one, two) for one in values for two in slopes), *combinations(slopes, 2)):
        if first.prescription.field != second.prescription.field or first.face.coordinate == second.face.coordinate:
            continue
        own = first.prescription.index, second.prescription.index
        pair = [Reading(first, _beyond(*own)), Reading(second, _beyond(*own[::-1]))]
        if all(reading.possible for reading in pair):
            names = f"{first.term!r} and {second.term!r}"
            found += mismatch(problem, names, pair, common_points(problem, first.face, second.face))
    return list(dict.fromkeys(found))


def _slopes(problem: Problem) -> Iterator[_Slope]:
    for condition in problem.conditions:
        if not isinstance(condition, Neumann):
            continue
        place = place_of(condition.on, problem)
        for field, target in condition.targets.items():
            name = condition.label(field, len(condition.targets))
            for face in place.faces if isinstance(place, OnFaces) else ():
                if isinstance(face, Face):
                    given = Prescription(field, (face.coordinate,), target, f"Neumann({field}=...)")
                    yield _Slope(name, face, given, face.sign)


def _beyond(own: MultiIndex, other: MultiIndex) -> MultiIndex:
    """What the first index lacks of both together."""
    left, lacking = list(own), []
    for name in other:
        if name in left:
            left.remove(name)
        else:
            lacking.append(name)
    return tuple(lacking)

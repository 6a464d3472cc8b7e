r"""Slopes that contradict each other where faces meet: what Neumann conditions prescribe, and what others imply.

A value prescribed on one face says what its derivatives along that face are, :math:`\partial_x u_0(x)` at the start of time for
instance, and a Neumann condition on another face prescribes the same derivative where the two meet. Two Neumann conditions on
faces of different coordinates both determine :math:`u_{xy}` there. Solutions exist all the same, and are less smooth
at that place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from torch import Tensor

from sciml.conditions import Prescription
from sciml.domains import Face, OnFaces
from sciml.normal import Neumann
from sciml.placement import place_of
from sciml.prescribed import Prescribed, Reading, clash, common_points, depends_on_unknowns, prescribed
from sciml.problem import Problem
from sciml.typing import MultiIndex, Points


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
            found += clash(problem, names, pair, common_points(problem, first.face, second.face))
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

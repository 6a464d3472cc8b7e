"""How fields bend along the sides of a box: what equations leave free there, and measurements may leave open."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sciml.conditions import Scene, Term
from sciml.domains import Face, OnFaces
from sciml.problem import Problem
from sciml.tiles.system import Units
from sciml.typing import MultiIndex

ROUGH = 3


def roughness(problem: Problem, units: Units) -> list[Term]:
    r"""Residuals :math:`\partial_s^3 u` on the sides of a box, s along them, as numbers of order one.

    The values there are what selects one solution of the equations, so nothing else need be smooth. At the end of time
    nothing is free, and a layer that has formed until then is no fault.

    Args:
        problem: its fields and coordinates.
        units: of the problem.

    Returns:
        A term for every field and coordinate whose faces it is taken on.
    """
    found = []
    for column, name in enumerate(problem.coordinates):
        faces = OnFaces((Face(name, "lower"),) if name == problem.time else (Face(name, "lower"), Face(name, "upper")))
        for other, along in enumerate(problem.coordinates):
            if other == column:
                continue
            for number, field in enumerate(problem.fields):
                factor = float(units.reach[other]) ** ROUGH / float(units.scale[number])
                found.append(Term(f"roughness.{field}.{name}", faces, _Bend(field, (along,) * ROUGH, factor)))
    return found


@dataclass(frozen=True)
class _Bend:
    """A derivative of a field as a number of order one."""

    field: str
    index: MultiIndex
    factor: float

    def __call__(self, scene: Scene) -> Tensor:
        return self.factor * scene.space.jet(self.field, self.index)

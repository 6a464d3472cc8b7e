"""Gauss points in every tile of a box and on its sides, with the weights of their quadrature.

How fields bend along the sides of a box: what equations leave free there, and measurements may leave open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.geometry import At, Face, Interior, OnFaces, Opposite, Place, PointSet
from sciml.models.bases import PiecewiseBasis, gauss
from sciml.models.tensor_product import TensorProductBasis
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.strategies.inverse_system import Units
from sciml.typing import MultiIndex

ROUGH = 3


def roughness(problem: Problem, units: Units) -> list[Term]:
    r"""Residuals :math:`\partial_s^3 u` on the sides of a box, s along them, as numbers of order one."""
    found = []
    for column, name in enumerate(problem.coordinates):
        faces = OnFaces((Face(name, "lower"),) if name == problem.time else (Face(name, "lower"), Face(name, "upper")))
        for other, along in enumerate(problem.coordinates):
            if other == column:
                continue
            for number, field in enumerate(problem.fields):
                factor = float(units.half_width[other]) ** ROUGH / float(units.scale[number])
                found.append(Term(f"roughness.{field}.{name}", faces, _Bend(field, (along,) * ROUGH, factor)))
    return found


@dataclass(frozen=True)
class _Bend:
    """A derivative of a field as a number of order one."""

    field: str
    index: MultiIndex
    factor: float

    def __call__(self, evaluation: Evaluation) -> Tensor:
        return self.factor * evaluation.space.jet(self.field, self.index)


def placeable(place: Place) -> bool:
    """Whether there are points of a tiling for residuals at a place."""
    if isinstance(place, OnFaces):
        return all(isinstance(face, Face) for face in place.faces)
    return isinstance(place, Interior | Opposite | At)


def blocks_on(tiling: TensorProductBasis, problem: Problem, terms: Sequence[Term], more: int = 0) -> list[Collocation]:
    """The residuals of a problem at Gauss points of every tile, as many along each coordinate as there are functions."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    samples = {place: _placed(tiling, problem, place, more) for place in places}
    return [Collocation(samples[place][0], tuple(there), samples[place][1]) for place, there in places.items()]


def _placed(tiling: TensorProductBasis, problem: Problem, place: Place, more: int) -> tuple[PointSet, Tensor]:
    lines = [
        _line(mesh, *problem.domain.bounds[name], more) for name, mesh in zip(problem.coordinates, tiling.meshes, strict=True)
    ]
    if isinstance(place, Interior):
        points, quadrature = _grid(lines)
        return PointSet((points,)), quadrature
    if isinstance(place, At):
        alone = torch.ones(1, dtype=torch.float64)
        points, quadrature = _grid(
            [line if at is None else (at * alone, alone) for line, at in zip(lines, place.position, strict=True)]
        )
        return PointSet((points,)), quadrature
    if isinstance(place, Opposite):
        pair = [_side(lines, problem, place.coordinate, end) for end in (0, 1)]
        return PointSet(tuple(points for points, _, _ in pair)), pair[0][2]
    assert isinstance(place, OnFaces)
    faces = [face for face in place.faces if isinstance(face, Face)]
    sides = [_side(lines, problem, face.coordinate, int(face.side == "upper")) for face in faces]
    points, normals, quadrature = (torch.cat([side[part] for side in sides]) for part in range(3))
    return PointSet((points,), normals, tuple(len(side[0]) for side in sides)), quadrature / len(sides)


def _side(
    lines: Sequence[tuple[Tensor, Tensor]], problem: Problem, coordinate: str | None, end: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Points of one face, the outward normals and the quadrature."""
    assert coordinate is not None
    column = problem.coordinates.index(coordinate)
    bound = torch.tensor([problem.domain.bounds[coordinate][end]], dtype=torch.float64)
    own = [(bound, torch.ones_like(bound)) if each == column else line for each, line in enumerate(lines)]
    points, quadrature = _grid(own)
    normals = torch.zeros_like(points)
    normals[:, column] = 2.0 * end - 1.0
    return points, normals, quadrature


def _line(mesh: PiecewiseBasis, low: float, high: float, more: int) -> tuple[Tensor, Tensor]:
    """Places of one coordinate, in its unit, and their quadrature."""
    places, weights = gauss(mesh.degree + 1 + more)
    breaks = torch.from_numpy(mesh.breaks)
    unit = breaks[:-1, None] + mesh.half[:, None] * (1 + places)
    quadrature = mesh.half[:, None] * weights / 2 / mesh.half.sum()
    return (low + (high - low) * (unit + 1) / 2).flatten(), quadrature.flatten()


def _grid(lines: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    points = torch.cartesian_prod(*(at for at, _ in lines)).reshape(-1, len(lines))
    quadrature = torch.cartesian_prod(*(share for _, share in lines)).reshape(-1, len(lines)).prod(1)
    return points, quadrature


def orders_asked_by(problem: Problem, terms: Sequence[Term]) -> tuple[int, ...]:
    """The highest derivative by each coordinate that some residuals ask for."""
    asked = {index for term in terms for _, index in problem.system.asked(term)}
    return tuple(max((index.count(name) for index in asked), default=0) for name in problem.coordinates)

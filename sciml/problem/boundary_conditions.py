"""Conditions on the derivative along the outward normal, on flat sides and on curved ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sciml.geometry import Region
from sciml.problem.conditions import Dirichlet, Evaluation, check_target, target_values
from sciml.typing import Target, Values


class Neumann(Dirichlet):
    """Outward normal derivatives on part of the boundary: ``Neumann(u=0.0, on=domain.face(x=1))``.

    Args:
        on: where; faces, pieces or the whole boundary of the problem's domain.
        name: name of the condition in histories and reports.
        targets: for each field the prescribed derivative along the outward normal, in the field's unit by the
            coordinate's: a number or a function of the coordinates that it names.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name.

    Example:
        >>> import sciml
        >>> insulated = sciml.Neumann(u=0.0, on=sciml.Interval(x=(0, 1)).face(x=1))
    """

    def valued(self, field: str) -> str | None:
        return None

    def residual(self, field: str, target: Target) -> Callable[[Evaluation], Tensor]:
        what = f"Neumann({field}=...)"
        return lambda scene: normal_derivative(scene, field) - target_values(what, target, scene)


class Robin(Dirichlet):
    r"""A value and a normal derivative together, :math:`\partial u/\partial n + a\,u = g`, on part of the boundary.

    Heat that passes into surroundings of temperature :math:`u_\infty`, :math:`-k\,\partial u/\partial n = h (u - u_\infty)`,
    has :math:`a = h/k` and :math:`g = a u_\infty`.

    Args:
        on: where; faces, pieces or the whole boundary of the problem's domain.
        coefficient: a, a number or a function of the coordinates that it names; a parameter called ``self`` receives the
            problem with its constants, as in ``lambda self: self.h / self.k``.
        name: name of the condition in histories and reports.
        targets: for each field g, a number or a function of the coordinates that it names.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name.

    Example:
        >>> import sciml
        >>> cooled = sciml.Robin(u=0.0, coefficient=2.0, on=sciml.Disk((0, 0), 1).boundary)
    """

    def __init__(self, *, on: Region, coefficient: Target, name: str | None = None, **targets: Target) -> None:
        super().__init__(on=on, name=name, **targets)
        self.coefficient = coefficient

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        super().check(fields, coordinates, time)
        check_target("Robin(coefficient=...)", self.coefficient, coordinates)

    def valued(self, field: str) -> str | None:
        return None

    def residual(self, field: str, target: Target) -> Callable[[Evaluation], Tensor]:
        def residual(scene: Evaluation) -> Tensor:
            coefficient = target_values("Robin(coefficient=...)", self.coefficient, scene)
            given = target_values(f"Robin({field}=...)", target, scene)
            return normal_derivative(scene, field) + coefficient * scene.space.jet(field, ()) - given

        return residual


def normal_derivative(scene: Evaluation, field: str) -> Values:
    """The derivative of a field along the outward normals of a scene, shape ``(n,)``."""
    assert scene.normals is not None
    slope = torch.zeros_like(scene.normals[:, 0])
    for column, coordinate in enumerate(scene.space.coordinates):
        component = scene.normals[:, column]
        if bool(component.any()):
            slope = slope + component * scene.space.jet(field, (coordinate,))
    return slope

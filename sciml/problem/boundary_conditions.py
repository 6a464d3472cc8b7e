"""Initial and boundary conditions: Dirichlet, Neumann, Robin, periodic."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from sciml._text import among, listed
from sciml.errors import ProblemError
from sciml.geometry import Face, Interface, OnFaces, Place, Region
from sciml.jets.calculus import check_names, describe
from sciml.problem.composite_fields import Composites, real_and_imaginary
from sciml.problem.conditions import (
    Condition,
    Evaluation,
    Targets,
    Term,
    check_target,
    checked_place,
    place_of,
    target_values,
)
from sciml.problem.protocol import ProblemLike
from sciml.typing import MultiIndex, Target, Values


class Initial(Targets):
    """Values at the start of time: ``Initial(u=..., u_t=...)`` prescribes u and its first time derivative.

    Args:
        name: name of the condition in histories and reports.
        targets: for each field, or field and time derivatives (``u_t``, ``u_tt``), in its unit, a number or a function of the
            coordinates that it names, ``(n,)`` to ``(n,)``; an argument ``self`` receives the problem with its constants.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name, or no time coordinate.

    Example:
        >>> import torch, sciml
        >>> rest = sciml.Initial(u=lambda x: torch.sin(torch.pi * x), u_t=0.0)
    """

    exact = True

    def __init__(self, *, name: str | None = None, **targets: Target) -> None:
        super().__init__(targets, name)

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        if time is None:
            raise ProblemError(
                f"Initial needs a time coordinate, but the domain has {listed(coordinates)}: name it 't', or say which "
                "one it is with time = '...' in the class"
            )
        super().check(fields, coordinates, time)

    def split(self, key: str, fields: Sequence[str], time: str | None) -> tuple[str, MultiIndex]:
        if key in fields:
            return key, ()
        for field in fields:
            match = re.fullmatch(re.escape(field) + f"_((?:{re.escape(str(time))})+)", key)
            if match:
                return field, (str(time),) * (len(match.group(1)) // len(str(time)))
        right = [f"{field}{suffix}" for field in fields for suffix in ("", f"_{time}")]
        raise ProblemError(f"Initial names {key!r}; it may name {among(key, right)}")

    def begun(self, values: Mapping[str, Target]) -> Initial:
        found = copy.copy(self)
        found.targets = {key: values.get(key, target) for key, target in self.targets.items()}
        return found

    def place(self, problem: ProblemLike) -> Place:
        assert problem.time is not None
        start = Face(problem.time, "lower")
        if start not in problem.domain.sides:
            raise ProblemError(
                f"Initial needs a domain with a start of time, a product such as sciml.Disk(...) * "
                f"sciml.Interval({problem.time}=(0, 1)); {type(problem).__name__} has "
                f"{problem.domain!r}, whose pieces are {listed(problem.domain.pieces)}"
            )
        return OnFaces((start,))

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        """A field that lives on parts of the domain has initial values there alone."""
        found = [(term, term.prescription.field if term.prescription else "") for term in super().terms(problem)]
        return tuple(
            replace(term, evaluate=partial(_where_it_lives, field, term.evaluate)) if problem.parts(field) else term
            for term, field in found
        )


def _where_it_lives(field: str, evaluate: Callable[[Evaluation], Tensor], at: Evaluation) -> Tensor:
    residual = evaluate(at)
    columns = {name: column.detach().cpu().numpy() for name, column in at.space.coordinates.items()}
    lives = torch.from_numpy(at.problem.lives(field, columns)).to(residual.device)
    return torch.where(lives, residual, torch.zeros_like(residual))


class Dirichlet(Targets):
    """Values on part of the boundary: ``Dirichlet(u=0.0, on=domain.faces("x"))``.

    Args:
        on: where; faces, pieces or the whole boundary of the problem's domain, or an inner surface; by default the whole
            boundary, the faces of time apart.
        name, targets: as for ``Initial``, of fields alone.

    Raises:
        ProblemError: nothing is prescribed; when a problem class is defined: an unknown name.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(0, 1), y=(0, 1))
        >>> walls = sciml.Dirichlet(u=lambda x, y: x * y, on=box.boundary)
    """

    exact = True

    def __init__(self, *, on: Region | Interface | None = None, name: str | None = None, **targets: Target) -> None:
        super().__init__(targets, name)
        self.on = checked_place(type(self).__name__, Region(boundary=True) if on is None else on)

    def place(self, problem: ProblemLike) -> Place:
        return place_of(self.on, problem)


class Neumann(Dirichlet):
    """Outward normal derivatives on part of the boundary: ``Neumann(u=0.0, on=domain.face(x=1))``.

    Args:
        on, name: as for ``Dirichlet``, which raises the same errors.
        targets: for each field the derivative along the outward normal, in the field's unit by the coordinate's.

    Example:
        >>> import sciml
        >>> insulated = sciml.Neumann(u=0.0, on=sciml.Interval(x=(0, 1)).face(x=1))
    """

    valued = exact = False

    def operator(self, problem: ProblemLike, place: Place) -> Callable[[Evaluation, str, MultiIndex], Tensor]:
        return lambda evaluation, field, index: _normal_derivative(evaluation, field)


class Robin(Dirichlet):
    r"""A value and a normal derivative together, :math:`\partial u/\partial n + a\,u = g`, on part of the boundary.

    Heat that passes into surroundings of temperature :math:`u_\infty`, :math:`-k\,\partial u/\partial n = h (u - u_\infty)`,
    has :math:`a = h/k` and :math:`g = a u_\infty`.

    Args:
        coefficient: a, a number or a function of the coordinates that it names; a parameter called ``self`` receives the
            problem with its constants, as in ``lambda self: self.h / self.k``. Of complex fields it may be complex: the
            impedance condition of waves that leave, :math:`\partial u/\partial n - iku = 0`, has ``-1j * k``.
        on, name: as for ``Dirichlet``, which raises the same errors.
        targets: for each field g, a number or a function of the coordinates that it names.

    Example:
        >>> import sciml
        >>> cooled = sciml.Robin(u=0.0, coefficient=2.0)
    """

    valued = exact = False

    def __init__(
        self, *, coefficient: Target | complex, on: Region | None = None, name: str | None = None, **targets: Target
    ) -> None:
        super().__init__(on=on, name=name, **targets)
        self.coefficient = coefficient
        self._complexes: Sequence[tuple[str, str]] = ()

    def by_field(self, composites: Composites, time: str | None) -> Condition:
        found = cast(Robin, super().by_field(composites, time))
        found._complexes = list(composites.complexes.values())
        return found

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        super().check(fields, coordinates, time)
        given: Any = self.coefficient
        if isinstance(given, complex):
            real = [field for field in self.targets if not any(field in pair for pair in self._complexes)]
            if real:
                raise ProblemError(f"a complex coefficient of Robin is for complex fields; given: {given!r} for {listed(real)}")
            given = given.real
        check_target("Robin(coefficient=...)", given, coordinates)

    def operator(self, problem: ProblemLike, place: Place) -> Callable[[Evaluation, str, MultiIndex], Tensor]:
        what = "Robin(coefficient=...)"

        def operator(evaluation: Evaluation, field: str, index: MultiIndex) -> Tensor:
            space, slope = evaluation.space, _normal_derivative(evaluation, field)
            pair = next((each for each in self._complexes if field in each), None)
            if pair is None or isinstance(self.coefficient, int | float):
                return slope + target_values(what, cast(Target, self.coefficient), evaluation) * space.jet(field, index)
            # (a + ib)(u + iv) = au - bv + i(av + bu).
            real, imaginary = (target_values(what, each, evaluation) for each in real_and_imaginary(self.coefficient))
            other, sign = (pair[1], -1) if field == pair[0] else (pair[0], 1)
            return slope + real * space.jet(field, index) + sign * imaginary * space.jet(other, index)

        return operator


class Outflow(Condition):
    r"""Traction-free outflow of an incompressible fluid: :math:`\nu\,\partial u_i/\partial n - p\,n_i = 0` for each velocity.

    It is the natural condition of Stokes' and of Navier and Stokes' equations where the fluid leaves a channel that goes on;
    it fixes the level of the pressure, too.

    Args:
        velocity: the fields of the velocity, one for each coordinate of space, in the order of these.
        pressure: the field of the pressure, divided by the density.
        viscosity: kinematic, a number or a function as ``coefficient`` of ``Robin``.
        on, name: as for ``Dirichlet``, which raises the same errors.

    Raises:
        ProblemError: when a problem class is defined: an unknown field, or not as many velocities as coordinates of space.

    Example:
        >>> import sciml
        >>> channel = sciml.Box(x=(0, 2), y=(0, 1))
        >>> end = sciml.Outflow(("u", "v"), "p", viscosity=0.01, on=channel.face(x=2))

    Reference: J. G. Heywood, R. Rannacher and S. Turek, International Journal for Numerical Methods in Fluids 22 (1996).
    """

    def __init__(
        self, velocity: Sequence[str], pressure: str, *, viscosity: Target, on: Region, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.velocity, self.pressure, self.viscosity = tuple(velocity), pressure, viscosity
        self.on = checked_place("Outflow", on)

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        for field in (*self.velocity, self.pressure):
            if field not in fields:
                raise ProblemError(f"Outflow names {field!r}; fields: {among(field, fields)}")
        space = [name for name in coordinates if name != time]
        if len(self.velocity) != len(space):
            raise ProblemError(f"Outflow needs a velocity for each of {listed(space)}; given: {listed(self.velocity)}")
        check_target("Outflow(viscosity=...)", self.viscosity, coordinates)

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        place = place_of(self.on, problem)
        space = [name for name in problem.coordinates if name not in (problem.time, *problem.promoted)]

        def traction(field: str, column: int, evaluation: Evaluation) -> Tensor:
            assert evaluation.normals is not None
            viscosity = target_values("Outflow(viscosity=...)", self.viscosity, evaluation)
            pressure = evaluation.space.jet(self.pressure, ())
            return viscosity * _normal_derivative(evaluation, field) - pressure * evaluation.normals[:, column]

        return tuple(
            Term(self.label(field, len(self.velocity)), place, partial(traction, field, problem.coordinates.index(name)))
            for field, name in zip(self.velocity, space, strict=True)
        )


def _normal_derivative(evaluation: Evaluation, field: str) -> Values:
    """The derivative of a field along the outward normals of an evaluation, shape ``(n,)``."""
    assert evaluation.normals is not None
    along = zip(evaluation.space.coordinates, evaluation.normals.unbind(1), strict=True)
    slopes = (part * evaluation.space.jet(field, (coordinate,)) for coordinate, part in along if bool(part.any()))
    return sum(slopes, torch.zeros_like(evaluation.normals[:, 0]))


class Periodic(Condition):
    """Periodic boundary conditions: equal values, and derivatives below the equations' order, on two faces of a coordinate.

    Holes may be cut from the box, as long as they leave its two faces alike.

    Args:
        coordinate: the periodic coordinate.
        fields: the periodic fields; all when none is named.
        name: name of the condition in histories and reports.

    Raises:
        ProblemError: when a problem class is defined: an unknown coordinate or field; when it is solved: faces that differ.

    Example:
        >>> import sciml
        >>> ring = sciml.Periodic("x")
    """

    def __init__(self, coordinate: str, *fields: str, name: str | None = None) -> None:
        super().__init__(name=name)
        self.coordinate = coordinate
        self.fields = fields

    def check(self, fields: Sequence[str], coordinates: Sequence[str], time: str | None) -> None:
        if self.coordinate not in coordinates:
            raise ProblemError(
                f"Periodic names the coordinate {self.coordinate!r}; coordinates: {among(self.coordinate, coordinates)}"
            )
        check_names("Periodic", self.fields, fields, ())

    def by_field(self, composites: Composites, time: str | None) -> Condition:
        found = copy.copy(self)
        found.fields = tuple(part for name in self.fields for part in composites.parts(name))
        return found

    def terms(self, problem: ProblemLike) -> tuple[Term, ...]:
        if (place := problem.domain.opposite(self.coordinate)) is None:
            raise ProblemError(
                f"Periodic({self.coordinate!r}) needs two opposite faces, and {problem.domain!r}, the domain of "
                f"{type(problem).__name__}, has none of {self.coordinate!r}; its pieces are {listed(problem.domain.pieces)}"
            )
        matched = [
            (field, (self.coordinate,) * order)
            for field in self.fields or problem.fields
            for order in range(max(1, problem.order(field, self.coordinate)))
        ]

        def jump(field: str, index: MultiIndex) -> Callable[[Evaluation], Tensor]:
            return lambda evaluation: evaluation.spaces[1].jet(field, index) - evaluation.spaces[0].jet(field, index)

        return tuple(Term(self.label(describe(*pair), len(matched)), place, jump(*pair)) for pair in matched)


def periodic_fields(conditions: Sequence[Condition], fields: Sequence[str]) -> dict[str, set[str]]:
    """The coordinates along which fields are periodic, and these fields."""
    found: dict[str, set[str]] = {}
    for each in conditions:
        if isinstance(each, Periodic):
            found.setdefault(each.coordinate, set()).update(each.fields or fields)
    return found

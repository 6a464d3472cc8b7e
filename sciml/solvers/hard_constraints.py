r"""Trial functions that satisfy initial, Dirichlet and periodic conditions exactly, :math:`u = g + \varphi N`.

For every field, :math:`\varphi` is a product of polynomials of one coordinate each that vanish on the faces where the field
is prescribed (doubly at the start of time if its velocity is), and g takes the prescribed values there. It is built one
coordinate after the other, time first, by correcting what is there already:

.. math::  g_k = g_{k-1} + P_k (f_k - g_{k-1}),

with :math:`f_k` the values prescribed on the faces of coordinate k and :math:`P_k` interpolation along it: linear between two
faces, constant from one, and at the start of time with the velocity's help. This is the boolean sum of the :math:`P_k`. It
leaves the faces of earlier coordinates as they are, provided the prescribed values agree where faces meet.

Reference: W. J. Gordon and C. A. Hall, Transfinite element methods: blending-function interpolation over arbitrary curved
element domains, Numerische Mathematik 21 (1973); for periodic conditions S. Dong and N. Ni, Journal of Computational Physics
435 (2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from sciml._text import listed, whole
from sciml.errors import ProblemError
from sciml.geometry import Box, Face, Opposite
from sciml.geometry.domain import End
from sciml.jets import AutogradJets
from sciml.models import Constrained, PeriodicInputs, Scaled
from sciml.problem import Problem
from sciml.problem.boundary_conditions import periodic_fields
from sciml.problem.collocation import Collocation
from sciml.problem.compatibility import (
    Prescribed,
    contradictions,
    depends_on_unknowns,
    on_faces,
    prescribed,
    probes,
    slope_contradictions,
)
from sciml.problem.conditions import Term
from sciml.typing import Points, Values

# A relative gap across opposite faces that counts as none; coordinates along which values may be prescribed.
_SMOOTH, _MOST_COORDINATES = 1e-6, 5


@dataclass(frozen=True)
class HardConstraints:
    r"""Hard constraints: conditions that the trial function satisfies whatever its parameters; ``exact=True`` means all.

    Initial values and velocities and Dirichlet values are held by a trial function :math:`g + \varphi N`, periodic
    coordinates by showing the model cosines and sines in their place. Neumann conditions and conditions of your own stay
    rows, as does whatever depends on an unknown constant.

    Args:
        values: hold prescribed values and initial velocities.
        periodic: hold periodic conditions, where all fields are periodic and what is prescribed continues smoothly.
        harmonics: the number of cosines and sines of each periodic coordinate.

    Raises:
        ProblemError: ``harmonics`` is not a positive whole number.

    Example:
        >>> import sciml
        >>> rod = sciml.gallery.problem("heat_rod")
        >>> solution = sciml.fit(rod, sciml.MLP(8), exact=sciml.HardConstraints(), solver=sciml.LBFGS(20))
        >>> bool(solution.residuals.loc[["initial", "dirichlet"], "max"].max() < 1e-14)
        True

    Reference: I. E. Lagaris, A. Likas and D. I. Fotiadis, Artificial neural networks for solving ordinary and partial
    differential equations, IEEE Transactions on Neural Networks 9 (1998).
    """

    values: bool = True
    periodic: bool = True
    harmonics: int = 1

    def __post_init__(self) -> None:
        whole("harmonics", self.harmonics, 1, ProblemError)

    @classmethod
    def of(cls, given: object) -> HardConstraints:
        """What the argument ``exact`` of ``fit`` means: a truth value or a record, else there is a ProblemError."""
        if isinstance(given, bool):
            return cls(given, given)
        if isinstance(given, cls):
            return given
        raise ProblemError(f"exact must be True, False or sciml.HardConstraints(...); given: {given!r}")


@dataclass(frozen=True)
class _Span:
    """What one field must be on the faces of one coordinate."""

    coordinate: str
    lower: Prescribed | None
    upper: Prescribed | None
    velocity: Prescribed | None

    def distances(self, problem: Problem, points: Points) -> tuple[Values, Values, float]:
        """Distances from the lower and to the upper face in units of the distance of the two, and this."""
        low, high = problem.domain.bounds[self.coordinate]
        at = points[:, problem.coordinates.index(self.coordinate)]
        return (at - low) / (high - low), (high - at) / (high - low), high - low

    def distance(self, problem: Problem, points: Points) -> Values:
        """A polynomial with maximum 1 that vanishes where values are prescribed, and doubly where a velocity is."""
        near, far, _ = self.distances(problem, points)
        if self.upper is None:
            return near * near if self.velocity is not None else near
        if self.lower is None:
            return far
        return 6.75 * near * near * far if self.velocity is not None else 4.0 * near * far

    def blending(self, problem: Problem, points: Points) -> list[tuple[Prescribed, Values]]:
        """Everything prescribed, with the polynomial by which it is interpolated along the coordinate."""
        near, _, length = self.distances(problem, points)
        above = near * near if self.velocity is not None else near
        if self.lower is None or self.upper is None:
            above = torch.full_like(near, float(self.lower is None))
        pairs = (self.lower, 1 - above), (self.upper, above), (self.velocity, length * (near - above))
        return [(given, factor) for given, factor in pairs if given is not None]


class Conditions:
    """The lift g and distance of conditions held exactly, at points ``(n, D)``; residuals ``terms`` vanish."""

    def __init__(self, problem: Problem) -> None:
        for each in contradictions(problem):
            raise ProblemError(f"{each}: no function can hold both exactly; make them agree, or fit with exact=False")
        self.problem = problem.bind_initial()
        everything = prescribed(problem)
        free = {each.term for each in everything if depends_on_unknowns(problem, each)}
        usable = [each for each in everything if each.term not in free]
        self.spans = {field: _spans(problem, [e for e in usable if e.prescription.field == field]) for field in problem.fields}
        spans = [span for each in self.spans.values() for span in each]
        held = {each.term for span in spans for each in (span.lower, span.upper, span.velocity) if each is not None}
        # A second prescription on a face agrees with the first one, or there would be a contradiction.
        self.terms = frozenset(held | {each.term for each in usable if not each.prescription.index})

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Conditions:
        # Immutable, and a user's functions need not be copied with the trial function around them.
        return self

    def lift(self, points: Points) -> Tensor:
        """The function g, shape ``(n, F)``."""
        return torch.stack([self._lifted(points, spans) for spans in self.spans.values()], dim=1)

    def distance(self, points: Points) -> Tensor:
        """The function that vanishes where g is prescribed, shape ``(n, F)``."""
        one = torch.ones_like(points[:, 0])
        factors = ([span.distance(self.problem, points) for span in spans] for spans in self.spans.values())
        return torch.stack([math.prod(each, start=one) for each in factors], dim=1)

    def _lifted(self, points: Points, spans: Sequence[_Span]) -> Values:
        if not spans:
            return torch.zeros_like(points[:, 0])
        constant = _constant(spans)
        if constant is not None:
            return torch.full_like(points[:, 0], constant)
        *before, span = spans
        found = self._lifted(points, before)
        for given, factor in span.blending(self.problem, points):
            assert isinstance(given.face, Face)
            at = on_faces(self.problem, points, given.face)
            missing = given.values(self.problem, at)
            if given is not span.velocity:
                # Time comes first: there is nothing below that the velocity would have to be corrected by.
                missing = missing - self._lifted(at, before)
            found = found + factor * missing
        return found


def _constant(spans: Sequence[_Span]) -> float | None:
    """The one number that is prescribed everywhere, or None."""
    given = {each.constant() for span in spans for each in (span.lower, span.upper) if each is not None}
    still = all(span.velocity is None or span.velocity.constant() == 0.0 for span in spans)
    return given.pop() if still and len(given) == 1 else None


def _spans(problem: Problem, given: Sequence[Prescribed]) -> tuple[_Span, ...]:
    """What is prescribed for one field by coordinate, time first."""
    first = {(each.face, len(each.prescription.index)): each for each in reversed(given)}
    found = []
    for name in sorted(problem.coordinates, key=lambda name: name != problem.time):
        lower, upper = (first.get((Face(name, side), 0)) for side in get_args(End))
        if lower is not None or upper is not None:
            found.append(_Span(name, lower, upper, first.get((Face(name, "lower"), 1)) if lower else None))
    if len(found) > _MOST_COORDINATES and _constant(found) is None:
        raise ProblemError(
            f"exact conditions along {len(found)} coordinates would take 3**{len(found)} evaluations of what is prescribed; at "
            f"most {_MOST_COORDINATES} are held exactly, or any number if all values are one constant: use exact=False"
        )
    return tuple(found)


@dataclass(frozen=True)
class Ansatz:
    """How a trial function holds conditions, made by ``construct``; ``columns`` are the periodic coordinates."""

    problem: Problem
    conditions: Conditions | None
    columns: tuple[int, ...]
    harmonics: int
    notes: tuple[str, ...]

    @property
    def inputs(self) -> int:
        """The number of inputs of the model."""
        return len(self.problem.coordinates) + (2 * self.harmonics - 1) * len(self.columns)

    def periodised(self, model: nn.Module, choices: list[str]) -> nn.Module:
        """The model behind cosines and sines; as it is, with a line in ``choices``, when it was made for the coordinates."""
        if not self.columns:
            return model
        names = [self.problem.coordinates[column] for column in self.columns]
        like = next(model.parameters(), torch.zeros(0))
        try:
            with torch.no_grad():
                model(torch.zeros(2, self.inputs).to(like))
        except (RuntimeError, ValueError, IndexError):
            choices.append(
                f"periodic in {listed(names)} by rows: the model given does not take {self.inputs} inputs, with cosines and "
                "sines in the place of periodic coordinates"
            )
            return model
        choices.append(f"periodic in {listed(names)} exactly: the model sees cosines and sines, {self.inputs} inputs")
        return PeriodicInputs(model, self.columns, self.harmonics)

    def around(self, trial: Scaled) -> Scaled | Constrained:
        """The trial function that holds what is prescribed."""
        if self.conditions is None:
            return trial
        return Constrained(trial, self.conditions.lift, self.conditions.distance)

    def rows_left(self, trial: Scaled, blocks: Sequence[Collocation]) -> tuple[Collocation, ...]:
        """The blocks without the residuals that vanish whatever the parameters are."""
        columns = trial.model.columns if isinstance(trial.model, PeriodicInputs) else ()
        periodic = {self.problem.coordinates[column] for column in columns}
        held = frozenset[str]() if self.conditions is None else self.conditions.terms

        def vanishes(term: Term) -> bool:
            return term.name in held or (isinstance(term.place, Opposite) and term.place.coordinate in periodic)

        left = (replace(block, terms=tuple(each for each in block.terms if not vanishes(each))) for block in blocks)
        return tuple(block for block in left if block.terms)


def construct(problem: Problem, exact: HardConstraints) -> Ansatz:
    """The ansatz that holds as many conditions of a problem exactly as it can."""
    if (exact.values or exact.periodic) and not isinstance(problem.domain, Box):
        raise ProblemError(
            f"exact= holds conditions on the faces of a box, and {type(problem).__name__} has the domain {problem.domain!r}: "
            "leave exact=False, and conditions are rows as equations are"
        )
    conditions = Conditions(problem) if exact.values else None
    if conditions is None:
        # Rows can be at odds with one another: least squares finds a compromise, but nobody should be surprised by it.
        notes = [f"{each}: the solution is a compromise there" for each in contradictions(problem)]
    elif conditions.terms:
        notes = [f"held exactly: {listed(sorted(conditions.terms))}"]
    else:
        conditions, notes = None, ["no value is prescribed that could be held exactly"]
    notes += [f"{each}: the solution is less smooth there" for each in slope_contradictions(problem)]
    columns = []
    for name, fields in periodic_fields(problem.conditions, problem.fields).items():
        if exact.periodic:
            why = _not_periodic(problem, name, fields, conditions)
            columns += [problem.coordinates.index(name)] if why is None else []
            notes += [] if why is None else [f"periodic in {name!r} by rows: {why}"]
    return Ansatz(problem, conditions, tuple(columns), exact.harmonics, tuple(notes))


def _not_periodic(problem: Problem, name: str, fields: set[str], conditions: Conditions | None) -> str | None:
    """Why periodicity of fields in a coordinate cannot be held exactly, or None if it can."""
    others = [field for field in problem.fields if field not in fields]
    if others:
        return f"{listed(others)} is not periodic"
    if any(each.face.coordinate == name for each in prescribed(problem)):
        return f"values are prescribed on the faces of {name!r}"
    if conditions is not None and not _continues(problem, conditions, name):
        return "what is prescribed on other faces does not continue smoothly across"
    return None


def _continues(problem: Problem, conditions: Conditions, name: str) -> bool:
    """Whether the lift and its derivatives below the order of the equations are equal on opposite faces."""
    inside = probes(problem)
    ends = [on_faces(problem, inside, Face(name, side)) for side in ("lower", "upper")]
    suppliers = [AutogradJets(conditions.lift, at, problem.coordinates, problem.fields) for at in (*ends, inside)]
    for field in problem.fields:
        for order in range(max(1, problem.order(field, name))):
            low, high, middle = (supplier.jet(field, (name,) * order).detach() for supplier in suppliers)
            size = max(float(values.abs().max()) for values in (low, high, middle))
            if not float((high - low).abs().max()) <= _SMOOTH * size:
                return False
    return True

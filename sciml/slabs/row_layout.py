"""Row layout of collocation on a grid in space: equations at the nodes of their fields, conditions at the outermost ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import BaselineError
from sciml.geometry import At, Average, Face, OnFaces, Opposite, Side
from sciml.models import Chebyshev, Grid
from sciml.models.grid import Sites, split
from sciml.problem import Problem
from sciml.problem.boundary_conditions import periodic_fields
from sciml.problem.conditions import Term
from sciml.problem.linearize import Jet
from sciml.problem.structure import Asked
from sciml.typing import Array

Counts: TypeAlias = Mapping[tuple[str, Side], int]


@dataclass(frozen=True)
class Row:
    """A term at some sites, in the rows that one field has at some nodes; differentiated by time so many ``times``.

    ``at`` are the nodes that the sites are, where they are nodes.
    """

    term: Term
    numbers: Array
    field: str
    times: int
    sites: Sites
    at: Array | None = None
    normals: Tensor | None = None

    @cached_property
    def columns(self) -> tuple[Tensor, ...]:
        """The values of each coordinate in space, stored one after the other."""
        return torch.from_numpy(np.ascontiguousarray(self.sites.points.T)).unbind(0)


def sparse_slopes(
    jets: Mapping[Jet, Tensor], sites: Sites, offsets: Mapping[tuple[str, int], int], width: int, time: str | None = None
) -> scipy.sparse.csr_array:
    """The derivative of a residual at sites by nodal values, ``(m, width)``, from those by jets."""
    data, places, columns = [np.zeros(0)], [np.zeros(0, dtype=int)], [np.zeros(0, dtype=int)]
    for (name, index), slope in jets.items():
        if bool(slope.any()):
            passed, space = split(index, time)
            # Its rows times slopes: a product with a diagonal matrix takes many times as long on small grids.
            part = sites.operator(space)
            rows = np.repeat(np.arange(len(sites.points)), np.diff(part.indptr))
            data.append(part.data * slope.numpy()[rows])
            places.append(rows)
            columns.append(part.indices + offsets[name, passed])
    entries = (np.concatenate(data), (np.concatenate(places), np.concatenate(columns)))
    return scipy.sparse.csr_array(entries, shape=(len(sites.points), width))


def arranged(problem: Problem, grid: Grid, top: Mapping[str, int], *, rates: bool = True) -> tuple[Row, ...]:
    """Which term stands in the rows of which field at which nodes.

    Each field's equation holds at its nodes; its i-th condition on a face takes the rows of the i-th layer below that face.
    With ``rates`` every equation must contain the rate of its field, if not at once, then differentiated by time; without
    them the equations need only be as many as the fields, and means and points are left to the caller.
    """
    terms = [term for term in problem.terms() if rates or not isinstance(term.place, At | Average)]
    equations = [term for term in terms if term.name in problem.equations]
    if len(equations) != len(problem.fields):
        raise BaselineError(
            f"{type(problem).__name__} has {len(equations)} equation(s) for {len(problem.fields)} field(s); as many are needed"
        )
    kinds = [problem.system.depends(term) for term in equations]
    owner = _matched(problem, top, kinds, rates)
    taken = {name: np.zeros(grid.size, dtype=bool) for name in problem.fields}
    conditions, counts = _placed(problem, grid, terms)
    _check_counts(problem, grid, counts)
    column = problem.coordinates.index(problem.time) if problem.time not in (None, *grid.coordinates) else None
    rows: list[Row] = []
    for (term, name), where in conditions.items():
        numbers, places, normals = [], [], []
        for face, rank in where:
            layer = grid.rows(face, rank)
            free = ~taken[name][layer]
            taken[name][layer] = True
            numbers.append(layer[free])
            # The condition holds on the face, whatever layer's rows it takes.
            places.append(grid.layer(face)[free])
            normals.append(grid.normals(face)[free])
        at = np.concatenate(places)
        if len(at):
            times = _lacking(problem, top, problem.system.depends(term))
            across = np.concatenate(normals)
            if column is not None:
                across = np.insert(across, column, 0.0, axis=1)
            rows.append(Row(term, np.concatenate(numbers), name, times, grid.at_nodes(at), at, torch.from_numpy(across)))
    for term, name, kind in zip(equations, owner, kinds, strict=True):
        own = np.flatnonzero(~taken[name])
        sites = _inside(problem, grid, name, own, counts)
        rows.append(Row(term, own, name, _lacking(problem, top, kind), sites, own))
    return tuple(rows)


def periodic_coordinates(problem: Problem) -> frozenset[str]:
    """The coordinates along which every field is periodic."""
    found = periodic_fields(problem.conditions, problem.fields)
    for name, fields in found.items():
        if fields != set(problem.fields):
            raise BaselineError(
                f"along {name!r} only {listed(sorted(fields))} of the fields {listed(problem.fields)} are periodic; a grid "
                "needs all of them to be, or none"
            )
    return frozenset(found)


def outward(problem: Problem, face: Face, count: int) -> Tensor:
    """The outward normals at so many points of a face, ``(count, D)``."""
    normals = torch.zeros(count, len(problem.coordinates), dtype=torch.float64)
    normals[:, problem.coordinates.index(face.coordinate)] = face.sign
    return normals


def _placed(
    problem: Problem, grid: Grid, terms: Sequence[Term]
) -> tuple[dict[tuple[Term, str], list[tuple[Side, int]]], dict[tuple[str, Side], int]]:
    """Each condition and the field whose rows it takes, with its faces and its place among that field's conditions there.

    Prescribed values come first: at a corner they are kept. Also the last place on each face, by field.
    """
    conditions: dict[tuple[Term, str], list[tuple[Side, int]]] = {}
    counts: dict[tuple[str, Side], int] = {}
    on_face: dict[Side, list[Term]] = {}
    others = [term for term in terms if term.name not in problem.equations and not _initial(term)]
    for term in sorted(others, key=lambda term: term.field is None):
        place = term.place
        if isinstance(place, Opposite) and place.coordinate in grid.axes:
            continue
        if not isinstance(place, OnFaces) or not all(grid.holds(face) for face in place.faces):
            raise BaselineError(
                f"the condition {term.name!r} is neither given by sciml.Initial nor lies on faces of the box beside time; the "
                "method of lines cannot hold it"
            )
        for face in place.faces:
            on_face.setdefault(face, []).append(term)
    for face, there in on_face.items():
        for term, name in zip(there, _owners(problem, grid, face, there), strict=True):
            rank = counts[name, face] = counts.get((name, face), -1) + 1
            conditions.setdefault((term, name), []).append((face, rank))
    return conditions, counts


def _initial(term: Term) -> bool:
    """Whether it comes from ``sciml.Initial``."""
    return term.prescription is not None and term.prescription.what.startswith("Initial(")


def _owners(problem: Problem, grid: Grid, face: Side, terms: Sequence[Term]) -> list[str]:
    """The field whose rows each condition on a face takes, all together as good as can be.

    A condition goes to a field that it contains, best to the one of which it has the highest derivative along the normal; a
    field takes half of its order at one end before it takes more.
    """
    across = [face.coordinate] if face.coordinate in grid.axes else grid.coordinates
    order = {name: max(problem.order(name, each) for each in across) for name in problem.fields}
    slots = [(name, slot) for name in problem.fields for slot in range(max(order[name], 1))]
    cost = np.full((len(terms), len(slots)), 1000.0)
    for row, term in enumerate(terms):
        reach: dict[str, int] = {}
        for name, index in problem.system.depends(term):
            reach[name] = max(reach.get(name, 0), *(index.count(each) for each in across))
        if not reach:
            raise BaselineError(f"the condition {term.name!r} contains no field")
        for column, (name, slot) in enumerate(slots):
            if name in reach and term.field in (None, name):
                half = -(-order[name] // 2)
                cost[row, column] = (max(reach.values()) - reach[name]) + 20 * (slot >= half) + 0.01 * slot
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    if len(rows) < len(terms) or cost[rows, columns].max() >= 1000:
        raise BaselineError(
            f"{type(problem).__name__} has too many conditions on {face.describe(problem.domain)}: "
            f"{listed([term.name for term in terms])}"
        )
    return [slots[column][0] for column in columns]


def _inside(problem: Problem, grid: Grid, name: str, numbers: Array, counts: Counts) -> Sites:
    """Where the equation of a field holds: at its nodes, or along one coordinate with polynomials at those of Gauss.

    With c conditions at an end and derivatives of order p, the weight vanishes there to the order p - c, and of first order
    to c: then multiples of these weights are what energy estimates test with. At the nodes themselves, equations of odd
    order and waves written as two equations of first order would be unstable.

    Reference: J. Shen, A new dual-Petrov-Galerkin method for third and higher odd-order differential equations, SIAM
    Journal on Numerical Analysis 41 (2003).
    """
    if len(grid.coordinates) != 1:
        return grid.at_nodes(numbers)
    ((coordinate, axis),) = grid.axes.items()
    order = problem.order(name, coordinate)
    if not isinstance(axis, Chebyshev) or order == 0:
        return grid.at_nodes(numbers)
    given = [
        counts.get((name, Face(coordinate, "lower")), -1) + 1,
        counts.get((name, Face(coordinate, "upper")), -1) + 1,
    ]
    lower, upper = given if order == 1 else (max(order - each, 0) for each in given)
    places, _ = scipy.special.roots_jacobi(len(numbers), upper, lower)
    points = (axis.low + axis.high) / 2 + (axis.high - axis.low) / 2 * places
    return grid.at_points(points[:, None])


def _lacking(problem: Problem, top: Mapping[str, int], found: Asked) -> int:
    """How often a residual must be differentiated by time until it contains a highest derivative."""
    return max(0, min((top[name] - split(index, problem.time)[0] for name, index in found), default=0))


def _matched(problem: Problem, top: Mapping[str, int], kinds: Sequence[Asked], rates: bool) -> list[str]:
    """For each equation the field whose rows it takes: one whose highest derivative it contains, if one must have a rate."""
    fields = problem.fields
    cost = np.full((len(kinds), len(fields)), 100.0 if rates else 50.0)
    for row, found in enumerate(kinds):
        times = _lacking(problem, top, found)
        for name, index in found:
            passed, space = split(index, problem.time)
            if passed + times == top[name]:
                # Its own time derivative rather than one that is differentiated in space too.
                cost[row, fields.index(name)] = min(cost[row, fields.index(name)], 1.0 + len(space))
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    if cost[rows, columns].max() >= 100:
        lacking = [problem.equations[row] for row, column in zip(rows, columns, strict=True) if cost[row, column] >= 100]
        raise BaselineError(
            f"{type(problem).__name__}: the equation(s) {listed(lacking)} give no field its rate of change, as that of an "
            "incompressible flow gives none to the pressure; the method of lines cannot solve such problems"
        )
    return [fields[column] for column in columns]


def _check_counts(problem: Problem, grid: Grid, counts: Counts) -> None:
    """Refuse fewer or more conditions on sides than the equations have derivatives across them, half of these on each."""
    for where, names, sides in grid.ends():
        orders = {field: max(problem.order(field, name) for name in names) for field in problem.fields}
        wrong = next((field for field, order in orders.items() if grid.few_neighbours and order != 2), None)
        if wrong is not None:
            raise BaselineError(
                f"{type(problem).__name__}: {wrong!r} is differentiated {orders[wrong]} time(s) in space; on scattered nodes "
                "equations of second order are solved"
            )
        needed = {field: order * len(sides) // 2 for field, order in orders.items()}
        given = {field: sum(counts.get((field, side), -1) + 1 for side in sides) for field in orders}
        if sum(needed.values()) == sum(given.values()):
            continue
        under = sum(given.values()) < sum(needed.values())
        by_field = "; ".join(f"{field}: {given[field]} for {order} derivative(s)" for field, order in orders.items())
        raise BaselineError(
            f"{type(problem).__name__} has {'too few' if under else 'too many'} conditions on {where} ({by_field}): "
            f"{'add' if under else 'remove'} some, or say that a coordinate is periodic"
        )

r"""Discontinuities by ``torch.where``: where residuals compare coordinates, however small what they switch on is.

A heater of a thousandth of a plate lies between fifty thousand points. The comparisons that state it, ``(x > a) & (x < b)``,
are seen while the residual is computed: the zeros of :math:`x - a` and :math:`x - b` along each coordinate divide the domain
into cells, and some points of each see what each is like. A comparison that comes out the same at all points, such as
:math:`(x - a)^2 + (y - b)^2 < r^2`, is followed to where it does not, by steps along the coordinates. What several slanted
comparisons bound together, each of which is true and false at many points, is seen by no more than the points.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sciml.errors import SciMLError
from sciml.geometry import Face, Interior, OnFaces, Place, PointSet, Within, draw
from sciml.jets import RandomJets
from sciml.jets.random import USUAL
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.problem import Problem
from sciml.typing import Points

_COMPARISONS = {"gt", "lt", "ge", "le", "greater", "less", "greater_equal", "less_equal"}
_OF_ONE = {"sign", "sgn", "heaviside"}
# Places along a line on which zeros are looked for; how near those of two lines are that are the same, as a share of the line.
_PLACES, _SAME = 257, 1e-9
# What is zero of a difference that is linear; how often a place is halved; places at most at which equations jump.
_LINEAR, _BISECTIONS, _MOST = 1e-13, 48, 16
# Cells at most, points of each, and of all; points a comparison is looked at, the best that are followed, and their steps.
_CELLS, _EACH, _ADDED, _LOOKED_AT, _FOLLOWED, _STEPS = 2048, 8, 1000, 4096, 8, 120

Seen = Callable[[Points, Tensor | None], Tensor]


def at_same_jets(problem: Problem, term: Term) -> Callable[[Points, Tensor | None], Tensor]:
    """A residual by points and normals, with the same fields and derivatives everywhere."""
    bound, jets = problem.bind_initial(), RandomJets(1, {}, problem.domain.half_widths, USUAL[0])

    def seen(points: Points, normals: Tensor | None) -> Tensor:
        evaluation = Evaluation.of(bound, (points,), [jets.repeated(len(points))], normals)
        return term.evaluate(evaluation).detach().nan_to_num(0.0, 0.0, 0.0)

    return seen


class _Compared(TorchFunctionMode):
    """The differences of what is compared while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", "").strip("_"), kwargs or {}
        values = [*args, *(given[each] for each in ("input", "self", "other") if each in given)]
        if name in _OF_ONE:
            values[1:] = [0.0]
        if (name in _COMPARISONS or name in _OF_ONE) and len(values) == 2 and all(map(_is_real, values)):
            self.found.append(torch.as_tensor(values[0] - values[1]).detach())
        return func(*args, **given)


def _is_real(value: Any) -> bool:
    """Whether something is a number, or a tensor of real ones."""
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, numbers.Real)


def with_thresholds(problem: Problem, place: Place, sample: PointSet, seen: Seen) -> PointSet:
    """Points of a place, and before those of each side some of every cell that comparisons in a residual divide it into.

    Args:
        problem: whose coordinates are compared.
        place: the inside of the domain or of a part, or its flat sides; of others the sample is returned as it is.
        sample: points of it.
        seen: a residual by points and normals, with the same fields and derivatives everywhere.
    """
    sides = place.faces if isinstance(place, OnFaces) else (None,)
    flat = all(side is None or isinstance(side, Face) for side in sides)
    if not (flat and isinstance(place, Interior | Within | OnFaces)) or not _compared(seen, sample.part(slice(2))):
        return sample
    parts = list[PointSet]()
    for side, own in zip(sides, sample.by_side(), strict=True):
        fixed = -1 if side is None else problem.coordinates.index(side.coordinate)
        added = _in_cells(problem, place, own, seen, fixed) if len(own.points[0]) else own.points[0]
        normals = None if own.normals is None else own.normals[:1].expand(len(added), -1)
        parts.append(PointSet.joined([PointSet((added,), normals), own]))
    return PointSet.joined(parts, sides=bool(sample.faces))


def switched(problem: Problem, coordinate: str) -> list[float]:
    """Discontinuities of equations: the values of a coordinate at which they compare it whatever the others are, in order.

    None where there are very many, or where unknown constants may move them.
    """
    column, found = problem.coordinates.index(coordinate), [torch.zeros(0, dtype=torch.float64)]
    for term in problem.equation_residuals() if not problem.unknowns else ():
        sample = draw(term.place, problem.domain, 2, np.random.default_rng(0))
        with contextlib.suppress(SciMLError):
            found.append(cuts(problem, sample, at_same_jets(problem, term), column))
    apart = _apart(torch.cat(found), problem.domain.lower[column], problem.domain.upper[column]).tolist()
    return apart if len(apart) <= _MOST else []


def cuts(problem: Problem, sample: PointSet, seen: Seen, column: int) -> Tensor:
    """The values of a coordinate at which something is compared whatever the others are, in order, ``(k,)``."""
    low, high = problem.domain.lower[column], problem.domain.upper[column]
    places, lines = torch.linspace(low, high, _PLACES, dtype=torch.float64), list[list[Tensor]]()
    for number in (0, len(sample.points[0]) - 1):
        along = partial(_along, seen, sample.part(slice(number, number + 1)), column)
        lines.append([_zeros(places, values, along, which) for which, values in enumerate(along(places))])
    found = [places[:0]]
    # What is compared here and there alone is not the same comparison.
    for one, other in zip(*lines, strict=True) if len(lines[0]) == len(lines[1]) else ():
        near = (one[:, None] - other).abs() <= _SAME * (high - low)
        found.append(one[near.any(1)] if len(other) else one[:0])
    return _apart(torch.cat(found), low, high)


def _apart(places: Tensor, low: float, high: float) -> Tensor:
    """Places in order, without those that lie at the ends, or at the one before."""
    places, least = places.sort().values, _SAME * (high - low)
    inside = (places > low + least) & (places < high - least)
    return places[inside & (places.diff(prepend=places.new_tensor([-math.inf])) > least)]


def _along(seen: Seen, point: PointSet, column: int, places: Tensor) -> list[Tensor]:
    """The differences of what is compared at a point moved along a coordinate, ``(k,)`` each."""
    moved = point.points[0].repeat(len(places), 1)
    moved[:, column] = places
    normals = None if point.normals is None else point.normals.expand(len(places), -1)
    return _compared(seen, PointSet((moved,), normals))


def _compared(seen: Seen, sample: PointSet) -> list[Tensor]:
    """The differences of what a residual compares at points, ``(n,)`` each."""
    (points,) = sample.points
    with _Compared() as mode:
        seen(points, sample.normals)
    return [each for each in mode.found if each.shape == (len(points),)]


def _zeros(places: Tensor, values: Tensor, along: Callable[[Tensor], list[Tensor]], which: int) -> Tensor:
    """Zeros of one of the differences: the secants' where that is linear, else by bisection."""
    change = torch.nonzero((values[:-1] < 0) != (values[1:] < 0))[:, 0]
    low, high, here, there = places[change], places[change + 1], values[change], values[change + 1]
    secant = low + here / (here - there) * (high - low)
    found = along(secant) if len(change) else []
    if len(found) <= which or bool((found[which].abs() <= _LINEAR * values.abs().max()).all()):
        return secant
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if len(found := along(middle)) <= which:
            return secant
        before = (found[which] < 0) == (here < 0)
        low, high = torch.where(before, middle, low), torch.where(before, high, middle)
    return (low + high) / 2


def _in_cells(problem: Problem, place: Place, sample: PointSet, seen: Seen, fixed: int) -> Points:
    """Points of every cell, at one value of a ``fixed`` coordinate, and those to which comparisons were followed."""
    generator, edges = np.random.default_rng(0), list[list[float]]()
    lower, upper = problem.domain.lower, problem.domain.upper
    for column in range(len(lower)):
        inner = [] if column == fixed else cuts(problem, sample, seen, column).tolist()
        edges.append([lower[column], *inner, upper[column]])
    cells = math.prod(len(each) - 1 for each in edges)
    made, each = [np.empty((0, len(lower)))], max(1, min(_EACH, _ADDED // cells))
    for cell in itertools.product(*map(itertools.pairwise, edges)) if 1 < cells <= _CELLS else ():
        low, high = np.transpose(cell)
        made.append(low + (high - low) * generator.random((each, len(lower))))
    # Whoever takes the first of them sees all cells.
    points = torch.from_numpy(generator.permutation(np.concatenate(made)))
    if fixed >= 0:
        points[:, fixed] = sample.points[0][0, fixed]
    points = torch.cat([points, _followed(problem, sample, seen, fixed)])
    domain = place.part if isinstance(place, Within) else problem.domain
    distance = torch.from_numpy(domain.distance(points.numpy()))
    return points[distance < 0 if fixed < 0 else distance <= _SAME * domain.thickness]


def _followed(problem: Problem, sample: PointSet, seen: Seen, fixed: int) -> Points:
    """Direct search: points at which comparisons turn out otherwise than at all points of a sample."""
    few = sample.part(torch.linspace(0, len(sample.points[0]) - 1, _LOOKED_AT).long().unique())
    lower, upper = (torch.tensor(each, dtype=torch.float64) for each in (problem.domain.lower, problem.domain.upper))
    free = [column for column in range(len(lower)) if column != fixed]
    ways = torch.cat([torch.eye(len(lower), dtype=torch.float64), -torch.eye(len(lower), dtype=torch.float64)])
    ways = ways[[*free, *(len(lower) + column for column in free)]] * (upper - lower)
    found = [few.points[0][:0]]
    for number, values in enumerate(_compared(seen, few)):
        if bool((values > 0).any() and (values <= 0).any()) or float(values.max()) == float(values.min()):
            continue
        sign = 1.0 if float(values[0]) > 0 else -1.0
        places, step = few.points[0][(sign * values).argsort()[:_FOLLOWED]], 1 / 8

        for _ in range(_STEPS):
            tried = torch.cat([places[:, None], (places[:, None] + step * ways).clamp(lower, upper)], dim=1)
            flat = tried.flatten(0, 1)
            normals = None if few.normals is None else few.normals[:1].expand(len(flat), -1)
            compared = _compared(seen, PointSet((flat,), normals))
            if len(compared) <= number:
                # Other points are asked for other things.
                break
            # How far it is from turning, negative where it has.
            left = sign * compared[number].view(tried.shape[:2])
            best = left.argmin(1)
            places = tried[torch.arange(len(tried)), best]
            if bool((left.min(1).values <= 0).any()):
                found.append(places[left.min(1).values <= 0])
                break
            step = step if bool((best > 0).any()) else step / 2
    return torch.cat(found)

"""Pulses and jumps of equations and conditions along time, or an only coordinate, which points step over.

What these do by coordinates alone costs no solution to see: with the same fields and derivatives everywhere a residual is
looked at in very many places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sciml.errors import SciMLError
from sciml.geometry import Face, Interface, Interior, OnFaces, Place, PointSet, Within, draw
from sciml.problem.conditions import Term
from sciml.problem.problem import Problem
from sciml.problem.thresholds import at_same_jets, cuts, with_thresholds
from sciml.typing import Points

# Places that are looked at along a line; half the width of what is narrow, in places; what of a residual's range is a pulse, if
# it is not rounding; one pulse at most in each of so many parts, and in half of them.
_PLACES, _NARROW, _HEIGHT, _ROUNDING, _PARTS = 20_000, 64, 0.05, 1e-13, 50
# What changes within so many places beside a jump is part of it, if little; how often its place is halved.
_BESIDE, _BISECTIONS = 4, 60
# How soon after the last place before a jump all is as it is after it, as a share of the largest time; what of a value jumps.
_SOON, _JUMPS = 1e-15, 1e-6
# Points inside, and on each face, through which lines may lead; so many do for each of two reasons. Points of a set that are
# copied to a pulse.
_INSIDE, _ON_FACES, _LINES, _COPIES = 2**16, 512, 2, 16


def pulses(problem: Problem) -> tuple[Points, list[float]]:
    """Pulses and discontinuities in time, or an only coordinate: the middles ``(k, D)`` of pulses, and where steps are to end.

    A feature is higher or lower than what lies on both of its sides, a three hundredth of the domain away. Steps end in its
    middle, and just before a jump. Lines along time lead through the points of a place where a residual differs most from that
    at others, and changes fastest: a flash that is short and small is seen by its flanks.
    """
    column = marching(problem)
    narrow = sudden = torch.zeros(0, len(problem.coordinates), dtype=torch.float64)
    if column is None:
        return narrow, []
    for term in problem.terms():
        if not _at_all_times(term.place, problem.coordinates[column]):
            continue
        try:
            found = _of_term(problem, term, column)
        except SciMLError:
            # What is wrong with an equation is told elsewhere.
            continue
        narrow, sudden = (torch.cat(each) for each in zip((narrow, sudden), found, strict=True))
    # One that lies on the border of two parts, or is seen on several lines, is there more than once.
    whole = problem.domain.upper[column] - problem.domain.lower[column]
    narrow = _apart(narrow, column, 2 * _NARROW / _PLACES * whole)
    return narrow, _apart(torch.cat([narrow, sudden]), column, _ROUNDING * whole)[:, column].tolist()


def _apart(points: Points, column: int, least: float) -> Points:
    """Points in the order of a coordinate, without those that lie too near to the one before."""
    points = points[points[:, column].argsort()]
    return points[points[:, column].diff(prepend=points.new_tensor([-math.inf])) > least]


def marching(problem: Problem) -> int | None:
    """The column of the coordinate along which pulses are looked for: that of time, or the only one; None without either."""
    if len(problem.coordinates) == 1:
        return 0
    in_time = problem.time is not None and Face(problem.time, "lower") in problem.domain.sides
    return problem.coordinates.index(str(problem.time)) if in_time else None


def sudden_changes(problem: Problem, stops: Sequence[float]) -> list[tuple[float, float]]:
    """Sudden changes of boundary values: those ``stops`` at which what is prescribed of a field jumps, and when it has.

    What follows begins with a layer, as after a start that contradicts the conditions. Fluxes that jump leave none to speak of,
    and what does not spread, as waves, carries the jump on.
    """
    time, found = str(problem.time), set[tuple[float, float]]()
    if not stops or problem.time not in problem.coordinates:
        return []
    column = problem.coordinates.index(time)
    soon = _SOON * max(map(abs, problem.domain.bounds[time]))
    for term in problem.terms():
        values = all(not index and _spreads(problem, name) for name, index in problem.system.asked(term))
        if not values or not isinstance(term.place, OnFaces | Interface) or not _at_all_times(term.place, time):
            continue
        sample, seen = draw(term.place, problem.domain, _ON_FACES, np.random.default_rng(0)), at_same_jets(problem, term)
        times = torch.tensor(stops, dtype=torch.float64)
        normals = None if sample.normals is None else sample.normals.repeat_interleave(len(stops), 0)
        at = [seen(_moved(sample.points[0], column, each), normals).view(-1, len(stops)) for each in (times, times + soon)]
        jumps = (at[1] - at[0]).abs().amax(0) > _JUMPS * torch.cat(at).abs().max()
        found |= {(each, each + soon) for each, jump in zip(stops, jumps.tolist(), strict=True) if jump}
    return sorted(found)


def _spreads(problem: Problem, name: str) -> bool:
    """Whether a field is of first order in time and of second or higher order in another coordinate."""
    orders = {each: problem.order(name, each) for each in problem.coordinates}
    return orders.pop(str(problem.time)) == 1 and max(orders.values(), default=0) > 1


def with_pulses(problem: Problem, place: Place, sample: PointSet, middles: Points) -> PointSet:
    """Collocation points of a place and, before those of each side, middles of pulses inside and copies of some at their times.

    Pulses at times beyond the domain's do not count, and a place at one time has none.
    """
    column = marching(problem)
    if column is None or not len(middles) or not _at_all_times(place, problem.coordinates[column]):
        return sample
    at, middles = middles[:, column], middles.to(sample.points[0])
    middles = middles[(at >= problem.domain.lower[column]) & (at <= problem.domain.upper[column])]
    sides = sample.by_side()
    copies = max(1, _COPIES // len(sides)) if len(problem.coordinates) > 1 else 0
    parts = list[PointSet]()
    for own in sides:
        # Where only the first of the points serve, these do.
        first = own.part(slice(copies))
        normals = None if first.normals is None else first.normals.repeat_interleave(len(middles), 0)
        parts.append(PointSet.joined([PointSet((_moved(first.points[0], column, middles[:, column]),), normals), own]))
    if sample.normals is None:
        domain = place.part if isinstance(place, Within) else problem.domain
        inside = torch.from_numpy(domain.distance(middles.cpu().numpy()) < 0).to(middles.device)
        parts.insert(0, PointSet((middles[inside],)))
    return PointSet.joined(parts, sides=bool(sample.faces))


def _at_all_times(place: Place, coordinate: str) -> bool:
    """Whether a place is a set of points that has the same at other times."""
    if isinstance(place, OnFaces | Interface):
        sides = place.faces if isinstance(place, OnFaces) else place.sides
        return not any(isinstance(each, Face) and each.coordinate == coordinate for each in sides)
    return isinstance(place, Interior | Within)


def _moved(points: Points, column: int, times: Tensor) -> Points:
    """Points ``(n, D)`` at each of other times ``(k,)``: ``(n k, D)``."""
    found = points.repeat_interleave(len(times), 0)
    found[:, column] = times.repeat(len(points))
    return found


def _of_term(problem: Problem, term: Term, column: int) -> tuple[Points, Points]:
    """The middles of the narrow features of one residual, and the places of its jumps."""
    low, high = problem.domain.lower[column], problem.domain.upper[column]
    seen = at_same_jets(problem, term)
    count = 1 if len(problem.coordinates) == 1 else _INSIDE if isinstance(term.place, Interior | Within) else _ON_FACES
    sample = draw(term.place, problem.domain, count, np.random.default_rng(0))
    turns = cuts(problem, sample, seen, column)
    if count > 1:
        sample = with_thresholds(problem, term.place, sample, seen)
    points, normals = sample.points[0], sample.normals
    if len(points) > 1:
        # Most residuals know nothing of time: for these no line is walked.
        other = points.clone()
        other[:, column] = low + high - points[:, column]
        here, there = seen(points, normals), seen(other, normals)
        if bool((here == there).all()):
            return points[:0], points[:0]
        most = [(here - each).abs().topk(min(_LINES, len(here))).indices for each in (here.median(), there)]
        chosen = torch.cat(most).unique()
        points, normals = points[chosen], None if normals is None else normals[chosen]
    places = low + (high - low) * (torch.arange(_PLACES, dtype=torch.float64) + 0.5) / _PLACES
    edges = torch.cat([turns.new_tensor([low]), turns, turns.new_tensor([high])])
    # Between two comparisons a line is looked at, however near they are.
    places = torch.cat([places, (edges[1:] + edges[:-1]) / 2]).sort().values if len(turns) else places
    narrow, sudden = [points[:0]], [points[:0]]
    for number, point in enumerate(points.split(1)):
        along = partial(_at, seen, point, None if normals is None else normals[number], column)
        values = along(places)
        if float(values.max() - values.min()) <= _ROUNDING * float(values.abs().max()):
            continue
        narrow.append(_moved(point, column, _narrow(values, places)))
        sudden.append(_moved(point, column, _jumps(values, places, along)))
    if len(points) > 1:
        # What moves jumps at another time on every line.
        times = torch.cat(sudden)[:, column]
        sudden = [each[(abs(each[:, column, None] - times) <= _ROUNDING * (high - low)).sum(1) > 1] for each in sudden]
    return torch.cat(narrow), torch.cat(sudden)


def _at(
    seen: Callable[[Points, Tensor | None], Tensor], point: Points, normal: Tensor | None, column: int, times: Tensor
) -> Tensor:
    """A residual at a point at other times."""
    return seen(_moved(point, column, times), None if normal is None else normal.expand(len(times), -1))


def between(before: Tensor, here: Tensor, after: Tensor) -> Tensor:
    """How far values lie above or below what is on both sides of them."""
    return (here - torch.clamp(here, torch.minimum(before, after), torch.maximum(before, after))).abs()


def _jumps(seen: Tensor, places: Tensor, along: Callable[[Tensor], Tensor]) -> Tensor:
    """Discontinuities along a line: the last places before them, by bisection; what takes more than two places is none."""
    size, change = float(seen.max() - seen.min()), seen.diff().abs()
    beside = torch.nn.functional.pad(change, (_BESIDE, _BESIDE)).unfold(0, 2 * _BESIDE + 1, 1).sum(1)
    first = torch.nonzero((change > _HEIGHT * size) & (change >= 0.9 * beside))[:, 0]
    low, high, here, there = places[first], places[first + 1], seen[first], seen[first + 1]
    for _ in range(_BISECTIONS if len(first) else 0):
        middle = (low + high) / 2
        values = along(middle)
        before = (values - here).abs() <= (values - there).abs()
        low, high = torch.where(before, middle, low), torch.where(before, high, middle)
    return low


def _narrow(seen: Tensor, places: Tensor) -> Tensor:
    """The middles of what is narrow along a line, from values at places ``(n,)``."""
    excess = between(seen[: -2 * _NARROW], seen[_NARROW:-_NARROW], seen[2 * _NARROW :])
    size, found = float(seen.max() - seen.min()), list[Tensor]()
    for part, at in zip(excess.tensor_split(_PARTS), places[_NARROW:-_NARROW].tensor_split(_PARTS), strict=True):
        high = torch.nonzero(part > max(_HEIGHT * size, 0.9 * float(part.max())))[:, 0]
        if len(high):
            found.append(at[high[len(high) // 2]])
    # What is as quick everywhere is an oscillation, which any points see.
    return torch.stack(found) if 0 < len(found) <= _PARTS // 2 else places[:0]

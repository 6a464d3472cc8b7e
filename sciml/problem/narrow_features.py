r"""Undersampled data: sources, coefficients, starts and boundary values that are narrower than the distance of points.

A heater of a thousandth of a plate, or a pulse in a start, lies between the points of most sets: equations and conditions hold
at all of these, and the feature is lost. What a residual does by coordinates alone, with the same fields and derivatives
everywhere, is cheap to see: of fifty thousand points of its place those are rare at which it, or how far it lies above or below
what is a 150th of the domain to both sides, is outside the range of all but two in a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sciml.errors import SciMLError
from sciml.geometry import Interior, OnFaces, Place, PointSet, Within, draw
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.observations import Observation, Prior
from sciml.problem.problem import Problem
from sciml.problem.pulses import between
from sciml.problem.thresholds import at_same_jets, with_thresholds

# Points that are looked at; the share of them that is rare; how far beyond the range of the others, as a share of that, and of
# what is farthest; rounding; points that are kept of each side; coordinates at most, for in more of them points see little.
_MANY, _RARE, _BEYOND, _FLANKS, _ROUNDING, _KEPT, _MOST = 50_000, 2e-3, 0.5, 1e-2, 1e-9, 96, 4
# How many times as many points of the box as are looked at are drawn at most to find these; how many are looked at at least.
_LOOKED_AT, _LEAST = 100, 1000
# How many times as wide a domain is as it is to what lies aside; what smooth functions rise by within that, of their range.
_ASIDE, _SMOOTH = 150, 2e-2
# The share of a side's points that lie at features, and how many do at least.
_SHARE, _FEWEST = 0.1, 4


def narrow_features(problem: Problem) -> dict[Place, PointSet]:
    """Of each place that has some: points at which a residual has values that it hardly has anywhere else there.

    Along an only coordinate pulses are looked for instead (``pulses``).
    """
    found, samples = dict[Place, list[PointSet]](), dict[Place, PointSet]()
    for term in problem.terms() if 1 < len(problem.coordinates) <= _MOST else ():
        place = term.place
        if not isinstance(place, Interior | Within | OnFaces):
            continue
        if place not in samples:
            # To find so many in a domain that fills little of its box would take minutes.
            filling = 1.0 if isinstance(place, OnFaces) else getattr(place, "part", problem.domain).filling
            many = max(_LEAST, round(_MANY * min(1.0, _LOOKED_AT * filling)))
            samples[place] = draw(place, problem.domain, many, np.random.default_rng(0))
        try:
            sample = with_thresholds(problem, place, samples[place], at_same_jets(problem, term))
            rare = _seen_rare(problem, term, sample)
        except SciMLError:
            # What is wrong with an equation is told elsewhere.
            continue
        if bool(rare.any()):
            found.setdefault(place, []).append(_kept(sample, rare))
    return {place: _together(each) for place, each in found.items()}


def with_features(
    blocks: Iterable[Collocation], features: Mapping[Place, PointSet], which: int = 0, sets: int = 1
) -> list[Collocation]:
    """Blocks with points at the narrow features of their places before those of each side: every so many-th of them.

    They are a tenth of a side's points at most, so that means over a place remain about that.
    """

    def more(block: Collocation) -> Collocation:
        place = block.terms[0].place
        measured = any(isinstance(term.evaluate, Observation | Prior) for term in block.terms)
        if measured or place not in features:
            return block
        return replace(block, sample=_joined(features[place], block.sample, which, sets))

    return [more(block) for block in blocks]


def _seen_rare(problem: Problem, term: Term, sample: PointSet) -> Tensor:
    """Points at which a residual with the same jets everywhere is rare, or lies above or below both of its sides, ``(n,)``.

    The sides are those along each coordinate. The tip of a curve along which data jump is above along one of them, too, by a
    point or two, and what is small is along all.
    """
    points, seen = sample.points[0], at_same_jets(problem, term)
    here = seen(points, sample.normals).expand(len(points))
    # Most residuals are the same everywhere.
    whole = here.max() - here.min()
    found, beside = _rare(here), list[Tensor]()
    for column, (low, high) in enumerate(problem.domain.bounds.values() if bool(whole > 0) else ()):
        aside = points.new_zeros(points.shape[1])
        aside[column] = (high - low) / _ASIDE
        inside = ((points - aside)[:, column] >= low) & ((points + aside)[:, column] <= high)
        sides = (seen(points + step, sample.normals).expand(len(points)) for step in (-aside, aside))
        before, after = (torch.where(inside, side, here) for side in sides)
        # So near to its maxima a smooth function is above both sides as well.
        above = between(before, here, after)
        beside += [_rare(torch.where(above > _SMOOTH * whole, above, 0.0))] if bool(inside.any()) else []
    if beside:
        several = torch.stack(beside).any(0)
        found |= several if int(several.sum()) >= _FEWEST else torch.stack(beside).all(0)
    return found


def _rare(values: Tensor) -> Tensor:
    """Outliers: values ``(n,)`` far outside the range of nearly all others."""
    low, middle, high = torch.quantile(values, values.new_tensor([_RARE, 0.5, 1 - _RARE]))
    farthest = (values - middle).abs().max()
    beyond = _BEYOND * (high - low) + _FLANKS * farthest
    # What differs by rounding alone is nowhere rare.
    return ((values < low - beyond) | (values > high + beyond)) & (farthest > _ROUNDING * values.abs().max())


def _kept(sample: PointSet, rare: Tensor) -> PointSet:
    """A few rare points of each side."""
    own = zip(sample.by_side(), rare.split(sample.faces or (len(rare),)), strict=True)
    return PointSet.joined([side.part(torch.nonzero(chosen)[:_KEPT, 0]) for side, chosen in own], sides=True)


def _together(kept: Sequence[PointSet]) -> PointSet:
    """The rare points of several residuals of a place, side by side."""

    def in_turn(side: Sequence[PointSet]) -> PointSet:
        # Whoever takes the first of them sees all.
        return PointSet.joined(side).part(torch.cat([torch.arange(len(own.points[0])) for own in side]).argsort(stable=True))

    return PointSet.joined([in_turn(side) for side in zip(*(each.by_side() for each in kept), strict=True)], sides=True)


def _joined(first: PointSet, second: PointSet, which: int, sets: int) -> PointSet:
    """The points of two sets of a place, those of the first before those of the second on each of its sides."""
    like, parts = second.points[0], list[PointSet]()
    for mine, theirs in zip(first.to(like.device, like.dtype).by_side(), second.by_side(), strict=True):
        most = max(_FEWEST, round(_SHARE * len(theirs.points[0])))
        parts.append(PointSet.joined([mine.part(slice(which, None, sets)).part(slice(most)), theirs]))
    return PointSet.joined(parts, sides=bool(second.faces))

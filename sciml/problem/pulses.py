"""Pulses: narrow features of equations along the one coordinate of ordinary differential equations, which points step over.

What equations do by their coordinate alone costs no solution to see: with the same fields and derivatives everywhere a
residual is looked at in very many places.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sciml.errors import SciMLError
from sciml.geometry import Interior
from sciml.jets import RandomJets
from sciml.jets.random import USUAL
from sciml.problem.conditions import Evaluation
from sciml.problem.problem import Problem

# Places that are looked at; half the width of what is narrow, in places; what of a residual's range is a pulse; one pulse at
# most in each of so many parts, and in half of them.
_PLACES, _NARROW, _HEIGHT, _PARTS = 20_000, 64, 0.05, 50


def pulses(problem: Problem) -> Tensor:
    """The middles of narrow features ``(k, 1)`` of the equations, in order; none of problems of several coordinates.

    A feature is higher or lower than what lies on both of its sides, a three hundredth of the domain away: steps are none.
    """
    found = torch.zeros(0, len(problem.coordinates), dtype=torch.float64)
    terms = [term for term in problem.terms() if isinstance(term.place, Interior)]
    if len(problem.coordinates) != 1 or not terms:
        return found
    ((low, high),) = problem.domain.bounds.values()
    places = low + (high - low) * (torch.arange(_PLACES, dtype=torch.float64) + 0.5) / _PLACES
    same = RandomJets(1, {}, problem.domain.half_widths, USUAL[0]).repeated(len(places))
    bound, flagged = problem.bind_initial(), list[Tensor]()
    for term in terms:
        try:
            seen = term.evaluate(Evaluation.of(bound, (places[:, None],), [same])).detach()
        except SciMLError:
            # What is wrong with an equation is told elsewhere.
            continue
        before, here, after = seen[: -2 * _NARROW], seen[_NARROW:-_NARROW], seen[2 * _NARROW :]
        excess = (here - torch.clamp(here, torch.minimum(before, after), torch.maximum(before, after))).abs().nan_to_num(0.0)
        size = float((seen.max() - seen.min()).nan_to_num(0.0))
        there = list[Tensor]()
        for part, at in zip(excess.tensor_split(_PARTS), places[_NARROW:-_NARROW].tensor_split(_PARTS), strict=True):
            high_there = torch.nonzero(part > max(_HEIGHT * size, 0.9 * float(part.max())))[:, 0]
            if len(high_there):
                there.append(at[high_there[len(high_there) // 2]])
        # What is as quick everywhere is an oscillation, which any points see.
        flagged += there if len(there) <= _PARTS // 2 else []
    if not flagged:
        return found
    middles = torch.stack(flagged).unique()
    # One that lies on the border of two parts is in both of them.
    apart = torch.cat([torch.ones(1, dtype=torch.bool), middles.diff() > 2 * _NARROW / _PLACES * (high - low)])
    return middles[apart][:, None]

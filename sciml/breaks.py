"""Breaks that are meant: places where a problem itself lets derivatives jump, as where two materials meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sciml.conditions import Scene, Term
from sciml.derivative import JetSpace
from sciml.domains import Domain, Interface, Interior, Within
from sciml.errors import SciMLError
from sciml.made_up import USUAL, MadeUp
from sciml.problem import Problem
from sciml.scaling import Sizes
from sciml.typing import Points

_NEAR = 1e-6
_ASIDE = 1e-7
_JUMP = 1e-5


def broken_at(problem: Problem, ends: Points) -> bool:
    """Whether a jump between two points is the problem's own.

    That is so on a surface on which conditions lie or which an equation ends at, and where the coefficients of an equation
    jump, so that the same fields and derivatives give it other values at either side.

    Args:
        problem: the mathematics.
        ends: two points very close to each other, shape ``(2, D)``.

    Example:
        >>> import torch, sciml
        >>> from sciml.breaks import broken_at
        >>> broken_at(sciml.gallery.problem("heat_rod"), torch.full((2, 2), 0.3, dtype=torch.float64))
        False
    """
    middle = ends.mean(dim=0, keepdim=True).numpy()
    terms = problem.terms()
    if any(_on_surface(term, middle) for term in terms):
        return True
    step = (
        torch.sign(ends[1] - ends[0])
        * _ASIDE
        * torch.tensor([high - low for low, high in problem.domain.bounds.values()], dtype=torch.float64)
    )
    sides = torch.stack([ends[0] - step, ends[1] + step])
    return any(_coefficients_jump(problem, term, sides) for term in terms if isinstance(term.place, Interior))


def _on_surface(term: Term, point: np.ndarray) -> bool:
    def touches(domains: Sequence[Domain]) -> bool:
        return all(abs(float(each.distance(point)[0])) <= _NEAR * each.diameter for each in domains)

    place = term.place
    if isinstance(place, Interface):
        return touches((place.first, place.second))
    return isinstance(place, Within) and touches((place.part,))


def _coefficients_jump(problem: Problem, term: Term, sides: Tensor) -> bool:
    bound = problem.bind_initial()
    coordinates = dict(zip(problem.coordinates, sides.unbind(1), strict=True))
    unit = Sizes((0.0,) * len(problem.fields), (1.0,) * len(problem.fields))
    for attempt in USUAL:
        same = MadeUp(problem, unit, attempt, 1, 0).part(torch.zeros(2, dtype=torch.long))
        try:
            values = term.evaluate(Scene(bound, (JetSpace(coordinates, problem.fields, same),))).detach()
        except SciMLError:
            continue
        if float((values[1] - values[0]).abs()) > _JUMP * float(values.abs().max()) > 0:
            return True
    return False

r"""Kinks: derivatives that jump, so that the next derivative is not what differentiation says it is.

Along a line with coordinate s a derivative f and the next one g must satisfy :math:`f(b) - f(a) = \int_a^b g\,ds`. Where a
network with ReLU is asked for :math:`u_{xx}`, it does not: :math:`u_x` jumps, and :math:`u_{xx}` knows nothing of it. The
interval with the largest difference is cut again and again: for smooth functions the difference falls with the fifth power
of its length, for a jump it stays.

Breaks that are meant: places where a problem itself lets derivatives jump, as where two materials meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sciml.errors import SciMLError
from sciml.geometry import Domain, Interface, Interior, Within, draw
from sciml.jets import AutogradJets, JetSpace, RandomJets
from sciml.jets.random import USUAL
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, Term
from sciml.typing import MultiIndex, Points

_NEAR = 1e-6

_ASIDE = 1e-7

_BREAK = 1e-5


def broken_at(problem: Problem, ends: Points) -> bool:
    """Whether a jump between two points is the problem's own.

    That is so on a surface on which conditions lie or which an equation ends at, and where the coefficients of an equation
    jump, so that the same fields and derivatives give it other values at either side.

    Args:
        problem: the mathematics.
        ends: two points very close to each other, shape ``(2, D)``.

    Example:
        >>> import torch, sciml
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
    unit = dict.fromkeys(problem.fields, (0.0, 1.0))
    for attempt in USUAL:
        same = RandomJets(unit, problem.domain.half_widths, attempt, 1, 0).part(torch.zeros(2, dtype=torch.long))
        try:
            values = term.evaluate(Evaluation(bound, (JetSpace(coordinates, problem.fields, same),))).detach()
        except SciMLError:
            continue
        if float((values[1] - values[0]).abs()) > _BREAK * float(values.abs().max()) > 0:
            return True
    return False


_FEWEST_LINES, _MOST_LINES, _ALL_LINES = 2, 4, 12

_INTERVALS = 24

_PARTS = 8

_ROUNDS = 9

_JUMP = 1e-6

_RESOLVED = 1e-9

_PLACES = 6

Jet = tuple[str, MultiIndex]


@dataclass(frozen=True)
class Kink:
    """A jump of a derivative.

    Attributes:
        jet: the derivative that is wrong there, the one above that which jumps.
        below: the derivative that jumps.
        coordinate: along which it does.
        ends: two points at either side of it, shape ``(2, D)``, very close to each other.
        share: the jump by the largest value of the derivative that jumps.
    """

    jet: Jet
    below: Jet
    coordinate: str
    ends: Tensor
    share: float


def kinks(trial: nn.Module, problem: Problem, asked: Sequence[Jet]) -> list[Kink]:
    """The derivatives of a trial function, of those that are asked for, below which something jumps.

    Args:
        trial: the trial function, in float64 on the CPU.
        problem: whose coordinates, fields and domain are meant.
        asked: the derivatives; with ``u_xx`` it is ``u_x`` that must not jump, but where the problem itself breaks off.
    """
    found: list[Kink] = []
    # Along many coordinates there are many lines however few of them lie along each.
    lines = max(_FEWEST_LINES, min(_MOST_LINES, _ALL_LINES // len(problem.coordinates)))
    base = draw(Interior(), problem.domain, lines, np.random.default_rng(1)).points[0][:lines]
    for column, coordinate in enumerate(problem.coordinates):
        above = [jet for jet in _highest(asked) if coordinate in jet[1] and jet not in [each.jet for each in found]]
        if above:
            found += _along(trial, problem, above, column, coordinate, base)
    return found


def _highest(asked: Sequence[Jet]) -> list[Jet]:
    """The derivatives of each field that are below no other: what holds for these holds for the others."""

    def within(one: MultiIndex, two: MultiIndex) -> bool:
        return all(one.count(name) <= two.count(name) for name in one) and one != two

    return [(field, index) for field, index in asked if not any(field == f and within(index, i) for f, i in asked)]


def _along(
    trial: nn.Module,
    problem: Problem,
    asked: Sequence[Jet],
    column: int,
    coordinate: str,
    base: Tensor,
) -> list[Kink]:
    low, high = problem.domain.bounds[coordinate]
    ends = torch.linspace(low, high, _INTERVALS + 1, dtype=torch.float64)
    starts, lengths = ends[:-1].repeat(len(base)), torch.full((len(base) * _INTERVALS,), (high - low) / _INTERVALS)
    lines = base.repeat_interleave(_INTERVALS, dim=0)
    pairs = [(jet, _below(jet, coordinate)) for jet in asked]
    first = _misses(trial, problem, pairs, column, lines, starts, lengths.double())
    found = []
    for pair, (misses, size) in zip(pairs, first, strict=True):
        # Several places at once: steep ones of a smooth function, and what the problem does itself, may hide a small jump.
        most, owner = misses.reshape(len(base), _INTERVALS).max(dim=0)
        chosen = most.topk(_PLACES).indices
        at, miss, length = base[owner[chosen]], most[chosen], (high - low) / _INTERVALS
        start = ends[chosen]
        for _ in range(_ROUNDS):
            if not bool((miss > _RESOLVED * size).any()):
                break
            length /= _PARTS
            begins = start[:, None] + length * torch.arange(_PARTS, dtype=torch.float64)
            parts = torch.full((begins.numel(),), length, dtype=torch.float64)
            repeated = at.repeat_interleave(_PARTS, dim=0)
            ((finer, _),) = _misses(trial, problem, [pair], column, repeated, begins.flatten(), parts)
            miss, worst = finer.reshape(-1, _PARTS).max(dim=1)
            start = begins.gather(1, worst[:, None])[:, 0]
        for place in miss.argsort(descending=True).tolist():
            if not float(miss[place]) > _JUMP * size:
                break
            sides = at[place].repeat(2, 1)
            sides[0, column], sides[1, column] = start[place], start[place] + length
            if not broken_at(problem, sides):
                found.append(Kink(*pair, coordinate, sides, float(miss[place]) / size))
                break
    return found


def _below(jet: Jet, coordinate: str) -> Jet:
    field, index = jet
    place = index.index(coordinate)
    return field, (*index[:place], *index[place + 1 :])


def _misses(
    trial: nn.Module,
    problem: Problem,
    pairs: Sequence[tuple[Jet, Jet]],
    column: int,
    lines: Tensor,
    starts: Tensor,
    lengths: Tensor,
) -> list[tuple[Tensor, float]]:
    """For each pair how far changes are from integrals by Simpson's rule, by interval, and how large the lower one is."""
    points = lines.repeat(3, 1)
    points[:, column] = torch.cat([starts, starts + lengths / 2, starts + lengths])
    jets = AutogradJets(trial, points, problem.coordinates, problem.fields)
    found = []
    for jet, below in pairs:
        f, g = (jets.jet(*each).detach().reshape(3, -1) for each in (below, jet))
        misses = (f[2] - f[0] - lengths / 6 * (g[0] + 4 * g[1] + g[2])).abs()
        found.append((torch.nan_to_num(misses, nan=0.0, posinf=0.0), max(float(f.abs().max()), 1e-300)))
    return found

r"""Kinks and hidden steps: jumps of derivatives, found by the fundamental theorem of calculus.

Along a line with coordinate s a derivative f and the next one g must satisfy :math:`f(b) - f(a) = \int_a^b g\,ds`, with the
integral by a quadrature rule. Where a network with ReLU is asked for :math:`u_{xx}` it does not: :math:`u_x` jumps, and
:math:`u_{xx}` knows nothing of it. Nor does it where a strong solver satisfies an equation at every point by hiding a step of
a derivative in a needle thinner than the distance of points, which fresh points miss as well. Intervals with large differences
are cut again and again: for smooth functions the difference falls with a power of their length, for a jump it stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import located
from sciml.errors import SciMLError
from sciml.geometry import Box, Domain, Interface, Interior, Place, PointSet, Within, draw
from sciml.jets import AutogradJets, RandomJets, Supplier
from sciml.jets.calculus import describe
from sciml.jets.random import USUAL
from sciml.models import scaled_of
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Jet
from sciml.problem.narrow_features import narrow_features
from sciml.problem.pulses import pulses
from sciml.solvers import ResidualSystem
from sciml.typing import MultiIndex, Points

# Surfaces nearer than this (by their thickness) are met; coefficients are compared this far aside, and jump by this much.
_NEAR, _ASIDE, _BREAK = 1e-6, 1e-7, 1e-5
_FEWEST_LINES, _MOST_LINES, _ALL_LINES = 2, 4, 12
_INTERVALS, _PARTS, _ROUNDS, _PLACES = 24, 8, 9, 6
_JUMP, _RESOLVED = 1e-6, 1e-9
# After so many bisections of a segment what still changes by so much jumps.
_BISECTIONS, _STEP = 30, 1e-4
# The share of a field's size that its changes do not count below; that of its natural derivative that steps do not.
_NOTHING, _SLIGHT = 1e-6, 1e-3
_SEGMENTS, _LINES, _HALVINGS, _SHARE, _BETWEEN = 64, 8, 4, 0.02, 5
_GAUSS = np.polynomial.legendre.leggauss(8)
# Nodes and weights on [0, 1], the ends among the nodes.
_SIMPSON = [0.0, 0.5, 1.0], [1 / 6, 2 / 3, 1 / 6]
_EIGHT = [0.0, *(0.5 + 0.5 * _GAUSS[0]), 1.0], [0.0, *(0.5 * _GAUSS[1]), 0.0]


def _gaps(
    jets_at: Callable[[Points, Sequence[Jet]], Mapping[Jet, Tensor]],
    pairs: Iterable[tuple[Jet, Jet]],
    column: int,
    starts: Points,
    length: float,
    rule: tuple[Sequence[float], Sequence[float]],
) -> list[tuple[Tensor, Tensor]]:
    """The distance of changes of derivatives from integrals, ``(n,)``, and the derivatives at the nodes, ``(n, k)``."""
    nodes, weights = (torch.tensor(each, dtype=starts.dtype, device=starts.device) for each in rule)
    points = starts.repeat_interleave(len(nodes), 0)
    points[:, column] += (length * nodes).repeat(len(starts))
    pairs, inner = list(pairs), weights != 0
    jets = jets_at(points, list(dict.fromkeys(key for pair in pairs for key in pair)))
    found = []
    for jet, below in pairs:
        f, g = (jets[key].reshape(len(starts), -1) for key in (below, jet))
        found.append(((f[:, -1] - f[:, 0] - length * (g[:, inner] @ weights[inner])).abs(), f))
    return found


def _below(jet: Jet, coordinate: str) -> Jet:
    field, index = jet
    place = index.index(coordinate)
    return field, (*index[:place], *index[place + 1 :])


def _placed(points: Points, column: int, values: Tensor) -> Points:
    points = points.clone()
    points[:, column] = values
    return points


@dataclass(frozen=True)
class Kink:
    """A jump of the derivative ``below``, as a fraction of its largest value, between two close points ``ends``, ``(2, D)``.

    ``jet`` is the derivative that is wrong there, the one above that which jumps.
    """

    jet: Jet
    below: Jet
    coordinate: str
    ends: Tensor
    fraction: float


def kinks(trial: nn.Module, problem: Problem, asked: Sequence[Jet]) -> list[Kink]:
    """The derivatives of a trial function, of those that are asked for, below which something jumps."""
    found: list[Kink] = []
    # Along many coordinates there are many lines however few of them lie along each.
    lines = max(_FEWEST_LINES, min(_MOST_LINES, _ALL_LINES // len(problem.coordinates)))
    base = draw(Interior(), problem.domain, lines, np.random.default_rng(1)).points[0][:lines]
    for column, coordinate in enumerate(problem.coordinates):
        known = [each.jet for each in found]
        above = [jet for jet in _highest(asked) if coordinate in jet[1] and jet not in known]
        found += _kinks_along(trial, problem, above, column, base) if above else []
    return found


def _highest(asked: Sequence[Jet]) -> list[Jet]:
    """The derivatives of each field that are below no other: what holds for these holds for the others."""

    def within(one: MultiIndex, two: MultiIndex) -> bool:
        return all(one.count(name) <= two.count(name) for name in one) and one != two

    return [(field, index) for field, index in asked if not any(field == f and within(index, i) for f, i in asked)]


def _kinks_along(trial: nn.Module, problem: Problem, asked: Sequence[Jet], column: int, base: Points) -> list[Kink]:
    coordinate = problem.coordinates[column]
    low, high = problem.domain.bounds[coordinate]

    def jets_at(points: Points, wanted: Sequence[Jet]) -> dict[Jet, Tensor]:
        jets = AutogradJets(trial, points, problem.coordinates, problem.fields)
        return {key: jets.jet(*key).detach() for key in wanted}

    def misses(pairs: list[tuple[Jet, Jet]], starts: Points, length: float) -> list[tuple[Tensor, float]]:
        gaps = _gaps(jets_at, pairs, column, starts, length, _SIMPSON)
        return [(torch.nan_to_num(gap, nan=0.0, posinf=0.0), max(float(f.abs().max()), 1e-300)) for gap, f in gaps]

    ends = torch.linspace(low, high, _INTERVALS + 1, dtype=torch.float64)
    everywhere = _placed(base.repeat_interleave(_INTERVALS, dim=0), column, ends[:-1].repeat(len(base)))
    pairs, found = [(jet, _below(jet, coordinate)) for jet in asked], []
    first = misses(pairs, everywhere, (high - low) / _INTERVALS)
    for pair, (gap, size) in zip(pairs, first, strict=True):
        # Several places at once: steep ones of a smooth function, and what the problem does itself, may hide a small jump.
        most, owner = gap.reshape(len(base), _INTERVALS).max(dim=0)
        chosen = most.topk(_PLACES).indices
        at, miss, length, start = base[owner[chosen]], most[chosen], (high - low) / _INTERVALS, ends[chosen]
        for _ in range(_ROUNDS):
            if not bool((miss > _RESOLVED * size).any()):
                break
            length /= _PARTS
            begins = start[:, None] + length * torch.arange(_PARTS, dtype=torch.float64)
            parts = _placed(at.repeat_interleave(_PARTS, dim=0), column, begins.flatten())
            ((finer, _),) = misses([pair], parts, length)
            miss, worst = finer.reshape(-1, _PARTS).max(dim=1)
            start = begins.gather(1, worst[:, None])[:, 0]
        for place in miss.argsort(descending=True).tolist():
            if not float(miss[place]) > _JUMP * size:
                break
            sides = _placed(at[place].repeat(2, 1), column, torch.stack([start[place], start[place] + length]))
            if not _broken_at(problem, sides):
                found.append(Kink(*pair, coordinate, sides, float(miss[place]) / size))
                break
    return found


def _broken_at(problem: Problem, ends: Points) -> bool:
    """True if a jump between two close points ``(2, D)`` is the problem's own: on a surface, or of a coefficient."""
    middle = ends.mean(dim=0, keepdim=True).numpy()

    def touches(*domains: Domain) -> bool:
        return all(abs(float(each.distance(middle)[0])) <= _NEAR * each.thickness for each in domains)

    terms = problem.terms()
    for place in (term.place for term in terms):
        if isinstance(place, Interface) and touches(place.first, place.second):
            return True
        if isinstance(place, Within) and touches(place.part):
            return True
    widths = torch.tensor([high - low for low, high in problem.domain.bounds.values()], dtype=torch.float64)
    step = torch.sign(ends[1] - ends[0]) * _ASIDE * widths
    sides = PointSet((torch.stack([ends[0] - step, ends[1] + step]),))
    return any(_coefficients_jump(problem, term, sides) for term in terms if isinstance(term.place, Interior))


def _coefficients_jump(problem: Problem, term: Term, sides: PointSet) -> bool:
    bound = problem.bind_initial()
    for kind in USUAL:
        same = RandomJets(1, {}, problem.domain.half_widths, kind).repeated(2)
        try:
            values = term.evaluate(Evaluation.of(bound, sides.points, [same])).detach()
        except SciMLError:
            continue
        if float((values[1] - values[0]).abs()) > _BREAK * float(values.abs().max()) > 0:
            return True
    return False


def jumps_differentiated(problem: Problem, solved: ResidualSystem | None = None) -> Iterator[tuple[str, str, float]]:
    """Jumps of what ``d`` is given: the equation, where, and by which share of the largest value.

    A derivative is taken at points, on either side of the jump: the delta function on it is lost, and with it that a flux
    ``k u_x`` is continuous where k is not. Without a solution those by coordinates alone are found, with one those by fields.
    """
    # Both only where something is differentiated that is no field.
    look = cache(lambda: (pulses(problem)[0], narrow_features(problem)))

    def thin(place: Place) -> Points:
        """Points ``(k, D)`` where the data of a place are narrow."""
        middles, features = look()
        return torch.cat([middles, features[place].points[0]]) if place in features else middles

    for term in problem.terms():
        if isinstance(term.place, Interior | Within):
            domain = term.place.part if isinstance(term.place, Within) else problem.domain
            steps = (_jump_along(problem, solved, term, domain, column, thin) for column in range(len(problem.coordinates)))
            if (found := next(filter(None, steps), None)) is not None:
                yield term.name, *found


def jump_differentiated(place: str, share: float) -> str:
    """What such a jump means, in words."""
    return (
        f"takes d(...) of an expression that jumps by {share:.0%} of its size at {place}: derivatives are taken on either side "
        "of the jump, so that u_x would be continuous there and not the flux k * u_x"
    )


def _jump_along(
    problem: Problem,
    solved: ResidualSystem | None,
    term: Term,
    domain: Domain,
    column: int,
    thin: Callable[[Place], Points],
) -> tuple[str, float] | None:
    """Where and by how much something that a residual differentiates jumps along lines, with the same jets or a solution's."""
    (starts, length), name = _lines(domain, column), problem.coordinates[column]
    least, jets = _STEP, RandomJets(1, {}, problem.domain.half_widths, USUAL[0])
    bound = problem.bind_initial() if solved is None else problem.bind(**solved.values())
    if solved is not None:
        # A solution's own derivatives may jump by their error.
        least, starts = _SHARE, starts.to(next(iter(solved.trial.state_dict().values())))

    def values(points: Points, usual: Supplier | None = None) -> Tensor:
        """What is differentiated by the coordinate, ``(n, k)``."""
        supplier = usual or (jets.repeated(len(points)) if solved is None else solved.supplier(points))
        evaluation = Evaluation.of(bound, (points,), [supplier])
        evaluation.space.differentiated = []
        term.evaluate(evaluation)
        given = [each.to(points).expand(len(points)) for by, each in evaluation.space.differentiated if by == name]
        return torch.stack(given, dim=1) if given else points.new_zeros(len(points), 0)

    def changes(at: Points, width: float) -> tuple[Tensor, Tensor]:
        here = values(torch.cat([at, _placed(at, column, at[:, column] + width)]))
        return (here[len(at) :] - here[: len(at)]).abs().nan_to_num(0.0), here

    # Most equations differentiate fields alone: for these no line is walked.
    if not len(starts) or not values(starts[:1]).numel():
        return None
    # What is thinner than segments are long jumps on one that begins inside.
    inside = torch.cat([starts, thin(term.place).to(starts)])
    ends = _placed(inside, column, inside[:, column] + length).cpu().numpy()
    starts = inside[torch.from_numpy(domain.contains(ends)).to(inside.device)]
    change, here = changes(starts, length)
    size = here.abs().nan_to_num(0.0).amax(0).clamp(min=1e-300)
    windows = [] if solved is None else getattr(solved.trial, "windows", [solved.trial])
    if (inner := scaled_of(windows[0]) if windows else None) is not None:
        # A flux that vanishes is the rounding of its parts.
        sizes = zip(problem.fields, zip(inner.offset.tolist(), inner.scale.tolist(), strict=True), strict=True)
        usual = RandomJets(len(starts), dict(sizes), problem.domain.half_widths, USUAL[0])
        drawn = values(starts.cpu().double(), usual).abs().nan_to_num(0.0, 0.0)
        size = size.maximum(_NOTHING * drawn.median(0).values.to(size))
    for _ in range(_BISECTIONS):
        steep = (change > least * size).any(1)
        starts, change = starts[steep], change[steep]
        if not len(starts):
            return None
        # Where no jump is, halves change half as much; the steepest stand for all.
        chosen = (change / size).amax(1).topk(min(_PLACES, len(starts))).indices
        starts, change = starts[chosen], change[chosen]
        length /= 2
        halves = torch.stack([starts, _placed(starts, column, starts[:, column] + length)], dim=1)
        halved = halves.reshape(-1, starts.shape[1])
        # What is smaller than segments, such as a hole, is no part of the domain: nothing is known there.
        within = torch.from_numpy(
            domain.contains(torch.cat([halved, _placed(halved, column, halved[:, column] + length)]).cpu().numpy())
        )
        change = changes(halved, length)[0] * within.view(2, -1, 1).all(0).to(halved.device)
        change = change.reshape(len(starts), 2, -1)
        second = (change / size).amax(2).argmax(1)
        rows = torch.arange(len(starts))
        starts, change = halves[rows, second], change[rows, second]
    worst = (change / size).amax(1)
    place = int(worst.argmax())
    at = located(problem.coordinates, starts[place].tolist())
    return (at, float(worst[place])) if float(worst[place]) > least else None


def hidden_step(rows: ResidualSystem) -> str | None:
    """The largest step of a derivative that the equations ask for and its own derivative does not show; None without any."""
    found = [step for column in range(len(rows.problem.coordinates)) if (step := _step_along(rows, column)) is not None]
    return max(found, default=(0.0, None))[1]


def _step_along(rows: ResidualSystem, column: int) -> tuple[float, str] | None:
    """The largest step along a coordinate as a fraction of the derivative's range, and a sentence about it."""
    name = rows.problem.coordinates[column]
    pairs = [(pair, _below(pair, name)) for pair in rows.problem.system.equations_ask if name in pair[1]]
    starts, length = _lines(rows.problem.domain, column)
    starts = starts.to(next(iter(rows.trial.state_dict().values())))
    if not pairs or not len(starts):
        return None
    plan = [index for pair in pairs for _, index in pair]

    def jets_at(points: Points, wanted: Sequence[Jet]) -> Mapping[Jet, Tensor]:
        def sampled(most: int | None) -> dict[Jet, Tensor]:
            suppliers = [rows.supplier(part, plan) for part in points.split(most or len(points))]
            return {key: torch.cat([each.jet(*key).detach() for each in suppliers]) for key in wanted}

        return rows.portion.attempt(sampled, len(points))

    ranges: list[Tensor] = []
    report = None
    for _ in range(_HALVINGS + 1):
        gaps = _gaps(jets_at, pairs, column, starts, length, _EIGHT)
        # Beyond its part of the domain a field means nothing.
        lives = [_along_living(rows.problem, field, column, starts, length) for _, (field, _) in pairs]
        least = [_SLIGHT * _natural(rows, *below) for _, below in pairs]
        ranges = ranges or [_range(f[own], each) for (_, f), own, each in zip(gaps, lives, least, strict=True)]
        shares = [own * gap / size for (gap, _), size, own in zip(gaps, ranges, lives, strict=True)]
        fraction, worst = torch.stack(shares).max(dim=0)
        wrong = fraction > _SHARE
        if not bool(wrong.any()):
            return None
        last = int(fraction.argmax())
        size, middle = float(fraction[last]), float(starts[last, column] + length / 2)
        step = f"{describe(*pairs[int(worst[last])][1])} makes a step of {size:.0%} of its range near {name} = {middle:.4g}"
        report = size, step
        length = length / 2
        starts = torch.cat([starts[wrong], _placed(starts[wrong], column, starts[wrong][:, column] + length)])
    return report


def _along_living(problem: Problem, field: str, column: int, starts: Points, length: float) -> Tensor:
    """The segments, ``(n,)``, along which a field has an equation."""
    found = torch.ones(len(starts), dtype=torch.bool)
    for share in np.linspace(0, 1, _BETWEEN):
        found &= problem.lives_at(field, _placed(starts, column, starts[:, column] + share * length))
    return found.to(starts.device)


def _range(values: Tensor, least: float) -> Tensor:
    """From the smallest to the largest; what is constant, or nothing beside its field, has no range to speak of."""
    if not len(values):
        return values.new_tensor(math.inf)
    return (values.max() - values.min()).clamp(min=_NOTHING * float(values.abs().max()) + least + 1e-12)


def _natural(rows: ResidualSystem, field: str, index: MultiIndex) -> float:
    """The size of a derivative of a function that changes by its field's size across the domain."""
    inner, widths = scaled_of(rows.trial), rows.problem.domain.half_widths
    return 0.0 if inner is None else float(inner.scale[rows.problem.fields.index(field)]) / math.prod(widths[x] for x in index)


def _lines(domain: Domain, column: int) -> tuple[Points, float]:
    """Where the segments of some lines through a domain, parallel to a coordinate, begin, ``(n, D)``, and their length."""
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in (domain.lower, domain.upper))
    count = 1 if len(lower) == 1 else _LINES
    generator = torch.Generator().manual_seed(0)
    places = lower + (upper - lower) * torch.rand(count, len(lower), generator=generator, dtype=torch.float64)
    length = float(upper[column] - lower[column]) / _SEGMENTS
    along = lower[column] + length * torch.arange(_SEGMENTS, dtype=torch.float64).repeat(count)
    starts = _placed(places.repeat_interleave(_SEGMENTS, 0), column, along)
    if not isinstance(domain, Box):
        # A segment belongs to the domain if both ends and what lies between them do.
        shares = np.linspace(0, 1, _BETWEEN)
        inside = [domain.contains(_placed(starts, column, along + fraction * length).numpy()) for fraction in shares]
        starts = starts[torch.from_numpy(np.logical_and.reduce(inside))]
    return starts, length

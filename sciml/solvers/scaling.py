"""Natural sizes of fields and residuals, so that every loss term is a number of order one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from sciml.geometry.coordinates import moved_inwards
from sciml.jets import RandomJets
from sciml.jets.random import USUAL
from sciml.problem import Normal, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Linearization, linearize
from sciml.problem.noise import BILLIONTH
from sciml.problem.observations import Observation, Prior
from sciml.solvers.residuals import ResidualSystem

Sizes: TypeAlias = dict[str, tuple[float, float]]
"""Centre and size of each field, in its unit, in the order of the problem's fields."""
_ROUNDING = 2.0**-52
# How many times larger a value is beside a place where it is rounding of a zero, at least.
_BESIDE = 8.0
# Attempts at a size, and how far from one what it reaches may be; powers of the size that grow too little, and too fast.
_ATTEMPTS, _SURELY = 12, 0.8
_BOUNDED, _STEEP = 0.25, 4.0
# From what factor on the power is looked at first, by a step of another one.
_FAR, _FIRST_STEP = 1e4, 100.0
# The least share of its largest value that a field is prescribed to have, where it lies away from zero.
_AWAY = 0.01
# The size at which a field's part is that of small fields, as a share of another; how many times steeper it may be beyond.
_BEGIN, _STRAIGHT = 1e-3, 10.0
# How many times as wide a domain is on which fields hardly have derivatives.
_FLAT = 1e12
# What of its largest value a source has at least where it acts.
_ACTING = 1e-6
# How many times what is natural about a trial function a natural size may be.
_INFLATED = 1e3
# What may be rounding of what a size of one reaches.
_NO_DIGIT = 1e-14
# How much steeper half a wave between two walls is than random jets, which vary over half the extent.
_FASTER = math.pi / 2


def field_sizes(problem: Problem, blocks: Sequence[Collocation]) -> Sizes:
    r"""The centre and size of every field.

    Measured fields take the mean and standard deviation of their column; other fields the largest value that an initial
    or Dirichlet condition prescribes; fields about which nothing is prescribed but zeros take the size at which the
    equations balance, or 1. What is less than rounding beside the largest of all prescribed values is a zero, such as the
    tail of a pulse; so is what rounding of places makes of one, as :math:`\sin \pi x` at 1, and what is next to nothing
    beside a source that only fields of that size could balance. Where the equations have no value or slope at zero, as
    Arrhenius' law and logarithms, or are degenerate, as :math:`(u u_x)_x`, a field that conditions hold well away from there
    has the middle of the constants by which they hold as its centre, and searches begin there.
    """
    offset = dict.fromkeys(problem.fields, 0.0)
    scale = dict.fromkeys(problem.fields, 0.0)
    residuals = _on_natural_jets(problem, blocks, dict.fromkeys(problem.fields, (0.0, 0.0)))
    rounded = _by_rounding(problem, blocks)
    terms = [term for block in blocks for term in block.terms if term.field is not None]
    for term in sorted(terms, key=lambda term: term.measured):
        assert term.field is not None
        # With every jet zero, the residual "field less prescribed value" is minus the prescribed value.
        prescribed = term.evaluate.measured if isinstance(term.evaluate, Observation) else -residuals[term.name]
        if not term.measured:
            largest = float(prescribed.abs().max())
            scale[term.field] = max(scale[term.field], largest if largest > rounded[term.name] else 0.0)
        elif float(prescribed.std(correction=0)) > 0:
            offset[term.field] = float(prescribed.mean())
            scale[term.field] = float(prescribed.std(correction=0))

    if not regular_at(problem, blocks, dict.fromkeys(problem.fields, 0.0)):
        offset |= {name: held for name, held in _held(problem, blocks, residuals, scale).items() if offset[name] == 0}

    largest = max(scale.values(), default=0.0)
    tails = {name for name, size in scale.items() if 0 < size <= _ROUNDING * largest}
    tails |= _outweighed(problem, blocks, offset, scale)
    scale = {name: 0.0 if name in tails else size for name, size in scale.items()}

    scale = _balanced(problem, blocks, offset, scale, tails)
    return {name: (offset[name], scale[name]) for name in problem.fields}


def _by_rounding(problem: Problem, blocks: Sequence[Collocation]) -> dict[str, float]:
    """Round-off: what of the values that conditions prescribe is a zero, at most, for places beside their own have far more."""
    moved, ends = list[Collocation](), (problem.domain.lower, problem.domain.upper)
    for block in blocks:
        own = tuple(each for each in block.terms if each.field is not None and not each.measured)
        points = tuple(moved_inwards(each, *ends) for each in block.sample.points)
        moved += [replace(block, sample=replace(block.sample, points=points), terms=own)] if own else []
    found = _on_natural_jets(problem, moved, dict.fromkeys(problem.fields, (0.0, 0.0)))
    return {name: float(each.nan_to_num(0.0, 0.0, 0.0).abs().max()) / _BESIDE for name, each in found.items()}


def _outweighed(
    problem: Problem, blocks: Sequence[Collocation], offset: Mapping[str, float], scale: Mapping[str, float]
) -> set[str]:
    """Dominant balance: fields whose sizes are none, for of an equation they make next to nothing beside a source."""
    alone = _on_natural_jets(problem, blocks, {name: (each, 0.0) for name, each in offset.items()})
    own = _on_natural_jets(problem, blocks, {name: (each, scale[name]) for name, each in offset.items()})
    measured = {term.field for block in blocks for term in block.terms if term.measured}
    found = set[str]()
    for term in (each for block in blocks for each in block.terms if each.name in problem.equations):
        fields = {field for field, _ in problem.system.depends(term)}
        known = all(scale[name] > 0 for name in fields) and not fields & measured
        if known and _root_mean_square(own[term.name] - alone[term.name]) < BILLIONTH * _root_mean_square(alone[term.name]):
            found |= fields
    return found


def regular_at(problem: Problem, blocks: Sequence[Collocation], centres: Mapping[str, float]) -> bool:
    """Degenerate equations: whether each has a value where fields are constants, and slopes by its highest derivatives."""
    for linear in _linear_equations(problem, blocks, {name: (each, 0.0) for name, each in centres.items()}):
        finite = all(bool(each.isfinite().all()) for each in (linear.values, *linear.jets.values()))
        if not finite or not any(bool(slope.any()) for slope in _principal(linear)):
            return False
    return True


def even_about(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes) -> bool:
    """Parity of equations: whether slopes by highest derivatives stay what they are where fields are mirrored at their centres.

    Those of the p-Laplacian do. Those of Monge and Ampere's equation change their signs, and there are two solutions.
    """
    mirrored = {name: (centre, -size) for name, (centre, size) in sizes.items()}
    pairs = zip(*(_linear_equations(problem, blocks, each) for each in (sizes, mirrored)), strict=True)
    slopes = (both for one, two in pairs for both in zip(_principal(one), _principal(two), strict=True))
    return all(torch.allclose(*both, rtol=1e-9, atol=0.0) for both in slopes)


def _linear_equations(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes) -> Iterator[Linearization]:
    """All equations, linearised at random jets of fields of some sizes."""
    bound = problem.bind_initial()
    for block in blocks:
        for term in (each for each in block.terms if each.name in problem.equations):
            jets = [RandomJets(block.size, sizes, kind=USUAL[0]) for _ in block.sample.points]
            yield linearize(term, Evaluation.of(bound, block.sample.points, jets, block.sample.normals))


def _principal(linear: Linearization) -> list[Tensor]:
    """Principal part: the slopes by the highest derivatives."""
    highest = max((len(index) for _, index in linear.jets), default=0)
    return [slope for (_, index), slope in linear.jets.items() if len(index) == highest]


def _held(
    problem: Problem, blocks: Sequence[Collocation], zero: Mapping[str, Tensor], scale: Mapping[str, float]
) -> dict[str, float]:
    """Dirichlet and Robin values: the middle of the constants by which conditions hold, of fields held well away from zero.

    ``zero`` holds the residuals where all fields are. A condition that is curved in a field says nothing of it, and one that
    joins it to others neither.
    """
    conditions = [term.name for block in blocks for term in block.terms if term.name not in problem.equations]
    none, found = dict.fromkeys(problem.fields, (0.0, 0.0)), dict[str, float]()
    slopes: dict[str, dict[str, Tensor]] = {}
    for name in problem.fields:
        # In its own unit: a step of 1 is lost beside numbers of ions.
        unit = scale[name] or 1.0
        one, two = (_on_natural_jets(problem, blocks, none | {name: (size * unit, 0.0)}) for size in (1.0, 2.0))
        straight = (
            each for each in conditions if torch.allclose(two[each] - one[each], one[each] - zero[each], rtol=1e-9, atol=0)
        )
        slopes[name] = {each: (one[each] - zero[each]) / unit for each in straight}
    for name, own in slopes.items():
        constants = [torch.zeros(0)]
        for each, slope in own.items():
            others = [more[each] for other, more in slopes.items() if other != name and each in more]
            alone = (slope != 0) & ~torch.stack([torch.zeros_like(slope), *others]).any(0)
            constants.append(-zero[each][alone] / slope[alone])
        held = torch.cat(constants)
        if len(held) and bool((held * held[0] > 0).all()) and float(held.abs().min()) > _AWAY * float(held.abs().max()):
            found[name] = float(held.min() + held.max()) / 2
    return found


def _balanced(
    problem: Problem,
    blocks: Sequence[Collocation],
    offset: Mapping[str, float],
    scale: Mapping[str, float],
    tails: Collection[str] = (),
) -> dict[str, float]:
    """Dominant balance: sizes of those fields that have none, one after the other.

    A field has the size at which its terms reach the others' in one of the equations: sources, and fields whose sizes are
    known. A temperature drives a flow until this carries as much heat as is conducted, and a pressure bears the weight. Where
    conditions prescribe more of it alone, as a flux into a body without sources, it is the largest for which one of them asks.
    What joins it to other fields counts where nothing else does. Of ``tails`` what is prescribed says nothing.
    """
    found = dict(scale)
    if all(found.values()):
        return found
    terms = [term for block in blocks for term in block.terms if not isinstance(term.evaluate, Observation | Prior)]
    terms = [term for term in terms if term.name not in problem.equations]
    fields = {term.name: {field for field, _ in problem.system.depends(term)} for term in terms}
    joining = [name for name, asked_for in fields.items() if len(asked_for) > 1]
    still = {name: (each, 0.0) for name, each in offset.items()}
    zero = _on_natural_jets(problem, blocks, still)
    prescribed = {name: size for name in fields if (size := _root_mean_square(zero[name])) > 0}

    def asked(name: str, condition: str, size: float) -> float:
        """A field's part in a condition of it alone, as a share of what is prescribed."""
        moved = _on_natural_jets(problem, blocks, still | {name: (offset[name], size)})[condition]
        return _FASTER * _typical(moved - zero[condition]) / prescribed[condition]

    def residuals(more: dict[str, float], stretched: float = 1.0) -> dict[str, Tensor]:
        sizes = {name: (offset[name], size) for name, size in (found | more).items()}
        return _on_natural_jets(problem, blocks, sizes, stretched=stretched)

    while silent := [name for name, size in found.items() if size == 0]:
        others = residuals({})
        bounds = {name: bound for name, values in others.items() if (bound := _root_mean_square(values)) > 0}

        def reached(
            name: str,
            terms: Sequence[str],
            size: float,
            others: dict[str, Tensor] = others,
            bounds: dict[str, float] = bounds,
        ) -> float:
            """The largest of a field's part in some terms, as a share of the others."""
            moved = residuals({name: size})
            shares = (
                _typical((moved[each] - others[each])[_acting(others[each])]) / bounds[each] for each in terms if each in bounds
            )
            return _FASTER * max(shares, default=0.0)

        def parts(name: str, size: float) -> list[float]:
            """A field's part in each of the equations without derivatives."""
            usual, moved, rest = residuals({name: size}), residuals({name: size}, _FLAT), residuals({}, _FLAT)
            parts = {each: _typical(moved[each] - rest[each]) for each in problem.equations}
            return [part * (part > _FLAT**-0.5 * _typical(usual[each])) for each, part in parts.items()]

        largest, sizes = max(found.values()), dict[str, float]()
        for name in silent:
            alone = [_at_one(partial(asked, name, each), largest) for each in prescribed if fields[each] == {name}]
            alone = [] if name in tails else alone
            sizes[name] = _at_one(partial(reached, name, list(problem.equations)), largest)
            sizes[name] = max([sizes[name], *(_while_straight(partial(parts, name), sizes[name], each) for each in alone)])
        if not any(sizes.values()):
            sizes = {name: _at_one(partial(reached, name, joining), largest) for name in silent}
        sizes = {name: size for name, size in sizes.items() if size > 0}
        # What nothing drives has no size: it may be one.
        found.update(sizes or dict.fromkeys(silent, 1.0))
    return found


def _while_straight(parts: Callable[[float], Sequence[float]], least: float, size: float) -> float:
    """A size, or a smaller one, at least ``least``, up to which all parts grow about as the size does.

    Where a cubic foundation or an exponential law holds it, a field is never as large as a flux alone would make it. What is
    carried by a flow is: products with derivatives count as nothing here.
    """
    begin = least or _BEGIN * size
    if size <= begin:
        return begin
    first = [each / begin for each in parts(begin)]
    while size > begin:
        grown = [each / size for each in parts(size)]
        if all(now <= _STRAIGHT * before for now, before in zip(grown, first, strict=True) if before > 0):
            return size
        size /= 2
    return begin


def _at_one(reached: Callable[[float], float], otherwise: float) -> float:
    """Where a growing function of a size is 1, about, by the secant method on logarithms; 0 where it is zero.

    It begins at 1, or at another size where that is too small for any digit.
    """
    size, power = 1.0 if reached(1.0) > _NO_DIGIT else otherwise or 1.0, 1.0
    before: tuple[float, float] | None = None
    for _ in range(_ATTEMPTS):
        value = reached(size)
        if not (math.isfinite(value) and value > 0):
            return 0.0 if before is None else before[0]
        if before is not None and size != before[0]:
            power = math.log(value / before[1]) / math.log(size / before[0])
            if power < _BOUNDED:
                # However large it is, it comes to no more.
                return before[0]
            power = min(power, _STEEP)
        factor = value ** (-1 / power)
        if before is None and not 1 / _FAR < factor < _FAR:
            # With another power it would end far beyond, where a law such as gravity's no longer sees the size.
            factor = _FIRST_STEP ** math.copysign(1, factor - 1)
        before = size, value
        if _SURELY < value < 1 / _SURELY:
            break
        size *= factor
    return size


def term_sizes(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes, least_draws: int = 1) -> dict[str, float]:
    """The natural size of every residual, in its unit: of columns that of what was measured, of others a median.

    The median is that of one random jet at each point, and of ``least_draws`` where points are fewer.
    """
    residuals = _on_natural_jets(problem, blocks, sizes, least_draws)
    found, in_deviations, kinds = dict[str, float](), list[str](), dict[str, list[str]]()
    for block in blocks:
        for term in block.terms:
            size = _typical(residuals[term.name])
            if isinstance(term.evaluate, Observation):
                size = _misfit_size(term.evaluate, sizes)
                in_deviations += [term.name] if term.evaluate.sigma is not None else []
                if term.evaluate.alike:
                    kinds.setdefault(term.evaluate.alike, []).append(term.name)
            found[term.name] = size if math.isfinite(size) and size > 0 else 1.0
    # Columns of one kind, whose noise is the same, have one size: that of the one that varies most.
    for names in kinds.values():
        found |= dict.fromkeys(names, max(found[name] for name in names))
    if in_deviations:
        # Of the most exact column, so that its rows do not outweigh equations.
        common = max(found[name] for name in in_deviations)
        found |= dict.fromkeys(in_deviations, common)
        found |= {term.name: common for block in blocks for term in block.terms if isinstance(term.evaluate, Prior)}
    return found


def _misfit_size(misfit: Observation, sizes: Sizes) -> float:
    """The size of rows of measurements that nothing explains; that of its field for a column that does not vary."""
    if misfit.plain and misfit.sigma is None and isinstance(misfit.noise, Normal):
        assert misfit.field is not None
        return sizes[misfit.field][1]
    size, least = misfit.size, misfit.noise.rounding(misfit.measured) / misfit.typical_sigma
    return size if size > least else max(least / BILLIONTH, 1.0)


def judged_sizes(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes) -> dict[str, float]:
    """The natural sizes that residuals are reported relative to: the same for every method, also at a single point.

    A median of 256 draws scatters by a tenth, that of one by its whole size; a weight in a loss may.
    """
    return term_sizes(problem, blocks, sizes, 256)


def not_inflated(
    scales: Mapping[str, float], rows: ResidualSystem, blocks: Sequence[Collocation], sizes: Sequence[float]
) -> dict[str, float]:
    r"""Natural sizes, but those of equations that are far larger than what is natural about a trial function.

    Laws as steep as a diode's current, :math:`e^{u/u_0}`, are huge at random jets and hide every residual. About a trial
    function the size is the root mean square over points of

    .. math::  \big(\textstyle\sum_k (s_k n_k)^2 + (r - \sum_k s_k u_k)^2\big)^{1/2},

    with the slopes :math:`s_k` of the residual :math:`r` by the jets :math:`u_k`, and natural sizes :math:`n_k` of these where
    fields are of the given ``sizes``.
    """
    found, of = dict(scales), dict(zip(rows.problem.fields, sizes, strict=True))
    for block in blocks:
        for term in (each for each in block.terms if each.name in rows.problem.equations):
            squares = rows.portion.attempt(partial(_squares_about, rows, of, block, term), block.size)
            size = math.sqrt(squares / block.size)
            found[term.name] = size if 0 < _INFLATED * size < scales[term.name] else scales[term.name]
    return found


def _squares_about(rows: ResidualSystem, sizes: Mapping[str, float], block: Collocation, term: Term, most: int | None) -> float:
    """The sum over points of the squares of what is natural about a trial function."""
    half_widths, found = rows.problem.domain.half_widths, 0.0
    for _, part in block.parts(most):
        evaluation, _ = rows.evaluation(part)
        linear = linearize(term, evaluation)
        rest, squares = linear.values.detach().clone(), torch.zeros_like(linear.values)
        for space, slopes in zip(evaluation.spaces, linear.by_jet, strict=True):
            for (name, index), slope in slopes.items():
                rest -= slope * space.jets[name, index].detach()
                squares += (slope * (sizes[name] / math.prod(half_widths[each] for each in index))).square()
        found += float((squares + rest.square()).sum())
    return found


def _on_natural_jets(
    problem: Problem, blocks: Sequence[Collocation], sizes: Sizes, least_draws: int = 1, stretched: float = 1.0
) -> dict[str, Tensor]:
    """Every residual on random jets as large as fields of the given sizes have that vary over the extent of the domain.

    Over one that is ``stretched`` far they hardly have derivatives.
    """
    generator, bound, found = torch.Generator().manual_seed(0), problem.bind_initial(), dict[str, Tensor]()
    half_widths = {name: stretched * each for name, each in problem.domain.half_widths.items()}
    for number, block in enumerate(blocks):
        drawn = generator
        if block.size < least_draws and block.sample.quadrature is None:
            # One jet at one point says little of what is usual: several there, of numbers that leave other blocks their own.
            block = block.part(torch.arange(block.size).repeat(-(-least_draws // block.size)))
            drawn = torch.Generator().manual_seed(1 + number)
        jets = [RandomJets(block.size, sizes, half_widths, USUAL[0], generator=drawn) for _ in block.sample.points]
        evaluation = Evaluation.of(bound, block.sample.points, jets, block.sample.normals)
        found |= {term.name: term.evaluate(evaluation).detach() for term in block.terms}
    return found


def _root_mean_square(values: Tensor) -> float:
    """The root mean square of the finite values: a source that is small but at one place drives no less."""
    finite = values[torch.isfinite(values)]
    return float(finite.square().mean().sqrt()) if len(finite) else 0.0


def _acting(values: Tensor) -> Tensor:
    """Where a source acts: of one as steep as a diode's, over eighty powers of ten, a median over all says nothing."""
    sizes = values.abs()
    return sizes >= _ACTING * sizes[torch.isfinite(values)].max()


def _typical(values: Tensor) -> float:
    """A robust standard deviation about zero of the finite values; 0 when there are none."""
    finite = values[torch.isfinite(values)].abs()
    return 1.4826 * float(finite.quantile(0.5)) if len(finite) else 0.0

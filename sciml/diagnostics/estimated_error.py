r"""A posteriori error estimation: the linearised equation for the error, solved in a space that is richer where it counts.

Where u solves :math:`R(u) = 0` and :math:`\tilde u` is what was found, the error :math:`\delta = u - \tilde u` solves

.. math::  R'(\tilde u)\,\delta = -R(\tilde u)

up to its square, with the conditions likewise. Least squares in polynomials (random features where the domain is no box or has
many coordinates) is one linear solve. It says how large a residual is as an error, which the residual itself does not: that
depends on how the equation amplifies it.

References: R. D. Skeel, Thirteen ways to estimate global error, Numerische Mathematik 48 (1986); H. J. Stetter, The defect
correction principle and discretization methods, Numerische Mathematik 29 (1978).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml._text import listed
from sciml.geometry import Box, Face, Interior, OnFaces, SpectralPoints, draw
from sciml.jets import LinearJets, Supplier
from sciml.models import RandomFeatures, Scaled, Spectral, Windowed
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.measurements import measured_fields, unknown_fields
from sciml.problem.observations import PRIOR, Observation
from sciml.solvers import DiscreteProblem, Objective, ResidualSystem
from sciml.solvers.batching import predicted
from sciml.solvers.discrete_problem import CONDITION_WEIGHT, blocks_of, layout_of, wave_columns
from sciml.solvers.gauss_newton import factorised
from sciml.typing import Array, MultiIndex, Values
from sciml.uncertainty.error_bands import FieldCovariance, standard_errors

# The degree of polynomials by the number of coordinates; the number of random features and their scale; columns at most.
_DEGREES = {1: 48, 2: 26, 3: 10}
_FEATURES, _SCALE, _POINTS_A_FEATURE = 600, 3.0, 3
_MOST = 1500
# The coarser of two spaces, and the finer one where they disagree: degrees, or numbers of features, as parts of the usual.
_COARSER, _FINER = 2 / 3, 3 / 2
# Singular values that count as none, as parts of the largest, where columns hardly differ: features, and polynomials of fields
# that live on a part of the domain. Elsewhere, in a direction that rows hardly see, the solution is hardly determined.
_RANK = 1e-12
# Reciprocal condition numbers of triangles with a singular value that is rounding; the share of a field in its direction that
# is told.
_LOST, _SHARE = 1e-14, 1e-3
# What of the residuals the correction may leave, and by how much two of them may differ, to be believed; what one may leave to
# be believed where the other leaves more than that.
_LEFT, _APART, _ALONE = 0.3, 3.0, 1e-2
# How much three may differ to be told where they leave more than that.
_ALIKE = 1.5
_PROBES, _SCATTERED = 4096, 400
# By how much rows move where a field is doubled that they do not see, as a multiple of what is left of them.
_UNMOVED = 3.0
# Windows at most, of ordinary differential equations alone: with layers in space they would take longer than the solution. By
# how much the residuals of all may exceed those of each.
_MOST_WINDOWS, _SPIKED = 40, 1e3
# Relative residuals of which little but rounding may be left, those that are rounding of derivatives, and what is rounding of a
# field beside a larger one.
_ROUNDED, _ALL_ROUNDING, _ROUNDING = 1e-7, 1e-11, 1e-13
# From what share of its size on an error may be all that there is of a field; what of its natural size is its size then.
_ALL_ERROR, NEXT_TO_NOTHING = 0.03, 1e-3


class ErrorEstimate(NamedTuple):
    """The estimated relative L2 error of each field, as far as it is known, and the fields that rows leave open."""

    errors: dict[str, float]
    adrift: list[str] = []  # noqa: RUF012 - nobody changes it


def determined_up_to(fields: Sequence[str]) -> str:
    """Why what was found for some fields is chance, in a sentence; an empty one of none."""
    if not fields:
        return ""
    return (
        f"{listed(fields)} can be moved by the solution's own size along a direction that equations and conditions hardly see: "
        "a condition is missing, or another solution lies beside this one, as a second mode with the same eigenvalue does"
    )


def estimated_error(
    setup: DiscreteProblem, seed: int, solved: float = math.inf, at_most: Mapping[str, float] = MappingProxyType({})
) -> ErrorEstimate:
    """The estimated relative L2 error of each field, by linearised corrections in two spaces that agree; nothing without these.

    The corrections are those of the residuals and of their rounding. So they are large where the equations hardly determine the
    solution, as they do a front that walls far away hold in its place, however small the residuals are. Unknown constants are
    corrected with the fields. Fields along the direction of a singular value that is rounding are left open.

    ``solved`` is the relative residual that windows of time have by themselves. Where joining them leaves far larger ones, at
    the starts of stiff windows, these are no errors of the windows' and say nothing.

    ``at_most`` is what is told where corrections are not believed, unless three of them find more, and the same.
    """
    pieces, worst = _pieces(setup), cache(lambda: setup.objective(setup.held).worst())
    if pieces is None or (len(pieces) > 1 and worst() > _SPIKED * solved):
        return ErrorEstimate(dict(at_most))
    points = draw(Interior(), setup.problem.domain, _PROBES, np.random.default_rng([seed, 50])).points[0]
    everywhere = all(bool(setup.problem.lives_at(name, points).all()) for name in setup.problem.fields)
    size = root_mean_squares(setup.problem, points, predicted(setup.trial, points))
    if not bool(torch.isfinite(size).all()):
        return ErrorEstimate(dict(at_most))
    unit = torch.tensor(significant(size.tolist(), setup.trial), dtype=size.dtype, device=size.device)
    found: list[Tensor] = []
    before = 0.0
    for share in (_COARSER, 1.0, _FINER):
        change, left, lost = _corrected(setup, pieces, share, unit, points, seed, everywhere)
        found.append((root_mean_squares(setup.problem, points, change) / unit).nan_to_num(math.inf))
        if lost:
            # The correction is rounding along the direction that is not seen.
            adrift = (found[-1] >= _SHARE * found[-1].max()).tolist()
            return ErrorEstimate({}, [name for name, open_ in zip(setup.problem.fields, adrift, strict=True) if open_])
        # What a space finds that cannot hold the error says nothing against one that can.
        alone = before > _LEFT and left <= _ALONE
        known, before = len(found) > 1 and left <= _LEFT and (alone or _agree(*found[-2:])), left
        if known or (len(found) > 1 and float(found[-1].max()) <= _ROUNDED and worst() <= _ALL_ROUNDING):
            break
    if steady := not known and not worst() <= _ROUNDED:
        largest = torch.stack(found).amax(1)
        if not at_most or not float(largest.max()) <= _ALIKE * float(largest.min()):
            return ErrorEstimate(dict(at_most))
    # Of rounding the largest correction is an upper bound.
    errors = found[-1] if known else torch.stack(found).amax(0)
    if len(pieces) > 1 and worst() <= _ALL_ROUNDING:
        # Many windows may add up more of it than such residuals can tell.
        errors = errors.clamp(min=worst())
    relative = relative_errors((errors * unit).tolist(), size.tolist(), setup.trial)
    if steady:
        # Most of what is left varies quickly and moves nothing; what moves the fields is that.
        relative = [max(each, at_most.get(name, 0.0)) for name, each in zip(setup.problem.fields, relative, strict=True)]
    # Beyond its own size a field is wrong, and the linear equation does not say by how much.
    return ErrorEstimate({name: min(1.0, each) for name, each in zip(setup.problem.fields, relative, strict=True)})


def _agree(one: Tensor, two: Tensor) -> bool:
    """Whether the largest errors that two spaces find are alike."""
    first, second = float(one.max()), float(two.max())
    return math.isfinite(second) and first <= _APART * second and second <= _APART * first


def _pieces(setup: DiscreteProblem) -> list[Problem] | None:
    """The problem, or its windows of time in turn; None where these are more than are worth their effort.

    A constant that conditions at several times determine is no matter of one window.
    """
    problem, trial = setup.problem, setup.trial
    if not isinstance(trial, Windowed):
        return [problem]
    if setup.raw or len(problem.coordinates) > 1 or len(trial.windows) > _MOST_WINDOWS:
        return None
    time, edges = str(problem.time), trial.edges.tolist()
    return [problem.on(problem.domain.between(time, *ends)) for ends in itertools.pairwise(edges)]


def _space(problem: Problem, model: Any, share: float, seed: int) -> tuple[Any, int | SpectralPoints]:
    """A space of corrections to a model, coarser or finer by a ``share``, and the points that it needs."""
    count, fields = len(problem.coordinates), len(problem.fields)
    if isinstance(problem.domain, Box) and count in _DEGREES:
        around = wave_columns(problem)
        most = math.floor(1.1 * (_MOST / fields) ** (1 / count)) - 1
        # What moves a layer is as narrow as the layer: along one coordinate it costs little to resolve it as the solution does.
        own = len(model.basis.products) - 1 if count == 1 and isinstance(model, Spectral) else 0
        degree = min(max(_DEGREES[count], own), most)
        degrees = tuple(round(share * degree / (2 if column in around else 1)) for column in range(count))
        polynomials = Spectral(degrees, periodic=around)
        polynomials.build(count, fields, torch.Generator())
        return polynomials, layout_of(polynomials, problem)
    number = round(share * min(_FEATURES, _MOST // fields))
    features = RandomFeatures(number, _SCALE)
    features.build(count, fields, torch.Generator().manual_seed(seed))
    return features, math.ceil(_POINTS_A_FEATURE * number * fields / max(1, len(problem.equations)))


def _corrected(
    setup: DiscreteProblem, pieces: Sequence[Problem], share: float, unit: Tensor, points: Tensor, seed: int, everywhere: bool
) -> tuple[Tensor, float, bool]:
    """The correction ``(n, F)`` at points, the share of the residuals that it leaves, and whether a direction is not seen."""
    like, change, lost = next(setup.trial.buffers()), torch.zeros(len(points), len(unit), dtype=torch.float64), False
    generator, squares, left = np.random.default_rng([seed, 51]), 0.0, 0.0
    begin: Callable[[Tensor], dict[tuple[str, MultiIndex], Tensor]] | None = None
    for problem in pieces:
        model, where = _space(problem, getattr(setup.trial, "model", None), share, seed)
        trial = Scaled(model, problem.domain.lower, problem.domain.upper, [0.0] * len(unit), unit.tolist())
        terms, scales, weights = problem.terms(), dict(setup.scales), dict(setup.weights)
        start = OnFaces((Face(str(problem.time), "lower"),))
        blocks = blocks_of(problem, (term for term in terms if begin is None or term.place != start), where, generator)
        if begin is not None:
            sample, height = draw(start, problem.domain, 1, generator), problem.domain.half_widths[str(problem.time)]
            for (name, index), values in begin(sample.points[0].to(like)).items():
                term = Term(f"start.{name}.{len(index)}", start, Observation(name, values, index))
                scales[term.name] = float(unit[problem.fields.index(name)]) / height ** len(index)
                weights[term.name] = CONDITION_WEIGHT
                blocks.append(Collocation(sample, (term,)))
        objective = corrected_rows(setup, problem, trial, blocks, scales, weights)
        residuals, slopes = objective.linearised()
        # Points without a rule would take what they miss of a mean for an error of the solution.
        by_rule = problem.domain.quadrature(1) is not None
        told = [block.height * len(block.terms) * [by_rule or block.sample.quadrature is None] for block in objective.blocks]
        residuals = residuals * torch.tensor(list(itertools.chain(*told)), device=residuals.device)
        # The rows of a better solution would be rounded as well.
        each = [generator.normal(size=block.height * len(block.terms)) / math.sqrt(block.height) for block in objective.blocks]
        residuals = residuals + torch.finfo(residuals.dtype).eps * torch.from_numpy(np.concatenate(each)).to(residuals)
        solve, chord, _ = factorised(residuals, slopes)
        distinct = isinstance(model, Spectral) and everywhere
        if distinct and chord is not None and residuals.dtype == torch.float64:
            lost |= scipy.linalg.lapack.dtrcon(chord.triangle.cpu().numpy())[0] < _LOST
        move = solve(0.0 if distinct else _RANK)
        objective.assign(objective.vector() + move)
        squares += float(residuals.square().sum())
        left += float((residuals + slopes @ move).square().sum())
        here = ((points >= torch.as_tensor(problem.domain.lower)) & (points <= torch.as_tensor(problem.domain.upper))).all(1)
        if bool(here.any()):
            change[here] = predicted(trial, points[here]).double().cpu()
        begin = partial(_begun, problem, objective.rows)
    return change, math.sqrt(left / squares) if squares > 0 else 0.0, lost


def corrected_rows(
    setup: DiscreteProblem,
    problem: Problem,
    trial: Scaled,
    blocks: Iterable[Collocation],
    scales: dict[str, float],
    weights: dict[str, float],
) -> Objective:
    """The rows of a problem, or of a window of it, for what was found and a correction, zero as yet, which is varied."""
    like = next(setup.trial.buffers())
    rows = _CorrectedSystem(problem, trial.to(like), setup.rows)
    own: list[Tensor] = [parameter for parameter in trial.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter in own:
            parameter.zero_()
    places = tuple(block.to(like.device, like.dtype) for block in blocks)
    return Objective(rows, places, scales, weights, [*own, *rows.raw.values()])


def _begun(problem: Problem, rows: ResidualSystem, points: Tensor) -> dict[tuple[str, MultiIndex], Tensor]:
    """What the next window begins with at points: the corrected fields and their lower derivatives by time."""
    time = str(problem.time)
    asked = [(name, (time,) * power) for name in problem.fields for power in range(problem.order(name, time))]
    supplier = rows.supplier(points, [index for _, index in asked])
    return {each: supplier.jet(*each).detach() for each in asked}


class _CorrectedSystem(ResidualSystem):
    """The residuals of a fixed function and a correction that is varied, and so are the unknown constants."""

    def __init__(self, problem: Problem, trial: Scaled, before: ResidualSystem) -> None:
        super().__init__(problem, trial, {name: value.detach().clone().requires_grad_() for name, value in before.raw.items()})
        self._before = before

    def supplier(self, points: Tensor, plan: Sequence[MultiIndex] = ()) -> Supplier:
        features = self._features(points, plan)
        return _CorrectedJets(self.trial, self.problem.fields, features, self._before.supplier(points, plan))


class _CorrectedJets(LinearJets):
    """Jets of a correction, added to those of a fixed function."""

    def __init__(self, trial: Any, fields: Sequence[str], features: Any, before: Supplier) -> None:
        super().__init__(trial, fields, features)
        self._before = before

    def jet(self, field: str, index: MultiIndex) -> Values:
        return self._before.jet(field, index).detach() + super().jet(field, index)


def scattered(problem: Problem, trial: Any, spread: FieldCovariance, seed: int) -> dict[str, float]:
    """The relative L2 error of each field that the scatter of the measurements leads one to expect."""
    return relative_scatter(problem, partial(standard_errors, problem, trial, spread), trial, seed)


def relative_scatter(
    problem: Problem, errors_at: Callable[[Tensor], Mapping[str, Array]], trial: Any, seed: int
) -> dict[str, float]:
    """The relative L2 error of each field that standard errors at points ``(n, D)``, each ``(n,)``, lead one to expect."""
    points = draw(Interior(), problem.domain, _SCATTERED, np.random.default_rng([seed, 52])).points[0]
    errors = errors_at(points)
    changes = torch.from_numpy(np.stack([errors[name] for name in problem.fields], axis=1))
    found = relative_l2(problem, points, changes, predicted(trial, points), trial)
    return {name: min(error, 1.0) for name, error in found.items()}


def left_open(setup: DiscreteProblem, scatter: Mapping[str, float]) -> dict[str, str]:
    """Fields without identifiability, and why: they scatter by their size, or no row tells them from their double."""
    problem = setup.problem
    found = {name: f"the measurements leave {name!r} open: it scatters by its size" for name in scatter if scatter[name] >= 1}
    blocks = [block for block in setup.fresh if not all(term.name.startswith(PRIOR) for term in block.terms)]
    free = unknown_fields(problem, measured_fields(blocks)) if setup.measurements is not None else ()
    rows = setup.rows.numbers(blocks) if free else {}
    for name in free:
        doubled = _Doubled(problem, setup.trial, setup.raw, name).numbers(blocks)
        if all(float((doubled[each] - values).norm()) <= _UNMOVED * float(values.norm()) for each, values in rows.items()):
            found[name] = f"nothing tells {name!r} from its double: equations, conditions and measurements leave its scale open"
    return found


class _Doubled(ResidualSystem):
    """The residuals of a trial function one field of which is twice what it is."""

    def __init__(self, problem: Problem, trial: Any, raw: Mapping[str, Tensor], field: str) -> None:
        super().__init__(problem, trial, raw)
        self._field = field

    def supplier(self, points: Tensor, plan: Sequence[MultiIndex] = ()) -> Supplier:
        return _DoubledJets(super().supplier(points, plan), self._field)


@dataclass(frozen=True)
class _DoubledJets:
    """The supplier of jets of which those of one field are doubled."""

    jets: Supplier
    doubled: str

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        found = self.jets.jet(field, index)
        return 2 * found if field == self.doubled else found


def significant(sizes: Sequence[float], trial: Any = None) -> list[float]:
    """The sizes of fields, of which one that is zero to rounding has no size of its own: that of the largest stands for it.

    It is not zero where it is as large as is natural for it, such as volts beside a number of ions.
    """
    largest = max(sizes, default=0.0)
    usual = [min(each, largest) or largest for each in natural_sizes(trial, len(sizes))]
    return [(size if size > _ROUNDING * own else largest) or 1.0 for size, own in zip(sizes, usual, strict=True)]


def natural_sizes(trial: Any, count: int) -> list[float]:
    """The natural sizes of the fields of a trial function, or zeros where they are not known."""
    scaled = getattr(trial, "windows", [trial])[0]
    return scaled.scale.tolist() if hasattr(scaled, "scale") else [0.0] * count


def relative_l2(problem: Problem, points: Tensor, changes: Tensor, values: Tensor, trial: Any) -> dict[str, float]:
    """Relative L2 norms of changes ``(n, F)`` of the fields ``(n, F)`` of a trial function at points ``(n, D)``."""
    errors, sizes = (root_mean_squares(problem, points, each).tolist() for each in (changes, values))
    return dict(zip(problem.fields, relative_errors(errors, sizes, trial), strict=True))


def root_mean_squares(problem: Problem, points: Tensor, values: Tensor) -> Tensor:
    """Root mean squares ``(F,)`` of fields ``(n, F)`` at points ``(n, D)``, each where it lives."""
    lives = torch.stack([problem.lives_at(name, points) for name in problem.fields], dim=1).to(values.device)
    # Where a field does not live it may be anything, not a number too.
    return (torch.where(lives, values.square(), 0.0).sum(0) / lives.sum(0).clamp_min(1)).sqrt()


def relative_errors(errors: Sequence[float], sizes: Sequence[float], trial: Any) -> list[float]:
    """Relative errors of the fields of a trial function, from the root mean squares of these and of their errors.

    Of a field that is next to nothing, such as the velocity across a channel or the pressure between cylinders that turn, the
    error is all that there is: it is told as a share of a thousandth of the field's natural size.
    """

    def of(error: float, size: float, usual: float) -> float:
        own = error / size
        return own if own <= _ALL_ERROR else min(own, error / max(size, NEXT_TO_NOTHING * usual))

    return [of(*each) for each in zip(errors, significant(sizes, trial), natural_sizes(trial, len(sizes)), strict=True)]


def missed(errors: Mapping[str, float], limit: float) -> list[str]:
    """That an estimated error is too large for a success; nothing where none is."""
    worst = max(errors, key=lambda name: errors[name], default="")
    if not worst or errors[worst] <= limit:
        return []
    return [f"the estimated relative error of {worst!r} is {errors[worst]:.1e}, more than {limit:g}"]

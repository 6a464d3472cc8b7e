r"""Inverse problems with unknown fields: a smoothing spline prior that bends no more than the measurements ask for.

Unknown functions of the coordinates, such as a conductivity or a source, from measurements of something else.

What measurements say of such a function fades with its frequency, and noise takes over: it has to be told from bending. A prior
on second derivatives does that (``smoothness``), and its strength :math:`\lambda` is the one that foretells left-out
measurements best, by generalised cross-validation,

.. math::  V(\lambda) = \frac{n\,\mathrm{RSS}(\lambda)}{(n - \gamma \operatorname{tr} H(\lambda))^2},

with H the hat matrix and :math:`\gamma = 1.4`, which keeps it from bending too much by chance. Strengths that foretell about as
well, by :math:`\gamma = 1`, widen the bands by their share (``averaged``): the band at one strength knows nothing of what is
smoothed away.

References: P. Craven and G. Wahba, Smoothing noisy data with spline functions, Numerische Mathematik 31 (1979); Y.-J. Kim and
C. Gu, Smoothing spline Gaussian regression, Journal of the Royal Statistical Society B 66 (2004), for :math:`\gamma`.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml.errors import ProblemError
from sciml.geometry import Box, Face, Interior, OnFaces, clustered, draw
from sciml.jets.calculus import describe
from sciml.models import Components, PiecewisePolynomial, Scaled, Tiles as TilePolynomials, Windowed
from sciml.models.spectral import ellipsoid
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.compatibility import left_by_start
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.expansion import Series, expanded, reduced
from sciml.problem.measurements import measured_fields, unknown_fields
from sciml.problem.observations import PRIOR, Observation, is_measured
from sciml.slabs.tile_space import TileSpace
from sciml.solvers import DiscreteProblem, LeastSquares, Objective
from sciml.solvers.discrete_problem import DATA_WEIGHT, with_polynomials
from sciml.solvers.gauss_newton import descend
from sciml.solvers.state import settled
from sciml.strategies.inverse_constants import OutputError, Reached, Tangent, measured_alone, not_by_solving
from sciml.strategies.random_features import not_by_least_squares
from sciml.strategies.search import Candidate, Log, Strategy, Workspace
from sciml.strategies.tiles import MOST_COORDINATES, Tiles
from sciml.strategies.training import Training
from sciml.strategies.window_solvers import TimeMarching
from sciml.typing import MultiIndex
from sciml.uncertainty.covariance import Inference, averaged, by_strength, from_rows


@dataclass(frozen=True)
class CurvaturePenalty:
    r"""A second derivative of a field as a row in the unit of measurements:
    :math:`\tau\,\partial_i\partial_j a\,(1 + (2a/a_0)^2)^{-1/2}` with the natural size :math:`a_0`.

    Least squares with such rows is the posterior mean of a field whose second derivatives are white noise before the data, a
    smoothing spline; and its covariance is that of the posterior (G. Wahba, Spline Models for Observational Data, SIAM 1990,
    chapters 1 and 5). Where a field is large it may bend more: what conducts ten times as well varies by ten times as much.
    Points are denser towards the ends of coordinates, where polynomials would bend between them, and count less there.
    """

    field: str
    index: MultiIndex
    strength: float
    size: float
    bounds: Mapping[str, tuple[float, float]]

    def __call__(self, evaluation: Evaluation) -> Tensor:
        values = evaluation.space.jet(self.field)
        bent = self.strength * evaluation.space.jet(self.field, self.index) / (1 + (2 * values / self.size) ** 2).sqrt()
        for name, (lower, upper) in self.bounds.items():
            place = (2 * evaluation.space.coordinates[name].detach() - lower - upper) / (upper - lower)
            bent = bent * (math.pi / 2 * (1 - place.square()).clamp(min=0).sqrt()).sqrt()
        return bent


_DEGREES = {1: 48, 2: 16}
_POINTS = 2
_SHARES = tuple(10.0 ** (1.0 - 0.5 * step) for step in range(14))
_FIRST = LeastSquares(20)
# How much less than equations measurements weigh in steps, and in what judges them; and how many steps.
_STEPS = ((1e-2, 1e-1, 30), (1e-4, 1e-2, 20))
_INFLATION = 1.4
_RISES, _WORSE = 2, 1.02
# By how much more in Akaike's criterion a choice counts for nothing in averages.
_AS_GOOD = 14.0
_GOOD = 1e-3
# Measurements whose derivatives by all weights dense matrices hold, again and again.
_MOST_ROWS = 20_000
# Degrees of series by the number of their coordinates; by how many strengths the prior may weaken at each step, and steps.
_SERIES, _WEAKER, _ROUNDS, _RANK = {1: 24, 2: 10, 3: 6}, 4, 20, 1e-12
# How exact solutions need be to find the natural size of a field, and how far it may be from one; points at which it is taken;
# parts of a step, in turn.
_ROUGH, _DECADES, _PROBES, _LENGTHS = 1e-2, 12, 1000, (1.0, 0.3, 0.1, 0.03, 0.01)
# Residuals of windows that are small beside the noise of measurements.
_IN_WINDOWS = 1e-3
# Copies of the derivatives of measurements that are held at once, and the part of the free memory.
_COPIES, _MEMORY = 8, 0.4


@dataclass(frozen=True)
class _Smoothed:
    """A strength of the prior, where it led, how badly left-out measurements would be foretold, and what data then say."""

    fraction: float
    setup: DiscreteProblem
    validation: float
    criterion: float
    inference: Inference

    @property
    def parameters(self) -> Tensor:
        """Those of the model and the raw unknowns, ``(p + q,)``."""
        trained = [each for each in self.setup.trial.parameters() if each.requires_grad]
        return torch.cat([each.detach().flatten() for each in (*trained, *self.setup.raw.values())])


@dataclass(frozen=True)
class InverseFields(Strategy):
    """Unknown functions from measurements: polynomials for all fields, smoothed as generalised cross-validation asks for.

    In two or three coordinates, on any domain, where conditions would determine the fields if these functions were known:
    they are Chebyshev series, the other fields follow from them on tiles that the domain cuts, and Gauss and Newton's steps
    vary the coefficients, with a prior on second derivatives whose strength is chosen anew at each step. Otherwise, and
    where conditions at the start hold these functions, on boxes of one or two coordinates: Levenberg-Marquardt steps on
    everything at once, with that prior, which becomes weaker while that foretells data better.
    """

    def obstacle(self, work: Workspace) -> str | None:
        problem = work.problem
        if work.measurements is None or len(problem.equations) >= len(problem.fields):
            return "no field is left free, or there are no measurements"
        lacking = _not_by_solving(work)
        at_once = isinstance(problem.domain, Box) and work.dimension in _DEGREES
        return not_by_least_squares(work) if at_once or lacking is None else lacking

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        work = work.sampled(_MOST_ROWS)
        if _not_by_solving(work) is None:
            first = SmoothedOutputError(work, _series(work))
            yield from first.constants()
            if first.found and not work.log.stopped:
                yield from SmoothedOutputError(work, _series(work, first.found)).run()
            return
        setup, problem, seed, training = work.discrete, work.problem, work.seed, Training(work.log)
        fields = unknown_fields(problem, measured_fields(setup.train))
        degrees = (_DEGREES[work.dimension],) * work.dimension
        plain = with_polynomials(setup, degrees, np.random.default_rng([seed, 8]), raw=setup.raw)
        basis, weight = plain.trial.model.basis, plain.trial.model.weight.data
        # With unknown fields zero as all others, equations might determine nothing.
        weight[[problem.fields.index(field) for field in fields], basis.products.index((0,) * work.dimension)] = 1.0
        count = _POINTS * basis.width
        tried: list[_Smoothed] = []
        for fraction in _SHARES:
            begin = tried[-1].setup if tried else plain
            begin = plain.with_model(copy.deepcopy(begin.trial.model)).with_unknowns(begin.raw)
            found = _with_prior(begin, {name: setup.sizes[name][1] for name in fields}, fraction, count)
            if not tried:
                training.run(found.with_data_weight(1.0), [_FIRST], seed)
            for stiffness, judge, steps in _STEPS:
                stiff, soft = _objective(found, stiffness), _objective(found, judge)
                settled(setup.journal, f"prior {fraction:g}", stiff, partial(descend, stiff, soft, stiffness, steps))
            tried.append(_judged(found.with_data_weight(_STEPS[-1][0]), fraction))
            _report(work, tried)
            yield _candidate(tried, fields)
            lowest = min(each.validation for each in tried)
            # Weaker priors have foretold left-out measurements clearly worse for some time.
            if len(tried) > _RISES and all(each.validation > _WORSE * lowest for each in tried[-_RISES:]):
                break
        found_best = _candidate(tried, fields)
        good = found_best.residual <= _GOOD
        yield replace(found_best, accepted=good, solved=good)


def _series(work: Workspace, constants: Mapping[str, float] | None = None) -> list[Series]:
    """Chebyshev series of the unknown fields: constants alone, or what is about constants that are known."""
    problem, found = work.problem, []
    for field in unknown_fields(problem, measured_fields(work.discrete.train)):
        still, (offset, scale) = problem.constant_along.get(field, ()), work.discrete.sizes[field]
        degree = 0 if constants is None else _SERIES[work.dimension - len(still)]
        products = ellipsoid([0 if name in still else degree for name in problem.coordinates]).tolist()
        constant = 1.0 if constants is None else constants[field]
        # What the field is on the whole is its natural size.
        size = abs(constant) or 1.0
        ordered = tuple(sorted(map(tuple, products), key=sum))
        found.append(Series(field, ordered, problem.domain.bounds, offset, size * scale, constant / size))
    return found


def _not_by_solving(work: Workspace) -> str | None:
    """Why fields do not follow from unknown functions by solving; None where they do."""
    if not 1 < work.dimension <= MOST_COORDINATES:
        return f"it has {work.dimension} coordinate(s); two or three are served"
    series, composites = _series(work), work.problem.composites
    names = {each.field for each in series}
    if any(names & set(composites.parts(name)) for name in composites.names):
        return "an unknown field is part of a complex field or a vector"
    if work.dimension in _DEGREES and isinstance(work.problem.domain, Box) and _begins_with(work.problem, names):
        # A start contradicts conditions until it is right, and solutions from such a one are dear.
        return "an unknown field is what the problem begins with"
    try:
        problem = reduced(expanded(work.problem, series), series)
    except ProblemError:
        return "conditions prescribe the unknown fields"
    varied = len(problem.unknowns) - len(series) + sum(len(each.products) for each in _series(work, dict.fromkeys(names, 1.0)))
    rows = sum(min(block.height, _MOST_ROWS) for block in work.discrete.train for term in block.terms if term.measured)
    if (needed := 8.0 * _COPIES * varied * rows) > work.log.budget.bytes(_MEMORY):
        return f"{varied} derivatives of {rows} measurements would take {needed / 2**30:.1f} GB"
    forward = replace(work.on(None), problem=problem.bind_initial().unmeasured())
    return not_by_solving(problem) or Tiles().obstacle(forward) or not_by_least_squares(work)


def _begins_with(problem: Problem, names: set[str]) -> bool:
    """Whether conditions at the start hold some of these fields."""
    if problem.time is None:
        return False
    start = Face(problem.time, "lower")
    at_start = [term for term in problem.terms() if isinstance(term.place, OnFaces) and start in term.place.faces]
    return any(field in names for term in at_start for field, _ in problem.system.asked(term))


def _starts_roughly(work: Workspace) -> bool:
    """Whether the start contradicts conditions, at the first values of unknowns, and slabs of time take the layer it leaves."""
    forward = replace(work.on(None), problem=work.problem.bind_initial().unmeasured())
    if TimeMarching().unless_in_slabs(forward) is not None:
        return False
    left, scales = left_by_start(forward.problem), forward.discrete.scales
    return any(each > _ROUGH * scales[name] for name, each in left.items())


class SmoothedOutputError(OutputError):
    """Gauss and Newton's steps on the coefficients of unknown fields, smoothed as generalised cross-validation asks for.

    Args:
        given: the problem as it was stated, with its measurements.
        series: of the unknown fields.

    Attributes:
        found: the first coefficient of each field that ``constants`` found.
    """

    # Series bend as the error of rough solutions does.
    dear = (1e-3, 1e-4)

    def __init__(self, given: Workspace, series: Sequence[Series]) -> None:
        whole = replace(given.on(given.measurements), problem=expanded(given.problem, series))
        self._series, self._strength, self._fitted = series, 0, 0.0
        self._plain = measured_alone(whole)
        work = replace(whole, problem=reduced(whole.problem, series))
        marched = _starts_roughly(work)
        super().__init__(work, self._plain, [TimeMarching() if marched else Tiles()], given)
        if marched:
            # What windows leave of the equations is far more than they change of the fields.
            self.roughly = self.exactly = _IN_WINDOWS
        fields = given.problem.fields
        self._points = draw(Interior(), given.problem.domain, _PROBES, np.random.default_rng(0)).points[0]
        self._columns = [fields.index(name) for name in self.work.problem.fields]
        self.found: dict[str, float] = {}
        self._known: tuple[TilePolynomials, list[tuple[int, Sequence[str], Tensor]]] | None = None

    def constants(self) -> Iterator[Candidate]:
        """Find the first coefficients of the series that meet the measurements best, roughly; what they begin with first."""
        self.aim(_ROUGH)
        last = self.reached({name: value.detach() for name, value in self._plain.raw.items()})
        if last is None:
            return
        yield replace(self.candidate(last), solved=False)
        unknowns, names = self._plain.problem.unknowns, {each.field: each.names[0] for each in self._series}
        for name, factor in itertools.product(names.values(), (10.0, 0.1)):
            # A field may be orders of magnitude from one: whence steps begin, as long as the loss falls.
            for _ in range(_DECADES):
                value = unknowns[name].value(last.raw[name])
                found = self.reached({**last.raw, name: unknowns[name].raw_of(factor * value)})
                if found is None or not found.loss < last.loss or self.work.log.stopped:
                    break
                last = found
        *_, last = last, *self.steps(last)
        self.found = {field: float(unknowns[name].value(last.raw[name])) for field, name in names.items()}

    def wanted(self, here: Reached, tangent: Tangent) -> tuple[Reached, Mapping[str, Tensor]]:
        log, prior = self.work.log, self._smoothed(here)
        found = self._foretold(here, tangent, prior)
        self._strength = min(range(len(found)), key=lambda number: found[number].validation)
        step = found[self._strength]
        self._fitted = step.fitted
        # Rows of a weaker prior count less.
        fraction = _SHARES[self._strength]
        weights = {name: each if name in self._plain.weights else fraction**2 * each for name, each in prior.weights.items()}
        self.data = replace(prior, weights=weights, leading=weights)
        here = replace(here, loss=self.loss(here.solution, here.raw))
        log.solved(f"prior of strength {fraction:.2g}", here.loss, step.validation, {}, best=here.loss, most=_ROUNDS)
        target = {name: value + each for (name, value), each in zip(here.raw.items(), step.move, strict=True)}
        # Of robust losses one step of least squares is not the minimum.
        return here, Training(Log()).run(self.linear(target, tangent), [_FIRST], self.work.seed).raw

    def inferred(self, here: Reached, tangent: Tangent, *, known: bool) -> Inference:
        prior = self._smoothed(here)
        found = self._foretold(here, tangent, prior)
        most = min(each.criterion for each in found) + _AS_GOOD
        # What was chosen is always among them.
        kept = [number for number, each in enumerate(found) if each.criterion <= most or number == self._strength]
        linear, shares = self.linear(here.raw, tangent, prior).objective(), [_SHARES[number] for number in kept]
        inferences = dict(zip(kept, by_strength(linear, len(self._plain.train), shares, known=known), strict=True))
        raw = torch.stack(list(here.raw.values())).cpu().numpy()
        choices = [(found[number].criterion, each, found[number].move.cpu().numpy()) for number, each in inferences.items()]
        return averaged(self._plain.problem, raw, inferences[self._strength], choices)

    def _foretold(self, here: Reached, tangent: Tangent, prior: DiscreteProblem) -> list[_Step]:
        """The steps under priors as weak as is allowed, by that of strength one."""
        linear, size = self.linear(here.raw, tangent, prior).objective(), len(self._plain.train)
        measured, bending = linear.linearised(linear.blocks[:size]), linear.linearised(linear.blocks[size:])
        # What is linear is as true far away.
        weakest = len(_SHARES) if self.stated.linear else self._strength + _WEAKER
        return [_foretold(measured, bending, fraction) for fraction in _SHARES[:weakest]]

    def shortened(self, moves: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        series = {name for each in self._series for name in each.names}
        for length, bounded in zip(_LENGTHS, super().shortened(moves), strict=True):
            yield {name: length * move if name in series else bounded[name] for name, move in moves.items()}

    def _smoothed(self, here: Reached) -> DiscreteProblem:
        """The measurements, and rows against bending that are relative to the fields' sizes where a step begins."""
        values = self.whole(here.solution.discrete.trial, here.raw)(self._points.to(self._plain.trial.scale))
        numbers = {each.field: self.stated.problem.fields.index(each.field) for each in self._series}
        sizes = {name: float(values[:, number].square().mean().sqrt()) for name, number in numbers.items()}
        return _with_prior(self._plain, sizes, 1.0, _POINTS * len(self._plain.problem.unknowns))

    def whole(self, trial: Any, raw: Mapping[str, Tensor]) -> Any:
        if isinstance(trial, Windowed):
            unknowns = self._plain.problem.unknowns
            return self._beside(trial, [{name: float(each.value(raw[name])) for name, each in unknowns.items()}], 1.0)
        # Tiles are laid and joined on the processor.
        trial, units = copy.deepcopy(trial).cpu(), dict[str, Tensor]()
        for name in ("offset", "scale"):
            units[name] = getattr(self._plain.trial, name).cpu().clone()
            units[name][self._columns] = getattr(trial, name)
        model: TilePolynomials = trial.model.like(len(units["scale"]))
        model.coefficients[:, self._columns] = trial.model.coefficients
        for number, names, tables in self._tables(trial.model):
            values = torch.stack([self._plain.problem.unknowns[name].value(raw[name]) for name in names]).cpu()
            model.coefficients[:, number] = torch.tensordot(values, tables, dims=1)
        domain = self.stated.problem.domain
        found = Scaled(model, domain.lower, domain.upper, *(units[name].tolist() for name in units))
        return found.to(self._plain.trial.scale)

    def slopes(self, together: Any) -> Any:
        # All series are linear in the raw numbers of their coefficients, with the slope one.
        return self._beside(together, [{name: 1.0} for name in self._plain.problem.unknowns], 0.0)

    def _beside(self, trial: Windowed, values: Sequence[Mapping[str, float]], offset: float) -> Windowed:
        """Windows of the fields that follow, of several solutions side by side, with the series of the others beside them.

        The series of each solution have coefficients of such values, zero for others, and a share of their ``offset``.
        """
        problem, degrees = self.stated.problem, np.concatenate([each.products for each in self._series]).max(axis=0).tolist()
        columns, count = [problem.fields.index(each.field) for each in self._series], len(problem.fields)
        model = PiecewisePolynomial([[-1.0, 1.0]] * len(degrees), degrees, len(values) * len(columns))
        for (copied, own), (number, each) in itertools.product(enumerate(values), enumerate(self._series)):
            for name, product in zip(each.names, each.products, strict=True):
                model.coefficients[(*(0 for _ in degrees), copied * len(columns) + number, *product)] = own.get(name, 0.0)
        units = [offset * each.offset for each in self._series], [each.scale for each in self._series]
        bounds = problem.domain.lower, problem.domain.upper
        known = Scaled(model, *bounds, *(len(values) * each for each in units))
        order = [copied * count + each for own in (self._columns, columns) for copied in range(len(values)) for each in own]
        windows = [Components([each, copy.deepcopy(known)], order) for each in trial.windows]
        return Windowed(trial.edges.tolist(), windows, trial.column, trial.order).to(self._plain.trial.scale)

    def followed(self, trial: Any) -> Any:
        found = copy.deepcopy(trial)
        found.model = trial.model.like(len(self._columns))
        found.model.coefficients.copy_(trial.model.coefficients[:, self._columns])
        found.offset, found.scale = trial.offset[self._columns], trial.scale[self._columns]
        return found

    def all_slopes(self, model: TilePolynomials, found: Tensor) -> Tensor:
        slopes = torch.zeros(*found.shape[:2], model.outputs, found.shape[3], dtype=torch.float64)
        slopes[:, :, self._columns] = found.cpu()
        unknowns = list(self._plain.problem.unknowns)
        for number, names, tables in self._tables(copy.deepcopy(model).cpu()):
            slopes[[unknowns.index(name) for name in names], :, number] = tables
        return slopes.to(found)

    def _tables(self, model: TilePolynomials) -> list[tuple[int, Sequence[str], Tensor]]:
        """Of each series the number of its field, its coefficients and its products as polynomials on tiles, ``(K, T, width)``.

        They are in the unit of the field.
        """
        if self._known is None or not _alike(self._known[0], model):
            fields, names, scale = self.stated.problem.fields, self.stated.problem.coordinates, self._plain.trial.scale.cpu()
            space = TileSpace(self.stated.problem.bind_initial(), model, names)
            found: list[tuple[int, Sequence[str], Tensor]] = []
            for each in self._series:
                number = fields.index(each.field)

                def products(columns: Sequence[Tensor], series: Series = each) -> Tensor:
                    return series.table(dict(zip(names, columns, strict=True))).expand(len(series.products), len(columns[0]))

                tables = space.local(space.interpolated(each.field, products)) * (each.scale / scale[number])
                found.append((number, each.names, tables))
            self._known = model, found
            return found
        return self._known[1]

    def how(self) -> str:
        fields = [each.field for each in self._series]
        return (
            f"unknown function{'s' if len(fields) > 1 else ''} {', '.join(fields)}: Chebyshev series, bending no more than the "
            f"data ask for (the strength of that prior by generalised cross-validation; {self._fitted:.3g} numbers fitted to "
            f"the data), {self.solves} solutions at series that are known"
        )


def _alike(one: TilePolynomials, two: TilePolynomials) -> bool:
    """Whether two models have the same tiles and degrees."""
    same = one.live == two.live and one.degrees == two.degrees and one.spans == two.spans
    return same and all(map(torch.equal, one.breaks, two.breaks))


@dataclass(frozen=True)
class _Step:
    """A step under a prior of some strength, how badly it foretells left-out measurements, and the numbers fitted to them."""

    move: Tensor
    validation: float
    criterion: float
    fitted: float


def _foretold(measured: tuple[Tensor, Tensor], prior: tuple[Tensor, Tensor], fraction: float) -> _Step:
    """The step under a prior of some strength.

    Both are residuals ``(m,)`` and slopes ``(m, q)`` by all that is varied, the prior's of strength one.
    """
    residuals, size = torch.cat([measured[0], fraction * prior[0]]), len(measured[0])
    left, singular, right = torch.linalg.svd(torch.cat([measured[1], fraction * prior[1]]), full_matrices=False)
    seen = singular > _RANK * singular[0]
    left = left[:, seen]
    along, fitted = left.T @ residuals, float(left[:size].square().sum())
    squares = float((residuals - left @ along)[:size].square().sum())
    return _Step(-(right[seen].T @ (along / singular[seen])), *_validations(squares, size, fitted), fitted)


def _validations(squares: float, count: int, fitted: float) -> tuple[float, float]:
    """How badly left-out measurements would be foretold, by which a strength is chosen; and Akaike's criterion."""
    free, kept = count - _INFLATION * fitted, count - fitted
    validation = count * squares / free**2 if free > 0 else math.inf
    return validation, count * math.log(max(squares, 1e-300) / kept**2) if kept > 0 else math.inf


def _candidate(tried: Sequence[_Smoothed], fields: Sequence[str]) -> Candidate:
    """The strength of the prior that foretells left-out measurements best."""
    best = min(tried, key=lambda each: each.validation)
    choices = [(each.criterion, each.inference, (each.parameters - best.parameters).cpu().numpy()) for each in tried]
    raw = best.parameters[len(best.parameters) - len(best.setup.raw) :].cpu().numpy()
    means = best.setup.objective(best.setup.held).means()
    reached = math.sqrt(max((float(value) for name, value in means.items() if not is_measured(name)), default=0.0))
    reason = (
        f"unknown function{'s' if len(fields) > 1 else ''} {', '.join(fields)}: all fields by polynomials "
        f"({best.setup.trial.model.extra_repr()}), bending no more than the data ask for (the strength of that prior by "
        f"generalised cross-validation among {len(tried)}; {best.inference.fitted:.3g} numbers fitted to the data); the "
        f"equations hold to {reached:.1e} of their natural size on held-out points"
    )
    # Weaker priors come later: what foretells best is wanted, not what satisfies the equations best.
    setup = replace(best.setup, inference=averaged(best.setup.problem, raw, best.inference, choices))
    return Candidate(setup, reached, "LeastSquares", reason)


def _objective(setup: DiscreteProblem, weight: float) -> Objective:
    return setup.with_data_weight(weight).objective()


def _report(work: Workspace, tried: Sequence[_Smoothed]) -> None:
    """Record the last strength of the prior."""
    last, setup = tried[-1], tried[-1].setup
    objective = setup.objective()
    terms = objective.means()
    work.log.solved(
        f"prior of strength {last.fraction:.2g}",
        float(objective.total(terms)),
        last.validation,
        terms,
        best=min(each.validation for each in tried),
        most=len(_SHARES),
        unknowns={name: float(value.detach()) for name, value in setup.rows.values().items()},
    )


def _with_prior(setup: DiscreteProblem, sizes: Mapping[str, float], fraction: float, count: int) -> DiscreteProblem:
    """The set-up with rows against bending, of fields of some sizes, beside its own."""
    domain, half_width, like = setup.problem.domain, setup.problem.domain.half_widths, setup.trial.scale
    values = max(block.size for block in setup.train if any(isinstance(term.evaluate, Observation) for term in block.terms))
    terms = []
    for field, size in sizes.items():
        for index in itertools.combinations_with_replacement(setup.problem.coordinates, 2):
            mixed = math.sqrt(2) if index[0] != index[1] else 1.0
            across = math.prod(half_width[name] for name in index)
            strength = fraction * math.sqrt(values) * mixed * across / (size * math.sqrt(count))
            rows = CurvaturePenalty(field, index, strength, size, domain.bounds)
            terms.append(Term(f"{PRIOR}{describe(field, index)}", Interior(), rows, measured=True))
    evenly = draw(Interior(), domain, count, np.random.default_rng(0))
    block = Collocation(clustered(evenly, domain), tuple(terms)).to(like.device, like.dtype)
    # A row of the prior weighs as much as one of a measurement.
    names = [term.name for term in block.terms]
    weights = {**setup.weights, **dict.fromkeys(names, DATA_WEIGHT * count / values)}
    scales = {**setup.scales, **dict.fromkeys(names, 1.0)}
    return replace(setup, train=(*setup.train, block), scales=scales, weights=weights)


def _judged(setup: DiscreteProblem, fraction: float) -> _Smoothed:
    assert setup.measurements is not None
    inference = from_rows(setup.objective(), known=setup.measurements.known(setup.problem))
    squares, count = 0.0, 0
    blocks = [block for block in setup.train if any(isinstance(term.evaluate, Observation) for term in block.terms)]
    for name, values in setup.rows.residuals(blocks).items():
        squares += float((values.detach() / setup.scales[name]).square().sum())
        count += len(values)
    # Data that are met at the cost of equations are not foretold by them.
    terms = _objective(setup, 1.0).terms()
    squares += count * sum(float(value.detach()) for name, value in terms.items() if not is_measured(name))
    return _Smoothed(fraction, setup, *_validations(squares, count, inference.fitted), inference)

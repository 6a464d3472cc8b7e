"""Covariance of unknown constants and of a model's parameters, from the linearised least-squares problem at the solution."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
import torch

from sciml.problem import Normal, Problem, Unknown
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.observations import PRIOR, Observation
from sciml.solvers import Objective
from sciml.solvers.jacobian import jacobian
from sciml.solvers.residuals import ResidualSystem
from sciml.typing import Array

_MOST_POINTS, _MOST_ROWS = 256, 2048
_ARRIVED = 1e-5
_STIFFNESS = 1e3
# Measurements for each parameter from which on their rows are compressed.
_MANY = 20
_NONE = np.zeros((0, 0))
_KEPT, _UNSEEN, _BLIND = 1e-11, 1e-6, 1e-6
# What of a constant's column may be left by rounding and by the model's own degree where the model can imitate it.
_IMITATED = 1e-7
# How far to either side a raw number says alone how far a value may be, and says anything: with one bound, to where the value
# is the root of e and e squared times as far from it.
_NEAR, _FAR = 0.5, 2.0
# About how many terms of a row add their rounding; how many errors far an interval of a numerical error reaches.
_TERMS, _REACH = 32, 2.0


@dataclass(frozen=True)
class Estimate:
    """An unknown's value, standard error and 95 % interval, in its unit; infinite where nothing determines it.

    ``singular`` is then the singular value, as a share of the largest, of the direction in which no row sees it; otherwise
    not a number.
    """

    value: float
    standard_error: float
    low: float
    high: float
    singular: float = math.nan


@dataclass(frozen=True)
class Inference:
    """Inference from the linearised problem at the solution.

    Attributes:
        estimates: of each unknown.
        drift: how far the linearised problem would still move the unknowns, in standard errors (the largest of all): a fit
            that has arrived at its minimum has a small one.
        measurements: their number.
        fitted: how many numbers were fitted to them: the trace of the hat matrix over their rows.
        variance: of their rows.
        quantile: how many standard errors a 95 % interval reaches to either side.
        spread: columns that make the covariance of parameters and raw unknowns, ``S S^T``; shape ``(p + q, k)``.
        profiles: for each unknown the values at which it was held, and by how much twice the log-likelihood fell there.
    """

    estimates: dict[str, Estimate] = field(default_factory=dict)
    drift: float = 0.0
    measurements: int = 0
    fitted: float = 0.0
    variance: float = math.nan
    quantile: float = math.nan
    spread: Array = field(default_factory=lambda: _NONE)
    profiles: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def freedom(self) -> float:
        """Degrees of freedom that are left."""
        return max(self.measurements - self.fitted, 0.0)


def covariance(
    unknowns: Mapping[str, Unknown],
    raw: Array,
    model_part: Array,
    raw_part: Array,
    misfit: Array,
    measured: Array,
    *,
    prior: Array | None = None,
    variance: float | None = None,
    measurements: int | None = None,
) -> Inference:
    r"""Estimates with intervals from the Jacobian of all rows at the solution.

    With the model's parameters eliminated, what the measurements say about the raw unknowns is
    :math:`B^\perp = (I - UU^T)B` with :math:`U` a basis of the range of the model's Jacobian; the covariance is
    :math:`s^2 (B^{\perp T} B^\perp)^{-1}`, with :math:`s^2` known, or the squared misfit over the degrees of freedom, which are
    the number of measurements less the trace of the hat matrix over them. Intervals are Student's (normal where :math:`s^2` is
    known) and respect the bounds of an unknown: symmetric in the raw number where they do not reach far. Where they do, as near
    a bound, where raw numbers go to infinity, they hold those that are symmetric in the value, too, and end at the bound.

    ``model_part``, ``(m, p)``, and ``raw_part``, ``(m, q)``, are derivatives of the rows ``misfit`` by the model's parameters
    and raw unknowns; ``measured`` rows that are ``prior`` inform, and are no measurements. The others may stand for more
    ``measurements`` than they are. Without a known ``variance`` one number is found for all of them, so each column's noise is
    taken to be the same share of its scale.

    Reference: G. A. F. Seber and C. J. Wild, Nonlinear Regression, Wiley 1989, chapters 2 and 5.
    """
    counted = measured if prior is None else measured & ~prior
    basis, rest, own = eliminated(model_part, raw_part)
    left, singular, right = np.linalg.svd(rest, full_matrices=False)
    scale = np.linalg.norm(raw_part[measured]) if model_part.shape[1] == 0 else 1.0
    largest = max(singular.max(initial=0.0), scale, 1e-300)
    seen = singular > 1e-10 * largest
    count, known = int(counted.sum()) if measurements is None else measurements, variance is not None
    fitted = float((basis[counted] ** 2).sum() + (left[counted][:, seen] ** 2).sum())
    freedom = max(count - fitted, 0.0)
    if variance is None:
        variance = float((misfit[counted] ** 2).sum()) / freedom if freedom > 0.5 else math.inf
    inverse = np.where(seen, 1.0 / np.where(seen, singular, 1.0), 0.0)
    constants = right.T * inverse
    move, quantile = constants @ (left.T @ misfit), _quantile(freedom, known=known)
    errors, relative = _errors(constants, variance), singular / largest
    found, drift = _estimates(unknowns, raw, errors, right.T, seen, relative, move, quantile)
    spread = _NONE
    if math.isfinite(variance):
        # An unknown drags the model's parameters along; beside that they scatter for themselves.
        dragged = -own @ (basis.T @ (raw_part @ constants))
        spread = math.sqrt(variance) * np.block([[own, dragged], [np.zeros((len(raw), own.shape[1])), constants]])
    return Inference(found, drift, count, fitted, variance, quantile, spread)


def eliminated(model_part: Array, raw_part: Array) -> tuple[Array, Array, Array]:
    r"""Of parts :math:`A = U\Sigma V^T` ``(m, p)`` and B ``(m, q)``: U, :math:`(I - UU^T)B`, :math:`V\Sigma^{-1}`."""
    if not model_part.shape[1]:
        return np.zeros((len(raw_part), 0)), raw_part, np.zeros((0, 0))
    left, singular, right = np.linalg.svd(model_part, full_matrices=False)
    kept = singular > _KEPT * singular[0]
    basis = left[:, kept]
    return basis, raw_part - basis @ (basis.T @ raw_part), right[kept].T / singular[kept]


def _errors(columns: Array, variance: float) -> Array:
    """Standard errors from columns that make a covariance, times a variance."""
    sizes = np.linalg.norm(columns, axis=1)
    return math.sqrt(variance) * sizes if math.isfinite(variance) else np.full_like(sizes, math.inf)


def _quantile(freedom: float, *, known: bool) -> float:
    return float(scipy.stats.norm.ppf(0.975) if known else scipy.stats.t.ppf(0.975, max(freedom, 1.0)))


def _estimates(
    unknowns: Mapping[str, Unknown],
    raw: Array,
    errors: Array,
    directions: Array,
    seen: Array,
    relative: Array,
    move: Array,
    quantile: float,
) -> tuple[dict[str, Estimate], float]:
    """Estimates from errors ``(q,)`` and singular values of ``directions`` ``(q, k)``, and the largest move in errors."""
    blind = (np.abs(directions[:, ~seen]) > _BLIND).any(axis=1)
    found, drift = {}, 0.0
    for position, (name, unknown) in enumerate(unknowns.items()):
        error = math.inf if blind[position] else float(errors[position])
        found[name] = _estimate(unknown, float(raw[position]), error, quantile)
        if blind[position]:
            # The direction that holds most of this unknown among those that nothing determines.
            worst = np.argmax(np.where(seen, 0.0, np.abs(directions[position])))
            found[name] = replace(found[name], singular=float(relative[worst]))
        # Of exact data the standard error is that of rounding: what would hardly move has arrived.
        if math.isfinite(error) and error > 0 and abs(float(move[position])) > _ARRIVED:
            drift = max(drift, abs(float(move[position])) / error)
    return found, drift


def from_information(
    unknowns: dict[str, Unknown],
    raw: Array,
    information: Array,
    variance: float,
    freedom: float,
    move: Array,
    size: Array,
    added: Array,
    *,
    measurements: int,
    known: bool = False,
) -> Inference:
    """Estimates where all but the unknowns has been eliminated already: by their Schur complement ``information``, ``(q, q)``.

    A further step would add ``move`` to the raw numbers; ``size`` are the squared norms of the unknowns' own columns, and
    ``added`` errors that are no noise's, all ``(q,)``. The ``variance`` of a measured row, unless it is ``known``, was found
    with so many degrees of ``freedom``.
    """
    unit = np.sqrt(np.maximum(size, 1e-300))
    relative, directions = np.linalg.eigh(information / unit / unit[:, None])
    seen = relative > _UNSEEN**2
    inverse = np.where(seen, 1.0 / np.where(seen, relative, 1.0), 0.0)
    constants = directions * np.sqrt(inverse) / unit[:, None]
    errors = np.hypot(_errors(constants, variance), added)
    quantile, singular = _quantile(freedom, known=known), np.sqrt(np.maximum(relative, 0.0))
    found, drift = _estimates(unknowns, raw, errors, directions, seen, singular, move, quantile)
    spread = np.hstack([math.sqrt(variance) * constants, np.diag(added)]) if math.isfinite(variance) else _NONE
    return Inference(found, drift, measurements, measurements - freedom, variance, quantile, spread)


def _estimate(unknown: Unknown, raw: float, error: float, quantile: float) -> Estimate:
    at = torch.tensor(raw, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(unknown.value(at), at)
    value, error_of_value = float(unknown.value(at.detach())), abs(float(slope)) * error
    least = -math.inf if unknown.lower is None else unknown.lower
    most = math.inf if unknown.upper is None else unknown.upper
    if not math.isfinite(error):
        return Estimate(value, math.inf, least, most)
    reach = min(quantile * error, _FAR)
    low, high = sorted(unknown.value(torch.tensor([raw - reach, raw + reach], dtype=torch.float64)).tolist())
    # Far from where it was linearised a raw number says little: the value counts beside it, more and more.
    share = min(max(reach / _NEAR - 1.0, 0.0), 1.0)
    low -= share * max(0.0, low - max(least, value - quantile * error_of_value))
    high += share * max(0.0, min(most, value + quantile * error_of_value) - high)
    return Estimate(value, error_of_value, low, high)


def from_rows(objective: Objective, *, known: bool = False) -> Inference:
    """Inference at a trained trial function, with the equations and conditions taken as exact.

    Every residual that is not a measurement enters with a weight so large that the measurements can hardly bend it: then
    the tangent space of the model that satisfies the linearised problem is what the measurements choose from, and the
    result is that of shooting. At most some hundred points of each block are used. Columns with outliers enter by their scores
    (P. J. Huber, Robust Statistics, Wiley 1981, section 7.6).
    """
    return by_strength(objective, len(objective.blocks), (1.0,), known=known)[0]


def by_strength(objective: Objective, first: int, strengths: Sequence[float], *, known: bool = False) -> list[Inference]:
    """Inference by strength of the prior: as ``from_rows``, with rows of blocks from the ``first`` on times each strength."""
    # In double precision whatever the fit was made in: what counts as zero is judged by the rounding of float64.
    rows, scales, weights = objective.rows, objective.scales, objective.weights
    trial = copy.deepcopy(rows.trial).double().cpu()
    rows = type(rows)(rows.problem, trial, {name: value.detach().double().cpu() for name, value in rows.raw.items()})
    parameters = [parameter for parameter in trial.parameters() if parameter.requires_grad]
    # Fewer rows than the model has parameters would leave it free between them, and every interval too wide.
    enough = 3 * sum(parameter.numel() for parameter in parameters) // max(1, len(rows.problem.equations))
    thin = [_thin(block, max(_MOST_POINTS, min(enough, _MOST_ROWS))) for block in objective.blocks]
    factors = {}
    terms = [(term, block.height) for block in thin for term in block.terms]
    per_row = {term.name: weights[term.name] / height for term, height in terms if term.measured}
    heaviest = max(per_row.values(), default=1.0) or 1.0
    # Many measurements would bend what a few cannot.
    stiffness = _STIFFNESS * math.sqrt(max(1.0, sum(height for term, height in terms if term.measured) / _MOST_ROWS))
    for term, height in terms:
        share = math.sqrt(per_row[term.name] / heaviest) if term.measured else stiffness / math.sqrt(height)
        factors[term.name] = share / scales[term.name]
    *arrays, counts = zip(*(_linearised(rows, block, factors, parameters) for block in thin), strict=True)
    later = np.concatenate([np.full(len(each), number >= first) for number, each in enumerate(arrays[0])])
    misfit, matrix, measured, prior = map(np.concatenate, arrays)
    split = matrix.shape[1] - len(rows.raw)
    common = [scales[term.name] for term, _ in terms if term.measured]
    found = []
    for strength in strengths:
        factor = np.where(later, strength, 1.0)
        slopes = factor[:, None] * matrix
        inference = covariance(
            rows.problem.unknowns,
            torch.stack(list(rows.raw.values())).numpy() if rows.raw else np.zeros(0),
            slopes[:, :split],
            slopes[:, split:],
            factor * misfit,
            measured,
            prior=prior,
            variance=1.0 / common[0] ** 2 if known and common else None,
            measurements=sum(counts),
        )
        found.append(inference)
    return found


def averaged(problem: Problem, raw: Array, chosen: Inference, choices: Sequence[tuple[float, Inference, Array]]) -> Inference:
    r"""Model averaging: inference where a model was chosen among some that foretell measurements about as well.

    The covariance of the parameters is that of the mixture about what was chosen,

    .. math::  \sum_k w_k \bigl(S_k S_k^T + (\theta_k - \theta)(\theta_k - \theta)^T\bigr), \qquad w_k \propto e^{-\Delta_k/2},

    with the differences of Akaike's criterion: what one choice takes for certain counts no more than that choice.

    Args:
        problem: whose unknowns stand last among the parameters.
        raw: their raw numbers, ``(q,)``, where they were chosen.
        chosen: the inference there.
        choices: of each the criterion, its inference, and where its parameters lie from those chosen, ``(p + q,)``.

    Reference: S. T. Buckland, K. P. Burnham and N. H. Augustin, Model selection: an integral part of inference, Biometrics 53
    (1997).
    """
    finite = [each for each in choices if math.isfinite(each[0]) and each[1].spread.size]
    if not (finite and chosen.spread.size):
        return chosen
    least = min(criterion for criterion, _, _ in finite)
    shares = np.array([math.exp((least - criterion) / 2) for criterion, _, _ in finite])
    parts = [np.column_stack([found.spread, move]) for _, found, move in finite]
    spread = np.hstack([math.sqrt(share) * part for share, part in zip(shares / shares.sum(), parts, strict=True)])
    errors, estimates = np.linalg.norm(spread[len(spread) - len(raw) :], axis=1), dict(chosen.estimates)
    for (name, unknown), at, error in zip(problem.unknowns.items(), raw, errors, strict=True):
        if math.isfinite(estimates[name].standard_error):
            estimates[name] = _estimate(unknown, float(at), float(error), chosen.quantile)
    return replace(chosen, spread=spread, estimates=estimates)


def _linearised(
    rows: ResidualSystem, block: Collocation, factors: Mapping[str, float], parameters: Sequence[torch.Tensor]
) -> tuple[Array, Array, Array, Array, int]:
    """Misfit and Jacobian of the rows of a block, which are measured and which priors, and of how many measurements.

    Of many measurements they are R of J = QR, taken part by part, with the misfit as one more column.
    """
    width = sum(parameter.numel() for parameter in parameters) + len(rows.raw)
    counts = [term.measured and factors[term.name] > 0 for term in block.terms]
    robust = [isinstance(term.evaluate, Observation) and term.evaluate.noise.robust for term in block.terms]
    known = [term.name.startswith(PRIOR) for term in block.terms]
    if block.size > _MANY * width and all(counts) and not any(robust) and not any(known):
        both = torch.zeros(0, width + 1, dtype=torch.float64)
        for _, part in block.parts(_MANY * width):
            values, slopes = jacobian(rows, [part], factors, parameters)
            both = torch.linalg.qr(torch.cat([both, torch.cat([slopes, values[:, None]], dim=1)]), mode="r").R
        few = np.ones(len(both), dtype=bool)
        return both[:, -1].numpy(), both[:, :-1].numpy(), few, ~few, block.height * len(block.terms)
    plain = replace(block, terms=tuple(map(_without_loss, block.terms)))
    values, slopes = jacobian(rows, [plain], factors, parameters)
    misfit, matrix = values.numpy(), slopes.numpy()
    for number, term in enumerate(block.terms):
        place = slice(number * block.height, (number + 1) * block.height)
        if robust[number] and counts[number]:
            assert isinstance(term.evaluate, Observation)
            deviations, noise = values[place] / factors[term.name], term.evaluate.noise
            score, curvature = noise.score(deviations), noise.curvature(deviations)
            size = float(score.square().mean().sqrt()) or 1.0
            misfit[place] = factors[term.name] * score.numpy() / size
            matrix[place] *= float(curvature.mean()) / size
    measured, prior = (np.repeat(each, block.height) for each in (counts, known))
    return misfit, matrix, measured, prior, int((measured & ~prior).sum())


def from_equations(objective: Objective, *more: Objective) -> Inference:
    """Constants that equations and conditions determine by themselves, such as eigenvalues, with their numerical error.

    In the place of a standard error stands how far the rows of the objective, at points that were not trained on, would still
    move a constant, infinity where they do not see it, for the model can imitate what it does, and no number where rows are
    not finite; at least what rounding of some terms of a row does. Intervals reach twice as far, for other points would move
    a constant a little farther. Rows of ``more`` objectives of the same parameters stand below.
    """
    count = len(objective.rows.raw)
    parts = zip(*(each.linearised() for each in (objective, *more)), strict=True)
    misfit, slopes = (torch.cat(each).double().cpu().numpy() for each in parts)
    if not (np.isfinite(misfit).all() and np.isfinite(slopes).all()):
        values = {name: float(value.detach()) for name, value in objective.rows.values().items()}
        return Inference({name: Estimate(value, math.nan, math.nan, math.nan) for name, value in values.items()})
    split = slopes.shape[1] - count
    _, rest, _ = eliminated(slopes[:, :split], slopes[:, split:])
    left, singular, right = np.linalg.svd(rest, full_matrices=False)
    relative = singular / max(np.linalg.norm(slopes[:, split:]), 1e-300)
    seen = relative > _IMITATED
    move = right.T @ (np.where(seen, 1.0 / np.where(seen, singular, 1.0), 0.0) * (left.T @ misfit))
    raw = torch.stack(list(objective.rows.raw.values())).detach().double().cpu().numpy()
    errors = np.maximum(np.abs(move), _TERMS * np.finfo(float).eps * np.maximum(np.abs(raw), 1.0))
    found, _ = _estimates(objective.rows.problem.unknowns, raw, errors, right.T, seen, relative, move, _REACH)
    return Inference(found)


def from_refinement(
    unknowns: Mapping[str, Unknown],
    raw: Mapping[str, torch.Tensor],
    before: Mapping[str, torch.Tensor],
    relative: float,
    seen: Sequence[str],
) -> Inference:
    """Numerical error of constants that equations determine, by refinement.

    The larger of how far that moved them and of the ``relative`` error of the fields stands in place of a standard error; no
    number where there is no refinement ``before``, and infinity for those that are not ``seen`` beside the fields.
    """
    found = {}
    for name, each in unknowns.items():
        value = float(each.value(raw[name]).detach())
        if name in seen and not before:
            found[name] = Estimate(value, math.nan, math.nan, math.nan)
            continue
        moved = abs(value - float(each.value(before[name]).detach())) if name in seen else math.inf
        error = max(moved, relative * abs(value), np.finfo(float).eps * max(abs(value), 1.0))
        low, high = each.lower if each.lower is not None else -math.inf, each.upper if each.upper is not None else math.inf
        found[name] = Estimate(value, error, max(low, value - error), min(high, value + error))
    return Inference(found)


def _without_loss(term: Term) -> Term:
    """A term whose rows are deviations, whatever the loss that was made of them."""
    if isinstance(term.evaluate, Observation) and term.evaluate.noise.robust:
        return replace(term, evaluate=replace(term.evaluate, noise=Normal()))
    return term


def _thin(block: Collocation, most: int) -> Collocation:
    """Measurements as they are, other blocks with at most some hundred points; in float64 on the CPU."""
    thin = block if any(term.measured for term in block.terms) else block.thinned(most)
    return Collocation(thin.sample.to(torch.device("cpu"), torch.float64), block.terms)

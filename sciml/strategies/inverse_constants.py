r"""Unknown constants of laws in one coordinate: nonlinear regression, and parameter estimation of differential equations.

Where equations have no derivatives, :math:`F(y, x; c) = 0`, they are solved for the fields at every measured point, and only
the constants are varied: by the implicit function theorem :math:`\partial y/\partial c = -F_y^{-1} F_c`. Differential
equations are solved by random features together with their constants, and made exact by polynomials.

Reference: D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley 1988.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Box, Interior, SpectralPoints
from sciml.jets import Supplier
from sciml.models import Scaled, Spectral
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.linearize import gradients, per_point
from sciml.problem.measurements import data_blocks, prior_blocks
from sciml.problem.observations import DATA, is_measured
from sciml.solvers import DiscreteProblem, LeastSquares, ResidualSystem
from sciml.solvers.discrete_problem import DATA_WEIGHT, layout_of, with_features
from sciml.strategies.random_features import not_by_least_squares, output_weights, part_of, take_over
from sciml.strategies.search import Candidate, Strategy, Workspace, most_points
from sciml.strategies.training import Training
from sciml.typing import MultiIndex
from sciml.uncertainty.covariance import Inference, from_rows

_FEATURES = ((100, 32.0), (200, 48.0))
_POINTS = 6
_WEIGHTS = (1e-2, 1e-4, 1e-6)
_STEPS, _LAST_STEPS = LeastSquares(200), LeastSquares(60)
_DEGREES = (60, 120, 240)
_POINTS_A_DEGREE = 3
_NEGLIGIBLE, _CLOSE = 0.03, 1e-9
# Steps on the constants of a law without derivatives; degrees by the number of coordinates; Newton's steps for the fields.
_REGRESSION = LeastSquares(600, loss_tolerance=1e-14)
_LAW_DEGREES = {1: (30, 60, 120, 240), 2: (12, 24, 36), 3: (8, 12, 16)}
_NEWTON, _ARRIVED = 30, 1e-10
_RESOLVED = 1e-3
_GOOD = 1e-3


class LawSystem(ResidualSystem):
    """Measurements of fields that follow from equations without derivatives: unknown constants are all that is varied."""

    def evaluation(
        self, block: Collocation, values: Mapping[str, Tensor] | None = None
    ) -> tuple[Evaluation, tuple[Supplier, ...]]:
        bound = self.problem.bind(**(self.values() if values is None else values))
        suppliers = tuple(_Values(self.problem.fields, self.solved(bound, points)) for points in block.sample.points)
        return Evaluation.of(bound, block.sample.points, suppliers, block.sample.normals), suppliers

    def solved(self, bound: Any, points: Tensor) -> Tensor:
        """The fields ``(n, F)`` at points, by Newton's method at each; the last step has the graph of the constants."""
        trial = cast(Scaled, self.trial)
        values = trial.offset.expand(len(points), -1)
        for _ in range(_NEWTON):
            residuals, slopes = self._linearised(bound, points, values)
            arrived = values - torch.linalg.solve(slopes, residuals)
            near = (arrived.detach() - values).abs() <= _ARRIVED * trial.scale
            values = arrived.detach()
            if bool(near.all()):
                break
        return arrived

    def _linearised(self, bound: Any, points: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The equations ``(n, F)`` at values of the fields, and their derivatives by these ``(n, F, F)``, without a graph."""
        with torch.enable_grad():
            leaves = [column.detach().requires_grad_() for column in values.unbind(1)]
            fields = _Values(self.problem.fields, torch.stack(leaves, dim=1))
            evaluation = Evaluation.of(bound, (points,), (fields,))
            found = [term.evaluate(evaluation) for term in self.problem.terms()]
            rows = [gradients(residual, leaves) for residual in found]
        zero = torch.zeros(len(points)).to(points)
        slopes = [torch.stack([zero if each is None else each for each in row], dim=1) for row in rows]
        return torch.stack(found, dim=1), torch.stack(slopes, dim=1)


@dataclass(frozen=True)
class _Values:
    """The supplier of the values of fields ``(n, F)``, which have no derivatives."""

    fields: Sequence[str]
    values: Tensor

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        assert not index
        return self.values[:, list(self.fields).index(field)]


@dataclass(frozen=True)
class NonlinearRegression(Strategy):
    """Nonlinear regression: unknown constants of equations without derivatives, by Levenberg-Marquardt on them alone.

    The fields are solved for at every measured point; polynomials carry them to all others.
    """

    def obstacle(self, work: Workspace) -> str | None:
        problem = work.problem
        if work.measurements is None or not problem.unknowns:
            return "it has no unknown constants, or no measurements of them"
        terms = [term for block in work.discrete.train for term in block.terms]
        asked = [*problem.asked(), *(each for term in terms for each in problem.system.asked(term))]
        if problem.conditions or any(index for _, index in asked):
            return "it has derivatives or conditions"
        if len(problem.equations) != len(problem.fields) or any(term.place != Interior() for term in problem.terms()):
            return "its equations are not as many as its fields everywhere"
        if not isinstance(problem.domain, Box) or work.dimension not in _LAW_DEGREES:
            return "its domain is no box of at most three coordinates"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        setup, log = work.discrete.with_unknowns(), work.log
        assert setup.measurements is not None
        # As few constants need no rows to judge by as a line does.
        blocks = [*data_blocks(setup.problem, setup.measurements), *prior_blocks(setup.problem)]
        data = tuple(block.to(setup.trial.offset.device, setup.trial.offset.dtype) for block in blocks)
        still = copy.deepcopy(setup.trial).requires_grad_(False)
        law = replace(setup, trial=still, rows=LawSystem(setup.problem, still, setup.raw), train=data, held=data)
        law = Training(log).run(replace(law, leading=law.weights), [_REGRESSION], work.seed)
        inference = from_rows(law.objective(), known=setup.measurements.known(setup.problem))
        for degree in _LAW_DEGREES[work.dimension]:
            model = Spectral(degree)
            model.build(work.dimension, len(setup.problem.fields), torch.Generator())
            train = setup.draw(layout_of(model, setup.problem), np.random.default_rng([work.seed, 7]))
            found = setup.with_model(model, train=train).with_unknowns(law.raw)
            found = replace(found, inference=_carried(found, cast(LawSystem, law.rows), inference))
            reached = _judged(found).candidate.residual
            reason = (
                "equations without derivatives: nonlinear regression on all measured rows by Levenberg-Marquardt, then "
                f"polynomials ({model.extra_repr()}); the equations hold to {reached:.1e} of their natural size elsewhere"
            )
            enough = reached <= _CLOSE or log.ended
            now = Candidate(found, reached, "LeastSquares", reason, accepted=enough, sufficient=reached <= _GOOD)
            yield replace(now, status=log.status if log.ended else "converged", message=log.message)
            if enough:
                break


def _carried(found: DiscreteProblem, law: LawSystem, inference: Inference) -> Inference:
    """Give polynomials the values of a law; the inference whose spread moves their weights as it moves the fields."""
    points = torch.cat([points for block in found.train for points in block.sample.points])
    leaves, values = per_point(found.problem, law.raw, len(points))
    fields = law.solved(found.problem.bind(**values), points)
    slopes = [gradients(field, list(leaves.values())) for field in fields.unbind(1)]
    zero = torch.zeros_like(fields[:, 0])
    moved = torch.stack([torch.stack([zero if each is None else each for each in row], dim=1) for row in slopes], dim=1)
    moved = moved @ torch.from_numpy(inference.spread).to(moved)
    trial = found.trial
    with torch.no_grad():
        wanted = [((fields - trial.offset) / trial.scale)[..., None], moved / trial.scale[:, None]]
        weights = output_weights(trial, points, torch.cat(wanted, dim=2).flatten(1)).unflatten(1, (fields.shape[1], -1))
        trial.model.layers[-1].weight.copy_(weights[:, :, 0].T)
    spread = np.concatenate([weights[:, :, 1:].transpose(0, 1).flatten(0, 1).numpy(), inference.spread])
    return replace(inference, spread=spread)


@dataclass(frozen=True)
class _Judged:
    """A candidate with how well measurements are met, and what one of them adds to the loss (as a root)."""

    candidate: Candidate
    misfit: float
    noise: float

    @property
    def enough(self) -> bool:
        """Whether what is missing of the equations hardly counts: otherwise they give way to the noise."""
        return self.candidate.residual <= max(_NEGLIGIBLE * self.noise, _CLOSE)


@dataclass(frozen=True)
class InverseODE(Strategy):
    """Unknown constants and initial values of ordinary differential equations, by Levenberg-Marquardt.

    Random features of high frequency find the valley: measurements weigh less and less, until the equations count as exact. To
    let them lead altogether would fit their noise first, a valley from which the equations are reached slowly. Functions that
    are smooth from the start, as polynomials are, arrive in wrong ones; from the features' solution on they are
    the better basis, and a few steps with them make the equations hold to rounding. Their degree rises until that is so.
    """

    def obstacle(self, work: Workspace) -> str | None:
        if work.dimension > 1:
            return "it has more than one coordinate"
        if work.measurements is None or not work.problem.unknowns:
            return "it has no unknown constants, or no measurements of them"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        setup, training, seed = work.discrete, Training(work.log), work.seed
        lead: _Judged | None = None
        for count, scale in _FEATURES:
            train = tuple(part_of(block, _POINTS * count / most_points(1), 1) for block in setup.train)
            found = replace(with_features(setup, count, scale, seed), train=train)
            for weight in _WEIGHTS:
                found = training.run(weighed(found, setup, weight), [_STEPS], seed)
                if work.log.stopped:
                    break
            lead = _better(lead, _judged(found))
            yield lead.candidate
            for degree, generator in _degrees(seed):
                if lead.enough:
                    break
                lead = _better(lead, _on_polynomials(training, setup, lead.candidate.discrete, degree, generator, seed))
                yield lead.candidate
            # Other features are for a valley that was missed, not for the last digits.
            if lead.enough or lead.candidate.residual <= _RESOLVED * lead.misfit:
                break
        assert lead is not None
        good = lead.candidate.residual <= max(_GOOD, 0.01 * lead.misfit)
        yield replace(lead.candidate, accepted=good, solved=good)


def _better(first: _Judged | None, second: _Judged) -> _Judged:
    return second if first is None or second.candidate.residual < first.candidate.residual else first


def _degrees(seed: int) -> Iterator[tuple[int, np.random.Generator]]:
    generator = np.random.default_rng([seed, 7])
    return ((degree, generator) for degree in _DEGREES)


def _on_polynomials(
    training: Training,
    whole: DiscreteProblem,
    found: DiscreteProblem,
    degree: int,
    generator: np.random.Generator,
    seed: int,
) -> _Judged:
    """Steps on polynomials from the solution found."""
    # Denser towards the ends, or polynomials would swing there between points.
    train = whole.draw(SpectralPoints(_POINTS_A_DEGREE * (degree + 1), {whole.problem.coordinates[0]: 1}), generator)
    model = Spectral(degree)
    model.build(1, len(whole.problem.fields), torch.Generator())
    candidate = found.with_model(model, train=train).with_unknowns(found.raw)
    take_over(candidate, found.trial)
    return _judged(training.run(candidate, [_LAST_STEPS], seed))


def weighed(setup: DiscreteProblem, given: DiscreteProblem, weight: float) -> DiscreteProblem:
    """The set-up with measurements of another weight; the caller's weights of columns keep their proportions."""
    ratio = weight / DATA_WEIGHT
    weights = {name: ratio * each if is_measured(name) else each for name, each in given.weights.items()}
    return replace(setup, weights=weights, leading=weights)


def _judged(setup: DiscreteProblem) -> _Judged:
    """A set-up as a candidate, by its residuals on held-out rows."""
    sizes = {name: math.sqrt(float(value)) for name, value in setup.objective(setup.held).means().items()}
    misfit = max((size for name, size in sizes.items() if name.startswith(DATA)), default=0.0)
    reached = max((size for name, size in sizes.items() if not is_measured(name)), default=0.0)
    values = sum(block.size for block in setup.train for term in block.terms if term.measured)
    lost = sum(setup.weights[name] * size**2 for name, size in sizes.items() if is_measured(name))
    reached = reached if math.isfinite(reached) else math.inf
    model = setup.trial.model
    how = "" if not isinstance(model, Spectral) else f", then polynomials ({model.extra_repr()})"
    reason = (
        "an ordinary differential equation with unknown constants: random features and constants together by "
        f"Levenberg-Marquardt{how}; the equations hold to {reached:.1e} of their natural size on held-out points"
    )
    return _Judged(Candidate(setup, reached, "LeastSquares", reason), misfit, math.sqrt(lost / max(values, 1)))

"""Inverse problems of ordinary differential equations: unknown constants found by random features, made exact by
polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from sciml.geometry import SpectralPoints
from sciml.models import Spectral
from sciml.problem.observations import DATA, is_measured
from sciml.solvers import DiscreteProblem, LeastSquares
from sciml.solvers.discrete_problem import DATA_WEIGHT, with_features
from sciml.strategies.random_features import not_by_least_squares, part_of, take_over
from sciml.strategies.search import Candidate, Strategy, Workspace, most_points
from sciml.strategies.training import Training

_FEATURES = ((100, 32.0), (200, 48.0))
_POINTS = 6
_WEIGHTS = (1e-2, 1e-4, 1e-6)
_STEPS, _LAST_STEPS = LeastSquares(200), LeastSquares(60)
_DEGREES = (60, 120, 240)
_POINTS_A_DEGREE = 3
_NEGLIGIBLE, _CLOSE = 0.03, 1e-9
_RESOLVED = 1e-3
_GOOD = 1e-3


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
    take_over(candidate, found)
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

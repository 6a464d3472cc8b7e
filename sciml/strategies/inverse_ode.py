"""Unknown constants of ordinary differential equations: found by random features, made exact by polynomials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from sciml.geometry import SpectralPoints
from sciml.models import Scaled, Spectral
from sciml.problem.observations import DATA, is_measured
from sciml.solvers import Callback, DiscreteProblem, LeastSquares, ResidualSystem
from sciml.solvers.discrete_problem import DATA_WEIGHT, with_features
from sciml.strategies.random_features import Found, most_points, part_of, take_over
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
class Judged:
    """A set-up with how well the equations hold and measurements are met on held-out points, relative to natural sizes.

    ``noise`` is the root of what one measurement adds to the loss: what equations add has to be small beside that, or they give
    way to the noise.
    """

    setup: DiscreteProblem
    reached: float
    misfit: float
    noise: float

    @property
    def enough(self) -> bool:
        """Whether what is missing of the equations hardly counts."""
        return self.reached <= max(_NEGLIGIBLE * self.noise, _CLOSE)


def solve_for_constants(setup: DiscreteProblem, seed: int, watchers: Sequence[Callback], start: float) -> Found:
    """Unknown constants and initial values of ordinary differential equations, by Levenberg-Marquardt.

    Random features of high frequency find the valley: measurements weigh less and less, until the equations count as exact. To
    let them lead altogether would fit their noise first, a valley from which the equations are reached slowly. Functions that
    are smooth from the start, as polynomials are, arrive in wrong ones; from the features' solution on they are
    the better basis, and a few steps with them make the equations hold to rounding. Their degree rises until that is so.
    """
    training = Training(None, None, watchers, start)
    best: Judged | None = None
    for count, scale in _FEATURES:
        train = tuple(part_of(block, _POINTS * count / most_points(1), 1) for block in setup.train)
        found = replace(with_features(setup, count, scale, seed), train=train)
        for weight in _WEIGHTS:
            found = training.run(weighed(found, setup, weight), [_STEPS], seed)
            if training.outcome.stopped:
                break
        now = judged(found)
        best = now if best is None or now.reached < best.reached else best
        if training.outcome.stopped:
            break
        best = _made_exact(training, setup, best, seed)
        # Other features are for a valley that was missed, not for the last digits.
        if best.enough or best.reached <= _RESOLVED * best.misfit or training.outcome.stopped:
            break
    assert best is not None
    model = best.setup.trial.model
    how = "" if not isinstance(model, Spectral) else f", then polynomials ({model.extra_repr()})"
    reason = (
        f"an ordinary differential equation with unknown constants: random features and constants together by "
        f"Levenberg-Marquardt{how}; the equations hold to {best.reached:.1e} of their natural size on held-out points"
    )
    outcome = training.outcome
    ended = outcome.status if outcome.stopped else "converged"
    good = best.reached <= max(_GOOD, 0.01 * best.misfit)
    return Found(best.setup, 0.0 if good else math.inf, "LeastSquares", reason, outcome.steps, outcome.history, ended)


def _made_exact(training: Training, whole: DiscreteProblem, best: Judged, seed: int) -> Judged:
    """Steps on polynomials from the solution found, of degrees that rise until the equations hold."""
    generator = np.random.default_rng([seed, 7])
    for degree in _DEGREES:
        if best.enough or training.outcome.stopped:
            break
        # Denser towards the ends, or polynomials would swing there between points.
        train = whole.draw(
            SpectralPoints(_POINTS_A_DEGREE * (degree + 1), {whole.problem.coordinates[0]: 1}), generator
        )
        model = Spectral(degree)
        model.build(1, len(whole.problem.fields), torch.Generator())
        candidate = begun(replace(best.setup, train=train), model)
        take_over(candidate, best.setup)
        now = judged(training.run(candidate, [_LAST_STEPS], seed))
        best = now if now.reached < best.reached else best
    return best


def begun(setup: DiscreteProblem, model: nn.Module) -> DiscreteProblem:
    """The set-up with another model and the same values of the unknowns."""
    problem, old = setup.problem, setup.trial
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, old.offset.tolist(), old.scale.tolist())
    trial = trial.to(device=old.offset.device, dtype=old.offset.dtype)
    raw = {name: value.detach().clone().requires_grad_() for name, value in setup.raw.items()}
    return replace(setup, trial=trial, raw=raw, rows=ResidualSystem(problem, trial, raw))


def weighed(setup: DiscreteProblem, given: DiscreteProblem, weight: float) -> DiscreteProblem:
    """The set-up with measurements of another weight; the caller's weights of columns keep their proportions."""
    share = weight / DATA_WEIGHT
    weights = {name: share * each if is_measured(name) else each for name, each in given.weights.items()}
    return replace(setup, weights=weights, leading=weights)


def judged(setup: DiscreteProblem) -> Judged:
    """A set-up with its residuals on held-out rows."""
    objective = setup.objective(setup.held)
    sizes = {name: math.sqrt(float(value)) for name, value in objective.means().items()}
    misfit = max((size for name, size in sizes.items() if name.startswith(DATA)), default=0.0)
    reached = max((size for name, size in sizes.items() if not is_measured(name)), default=0.0)
    values = sum(block.size for block in setup.train for term in block.terms if term.measured)
    lost = sum(setup.weights[name] * size**2 for name, size in sizes.items() if is_measured(name))
    return Judged(setup, reached if math.isfinite(reached) else math.inf, misfit, math.sqrt(lost / max(values, 1)))

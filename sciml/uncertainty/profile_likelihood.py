r"""Profile likelihood: intervals of unknown constants that need not be symmetric, from refits with one of them held.

With :math:`L_i(v)` the largest likelihood for a value v of the i-th constant, its 95 % interval is where
:math:`2(\log L_i(\hat v) - \log L_i(v))` stays below the quantile of :math:`\chi^2_1` (of :math:`t^2` where the size of the
noise was found from the same data). Where the data hardly determine a constant the interval is open on that side, whatever the
covariance at the solution says.

References: D. J. Venzon and S. H. Moolgavkar, A method for computing profile-likelihood-based confidence intervals, Applied
Statistics 37 (1988); D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley 1988, section 6.1.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import replace

import scipy
import torch

from sciml.errors import SolverError
from sciml.problem import Problem
from sciml.problem.observations import Observation, is_measured
from sciml.solvers import DiscreteProblem, LeastSquares
from sciml.solvers.state import settled
from sciml.uncertainty.covariance import Inference

_MOST_PARAMETERS = 2000
_REFIT = LeastSquares(40, loss_tolerance=1e-5)
_CLOSE, _MOSTLY, _FARTHEST = 0.01, 0.5, 100.0


def profiled(setup: DiscreteProblem, inference: Inference) -> Inference:
    """The inference with intervals from profile likelihoods in the place of those from the covariance."""
    count = sum(parameter.numel() for parameter in setup.parameters)
    if count > _MOST_PARAMETERS:
        raise SolverError(
            f'intervals="profile" refits the solution some ten times for each unknown, by dense least squares; with {count} '
            f"parameters that takes too long (at most {_MOST_PARAMETERS}): choose intervals='covariance', or sciml.ensemble"
        )
    found, profiles = {}, {}
    for name, estimate in inference.estimates.items():
        if not math.isfinite(estimate.standard_error):
            found[name] = estimate
            continue
        profile = _Profile(setup, inference, name)
        low, high = sorted(profile.end(side) for side in (-1, 1))
        found[name], profiles[name] = replace(estimate, low=low, high=high), sorted(profile.falls.items())
    return replace(inference, estimates=found, profiles=profiles)


class _Profile:
    """One constant held at values farther and farther from its estimate."""

    def __init__(self, setup: DiscreteProblem, inference: Inference, name: str) -> None:
        self._setup, self._name = setup, name
        self._unknown = setup.problem.unknowns[name]
        self._raw = float(setup.raw[name].detach())
        self._limit = inference.quantile**2
        at = torch.tensor(self._raw, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(self._unknown.value(at), at)
        self._error = inference.estimates[name].standard_error / max(abs(float(slope)), 1e-300)
        self._unit = _loss_of_one(setup, inference)
        self._start = self._state = self._copy(setup, setup.problem)
        self._least = _refit(self._start)
        self.falls = {inference.estimates[name].value: 0.0}

    def end(self, side: int) -> float:
        """The value where the likelihood has fallen as far as chance would let it; a bound or infinity where it never does."""
        root = math.sqrt(self._limit)
        near, far = 0.0, root * self._error
        self._state = self._start

        # Brent's method asks again for the ends that it is given.
        @functools.cache
        def beyond(distance: float) -> float:
            # The root of the fall is nearly linear in the distance, so few steps find where it has the right size.
            return -root if distance == 0 else math.sqrt(max(self._fall(side * distance), 0.0)) - root

        while beyond(far) < 0:
            near, far = far, 2 * far
            if far > _FARTHEST * root * self._error:
                return self._open(side)
        self._state = self._start
        found = scipy.optimize.brentq(beyond, near, far, xtol=_CLOSE * root * self._error, rtol=1e-12)
        self._fall(side * found)
        if not self._by_data():
            return self._open(side)
        return float(self._unknown.value(torch.tensor(self._raw + side * found, dtype=torch.float64)))

    def _by_data(self) -> bool:
        """True if the data contradict the last value, and not a trial function that cannot represent the solution there."""
        objective = self._state.objective()
        broken = sum(
            self._state.weights[name] * float(value) for name, value in objective.means().items() if not is_measured(name)
        )
        return broken < _MOSTLY * self._limit * self._unit

    def _open(self, side: int) -> float:
        ends = self._unknown.value(torch.tensor([self._raw, self._raw + side * 1e-3], dtype=torch.float64))
        rising = bool(ends[1] > ends[0])
        bound = self._unknown.upper if rising else self._unknown.lower
        return (math.inf if rising else -math.inf) if bound is None else float(bound)

    def _copy(self, state: DiscreteProblem, problem: Problem, without: str = "") -> DiscreteProblem:
        """The set-up for a problem, from where a state has arrived, with all unknowns but one."""
        raw = {key: each.detach().clone().requires_grad_() for key, each in state.raw.items() if key != without}
        return self._setup.with_trial(copy.deepcopy(state.trial), problem=problem, raw=raw)

    def _fall(self, distance: float) -> float:
        """By how much twice the log-likelihood falls when the constant is held at a distance from its estimate."""
        value = self._unknown.value(torch.tensor(self._raw + distance, dtype=torch.float64))
        self._state = self._copy(self._state, self._setup.problem.bind(**{self._name: value}), self._name)
        fall = (_refit(self._state) - self._least) / self._unit
        self.falls[float(value)] = fall
        return fall


def _refit(setup: DiscreteProblem) -> float:
    """The least loss of a set-up from where it is, which it arrives at."""
    objective = setup.objective()
    settled(setup.journal, "a profile", objective, lambda: _REFIT.solve(objective))
    return objective.value()


def _loss_of_one(setup: DiscreteProblem, inference: Inference) -> float:
    """What a measurement one standard deviation off adds to the loss; of columns of different weights, one of the heaviest."""
    terms = [
        (setup.weights[term.name] / block.size, term)
        for block in setup.train
        for term in block.terms
        if isinstance(term.evaluate, Observation)
    ]
    weight, heaviest = max(terms, key=lambda each: each[0])
    assert isinstance(heaviest.evaluate, Observation)
    # Of a robust loss the rows are no standardised scores, as those of the inference are.
    robust = heaviest.evaluate.noise.robust
    return weight * (1.0 / setup.scales[heaviest.name] ** 2 if robust else inference.variance)

"""Ways to solve a window of time: random features, products of polynomials and waves, a polished network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sciml.geometry import Face, Interior, OnFaces
from sciml.models import MLP, RandomFeatures
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.solvers import DiscreteProblem, GaussNewton, LeastSquares, Objective
from sciml.solvers.gauss_newton import rank_revealing
from sciml.strategies.polish import Polish
from sciml.strategies.spectral import Degrees, layout_of
from sciml.strategies.time_marching import continued, fresh_model, window
from sciml.strategies.training import Training, relative
from sciml.typing import MultiIndex

POINTS_A_WEIGHT = 3

_IN_TIME = 4.0

_NETWORK = MLP(12, 12, 12)

_POINTS = 2048

_ROUND = LeastSquares(160, look=20)

_ROUNDS = 4

_RESOLVED = 5e-3

_STUCK = 0.8

_SHARE = 0.1

_GIVE_WAY = 3.0

_TOO_FINE = 1e-2

_SETTLED = 0.1

_SPARE, _MOST_IN_TIME, _IN_SPACE = 2, 15, 0.1

_MORE_FEATURES, _POLISH_ROUNDS = 1200, 4


@dataclass
class FeatureWindows:
    """Solves windows by random features: an attempt for ``windows.march``.

    ``scales`` are tried for the first window; the best and the next larger one for those after it.
    """

    setup: DiscreteProblem
    training: Training
    seed: int
    features: int
    scales: Sequence[float]
    wish: float
    found: float | None = None

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up and its relative residual on held-out rows."""
        best: tuple[DiscreteProblem, float] | None = None
        for scale in [each for each in self.scales if self.found is None or self.found <= each <= 2 * self.found]:
            solved = self._solved(begin, end, before, scale)
            reached = relative(solved)
            if best is None or reached < best[1]:
                best, chosen = (solved, reached), scale
            if reached <= self.wish or self.training.outcome.stopped:
                break
        assert best is not None
        if best[1] <= self.wish:
            self.found = chosen
        return best

    def _solved(self, begin: float, end: float, before: DiscreteProblem | None, scale: float) -> DiscreteProblem:
        problem = self.setup.problem
        model = RandomFeatures(
            self.features, [_IN_TIME if name == problem.time else scale for name in problem.coordinates]
        )
        if len(problem.coordinates) == 1:
            model = RandomFeatures(self.features, scale)
        weights = self.features * len(problem.fields)
        inside = POINTS_A_WEIGHT * weights // max(1, len(problem.equations))
        setup = window(self.setup, fresh_model(model, problem, self.seed), begin, end, before, inside, self.seed)
        stand_still(setup)
        return self.training.run(
            setup, [GaussNewton(10, rank_tolerance=0.0)], self.seed, f", from {problem.time} = {begin:.4g}"
        )


@dataclass
class SpectralWindows:
    """Solves windows by products of polynomials and waves: an attempt for ``windows.march``.

    Degrees in space are raised where they are what is missing, and kept from window to window. ``bases`` are the sets of waves
    to choose from in the first window. Where even as many weights as ``most`` miss the wish in space, shorter windows would
    not help, and the wish gives way, up to what is ``accepted``.
    """

    setup: DiscreteProblem
    training: Training
    seed: int
    wish: float
    accepted: float
    bases: Sequence[Degrees]
    most: int

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up and its relative residual on held-out rows."""
        best: tuple[DiscreteProblem, float, Degrees] | None = None
        other = math.inf
        for degrees in self.bases:
            solved = self._resolved(begin, end, before, degrees)
            if best is None or solved[1] < best[1]:
                best, other = solved, other if best is None else best[1]
            else:
                other = min(other, solved[1])
            if best[1] <= self.wish or self.training.outcome.stopped:
                break
        assert best is not None
        # Which functions suit the problem shows in the first window; how many of them, in every one.
        if best[1] <= self.wish:
            self.bases = [best[2]]
        elif best[1] <= _SETTLED * other:
            self.bases = [each for each in self.bases if each.waves == best[2].waves]
        return best[0], best[1]

    def _resolved(
        self, begin: float, end: float, before: DiscreteProblem | None, degrees: Degrees
    ) -> tuple[DiscreteProblem, float, Degrees]:
        """A window solved with degrees in space as high as it takes."""
        problem = self.setup.problem
        fields, time = len(problem.fields), problem.coordinates.index(str(problem.time))
        most, earlier = self.most / fields, math.inf
        shorter: Degrees | None = None
        while True:
            solved = self._solved(begin, end, before, degrees)
            reached, tails = relative(solved), list(solved.trial.model.tails())
            in_time = tails.pop(time)
            if reached <= self.wish and max(tails) < _TOO_FINE * self.wish and earlier == math.inf:
                degrees = degrees.lowered(time)
            if reached <= self.wish or reached > 2 * earlier or self.training.outcome.stopped:
                return solved, reached, degrees
            useless = shorter is not None and reached > 0.5 * earlier
            if useless:
                assert shorter is not None
                degrees = shorter
            if useless or max(tails) > _IN_SPACE * in_time:
                shorter, higher = None, degrees.raised([*tails[:time], 0.0, *tails[time:]], most=most)
                if higher is None and max(tails) > in_time and reached <= self.accepted:
                    self.wish = max(self.wish, _GIVE_WAY * reached)
            else:
                # A longer time is cheap as long as there are few weights.
                shorter, higher = degrees, degrees.raised([0.0] * time + [1.0] + [0.0] * (len(tails) - time))
                assert higher is not None
                if _SPARE * degrees.weights > most or higher.now[time] > _MOST_IN_TIME:
                    higher = None
            if higher is None:
                return solved, reached, degrees
            degrees, earlier = higher, reached

    def _solved(self, begin: float, end: float, before: DiscreteProblem | None, degrees: Degrees) -> DiscreteProblem:
        problem = self.setup.problem
        model = degrees.model(problem)
        setup = window(self.setup, model, begin, end, before, layout_of(model, problem), self.seed)
        _start_constant(setup)
        return self.training.run(
            setup, [GaussNewton(30, rank_tolerance=0.0)], self.seed, f", from {problem.time} = {begin:.4g}"
        )


@dataclass
class DeepWindows:
    """Solves windows by a network, Levenberg-Marquardt and ``Polish``: an attempt for ``windows.march``.

    A window's network begins as that of the last window that was solved, continued in time.
    """

    setup: DiscreteProblem
    training: Training
    seed: int
    wish: float
    last: DiscreteProblem | None = None

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up and its relative residual on held-out rows."""
        problem, label = self.setup.problem, f", from {self.setup.problem.time} = {begin:.4g}"
        network = window(self.setup, fresh_model(_NETWORK, problem, self.seed), begin, end, before, _POINTS, self.seed)
        if self.last is not None:
            continued(self.last.trial, network.trial)
        earlier = math.inf
        for attempt in range(_ROUNDS):
            network = self.training.run(network, [_ROUND], self.seed + attempt, label)
            now = relative(network)
            if now <= _RESOLVED or now > _STUCK * earlier or self.training.outcome.ended:
                break
            earlier = now
        if self.training.outcome.ended:
            return network, now
        best, reached = network, now
        for features in (None, _MORE_FEATURES // len(problem.fields)):
            polish = Polish(features, target=_SHARE * self.wish, rounds=_POLISH_ROUNDS)
            polished = self.training.run(network, [polish], self.seed, label)
            if relative(polished) < reached:
                best, reached = polished, relative(polished)
            if reached <= self.wish or self.training.outcome.ended:
                break
        if reached <= self.wish:
            self.last = network
        return best, reached


def _start_constant(setup: DiscreteProblem) -> None:
    """Begin a window of polynomials with what its start prescribes and no higher degrees in time."""
    problem, model = setup.problem, setup.trial.model
    assert problem.time is not None
    start = OnFaces((Face(problem.time, "lower"),))
    given = [block for block in setup.train if block.terms[0].place == start]
    if not given:
        return
    objective = setup.objective(given)
    rows, slopes = objective.linearised()
    degrees = model.basis.degrees_of[:, problem.coordinates.index(problem.time)].to(rows.device)
    low = torch.cat([degrees < max(1, problem.order(name, problem.time)) for name in problem.fields])
    move = torch.zeros_like(objective.vector())
    move[low] = rank_revealing(rows, slopes[:, low], 1e-12)
    objective.assign(objective.vector() + move)


def stand_still(setup: DiscreteProblem) -> None:
    """Begin a window with the function that has its start's values at all times.

    For a model that is linear in its parameters that is one linear solve: the rows at the start, and a highest time derivative
    that vanishes inside.
    """
    problem, time = setup.problem, setup.problem.time
    assert time is not None
    start = OnFaces((Face(time, "lower"),))
    reach = float(setup.trial.reach[problem.coordinates.index(time)])
    scales, weights, terms = dict(setup.scales), dict(setup.weights), []
    for name, size in zip(problem.fields, setup.trial.scale.tolist(), strict=True):
        index = (time,) * max(1, problem.order(name, time))
        terms.append(_vanishing(name, index))
        scales[terms[-1].name], weights[terms[-1].name] = size / reach ** len(index), 1.0
    inside = [Collocation(block.sample, tuple(terms)) for block in setup.train if block.terms[0].place == Interior()][
        :1
    ]
    given = [block for block in setup.train if block.terms[0].place == start]
    GaussNewton(1, rank_tolerance=0.0).start(
        Objective(setup.rows, [*given, *inside], scales, weights, setup.parameters)
    ).step()


def _vanishing(name: str, index: MultiIndex) -> Term:
    def residual(scene: Evaluation) -> torch.Tensor:
        return scene.space.jet(name, index)

    return Term(f"still.{name}", Interior(), residual)


def feature_count(problem: Problem) -> int:
    """Random features for each field in a window: enough for a solve that takes about a second."""
    dimension, fields = len(problem.coordinates), len(problem.fields)
    if dimension == 1:
        return 60
    return max(250, (800 if dimension == 2 else 1500) // fields)

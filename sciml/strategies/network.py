"""A small network by Levenberg-Marquardt: what resolves many coordinates, where random features are too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from sciml.models import MLP, Scaled
from sciml.solvers import Callback, DiscreteProblem, LeastSquares, ResidualSystem
from sciml.strategies.random_features import Found, most_points, part_of
from sciml.strategies.training import Training, relative

_NETWORK = (16, 16, 16)

_STEPS = LeastSquares(300, look=20)

_POINTS_A_WEIGHT = 2

_GOOD = 1e-2


def solve_by_network(setup: DiscreteProblem, seed: int, watchers: Sequence[Callback], start: float) -> Found:
    """A network of some hundred weights, all of them found by least squares.

    The number of random features that a smooth function needs grows like a power of the number of coordinates, with the
    order that is wanted for exponent; a network turns its features to where the function varies.

    Args:
        setup: a problem with as many points as ``most_points`` says; a part of them is used.
        seed: of the network.
        watchers: see every look; a true return value ends the training.
        start: when the fit began.
    """
    problem, old = setup.problem, setup.trial
    dimension, fields = len(problem.coordinates), len(problem.fields)
    model = MLP(*_NETWORK)
    model.build(dimension, fields, torch.Generator().manual_seed(seed))
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, old.offset.tolist(), old.scale.tolist())
    trial = trial.to(device=old.offset.device, dtype=old.offset.dtype)
    weights = sum(parameter.numel() for parameter in model.parameters())
    share = _POINTS_A_WEIGHT * weights / max(1, len(problem.equations)) / most_points(dimension)
    train = tuple(part_of(block, share, dimension) for block in setup.train)
    setup = replace(setup, trial=trial, rows=ResidualSystem(problem, trial, setup.raw), train=train)
    training = Training(None, None, watchers, start)
    setup = training.run(setup, [_STEPS], seed)
    reached, outcome = relative(setup), training.outcome
    reason = (
        f"{dimension} coordinates: random features do not resolve them; a network ({model.extra_repr()}) by "
        f"Levenberg-Marquardt does to {reached:.1e} of the residuals' natural size on held-out points"
    )
    ended = outcome.status if outcome.stopped else "converged"
    return Found(setup, reached, "LeastSquares", reason, outcome.steps, outcome.history, ended, _GOOD)

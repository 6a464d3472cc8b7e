"""Deep polish: random features of what a network has learned, solved for by Gauss-Newton steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sciml.errors import SolverError
from sciml.jets.linear import output_layer
from sciml.models import DeepFeatures, Windowed, model_of, with_model
from sciml.models.layer_outputs import head_of
from sciml.solvers import Adaptive, DiscreteProblem
from sciml.solvers.base import check_settings


@dataclass(frozen=True)
class Polish:
    r"""Gauss-Newton steps on random features of a trained network's last hidden layer: from 1e-4 to 1e-9 in seconds.

    The trial function becomes ``DeepFeatures`` of the network, which begins as the network itself; its output weights are then
    found by a few Gauss-Newton steps, on points drawn where the network's residual is large. A network may have layers too thin
    for these points to meet; as long as the loss on held-out points is far above that on the training points, the worst of many
    fresh points are added and the steps taken again. Of several scales the one with the
    smallest loss on held-out points is kept, or the network where none is better. It stands after other solvers,
    ``solver=[LeastSquares(100), Polish()]``, and needs an ``MLP`` or another module whose outputs are those of a linear layer.

    Args:
        features: the number of sines for each field, or None: 800 for one field and fewer for several.
        scales: scales R of the frequencies to try.
        points: rows of the equations for each weight; fewer than two or three overfit.
        steps: the most Gauss-Newton steps for each scale and round.
        rounds: how often points are added at most, plus one.
        target: a relative residual on held-out rows that is good enough.

    Raises:
        SolverError: a setting is not positive.

    Example:
        >>> import sciml
        >>> sciml.Polish(features=400).scales
        (0.5,)

    See ``docs/method.md`` for the derivation, relatives, and where it fails.
    """

    features: int | None = None
    scales: Sequence[float] = (0.5,)
    points: float = 3.0
    steps: int = 8
    rounds: int = 6
    target: float = 0.0

    def __post_init__(self) -> None:
        check_settings(self, whole="features steps rounds", positive="points", not_negative="target")
        if not self.scales or min(self.scales) <= 0:
            raise SolverError(f"scales must be positive; given: {self}")

    @property
    def name(self) -> str:
        """The name in histories and reports."""
        return type(self).__name__

    @staticmethod
    def serves(setup: DiscreteProblem) -> bool:
        """Whether the model has hidden layers below a linear one that gives the fields, and has not diverged."""
        network = model_of(setup.trial)
        known = network is not None and not isinstance(network, Windowed) and head_of(network) is not None
        return known and output_layer(setup.trial) is None

    def begin(self, setup: DiscreteProblem, scale: float, seed: int) -> DiscreteProblem:
        """The set-up with deep features in place of the network, which has the same values.

        Raises:
            SolverError: the model has no hidden layers below a linear one that gives the fields.
        """
        problem, old = setup.problem, setup.trial
        fields = len(problem.fields)
        count = self.features or max(200, 800 // fields)
        network = model_of(old)
        if network is None or not self.serves(setup):
            raise SolverError(
                "Polish starts from the last hidden layer of a network, below the linear one that gives the fields; the model, "
                f"a {type(network).__name__}, has none"
            )
        trial = with_model(old, DeepFeatures(network, count, scale, seed))
        inside = round(self.points * count * fields / max(1, len(problem.equations)))
        generator = np.random.default_rng([seed, 2])
        train = setup.draw(inside, generator)
        # Points where the network is wrong: there the features have most to do.
        train = Adaptive().renewed(setup.objective(train), generator)
        # Constants of its own: another scale must begin where this one did.
        return setup.with_trial(trial, train=train).with_unknowns(setup.raw)

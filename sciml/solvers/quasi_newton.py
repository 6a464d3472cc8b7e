"""Quasi-Newton methods: the iteration of L-BFGS and self-scaled Broyden, with a strong Wolfe line search."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sciml.solvers.base import Run, Step
from sciml.solvers.linesearch import Trial, strong_wolfe
from sciml.solvers.nonfinite import described
from sciml.solvers.objective import Objective


class QuasiNewtonRun(Run):
    r"""A line search along :math:`-H \nabla f`; a subclass says how H, ``_inverse`` (None: 1), acts and is updated.

    It is updated where the angle of a move and the gradient's change allows it, whatever their size.
    """

    def __init__(self, objective: Objective, gradient_tolerance: float) -> None:
        self._objective = objective
        self._gradient_tolerance = gradient_tolerance
        self._here: tuple[Tensor, float, Tensor, Mapping[str, Tensor]] | None = None
        self._inverse: Any = None
        self._counted = False

    @abstractmethod
    def _direction(self, gradient: Tensor) -> Tensor:
        """The negative product of H and a gradient."""

    @abstractmethod
    def _learn(self, length: float, move: Tensor, change: Tensor, gradient: Tensor) -> None:
        """Update H by a step: its length, its move, the change of the gradient, and the gradient where it began."""

    def state_dict(self) -> dict[str, Any]:
        # The point and its gradient are computed again from the parameters, which gives the same bits.
        return {"counted": self._here is not None, "inverse": copy.deepcopy(self._inverse)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._counted, self._inverse = state["counted"], copy.deepcopy(state["inverse"])

    def step(self) -> Step:
        evaluations = 0
        if self._here is None:
            loss, here, means = self._objective.evaluate()
            # What was evaluated before an interruption has been counted.
            evaluations = 0 if self._counted else 1
            self._counted = False
            self._here = (self._objective.vector(), float(loss), here, means)
        position, value, gradient, terms = self._here
        if not (math.isfinite(value) and bool(torch.isfinite(gradient).all())):
            why = described(self._objective, "the loss or its gradient is not finite")
            return self._stop("diverged", why, evaluations)
        if float(gradient.abs().max()) <= self._gradient_tolerance:
            return self._stop("converged", "the gradient vanishes", evaluations)
        direction = self._direction(gradient)
        slope = float(direction @ gradient)
        if not -math.inf < slope < 0:
            self._inverse = None
            direction, slope = -gradient, -float(gradient @ gradient)
        first = min(1.0, 1.0 / float(gradient.abs().sum())) if self._inverse is None else 1.0
        trials: list[Trial] = []

        def evaluate(length: float) -> Trial:
            self._objective.assign(position + length * direction)
            loss, new_gradient, new_terms = self._objective.evaluate()
            slope = float(new_gradient @ direction)
            # A finite loss whose gradient is none is no place to go on from: too long a step, as one with an infinite loss.
            value = float(loss) if math.isfinite(slope) else math.inf
            trials.append(Trial(length, value, slope, new_gradient, new_terms))
            return trials[-1]

        taken, used = strong_wolfe(evaluate, Trial(0.0, value, slope, gradient, terms), first)
        evaluations += used
        if taken.step == 0.0:
            shortest = min(trials, key=lambda trial: trial.step)
            why = ""
            if self._inverse is None and not math.isfinite(shortest.loss):
                self._objective.assign(position + shortest.step * direction)
                why = described(self._objective, "the gradient is not finite")
            self._objective.assign(position)
            if why:
                return self._stop("diverged", f"no step can be taken, for however short it is, {why}", evaluations)
            if self._inverse is None:
                return self._stop("converged", "no lower point exists along the gradient, to rounding", evaluations)
            self._inverse = None
            return Step(torch.tensor(value), terms, evaluations)
        move, change = taken.step * direction, taken.gradient - gradient
        if float(move @ change) > 1e-14 * float(move.norm() * change.norm()):
            self._learn(taken.step, move, change, gradient)
        arrived = position + move
        self._objective.assign(arrived)
        self._here = (arrived, taken.loss, taken.gradient, taken.terms)
        return Step(torch.tensor(taken.loss), taken.terms, evaluations)

    def renewed(self) -> None:
        # The curvature stays: the points are new, the function behind them is nearly the same, and starting
        # again without it was measured to lose a factor of three on Burgers' equation.
        self._here = None

    def _stop(self, outcome: str, why: str, evaluations: int) -> Step:
        assert self._here is not None
        return Step(torch.tensor(self._here[1]), self._here[3], evaluations, outcome, why)

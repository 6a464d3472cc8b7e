"""What quasi-Newton methods have in common: a direction, a strong Wolfe line search along it, and what is learnt there."""

from __future__ import annotations

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
    r"""A line search along :math:`-H \nabla f`, with H kept by a subclass.

    Whether a pair of a move and the change of the gradient along it is learnt from depends on its angle, not on an absolute
    size, so that learning goes on where losses are tiny.
    """

    def __init__(self, objective: Objective, gradient_tolerance: float) -> None:
        self._objective = objective
        self._gradient_tolerance = gradient_tolerance
        self._here: tuple[Tensor, float, Tensor, dict[str, Tensor]] | None = None
        self._counted = False

    @abstractmethod
    def _direction(self, gradient: Tensor) -> Tensor:
        """The negative product of H and a gradient."""

    @property
    @abstractmethod
    def _knows_nothing(self) -> bool:
        """Whether H is still the identity."""

    @abstractmethod
    def _learn(self, length: float, move: Tensor, change: Tensor, gradient: Tensor) -> None:
        """Learn from a step of a length, its move, the change of the gradient, and the gradient where it began."""

    @abstractmethod
    def _forget(self) -> None:
        """Begin again with the identity."""

    def state_dict(self) -> dict[str, Any]:
        # The point and its gradient are computed again from the parameters, which gives the same bits.
        return {"counted": self._here is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._counted = state["counted"]

    def step(self) -> Step:
        evaluations = 0
        if self._here is None:
            loss, gradient, terms = self._objective.evaluate()
            # What was evaluated before an interruption has been counted.
            evaluations = 0 if self._counted else 1
            self._counted = False
            self._here = (self._objective.vector(), float(loss), gradient, terms)
        position, value, gradient, terms = self._here
        if not (math.isfinite(value) and bool(torch.isfinite(gradient).all())):
            why = described(self._objective, "the loss or its gradient is not finite")
            return self._stop("diverged", why, evaluations)
        if float(gradient.abs().max()) <= self._gradient_tolerance:
            return self._stop("converged", "the gradient vanishes", evaluations)
        direction = self._direction(gradient)
        slope = float(direction @ gradient)
        if not -math.inf < slope < 0:
            self._forget()
            direction, slope = -gradient, -float(gradient @ gradient)
        first = min(1.0, 1.0 / float(gradient.abs().sum())) if self._knows_nothing else 1.0
        reached: dict[float, dict[str, Tensor]] = {}
        shortest, walled = math.inf, False

        def evaluate(length: float) -> Trial:
            self._objective.assign(position + length * direction)
            loss, new_gradient, new_terms = self._objective.evaluate()
            reached[length] = new_terms
            nonlocal shortest, walled
            slope = float(new_gradient @ direction)
            # A finite loss whose gradient is none is no place to go on from: too long a step, as one with an infinite loss.
            value = float(loss) if math.isfinite(slope) else math.inf
            if length <= shortest:
                shortest, walled = length, not math.isfinite(value)
            return Trial(length, value, slope, new_gradient)

        taken, used = strong_wolfe(evaluate, Trial(0.0, value, slope, gradient), first)
        evaluations += used
        if taken.step == 0.0:
            if walled and self._knows_nothing:
                self._objective.assign(position + shortest * direction)
                why = described(self._objective, "the gradient is not finite")
                self._objective.assign(position)
                return self._stop("diverged", f"no step can be taken, for however short it is, {why}", evaluations)
            self._objective.assign(position)
            if self._knows_nothing:
                return self._stop("converged", "no lower point exists along the gradient, to rounding", evaluations)
            self._forget()
            return Step(torch.tensor(value), terms, evaluations)
        move, change = taken.step * direction, taken.gradient - gradient
        if float(move @ change) > 1e-14 * float(move.norm() * change.norm()):
            self._learn(taken.step, move, change, gradient)
        arrived = position + move
        self._objective.assign(arrived)
        self._here = (arrived, taken.loss, taken.gradient, reached[taken.step])
        return Step(torch.tensor(taken.loss), reached[taken.step], evaluations)

    def renewed(self) -> None:
        # What was learnt of the curvature stays: the points are new, the function behind them is nearly the same, and starting
        # again without it was measured to lose a factor of three on Burgers' equation.
        self._here = None

    def _stop(self, outcome: str, why: str, evaluations: int) -> Step:
        assert self._here is not None
        return Step(torch.tensor(self._here[1]), self._here[3], evaluations, outcome, why)

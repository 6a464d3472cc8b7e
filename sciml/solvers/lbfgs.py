"""The limited-memory BFGS method with a strong Wolfe line search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sciml.errors import SolverError
from sciml.objective import Objective
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.linesearch import Trial, strong_wolfe


@dataclass(frozen=True)
class LBFGS(Solver):
    """Limited-memory BFGS, for small and medium models in float64.

    Unlike ``torch.optim.LBFGS`` it keeps updating to the end: whether a curvature pair is kept depends on its angle, not
    on an absolute size, and every step satisfies the strong Wolfe conditions.

    Args:
        steps: the most steps.
        history: the number of curvature pairs kept.
        gradient_tolerance: it has converged when the largest component of the gradient is below this.
        look: steps between looks at held-out rows.

    Raises:
        SolverError: fewer than one step, pair or look.

    Example:
        >>> import sciml
        >>> sciml.LBFGS(500).history
        50

    Reference: J. Nocedal and S. J. Wright, Numerical Optimization, 2nd ed., Springer 2006, algorithm 7.5.
    """

    steps: int = 3000
    history: int = 50
    gradient_tolerance: float = 1e-12
    look: int = 50

    def __post_init__(self) -> None:
        if not all(isinstance(count, int) and count >= 1 for count in (self.steps, self.history, self.look)):
            raise SolverError(f"steps, history and look must be whole numbers of at least 1; given: {self}")

    def start(self, objective: Objective) -> Run:
        return _LBFGSRun(self, objective)


class _LBFGSRun(Run):
    def __init__(self, solver: LBFGS, objective: Objective) -> None:
        self._solver = solver
        self._objective = objective
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._here: tuple[Tensor, float, Tensor, dict[str, Tensor]] | None = None

    def step(self) -> Step:
        evaluations = 0
        if self._here is None:
            loss, gradient, terms = self._objective.evaluate()
            evaluations = 1
            self._here = (self._objective.vector(), float(loss), gradient, terms)
        position, value, gradient, terms = self._here
        if not (math.isfinite(value) and bool(torch.isfinite(gradient).all())):
            return self._stop("diverged", "the loss or its gradient is not finite", evaluations)
        if float(gradient.abs().max()) <= self._solver.gradient_tolerance:
            return self._stop("converged", "the gradient vanishes", evaluations)
        direction = self._direction(gradient)
        slope = float(direction @ gradient)
        if slope >= 0:
            self._pairs.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        first = 1.0 if self._pairs else min(1.0, 1.0 / float(gradient.abs().sum()))
        reached: dict[float, dict[str, Tensor]] = {}

        def evaluate(length: float) -> Trial:
            self._objective.assign(position + length * direction)
            loss, new_gradient, new_terms = self._objective.evaluate()
            reached[length] = new_terms
            return Trial(length, float(loss), float(new_gradient @ direction), new_gradient)

        taken, used = strong_wolfe(evaluate, Trial(0.0, value, slope, gradient), first)
        evaluations += used
        if taken.step == 0.0:
            self._objective.assign(position)
            if not self._pairs:
                return self._stop("converged", "no lower point exists along the gradient, to rounding", evaluations)
            self._pairs.clear()
            return Step(torch.tensor(value), terms, evaluations)
        move, change = taken.step * direction, taken.gradient - gradient
        if float(move @ change) > 1e-14 * float(move.norm() * change.norm()):
            self._pairs = [*self._pairs, (move, change)][-self._solver.history :]
        arrived = position + move
        self._objective.assign(arrived)
        self._here = (arrived, taken.loss, taken.gradient, reached[taken.step])
        return Step(torch.tensor(taken.loss), reached[taken.step], evaluations)

    def renewed(self) -> None:
        # The curvature pairs stay: the points are new, the function behind them is nearly the same, and starting again
        # without them was measured to lose a factor of three on Burgers' equation.
        self._here = None

    def _direction(self, gradient: Tensor) -> Tensor:
        """The two-loop recursion."""
        direction = -gradient
        shares: list[tuple[float, float]] = []
        for move, change in reversed(self._pairs):
            inverse = 1.0 / float(move @ change)
            share = inverse * float(move @ direction)
            shares.append((share, inverse))
            direction = direction - share * change
        if self._pairs:
            move, change = self._pairs[-1]
            direction = direction * (float(move @ change) / float(change @ change))
        for (move, change), (share, inverse) in zip(self._pairs, reversed(shares), strict=True):
            direction = direction + (share - inverse * float(change @ direction)) * move
        return direction

    def _stop(self, outcome: str, why: str, evaluations: int) -> Step:
        assert self._here is not None
        return Step(torch.tensor(self._here[1]), self._here[3], evaluations, outcome, why)

    def state_dict(self) -> dict[str, Any]:
        return {"pairs": [list(pair) for pair in self._pairs]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # The point and its gradient are computed again from the parameters, which gives the same bits.
        self._pairs = [(move, change) for move, change in state["pairs"]]

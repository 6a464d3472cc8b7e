"""The limited-memory BFGS method with a strong Wolfe line search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sciml.solvers.base import Run, Solver, check_settings
from sciml.solvers.objective import Objective
from sciml.solvers.quasi_newton import QuasiNewtonRun


@dataclass(frozen=True, repr=False)
class LBFGS(Solver):
    """Limited-memory BFGS, for small and medium models in float64.

    Unlike ``torch.optim.LBFGS`` it keeps updating to the end: whether a curvature pair is kept depends on its angle, not
    on an absolute size, and every step satisfies the strong Wolfe conditions.

    Args:
        steps: the most steps.
        history: the number of curvature pairs kept.
        gradient_tolerance: it has converged when the largest component of the gradient is below this.
        look: steps between reports on held-out rows.

    Raises:
        SolverError: a setting is out of range.

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
        check_settings(self, whole="steps history look", not_negative="gradient_tolerance")

    def start(self, objective: Objective) -> Run:
        return _LBFGSRun(self, objective)


class _LBFGSRun(QuasiNewtonRun):
    def __init__(self, solver: LBFGS, objective: Objective) -> None:
        super().__init__(objective, solver.gradient_tolerance)
        self._history = solver.history
        self._pairs: list[tuple[Tensor, Tensor]] = []

    @property
    def _knows_nothing(self) -> bool:
        return not self._pairs

    def _learn(self, length: float, move: Tensor, change: Tensor, gradient: Tensor) -> None:
        self._pairs = [*self._pairs, (move, change)][-self._history :]

    def _forget(self) -> None:
        self._pairs.clear()

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

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "pairs": [list(pair) for pair in self._pairs]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._pairs = [(move, change) for move, change in state["pairs"]]

"""The limited-memory BFGS method with a strong Wolfe line search."""

from __future__ import annotations

from dataclasses import dataclass

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
    projects = True

    def __post_init__(self) -> None:
        check_settings(self, whole="steps history look", not_negative="gradient_tolerance")

    def start(self, objective: Objective) -> Run:
        return _LBFGSRun(self, objective)


class _LBFGSRun(QuasiNewtonRun):
    def __init__(self, solver: LBFGS, objective: Objective) -> None:
        super().__init__(objective, solver.gradient_tolerance)
        self._history = solver.history

    def _learn(self, length: float, move: Tensor, change: Tensor, gradient: Tensor) -> None:
        self._inverse = [*(self._inverse or []), (move, change)][-self._history :]

    def _direction(self, gradient: Tensor) -> Tensor:
        """The two-loop recursion."""
        direction, pairs = -gradient, self._inverse or []
        kept: list[tuple[float, float]] = []
        for move, change in reversed(pairs):
            inverse = 1.0 / float(move @ change)
            coefficient = inverse * float(move @ direction)
            kept.append((coefficient, inverse))
            direction = direction - coefficient * change
        if pairs:
            move, change = pairs[-1]
            direction = direction * (float(move @ change) / float(change @ change))
        for (move, change), (coefficient, inverse) in zip(pairs, reversed(kept), strict=True):
            direction = direction + (coefficient - inverse * float(change @ direction)) * move
        return direction

"""The Levenberg-Marquardt method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sciml.errors import SolverError
from sciml.objective import Objective
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.linear import rank_revealing


@dataclass(frozen=True)
class LeastSquares(Solver):
    r"""Levenberg-Marquardt: :math:`\delta = -(J^T J + \lambda D^2)^{-1} J^T r`, the default for small models in float64.

    One Jacobian serves several dampings: those around the present one are tried, the one with the lowest **true** loss is
    taken, and the damping rises when none improves. D holds the norms of the columns of J. When there are fewer rows than
    parameters the system is solved in row space. When normal equations, which square the condition number, no longer
    gain, the steps go on undamped, by a rank-revealing factorisation of the Jacobian itself.

    Args:
        steps: the most steps.
        damping: :math:`\lambda` at the start.
        trials: dampings tried a step before it counts as failed.
        gradient_tolerance: it has converged when no column of J makes a larger angle cosine with the rows.
        look: steps between looks at held-out rows.

    Raises:
        SolverError: a setting is not positive.

    Example:
        >>> import sciml
        >>> sciml.LeastSquares(200).damping
        0.01

    Reference: J. J. More, The Levenberg-Marquardt algorithm: implementation and theory, in Numerical Analysis, Springer 1978.
    """

    steps: int = 500
    damping: float = 1e-2
    trials: int = 8
    gradient_tolerance: float = 1e-12
    look: int = 10

    def __post_init__(self) -> None:
        if min(self.steps, self.trials, self.look) < 1 or self.damping <= 0:
            raise SolverError(f"steps, damping, trials and look must be positive; given: {self}")

    def start(self, objective: Objective) -> Run:
        return _LeastSquaresRun(self, objective)


class _LeastSquaresRun(Run):
    def __init__(self, solver: LeastSquares, objective: Objective) -> None:
        self._solver = solver
        self._objective = objective
        self._damping = solver.damping
        self._precise = False
        self._idle = 0

    def step(self) -> Step:
        objective = self._objective
        position = objective.vector()
        rows, slopes = objective.linearised()
        value = float(rows @ rows)
        if not (math.isfinite(value) and bool(torch.isfinite(slopes).all())):
            return self._report(value, 1, "diverged", "a residual or its derivative is not finite")
        norms = slopes.norm(dim=0)
        floor = 1e-8 * float(norms.max())
        norms = norms.clamp(min=floor if floor > 0 else 1.0)
        slopes = slopes / norms
        gradient = slopes.T @ rows
        if float(gradient.abs().max()) <= self._solver.gradient_tolerance * math.sqrt(value):
            return self._report(value, 1, "converged", "the rows are orthogonal to every column of the Jacobian")
        solve = shortened(rows, slopes) if self._precise else damped_cholesky(rows, slopes, gradient)
        best, best_move, used = value, None, 0
        damping = 1.0 if self._precise else self._damping
        for trial in range(self._solver.trials):
            move = solve(damping)
            loss = math.inf
            if move is not None:
                objective.assign(position + move / norms)
                loss = objective.value()
                used += 1
            if math.isfinite(loss) and loss < best:
                best, best_move, self._damping = loss, move, damping
                if trial >= 2 or self._precise:
                    break
                # Downhill: a smaller damping may gain more, as long as it does.
                damping = max(damping / 5, 1e-16)
            elif best_move is not None:
                break
            else:
                damping = damping * (2 if self._precise else 6)
        if best_move is None:
            objective.assign(position)
            return self._stalled(value, used)
        objective.assign(position + best_move / norms)
        self._idle = self._idle + 1 if best > (1 - 1e-6) * value else 0
        if self._idle >= 10:
            return self._stalled(best, used)
        return self._report(best, used)

    def _stalled(self, value: float, used: int) -> Step:
        """Nothing was gained: turn to the Jacobian itself if that has not been done, otherwise stop."""
        self._idle = 0
        if self._precise:
            return self._report(value, used, "converged", "no step lowers the loss any further")
        self._precise = True
        return self._report(value, used)

    def _report(self, value: float, used: int, done: str | None = None, message: str = "") -> Step:
        terms = {name: each.detach() for name, each in self._objective.terms().items()} if done else {}
        return Step(torch.tensor(value), terms, used, done, message)

    def state_dict(self) -> dict[str, Any]:
        return {"damping": self._damping, "precise": self._precise, "idle": self._idle}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._damping, self._precise, self._idle = state["damping"], state["precise"], state["idle"]


def damped_cholesky(rows: Tensor, slopes: Tensor, gradient: Tensor) -> Callable[[float], Tensor | None]:
    """Steps for any damping by Cholesky factors of the smaller of JᵀJ and JJᵀ."""
    wide = slopes.shape[0] < slopes.shape[1]
    square = slopes @ slopes.T if wide else slopes.T @ slopes
    unit = torch.eye(len(square), dtype=square.dtype, device=square.device)

    def solve(damping: float) -> Tensor | None:
        factor, failed = torch.linalg.cholesky_ex(square + damping * unit)
        if int(failed):
            return None
        if wide:
            return -(slopes.T @ torch.cholesky_solve(rows[:, None], factor)[:, 0])
        return -torch.cholesky_solve(gradient[:, None], factor)[:, 0]

    return solve


def shortened(rows: Tensor, slopes: Tensor) -> Callable[[float], Tensor | None]:
    """The undamped step by a rank-revealing factorisation of J itself, divided by the "damping"."""
    whole = rank_revealing(rows, slopes, 1e-14)
    return lambda damping: whole / damping

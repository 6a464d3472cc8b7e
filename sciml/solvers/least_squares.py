"""The Levenberg-Marquardt method."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sciml.diagnosis import told
from sciml.errors import SolverError, listed
from sciml.objective import Objective
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.damped import FACTORISATIONS, LevenbergMarquardt
from sciml.solvers.memory import require
from sciml.solvers.retreat import Retreat


@dataclass(frozen=True)
class LeastSquares(Solver):
    r"""Levenberg-Marquardt: :math:`\delta = -(J^T J + \lambda D^2)^{-1} J^T r`, the default for small models in float64.

    One Jacobian serves several dampings: those below the present one are tried as long as the **true** loss falls, and the
    damping rises when none improves; where the linear model foretold the fall, it drops by two orders at once. D holds the
    largest norms so far of the columns of J. When there are fewer rows than parameters the system is solved in row space.

    Normal equations square the condition number. Where the damping has become smaller than their rounding the steps come
    from an orthogonal factorisation of J itself, which is what reaches the bottom of narrow valleys.

    Args:
        steps: the most steps.
        damping: :math:`\lambda` at the start.
        trials: dampings tried a step before it counts as failed.
        gradient_tolerance: it has converged when no column of J makes a larger angle cosine with the rows.
        loss_tolerance: it has converged when the loss, and what its linear model foretells, falls by a smaller share than this
            in four steps in turn.
        target: stop at a loss below this.
        seconds: stop after this long.
        factorisation: ``"cholesky"`` of normal equations, ``"qr"`` or ``"svd"`` of J, or ``"auto"``: the first until the
            second is needed.
        memory: the most bytes that J and its factors may take; half of what is free when None.
        look: steps between looks at held-out rows.

    Raises:
        SolverError: a setting is not positive, the factorisation is unknown; when a run begins, the memory does not suffice.

    Example:
        >>> import sciml
        >>> sciml.LeastSquares(200, target=1e-16, seconds=60).damping
        0.01

    Reference: J. J. More, The Levenberg-Marquardt algorithm: implementation and theory, in Numerical Analysis, Springer 1978.
    """

    steps: int = 500
    damping: float = 1e-2
    trials: int = 8
    gradient_tolerance: float = 1e-12
    look: int = 10
    loss_tolerance: float = 1e-6
    target: float = 0.0
    seconds: float = math.inf
    factorisation: str = "auto"
    memory: float | None = None

    def __post_init__(self) -> None:
        bound = math.inf if self.memory is None else self.memory
        if min(self.steps, self.trials, self.look) < 1 or min(self.damping, self.seconds, bound) <= 0:
            raise SolverError(f"steps, damping, trials, look, seconds and memory must be positive; given: {self}")
        if min(self.gradient_tolerance, self.loss_tolerance, self.target) < 0:
            raise SolverError(f"tolerances and target must not be negative; given: {self}")
        if self.factorisation not in FACTORISATIONS:
            raise SolverError(f"factorisation must be one of {listed(FACTORISATIONS)}; given: {self.factorisation!r}")

    def start(self, objective: Objective) -> Run:
        return _LeastSquaresRun(self, objective)


class _LeastSquaresRun(Run):
    def __init__(self, solver: LeastSquares, objective: Objective) -> None:
        self._solver, self._objective = solver, objective
        self._seconds, self._retreat = 0.0, Retreat()
        self._core = LevenbergMarquardt(
            solver.damping, solver.trials, solver.gradient_tolerance, solver.loss_tolerance, solver.factorisation
        )
        self._check_memory()

    def _check_memory(self) -> None:
        rows, columns = self._objective.shape
        like = self._objective.parameters[0]
        # J as it comes and scaled, one more of either for assembling and factorising; a few squares of its smaller side.
        needed = (4 * rows * columns + 6 * min(rows, columns) ** 2) * like.element_size()
        what = f"LeastSquares with {rows} rows and {columns} parameters (a dense Jacobian of {rows} x {columns})"
        instead = (
            "use sciml.LBFGS, sciml.SSBroyden where a square of the parameters fits, fewer points or a smaller model"
        )
        require(needed, self._solver.memory, like, what, instead)

    def step(self) -> Step:
        begin, objective, solver = time.perf_counter(), self._objective, self._solver

        def value_at(position: Tensor) -> float:
            objective.assign(position)
            return objective.value()

        rows, slopes, _, halvings = self._retreat.linearised(objective)
        # What was too long a step once would be so again.
        self._core.damping *= 10.0**halvings
        found = self._core.advance(objective.vector(), rows, slopes, value_at)
        objective.assign(found.position)
        self._seconds += time.perf_counter() - begin
        done, message = found.done, found.message
        if done == "diverged":
            message = told(objective, message)
        if done is None and found.value <= solver.target:
            done, message = "converged", f"the loss is below the target {solver.target:g}"
        elif done is None and self._seconds >= solver.seconds:
            done, message = "budget", f"the {solver.seconds:g} seconds of LeastSquares are over"
        terms = objective.means() if done else {}
        return Step(torch.tensor(found.value), terms, max(found.tried, 1), done, message)

    def renewed(self) -> None:
        self._core.idle = 0

    def state_dict(self) -> dict[str, Any]:
        core = self._core
        state = {"damping": core.damping, "norms": core.norms, "idle": core.idle, "seconds": self._seconds}
        return {**state, "good": self._retreat.good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._core.damping, self._core.norms, self._core.idle = state["damping"], state["norms"], state["idle"]
        self._seconds, self._retreat.good = state["seconds"], state["good"]

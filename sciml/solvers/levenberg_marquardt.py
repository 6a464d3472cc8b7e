r"""The Levenberg-Marquardt iteration on plain rows and their Jacobian.

.. math::  \delta(\lambda) = \arg\min_\delta \|J\delta + r\|^2 + \lambda \|D\delta\|^2

Reference: J. J. More, The Levenberg-Marquardt algorithm: implementation and theory, in Numerical Analysis, Springer 1978.

The Levenberg-Marquardt method.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sciml._text import listed
from sciml.data.memory import require
from sciml.errors import SolverError
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.gauss_newton import Backtracking
from sciml.solvers.nonfinite import described
from sciml.solvers.objective import Objective

FACTORISATIONS = ("auto", "cholesky", "qr", "svd")

# The rounding of normal equations is some units times their largest eigenvalue: a damping that is no larger than it no
# longer governs the directions of small singular values, and steps along them are noise.
_ROUNDING_OF_SQUARES = 1e-10

_LEAST_DAMPING = 1e-30

_MOST_DAMPING = 1e12

_TRUSTED = 0.9

_IDLE_STEPS = 4


class DampedSystem:
    """One linearisation, from which the step for any damping is had.

    Args:
        rows: r, shape ``(m,)``.
        slopes: J with columns of norm at most one, shape ``(m, p)``.
        factorisation: ``"cholesky"`` of the smaller of JᵀJ and JJᵀ, which squares the condition number; ``"qr"`` of J
            itself; ``"auto"`` is the first down to the damping that its rounding allows, and the second below; ``"svd"`` of J,
            slow, but one serves for all dampings and the directions that the rows do not see stay as they are.
    """

    def __init__(self, rows: Tensor, slopes: Tensor, factorisation: str = "auto") -> None:
        self._rows, self._slopes, self._factorisation = rows, slopes, factorisation
        self._wide = slopes.shape[0] < slopes.shape[1]

    def step(self, damping: float) -> Tensor | None:
        """The step for a damping, shape ``(p,)``, or None where the factorisation fails."""
        if self._factorisation == "svd":
            left, values, right = self._singular
            # Below rounding a direction is not seen at all.
            seen = values > torch.finfo(values.dtype).eps * max(self._slopes.shape) * values.max()
            shares = torch.where(seen, values / (values.square() + damping), torch.zeros_like(values))
            return -(right.T @ (shares * (left.T @ self._rows)))
        small = damping < _ROUNDING_OF_SQUARES * len(self._unit)
        if self._factorisation == "qr" or (self._factorisation == "auto" and small):
            return self._by_qr(damping)
        return self._by_cholesky(damping)

    def _by_cholesky(self, damping: float) -> Tensor | None:
        factor, failed = torch.linalg.cholesky_ex(self._square + damping * self._unit)
        if int(failed):
            return None
        if self._wide:
            return -(self._slopes.T @ torch.cholesky_solve(self._rows[:, None], factor)[:, 0])
        return -torch.cholesky_solve((self._slopes.T @ self._rows)[:, None], factor)[:, 0]

    def _by_qr(self, damping: float) -> Tensor:
        below = math.sqrt(damping) * self._unit
        if self._wide:
            # The solution of smallest norm of [J, √λ I] (δ, z) = -r, from the factors of its transpose.
            basis, triangle = self._factors
            inner, factor = torch.linalg.qr(torch.cat([triangle, below]))
            found = torch.linalg.solve_triangular(factor.T, self._rows[:, None], upper=False)
            return -(basis @ (inner[: len(triangle)] @ found))[:, 0]
        zero = below.new_zeros(len(below), 1)
        whole = torch.cat([self._triangle, torch.cat([below, zero], dim=1)])
        factor = torch.linalg.qr(whole, mode="r").R[: len(below)]
        return -torch.linalg.solve_triangular(factor[:, :-1], factor[:, -1:], upper=True)[:, 0]

    @cached_property
    def _unit(self) -> Tensor:
        return torch.eye(min(self._slopes.shape), dtype=self._slopes.dtype, device=self._slopes.device)

    @cached_property
    def _square(self) -> Tensor:
        return self._slopes @ self._slopes.T if self._wide else self._slopes.T @ self._slopes

    @cached_property
    def _triangle(self) -> Tensor:
        """R of J = QR, with Qᵀr as one more column: Q itself is never formed."""
        whole = torch.cat([self._slopes, self._rows[:, None]], dim=1)
        return torch.linalg.qr(whole, mode="r").R[: self._slopes.shape[1]]

    @cached_property
    def _singular(self) -> tuple[Tensor, Tensor, Tensor]:
        left, values, right = torch.linalg.svd(self._slopes, full_matrices=False)
        return left, values, right

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        basis, triangle = torch.linalg.qr(self._slopes.T)
        return basis, triangle


@dataclass(frozen=True)
class Advance:
    """What one iteration did: where it arrived, the squared norm of the rows there, how many points it tried, how it ended."""

    position: Tensor
    value: float
    tried: int
    done: str | None = None
    message: str = ""


class LevenbergMarquardt:
    """The iteration; ``damping``, ``norms`` (the diagonal of D) and ``idle`` are its whole state.

    Args:
        damping: the damping to begin with.
        trials: dampings tried before an iteration counts as failed.
        gradient_tolerance: the largest cosine of the angle between a column and the rows that counts as orthogonal.
        loss_tolerance: the relative fall of the loss, true and foreseen, that counts as none.
        factorisation: see ``DampedSystem``.
    """

    def __init__(
        self, damping: float, trials: int, gradient_tolerance: float, loss_tolerance: float, factorisation: str
    ) -> None:
        self.damping = damping
        self.norms: Tensor | None = None
        self.idle = 0
        self._trials, self._factorisation = trials, factorisation
        self._gradient_tolerance, self._loss_tolerance = gradient_tolerance, loss_tolerance

    def advance(self, position: Tensor, rows: Tensor, slopes: Tensor, value_at: Callable[[Tensor], float]) -> Advance:
        """One iteration from a position with its rows ``(m,)`` and their Jacobian ``(m, p)``.

        Args:
            position: where the rows were linearised, shape ``(p,)``.
            rows: the rows there.
            slopes: their Jacobian there.
            value_at: the squared norm of the rows at another position; one that is not finite refuses the position.
        """
        value = float(rows @ rows)
        if not (math.isfinite(value) and bool(torch.isfinite(slopes).all())):
            return Advance(position, value, 0, "diverged", "a residual or its derivative is not finite")
        norms = slopes.norm(dim=0)
        floor = 1e-8 * float(norms.max())
        norms = norms.clamp(min=floor if floor > 0 else 1.0)
        if float(((slopes.T @ rows) / norms).abs().max()) <= self._gradient_tolerance * math.sqrt(value):
            why = "the rows are orthogonal to every column of the Jacobian"
            return Advance(position, value, 0, "converged", why)
        # The largest norms so far: a column that shrinks on the way would otherwise lose the damping that holds it.
        self.norms = norms = norms if self.norms is None else torch.maximum(self.norms, norms)
        slopes = slopes / norms
        system = DampedSystem(rows, slopes, self._factorisation)
        best, reached, foreseen, tried, damping = value, None, 0.0, 0, self.damping
        for trial in range(self._trials):
            move = system.step(damping)
            arrived = None if move is None else position + move / norms
            loss = math.inf if arrived is None else value_at(arrived)
            tried += arrived is not None
            if move is not None and math.isfinite(loss) and loss < best:
                fall = value - float((rows + slopes @ move).square().sum())
                trusted = trial == 0 and value - loss > _TRUSTED * fall
                best, reached, foreseen, self.damping = loss, arrived, fall, damping
                if trusted:
                    # The linear model holds this far: damping is in the way, and another factorisation is not worth it.
                    self.damping = max(damping / 100, _LEAST_DAMPING)
                    break
                if trial >= 2:
                    break
                damping = max(damping / 5, _LEAST_DAMPING)
            elif reached is not None:
                break
            else:
                # By growing factors: from where rounding rules to where any step succeeds are forty orders of magnitude.
                damping *= 4.0 ** (trial + 1)
        if reached is None:
            return self._failed(position, value, tried, damping)
        small = self._loss_tolerance * value
        self.idle = self.idle + 1 if max(value - best, foreseen) <= small else 0
        if self.idle >= _IDLE_STEPS:
            return Advance(reached, best, tried, "converged", "neither the loss nor its linear model falls any further")
        return Advance(reached, best, tried)

    def _failed(self, position: Tensor, value: float, tried: int, damping: float) -> Advance:
        """No damping tried was large enough: go on from the next larger one, until steps are below rounding."""
        if damping > _MOST_DAMPING:
            return Advance(position, value, tried, "converged", "no step lowers the loss any further")
        self.damping = damping
        return Advance(position, value, tried)


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
        self._seconds, self._retreat = 0.0, Backtracking()
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
            message = described(objective, message)
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

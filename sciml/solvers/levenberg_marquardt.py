"""The Levenberg-Marquardt method: Gauss-Newton steps, damped by as little as lowers the loss most."""

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
from sciml.data.memory import bound, require
from sciml.errors import SolverError
from sciml.parallel import process_group
from sciml.solvers.base import Run, Solver, Step, check_settings
from sciml.solvers.gauss_newton import DampedStep, DampedSystem, FiniteLinearization, united
from sciml.solvers.matrix_free import MatrixFreeSystem
from sciml.solvers.nonfinite import described
from sciml.solvers.objective import Objective

FACTORISATIONS = ("auto", "cholesky", "qr", "svd", "mixed", "cg")

_LEAST_DAMPING, _MOST_DAMPING = 1e-30, 1e12
# The part of the foreseen fall from which the linear model is trusted; steps without a fall that count as convergence.
_TRUSTED, _IDLE_STEPS = 0.9, 4


@dataclass(frozen=True)
class Advance:
    """The result of one iteration: its end, the squared norm of the rows there, the points tried, and how it ended."""

    position: Tensor
    value: float
    tried: int
    done: str | None = None
    message: str = ""


class LevenbergMarquardt:
    """The Levenberg-Marquardt iteration; ``damping``, ``norms`` (the diagonal of D), ``idle`` are its whole state."""

    def __init__(self, solver: LeastSquares) -> None:
        self._solver, self.damping, self.idle = solver, solver.damping, 0
        self.norms: Tensor | None = None

    def improve(self, position: Tensor, model: DenseModel | MatrixFreeSystem, value_at: Callable[[Tensor], float]) -> Advance:
        """One iteration from a position ``(p,)``, by what is linear there."""
        value, norms = model.value, model.norms
        if not (math.isfinite(value) and bool(torch.isfinite(norms).all())):
            return Advance(position, value, 0, "diverged", "a residual or its derivative is not finite")
        floor = 1e-8 * float(norms.max())
        norms = norms.clamp(min=floor if floor > 0 else 1.0)
        if float((model.gradient / norms).abs().max()) <= self._solver.gradient_tolerance * math.sqrt(value):
            return Advance(position, value, 0, "converged", "the rows are orthogonal to every column of the Jacobian")
        # The largest norms so far: a column that shrinks on the way would otherwise lose the damping that holds it.
        self.norms = norms = norms if self.norms is None else torch.maximum(self.norms, norms)
        step = model.damped(norms)
        best, reached, foreseen, tried, damping = value, None, 0.0, 0, self.damping
        for trial in range(self._solver.trials):
            move = step(damping)
            arrived = None if move is None else position + move
            loss = math.inf if arrived is None else value_at(arrived)
            tried += arrived is not None
            if move is not None and math.isfinite(loss) and loss < best:
                fall = value - model.foretold(move)
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
            if damping > _MOST_DAMPING:
                return Advance(position, value, tried, "converged", "no step lowers the loss any further")
            # The next iteration goes on from the next larger damping, until steps are below rounding.
            self.damping = damping
            return Advance(position, value, tried)
        small = self._solver.loss_tolerance * value
        self.idle = self.idle + 1 if max(value - best, foreseen) <= small else 0
        if self.idle >= _IDLE_STEPS:
            return Advance(reached, best, tried, "converged", "neither the loss nor its linear model falls any further")
        return Advance(reached, best, tried)


class DenseModel:
    """Rows ``(m,)`` with dense slopes ``(m, p)``; ``shared`` ones are those of this process."""

    def __init__(self, rows: Tensor, slopes: Tensor, factorisation: str, *, shared: bool = False) -> None:
        self._rows, self._slopes, self._factorisation, self._shared = rows, slopes, factorisation, shared
        self._total = process_group.total if shared else (lambda values: values)
        self.value = float(self._total(rows @ rows))
        self.norms = self._total(slopes.norm(dim=0).square()).sqrt() if shared else slopes.norm(dim=0)

    @cached_property
    def gradient(self) -> Tensor:
        return self._total(self._slopes.T @ self._rows)

    def damped(self, scale: Tensor) -> DampedStep:
        return DampedSystem(self._rows, self._slopes, scale, self._factorisation, shared=self._shared).step

    def foretold(self, move: Tensor) -> float:
        return float(self._total((self._rows + self._slopes @ move).square().sum()))


@dataclass(frozen=True, repr=False)
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
        loss_tolerance: it has converged when the loss, and what its linear model foretells, falls by a smaller fraction than
            this in four steps in turn.
        target: stop at a loss below this.
        seconds: stop after this long.
        factorisation: ``"cholesky"`` of normal equations, ``"qr"`` or ``"svd"`` of J; ``"mixed"``, Cholesky factors in float32
            that precondition the normal equations in float64; ``"cg"``, conjugate gradients with products alone, J is never
            formed; or ``"auto"``: the first until the second is needed, and the last where memory does not hold J.
        memory: the most bytes that J and its factors may take; half of what is free when None.
        look: steps between reports on held-out rows.

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
        check_settings(self, whole="steps trials look", positive="damping seconds memory")
        check_settings(self, not_negative="gradient_tolerance loss_tolerance target")
        if self.factorisation not in FACTORISATIONS:
            raise SolverError(f"factorisation must be one of {listed(FACTORISATIONS)}; given: {self.factorisation!r}")

    def start(self, objective: Objective) -> Run:
        return _LeastSquaresRun(self, objective)


class _LeastSquaresRun(Run):
    def __init__(self, solver: LeastSquares, objective: Objective) -> None:
        self._solver, self._objective = solver, objective
        self._seconds, self._linearization = 0.0, FiniteLinearization()
        self._core = LevenbergMarquardt(solver)
        rows, columns = objective.shape
        like = objective.parameters[0]
        self._memory = bound(solver.memory, like)
        # J as it comes and scaled, one more of either for assembling and factorising; a few squares of its smaller side.
        needed = (4 * rows * columns + 6 * min(rows, columns) ** 2) * like.element_size()
        what = f"LeastSquares with {rows} rows and {columns} parameters (a dense Jacobian of {rows} x {columns})"
        instead = "use factorisation='cg', sciml.LBFGS, fewer points or a smaller model"
        # What is free differs from process to process, and changes all the time.
        too_large = process_group.agreed(needed > self._memory)
        self._free = solver.factorisation == "cg" or (solver.factorisation == "auto" and too_large)
        if not self._free:
            require(needed, solver.memory, like, what, instead)

    def step(self) -> Step:
        begin, objective, solver = time.perf_counter(), self._objective, self._solver

        def value_at(position: Tensor) -> float:
            objective.assign(position)
            return objective.value()

        if self._free:
            found = self._core.improve(objective.vector(), MatrixFreeSystem(objective, self._memory), value_at)
        else:
            rows, slopes, _, halvings = self._linearization.linearised(objective)
            # What was too long a step once would be so again.
            self._core.damping *= 10.0**halvings
            shared = process_group.several() and objective.shape[0] >= objective.shape[1]
            if not shared:
                rows, slopes = united(rows, slopes)
            model = DenseModel(rows, slopes, solver.factorisation, shared=shared)
            found = self._core.improve(objective.vector(), model, value_at)
        objective.assign(found.position)
        self._seconds = process_group.agreed(self._seconds + time.perf_counter() - begin)
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
        own = {name: getattr(self._core, name) for name in ("damping", "norms", "idle")}
        return {**own, "seconds": self._seconds, "good": self._linearization.good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._core.damping, self._core.norms, self._core.idle = state["damping"], state["norms"], state["idle"]
        self._seconds, self._linearization.good = state["seconds"], state["good"]

r"""The Levenberg-Marquardt iteration on plain rows and their Jacobian.

.. math::  \delta(\lambda) = \arg\min_\delta \|J\delta + r\|^2 + \lambda \|D\delta\|^2

Reference: J. J. More, The Levenberg-Marquardt algorithm: implementation and theory, in Numerical Analysis, Springer 1978.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

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

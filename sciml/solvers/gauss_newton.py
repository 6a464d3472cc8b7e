"""The Gauss-Newton method on orthogonal factors of the Jacobian."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sciml.diagnosis import told
from sciml.errors import SolverError
from sciml.objective import Objective
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.linear import rank_revealing
from sciml.solvers.retreat import Retreat

_LENGTHS = (1.0, 0.5, 0.25, 0.125)
_NOTHING = 0.9
_WORTH = 0.2
_FEW_ROWS = 1e-14
_COARSER = 1e4
_COARSEST = 1e-10


@dataclass(frozen=True)
class GaussNewton(Solver):
    r"""Gauss-Newton steps by QR factors of the Jacobian, for models that are linear in their parameters.

    Each step solves :math:`\min_\delta \lVert J\delta + r\rVert` from the triangular factor of :math:`[J\; r]`, columns scaled
    to unit norm; :math:`J^TJ`, which squares the condition number, is never formed, so that the loss may fall to the square
    of rounding. A rank-revealing solve with the triangle leaves out directions that the rows hardly see. A step that does
    not lower the loss is shortened, then taken in fewer directions. Without a rank decision the triangle serves for further
    steps :math:`R^TR\,\delta = -J^Tr` with the present gradient (the chord method), for as long as each lowers the loss well.

    Args:
        steps: the most steps.
        rank_tolerance: pivots smaller than this, relative to the largest, count as zero; 0 lets all count.
        gain: it has converged when two steps in turn leave more than this share of the root of the loss, or one nearly all.
        look: steps between looks at held-out rows.

    Raises:
        SolverError: a setting is not positive.

    Example:
        >>> import sciml
        >>> sciml.GaussNewton().steps
        20

    Reference: A. Bjorck, Numerical Methods for Least Squares Problems, SIAM 1996, sections 2.7 and 9.2.
    """

    steps: int = 20
    rank_tolerance: float = 1e-14
    gain: float = 0.5
    look: int = 1

    def __post_init__(self) -> None:
        if min(self.steps, self.look) < 1 or self.rank_tolerance < 0 or not 0 < self.gain <= 1:
            raise SolverError(f"steps, rank_tolerance, gain and look must be positive, gain at most 1; given: {self}")

    def start(self, objective: Objective) -> Run:
        return _GaussNewtonRun(self, objective)


class _GaussNewtonRun(Run):
    def __init__(self, solver: GaussNewton, objective: Objective) -> None:
        self._solver, self._objective = solver, objective
        self._slow, self._retreat = 0, Retreat()
        self._chord: Chord | None = None

    def step(self) -> Step:
        objective = self._objective
        position = objective.vector()
        if self._chord is not None:
            step = self._by_chord(position)
            if step is not None:
                return step
        rows, slopes, finite, _ = self._retreat.linearised(objective)
        position, value = objective.vector(), float(rows @ rows)
        if not finite:
            why = told(objective, "a residual or its derivative is not finite")
            return Step(torch.tensor(value), {}, 1, "diverged", why)
        solve, self._chord, promised = factorised(rows, slopes)
        if self._solver.rank_tolerance > 0:
            self._chord = None
        used = 1
        first = self._solver.rank_tolerance
        for tolerance in (first, max(_COARSER * first, _COARSEST)):
            if tolerance > first and promised < (1 - _NOTHING) * value:
                break
            move = solve(tolerance)
            for length in _LENGTHS:
                objective.assign(position + length * move)
                terms = objective.means()
                reached = float(objective.total(terms))
                used += 1
                if reached < value:
                    self._slow = self._slow + 1 if reached > self._solver.gain**2 * value else 0
                    done = "converged" if self._slow >= 2 or reached > _NOTHING * value else None
                    return Step(torch.tensor(reached), terms, used, done, "steps no longer gain" if done else "")
        walled = "" if math.isfinite(reached) else told(objective, "the loss is not finite")
        objective.assign(position)
        terms = objective.means()
        if walled:
            why = f"no step can be taken, for even the shortest tried leads to where {walled}"
            return Step(torch.tensor(value), terms, used, "diverged", why)
        return Step(torch.tensor(value), terms, used, "converged", "no step lowers the loss any further")

    def _by_chord(self, position: Tensor) -> Step | None:
        """A step by the triangle of an earlier Jacobian, or None where a new one is needed."""
        objective, chord = self._objective, self._chord
        assert chord is not None
        loss, gradient, _ = objective.evaluate()
        move = chord(gradient / 2)
        objective.assign(position + move)
        terms = objective.means()
        reached = float(objective.total(terms))
        if reached <= _WORTH * float(loss):
            return Step(torch.tensor(reached), terms, 2)
        # What an old triangle promises says nothing of convergence: a new one has to.
        objective.assign(position)
        self._chord = None
        return None

    def renewed(self) -> None:
        """Other points: the triangle is no longer theirs."""
        self._chord = None

    def state_dict(self) -> dict[str, Any]:
        chord = self._chord
        return {
            "slow": self._slow,
            "good": self._retreat.good,
            "chord": None if chord is None else [chord.triangle, chord.norms],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._slow, self._retreat.good = state["slow"], state["good"]
        self._chord = None if state["chord"] is None else Chord(*state["chord"])


@dataclass(frozen=True)
class Chord:
    """Steps by an earlier Jacobian's triangle, ``(n, n)``, of columns scaled by their norms, ``(n,)``."""

    triangle: Tensor
    norms: Tensor

    def __call__(self, gradient: Tensor) -> Tensor:
        """The step for a gradient :math:`J^Tr`, shape ``(n,)``."""
        right = -(gradient / self.norms)[:, None]
        inner = torch.linalg.solve_triangular(self.triangle.T, right, upper=False)
        return torch.linalg.solve_triangular(self.triangle, inner, upper=True)[:, 0] / self.norms


def factorised(rows: Tensor, slopes: Tensor) -> tuple[Callable[[float], Tensor], Chord | None, float]:
    """Steps for any rank tolerance from one QR factorisation of the Jacobian, its columns scaled to unit norm.

    The second function returns a step for any gradient :math:`J^Tr`; there is none where rows are too few. The number is by how
    much the square of the rows would fall if they were linear.
    """
    norms = slopes.norm(dim=0)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    size = slopes.shape[1]
    # R of [J r] holds R of J and Qᵀr: Q is never formed.
    both = torch.cat([slopes, rows[:, None]], dim=1)
    both[:, :size] /= norms
    upper = torch.linalg.qr(both, mode="r").R
    triangle, image = upper[:size, :size], upper[:size, size]

    def solve(tolerance: float) -> Tensor:
        if tolerance == 0 and len(triangle) == size:
            return torch.linalg.solve_triangular(triangle, -image[:, None], upper=True)[:, 0] / norms
        return rank_revealing(image, triangle, tolerance or _FEW_ROWS) / norms

    return solve, Chord(triangle, norms) if len(triangle) == size else None, float(image @ image)

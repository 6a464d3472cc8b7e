r"""The Gauss-Newton method on orthogonal factors of the Jacobian.

Rank-revealing linear least squares.

Steps of least-squares methods that lead to where a residual or its derivative is not finite, shortened.

Least squares whose equations are nearly exact: steps of the stiff problem, judged by a softer one.

Where equations weigh :math:`10^4` times as much as measurements, their solutions form a narrow curved valley, and
steps that must lower that loss can only be as long as the valley is straight. A step to the bottom of the
*linearised* valley is a good one all the same: what it violates of the equations is quadratic in its length and is
gone after the next. So it is accepted when it lowers a loss in which equations weigh far less.

Reference: H. G. Bock, E. Kostina and J. P. Schloeder, On the role of natural level functions to achieve global convergence for
damped Newton methods, in System Modelling and Optimization, Kluwer 2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from scipy.linalg import lstsq
from torch import Tensor

from sciml.errors import SolverError
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.nonfinite import described
from sciml.solvers.objective import Objective

_TRIALS = 8

_LEAST, _FIRST = 1e-14, 1e-3

_SLOW, _IDLE = 1e-5, 2


def descend(stiff: Objective, soft: Objective, stiffness: float, steps: int) -> int:
    """Damped Gauss-Newton steps of the stiff objective for as long as they lower the soft one.

    Args:
        stiff: rows and Jacobian of the steps.
        soft: the same rows with other weights; it has the same parameters.
        stiffness: how many times less measurements weigh in the stiff one; damping is in proportion to them.
        steps: the most steps.

    Returns:
        The steps taken; the parameters are those of the last one.
    """
    value, damping, idle = soft.value(), _FIRST, 0
    for count in range(steps):
        position = stiff.vector()
        rows, slopes = stiff.linearised()
        norms = slopes.norm(dim=0)
        norms = torch.where(norms > 0, norms, torch.ones_like(norms))
        slopes = slopes / norms
        unit = torch.eye(len(norms), dtype=rows.dtype, device=rows.device)
        right = torch.cat([-rows, rows.new_zeros(len(norms))])[:, None]
        for _ in range(_TRIALS):
            whole = torch.cat([slopes, math.sqrt(damping * stiffness) * unit])
            # Not torch's default, gelsy, whose pivots begin as what memory held before: the same call gave other bits.
            move = torch.linalg.lstsq(whole, right, driver="gels").solution[:, 0] / norms
            stiff.assign(position + move)
            reached = soft.value()
            if reached < value:
                damping = max(damping / 10, _LEAST)
                break
            damping *= 10
        else:
            stiff.assign(position)
            return count
        idle = idle + 1 if value - reached < _SLOW * value else 0
        value = reached
        if idle >= _IDLE:
            return count + 1
    return steps


_HALVINGS = 12


class Backtracking:
    """Linearises, and goes half of the way back to the last good place for as long as something is not finite there.

    A loss may be finite where its Jacobian is none, as at the end of a root, so that a step that was judged by the loss alone
    is found to be too long only when the next one begins.

    Example:
        >>> Backtracking().good is None
        True
    """

    def __init__(self) -> None:
        self.good: Tensor | None = None

    def linearised(self, objective: Objective) -> tuple[Tensor, Tensor, bool, int]:
        """The rows ``(m,)``, their Jacobian ``(m, p)``, whether both are finite, and how often the last step was halved."""
        halvings = 0
        while True:
            rows, slopes = objective.linearised()
            if math.isfinite(float(rows @ rows)) and bool(torch.isfinite(slopes).all()):
                self.good = objective.vector()
                return rows, slopes, True, halvings
            here = objective.vector()
            if self.good is None or halvings >= _HALVINGS or torch.equal(self.good, here):
                return rows, slopes, False, halvings
            halvings += 1
            objective.assign((self.good + here) / 2)


@dataclass(frozen=True)
class LinearLeastSquares(Solver):
    r"""Gauss-Newton steps :math:`J\,\delta = -r` by a rank-revealing factorisation, without damping.

    For a problem and a model that are linear in their parameters the first step is the solution. Columns are scaled to
    unit norm; the rows' scales are those of the loss. A step that
    does not lower the loss is halved, at most ten times.

    Args:
        steps: the most steps; two polish away most of the rounding of one.
        rank_tolerance: pivots smaller than this, relative to the largest, count as zero.
        look: steps between looks at held-out rows.

    Raises:
        SolverError: a setting is not positive.

    Example:
        >>> import sciml
        >>> sciml.LinearLeastSquares().steps
        2

    Reference: G. H. Golub and C. F. Van Loan, Matrix Computations, 4th ed., Johns Hopkins 2013, section 5.5.
    """

    steps: int = 2
    rank_tolerance: float = 1e-15
    look: int = 1

    def __post_init__(self) -> None:
        if min(self.steps, self.look) < 1 or self.rank_tolerance <= 0:
            raise SolverError(f"steps, look and rank_tolerance must be positive; given: {self}")

    def start(self, objective: Objective) -> Run:
        return _LinearRun(self, objective)


class _LinearRun(Run):
    def __init__(self, solver: LinearLeastSquares, objective: Objective) -> None:
        self._solver, self._objective = solver, objective
        self._retreat = Backtracking()

    def step(self) -> Step:
        objective = self._objective
        rows, slopes, finite, _ = self._retreat.linearised(objective)
        position, value = objective.vector(), float(rows @ rows)
        if not finite:
            why = described(objective, "a residual or its derivative is not finite")
            return Step(torch.tensor(value), {}, 1, "diverged", why)
        move = rank_revealing(rows, slopes, self._solver.rank_tolerance)
        length, used = 1.0, 1
        while length > 1e-3:
            objective.assign(position + length * move)
            terms = objective.means()
            reached = float(objective.total(terms))
            used += 1
            if reached < value:
                return Step(torch.tensor(reached), terms, used)
            length /= 2
        walled = "" if math.isfinite(reached) else described(objective, "the loss is not finite")
        objective.assign(position)
        terms = objective.means()
        if walled:
            why = f"no step can be taken, for even the shortest tried leads to where {walled}"
            return Step(torch.tensor(value), terms, used, "diverged", why)
        return Step(torch.tensor(value), terms, used, "converged", "no step lowers the loss any further")

    def state_dict(self) -> dict[str, Any]:
        return {"good": self._retreat.good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._retreat.good = state["good"]


def rank_revealing(rows: Tensor, slopes: Tensor, rank_tolerance: float) -> Tensor:
    """The least-squares solution of ``slopes @ move = -rows`` of smallest norm, with columns scaled to unit norm.

    On the CPU by complete orthogonal factorisation with column pivoting (LAPACK gelsy); on a GPU, where that is missing, by
    singular values.
    """
    norms = slopes.norm(dim=0)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    height, width = slopes.shape
    if height > 2 * width:
        # Blocked, and so faster than pivoting through all rows: the triangle has the same singular values.
        both = torch.cat([slopes, rows[:, None]], dim=1)
        both[:, :width] /= norms
        upper = torch.linalg.qr(both, mode="r").R
        scaled, rows = upper[:width, :width], upper[:width, width]
    else:
        scaled = slopes / norms
    if slopes.device.type == "cpu":
        # SciPy's gelsy and not torch's: on Helmholtz' equation with 800 features torch's found a rank too low and stopped at a
        # held-out loss of 4e-16 or 6e-12, SciPy's reached 1e-25 and 5e-19 on the same matrices, time and again.
        answer = lstsq(
            scaled.double().numpy(),
            -rows.double().numpy(),
            cond=rank_tolerance,
            overwrite_a=True,
            overwrite_b=True,
            check_finite=False,
            lapack_driver="gelsy",
        )
        found = torch.from_numpy(answer[0]).to(rows)
    else:
        left, singular, across = torch.linalg.svd(scaled, full_matrices=False)
        kept = singular > rank_tolerance * singular[0]
        inverse = torch.where(kept, 1.0 / torch.where(kept, singular, torch.ones_like(singular)), 0.0 * singular)
        found = -(across.T @ (inverse * (left.T @ rows)))
    return found / norms


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
        self._slow, self._retreat = 0, Backtracking()
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
            why = described(objective, "a residual or its derivative is not finite")
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
        walled = "" if math.isfinite(reached) else described(objective, "the loss is not finite")
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

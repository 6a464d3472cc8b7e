"""Rank-revealing linear least squares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from scipy.linalg import lstsq
from torch import Tensor

from sciml.diagnosis import told
from sciml.errors import SolverError
from sciml.objective import Objective
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.retreat import Retreat


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
        self._retreat = Retreat()

    def step(self) -> Step:
        objective = self._objective
        rows, slopes, finite, _ = self._retreat.linearised(objective)
        position, value = objective.vector(), float(rows @ rows)
        if not finite:
            why = told(objective, "a residual or its derivative is not finite")
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
        walled = "" if math.isfinite(reached) else told(objective, "the loss is not finite")
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

r"""The Gauss-Newton method: linearised least-squares systems, the damped iteration on them, and solvers for linear models.

.. math::  \delta(\lambda) = \arg\min_\delta \|J\delta + r\|^2 + \lambda \|D\delta\|^2

``DampedSystem`` and ``factorised`` hold dense factors of one Jacobian; ``solvers/condensation.py`` those of a banded one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import scipy
import torch
from torch import Tensor

from sciml.errors import SolverError
from sciml.parallel import process_group
from sciml.solvers.base import Run, Solver, Step, check_settings
from sciml.solvers.nonfinite import described
from sciml.solvers.objective import Objective

# The rounding of normal equations is some units times their largest eigenvalue: a damping that is no larger than it no
# longer governs the directions of small singular values, and steps along them are noise.
_ROUNDING_OF_SQUARES = 1e-10
# The same in float32; the residual that is wanted of what factors in float32 precondition, and the iterations it may take.
_ROUNDING_OF_SINGLES, _REFINED, _MOST_REFINEMENTS = 1e-6, 1e-13, 60
# Halvings of the way back to the last good place.
_HALVINGS = 12
# How often a step that overflows is shortened, each time to a part.
_SHORTENINGS, _PART = 8, 0.2
# A step that leaves more of the loss than this gains nothing; one by an old triangle is taken while it leaves less than that.
_NOTHING, _WORTH = 0.9, 0.2
# Rank tolerances: where rows are fewer than columns, and of a second trial with fewer directions.
_FEW_ROWS, _COARSER, _COARSEST = 1e-14, 1e4, 1e-10


DampedStep: TypeAlias = Callable[[float], Tensor | None]
"""The step of one linearised problem for a damping, shape ``(p,)``, or None where the factorisation fails."""


class DampedSystem:
    """A dense damped least-squares system of rows ``(m,)``, slopes J ``(m, p)`` and ``scale``, the diagonal of D.

    ``factorisation`` is ``"cholesky"`` of the smaller of JᵀJ and JJᵀ, which squares the condition number; ``"mixed"``, the same
    in float32 with refinement; ``"qr"`` of J itself; ``"auto"``, Cholesky's down to the damping that its rounding allows, and
    QR below; or ``"svd"`` of J, slow, but one serves for all dampings and the directions that the rows do not see stay as they
    are.
    ``shared`` rows are those of this process, of more rows than columns over all processes.
    """

    def __init__(
        self, rows: Tensor, slopes: Tensor, scale: Tensor, factorisation: str = "auto", *, shared: bool = False
    ) -> None:
        self._rows, self._slopes, self._scale, self._factorisation = rows, slopes / scale, scale, factorisation
        self._shared, self._total = shared, process_group.total if shared else (lambda values: values)
        self._wide = not shared and slopes.shape[0] < slopes.shape[1]
        size = slopes.shape[1] if shared else min(slopes.shape)
        self._unit = torch.eye(size, dtype=slopes.dtype, device=slopes.device)

    def step(self, damping: float) -> Tensor | None:
        """The step for a damping, shape ``(p,)``, or None where the factorisation fails."""
        move = self._scaled(damping)
        return None if move is None else move / self._scale

    def _scaled(self, damping: float) -> Tensor | None:
        if self._factorisation == "svd":
            left, values, right = self._singular_values
            # Below rounding a direction is not seen at all.
            seen = values > torch.finfo(values.dtype).eps * max(self._everywhere[1].shape) * values.max()
            filtered = torch.where(seen, values / (values.square() + damping), torch.zeros_like(values))
            return -(right.T @ (filtered * (left.T @ self._everywhere[0])))
        small = damping < _ROUNDING_OF_SQUARES * len(self._unit)
        if self._factorisation == "qr" or (self._factorisation == "auto" and small):
            basis, triangle = self._triangle
            below = torch.nn.functional.pad(math.sqrt(damping) * self._unit, (0, 1))
            factor = torch.linalg.qr(torch.cat([triangle, below]), mode="r").R[: len(below)]
            move = -torch.linalg.solve_triangular(factor[:, :-1], factor[:, -1:], upper=True)[:, 0]
            return move if basis is None else basis @ move
        if self._factorisation == "mixed" and not self._wide:
            move = self._refined(damping)
            if move is not None:
                return move
        square = self._square.clone()
        square.diagonal().add_(damping)
        factor, failed = torch.linalg.cholesky_ex(square)
        if int(failed):
            return None
        if self._wide:
            return -(self._slopes.T @ torch.cholesky_solve(self._rows[:, None], factor)[:, 0])
        return -torch.cholesky_solve(self._gradient[:, None], factor)[:, 0]

    def _refined(self, damping: float) -> Tensor | None:
        """The step by Cholesky factors in float32, which precondition conjugate gradients in float64; None if they stall."""
        lower = self._single.clone()
        # What is below the rounding of the factors they cannot tell from zero.
        lower.diagonal().add_(max(damping, _ROUNDING_OF_SINGLES * len(self._unit)))
        factor, failed = torch.linalg.cholesky_ex(lower)
        if int(failed):
            return None
        right = -self._gradient

        def square(vector: Tensor) -> Tensor:
            return self._total(self._slopes.T @ (self._slopes @ vector)) + damping * vector

        def solve(vector: Tensor) -> Tensor:
            # In float32 the smallest numbers would become zero.
            size = vector.norm()
            found = torch.cholesky_solve((vector / size).to(lower.dtype)[:, None], factor)[:, 0]
            return found.to(vector.dtype) * size

        found, reached = conjugate_gradients(square, solve, right, _REFINED, _MOST_REFINEMENTS)
        return found if reached <= _REFINED else None

    @cached_property
    def _single(self) -> Tensor:
        return self._total(lower_square(self._slopes.float()))

    @cached_property
    def _square(self) -> Tensor:
        return self._total(lower_square(self._slopes, wide=self._wide))

    @cached_property
    def _gradient(self) -> Tensor:
        return self._total(self._slopes.T @ self._rows)

    @cached_property
    def _everywhere(self) -> tuple[Tensor, Tensor]:
        """Rows and slopes that every process holds, with the same steps."""
        return united(self._rows, self._slopes) if self._shared else (self._rows, self._slopes)

    @cached_property
    def _triangle(self) -> tuple[Tensor | None, Tensor]:
        """R of J = QR, with Qᵀr as one more column; where rows are few, of J in a basis of the steps of smallest norm."""
        basis, (rows, slopes) = None, self._everywhere
        if self._wide:
            basis, upper = torch.linalg.qr(slopes.T)
            slopes = upper.T
        whole = torch.cat([slopes, rows[:, None]], dim=1)
        # Q itself is never formed.
        return basis, torch.linalg.qr(whole, mode="r").R[: slopes.shape[1]]

    @cached_property
    def _singular_values(self) -> Any:
        return torch.linalg.svd(self._everywhere[1], full_matrices=False)


def conjugate_gradients(
    square: Callable[[Tensor], Tensor], solve: Callable[[Tensor], Tensor], right: Tensor, tolerance: float, most: int
) -> tuple[Tensor, float]:
    """What preconditioned conjugate gradients arrive at, and the residual there, relative to the right-hand side.

    Args:
        square: the product of a positive definite matrix and a vector.
        solve: the product of the preconditioner's inverse and a vector.
        right: the right-hand side ``(p,)``.
        tolerance: the residual that is wanted.
        most: the most iterations.

    Reference: J. Nocedal and S. J. Wright, Numerical Optimization, 2nd ed., Springer 2006, algorithm 5.3.
    """
    found, rest, size = torch.zeros_like(right), right.clone(), float(right.norm())
    if size == 0:
        return found, 0.0
    ahead = solve(rest)
    direction, inner, reached = ahead, float(rest @ ahead), 1.0
    for _ in range(most):
        if not math.isfinite(inner) or inner <= 0:
            break
        image = square(direction)
        length = inner / float(direction @ image)
        found += length * direction
        rest -= length * image
        reached = float(rest.norm()) / size
        if not reached > tolerance:
            break
        ahead = solve(rest)
        inner, before = float(rest @ ahead), inner
        direction = ahead + (inner / before) * direction
    return found, reached


def united(rows: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and slopes with the same least-squares steps as those of all processes together, the same on each.

    Every process hands round the triangle R of its own [J r] where that has fewer rows, as the first level of the tree of a QR
    factorisation of tall matrices (J. Demmel, L. Grigori, M. Hoemmen and J. Langou, SIAM Journal on Scientific Computing 34,
    2012).
    """
    if not process_group.several():
        return rows, slopes
    both = torch.cat([slopes, rows[:, None]], dim=1)
    if len(both) > both.shape[1]:
        both = torch.linalg.qr(both, mode="r").R
    both = process_group.stacked(both)
    return both[:, -1].contiguous(), both[:, :-1].contiguous()


def lower_square(matrix: Tensor, *, wide: bool = False) -> Tensor:
    """The lower triangle of AᵀA, or of AAᵀ for a ``wide`` A: on a processor half the multiplications (BLAS ``syrk``)."""
    kinds = {torch.float64: scipy.linalg.blas.dsyrk, torch.float32: scipy.linalg.blas.ssyrk}
    if matrix.device.type != "cpu" or matrix.dtype not in kinds or not matrix.numel():
        return matrix @ matrix.T if wide else matrix.T @ matrix
    # The transpose has the order of columns that BLAS wants, without a copy; an upper triangle in it is a lower one here.
    return torch.from_numpy(kinds[matrix.dtype](1.0, matrix.contiguous().numpy().T, trans=int(wide)).T)


def column_norms(slopes: Tensor) -> Tensor:
    """The norms of the columns of a matrix, 1 for a column of zeros."""
    norms = slopes.norm(dim=0)
    return torch.where(norms > 0, norms, torch.ones_like(norms))


@dataclass(frozen=True)
class DampedGaussNewton:
    """Damped Gauss-Newton steps for as long as they lower a merit function, which need not be the sum of squares.

    The damping begins at ``first``, grows by ten until a step (or one of its ``lengths``) is accepted, up to
    ``most``, and falls by ``lowered`` after it; below ``least`` it becomes ``rest``. ``patience`` steps in turn below
    ``tolerance`` end it. A merit that rises by no more than a share ``same`` is rounding, and accepted.

    Where equations weigh :math:`10^4` times as much as measurements, their solutions form a narrow curved valley, and
    steps that must lower that loss can only be as long as the valley is straight. A step to the bottom of the
    *linearised* valley violates the equations by the square of its length, which is gone after the next step. So it
    is accepted when it lowers a merit in which equations weigh far less (a natural level function: H. G. Bock, E.
    Kostina and J. P. Schloeder, in System Modelling and Optimization, Kluwer 2000; J. Nocedal and S. J. Wright,
    Numerical Optimization, Springer 2006, chapter 10).
    """

    first: float
    lowered: float
    least: float
    rest: float
    tolerance: float
    patience: int = 1
    most: float = 1e6
    lengths: Sequence[float] = (1.0,)
    same: float = 1e-12

    def minimise(
        self,
        linearise: Callable[[Tensor], DampedStep],
        merit: Callable[[Tensor], float],
        position: Tensor,
        steps: int,
        over: Callable[[], bool] = lambda: False,
    ) -> tuple[Tensor, float, int]:
        """At most so many steps from a position ``(p,)``, until time is ``over``: where they end, the merit, their number."""
        value, damping, idle = merit(position), self.first, 0
        for count in range(steps):
            if count and over():
                return position, value, count
            # A value that is the same but for rounding, which of small residuals is much, is accepted: it ends the iteration
            # without a search through all dampings.
            bound = math.nextafter(value * (1 + self.same), math.inf)
            for tried, move in self._moves(linearise(position), damping):
                reached = merit(position + move)
                # An overflow says nothing against the direction.
                for _ in range(_SHORTENINGS):
                    if math.isfinite(reached):
                        break
                    move = _PART * move
                    reached = merit(position + move)
                if reached < bound:
                    damping = tried * self.lowered
                    break
            else:
                return position, value, count
            idle = idle + 1 if value - reached <= self.tolerance * value else 0
            position, value, damping = position + move, reached, damping if damping > self.least else self.rest
            if idle >= self.patience:
                return position, value, count + 1
        return position, value, steps

    def _moves(self, step: DampedStep, damping: float) -> Iterator[tuple[float, Tensor]]:
        while damping <= self.most:
            move = step(damping)
            if move is None:
                damping = max(10 * damping, 1e3 * self.rest)
                continue
            yield from ((damping, length * move) for length in self.lengths)
            damping = max(10 * damping, self.least)


def descend(stiff: Objective, soft: Objective, stiffness: float, steps: int) -> int:
    """Lower ``soft`` by steps of ``stiff``, in which measurements weigh ``stiffness`` times less; their number."""

    def linearise(position: Tensor) -> DampedStep:
        stiff.assign(position)
        rows, slopes = stiff.linearised()
        return DampedSystem(rows, slopes, column_norms(slopes), "qr").step

    def merit(position: Tensor) -> float:
        stiff.assign(position)
        return soft.value()

    first, least, most = 1e-3 * stiffness, 1e-14 * stiffness, 1e6 * stiffness
    method = DampedGaussNewton(first, 0.1, least=least, rest=least, tolerance=1e-5, patience=2, most=most)
    position, _, taken = method.minimise(linearise, merit, stiff.vector(), steps)
    stiff.assign(position)
    return taken


class FiniteLinearization:
    """Linearisations that are finite, halving steps back to the last such place: a finite loss may have no Jacobian."""

    good: Tensor | None = None

    def linearised(self, objective: Objective) -> tuple[Tensor, Tensor, bool, int]:
        """Our rows ``(m,)``, their Jacobian ``(m, p)``, whether all are finite, how often a step was halved."""
        for halvings in itertools.count():
            rows, slopes = objective.own_rows() if process_group.several() else objective.linearised()
            here = objective.vector()
            lost = not (math.isfinite(float(rows @ rows)) and bool(torch.isfinite(slopes).all()))
            if not process_group.most(lost):
                self.good = here
                return rows, slopes, True, halvings
            if self.good is None or halvings >= _HALVINGS or torch.equal(self.good, here):
                break
            objective.assign((self.good + here) / 2)
        return rows, slopes, False, halvings


def factorised(rows: Tensor, slopes: Tensor) -> tuple[Callable[[float], Tensor], Chord | None, float]:
    """Steps for any rank tolerance from one QR, a chord if rows suffice, and the fall of a linear model."""
    norms, size = column_norms(slopes), slopes.shape[1]
    # R of [J r] holds R of J and Qᵀr: Q is never formed. Blocked, and so faster than pivoting through all rows; the triangle
    # has the same singular values.
    upper = torch.linalg.qr(torch.cat([slopes / norms, rows[:, None]], dim=1), mode="r").R
    triangle, image = upper[:size, :size], upper[:size, size]

    def solve(tolerance: float) -> Tensor:
        if tolerance == 0 and len(triangle) == size:
            return torch.linalg.solve_triangular(triangle, -image[:, None], upper=True)[:, 0] / norms
        return _of_smallest_norm(triangle, -image, tolerance or _FEW_ROWS) / norms

    return solve, Chord(triangle, norms) if len(triangle) == size else None, float(image @ image)


def _of_smallest_norm(matrix: Tensor, right: Tensor, rank_tolerance: float) -> Tensor:
    """By complete orthogonal factorisation on the CPU (LAPACK gelsy); by singular values on a GPU, where that is missing."""
    if matrix.device.type == "cpu":
        # SciPy's gelsy and not torch's: on Helmholtz' equation with 800 features torch's found a rank too low and stopped at a
        # held-out loss of 4e-16 or 6e-12, SciPy's reached 1e-25 and 5e-19 on the same matrices, time and again.
        known = {"cond": rank_tolerance, "check_finite": False, "lapack_driver": "gelsy"}
        found = scipy.linalg.lstsq(matrix.double().numpy(), right.double().numpy(), **known)
        return torch.from_numpy(found[0]).to(right)
    left, singular, across = torch.linalg.svd(matrix, full_matrices=False)
    kept = singular > rank_tolerance * singular[0]
    return across.T @ (torch.where(kept, 1.0 / singular, torch.zeros_like(singular)) * (left.T @ right))


@dataclass(frozen=True)
class Chord:
    """Steps by an earlier Jacobian's triangle, ``(n, n)``, of columns scaled by their norms, ``(n,)``."""

    triangle: Tensor
    norms: Tensor

    def length(self, move: Tensor) -> float:
        """The norm of a step in the scaled columns."""
        return float((move * self.norms).norm())

    def __call__(self, gradient: Tensor) -> Tensor:
        """The step for a gradient :math:`J^Tr`, shape ``(n,)``."""
        right = -(gradient / self.norms)[:, None]
        inner = torch.linalg.solve_triangular(self.triangle.T, right, upper=False)
        return torch.linalg.solve_triangular(self.triangle, inner, upper=True)[:, 0] / self.norms


@dataclass(frozen=True, repr=False)
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
        gain: it has converged when two steps in turn leave more than this fraction of the root of the loss, or one nearly all.
        look: steps between reports on held-out rows.
        halvings: how often a step that does not lower the loss is halved.

    Raises:
        SolverError: a setting is out of range.

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
    halvings: int = 3

    def __post_init__(self) -> None:
        check_settings(self, whole="steps look", positive="gain", not_negative="rank_tolerance halvings")
        if self.gain > 1:
            raise SolverError(f"gain must be at most 1; given: {self}")

    def start(self, objective: Objective) -> Run:
        return _GaussNewtonRun(self, objective)


@dataclass(frozen=True, repr=False)
class LinearLeastSquares(GaussNewton):
    r"""Linear least squares: two rank-revealing Gauss-Newton steps :math:`J\,\delta = -r`, without damping.

    For a problem and a model that are linear in their parameters the first step is the solution; the second polishes away most
    of its rounding.

    Args: those of ``GaussNewton``, with other defaults.

    Example:
        >>> import sciml
        >>> sciml.LinearLeastSquares().steps
        2

    Reference: G. H. Golub and C. F. Van Loan, Matrix Computations, 4th ed., Johns Hopkins 2013, section 5.5.
    """

    steps: int = 2
    rank_tolerance: float = 1e-15
    gain: float = 1.0
    halvings: int = 9


class _GaussNewtonRun(Run):
    def __init__(self, solver: GaussNewton, objective: Objective) -> None:
        self._solver, self._objective = solver, objective
        self._slow, self._linearization = 0, FiniteLinearization()
        self._chord: Chord | None = None
        self._length = math.inf

    def step(self) -> Step:
        objective, solver = self._objective, self._solver
        step = self._by_chord()
        if step is not None:
            return step
        rows, slopes, finite, _ = self._linearization.linearised(objective)
        rows, slopes = united(rows, slopes)
        position, value = objective.vector(), float(rows @ rows)
        if not finite:
            why = described(objective, "a residual or its derivative is not finite")
            return Step(torch.tensor(value), {}, 1, "diverged", why)
        solve, chord, promised = factorised(rows, slopes)
        self._chord = chord if solver.rank_tolerance == 0 else None
        first, terms = solver.rank_tolerance, dict[str, Tensor]()

        def moves() -> Iterator[Tensor]:
            # Fewer directions are of use only where the linear model foresees a fall that no length of the step brings.
            for tolerance in (first, max(_COARSER * first, _COARSEST)):
                if tolerance == first or not promised < (1 - _NOTHING) * value:
                    move = solve(tolerance)
                    yield from (move / 2**halving for halving in range(solver.halvings + 1))

        def merit(move: Tensor) -> float:
            nonlocal terms
            objective.assign(position + move)
            terms = objective.means()
            return float(objective.total(terms))

        for tried, move in enumerate(moves(), 1):
            reached = merit(move)
            if reached < value:
                if self._chord is not None:
                    self._length = self._chord.length(move)
                self._slow = self._slow + 1 if reached > solver.gain**2 * value else 0
                done = "converged" if self._slow >= 2 or reached > _NOTHING * value else None
                return Step(torch.tensor(reached), terms, tried + 1, done, "steps no longer gain" if done else "")
        walled = "" if math.isfinite(reached) else described(objective, "the loss is not finite")
        merit(torch.zeros_like(position))
        done, why = "converged", "no step lowers the loss any further"
        if walled:
            done, why = "diverged", f"no step can be taken, for even the shortest tried leads to where {walled}"
        return Step(torch.tensor(value), terms, tried + 1, done, why)

    def _by_chord(self) -> Step | None:
        """A step by the triangle of an earlier Jacobian, or None where a new one is needed."""
        if self._chord is None:
            return None
        objective, position = self._objective, self._objective.vector()
        loss, gradient, _ = objective.evaluate()
        move = self._chord(gradient / 2)
        length = self._chord.length(move)
        # RᵀR has the square of the condition number: a step that does not contract is rounding in directions that rows hardly
        # see, which lowers the loss at times and leaves coefficients whose cancellation bars every further digit.
        if length < self._length:
            objective.assign(position + move)
            terms = objective.means()
            reached = float(objective.total(terms))
            if reached <= _WORTH * float(loss):
                self._length = length
                return Step(torch.tensor(reached), terms, 2)
        # What an old triangle promises says nothing of convergence: a new one has to.
        objective.assign(position)
        self._chord = None
        return None

    def renewed(self) -> None:
        """Other points: the triangle is no longer theirs."""
        self._chord = None

    def state_dict(self) -> dict[str, Any]:
        chord = None if self._chord is None else [self._chord.triangle, self._chord.norms]
        return {"slow": self._slow, "good": self._linearization.good, "chord": chord, "length": self._length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._slow, self._linearization.good = state["slow"], state["good"]
        self._length = state.get("length", math.inf)
        self._chord = None if state["chord"] is None else Chord(*state["chord"])

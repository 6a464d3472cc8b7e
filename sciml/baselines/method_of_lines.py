r"""The method of lines: on a grid in space, a problem in time is a system of ordinary differential equations.

With :math:`w` the highest time derivatives at the nodes, every equation at every node is affine in them,
:math:`R(t, y) + A(t, y)\,w = 0`, where :math:`A` holds time derivatives that are themselves differentiated in space too. At
the outermost nodes the conditions stand in place of the equations, and equations without a time derivative stand for
themselves; both are differentiated by time as a whole, with a pull towards zero,
:math:`(\partial_t + \alpha)^k c = 0`, until they contain :math:`w`. So :math:`w = -A^{-1}R`, and the Jacobian of the system
is :math:`-A^{-1}\,\partial(R + Aw)/\partial y`: sparse, and exact.

Reference: W. E. Schiesser, The Numerical Method of Lines, Academic Press 1991; J. Baumgarte, Computer Methods in Applied
Mechanics and Engineering 1 (1972), for the pull.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml._text import listed
from sciml.baselines.first_order_system import StateEntry, check_affine, initial_values, into_state
from sciml.baselines.integrate import BlowUpError, IntegrationError
from sciml.errors import BaselineError
from sciml.jets import JetSpace, RandomJets
from sciml.jets.calculus import describe
from sciml.models import Grid, GridJets
from sciml.models.grid import split
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, target_values
from sciml.problem.linearize import linearize
from sciml.slabs.row_layout import Row, arranged, sparse_slopes
from sciml.typing import Array

_PULL = 10.0
_FEW, _MANY = 300.0, 1e4
_POWER = 8
_SAMPLES = 4
_DENSE, _FULL = 4000, 0.1
_HUGE, _ROUNDING = 1e30, 1e-7


class MethodOfLines:
    """The system of ordinary differential equations that a problem in time is on a grid of its other coordinates.

    The state is, for each field and each time derivative of it below its highest, the values at the nodes.
    """

    def __init__(self, problem: Problem, grid: Grid, unknowns: Mapping[str, float]) -> None:
        assert problem.time is not None
        self.grid, self.time = grid, problem.time
        self.problem = problem.valued(unknowns)
        found = {name: problem.order(name, self.time) for name in problem.fields}
        # A field without a time derivative has its own rate of change as what is solved for.
        self.top = {name: max(order, 1) for name, order in found.items()}
        self.levels: tuple[StateEntry, ...] = tuple((name, k) for name in problem.fields for k in range(self.top[name]))
        low, high = problem.domain.bounds[self.time]
        self.begin, self.end = low, high
        self._pull = _PULL / (high - low)
        self._rows = arranged(self.problem, grid, self.top)
        self._places = [list(self.top).index(row.field) * grid.size + row.numbers for row in self._rows]
        one = scipy.sparse.eye_array(grid.size)
        self._below, self._above = (
            scipy.sparse.csr_array(scipy.sparse.kron(each, one)) for each in into_state(self.levels, self.top)
        )
        self._factored: tuple[bytes, Callable[[Array], Array] | None] = (b"", None)
        self._constant: Callable[[Array], Array] | None = None
        self._check_affine()

    @property
    def size(self) -> int:
        """The length of the state."""
        return len(self.levels) * self.grid.size

    def fastest(self, y: Array) -> float:
        """About the size of the largest eigenvalue of the Jacobian at the start, from the norm of its eighth power."""
        slopes = scipy.sparse.csr_array(self.jacobian(self.begin, y))
        turned = scipy.sparse.csr_array(slopes.T)
        power = scipy.sparse.linalg.LinearOperator(
            slopes.shape, matvec=partial(_repeated, slopes), rmatvec=partial(_repeated, turned), dtype=np.float64
        )
        return float(scipy.sparse.linalg.onenormest(power, t=1)) ** (1 / _POWER)

    def stiff(self, fastest: float) -> bool:
        """Whether an implicit method is worth its factors."""
        parabolic = any(
            self.problem.order(name, coordinate) > self.top[name] for name in self.top for coordinate in self.grid.coordinates
        ) or any(self.problem.order(name, self.time) == 0 for name in self.top)
        # In the plane the factors of an implicit method are dear, unless nodes have few neighbours.
        cheap = len(self.grid.coordinates) < 2 or self.grid.few_neighbours
        return parabolic and fastest * (self.end - self.begin) > (_FEW if cheap else _MANY)

    def rate(self, t: float, y: Array) -> Array:
        """The derivative of the state, shape ``(len(levels) * N,)``."""
        return self._below @ y + self._above @ self._highest(t, y)

    def jacobian(self, t: float, y: Array) -> scipy.sparse.csc_matrix | Array:
        """The derivative of the rate by the state."""
        whole = self._assembled(self._rows, t, y, self._highest(t, y), None)[1]
        by_state, highest = whole[:, : self.size], whole[:, self.size :]
        if self.size <= _DENSE and by_state.nnz > _FULL * by_state.shape[0] * by_state.shape[1]:
            return self._below.toarray() - self._above @ self._solver(highest)(by_state.toarray())
        diagonal = self._is_diagonal(highest)
        top = (
            scipy.sparse.linalg.spsolve(scipy.sparse.csc_matrix(highest), scipy.sparse.csc_matrix(by_state))
            if diagonal is None
            else scipy.sparse.diags_array(1 / diagonal) @ by_state
        )
        return scipy.sparse.csc_matrix(self._below - self._above @ top)

    def start(self) -> Array:
        """The state at the start: what ``Initial`` prescribes, made to agree with the conditions at the outermost nodes."""
        given = initial_values(self.problem, self.levels, self.time)
        algebraic = [name for name in self.top if self.problem.order(name, self.time) == 0]
        missing = [level for level in self.levels if level not in given and level[0] not in algebraic]
        if missing:
            names = [describe(name, (self.time,) * k) for name, k in missing]
            raise BaselineError(
                f"{type(self.problem).__name__} has no initial value for {listed(names)}: add sciml.Initial({names[0]}=...)"
            )
        points = np.insert(self.grid.places, self.problem.coordinates.index(self.time), self.begin, axis=1)
        evaluation = Evaluation.of(self.problem, [torch.from_numpy(points)], [RandomJets(self.grid.size)])
        state = np.zeros((len(self.levels), self.grid.size))
        for row, level in enumerate(self.levels):
            if level in given:
                values = target_values(f"Initial({level[0]}=...)", given[level], evaluation)
                state[row] = values.detach().expand(self.grid.size).numpy()
        return self._consistent(state).ravel()

    def _consistent(self, state: Array) -> Array:
        """The state with fields and outermost nodes changed where conditions and equations without time ask for it."""
        for depth in range(max(self.top.values())):
            rows = [row for row in self._rows if row.times > depth]
            if not rows:
                break
            free = [self.levels.index((row.field, depth)) * self.grid.size + row.numbers for row in rows]
            columns = np.concatenate(free)
            for _ in range(30):
                residual, slopes = self._assembled(rows, self.begin, state.ravel(), None, depth)
                square = slopes[:, columns]
                try:
                    step = scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(square)).solve(residual)
                except RuntimeError as error:
                    raise BaselineError(
                        "the conditions at the start do not determine the values at the boundary or the fields without a time "
                        f"derivative: {error}"
                    ) from error
                flat = state.ravel()
                flat[columns] -= step
                state = flat.reshape(state.shape)
                if np.abs(step).max(initial=0.0) <= 1e-12 * max(np.abs(state).max(), 1e-300):
                    break
            else:
                raise BaselineError("no values at the boundary agree with the conditions at the start")
        return state

    def _highest(self, t: float, y: Array) -> Array:
        zero = np.zeros(self._above.shape[1])
        if self._constant is None:
            residual, highest = self._assembled(self._rows, t, y, zero, None, by_state=False)
            found = -self._solver(highest)(residual)
        else:
            found = -self._constant(self._residuals(t, y, zero))
        if not np.isfinite(found).all():
            raise BlowUpError(self._why_not_finite(t, y), t)
        return found

    def _why_not_finite(self, t: float, y: Array) -> str:
        values = self._values(y, np.zeros(self._above.shape[1]))
        for row in self._rows if np.abs(y).max() < _HUGE else ():
            bad = np.flatnonzero(~np.isfinite(row.term.evaluate(self._at(row, t, values)).detach().numpy()))
            if len(bad):
                at = ", ".join(
                    f"{name} = {value:.4g}" for name, value in zip(self.grid.coordinates, row.sites.points[bad[0]], strict=True)
                )
                return f"the residual {row.term.name!r} is not finite at {self.time} = {t:.6g}, first at the node {at}"
        return f"the solution or its rate of change is not finite at {self.time} = {t:.6g}: it blows up"

    def _solver(self, matrix: scipy.sparse.csr_array) -> Callable[[Array], Array]:
        key = matrix.data.tobytes()
        if self._factored[0] == key and self._factored[1] is not None:
            return self._factored[1]
        diagonal = self._is_diagonal(matrix)
        solve: Callable[[Array], Array]
        try:
            solve = _factored(matrix) if diagonal is None else lambda y: (y.T / diagonal).T
        except (RuntimeError, np.linalg.LinAlgError):
            raise IntegrationError(
                "the highest time derivatives are not determined: the equations without a time derivative, differentiated "
                "once, do not give the rates of their fields (as for the pressure of an incompressible flow), or a condition "
                "is missing"
            ) from None
        self._factored = (key, solve)
        return solve

    @staticmethod
    def _is_diagonal(matrix: scipy.sparse.csr_array) -> Array | None:
        diagonal = matrix.diagonal()
        return diagonal if matrix.count_nonzero() == np.count_nonzero(diagonal) == len(diagonal) else None

    def _assembled(
        self, rows: Sequence[Row], t: float, y: Array, w: Array | None, depth: int | None, *, by_state: bool = True
    ) -> tuple[Array, scipy.sparse.csr_array]:
        """Residuals of rows, one after the other, and their derivative by highest derivatives and, before these, ``by_state``.

        The rows come in the order of fields and nodes if they are all there. With ``depth`` rows are differentiated that
        often by time; otherwise as often as each needs.
        """
        count = self.grid.size
        values = self._values(y, w)
        levels = [*(self.levels if by_state else ()), *self.top.items()]
        offsets, width = {level: row * count for row, level in enumerate(levels)}, len(levels) * count
        residuals, blocks = [], []
        for row in rows:
            times = row.times if depth is None else depth
            linear = linearize(row.term, self._at(row, t, values), after=partial(self._differentiated, times=times))
            residuals.append(linear.values.detach().numpy())
            jets = linear.jets
            if not by_state:
                jets = {key: slope for key, slope in jets.items() if (key[0], split(key[1], self.time)[0]) in offsets}
            blocks.append(sparse_slopes(jets, row.sites, offsets, width, self.time))
        residual = np.concatenate(residuals)
        whole = scipy.sparse.csr_array(scipy.sparse.vstack(blocks))
        if depth is None:
            back = np.argsort(np.concatenate(self._places))
            return residual[back], whole[back]
        return residual, whole

    def _residuals(self, t: float, y: Array, w: Array) -> Array:
        """The residuals of all rows, in the order of fields and nodes."""
        values = self._values(y, w)
        found = np.empty(len(self.top) * self.grid.size)
        for row, places in zip(self._rows, self._places, strict=True):
            at = self._at(row, t, values)
            found[places] = self._differentiated(row.term.evaluate(at), at.space, row.times).detach().numpy()
        return found

    def _values(self, y: Array, w: Array | None) -> dict[StateEntry, Array]:
        """State and highest derivatives at the nodes, by field and number of time derivatives."""
        values = dict(zip(self.levels, y.reshape(len(self.levels), -1), strict=True))
        return values if w is None else values | dict(zip(self.top.items(), w.reshape(len(self.top), -1), strict=True))

    def _at(self, row: Row, t: float, values: Mapping[StateEntry, Array]) -> Evaluation:
        """What the residual of a row is evaluated on."""
        # Built by hand from columns that are kept: the integrator asks thousands of times.
        columns = dict(zip(self.grid.coordinates, row.columns, strict=True))
        columns[self.time] = torch.full((len(row.sites.points),), t, dtype=torch.float64)
        coordinates = {name: columns[name] for name in self.problem.coordinates}
        space = JetSpace(coordinates, self.problem.fields, GridJets(values, row.sites, self.time))
        return Evaluation(self.problem, (space,), row.normals)

    def _differentiated(self, value: Tensor, space: JetSpace, times: int) -> Tensor:
        for _ in range(times):
            value = space.derivative(value, (self.time,)) + self._pull * value
        return value

    def _smooth(self) -> Array:
        """Polynomials of degree 0, 1 and 2 at the nodes, ``(3, N)``."""
        bounds = np.array([self.problem.domain.bounds[name] for name in self.grid.coordinates]).reshape(-1, 2)
        shares = ((self.grid.points - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0])).sum(axis=1)
        return np.stack([np.ones_like(shares), shares, shares**2])

    def _check_affine(self) -> None:
        # Smooth functions: the derivatives of random numbers would drown everything else.
        generator = np.random.default_rng(0)
        shapes, fields = self._smooth(), (len(self.top), 3)
        one, other = ((generator.uniform(0.5, 1.5, fields) @ shapes).ravel() for _ in range(2))
        states = [(generator.uniform(0.5, 1.5, (len(self.levels), 3)) @ shapes).ravel() for _ in range(_SAMPLES)]
        times = self.begin + (self.end - self.begin) * generator.random(_SAMPLES)
        residuals = partial(self._residuals, times[0], states[0])
        check_affine(self.problem, residuals, one, other, "highest time derivative", _ROUNDING)
        # Where A is the same at all of some states and times it is factored once for all.
        first, *rest = (
            self._assembled(self._rows, t, y, one, None, by_state=False)[1] for t, y in zip(times, states, strict=True)
        )
        size = scipy.sparse.linalg.norm(first)
        if np.isfinite(size) and all(scipy.sparse.linalg.norm(first - each) <= 1e-13 * size for each in rest):
            self._constant = self._solver(first)


def _factored(matrix: scipy.sparse.csr_array) -> Callable[[Array], Array]:
    """The solver of a square matrix, by full or sparse factors; an error of NumPy or SuperLU where it is singular."""
    size = matrix.shape[0]
    if size > _DENSE or matrix.nnz < _FULL * size**2:
        return scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(matrix)).solve
    factors = scipy.linalg.lu_factor(matrix.toarray(), check_finite=False)
    if np.abs(np.diag(factors[0])).min() <= 1e-14 * np.abs(factors[0]).max():
        raise np.linalg.LinAlgError("singular")
    return partial(scipy.linalg.lu_solve, factors, check_finite=False)


def _repeated(matrix: scipy.sparse.csr_array, vector: Array) -> Array:
    for _ in range(_POWER):
        vector = matrix @ vector
    return vector

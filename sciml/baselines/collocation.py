"""Collocation on grids for problems without time: Gauss-Newton with the exact sparse Jacobian of the problem's residuals."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml._text import listed
from sciml.baselines.integrate import Budget
from sciml.errors import BaselineError
from sciml.geometry import At, Average, Face, Interior, OnFaces, Opposite
from sciml.models import Grid, GridFunction, GridJets
from sciml.models.grid import Sites
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Linearization, linearize, per_point
from sciml.slabs.elements import paired
from sciml.slabs.row_layout import arranged, outward, sparse_slopes
from sciml.typing import Array

_STEPS = 60
_WEIGHT = 10.0
_EXACT = 1e4
_FREE = 1e-9
_DEGREES = {1: 24, 2: 14, 3: 5}
_ROUNDING = 1e-9
DENSE = 4200
_SURE, _RANK, _SHIFT = 1e15, 1e-14, 1e-3
# Steps of a flow to rest, what they move of the fields that is little and much, and how long they become.
_TRANSIENT, _SMALL_MOVE, _LARGE_MOVE, _LONG = 200, 0.1, 0.5, 1e6
# The least size of a field in a flow, of its natural one; residuals that have grown so many times will not come to rest.
_LITTLE, _GROWN = 1e-3, 1e12


@dataclass(frozen=True)
class _Piece:
    """A term at its sites, with the weight of each row; one row in all where it is averaged."""

    term: Term
    sites: Sites
    weights: Array
    normals: Tensor | None = None
    shares: Array | None = None


class _SingularError(Exception):
    """A Jacobian leaves something free."""


class NewtonError(BaselineError):
    """Newton's method failed on one grid; it may do better on a finer one."""


class NotFiniteError(NewtonError):
    """Newton's method cannot begin where it was to begin."""


class CollocationSystem:
    """The residuals of a problem on one grid, as rows of nodal values.

    Where equations and conditions are as many as nodal values, corners counted once, the Jacobian is square and is factored
    by ``splu``. Otherwise equations hold at all nodes, and rows are solved by least squares, weighted by a quadrature.

    ``left`` is what they left of an equation when they were solved last, as a part of its natural size.
    """

    left = 0.0

    def __init__(
        self,
        problem: Problem,
        grid: Grid,
        measured: Sequence[Collocation],
        scales: Mapping[str, float],
        sizes: Array,
        budget: Budget,
    ) -> None:
        self.problem, self.grid, self._budget, self._scales, self._sizes = problem, grid, budget, scales, sizes
        terms = problem.terms()
        self._equations = [term for term in terms if term.name in problem.equations]
        others = [term for term in terms if not (term.name in problem.equations or isinstance(term.place, Opposite))]
        for term in others:
            if isinstance(term.place, OnFaces) and not all(grid.holds(face) for face in term.place.faces):
                raise BaselineError(f"the condition {term.name!r} lies on a piece of the boundary that is no face of a box")
            if isinstance(term.place, Average) and not grid.weighted:
                raise BaselineError(f"the condition {term.name!r} is a mean, which scattered nodes do not hold")
        # Prescribed values first: at a corner they are kept, and a slope there follows from them.
        self._conditions = sorted(others, key=lambda term: term.field is None)
        self._measured = measured
        self._square = self._layout(square=True)
        self._whole = self._layout(square=False)

    def _layout(self, *, square: bool) -> list[_Piece]:
        grid = self.grid
        pieces = self._stated(square=square) if grid.weighted else self._arranged()
        for block in self._measured:
            sites = grid.at_points(block.sample.points[0].numpy())
            pieces += [_Piece(term, sites, np.full(block.size, 1 / self._scales[term.name])) for term in block.terms]
        # Measurements have errors; equations and conditions are to hold as if they were exact.
        exact = _EXACT if self._measured else 1.0
        return [
            piece
            if piece.term.measured
            else replace(piece, weights=exact * piece.weights / self._scales.get(piece.term.name, 1.0))
            for piece in pieces
        ]

    def _arranged(self) -> list[_Piece]:
        """Equations at the nodes inside, conditions at those of the boundary, and points."""
        rows = arranged(self.problem, self.grid, dict.fromkeys(self.problem.fields, 0), rates=False)
        pieces = [_Piece(row.term, row.sites, np.ones(len(row.numbers)), row.normals) for row in rows]
        points = [term for term in self._conditions if isinstance(term.place, At)]
        return pieces + [piece for term in points for piece in self._condition(term, None, {})]

    def _stated(self, *, square: bool) -> list[_Piece]:
        """Equations at the nodes of a tensor-product grid, in the square system without the outermost, and conditions."""
        grid, problem = self.grid, self.problem
        kept = np.ones(grid.size, dtype=bool)
        if square:
            for name, axis in grid.axes.items():
                orders = {problem.order(field, name) for field in problem.fields}
                depth = 0 if axis.periodic else max(orders) // 2
                for layer in range(depth):
                    for side in ("lower", "upper"):
                        kept[grid.layer(Face(name, side), layer)] = False
        numbers = np.flatnonzero(kept)
        weights = np.ones(len(numbers)) if square else np.sqrt(grid.weights / grid.weights.sum())
        pieces = [_Piece(term, grid.at_nodes(numbers), weights) for term in self._equations]
        claimed: dict[int, Array] = {}
        counts: dict[Face, int] = {}
        for term in self._conditions:
            pieces += self._condition(term, claimed if square else None, counts)
        return pieces

    def _condition(self, term: Term, claimed: dict[int, Array] | None, counts: dict[Face, int]) -> list[_Piece]:
        grid, place = self.grid, term.place
        if isinstance(place, At):
            points = np.array([[np.nan if at is None else at for at in place.position]])
            for column in np.flatnonzero(np.isnan(points[0])):
                nodes = np.unique(grid.points[:, column])
                points = np.repeat(points, len(nodes), axis=0)
                points[:, column] = nodes
            return [_Piece(term, grid.at_points(points), np.full(len(points), _WEIGHT))]
        if isinstance(place, Average):
            means = self._averaged(place)
            size = _WEIGHT / math.sqrt(len(means))
            return [_Piece(term, sites, np.array([size]), shares=weights / weights.sum()) for sites, weights in means]
        assert isinstance(place, OnFaces)
        found = []
        for face in place.faces:
            assert isinstance(face, Face)
            numbers = grid.layer(face)
            weights = np.sqrt(grid.face_weights(face)) * _WEIGHT
            if claimed is not None:
                rank = counts[face] = counts.get(face, -1) + 1
                taken = claimed.setdefault(rank, np.zeros(grid.size, dtype=bool))
                free = ~taken[numbers]
                taken[numbers] = True
                numbers, weights = numbers[free], weights[free]
            if len(numbers):
                normals = outward(self.problem, face, len(numbers))
                found.append(_Piece(term, grid.at_nodes(numbers), weights, normals))
        return found

    def _averaged(self, place: Average) -> list[tuple[Sites, Array]]:
        """The nodes and weights of each mean."""
        grid = self.grid
        if isinstance(place.over, Interior):
            numbers, weights = np.arange(grid.size), grid.weights
        else:
            faces = [face for face in place.over.faces if isinstance(face, Face)]
            numbers = np.concatenate([grid.layer(face) for face in faces])
            weights = np.concatenate([grid.face_weights(face) for face in faces])
        if place.each is None:
            return [(grid.at_nodes(numbers), weights)]
        where = grid.points[numbers, self.problem.coordinates.index(place.each)]
        return [(grid.at_nodes(numbers[where == each]), weights[where == each]) for each in np.unique(where)]

    # What overflows on the way is too large, and goes no further.
    @np.errstate(over="ignore", invalid="ignore")
    def solve(self, start: Array) -> tuple[Array, int]:
        """Gauss-Newton from nodal values and raw unknown constants ``(F * N + q,)``, its steps halved until they improve."""
        if self._measured:
            # Equations that weigh more and more: exact at once, they would leave steps no room.
            steps = 0
            for share in (1e-4, 1e-2, 1.0):
                pieces = [
                    piece if piece.term.measured else replace(piece, weights=share * piece.weights) for piece in self._whole
                ]
                start, more = self._newton(pieces, start, square=False)
                steps += more
            return start, steps
        if sum(len(piece.weights) for piece in self._square) == len(start):
            try:
                return self._newton(self._square, start, square=True)
            except _SingularError:
                pass
            except NotFiniteError:
                raise
            except NewtonError:
                if (flow := self._flow(start)) is None:
                    raise
                # What a flow does not lead to either is told as Newton's method left it.
                with contextlib.suppress(_SingularError, NewtonError):
                    rest, flown = self._at_rest(start, *flow)
                    found, steps = self._newton(self._square, rest, square=True)
                    return found, flown + steps
                raise
        return self._newton(self._whole, start, square=False)

    def _flow(self, now: Array) -> tuple[scipy.sparse.csr_array, float] | None:
        r"""Pseudo-time: rows of rates with which equations diffuse their fields, and the fastest rate; None where one does not.

        An equation with :math:`a\,\partial^{2k} u` diffuses u by :math:`u_t = (-1)^{k + 1} \operatorname{sign}(a) R`.
        """
        fields, widths, nodes = self.problem.fields, self.problem.domain.half_widths, self.grid.size
        pieces = [piece for piece in self._square if piece.term.name in self.problem.equations]
        if len(pieces) != len(fields):
            return None
        signs, sizes, rates = (np.zeros((len(pieces), len(fields))) for _ in range(3))
        for row, piece in enumerate(pieces):
            slopes = self._linear(piece, now)[0].jets
            for column, name in enumerate(fields):
                own = {index: slope.numpy() for (field, index), slope in slopes.items() if field == name}
                highest = max(map(len, own), default=0)
                # Mixed derivatives say nothing of what diffuses.
                pure = [index for index in own if len(index) == highest and all(index.count(x) % 2 == 0 for x in index)]
                if highest and pure:
                    signs[row, column] = (-1) ** (highest // 2 + 1) * np.sign(sum(own[index].mean() for index in pure))
                    diffused = max(np.abs(own[index]).mean() / math.prod(widths[x] for x in index) for index in pure)
                    sizes[row, column] = diffused * self._sizes[column]
                    rates[row, column] = max(diffused, np.abs(own[()]).mean() if () in own else 0.0)
        owners = paired(sizes)
        if not all(signs[row, column] for column, row in enumerate(owners)):
            return None
        columns, blocks = {id(pieces[row]): column for column, row in enumerate(owners)}, []
        for piece in self._square:
            found = scipy.sparse.csr_array((len(piece.weights), len(now)))
            if (column := columns.get(id(piece), -1)) >= 0:
                values = scipy.sparse.diags_array(signs[owners[column], column] * piece.weights) @ piece.sites.operator(())
                beside = (column * nodes, len(now) - (column + 1) * nodes)
                before, after = (scipy.sparse.csr_array((len(piece.weights), count)) for count in beside)
                found = scipy.sparse.hstack([before, values, after])
            blocks.append(found)
        fastest = max(rates[row, column] for column, row in enumerate(owners))
        return scipy.sparse.csr_array(scipy.sparse.vstack(blocks)), fastest

    def _at_rest(self, now: Array, rates: scipy.sparse.csr_array, fastest: float) -> tuple[Array, int]:
        """Pseudo-transient continuation: where a flow by these rates is nearly at rest, by implicit steps that become longer.

        How many steps that took is told beside it.

        Reference: C. T. Kelley and D. E. Keyes, Convergence analysis of pseudo-transient continuation, SIAM Journal on
        Numerical Analysis 35 (1998).
        """
        length, first, shape = 1 / fastest, 0.0, (len(self.problem.fields), -1)
        taken = 0
        while taken < _TRANSIENT:
            taken += 1
            self._budget.check()
            rows, jacobian = self.linearized(self._square, now)
            first = first or float(np.abs(rows).max())
            if not np.abs(rows).max() <= _GROWN * first or not (np.isfinite(rows).all() and np.isfinite(jacobian.data).all()):
                raise NewtonError("a flow to rest grows beyond all bounds")
            step = -_solved_square(scipy.sparse.csr_array(jacobian - rates / length), rows)
            now = now + step
            largest = np.maximum(np.abs(now.reshape(shape)).max(axis=1), self._sizes * _LITTLE)
            moved = float((np.abs(step.reshape(shape)).max(axis=1) / largest).max())
            length *= 2.0 if moved < _SMALL_MOVE else 0.5 if moved > _LARGE_MOVE else 1.0
            if moved < _SMALL_MOVE and length * fastest > _LONG:
                break
        return now, taken

    def _newton(self, pieces: list[_Piece], now: Array, *, square: bool) -> tuple[Array, int]:
        nodal = len(self.problem.fields) * self.grid.size
        rows, jacobian = self.linearized(pieces, now)
        first = size = float(np.linalg.norm(rows))
        if not (np.isfinite(size) and np.isfinite(jacobian.data).all()):
            starts = now[:nodal].reshape(len(self.problem.fields), -1)[:, 0]
            raise NotFiniteError(
                f"{type(self.problem).__name__}: residuals or their derivatives are not finite at the starting values "
                f"{listed([f'{each:g}' for each in starts])} of {listed(self.problem.fields)}"
            )
        taken = 0.0
        for number in range(_STEPS):
            # A step takes about as long as the one before.
            self._budget.check(ahead=taken)
            began = self._budget.spent
            step = -(_solved_square(jacobian, rows) if square else self._least(jacobian, rows))
            share = 1.0
            while True:
                moved = now + share * step
                # Slopes, which take many times as long, are those of a step that is taken.
                new_size = float(np.linalg.norm(self._residual(pieces, moved)))
                moved_by = share * np.abs(step).max()
                if new_size < size or moved_by <= 1e-9 * (np.abs(now[:nodal]).max() + 1e-300):
                    break
                share /= 2
                if share < 1e-4 and size <= _ROUNDING * first:
                    break
                if share < 1e-4:
                    raise NewtonError(
                        f"Newton's method stalls at a residual of {size:.1e}: the problem may have no solution near zero, or "
                        "contradictory conditions"
                    )
            moved_by = share * np.abs(step).max()
            largest = np.abs(moved[:nodal]).max()
            # In the last digits the residual is noise: a step that no longer lowers it ends the search.
            settled = moved_by <= 1e-11 * (largest + 1e-300) or (
                share == 1.0 and new_size >= 0.5 * size and moved_by <= 1e-7 * largest
            )
            now, size = moved, new_size
            rows, jacobian = self.linearized(pieces, now)
            if settled or size == 0.0:
                self._check_determined(pieces, jacobian)
                self.left = 0.0 if square else self._left(pieces, rows)
                return now, number + 1
            taken = self._budget.spent - began
        raise NewtonError(f"Newton's method did not converge in {_STEPS} steps; the residual is {size:.1e}")

    def _left(self, pieces: list[_Piece], rows: Array) -> float:
        """The largest root mean square of an equation's rows, each in its natural size."""
        found, first = [0.0], 0
        for piece in pieces:
            own, first = rows[first : first + len(piece.weights)], first + len(piece.weights)
            if piece.term.name in self.problem.equations:
                weights = np.linalg.norm(piece.weights) * self._scales.get(piece.term.name, 1.0)
                found.append(float(np.linalg.norm(own) / weights))
        return max(found)

    def _check_determined(self, pieces: list[_Piece], jacobian: scipy.sparse.csr_array) -> None:
        """Refuse solutions to which a smooth function may be added, as when a condition was forgotten.

        The Jacobian is looked at on polynomials of low degree alone. Pressures on a grid are free of another kind: patterns
        from node to node, which least squares leaves at zero.
        """
        count, fields = self.grid.size, self.problem.fields
        smooth = self.grid.smooth(_DEGREES[len(self.grid.coordinates)])
        width = smooth.shape[1]
        whole = np.zeros((jacobian.shape[1], width * len(fields)))
        for row in range(len(fields)):
            whole[row * count : (row + 1) * count, row * width : (row + 1) * width] = smooth
        seen = jacobian @ whole
        # Each term in its own size, whatever its unit.
        starts = np.cumsum([0, *(len(piece.weights) for piece in pieces)])
        for low, high in pairwise(starts):
            seen[low:high] /= np.linalg.norm(seen[low:high], 2) or 1.0
        _, sizes, directions = np.linalg.svd(seen, full_matrices=False)
        if len(sizes) < seen.shape[1] or sizes[-1] < _FREE * sizes[0]:
            shares = np.linalg.norm(directions[-1].reshape(len(fields), -1), axis=1)
            free = [name for name, share in zip(fields, shares, strict=True) if share > 1e-3]
            raise BaselineError(
                f"{type(self.problem).__name__}: the equations and conditions do not determine {listed(free)}, to which a "
                "smooth function may be added: a condition is missing, such as sciml.Dirichlet on every face, or "
                f"sciml.Mean({free[0]}=0.0) where only a level is; or the problem is at resonance"
            )

    def function(self, solution: Array) -> GridFunction:
        """The function behind nodal values."""
        fields = len(self.problem.fields)
        shaped = np.moveaxis(solution[: fields * self.grid.size].reshape(fields, *self.grid.shape), 0, -1)
        return GridFunction(list(self.grid.axes.values()), torch.from_numpy(np.ascontiguousarray(shaped)))

    def linearized(self, pieces: list[_Piece], now: Array) -> tuple[Array, scipy.sparse.csr_array]:
        """Weighted residuals, and their derivatives by nodal values and raw unknowns."""
        fields, count = self.problem.fields, self.grid.size
        offsets = {(name, 0): row * count for row, name in enumerate(fields)}
        rows, blocks = [], []
        for piece in pieces:
            linear, leaves = self._linear(piece, now)
            residual, zero = linear.values.detach().numpy(), torch.zeros(len(piece.sites.points))
            extra = [scipy.sparse.csr_array(linear.by_unknown.get(name, zero)[:, None].numpy()) for name in leaves]
            own = sparse_slopes(linear.jets, piece.sites, offsets, len(fields) * count)
            slopes = scipy.sparse.csr_array(scipy.sparse.hstack([own, *extra]))
            if piece.shares is not None:
                residual = np.array([piece.shares @ residual])
                slopes = scipy.sparse.csr_array(piece.shares[None, :] @ slopes)
            rows.append(piece.weights * residual)
            blocks.append(scipy.sparse.diags_array(piece.weights) @ slopes)
        return np.concatenate(rows), scipy.sparse.csr_array(scipy.sparse.vstack(blocks))

    def _residual(self, pieces: list[_Piece], now: Array) -> Array:
        """Weighted residuals."""
        found = []
        for piece in pieces:
            values = piece.term.evaluate(self._evaluation(piece, now)[0]).detach().numpy()
            found.append(piece.weights * (values if piece.shares is None else np.array([piece.shares @ values])))
        return np.concatenate(found)

    def _linear(self, piece: _Piece, now: Array) -> tuple[Linearization, dict[str, Tensor]]:
        """A term at its sites with its derivatives, and raw unknowns, one number for each site."""
        at, leaves = self._evaluation(piece, now)
        return linearize(piece.term, at, leaves), leaves

    def _evaluation(self, piece: _Piece, now: Array) -> tuple[Evaluation, dict[str, Tensor]]:
        """What a term is evaluated with at its sites, and raw unknowns, one number for each site."""
        count, values = self.grid.size, now[len(self.problem.fields) * self.grid.size :]
        by_field = {(name, 0): now[row * count : (row + 1) * count] for row, name in enumerate(self.problem.fields)}
        points, bound, leaves = torch.from_numpy(piece.sites.points), self.problem, dict[str, Tensor]()
        if len(values):
            raw = dict(zip(bound.unknowns, torch.from_numpy(values), strict=True))
            leaves, constants = per_point(bound, raw, len(points))
            bound = bound.bind(**constants)
        return Evaluation.of(bound, [points], [GridJets(by_field, piece.sites)], piece.normals), leaves

    def rows(self, solution: Array) -> tuple[Array, scipy.sparse.csr_array]:
        """The rows of least squares, measurements last, and their derivatives."""
        return self.linearized(self._whole, solution)

    def _least(self, jacobian: scipy.sparse.csr_array, rows: Array) -> Array:
        try:
            return _solved_least(jacobian, rows, 8 * len(self.problem.fields))
        except _SingularError as error:
            conditions = [term.name for term in self._conditions]
            raise BaselineError(
                f"{type(self.problem).__name__}: the equations and conditions leave combinations of nodal values free; a "
                f"condition is missing. Conditions: {listed(conditions)}"
            ) from error


def _solved_square(jacobian: scipy.sparse.csr_array, rows: Array) -> Array:
    """The solution of a square system, refined once; a _SingularError where there is none but rounding."""
    # Rows and columns of size one, whatever the units.
    columns = scipy.sparse.diags_array(1 / np.maximum(scipy.sparse.linalg.norm(jacobian, axis=0), 1e-300))
    across = jacobian @ columns
    scales = scipy.sparse.diags_array(1 / np.maximum(scipy.sparse.linalg.norm(across, axis=1), 1e-300))
    matrix = scipy.sparse.csc_matrix(scales @ across)
    try:
        factors = scipy.sparse.linalg.splu(matrix)
    except RuntimeError as error:
        raise _SingularError from error
    size, wanted = len(rows), scales @ rows
    inverse = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=factors.solve, rmatvec=lambda y: factors.solve(y, trans="T"), dtype=np.float64
    )
    if scipy.sparse.linalg.onenormest(inverse) * scipy.sparse.linalg.norm(matrix, 1) > _SURE:
        raise _SingularError
    found = factors.solve(wanted)
    return columns @ (found + factors.solve(wanted - matrix @ found))


def _solved_least(jacobian: scipy.sparse.csr_array, rows: Array, patterns: int) -> Array:
    """The least-squares solution, by QR or one sparse system; at most ``patterns`` free combinations stay zero."""
    width = jacobian.shape[1]
    columns = 1 / np.maximum(scipy.sparse.linalg.norm(jacobian, axis=0), 1e-300)
    scaled = jacobian @ scipy.sparse.diags_array(columns)
    if width > DENSE:
        # As one sparse system, which does not square the condition number (Bjorck 1996, section 2.5.3).
        count = len(rows)
        system = scipy.sparse.block_array([[_SHIFT * scipy.sparse.eye_array(count), scaled], [scaled.T, None]])
        try:
            return (
                columns
                * scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(system)).solve(np.concatenate([rows, np.zeros(width)]))[
                    count:
                ]
            )
        except RuntimeError as error:
            raise _SingularError from error
    full = scaled.toarray()
    triangle = torch.linalg.qr(torch.from_numpy(np.column_stack([full, rows])), mode="r").R.numpy()
    pivots = np.abs(np.diag(triangle))[:width]
    if len(full) > width and pivots.min() > 10 * _RANK * pivots.max():
        return columns * scipy.linalg.solve_triangular(triangle[:width, :width], triangle[:width, width])
    found, _, rank, _ = scipy.linalg.lstsq(full, rows, cond=_RANK, lapack_driver="gelsy")
    if rank < width - patterns:
        raise _SingularError
    return columns * found

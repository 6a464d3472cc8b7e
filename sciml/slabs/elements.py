r"""An approximate inverse of a slab's Jacobian: exact where derivatives by jets do not change in time.

The equations of a slab are those of Galerkin: at every stage the residual of each equation is orthogonal to the basis of
one field, except for as many functions at the two ends as there are conditions, which hold instead. Because the test functions
are the same for all stages, this is the method of Radau applied to a semidiscretisation. (Least squares in space, with test
functions of each eigenvalue's own, is unstable for waves: rounding doubled with every slab.)

Frozen at their mean over the stages, the Jacobians of fields of order m are :math:`\sum_k G_k\,(h\mathcal A)^{m-k}\otimes D`,
which the eigenvectors of :math:`\mathcal A` take apart: for each eigenvalue there is one problem in space. In that, bubbles
reach over one element only, and are eliminated element by element.

References: J. C. Butcher, On the implementation of implicit Runge-Kutta methods, BIT 16 (1976); E. L. Wilson, The static
condensation algorithm, International Journal for Numerical Methods in Engineering 8 (1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.models.bases import PiecewiseBasis, Trace
from sciml.slabs.system import Evaluated, Part, Slab
from sciml.typing import Array


class ElementPreconditioner:
    """Preconditioner of a slab on elements: maps residuals at the stages, of equations and at the ends, to rates."""

    def __init__(self, quadrature: Tensor, slab: Slab[PiecewiseBasis], evaluated: Sequence[Evaluated]) -> None:
        self._slab = slab
        mesh, fields = slab.mesh, len(slab.orders)
        self._mesh = mesh
        inside, ends = evaluated[: len(slab.problem.equations)], evaluated[len(slab.problem.equations) :]
        self._inside = len(inside)
        self._inner, self._nodal = fields * mesh.bubbles, fields * mesh.smooth
        self._test = quadrature[:, None] * cast(Trace, inside[0].site.traces[0]).tables[0]
        tested = torch.stack([self._tested(self._by_eigenvalue(each)) for each in inside], dim=2)
        self._fields = paired(tested[0].abs().square().sum(dim=(0, 2, 4)).sqrt().numpy())
        # Rows as columns: all fields' bubbles, then what is shared with either neighbour.
        matrix = self._ordered(self._ordered(tested[:, :, self._fields]).permute(0, 1, 4, 2, 3))
        matrix = matrix.transpose(2, 3)
        inner = self._inner
        self._bubbles = torch.linalg.lu_factor(matrix[..., :inner, :inner])
        self._coupling = torch.linalg.lu_solve(*self._bubbles, matrix[..., :inner, inner:])
        self._below = matrix[..., inner:, :inner]
        rest = matrix[..., inner:, inner:] - self._below @ self._coupling
        left, right = slice(0, self._nodal), slice(self._nodal, None)
        pairs, count = len(rest), mesh.count
        whole = rest.new_zeros(pairs, count + 1, self._nodal, count + 1, self._nodal)
        every = torch.arange(count)
        for row, one in ((0, left), (1, right)):
            for column, other in ((0, left), (1, right)):
                whole[:, every + row, :, every + column] += rest[..., one, other].transpose(0, 1)
        border = self._border(ends)
        self._kept = self._unbound(border)
        rows = torch.cat([self._reduced(whole.reshape(pairs, count + 1, self._nodal, -1)), border], dim=1)
        self._outer = torch.linalg.qr(rows)

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """Rates ``(p, F, width)`` from residuals, each ``(p, elements, q)``."""
        slab, mesh = self._slab, self._mesh
        inside, ends = values[: self._inside], values[self._inside :]
        stages, fields, nodal = slab.stages, len(slab.orders), self._nodal
        into = stages.inverse
        # (p, F, elements, J): each field's test functions and the equation that is its own.
        tested = torch.stack([inside[number] @ self._test for number in self._fields], dim=1) * self._scale()
        tested = self._ordered(tested.transpose(1, 2))
        right = (into @ tested.to(into).flatten(1)).view(len(into), mesh.count, -1)
        own = torch.linalg.lu_solve(*self._bubbles, right[..., : self._inner, None])
        rest = right[..., self._inner :] - (self._below @ own)[..., 0]
        wanted = rest.new_zeros(len(into), mesh.count + 1, nodal)
        wanted[:, :-1] += rest[..., :nodal]
        wanted[:, 1:] += rest[..., nodal:]
        below = [into @ each.to(into).flatten(1) for each in ends]
        both = torch.cat([self._reduced(wanted[..., None])[..., 0], *below], dim=1)
        outer, triangle = self._outer
        found = torch.linalg.solve_triangular(triangle, outer.mH @ both[..., None], upper=True)
        found = found.view(len(into), mesh.count + 1, nodal)
        neighbours = torch.cat([found[:, :-1], found[:, 1:]], dim=2)
        bubbles = (own - self._coupling @ neighbours[..., None])[..., 0]
        bubbles = bubbles.view(len(into), mesh.count, fields, mesh.bubbles).transpose(1, 2).flatten(2)
        found = found.view(len(into), mesh.count + 1, fields, mesh.smooth).transpose(1, 2).flatten(2)
        modes = torch.cat([bubbles, found], dim=2)
        return (stages.vectors @ modes.flatten(1)).real.view(stages.count, fields, mesh.width)

    def _scale(self) -> Tensor:
        """What an integral over an element of a local basis function is multiplied by, ``(elements, J)``."""
        return self._mesh.half[:, None] * self._mesh.factor

    def _tested(self, rows: Tensor) -> Tensor:
        """Integrals with all test functions: ``(p / 2, elements, q, F, J)`` to ``(p / 2, elements, J, F, J)``."""
        integrals = (self._test.T.to(rows) @ rows.flatten(3)).unflatten(3, rows.shape[3:])
        return integrals * self._scale()[:, :, None, None]

    def _by_eigenvalue(self, evaluated: Evaluated) -> Tensor:
        """A residual's rows for each eigenvalue, ``(p / 2, elements, q, F, J)``."""
        slab = self._slab
        scaled = slab.length * slab.stages.eigenvalues
        shape = (*evaluated.values.shape[1:], len(slab.orders), self._mesh.degree + 1)
        powers: dict[int, Tensor] = {}
        for part in evaluated.parts:
            power = slab.orders[part.field] - part.in_time
            if power not in powers:
                powers[power] = torch.zeros(shape, dtype=torch.float64)
            powers[power][:, :, part.field] += slab.units[part.field] * self._table(part)
        found = torch.zeros((len(scaled), *shape), dtype=scaled.dtype)
        for power, table in powers.items():
            found += (scaled**power)[:, None, None, None, None] * table
        return found

    def _table(self, part: Part) -> Tensor:
        """The mean over the stages of a jet's part in the rows, ``(elements, q, J)``."""
        trace = cast(Trace, part.trace)
        order = len(part.in_space)
        slopes = part.slopes.mean(0) * trace.stretch[:, None] ** order
        return slopes[:, :, None] * trace.tables[order] * self._mesh.factor[trace.elements, None, :]

    def _ordered(self, rows: Tensor) -> Tensor:
        """The last two dimensions, field and local basis, as one in the order of elimination."""
        inner, smooth = self._mesh.bubbles, self._mesh.smooth
        bubbles, left, right = rows.split([inner, smooth, smooth], dim=-1)
        return torch.cat([bubbles.flatten(-2), left.flatten(-2), right.flatten(-2)], dim=-1)

    def _border(self, ends: Sequence[Evaluated]) -> Tensor:
        """The rows of conditions in the nodal weights of all breaks."""
        slab = self._slab
        pairs, breaks = len(slab.stages.eigenvalues), self._mesh.count + 1
        found = [torch.zeros(pairs, 0, breaks * self._nodal, dtype=slab.stages.eigenvalues.dtype)]
        for each in ends:
            row = torch.zeros(pairs, 1, breaks, self._nodal, dtype=slab.stages.eigenvalues.dtype)
            for trace in each.site.traces:
                own = Evaluated(each.site, each.values, tuple(part for part in each.parts if part.trace is trace))
                columns = self._ordered(self._by_eigenvalue(own))[:, 0]
                left, right = columns[..., self._inner : -self._nodal], columns[..., -self._nodal :]
                upper = cast(Trace, trace).upper
                row[:, :, -1 if upper else 0] += right if upper else left
            found.append(row.flatten(2))
        return torch.cat(found, dim=1)

    def _unbound(self, border: Tensor) -> Tensor:
        """The combinations of the functions at both ends that conditions leave free, ``(2 m F, free)``."""
        own = torch.cat([border[0, :, : self._nodal], border[0, :, -self._nodal :]], dim=1)
        norms = own.norm(dim=1, keepdim=True)
        rows = own / torch.where(norms > 0, norms, torch.ones_like(norms))
        # Eigenvalues only multiply rows, except where conditions mix time derivatives, or fields with a rate and without: those
        # that are bound least, as many as there are no conditions for.
        return torch.linalg.svd(torch.cat([rows.real, rows.imag])).Vh[len(rows) :].T

    def _reduced(self, rows: Tensor) -> Tensor:
        """Rows of test functions at the breaks ``(p / 2, breaks, m F, k)``, those at the ends combined."""
        ends = self._kept.T.to(rows) @ rows[:, [0, -1]].flatten(1, 2)
        return torch.cat([rows[:, 1:-1].flatten(1, 2), ends], dim=1)


def paired(sizes: Array) -> list[int]:
    """Linear assignment: for each field the equation in which it counts most, from sizes ``(equations, fields)``."""
    whole = np.maximum(sizes.max(axis=1, keepdims=True), np.finfo(float).tiny)
    equations, fields = scipy.optimize.linear_sum_assignment(np.log(np.maximum(sizes / whole, 1e-300)), maximize=True)
    return [int(equations[list(fields).index(field)]) for field in range(len(sizes))]

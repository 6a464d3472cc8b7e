r"""Spectral collocation in slabs of time: nodal values on a tensor-product grid, and an approximate inverse of their Jacobian.

At every stage the equations hold at the nodes, and the conditions at the outermost nodes in their place. Frozen at its mean
over the stages and along periodic coordinates, the Jacobian is taken apart by the eigenvectors of the method of Radau and by
waves: for each eigenvalue and each wave there is one small problem in the other coordinates, solved by a full factor. Where
nothing changes along the periodic coordinates that is exact, and GMRES ends at once.

References: L. N. Trefethen, Spectral Methods in MATLAB, SIAM 2000; J. C. Butcher, On the implementation of implicit
Runge-Kutta methods, BIT 16 (1976).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import cast

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.models import Grid
from sciml.models.bases import Nodal, Spectral1D
from sciml.parallel.blas_threads import one_blas_thread
from sciml.slabs.system import Evaluated, Part, Slab
from sciml.typing import Array, MultiIndex

# Blocks up to this size have explicit inverses, or generalised ones, all at once.
_SMALL = 64
_WAVES = 256
_SINGULAR, _FREE = 1e-13, 1e-11
# Where between the nodes residuals are judged, coordinate by coordinate: half way along two of them, a function of their sum
# would be judged at the nodes again.
_BETWEEN = (0.5, 0.3, 0.4)


class GridSpace(Grid):
    """The functions of a tensor-product grid, as slabs of time use them."""

    def __init__(self, axes: Mapping[str, Nodal]) -> None:
        super().__init__(axes)
        self.width = self.size
        self._own = [Table(axis, None) for axis in self.axes.values()]

    def local(self, weights: Tensor) -> NodalValues:
        """Values at the nodes ``(times, N)``, which remember their derivatives."""
        return NodalValues(self, weights.unflatten(1, self.shape))

    def derivative(self, values: Tensor, tables: Sequence[Table], index: MultiIndex) -> Tensor:
        """A derivative of nodal values ``(times, n_1, ...)`` at a tensor product of places, ``(times, m_1, ...)``."""
        for column, (name, table) in enumerate(zip(self.coordinates, tables, strict=True), start=1):
            matrix = table.matrix(index.count(name))
            if matrix is not None:
                values = (values.movedim(column, -1) @ matrix.T).movedim(-1, column)
        return values

    def nodes(self, numbers: Array | None = None) -> NodeTrace:
        """Some of the nodes, or all of them."""
        return NodeTrace(self, None if numbers is None else torch.as_tensor(numbers))

    def between(self) -> TensorTrace:
        """Places between the nodes."""
        pairs = zip(self.axes.values(), self.gaps, strict=True)
        return TensorTrace(self, [Table(axis, torch.from_numpy(places)) for axis, places in pairs])

    @property
    def gaps(self) -> list[Array]:
        """The places of ``between`` along each axis."""
        return [between(axis, share) for share, axis in zip(_BETWEEN, self.axes.values(), strict=False)]

    def around(self, values: Tensor) -> Tensor:
        """At all nodes the means of what there is at the places of ``between`` around them, ``(times, n_1, ...)``."""
        for column, axis in enumerate(self.axes.values(), start=1):
            count = values.shape[column]
            ends = (count - 1, 0) if axis.periodic else (0, count - 1)
            before, after = (values.narrow(column, end, 1) for end in ends)
            below = torch.cat([before, values], dim=column)
            above = torch.cat([values, after], dim=column)
            values = (below + above) / 2
            values = values.narrow(column, 0, count) if axis.periodic else values
        return values

    def transferred(self, values: Tensor, other: GridSpace) -> Tensor:
        """Nodal values ``(k, N)`` at the nodes of another grid of the same box."""
        axes = zip(self.axes.values(), other.axes.values(), strict=True)
        tables = [Table(axis, torch.from_numpy(new.nodes)) for axis, new in axes]
        return self.derivative(values.unflatten(1, self.shape), tables, ()).flatten(1)

    def tails(self, values: Tensor) -> Tensor:
        """For each coordinate the share of the highest sixth of its functions in fields of nodal values ``(k, N)``."""
        found = []
        for column, axis in enumerate(cast(Iterable[Spectral1D], self.axes.values()), start=1):
            weights = values.unflatten(1, self.shape).movedim(column, -1) @ axis.expanded.T
            count = len(axis)
            degree = torch.arange(count) if not axis.periodic else (torch.arange(count) + 1) // 2
            high = degree > (5 * int(degree.max())) // 6
            squares = weights.square().flatten(1, -2).sum(1) if weights.ndim > 2 else weights.square()
            found.append((squares[:, high].sum(1) / squares.sum(1).clamp_min(1e-300)).sqrt().max())
        return torch.stack(found)


def between(axis: Nodal, share: float) -> Array:
    """Places between neighbouring nodes of an axis, at a share of their distance."""
    if axis.periodic:
        return axis.nodes + share * (axis.high - axis.low) / len(axis)
    angles = np.arccos(np.clip(2 * (axis.nodes - axis.low) / (axis.high - axis.low) - 1, -1, 1))
    return axis.low + (axis.high - axis.low) * (1 + np.cos((1 - share) * angles[1:] + share * angles[:-1])) / 2


class Table:
    """From the nodes of an axis to derivatives at some places; None for the nodes themselves."""

    def __init__(self, axis: Nodal, places: Tensor | None) -> None:
        self._axis, self._given = axis, places
        self.places = torch.from_numpy(axis.nodes) if places is None else places
        self._matrices: dict[int, Tensor | None] = {}

    def matrix(self, order: int) -> Tensor | None:
        """The matrix ``(m, n)`` of a derivative, or None for values at the nodes."""
        if order not in self._matrices:
            if self._given is not None:
                self._matrices[order] = self._axis.table(self._given, order)[1]
            else:
                self._matrices[order] = torch.from_numpy(self._axis.matrix(order).toarray()) if order else None
        return self._matrices[order]


class NodalValues:
    """Values at the nodes of a grid ``(times, n_1, ...)`` with their derivatives there, each computed once."""

    def __init__(self, space: GridSpace, values: Tensor) -> None:
        self.space, self.values = space, values
        self._kept: dict[MultiIndex, Tensor] = {(): values}

    def derivative(self, index: MultiIndex) -> Tensor:
        """A derivative at all nodes."""
        index = tuple(sorted(index, key=self.space.coordinates.index))
        if index not in self._kept:
            # Along one coordinate at a time, as far as that is known already.
            first = index[0]
            along = tuple(name for name in index if name == first)
            before = self.derivative(tuple(name for name in index if name != first))
            self._kept[index] = self.space.derivative(before, self.space._own, along)
        return self._kept[index]


class NodeTrace:
    """Jets at some nodes of a grid: one element with as many places."""

    def __init__(self, space: GridSpace, numbers: Tensor | None) -> None:
        self.numbers = numbers
        points = torch.from_numpy(space.points if numbers is None else space.points[numbers.numpy()])
        self.columns = tuple(column.contiguous()[None] for column in points.unbind(1))

    def jet(self, local: NodalValues, index: MultiIndex) -> Tensor:
        """A derivative at the nodes, ``(times, 1, q)``."""
        found = local.derivative(index).flatten(1)
        return (found if self.numbers is None else found[:, self.numbers])[:, None]


class TensorTrace:
    """Jets at a tensor product of places of a grid: one element with as many places."""

    def __init__(self, space: GridSpace, tables: Sequence[Table]) -> None:
        self._space, self._tables = space, tables
        product = torch.cartesian_prod(*(table.places for table in tables)).reshape(-1, len(tables))
        self.columns = tuple(column.contiguous()[None] for column in product.unbind(1))

    def jet(self, local: NodalValues, index: MultiIndex) -> Tensor:
        """A derivative there, ``(times, 1, q)``."""
        return self._space.derivative(local.values, self._tables, index).flatten(1)[:, None]


def by_eigenvalue(slab: Slab[GridSpace], rows: Sequence[Tensor | None], values: Sequence[Tensor]) -> Tensor:
    """Residuals, each ``(p, 1, q)``, in the rows that they take, for each eigenvalue of the stages, ``(m, F, N)``; no means."""
    fields, size, into = len(slab.orders), slab.mesh.size, slab.stages.inverse
    whole = torch.zeros(slab.stages.count, fields * size, dtype=torch.float64)
    for residual, row in zip(values, rows, strict=True):
        if row is not None:
            whole[:, row] = residual[:, 0]
    return (into @ whole.to(into)).view(len(into), fields, size)


class GridPreconditioner:
    """Block preconditioner by full LU factors: maps residuals of a slab on a grid to rates that make them, approximately.

    Args:
        rows: for each site the numbers of the rows that it takes, ``field * N + node``, None for a mean.
        slab: whose functions are those of a ``GridSpace``.
        evaluated: the sites, with their derivatives by jets.
    """

    def __init__(self, rows: Sequence[Tensor | None], slab: Slab[GridSpace], evaluated: Sequence[Evaluated]) -> None:
        self._slab, self._rows = slab, rows
        space = self._space = slab.mesh
        around = [number for number, axis in enumerate(space.axes.values()) if axis.periodic]
        others = [number for number in range(len(space.shape)) if number not in around]
        # Nodes with the periodic coordinates first: waves, and what is left for each of them.
        numbers = torch.arange(space.size).view(space.shape).permute(*around, *others)
        self._waves = tuple(space.shape[number] for number in around)
        self._each = math.prod(space.shape[number] for number in others)
        self._numbers = numbers.reshape(-1)
        self._place = torch.argsort(self._numbers)
        self._around, self._others = ([space.coordinates[k] for k in which] for which in (around, others))
        self._means = sum(row is None for row in rows)
        powers = self._blocks(evaluated)
        scaled = slab.length * slab.stages.eigenvalues
        self._inverses = [_Inverse(_combined(powers, complex(value))) for value in scaled]

    def _blocks(self, evaluated: Sequence[Evaluated]) -> dict[int, Tensor]:
        """The Jacobian of each wave by powers of the scaled eigenvalues, each ``(waves, rows, F n)``."""
        slab, each, fields = self._slab, self._each, len(self._slab.orders)
        count = math.prod(self._waves)
        kind = torch.complex128 if self._waves else torch.float64
        found: dict[int, Tensor] = {}
        mean = fields * each
        for site, row in zip(evaluated, self._rows, strict=True):
            for part in site.parts:
                power = slab.orders[part.field] - part.in_time
                if power not in found:
                    found[power] = torch.zeros(count, fields * each + self._means, fields * each, dtype=kind)
                columns = slice(part.field * each, (part.field + 1) * each)
                symbol, matrix = self._symbol(part.in_space), self._matrix(part.in_space)
                unit = slab.units[part.field]
                if row is None:
                    # The mean over all waves but the constant one vanishes.
                    assert site.site.shares is not None
                    slope = (part.slopes.mean(0) * site.site.shares).flatten()[self._numbers].view(count, each).sum(0)
                    found[power][0, mean, columns] += unit * symbol[0] * (slope @ matrix)
                    continue
                lines, slopes, places = self._frozen(part, row)
                block = (unit * slopes)[:, None] * matrix[places]
                # Few waves with large blocks, or many with small ones.
                for some, factors in zip(found[power].split(_WAVES), symbol.split(_WAVES), strict=True):
                    some[:, lines, columns] += factors[:, None, None] * block
            mean += row is None
        return found

    def _frozen(self, part: Part, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of a block, their mean slopes, and the places ``(k,)`` at which their derivatives are taken."""
        size, each = self._space.size, self._each
        numbers = cast(NodeTrace, part.trace).numbers
        slopes = part.slopes.mean(0).flatten()
        # What stands at one place of all waves is one row.
        line = torch.div(row, size, rounding_mode="floor") * each + self._place[row % size] % each
        lines, inverse, counts = torch.unique(line, return_inverse=True, return_counts=True)
        mean = torch.zeros(len(lines), dtype=slopes.dtype).index_add_(0, inverse, slopes) / counts
        places = torch.empty(len(lines), dtype=torch.int64)
        places[inverse] = self._place[torch.arange(size) if numbers is None else numbers] % each
        return lines, mean, places

    def _symbol(self, index: MultiIndex) -> Tensor:
        """What a derivative along the periodic coordinates multiplies each wave by, ``(waves,)``."""
        found = torch.ones(1, dtype=torch.complex128 if self._waves else torch.float64)
        for name, count in zip(self._around, self._waves, strict=True):
            axis = self._space.axes[name]
            wave = 2j * math.pi / (axis.high - axis.low) * torch.fft.fftfreq(count, 1 / count, dtype=torch.float64)
            found = (found[:, None] * wave ** index.count(name)).flatten()
        return found

    def _matrix(self, index: MultiIndex) -> Tensor:
        """A derivative along the other coordinates at all of their nodes, ``(n, n)``."""
        one = torch.ones(1, 1, dtype=torch.float64)
        matrices = (torch.from_numpy(self._space.axes[name].matrix(index.count(name)).toarray()) for name in self._others)
        return reduce(torch.kron, (each.contiguous() for each in matrices), one)

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """Rates ``(p, F, N)`` from residuals, each ``(p, 1, q)``."""
        slab, size, fields = self._slab, self._space.size, len(self._slab.orders)
        into = slab.stages.inverse
        # (pairs, F, waves..., n), then a wave and all fields in one block.
        right = by_eigenvalue(slab, self._rows, values)[:, :, self._numbers]
        right = right.view(len(into), fields, *self._waves, self._each)
        over = tuple(range(2, 2 + len(self._waves)))
        if over:
            right = torch.fft.fftn(right, dim=over, norm="forward")
        right = right.reshape(len(into), fields, -1, self._each).transpose(1, 2).flatten(2)
        means = [into @ residual[:, 0, 0].to(into) for residual, row in zip(values, self._rows, strict=True) if row is None]
        if means:
            more = right.new_zeros(*right.shape[:2], len(means))
            more[:, 0] = torch.stack(means, dim=1)
            right = torch.cat([right, more], dim=2)
        solved = torch.stack([own(each) for own, each in zip(self._inverses, right, strict=True)])
        modes = solved.view(len(into), -1, fields, self._each).transpose(1, 2)
        modes = modes.reshape(len(into), fields, *self._waves, self._each)
        if over:
            modes = torch.fft.ifftn(modes, dim=over, norm="forward")
        found = (slab.stages.vectors @ modes.reshape(len(into), -1)).real
        return found.view(slab.stages.count, fields, size)[:, :, self._place]


def _combined(powers: Mapping[int, Tensor], scaled: complex) -> Tensor:
    """The sum of matrices times powers of a complex number."""
    if all(not own.is_complex() for own in powers.values()):
        parts = [sum(getattr(scaled**k, part) * own for k, own in powers.items()) for part in ("real", "imag")]
        return torch.complex(*(cast(Tensor, part) for part in parts))
    return cast(Tensor, sum(scaled**k * own for k, own in powers.items()))


class _Inverse:
    """Solves with the blocks of all waves for one eigenvalue, ``(waves, rows, F n)``."""

    def __init__(self, blocks: Tensor) -> None:
        # Rows and columns of very different sizes would hide what is singular.
        self._down = _reciprocal(_sizes(blocks).amax(2, keepdim=True))
        blocks = blocks.mul_(self._down)
        self._across = _reciprocal(_sizes(blocks).amax(1, keepdim=True))
        blocks = blocks.mul_(self._across)
        self._whole: Tensor | None = None
        if blocks.shape[1] == blocks.shape[2] > _SMALL:
            self._ends, self._others = _divided((blocks != 0).any(0))
            rows, columns = self._ends
            self._single = blocks[:, rows, columns]
            lines, inner = self._others
            self._beside = blocks[:, lines[:, None], columns]
            # Transposed, as LAPACK reads it.
            turned = blocks.mT[:, inner[:, None], lines]
            self._factors = [scipy.linalg.lu_factor(each.numpy().T, overwrite_a=True, check_finite=False) for each in turned]
            pivots = [
                np.abs(np.concatenate([np.diagonal(factor), own]))
                for (factor, _), own in zip(self._factors, self._single.numpy(), strict=True)
            ]
            if min(float(each.min() / each.max()) for each in pivots) > _SINGULAR:
                return
        # What nothing determines stays zero.
        self._whole = torch.linalg.pinv(blocks, rtol=_FREE)

    def __call__(self, right: Tensor) -> Tensor:
        """Solutions ``(waves, F n)`` of right-hand sides ``(waves, rows)``."""
        right = right * self._down[..., 0]
        if self._whole is not None:
            return (self._whole @ right[..., None])[..., 0] * self._across[:, 0]
        found = torch.empty_like(right)
        ends = right[:, self._ends[0]] / self._single
        left = right[:, self._others[0]] - (self._beside @ ends[..., None])[..., 0]
        with one_blas_thread():
            solved = [
                scipy.linalg.lu_solve(own, each.numpy(), check_finite=False)
                for own, each in zip(self._factors, left, strict=True)
            ]
        found[:, self._ends[1]], found[:, self._others[1]] = ends, torch.from_numpy(np.stack(solved))
        return found * self._across[:, 0]


def _divided(filled: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Static condensation: rows and columns of single unknowns, as of Dirichlet's conditions, and the others."""
    rows = torch.nonzero(filled.sum(1) == 1)[:, 0]
    columns = filled[rows].int().argmax(1)
    if len(columns.unique()) < len(columns):
        # Two rows of the same unknown: that is for the factor to find.
        rows, columns = rows[:0], columns[:0]
    others = (torch.ones(len(filled), dtype=torch.bool).index_fill_(0, own, False).nonzero()[:, 0] for own in (rows, columns))
    return (rows, columns), cast(tuple[Tensor, Tensor], tuple(others))


def _sizes(blocks: Tensor) -> Tensor:
    """The sizes of complex numbers, to a factor of the root of two: their absolute values take four times as long."""
    return torch.maximum(blocks.real.abs(), blocks.imag.abs())


def _reciprocal(sizes: Tensor) -> Tensor:
    return torch.where(sizes > 0, 1 / sizes, torch.ones_like(sizes))

r"""Fast diagonalisation: an approximate inverse of a slab's Jacobian on a grid, by the eigenvectors of one axis at a time.

Frozen at means, what differentiates along one coordinate at a time is

.. math:: \sum_k I \otimes \cdots \otimes A_k \otimes \cdots \otimes I, \qquad A_k = \sum_j a_{k,j}(x_k)\, \partial_k^j,

for each eigenvalue of the method of Radau. Conditions tell the values at the ends of an axis from those inside, and the
eigenvectors of what is left along each axis take the sum apart. With n nodes along each of d axes that costs multiples of
:math:`n^{d+1}` multiplications, a full factor :math:`n^{3d}`. What varies across its own coordinate, what differentiates along
two of them, and what couples fields with conditions of different kinds is left to GMRES.

Reference: R. E. Lynch, J. R. Rice and D. H. Thomas, Direct solution of partial difference equations by tensor product methods,
Numerische Mathematik 6 (1964).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from sciml.problem import Problem
from sciml.slabs.grids import GridSpace, by_eigenvalue
from sciml.slabs.row_layout import Row
from sciml.slabs.system import Evaluated, Slab

# Modes whose matrices are as good as singular stay zero, and eigenvectors that are as good as dependent are not taken.
_SINGULAR, _DEPENDENT = 1e-12, 1e10
_ALIKE = 1e-9

Pairs = Sequence[tuple[Evaluated, Tensor]]


def separable(problem: Problem, rows: Sequence[Row], axes: Sequence[str]) -> bool:
    """Whether fast diagonalisation serves: along each axis each field's highest derivative in its own equation is even."""
    for row in (each for each in rows if each.term.name in problem.equations):
        own = [index for name, index in problem.system.asked(row.term) if name == row.field]
        highest = (max((index.count(axis) for index in own if set(index) <= {axis}), default=0) for axis in axes)
        if any(order == 0 or order % 2 for order in highest):
            return False
    return True


class SeparablePreconditioner:
    """Fast diagonalisation as a preconditioner: maps residuals of a slab on a grid to rates that make them, approximately.

    Args:
        rows: for each site the numbers of the rows that it takes, ``field * N + node``.
        slab: whose functions are those of a ``GridSpace``.
        evaluated: the sites, with their derivatives by jets; those with normals are conditions.
    """

    def __init__(self, rows: Sequence[Tensor | None], slab: Slab[GridSpace], evaluated: Sequence[Evaluated]) -> None:
        self._slab, self._rows = slab, [cast(Tensor, row) for row in rows]
        pairs = list(zip(evaluated, self._rows, strict=True))
        inside = [pair for pair in pairs if pair[0].site.normals is None]
        ends = [pair for pair in pairs if pair[0].site.normals is not None]
        fields = [_Conditions(slab, number, inside, ends) for number in range(len(slab.orders))]
        groups: list[list[_Conditions]] = []
        for own in fields:
            alike = next((group for group in groups if group[0].alike(own)), None)
            groups.append([own]) if alike is None else alike.append(own)
        self._groups = [_Modes(slab, group, inside) for group in groups]

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """Rates ``(p, F, N)`` from residuals, each ``(p, 1, q)``."""
        slab = self._slab
        right = by_eigenvalue(slab, self._rows, values).unflatten(2, slab.mesh.shape)
        found = torch.empty_like(right)
        for group in self._groups:
            found[:, group.fields] = group(right[:, group.fields])
        return (slab.stages.vectors @ found.flatten(1)).real.view(slab.stages.count, found.shape[1], -1)


class _Conditions:
    """What the conditions of one field say along each axis, at the mean over its ends.

    Attributes:
        taken: for each axis the nodes whose rows conditions take, and ``inner`` the others.
        rows: for each axis and eigenvalue what conditions are in the values along it, ``(m, b, n)``.
        inverse: of that part of them which is in the taken values themselves, ``(m, b, b)``.
        extended: from the values inside to those along the whole axis, ``(m, n, i)``.
        owner: the axis along which a node's row is a condition, -1 inside, of the shape of the grid.
    """

    def __init__(self, slab: Slab[GridSpace], field: int, inside: Pairs, ends: Pairs) -> None:
        space, self.field = slab.mesh, field
        size, shape = space.size, space.shape
        (own,) = (row for _, row in inside if int(row[0]) // size == field)
        free = torch.zeros(size, dtype=torch.bool)
        free[own % size] = True
        free = free.view(shape)
        self.owner = torch.full((size,), -1)
        along = [free.any(dim=[other for other in range(len(shape)) if other != k]) for k in range(len(shape))]
        self.inner, self.taken = [torch.nonzero(each)[:, 0] for each in along], [torch.nonzero(~each)[:, 0] for each in along]
        self.rows, self.inverse, self.extended = [], [], []
        scaled = slab.length * slab.stages.eigenvalues
        tables = [torch.zeros(len(scaled), count, count, dtype=scaled.dtype) for count in shape]
        beside = [name for name in slab.problem.coordinates if name != slab.problem.time]
        columns = [slab.problem.coordinates.index(name) for name in beside]
        for site, row in ends:
            if int(row[0]) // size != field:
                continue
            nodes, normals = row % size, cast(Tensor, site.site.normals)[:, columns]
            axis = normals.abs().argmax(1)
            self.owner[nodes] = axis
            places = torch.stack(torch.unravel_index(nodes, shape))
            for k, name in enumerate(space.coordinates):
                # At edges another face's row may stand beside.
                clear = (axis == k) & torch.stack([along[j][places[j]] for j in range(len(shape)) if j != k]).all(0)
                for part in site.parts:
                    if part.field != field or not set(part.in_space) <= {name} or not bool(clear.any()):
                        continue
                    slopes = part.slopes.mean(0).flatten()[clear]
                    upper = normals[clear, k] > 0
                    matrix = torch.from_numpy(space.axes[name].matrix(len(part.in_space)).toarray())
                    power = slab.orders[field] - part.in_time
                    for line in places[k][clear].unique():
                        here = places[k][clear] == line
                        factor = slab.units[field] * slopes[here].mean() * scaled**power
                        tables[k][:, line] += factor[:, None] * matrix[-1 if bool(upper[here][0]) else 0]
        self.owner = self.owner.view(shape)
        for table, taken, inner in zip(tables, self.taken, self.inner, strict=True):
            rows = table[:, taken]
            inverse = torch.linalg.pinv(rows[:, :, taken])
            extended = table.new_zeros(len(table), table.shape[1], len(inner))
            extended[:, inner, torch.arange(len(inner))] = 1.0
            extended[:, taken] = -inverse @ rows[:, :, inner]
            self.rows.append(rows)
            self.inverse.append(inverse)
            self.extended.append(extended)

    def alike(self, other: _Conditions) -> bool:
        """Whether another field's conditions are of the same kind."""
        pairs = zip(self.extended, other.extended, strict=True)
        return all(one.shape == two.shape and torch.allclose(one, two, atol=_ALIKE) for one, two in pairs)


class _Modes:
    """The equations of fields with conditions of one kind, taken apart by the eigenvectors of each axis."""

    def __init__(self, slab: Slab[GridSpace], group: Sequence[_Conditions], inside: Pairs) -> None:
        self.fields, self._kind = [each.field for each in group], group[0]
        self._rows, self._inverse = (
            [torch.stack(each, dim=1) for each in zip(*(getattr(own, name) for own in group), strict=True)]
            for name in ("rows", "inverse")
        )
        kind, scaled = self._kind, slab.length * slab.stages.eigenvalues
        space, count = slab.mesh, len(group)
        owners, level = torch.stack([own.owner for own in group]), torch.zeros(space.shape, dtype=torch.int64)
        for k, taken in enumerate(kind.taken):
            level.movedim(k, 0)[taken] += 1
        # Faces, then edges, then corners.
        masks = ((k, (owners == k) & (level == each)) for each in range(1, level.ndim + 1) for k in range(level.ndim))
        self._masks = [(k, mask.movedim(k + 1, 0)[kind.taken[k]].movedim(0, k + 1)) for k, mask in masks if bool(mask.any())]
        # For each axis what differentiates along it, of an even order and of an odd one, ``(m, F, F, i, n)``.
        along = [
            torch.zeros(2, len(scaled), count, count, len(inner), len(axis), dtype=scaled.dtype)
            for inner, axis in zip(kind.inner, space.axes.values(), strict=True)
        ]
        constant = torch.zeros(len(scaled), count, count, dtype=scaled.dtype)
        for site, row in inside:
            if int(row[0]) // space.size not in self.fields:
                continue
            one = self.fields.index(int(row[0]) // space.size)
            places = torch.unravel_index(row % space.size, space.shape)
            for part in site.parts:
                if part.field not in self.fields or len(set(part.in_space)) > 1:
                    continue
                two, order = self.fields.index(part.field), len(part.in_space)
                slopes = part.slopes.mean(0).flatten()
                factor = slab.units[part.field] * scaled ** (slab.orders[part.field] - part.in_time)
                mean = slopes.mean()
                constant[:, one, two] += 0.0 if order else factor * mean
                for k, (name, axis) in enumerate(space.axes.items()):
                    if part.in_space and part.in_space[0] != name:
                        continue
                    profile = slopes.new_zeros(len(axis)).index_add_(0, places[k], slopes)[kind.inner[k]]
                    profile = profile * len(profile) / len(slopes)
                    profile = mean.expand(len(profile)) if axis.periodic else profile
                    matrix = torch.from_numpy(axis.matrix(order).toarray())[kind.inner[k]]
                    own = (profile - (0.0 if order else mean))[:, None] * matrix
                    along[k][order % 2][:, one, two] += factor[:, None, None] * own
        self._along = [each.sum(0) for each in along]
        modes = constant.view(*constant.shape, *[1] * len(along))
        sizes = modes.abs()
        self._into, self._back = [], []
        for k, (axis, each) in enumerate(zip(space.axes.values(), along, strict=True)):
            reduced = each @ kind.extended[k][:, None, None]
            vectors, inverse = _waves(len(axis), scaled) if axis.periodic else _eigenvectors(reduced)
            own = (inverse[:, None, None] @ reduced.sum(0) @ vectors[:, None, None]).diagonal(dim1=-2, dim2=-1)
            shape = [1] * len(along)
            shape[k] = own.shape[-1]
            own = own.view(*own.shape[:3], *shape)
            modes, sizes = modes + own, sizes + own.abs()
            self._into.append(inverse)
            self._back.append(kind.extended[k] @ vectors)
        self._solver = _inverted(*(each.movedim((1, 2), (-2, -1)) for each in (modes, sizes)))

    def __call__(self, right: Tensor) -> Tensor:
        """Solutions ``(m, F, n_1, ...)`` of right-hand sides."""
        kind, axes = self._kind, range(right.ndim - 2)
        lifted = torch.zeros_like(right)
        for k, mask in self._masks:
            taken = kind.taken[k]
            left = (right.index_select(k + 2, taken) - _along(self._rows[k], lifted, k)) * mask
            lifted.index_add_(k + 2, taken, _along(self._inverse[k], left, k) * mask)
        for k in axes:
            right = right.index_select(k + 2, kind.inner[k])
        for k in axes:
            if not len(kind.taken[k]):
                continue
            ends = lifted.index_select(k + 2, kind.taken[k])
            for other in axes:
                ends = ends if other == k else ends.index_select(other + 2, kind.inner[other])
            table = self._along[k][..., kind.taken[k]]
            for number in range(ends.shape[1]):
                right = right - _along(
                    table[:, :, number], ends[:, number : number + 1].expand(-1, table.shape[1], *ends.shape[2:]), k
                )
        for k, inverse in enumerate(self._into):
            right = _along(inverse, right, k)
        found = (self._solver @ right.movedim(1, -1)[..., None])[..., 0].movedim(-1, 1)
        for k, vectors in enumerate(self._back):
            found = _along(vectors, found, k)
        return found + lifted


def _along(matrix: Tensor, values: Tensor, k: int) -> Tensor:
    """Matrices ``(m, a, n)``, or one for each field ``(m, F, a, n)``, applied along an axis of values ``(m, F, n_1, ...)``."""
    moved = values.movedim(k + 2, -1)
    matrix = matrix if matrix.ndim == 4 else matrix[:, None]
    found = moved.reshape(*moved.shape[:2], -1, moved.shape[-1]) @ matrix.mT
    return found.view(*moved.shape[:-1], matrix.shape[-2]).movedim(-1, k + 2)


def _waves(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The waves of a periodic axis as columns, and their inverse, ``(m, n, n)``."""
    numbers = torch.arange(count, dtype=torch.float64)
    waves = torch.exp(2j * math.pi / count * torch.outer(numbers, numbers)).to(like)
    return waves.expand(len(like), -1, -1), (waves.conj() / count).expand(len(like), -1, -1)


def _eigenvectors(reduced: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors of the largest of matrices ``(2, m, F, F, i, i)`` and their inverse, without odd derivatives if need be."""
    for tried in (reduced.sum(0), reduced[0]):
        sizes = tried.abs().amax(dim=(0, 3, 4))
        one, two = divmod(int(sizes.argmax()), len(sizes))
        _, vectors = torch.linalg.eig(tried[:, one, two])
        inverse, failed = torch.linalg.inv_ex(vectors)
        condition = (torch.linalg.matrix_norm(vectors) * torch.linalg.matrix_norm(inverse)).max()
        if not bool(failed.any()) and bool(condition < _DEPENDENT):
            break
    return vectors, inverse


def _inverted(blocks: Tensor, sizes: Tensor) -> Tensor:
    """The inverses of small matrices ``(..., F, F)``, sums of terms of such sizes; what nothing determines stays zero."""
    inverse, failed = torch.linalg.inv_ex(blocks)
    whole = torch.linalg.matrix_norm(inverse) * torch.linalg.matrix_norm(sizes)
    poor = (failed > 0) | ~whole.isfinite() | (whole > 1 / _SINGULAR)
    return torch.where(poor[..., None, None], torch.zeros_like(inverse), inverse)

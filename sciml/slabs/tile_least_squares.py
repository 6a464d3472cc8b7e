r"""Least squares on cut tiles: equations, conditions and continuity as rows, condensed tile by tile, solved by a sparse factor.

The rows on one tile are reduced to a triangle by Householder's QR, which loses nothing; the rows that join tiles stay as they
are. Their normal equations have the sparsity of the tiles' neighbourhood and are factored by nested dissection. What their
squared condition number loses, conjugate gradients on the rows themselves bring back (CGLS, preconditioned by the factor).

Reference: A. Bjorck, Numerical Methods for Least Squares Problems, SIAM 1996, sections 2.4 and 7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sciml.slabs.nested_dissection import BlockCholesky

CPU = torch.device("cpu")
_RIDGE = 1e-13
# Combinations whose rows are smaller than that are left out: what they would do is what no refinement takes from the rows.
_UNSEEN = 1e-13
_REFINEMENTS, _REFINED = 120, 1e-13
# What two steps leave at most that gain something.
_GAINS = 0.5
# Inverse iterations for the smallest singular value: where it is none to speak of, the first finds it.
_INVERSE = 3
# By how much less a mean weighs that is more than it takes to determine the fields.
REDUNDANT = 1e-3
# What coefficients leave of an unknown's rows, as a share, where they can imitate it.
_IMITATED = 1e-7


# Rows that join pairs of tiles ``(P, 2)``: matrices ``(P, m, 2 F K)`` and values ``(P, m, c)``, padded by zeros.
Joined = tuple[Tensor, Tensor, Tensor]


def condense(triangles: Tensor, tiles: Tensor, rows: Tensor) -> None:
    """Take rows ``(E, q, w)`` of tiles, each of which is named once, into their triangles."""
    triangles[tiles] = torch.linalg.qr(torch.cat([triangles[tiles], rows], dim=1), mode="r").R


def condensed_pairs(tiles: Tensor, slopes: Tensor, values: Tensor) -> Joined:
    """Rows ``(E, q, 2 w)`` and values ``(E, q, c)`` of pairs of tiles, as few as may be."""
    rows = torch.cat([slopes, values], dim=2)
    if rows.shape[1] > rows.shape[2]:
        rows = torch.linalg.qr(rows, mode="r").R
    return tiles, *rows.split([slopes.shape[2], values.shape[2]], dim=2)


@dataclass(frozen=True)
class ProjectedStep:
    """A step of variable projection.

    Attributes:
        solved: the step of coefficients without unknowns, and by each of them, ``(1 + q, T, F, K)``.
        move: of the unknowns, ``(q,)``; the last ones are ``levels``.
        levels: their number.
        seen: which unknowns rows see, ``(q,)``.
        weakest: the smallest singular value of what rows see of the unknowns, each in its own size.
        along: the direction that is seen so, ``(q,)``.
    """

    solved: Tensor
    move: Tensor
    levels: int
    seen: Tensor
    weakest: Tensor
    along: Tensor

    @property
    def farthest(self) -> float:
        """How far an unknown moves, but for levels."""
        return max([0.0, *self.move[: len(self.move) - self.levels].abs().tolist()])

    def step(self, farthest: float) -> Tensor:
        """All coefficients and then unknowns, flat, where these move no farther."""
        move = self.move * min(1.0, farthest / max(self.farthest, 1e-300))
        return torch.cat([(self.solved[0] + torch.tensordot(move, self.solved[1:], dims=1)).flatten(), move])


class TileLinearization:
    """Condensed rows at one position: slopes by coefficients, which are made ``of`` nodes', residuals and slopes by unknowns.

    Args:
        triangles: of each node, ``(N, m, w + 1 + q)``.
        joined: the rows of pairs.
        of: from coefficients of nodes ``(N, w)`` to those of tiles.
        unknowns: their number q.
        accelerator: where a large factor is made.
        means: rows that tie all tiles, by value and unknowns ``(1 + q,)`` and by coefficients. The last unknowns are the levels
            at which fields are held in their place.
    """

    def __init__(
        self,
        triangles: Tensor,
        joined: Sequence[Joined],
        of: Callable[[Tensor], Tensor],
        unknowns: int = 0,
        accelerator: torch.device = CPU,
        means: Sequence[tuple[Tensor, Tensor]] = (),
    ) -> None:
        self._of, self._unknowns, self._means = of, unknowns, means
        slopes, own = triangles.split([triangles.shape[2] - 1 - unknowns, 1 + unknowns], dim=2)
        self._values = [own, *(values for _, _, values in joined)]
        self._rows = TileLeastSquares(slopes, [(tiles, rows) for tiles, rows, _ in joined], accelerator=accelerator)

    def step(self, damping: float = 0.0) -> Tensor | None:
        """The least-squares step for all coefficients, flat, or None where the factorisation fails."""
        found = self._solved(slice(0, 1), damping)
        return None if found is None else found.flatten()

    def sensitivities(self) -> Tensor | None:
        """The derivatives of all coefficients by unknowns, but for levels, ``(q, T, F, K)``, or None where that fails."""
        if not self._means or not self._factored(0.0):
            return self._solved(slice(1, None))
        # Constants have values: means beside everything else are more than it takes.
        solved, left = self._projected(REDUNDANT)
        own, levels = solved[1:].split([len(solved) - 1 - len(self._means), len(self._means)])
        by_unknown, by_level = left[:, 1:].split([len(own), len(levels)], dim=1)
        moves = torch.linalg.lstsq(by_level, by_unknown, driver="gelsd").solution
        return own - torch.tensordot(moves, levels, dims=([0], [0]))

    def _projected(self, share: float = 1.0) -> tuple[Tensor, Tensor]:
        """What coefficients do about values and unknowns, ``(1 + q, T, F, K)``, and what is left of these, ``(M, 1 + q)``.

        Rows that tie all tiles count by a ``share``.
        """
        found, left = self._rows.projected(self._values)
        solved = -torch.stack([self._of(each) for each in found.unbind(2)])
        return solved, torch.cat([left, share * self._tied(solved)])

    def _tied(self, solved: Tensor) -> Tensor:
        """The rows that tie all tiles, by value and unknowns, where coefficients follow."""
        rows = [row + torch.tensordot(solved, slopes, dims=slopes.dim()) for row, slopes in self._means]
        return torch.stack(rows) if rows else solved.new_zeros(0, len(solved))

    def varied(self, damping: float) -> ProjectedStep | None:
        r"""Variable projection: the step for the unknowns, which coefficients follow.

        With the projection P onto what coefficients can do, :math:`(I - P) B\, \delta c = -(I - P) r` for the unknowns c. None
        where the factorisation fails, or is not finite.

        Reference: G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose
        variables separate, SIAM Journal on Numerical Analysis 10 (1973).
        """
        if not self._factored(damping):
            return None
        solved, left = self._projected()
        if not bool(left.isfinite().all()):
            return None
        sizes = torch.cat([values.flatten(0, 1) for values in self._values])[:, 1:].norm(dim=0).clamp_min(1e-300)
        image, singular, right = torch.linalg.svd(left[:, 1:] / sizes, full_matrices=False)
        seen = singular > _IMITATED
        move = -(right[seen].T @ ((image[:, seen].T @ left[:, 0]) / singular[seen])) / sizes
        blind = (right[~seen].abs() > _IMITATED).any(0)
        last = int(seen.sum()) - 1
        weakest, along = (singular[last], right[last].abs()) if last >= 0 else (singular.new_zeros(()), torch.zeros_like(sizes))
        return ProjectedStep(solved, move, len(self._means), ~blind, weakest, along)

    def least_seen(self, values: Callable[[Tensor], Tensor]) -> Tensor:
        """The coefficients ``(T, F, K)`` with the smallest rows for linear ``values`` of them, as the last factor knows."""
        return self._of(self._rows.least_seen(lambda found: values(self._of(found))))

    def _solved(self, columns: slice, damping: float = 0.0) -> Tensor | None:
        if not self._factored(damping):
            return None
        found = self._rows.solve([values[:, :, columns] for values in self._values])
        return -torch.stack([self._of(each) for each in found.unbind(2)])

    def _factored(self, damping: float) -> bool:
        try:
            self._rows.factor(damping)
        except np.linalg.LinAlgError:
            return False
        return True


def combinations(slopes: Tensor, joined: Sequence[tuple[Tensor, Tensor]], unseen: float = _UNSEEN) -> tuple[Tensor, Tensor]:
    """Orthonormalization: for each tile coefficients ``(T, w, r)`` of combinations with orthonormal rows, and their number.

    Those whose rows are smaller than a part ``unseen`` of the largest are left out.
    Of complex rows the real and the imaginary parts are rows of their own.
    """
    # What rows hardly see is left out: fields that live elsewhere, polynomials that are large outside the domain alone.
    # Scaled one by one, columns would leave a condition number whose square is beyond all digits.
    triangles = torch.linalg.qr(_real(slopes), mode="r").R
    count, height, width = triangles.shape
    triangles = torch.cat([triangles, triangles.new_zeros(count, width - height, width)], dim=1)
    # Rows of the same number at once: each triangle is made anew as seldom as may be.
    real = [(tiles, _real(_alone(tiles, rows))) for tiles, rows in joined]
    for size in sorted({rows.shape[1] for _, rows in real}):
        some = [(tiles, rows) for tiles, rows in real if rows.shape[1] == size]
        tiles = torch.cat([tiles.T.flatten() for tiles, _ in some])
        order = torch.argsort(tiles, stable=True)
        own = torch.cat([torch.cat(rows.chunk(2, dim=2)) for _, rows in some])
        names, counts = torch.unique_consecutive(tiles[order], return_counts=True)
        condense(triangles, names, pad_sequence(own[order].split(counts.tolist()), batch_first=True).flatten(1, 2))
    _, sizes, right = torch.linalg.svd(triangles)
    seen = sizes > unseen * sizes[:, :1].clamp_min(1e-300)
    ranks = seen.sum(1)
    turn = right.mH * torch.where(seen, 1 / sizes, torch.zeros_like(sizes))[:, None]
    return turn[:, :, : int(ranks.max())].contiguous(), ranks


class TileLeastSquares:
    """Least squares of rows on tiles, ``(T, m, w)``, and rows ``(P, m, 2 w)`` of pairs of tiles ``(P, 2)``, real or complex.

    Unknown are combinations of coefficients whose rows are orthonormal on each tile, or those that similar rows gave.
    Where the factor is dense enough, all but these combinations is done on an ``accelerator``; rows and values are given, and
    solutions returned, on the CPU.
    """

    def __init__(
        self,
        slopes: Tensor,
        joined: Sequence[tuple[Tensor, Tensor]],
        known: tuple[Tensor, Tensor] | None = None,
        accelerator: torch.device = CPU,
    ) -> None:
        self._count = len(slopes)
        turn, ranks = combinations(slopes, joined) if known is None else known
        pairs = torch.cat([torch.zeros(0, 2, dtype=torch.int64), *(tiles for tiles, _ in joined)])
        self._pairs, numbers = pairs.unique(dim=0, return_inverse=True)
        self._matrix = BlockCholesky(ranks.tolist(), self._pairs.numpy())
        self._device = accelerator if self._matrix.dense else CPU
        self._turn = turn.to(self._device, slopes.dtype)
        self._width = self._turn.shape[2]
        self._slopes = slopes.to(self._device) @ self._turn
        self._joined = []
        for tiles, rows in joined:
            both = _alone(tiles, rows).to(self._device).unflatten(2, (2, -1))
            own = tiles.to(self._device)
            turned = [both[:, :, member] @ self._turn[own[:, member]] for member in (0, 1)]
            self._joined.append((own, torch.cat(turned, dim=2)))
        self._numbers = numbers.to(self._device).split([len(tiles) for tiles, _ in joined]) if joined else ()
        # Which combinations are seen; their numbers follow one another, tile by tile.
        self._seen = (torch.arange(self._width) < ranks[:, None]).to(self._device)
        self._damping = 0.0

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows, real or complex."""
        return self._slopes.dtype

    def factor(self, damping: float = 0.0) -> None:
        """Factor the normal equations; numpy's LinAlgError where they are not positive definite."""
        tiles = torch.arange(self._count)
        own, beside = self._slopes.mH @ self._slopes, self._slopes.new_zeros(len(self._pairs), self._width, self._width)
        for (pairs, rows), number in zip(self._joined, self._numbers, strict=True):
            one, two = rows.split(self._width, dim=2)
            for tile, each in zip(pairs.T, (one, two), strict=True):
                own.index_add_(0, tile, each.mH @ each)
            beside.index_add_(0, number, one.mH @ two)
        self._matrix.factor([(tiles, tiles, own), (*self._pairs.T, beside)], damping + _RIDGE)
        self._damping = damping

    def _product(self, x: Tensor) -> list[Tensor]:
        """The slopes times coefficients ``(T, w, c)``."""
        found = [torch.bmm(self._slopes, x)]
        return found + [torch.bmm(rows, x[tiles].flatten(1, 2)) for tiles, rows in self._joined]

    def _adjoint(self, values: Sequence[Tensor]) -> Tensor:
        # Values from the left: matrices of complex numbers would be copied to be conjugated.
        found = torch.bmm(values[0].conj_physical().mT, self._slopes)
        for (tiles, rows), own in zip(self._joined, values[1:], strict=True):
            both = torch.bmm(own.conj_physical().mT, rows).unflatten(2, (2, self._width))
            found.index_add_(0, tiles[:, 0], both[:, :, 0]).index_add_(0, tiles[:, 1], both[:, :, 1])
        return found.conj_physical().mT

    def _preconditioned(self, x: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        found[self._seen] = self._matrix.solve(x[self._seen])
        return found

    def solve(self, values: Sequence[Tensor], left: float = 0.0) -> Tensor:
        """The coefficients ``(T, w, c)`` of c problems whose rows are nearest to values.

        They are the values of the tiles' rows, ``(T, m, c)``, then those of each joined ones'. Steps end, after two at
        least, once they left a part ``left`` of them, or gain nothing.
        """
        # From coefficients of the combinations to those of the products.
        return torch.bmm(self._turn, self._combined(values, left)).cpu()

    def projected(self, values: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """As ``solve``, and what is left of all values, ``(M, c)``."""
        found = self._combined(values)
        left = [own.to(self._device) - image for own, image in zip(values, self._product(found), strict=True)]
        return torch.bmm(self._turn, found).cpu(), torch.cat([each.flatten(0, 1) for each in left]).cpu()

    def least_seen(self, values: Callable[[Tensor], Tensor]) -> Tensor:
        """Inverse iteration: the coefficients ``(T, w)`` whose rows are smallest for linear ``values`` of them.

        Reference: G. H. Golub and C. F. Van Loan, Matrix Computations, 4th edition, Johns Hopkins 2013, section 7.6.1; with two
        quadratic forms, section 8.7.
        """

        def coefficients(found: Tensor) -> Tensor:
            return torch.bmm(self._turn, found)[:, :, 0].cpu()

        found = self._slopes.new_zeros(self._count, self._width, 1)
        seen, back, *_ = torch.func.vjp(lambda each: values(coefficients(each)), found)
        seen = torch.randn(seen.shape, generator=torch.Generator().manual_seed(0), dtype=seen.dtype)
        for _ in range(_INVERSE):
            found = self._preconditioned(back(seen / seen.norm())[0])
            seen = values(coefficients(found))
        return coefficients(found)

    def _combined(self, values: Sequence[Tensor], left: float = 0.0) -> Tensor:
        # Conjugate gradients on the rows: what the squared condition number has lost.
        rows = [each.to(self._device) for each in values]
        found = self._slopes.new_zeros(self._count, self._width, rows[0].shape[2])
        gradient = self._adjoint(rows)
        direction = ready = self._preconditioned(gradient)
        sizes = [_inner(gradient, ready)]
        for count in range(_REFINEMENTS):
            image = self._product(direction)
            curvature = sum(_inner(each, each) for each in image) + self._damping * _inner(direction, direction)
            if not bool((curvature > 0).any()):
                break
            # Where the factor knows hardly any digit, directions are not conjugate: this length never leaves more of the rows.
            length = torch.where(curvature > 0, _inner(gradient, direction) / curvature, 0.0)
            found = found + length * direction
            if count + 1 == _REFINEMENTS or (left and count and _enough(sizes, left)):
                break
            rows = [own - length * each for own, each in zip(rows, image, strict=True)]
            gradient = self._adjoint(rows) - self._damping * found
            ready = self._preconditioned(gradient)
            sizes.append(_inner(gradient, ready))
            going = sizes[-1] > _REFINED**2 * sizes[0]
            if not bool(going.any()):
                break
            direction = torch.where(going, ready + (sizes[-1] / sizes[-2]) * direction, 0.0)
        return found


def _enough(sizes: Sequence[Tensor], left: float) -> bool:
    """Stopping criterion, of squares: steps have left a part ``left`` of all, or the last two gained nothing to speak of."""
    done = sizes[-1] <= left**2 * sizes[0]
    if len(sizes) > 2:
        done |= sizes[-1] > _GAINS**2 * sizes[-3]
    return bool(done.all())


def _alone(tiles: Tensor, rows: Tensor) -> Tensor:
    """Rows of pairs; where both are the same tile, as around a period of one, the first has all of it."""
    same = (tiles[:, 0] == tiles[:, 1])[:, None, None]
    if not bool(same.any()):
        return rows
    one, two = rows.chunk(2, dim=2)
    return torch.cat([torch.where(same, one + two, one), torch.where(same, torch.zeros_like(two), two)], dim=2)


def _real(rows: Tensor) -> Tensor:
    """Real rows ``(E, q, w)`` as they are, and of complex ones the real and the imaginary parts, ``(E, 2 q, w)``."""
    return torch.cat([rows.real, rows.imag], dim=1) if rows.is_complex() else rows


def _inner(one: Tensor, other: Tensor) -> Tensor:
    """The inner products of columns ``(..., c)``, ``(c,)``."""
    if one.shape[2] == 1:
        return torch.vdot(one.flatten(), other.flatten()).real[None]
    return (one.conj() * other).real.sum((0, 1))

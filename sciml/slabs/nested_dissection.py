"""Sparse Cholesky factorization by nested dissection: multifrontal elimination of a symmetric graph of dense blocks.

Sets of nodes that separate the rest are eliminated last, and what is left of each half before them. Every set and the nodes
that it is coupled with by then form one dense matrix, so that nearly all work is done by BLAS.

References: A. George, Nested dissection of a regular finite element mesh, SIAM Journal on Numerical Analysis 10 (1973); I. S.
Duff and J. K. Reid, The multifrontal solution of indefinite sparse symmetric linear systems, ACM Transactions on Mathematical
Software 9 (1983).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy
from torch import Tensor

from sciml.parallel.blas_threads import one_blas_thread
from sciml.typing import Array

# Matrices of so many rows are factored by all threads of BLAS.
_LARGE = 2000
# Sets of so few nodes are not divided any further.
_LEAST = 2
# How far from one half the smaller part of a set may be.
_UNEVEN = 0.25
# Graphs whose order is kept.
_REMEMBERED = 16


@dataclass
class _Front:
    """Nodes eliminated together, the later ones that they are coupled with, and the front that takes what is left of these."""

    own: list[int]
    beyond: list[int]
    parent: int = -1


class BlockCholesky:
    """The Cholesky factor of a positive definite matrix of blocks, real or complex.

    Args:
        sizes: the number of unknowns of each node.
        pairs: nodes that are coupled, ``(P, 2)``.
    """

    def __init__(self, sizes: Sequence[int], pairs: Array) -> None:
        self._sizes = np.asarray(sizes)
        count = len(self._sizes)
        # However they are named, nodes that are coupled in the same way are put in the same order.
        each = np.unique(np.sort(np.asarray(pairs, dtype=np.int64).reshape(-1, 2), axis=1), axis=0)
        graph, sets = _ordered(count, each.tobytes())
        place = np.empty(count, dtype=int)
        self._of = np.empty(count, dtype=int)
        place[np.concatenate(sets)] = np.arange(count)
        for number, own in enumerate(sets):
            self._of[own] = number
        waiting: list[set[int]] = [set() for _ in sets]
        self._fronts: list[_Front] = []
        for number, own in enumerate(sets):
            near = {int(each) for node in own for each in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]}
            later = sorted((each for each in near | waiting[number] if self._of[each] > number), key=place.__getitem__)
            front = _Front([int(each) for each in own], later)
            if later:
                front.parent = int(self._of[later[0]])
                waiting[front.parent].update(later)
            self._fronts.append(front)
        ends = np.cumsum(self._sizes)
        self._first = ends - self._sizes
        self._factors: list[tuple[Array, Array, Array, Array]] = []
        self._large = max((self._width([*front.own, *front.beyond]) for front in self._fronts), default=0) >= _LARGE

    def _width(self, nodes: Sequence[int]) -> int:
        """How many unknowns some nodes have together."""
        return int(self._sizes[nodes].sum())

    def _threads(self) -> AbstractContextManager[None]:
        return nullcontext() if self._large else one_blas_thread()

    @property
    def effort(self) -> tuple[float, float]:
        """The multiplications that the factorization takes, and the numbers that the factor and its largest matrix hold."""
        work = kept = largest = 0.0
        for front in self._fronts:
            own, beyond = (float(self._width(each)) for each in (front.own, front.beyond))
            work += own**3 / 3 + own**2 * beyond + own * beyond**2
            kept += own * (own + beyond)
            largest = max(largest, (own + beyond) ** 2)
        return work, kept + 2 * largest

    def factor(self, blocks: Iterable[tuple[Tensor, Tensor, Tensor]], shift: float) -> None:
        """Factor the sum of blocks and ``shift`` times one; numpy's LinAlgError where that is not positive definite.

        Args:
            blocks: rows' nodes ``(E,)``, columns' nodes ``(E,)`` and blocks ``(E, w, w)``, of which as much counts as their
                nodes have unknowns. Of two nodes that differ one of the two blocks is given.
            shift: added to the diagonal.
        """
        parts: list[list[tuple[int, int, Array]]] = [[] for _ in self._fronts]
        kind: Any = np.float64
        for rows, columns, products in blocks:
            numbers = products.numpy()
            kind = np.result_type(kind, numbers.dtype)
            for row, column, own in zip(rows.tolist(), columns.tolist(), numbers, strict=True):
                parts[min(self._of[row], self._of[column])].append((row, column, own))
        waiting: list[list[tuple[list[int], Array]]] = [[] for _ in self._fronts]
        self._factors = []
        like = (np.zeros(1, dtype=kind),)
        (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), like)
        trsm, herk = scipy.linalg.get_blas_funcs(("trsm", "herk" if np.iscomplexobj(like[0]) else "syrk"), like)
        with self._threads():
            for front, mine, left in zip(self._fronts, parts, waiting, strict=True):
                matrix, own = self._assembled(front, mine, left, kind), self._width(front.own)
                matrix[np.arange(own), np.arange(own)] += shift
                corner, failed = potrf(matrix[:own, :own], lower=1, clean=1, overwrite_a=0)
                if failed:
                    raise np.linalg.LinAlgError("the matrix is not positive definite")
                below = matrix[own:, :own].copy()
                if len(below):
                    below = trsm(1.0, corner, below, side=1, lower=1, trans_a=2)
                nodes = [*front.own, *front.beyond]
                unknowns = np.concatenate(
                    [np.arange(self._first[each], self._first[each] + self._sizes[each]) for each in nodes]
                )
                self._factors.append((unknowns[:own], unknowns[own:], corner, below))
                if front.parent >= 0:
                    update = matrix[own:, own:].copy(order="F")
                    del matrix
                    update = herk(-1.0, below, beta=1.0, c=update, lower=1, overwrite_c=1)
                    waiting[front.parent].append((front.beyond, update))

    def _assembled(
        self, front: _Front, blocks: list[tuple[int, int, Array]], updates: list[tuple[list[int], Array]], kind: Any
    ) -> Array:
        """The lower triangle of a front: its own blocks, and what earlier fronts have left, which is used up."""
        nodes = [*front.own, *front.beyond]
        starts = dict(zip(nodes, np.cumsum([0, *self._sizes[nodes]]).tolist(), strict=False))
        matrix = np.zeros((self._width(nodes),) * 2, dtype=kind, order="F")
        for row, column, block in blocks:
            at, beside = starts[row], starts[column]
            high, wide = self._sizes[row], self._sizes[column]
            if at >= beside:
                matrix[at : at + high, beside : beside + wide] += block[:high, :wide]
            else:
                matrix[beside : beside + wide, at : at + high] += block[:high, :wide].conj().T
        while updates:
            # Nodes keep their order: what follows one another is added at once.
            beyond, update = updates.pop()
            runs = _runs([starts[each] for each in beyond], self._sizes[beyond].tolist())
            for row, at, high in runs:
                for column, beside, wide in runs:
                    if at >= beside:
                        matrix[at : at + high, beside : beside + wide] += update[row : row + high, column : column + wide]
        return matrix

    def solve(self, right: Array) -> Array:
        """The solution for a right-hand side ``(n,)``, or for several, ``(n, c)``, unknowns in the order of the nodes."""
        # BLAS itself: for small triangles SciPy's checks of arguments take longer than the substitution.
        found = right.astype(np.result_type(right, *(corner for _, _, corner, _ in self._factors[:1])))
        one = right.ndim == 1
        triangular, times = scipy.linalg.get_blas_funcs(("trsv", "gemv") if one else ("trsm", "gemm"), (found,))
        solve = triangular if one else partial(triangular, 1.0)
        back = {"trans" if one else "trans_a": 2}
        with self._threads():
            for own, beyond, corner, below in self._factors:
                if len(own):
                    found[own] = solve(corner, found[own], lower=1)
                    if len(beyond):
                        found[beyond] -= times(1.0, below, found[own])
            for own, beyond, corner, below in reversed(self._factors):
                if len(own):
                    rest = found[own] - times(1.0, below, found[beyond], **back) if len(beyond) else found[own]
                    found[own] = solve(corner, rest, lower=1, **back)
        return found


def _runs(starts: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Blocks that follow one another in two matrices: where they begin in the one and in the other, and how long they are."""
    found, here = list[tuple[int, int, int]](), 0
    for there, size in zip(starts, sizes, strict=True):
        if found and found[-1][1] + found[-1][2] == there:
            found[-1] = *found[-1][:2], found[-1][2] + size
        else:
            found.append((here, there, size))
        here += size
    return found


@lru_cache(maxsize=_REMEMBERED)
def _ordered(count: int, pairs: bytes) -> tuple[Any, tuple[Array, ...]]:
    """The graph of nodes that are coupled, and the nodes in sets in the order of their elimination.

    Tiles are solved on again and again, for every eigenvalue and every window of time, and their graph stays.
    """
    one, two = np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2).T
    both = np.concatenate([one, two]), np.concatenate([two, one])
    graph = scipy.sparse.csr_array((np.ones(len(both[0])), both), shape=(count, count))
    return graph, tuple(_dissected(graph, np.arange(count)))


def _dissected(graph: Any, nodes: Array) -> list[Array]:
    """The nodes in sets, in the order of their elimination."""
    if len(nodes) <= _LEAST:
        return [nodes] if len(nodes) else []
    own = graph[nodes][:, nodes]
    parts, labels = scipy.sparse.csgraph.connected_components(own, directed=False)
    if parts > 1:
        return [each for part in range(parts) for each in _dissected(graph, nodes[labels == part])]
    found = _separated(own)
    if found is None:
        return [nodes]
    before, after, rim = (nodes[each] for each in found)
    return [*_dissected(graph, before), *_dissected(graph, after), rim]


def _separated(graph: Any) -> tuple[Array, Array, Array] | None:
    """Two parts of a connected graph that are not coupled, and the nodes that part them, few for parts of like size.

    They are level sets of distances from nodes at the rim, and of differences of two such, which are straighter.
    """

    def distance(node: int) -> Array:
        found: Array = scipy.sparse.csgraph.shortest_path(graph, method="D", directed=False, unweighted=True, indices=node)
        return found

    from_first = distance(int(distance(0).argmax()))
    from_second = distance(int(from_first.argmax()))
    from_third = distance(int(np.minimum(from_first, from_second).argmax()))
    from_fourth = distance(int(from_third.argmax()))
    best, smallest, whole = None, (True, np.inf), graph.shape[0]
    for levels in (from_first, from_first - from_second, from_third, from_third - from_fourth):
        for cut in np.unique(levels)[:-1]:
            low = levels <= cut
            uneven = abs(low.sum() / whole - 0.5) > _UNEVEN
            if uneven and not smallest[0]:
                continue
            for near in (low, ~low):
                # Of these the nodes that touch the others are enough.
                rim = near & (graph @ (~near).astype(float) > 0)
                before, after = near & ~rim, ~near
                one, two = before.sum(), after.sum()
                cost = uneven, rim.sum() * (1 + ((one - two) / whole) ** 2)
                if one and two and cost < smallest:
                    best, smallest = (before, after, rim), cost
    return best

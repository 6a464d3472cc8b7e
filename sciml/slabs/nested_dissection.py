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
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.parallel.blas_threads import one_blas_thread
from sciml.slabs.dense_kernels import DenseKernels, OnCpu, kernels
from sciml.typing import Array

# Matrices of so many rows are factored by all threads of BLAS.
_LARGE = 2000
# So many numbers of a factor for each of its fronts, in the mean, are worth a GPU: it takes 0.2 ms for one, however small.
_DENSE = 2e5
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

    Attributes:
        dense: whether its matrices are large enough for a GPU.
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
        self._factors: list[tuple[Any, Any, Any, Any]] = []
        self._kernels: DenseKernels = OnCpu(torch.float64)
        widths = [(self._width(front.own), self._width(front.beyond)) for front in self._fronts]
        self._large = max(map(sum, widths), default=0) >= _LARGE
        self.dense = sum(own * (own + beyond) for own, beyond in widths) >= _DENSE * max(1, len(widths))

    def _width(self, nodes: Sequence[int]) -> int:
        """How many unknowns some nodes have together."""
        return int(self._sizes[nodes].sum())

    def _threads(self) -> AbstractContextManager[None]:
        return nullcontext() if self._large else one_blas_thread()

    @property
    def effort(self) -> tuple[float, float]:
        """The multiplications that the factorization takes, and the most numbers that it holds at a time."""
        work = kept = waiting = most = 0.0
        left = [0.0] * len(self._fronts)
        for front, used in zip(self._fronts, left, strict=True):
            own, beyond = (float(self._width(each)) for each in (front.own, front.beyond))
            work += own**3 / 3 + own**2 * beyond + own * beyond**2
            most = max(most, kept + waiting + (own + beyond) * own + beyond**2)
            kept += own * (own + beyond)
            waiting += beyond**2 - used
            left[front.parent] += beyond**2
        return work, most

    def factor(self, blocks: Iterable[tuple[Tensor, Tensor, Tensor]], shift: float) -> None:
        """Factor the sum of blocks and ``shift`` times one; numpy's LinAlgError where that is not positive definite.

        Args:
            blocks: rows' nodes ``(E,)``, columns' nodes ``(E,)`` and blocks ``(E, w, w)``, of which as much counts as their
                nodes have unknowns, all on one device. Of two nodes that differ one of the two blocks is given.
            shift: added to the diagonal.
        """
        blocks = list(blocks)
        self._kernels = dense = kernels(blocks[0][2].dtype, blocks[0][2].device)
        parts: list[list[tuple[int, int, Any]]] = [[] for _ in self._fronts]
        for rows, columns, products in blocks:
            for row, column, own in zip(rows.tolist(), columns.tolist(), dense.matrices(products), strict=True):
                parts[min(self._of[row], self._of[column])].append((row, column, own))
        waiting: list[list[tuple[list[int], Any]]] = [[] for _ in self._fronts]
        self._factors = []
        with self._threads():
            for front, mine, left in zip(self._fronts, parts, waiting, strict=True):
                corner, below, rest = self._assembled(front, mine, left)
                corner = dense.cholesky(corner, shift)
                if len(below):
                    below = dense.divided(below, corner)
                    waiting[front.parent].append((front.beyond, dense.lessened(rest, below)))
                del rest
                own, beyond = (dense.index(self._unknowns(each)) for each in (front.own, front.beyond))
                self._factors.append((own, beyond, corner, below))

    def _unknowns(self, nodes: Sequence[int]) -> Array:
        """The numbers of the unknowns of some nodes."""
        each = [np.arange(self._first[node], self._first[node] + self._sizes[node]) for node in nodes]
        return np.concatenate([np.zeros(0, dtype=int), *each])

    def _assembled(
        self, front: _Front, blocks: list[tuple[int, int, Any]], updates: list[tuple[list[int], Any]]
    ) -> tuple[Any, Any, Any]:
        """The lower triangle of a front: its own unknowns' corner, what is below that, and the corner of those beyond.

        They are the sum of its own blocks and of what earlier fronts have left, which is used up.
        """
        own, beyond = (self._width(each) for each in (front.own, front.beyond))
        zeros = self._kernels.zeros
        matrices = {(0, 0): zeros(own, own), (1, 0): zeros(beyond, own), (1, 1): zeros(beyond, beyond)}
        places = {}
        for member, nodes in enumerate((front.own, front.beyond)):
            starts = np.cumsum([0, *self._sizes[nodes]]).tolist()
            places.update({node: (member, start) for node, start in zip(nodes, starts, strict=False)})
        for row, column, block in blocks:
            block = block[: self._sizes[row], : self._sizes[column]]
            (one, at), (two, beside) = places[row], places[column]
            if (one, at) < (two, beside):
                (one, at), (two, beside), block = (two, beside), (one, at), block.conj().T
            matrices[one, two][at : at + len(block), beside : beside + block.shape[1]] += block
        while updates:
            # Nodes keep their order: what follows one another is added at once.
            left, update = updates.pop()
            runs = _runs([places[each] for each in left], self._sizes[left].tolist())
            for row, (one, at), high in runs:
                for column, (two, beside), wide in runs:
                    if (one, at) >= (two, beside):
                        part = update[row : row + high, column : column + wide]
                        matrices[one, two][at : at + high, beside : beside + wide] += part
        return matrices[0, 0], matrices[1, 0], matrices[1, 1]

    def solve(self, right: Tensor) -> Tensor:
        """The solutions for right-hand sides ``(n, c)`` on the blocks' device, unknowns in the order of the nodes."""
        dense = self._kernels
        found = dense.vectors(right)
        with self._threads():
            for own, beyond, corner, below in self._factors:
                if len(own):
                    found[own] = dense.solved(corner, found[own], adjoint=False)
                    if len(beyond):
                        found[beyond] -= dense.times(below, found[own], adjoint=False)
            for own, beyond, corner, below in reversed(self._factors):
                if len(own):
                    rest = found[own] - dense.times(below, found[beyond], adjoint=True) if len(beyond) else found[own]
                    found[own] = dense.solved(corner, rest, adjoint=True)
        return dense.tensor(found)


def _runs(places: Sequence[tuple[int, int]], sizes: Sequence[int]) -> list[tuple[int, tuple[int, int], int]]:
    """Blocks that follow one another in two matrices: where they begin in the one and in the other, and how long they are.

    In the other they are in one of several parts, and follow one another where they are in the same.
    """
    found, here = list[tuple[int, tuple[int, int], int]](), 0
    for (member, there), size in zip(places, sizes, strict=True):
        if found and found[-1][1] == (member, there - found[-1][2]):
            found[-1] = *found[-1][:2], found[-1][2] + size
        else:
            found.append((here, (member, there), size))
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
        # The graph is symmetric: to go along edges one way is enough.
        found: Array = scipy.sparse.csgraph.dijkstra(graph, unweighted=True, indices=node)
        return found

    from_first = distance(int(distance(0).argmax()))
    from_second = distance(int(from_first.argmax()))
    from_third = distance(int(np.minimum(from_first, from_second).argmax()))
    from_fourth = distance(int(from_third.argmax()))
    best, smallest = None, (True, np.inf)
    for levels in (from_first, from_first - from_second, from_third, from_third - from_fourth):
        rank = np.unique(levels, return_inverse=True)[1]
        highest = int(rank.max())
        # The nodes on a cut are those of one of its sides; of cuts that are alike the first one serves.
        costs, uneven = np.stack([_cuts(graph, rank), _cuts(graph, highest - rank)[:, ::-1]], axis=2).reshape(2, -1)
        first = int(np.lexsort((costs, uneven))[0])
        if (cost := (bool(uneven[first]), float(costs[first]))) < smallest:
            near = rank <= first // 2 if first % 2 == 0 else rank > first // 2
            rim = near & (graph @ (~near).astype(float) > 0)
            best, smallest = (near & ~rim, ~near, rim), cost
    return best


def _cuts(graph: Any, rank: Array) -> Array:
    """Vertex separators above each rank but the highest, of the nodes below that touch others: costs, and which are uneven."""
    whole, highest = graph.shape[0], int(rank.max())
    # A node is on the cuts between its own rank and the highest one beside it.
    reaches = np.maximum(rank, np.maximum.reduceat(rank[graph.indices], graph.indptr[:-1]))
    low, left = (np.cumsum(np.bincount(each, minlength=highest + 1))[:-1] for each in (rank, reaches))
    costs = np.where(left > 0, (low - left) * (1 + ((left + low - whole) / whole) ** 2), np.inf)
    return np.stack([costs, (abs(low / whole - 0.5) > _UNEVEN) | (left == 0)])

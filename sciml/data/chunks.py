"""Rows of a table on a grid, cut into pieces that hold whole chunks of a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sciml.typing import Array


@dataclass(frozen=True)
class ChunkGrid:
    r"""A grid of rows cut into boxes of one shape, smaller at its far ends.

    Rows are numbered along the grid with the last axis fastest: row :math:`\sum_k i_k \prod_{l>k} n_l` is the grid's
    point :math:`(i_0, i_1, \dots)`. A table of plain columns is a grid with one axis.

    Args:
        shape: the number of rows along each axis of the grid.
        tile: the number of rows of a piece along each axis.

    Example:
        >>> tiling = ChunkGrid((10,), (4,))
        >>> tiling.count, tiling.rows(2).tolist()
        (3, [8, 9])
    """

    shape: tuple[int, ...]
    tile: tuple[int, ...]

    @classmethod
    def aligned(cls, shape: Sequence[int], chunk: Sequence[int], rows: int) -> ChunkGrid:
        """Pieces of about so many rows that are made of whole chunks.

        A piece grows along the last axis first, where the next chunk is the next in the file. It has at least one chunk.
        """
        tile = [min(size, length) for size, length in zip(chunk, shape, strict=True)]
        for axis in reversed(range(len(shape))):
            several = max(1, min(-(-shape[axis] // tile[axis]), rows // math.prod(tile)))
            tile[axis] = min(several * tile[axis], shape[axis])
            if tile[axis] < shape[axis]:
                break
        return cls(tuple(shape), tuple(tile))

    @property
    def size(self) -> int:
        """The number of rows."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """The number of pieces."""
        return math.prod(self._along)

    @property
    def _along(self) -> tuple[int, ...]:
        return tuple(-(-length // tile) for length, tile in zip(self.shape, self.tile, strict=True))

    def box(self, piece: int) -> tuple[slice, ...]:
        """The part of the grid that a piece is, a slice for each axis."""
        places = np.unravel_index(piece, self._along)
        return tuple(
            slice(int(place) * tile, min((int(place) + 1) * tile, length))
            for place, tile, length in zip(places, self.tile, self.shape, strict=True)
        )

    def rows(self, piece: int) -> Array:
        """The numbers of the rows of a piece, in the order in which it is read."""
        box = self.box(piece)
        if len(box) == 1:
            return np.arange(box[0].start, box[0].stop)
        axes = np.meshgrid(*(np.arange(each.start, each.stop) for each in box), indexing="ij")
        return np.ravel_multi_index(tuple(axis.ravel() for axis in axes), self.shape)

    def pieces_of(self, rows: Array) -> Array:
        """The number of the piece in which each row is, shape ``(n,)``."""
        places = np.unravel_index(rows, self.shape)
        return np.ravel_multi_index(
            tuple(place // tile for place, tile in zip(places, self.tile, strict=True)), self._along
        )

    def within(self, piece: int, rows: Array) -> Array:
        """The places of rows among those of their piece, shape ``(n,)``."""
        box = self.box(piece)
        places = np.unravel_index(rows, self.shape)
        sizes = tuple(each.stop - each.start for each in box)
        return np.ravel_multi_index(tuple(at - each.start for at, each in zip(places, box, strict=True)), sizes)


class Pieces:
    """The pieces of several grids that follow one another in a table, numbered on from grid to grid, as their rows are.

    Args:
        tilings: of each grid.

    Example:
        >>> pieces = Pieces([ChunkGrid((4,), (4,)), ChunkGrid((6,), (4,))])
        >>> pieces.count, pieces.rows(2).tolist()
        (3, [8, 9])
    """

    def __init__(self, tilings: Sequence[ChunkGrid]) -> None:
        self.tilings = tuple(tilings)
        self._first_piece = np.cumsum([0, *(tiling.count for tiling in tilings)])
        self._first_row = np.cumsum([0, *(tiling.size for tiling in tilings)])

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self._first_row[-1])

    @property
    def count(self) -> int:
        """The number of pieces."""
        return int(self._first_piece[-1])

    @property
    def largest(self) -> int:
        """The most rows that a piece has."""
        return max(math.prod(tiling.tile) for tiling in self.tilings)

    def _grid(self, piece: int) -> int:
        return int(np.searchsorted(self._first_piece, piece, side="right")) - 1

    def place(self, piece: int) -> tuple[int, tuple[slice, ...]]:
        """The number of the grid that a piece belongs to, and which part of it the piece is."""
        grid = self._grid(piece)
        return grid, self.tilings[grid].box(piece - int(self._first_piece[grid]))

    def rows(self, piece: int) -> Array:
        """The numbers of the rows of a piece, increasing, in the order in which it is read."""
        grid = self._grid(piece)
        return self.tilings[grid].rows(piece - int(self._first_piece[grid])) + self._first_row[grid]

    def pieces_of(self, rows: Array) -> Array:
        """The number of the piece in which each row is, shape ``(n,)``."""
        grids = np.searchsorted(self._first_row, rows, side="right") - 1
        found = np.empty(len(rows), dtype=np.int64)
        for grid in np.unique(grids):
            here = grids == grid
            found[here] = self.tilings[grid].pieces_of(rows[here] - self._first_row[grid]) + self._first_piece[grid]
        return found

    def within(self, piece: int, rows: Array) -> Array:
        """The places of rows among those of their piece, shape ``(n,)``."""
        grid = self._grid(piece)
        return self.tilings[grid].within(piece - int(self._first_piece[grid]), rows - self._first_row[grid])

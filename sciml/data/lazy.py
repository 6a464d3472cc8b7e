"""Lazy (out-of-core) tables: rows stay in an HDF5 file and are read on demand, in pieces of whole chunks."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
import pandas as pd

from sciml._text import among, listed, mapping, whole
from sciml.data.hdf5_file import OpenFiles, locate
from sciml.data.hdf5_grid import Column, GridTable
from sciml.data.table import Table, check_finite
from sciml.errors import DataError
from sciml.typing import Array

_PIECE_ROWS = 65536
_LARGEST_PIECE = 2**28
_SAMPLED_PIECES = 256
_CONTEXTS = ("auto", "fork", "forkserver", "spawn")


@dataclass(frozen=True)
class LoaderOptions:
    """How the rows of a lazy table reach a training loop.

    Args:
        workers: processes that read ahead; 0 reads in the process that trains. None takes up to two where there are as many
            cores besides the one that trains, and none for a table of less than a million rows.
        buffer: rows that are shuffled together; each worker holds up to three times as many.
        at_once: the most rows that are held in memory where a whole table is needed: by full-batch solvers, for natural
            sizes, and to judge by.
        context: how worker processes are started, as in ``multiprocessing``: ``"spawn"`` and ``"forkserver"`` import the
            main script again, which then needs ``if __name__ == "__main__":``; ``"fork"`` does not. ``"auto"`` forks on Linux,
            as torch does, if h5py can be forked safely, and spawns elsewhere.

    Raises:
        DataError: a number is too small, or a context unknown.

    Example:
        >>> import sciml
        >>> sciml.LoaderOptions(workers=4).at_once
        20000
    """

    workers: int | None = None
    buffer: int = 2**18
    at_once: int = 20_000
    context: str = "auto"

    def __post_init__(self) -> None:
        for name, least in (("workers", 0), ("buffer", 1), ("at_once", 2)):
            if getattr(self, name) is not None or name != "workers":
                whole(name, getattr(self, name), least)
        if self.context not in _CONTEXTS:
            raise DataError(f"context must be one of {listed(_CONTEXTS)}; given: {self.context!r}")


class LazyTable:
    """Named columns in an HDF5 file that is read as rows are asked for, so that it may be larger than memory.

    Rows are read in pieces that are made of whole chunks of the file, so that no chunk is decompressed twice. The file is
    opened once in each process that reads it, after a fork too; a copy that is pickled opens it for itself.
    ``sciml.read_hdf5(path, lazy=True)`` makes one.

    Args:
        grids: where the columns are, and how they make rows; several follow one another.
        source: what messages call it.
        missing: ``"error"`` refuses values that are not finite as soon as they are read; ``"mask"`` keeps NaN.
        loading: how its rows reach a training loop.
        units: of some columns; they are kept and not interpreted.

    Raises:
        DataError: no columns, or a piece that cannot be made small enough.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> import numpy as np, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
        >>> with h5py.File(file, "w") as content:
        ...     content["t"], content["u"] = np.arange(1e5), np.ones(100_000)
        >>> table = sciml.LazyTable.of(file, {"t": "t", "u": "u"})
        >>> len(table), table.read([99_999, 0])["t"].tolist()
        (100000, [99999.0, 0.0])
    """

    def __init__(
        self,
        grids: Sequence[GridTable],
        *,
        source: str,
        missing: str = "error",
        loading: LoaderOptions = LoaderOptions(),
        units: Mapping[str, str] | None = None,
    ) -> None:
        if missing not in ("error", "mask"):
            raise DataError(f"missing must be 'error' or 'mask'; given: {missing!r}")
        if not grids or not grids[0].columns:
            raise DataError(f"{source}: a table needs at least one column; given: no columns")
        self.source, self.missing, self.loading = source, missing, loading
        self.units = MappingProxyType(dict(units or {}))
        self._grids = tuple(grids)
        self.columns = tuple(column.name for column in grids[0].columns)
        if any({column.name for column in grid.columns} != set(self.columns) for grid in grids):
            raise DataError(f"{source}: its parts have different columns; name those that all of them have, columns=[...]")
        self.pieces = Pieces([(grid.shape, box_shape(grid.shape, grid.chunk, _PIECE_ROWS)) for grid in grids])
        self._opened: tuple[int, OpenFiles] | None = None
        size = 8 * self.pieces.largest * len(self.columns)
        if size > _LARGEST_PIECE:
            stored = {column.dataset.name: column.dataset.chunks for column in grids[0].columns}
            raise DataError(
                f"{source} is stored in chunks so large, {stored}, that the smallest piece that can be read is "
                f"{size / 2**20:.0f} MiB; store it in smaller chunks, as with `h5repack -l CHUNK=65536 old.h5 new.h5`"
            )

    @classmethod
    def of(cls, path: str | Path, columns: Mapping[str, str], *, links: str | Path | None = None, **options: Any) -> LazyTable:
        """One-dimensional datasets of a file, all of the same length, as a table.

        Args:
            path: the file.
            columns: the path of a dataset in the file for each column.
            links: the folder below which other files may be read; None forbids them.
            options: ``missing`` and ``loading`` as above.

        Raises:
            DataError: no such file or dataset, or datasets of different length or with more axes than one.
        """
        if not isinstance(path, str | Path) or not isinstance(links, str | Path | None):
            raise DataError(
                f"LazyTable.of needs the path of a file, and for links that of a folder; given: {path!r}, {links!r}"
            )
        path, columns = Path(path), mapping("columns", columns, "{'t': 'run/time'}")
        if not all(isinstance(dataset, str) for dataset in columns.values()):
            raise DataError(f"columns needs the path of a dataset for each column; given: {columns!r}")
        with OpenFiles(links) as handles:
            found = {name: locate(handles, path, dataset) for name, dataset in columns.items()}
        shapes = {name: each.shape for name, each in found.items()}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            raise DataError(f"{path}: columns need one axis each, all of one length; given: {shapes}")
        length = next(iter(shapes.values()), (0,))[0]
        plain = tuple(Column(name, each, ("row",)) for name, each in found.items())
        return cls([GridTable((("row", length),), plain)], source=str(path), **options)

    def __len__(self) -> int:
        return self.pieces.size

    def __getitem__(self, name: str) -> Array:
        """Refused: a column may be larger than memory.

        Raises:
            DataError: always, with what to do instead.
        """
        self._known([name])
        raise DataError(
            f"{self.source}: the table is lazy, and its column {name!r} of {len(self)} rows stays in the file; read some "
            f"rows, table.read(slice(0, 1000))[{name!r}], or a random sample, table.sample(1000)[{name!r}], or leave out lazy="
        )

    def read(self, rows: Any = slice(None), columns: Sequence[str] | None = None) -> Table:
        """Some rows as a table in memory, in the order asked for.

        Args:
            rows: their numbers, shape ``(n,)``, or a slice.
            columns: the columns to read; all by default.

        Raises:
            DataError: a row or column that is not there, or values that are not finite.
        """
        wanted = self._row_numbers(rows)
        names = self._known(self.columns if columns is None else columns)
        found = np.empty((len(names), len(wanted)))
        pieces = self.pieces.pieces_of(wanted)
        order = np.argsort(pieces, kind="stable")
        starts = np.flatnonzero(np.diff(pieces[order], prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            here = order[start:stop]
            piece = int(pieces[here[0]])
            places = self.pieces.within(piece, wanted[here])
            for values, column in zip(found, self.read_piece(piece, names), strict=True):
                values[here] = column[places]
        units = {name: unit for name, unit in self.units.items() if name in names}
        return Table(dict(zip(names, found, strict=True)), source=self.source, missing=self.missing, units=units)

    def sample(self, count: int, seed: int = 0) -> Table:
        """Rows chosen at random, without repetition, as a table in memory, in the order of the file; see ``sample_rows``.

        Raises:
            DataError: values that are not finite; a count or a seed that is none.
        """
        return self.read(self.sample_rows(count, seed))

    def sample_rows(self, count: int, seed: int = 0) -> Array:
        """The numbers of rows chosen at random, shape ``(n,)``, increasing; all of them where there are no more.

        Of a table of more than 256 pieces one piece is drawn from each of 256 equal stretches, and rows from these: such a
        sample costs a few hundred reads, whatever the size of the file. Every row is as likely as any other, but rows
        of one piece come together.

        Raises:
            DataError: ``count`` is no whole number of at least 1, or ``seed`` of at least 0.
        """
        generator = np.random.default_rng(whole("seed", seed, 0))
        count, every = whole("count", count, 1), self.pieces
        if count >= every.size:
            return np.arange(every.size)
        if every.count <= _SAMPLED_PIECES:
            return np.sort(generator.choice(every.size, count, replace=False))
        edges = np.linspace(0, every.count, _SAMPLED_PIECES + 1)
        pieces = [int(generator.integers(int(low), int(high))) for low, high in itertools.pairwise(edges)]
        rows = np.concatenate([every.rows(piece) for piece in pieces])
        return np.sort(generator.choice(rows, min(count, len(rows)), replace=False))

    def statistics(self) -> pd.DataFrame:
        """Of each column the number of values and of missing ones, mean, standard deviation and range, in its unit.

        The file is read once from end to end, a piece at a time. Infinite values count as missing here, so that a file can be
        examined before anything refuses it.
        """
        parts: dict[str, list[tuple[float, ...]]] = {name: [] for name in self.columns}
        for piece in range(self.pieces.count):
            for name, values in zip(self.columns, self.read_piece(piece, self.columns, check=False), strict=True):
                finite = values[np.isfinite(values)]
                count, lost = len(finite), len(values) - len(finite)
                moments = (finite.mean(), finite.var(), finite.min(), finite.max()) if count else (0, 0, math.inf, -math.inf)
                parts[name].append((count, lost, *moments))
        return pd.DataFrame({name: _merged(np.array(each, dtype=float)) for name, each in parts.items()}).T

    def read_piece(self, piece: int, names: Sequence[str], *, check: bool = True) -> list[Array]:
        """Columns on one piece, each of shape ``(rows,)``, float64.

        Raises:
            DataError: values that are not finite, or a file that has changed.
        """
        number, box = self.pieces.place(piece)
        grid, wanted = self._grids[number], self._known(names)
        part = replace(grid, columns=tuple(column for column in grid.columns if column.name in wanted))
        ends = {name: (each.start, each.stop) for (name, _), each in zip(grid.dimensions, box, strict=True)}
        found = part.read(self._handles(), ends)
        if check:
            for name in wanted:
                # Sums are faster than comparisons, and not finite where any value is not; or where they overflow.
                if not math.isfinite(found[name].sum()):
                    check_finite(self.source, name, found[name], self.missing, self.pieces.rows(piece))
        return [found[name] for name in wanted]

    def close(self) -> None:
        """Close the file in this process; the next read opens it again."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "units": dict(self.units)}

    def __repr__(self) -> str:
        return f"LazyTable({len(self)} rows: {', '.join(self.columns)}; {self.source})"

    def _handles(self) -> OpenFiles:
        """The files, opened by this very process."""
        if self._opened is not None and self._opened[0] != os.getpid():
            # HDF5 would share the parent's file descriptor with a file that it still believes to be open.
            self.close()
        if self._opened is None:
            handles = OpenFiles()
            stored = {
                (column.dataset.path, column.dataset.name): column.dataset for grid in self._grids for column in grid.columns
            }
            for (path, name), before in stored.items():
                now = handles[path].get(name)
                if not isinstance(now, h5py.Dataset) or (now.shape, now.dtype) != (before.shape, before.dtype):
                    handles.close()
                    raise DataError(f"{path}: {name!r} has changed since the table was made; read the file again")
            self._opened = (os.getpid(), handles)
        return self._opened[1]

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, Sequence):
            raise DataError(f"columns must be a list of names; given: {names!r}")
        for name in names:
            if name not in self.columns:
                raise DataError(f"{self.source} has no column {name!r}; columns: {among(name, self.columns)}")
        return tuple(names)

    def _row_numbers(self, rows: Any) -> Array:
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)))
        found = np.asarray(rows)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise DataError(f"rows must be a slice or whole numbers of shape (n,); given: {found.dtype} {found.shape}")
        if len(found) and not (found.min() >= 0 and found.max() < len(self)):
            raise DataError(f"{self.source} has rows 0 to {len(self) - 1}; asked for: {found.min()} to {found.max()}")
        return found.astype(np.int64)


class Pieces:
    r"""The rows of grids that follow one another, cut into boxes of one shape for each grid, smaller at its far ends.

    Rows are numbered on from grid to grid, and along a grid with the last axis fastest: row :math:`\sum_k i_k \prod_{l>k} n_l`
    is the grid's point :math:`(i_0, i_1, \dots)`. A table of plain columns is a grid with one axis.
    """

    def __init__(self, grids: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        """From the shape of each grid and that of its boxes."""
        self._shapes, self._tiles = (tuple(map(tuple, each)) for each in zip(*grids, strict=True))
        # How many boxes there are along each axis of each grid.
        self._along = [
            tuple(-(-length // step) for length, step in zip(*each, strict=True))
            for each in zip(self._shapes, self._tiles, strict=True)
        ]
        self._first_piece, self._first_row = (np.cumsum([0, *map(math.prod, each)]) for each in (self._along, self._shapes))
        self.size, self.count = int(self._first_row[-1]), int(self._first_piece[-1])
        self.largest = max(map(math.prod, self._tiles))

    def place(self, piece: int) -> tuple[int, tuple[slice, ...]]:
        """The number of the grid that a piece belongs to, and which part of it the piece is."""
        grid = int(np.searchsorted(self._first_piece, piece, side="right")) - 1
        places = np.unravel_index(piece - self._first_piece[grid], self._along[grid])
        return grid, tuple(
            slice(int(place) * step, min((int(place) + 1) * step, length))
            for place, step, length in zip(places, self._tiles[grid], self._shapes[grid], strict=True)
        )

    def rows(self, piece: int) -> Array:
        """The numbers of the rows of a piece, increasing, in the order in which it is read."""
        grid, box = self.place(piece)
        first = self._first_row[grid]
        if len(box) == 1:
            return np.arange(first + box[0].start, first + box[0].stop)
        axes = np.meshgrid(*(np.arange(each.start, each.stop) for each in box), indexing="ij")
        return np.ravel_multi_index(tuple(axis.ravel() for axis in axes), self._shapes[grid]) + first

    def pieces_of(self, rows: Array) -> Array:
        """The number of the piece in which each row is, shape ``(n,)``."""
        grids = np.searchsorted(self._first_row, rows, side="right") - 1
        found = np.empty(len(rows), dtype=np.int64)
        for grid in np.unique(grids):
            here = grids == grid
            points = np.unravel_index(rows[here] - self._first_row[grid], self._shapes[grid])
            places = tuple(point // step for point, step in zip(points, self._tiles[grid], strict=True))
            found[here] = np.ravel_multi_index(places, self._along[grid]) + self._first_piece[grid]
        return found

    def within(self, piece: int, rows: Array) -> Array:
        """The places of rows among those of their piece, shape ``(n,)``."""
        return np.searchsorted(self.rows(piece), rows)


def box_shape(shape: Sequence[int], chunk: Sequence[int], rows: int) -> tuple[int, ...]:
    """The shape of boxes of about so many rows that are made of whole chunks."""
    tile = [min(size, length) for size, length in zip(chunk, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        several = max(1, min(-(-shape[axis] // tile[axis]), rows // math.prod(tile)))
        tile[axis] = min(several * tile[axis], shape[axis])
        if tile[axis] < shape[axis]:
            break
    return tuple(tile)


def _merged(parts: Array) -> dict[str, float]:
    """The moments of a column from those of its pieces."""
    count, lost, mean, variance, low, high = parts.T
    total = count.sum()
    moments = (math.nan,) * 4
    if total:
        center = float((count * mean).sum() / total)
        spread = float((count * (variance + (mean - center) ** 2)).sum() / total)
        moments = center, math.sqrt(spread), low.min(), high.max()
    return dict(zip(("count", "missing", "mean", "std", "min", "max"), (total, lost.sum(), *moments), strict=True))

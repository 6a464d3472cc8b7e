"""Rows of a table as the product of dimensions of stored datasets, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sciml.data.arrays import exact, spread
from sciml.data.hdf5_file import DatasetInfo, OpenFiles, read_part
from sciml.typing import Array


@dataclass(frozen=True)
class Column:
    """A column of a table, as what lies in a dataset.

    Args:
        name: of the column.
        dataset: where it is stored.
        axes: for each axis of the dataset the dimension of the table's grid that runs along it, or the index that is taken.
        part: ``"real"`` or ``"imag"`` of complex numbers; None for real ones.
        factor, offset: what is stored is multiplied by the first, then the second is added (units).

    Raises:
        DataError: never.

    Example:
        >>> import pathlib
        >>> import numpy as np
        >>> from sciml.data.hdf5_file import DatasetInfo
        >>> at = DatasetInfo(pathlib.Path("run.h5"), "/V", (9, 4, 2), np.dtype("f8"), None, None, (None, None, None))
        >>> Column("v", at, ("t", "x", 1)).dimensions
        ('t', 'x')
    """

    name: str
    dataset: DatasetInfo
    axes: tuple[str | int, ...]
    part: str | None = None
    factor: float = 1.0
    offset: float = 0.0

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions of the grid that it depends on."""
        return tuple(axis for axis in self.axes if isinstance(axis, str))


@dataclass(frozen=True)
class GridTable:
    r"""Rows that are the product of dimensions, the last running fastest: row :math:`(i N_x + j)` is :math:`(t_i, x_j)`.

    A column that depends on some of the dimensions is repeated along the others. A table of plain columns has one dimension.

    Args:
        dimensions: their names and lengths, in order.
        columns: what is read.
        label: the group that all these rows belong to, such as the sample.

    Raises:
        DataError: when reading: a checksum is wrong, the file is damaged, an integer is beyond 2^53.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> from sciml.data.hdf5_file import OpenFiles, locate
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
        >>> with h5py.File(file, "w") as content:
        ...     content["t"], content["u"] = [0.0, 1.0], [[1.0, 2.0], [3.0, 4.0]]
        >>> with OpenFiles() as handles:
        ...     t, u = (locate(handles, file, name) for name in ("t", "u"))
        ...     grid = GridTable((("t", 2), ("x", 2)), (Column("t", t, ("t",)), Column("u", u, ("t", "x"))))
        ...     values = grid.read(handles)
        >>> values["t"].tolist(), values["u"].tolist()
        ([0.0, 0.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0])
    """

    dimensions: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...]
    label: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        return tuple(length for _, length in self.dimensions)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns as float64."""
        return self.rows * len(self.columns) * 8

    def chunks(self) -> dict[str, int]:
        """For each dimension the length of a chunk of the largest dataset; the whole dimension where it has none."""
        lengths = dict(self.dimensions)
        largest = max(self.columns, key=lambda column: (len(column.dimensions), math.prod(column.dataset.shape)))
        if largest.dataset.chunks is not None:
            for axis, chunk in zip(largest.axes, largest.dataset.chunks, strict=True):
                if isinstance(axis, str):
                    lengths[axis] = min(chunk, lengths[axis])
        return lengths

    def read(self, handles: OpenFiles, box: Mapping[str, tuple[int, int]] | None = None) -> dict[str, Array]:
        """All rows, or those of a box of indices.

        Args:
            handles: the open files.
            box: for some dimensions the first index and the one after the last; the others are taken whole.

        Returns:
            For each column a float64 array of shape ``(n,)``, in the units that were asked for.

        Raises:
            DataError: a checksum is wrong, the file is damaged, an integer is beyond 2^53.
        """
        ranges = {name: (box or {}).get(name, (0, length)) for name, length in self.dimensions}
        shape = tuple(stop - start for start, stop in ranges.values())
        order = list(ranges)
        kept: dict[Any, tuple[tuple[int, ...], Array]] = {}
        values = {}
        for column in self.columns:
            key, first = self._shared(column)
            if key not in kept:
                kept[key] = (first, self._block(handles, column, first, key, ranges))
            low, block = kept[key]
            # Axes with a fixed index are taken from the block that all components share.
            taken = block[
                tuple(
                    axis - start if isinstance(axis, int) else slice(None)
                    for axis, start in zip(column.axes, low, strict=True)
                )
            ]
            if column.part is not None:
                taken = getattr(taken, column.part)
            taken = exact(f"{column.dataset.path}: {column.dataset.name!r}", taken)
            flat = spread(taken, column.dimensions, order, shape)
            values[column.name] = (
                flat if (column.factor, column.offset) == (1.0, 0.0) else flat * column.factor + column.offset
            )
        return values

    def _shared(self, column: Column) -> tuple[Any, tuple[int, ...]]:
        """What components of one dataset have in common, and where the block that holds them all begins."""
        where = (column.dataset.path, column.dataset.name)
        pattern = tuple(axis if isinstance(axis, str) else None for axis in column.axes)
        alike = [
            each.axes
            for each in self.columns
            if (each.dataset.path, each.dataset.name) == where
            and tuple(axis if isinstance(axis, str) else None for axis in each.axes) == pattern
        ]
        ends = [
            (0, 0)
            if isinstance(axis, str)
            else (min(each[number] for each in alike), max(each[number] for each in alike))
            for number, axis in enumerate(column.axes)
        ]
        return (where, pattern, tuple(ends)), tuple(int(low) for low, _ in ends)

    def _block(
        self,
        handles: OpenFiles,
        column: Column,
        first: tuple[int, ...],
        key: Any,
        ranges: Mapping[str, tuple[int, int]],
    ) -> Array:
        selection = tuple(
            slice(*ranges[axis]) if isinstance(axis, str) else slice(low, high + 1)
            for axis, low, (_, high) in zip(column.axes, first, key[2], strict=True)
        )
        return read_part(handles, column.dataset, selection)

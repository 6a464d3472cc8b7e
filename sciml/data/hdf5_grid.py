"""Rows of a table as the product of dimensions of stored datasets, and how they are read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sciml.data.arrays import exact, spread
from sciml.data.hdf5_file import DatasetInfo, OpenFiles, locate, read_part
from sciml.errors import DataError
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

    @property
    def source(self) -> tuple[Any, ...]:
        """The dataset, and which of its axes are dimensions: what the components of one dataset have in common."""
        along = (axis if isinstance(axis, str) else None for axis in self.axes)
        return (self.dataset.path, self.dataset.name, *along)


@dataclass(frozen=True)
class GridTable:
    r"""Rows that are the product of dimensions, the last running fastest: row :math:`(i N_x + j)` is :math:`(t_i, x_j)`.

    A column that depends on some of the dimensions is repeated along the others. A table of plain columns has one dimension.

    Args:
        dimensions: their names and lengths, in order.
        columns: what is read.
        label: the group that all these rows belong to, such as the sample.
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
        blocks: dict[Any, Array] = {}
        values = {}
        for column in self.columns:
            extents = self._extents(column)
            where = column.source, extents
            if where not in blocks:
                chosen = (
                    slice(*(ranges[axis] if isinstance(axis, str) else extent))
                    for axis, extent in zip(column.axes, extents, strict=True)
                )
                blocks[where] = read_part(handles, column.dataset, tuple(chosen))
            # Axes with a fixed index are taken from the block that all components share.
            taken = blocks[where][
                tuple(
                    axis - extent[0] if isinstance(axis, int) else slice(None)
                    for axis, extent in zip(column.axes, extents, strict=True)
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

    def _extents(self, column: Column) -> tuple[tuple[int, int], ...]:
        """The part of a dataset along its fixed axes that the columns from it have together."""
        alike = [each.axes for each in self.columns if each.source == column.source]
        return tuple(
            (0, 0) if isinstance(axis, str) else (min(each), max(each) + 1)
            for axis, each in zip(column.axes, zip(*alike, strict=True), strict=True)
        )


@dataclass(frozen=True)
class ColumnRequest:
    """What was asked for.

    Args:
        handles: the open files.
        path: of the file.
        wanted: name in the problem: name in the file; None for everything.
        axes, split: as in ``read_hdf5``.
        links: the folder below which other files may be read; None forbids them.
    """

    handles: OpenFiles
    path: Path
    wanted: dict[str, str] | None
    axes: Mapping[str, Sequence[str]]
    split: Mapping[str, Sequence[str]]
    links: Path | None

    def locate(self, name: str) -> DatasetInfo:
        """A dataset by its path in the file."""
        return locate(self.handles, self.path, name, links=self.links)

    def named(self, option: Mapping[str, Any], ours: str, theirs: str) -> Any:
        """What an option says of a column, by our name or the file's."""
        return option.get(ours, option.get(theirs, option.get(theirs.strip("/"))))


def split_columns(
    request: ColumnRequest,
    ours: str,
    theirs: str,
    dataset: DatasetInfo,
    axes: Sequence[str],
    components: Sequence[str],
    fixed: Mapping[str, int],
) -> list[Column]:
    """The columns that a dataset becomes: one, two for complex numbers, or one for each component.

    Args:
        request: what was asked for.
        ours, theirs: the names of the column and of the dataset.
        dataset: where it is.
        axes: for each axis the coordinate along it, ``"component"``, or something that is fixed.
        components: the names of the columns unless others are asked for.
        fixed: the index along axes that are fixed, such as ``"sample"``.

    Raises:
        DataError: complex numbers without two names, or another number of names than of components.
    """
    named = request.named(request.split, ours, theirs)
    what = f"{request.path}: {ours!r} ({dataset.name})"
    if dataset.dtype.kind == "c":
        if named is None or len(named) != 2 or "component" in axes:
            raise DataError(
                f"{what} is complex; pass split={{{ours!r}: ('u', 'v')}} to have its real and imaginary part as two columns"
            )
        placed = tuple(fixed.get(axis, axis) for axis in axes)
        return [Column(str(name), dataset, placed, part) for name, part in zip(named, ("real", "imag"), strict=True)]
    which = [number for number, axis in enumerate(axes) if axis == "component"]
    counted = list(itertools.product(*(range(dataset.shape[number]) for number in which)))
    if named is None:
        named = (
            components
            if len(components) == len(counted) and which
            else [f"{ours}_{number}" for number in range(len(counted))]
        )
        named = [ours] if len(counted) == 1 else named
    if len(named) != len(counted):
        raise DataError(
            f"{what} has {len(counted)} components (shape {dataset.shape}); split gives {len(named)}: {tuple(named)!r}"
        )
    columns = []
    for name, index in zip(named, counted, strict=True):
        taken = iter(index)
        placed = tuple(next(taken) if axis == "component" else fixed.get(axis, axis) for axis in axes)
        columns.append(Column(str(name), dataset, placed))
    return columns

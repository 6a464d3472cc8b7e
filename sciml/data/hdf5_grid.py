"""Rows of a table as the product of dimensions of stored datasets, and how they are read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import h5py

from sciml._text import among, listed
from sciml.data.arrays import exact, spread
from sciml.data.hdf5_file import DatasetInfo, OpenFiles, find, locate, read_part
from sciml.data.memory import check_memory
from sciml.errors import DataError
from sciml.typing import Array

ROW = "row"


@dataclass(frozen=True)
class Column:
    """A column of a table, as what lies in a dataset."""

    name: str
    dataset: DatasetInfo
    # Of each axis of the dataset the dimension of the grid along it, or the index that is taken.
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

    @property
    def chunk(self) -> tuple[int, ...]:
        """The shape of a chunk of the largest dataset; of single rows where it has none."""
        largest = max(self.columns, key=lambda column: (len(column.dimensions), math.prod(column.dataset.shape)))
        stored = zip(largest.axes, largest.dataset.chunks or (), strict=False)
        lengths = {axis: chunk for axis, chunk in stored if isinstance(axis, str)}
        whole = dict(self.dimensions) if lengths else dict.fromkeys(dict(self.dimensions), 1)
        return tuple(lengths.get(name, whole[name]) for name, _ in self.dimensions)

    def read(self, handles: OpenFiles, box: Mapping[str, tuple[int, int]] | None = None) -> dict[str, Array]:
        """All rows, or those of a box of indices."""
        ranges = {name: (box or {}).get(name, (0, length)) for name, length in self.dimensions}
        shape = tuple(stop - start for start, stop in ranges.values())
        order = list(ranges)
        blocks: dict[Any, Array] = {}
        values = {}
        for column in self.columns:
            # The part along fixed axes that the columns of one dataset have together is read once.
            alike = [each.axes for each in self.columns if each.source == column.source]
            extents = tuple(
                (0, 0) if isinstance(axis, str) else (min(each), max(each) + 1)
                for axis, each in zip(column.axes, zip(*alike, strict=True), strict=True)
            )
            where = column.source, extents
            if where not in blocks:
                chosen = (
                    slice(*(ranges[axis] if isinstance(axis, str) else extent))
                    for axis, extent in zip(column.axes, extents, strict=True)
                )
                blocks[where] = read_part(handles, column.dataset, tuple(chosen))
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
            values[column.name] = flat if (column.factor, column.offset) == (1.0, 0.0) else flat * column.factor + column.offset
        return values


@dataclass(frozen=True)
class ColumnRequest:
    """What was asked for; all that there is where no column is ``wanted``, by our name and the file's."""

    handles: OpenFiles
    path: Path
    wanted: Mapping[str, str]
    axes: Mapping[str, Sequence[str]]
    split: Mapping[str, Sequence[str]]

    @property
    def file(self) -> h5py.File:
        """The file itself."""
        return self.handles[self.path]

    def locate(self, name: str) -> DatasetInfo:
        """A dataset of numbers by its path in the file."""
        return locate(self.handles, self.path, name)

    def find(self, name: str) -> h5py.Dataset:
        """A dataset of any type by its path in the file."""
        return find(self.handles, self.path, name)

    def named(self, option: Mapping[str, Any], ours: str) -> Any:
        """What an option says of a column, by our name or the file's."""
        theirs = self.wanted.get(ours, ours)
        return option.get(ours, option.get(theirs, option.get(theirs.strip("/"))))


def split_columns(
    request: ColumnRequest,
    ours: str,
    dataset: DatasetInfo,
    axes: Sequence[str],
    components: Sequence[str],
    fixed: Mapping[str, int],
) -> list[Column]:
    """The columns that a dataset becomes: one, two for complex numbers, or one for each component."""
    named = request.named(request.split, ours)
    what = f"{request.path}: {ours!r}" + (f" ({dataset.name})" if dataset.name != ours else "")
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
            components if len(components) == len(counted) and which else [f"{ours}_{number}" for number in range(len(counted))]
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


# A dataset by our name, and the dimensions along its first axes.
Placed: TypeAlias = tuple[str, DatasetInfo, tuple[str, ...]]


def product(request: ColumnRequest, placed: Sequence[Placed]) -> GridTable:
    """Datasets along the dimensions given for each; axes that are left over hold components."""
    largest_first = sorted(placed, key=lambda each: -len(each[2]))
    lengths: dict[str, int] = {}
    for ours, dataset, along in largest_first:
        for axis, length in zip(along, dataset.shape, strict=False):
            if lengths.setdefault(axis, length) != length:
                what = "the rows" if axis == ROW else f"the axis {axis!r}"
                raise DataError(
                    f"{request.path}: {ours!r} has shape {dataset.shape}, and {what} of another column {lengths[axis]} values, "
                    "which are different lengths; name those that belong together with columns=, or say with axes= which are "
                    "coordinates of which, and name the axes in the order of the dataset"
                )
    order = list(lengths)
    columns = []
    for ours, dataset, along in sorted(placed, key=lambda each: order.index(each[0]) if each[2] == (each[0],) else len(order)):
        axes = (*along, *("component",) * (len(dataset.shape) - len(along)))
        columns += split_columns(request, ours, dataset, axes, (), {})
    return GridTable(tuple(lengths.items()), tuple(columns))


def as_columns(
    path: Path,
    arrays: Mapping[str, Array],
    dimensions: Mapping[str, tuple[str, ...] | None],
    axes: Mapping[str, Sequence[str]],
    split: Mapping[str, Sequence[str]],
    memory: int | None,
) -> dict[str, Array]:
    """Arrays, with the names of their axes where the file says them, as columns: coordinates, then what depends on them."""
    along: dict[str, tuple[str, ...] | None] = {}
    for name, array in arrays.items():
        components = int(name in split and array.dtype.kind != "c")
        stated, length = dimensions.get(name), array.ndim - components
        names = tuple(axes.get(name, ())) or (None if stated is None else stated[: len(stated) - components])
        if names is None and length == 1 and components:
            names = (ROW,)
        # Of a single axis nothing need be said: it may be that of a coordinate.
        if (1 if names is None else len(names)) != length:
            raise unplaced(path, name, array.shape)
        along[name] = names
    used = {axis for names in along.values() for axis in names or ()}
    handles = OpenFiles()
    handles.datasets.update({(path, name): array for name, array in arrays.items()})
    request = ColumnRequest(handles, path, {}, axes, split)
    placed = []
    for name, names in along.items():
        held = DatasetInfo(path, name, arrays[name].shape, arrays[name].dtype)
        placed.append((name, held, ((name,) if name in used else (ROW,)) if names is None else names))
    grid = product(request, placed)
    check_names(request, grid)
    largest = max(grid.columns, key=lambda column: len(column.dimensions))
    for column in grid.columns:
        if not set(column.dimensions) <= set(largest.dimensions):
            raise DataError(
                f"{path}: {column.name!r} lies along {listed(column.dimensions)}, and {largest.name!r} along "
                f"{listed(largest.dimensions)}; name those that belong together with columns="
            )
    check_memory(path, 2 * grid.nbytes, memory, "name fewer columns")
    return grid.read(handles)


def unplaced(path: Path, name: str, shape: tuple[int, ...], more: str = "") -> DataError:
    """The error of an array of which nobody says what runs along its axes."""
    return DataError(
        f"{path}: {name!r} has shape {shape}; which coordinates run along its axes? Pass axes={{{name!r}: ('t', 'x')}} with "
        f"one-dimensional columns, or, if its last axis holds components, split={{{name!r}: ('u', 'v')}}{more}"
    )


def check_names(request: ColumnRequest, grid: GridTable) -> None:
    """Refuse columns that occur twice, and options that name nothing that is read."""
    names = [column.name for column in grid.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{request.path}: the column {listed(twice)} would occur more than once; rename with columns= or split="
        )
    known = {column.dataset.name.strip("/") for column in grid.columns} | set(names) | set(request.wanted)
    for option, given in (("axes", request.axes), ("split", request.split)):
        for name in given:
            if name.strip("/") not in known and not any(each.endswith("/" + name) for each in known):
                raise DataError(f"{option} names {name!r}, which is not read; columns: {among(name, names)}")

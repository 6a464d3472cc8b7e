"""What is to be read from an HDF5 file: which datasets become which columns, along which dimensions. Nothing is read yet."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import h5py

from sciml._text import listed, nearest, sequences
from sciml.data.arrays import names_of
from sciml.data.hdf5_file import DatasetInfo, OpenFiles, find, things, tree, unusable
from sciml.data.hdf5_grid import Column, ColumnRequest, GridTable, split_columns
from sciml.data.layouts import recognised, sample_grids
from sciml.data.sandbox import check_safe
from sciml.data.units import Units, conversions
from sciml.errors import DataError


@dataclass(frozen=True)
class Plan:
    """The rows of a table that lie in an HDF5 file: one grid after another.

    It can be pickled, and read by any process that opens the files for itself.

    Args:
        path: of the file.
        grids: one, or one for each sample.
        group: what rows are grouped by, if anything.
        labels: the dataset with the name of each row's group; None if every grid is a group.
        units: of the columns after conversion.
    """

    path: Path
    grids: tuple[GridTable, ...]
    group: str | None
    labels: str | None
    units: Mapping[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.grids[0].columns)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(grid.rows for grid in self.grids)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns as float64."""
        return sum(grid.nbytes for grid in self.grids)


def planned(
    handles: OpenFiles,
    path: Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    axes: Mapping[str, Sequence[str]] | None = None,
    split: Mapping[str, Sequence[str]] | None = None,
    units: Units | None = None,
    group: str | None = None,
    sample: int | str | Sequence[int | str] | None = None,
    links: Path | None = None,
) -> Plan:
    """Decide what is to be read, with the options of ``read_hdf5``, and check that it fits together.

    Raises:
        DataError: as in ``read_hdf5``, for everything that can be seen without reading.
    """
    if not isinstance(group, str | None):
        raise DataError(f"group must be the name of a dataset; given: {group!r}")
    along, parts = sequences("axes", axes, "{'u': ('t', 'x')}"), sequences("split", split, "{'V': ('u', 'v')}")
    wanted = names_of(columns)
    if wanted is not None and not isinstance(columns, Mapping):
        wanted = {name.strip("/").rsplit("/", maxsplit=1)[-1]: name for name in wanted}
    request = ColumnRequest(handles, path, wanted, along, parts, links)
    layout = recognised(handles, path, links) if axes is None else None
    if layout is not None:
        grids = sample_grids(request, layout, sample)
        if group not in (None, "sample"):
            raise DataError(f"{path}: this layout ({layout.name}) is grouped by 'sample'; given: group={group!r}")
        group, labels = ("sample" if len(grids) > 1 or group else None), None
    elif sample is not None:
        raise DataError(
            f"{path} has none of the layouts that have samples (PDEBench, The Well); name datasets with columns= and axes="
        )
    else:
        grids, labels = (_grid(request, group),), group
    _check_names(request, grids[0])
    if labels is not None:
        _check_group(request, grids[0], labels)
    told = {column.name: column.dataset.units for column in grids[0].columns if column.dataset.units is not None}
    names = tuple(column.name for column in grids[0].columns)
    factors, after = conversions(str(path), units, names, told)

    def converted(column: Column) -> Column:
        factor, offset = factors.get(column.name, (1.0, 0.0))
        return replace(column, factor=factor, offset=offset)

    grids = tuple(replace(grid, columns=tuple(map(converted, grid.columns))) for grid in grids)
    return Plan(path, grids, group, labels, after)


def _grid(request: ColumnRequest, group: str | None) -> GridTable:
    """The grid of datasets that the file does not lay out by itself."""
    wanted = request.wanted if request.wanted is not None else _usable(request, group)
    check_safe(request.path, wanted.values())
    found = {ours: (theirs, request.locate(theirs)) for ours, theirs in wanted.items()}
    coordinates: dict[str, DatasetInfo] = {}
    fields: list[tuple[str, str, DatasetInfo, tuple[str, ...]]] = []
    rest: list[tuple[str, str, DatasetInfo]] = []
    for ours, (theirs, dataset) in found.items():
        names = request.named(request.axes, ours, theirs)
        if names is None and dataset.shape and all(dataset.scales[: len(dataset.shape)]):
            names = dataset.scales
        if names is None or (len(dataset.shape) == 1 and dataset.scales[0] == dataset.name):
            rest.append((ours, theirs, dataset))
            continue
        along = tuple(_axis(request, ours, dataset, name, found, coordinates) for name in names)
        fields.append((ours, theirs, dataset, along))
    if not fields:
        return _rows(request, rest)
    for ours, theirs, dataset in rest:
        if ours in coordinates:
            continue
        if dataset.shape:
            one = [name for name, each in coordinates.items() if each.shape == dataset.shape]
            raise DataError(
                f"{request.path}: along which coordinates does {ours!r} (shape {dataset.shape}) lie? Pass "
                f"axes={{{ours!r}: ({', '.join(map(repr, one or ['<coordinate>']))},)}}, or leave it out with columns="
            )
        fields.append((ours, theirs, dataset, ()))
    largest_first = sorted((along for *_, along in fields), key=len, reverse=True)
    order = list(dict.fromkeys(itertools.chain.from_iterable(largest_first)))
    lengths = {name: coordinates[name].shape[0] for name in order}
    columns = [Column(name, coordinates[name], (name,)) for name in order]
    for ours, theirs, dataset, along in fields:
        trailing = len(dataset.shape) - len(along)
        for name, axis in zip(along, dataset.shape, strict=False):
            if lengths[name] != axis:
                raise DataError(
                    f"{request.path}: {ours!r} has shape {dataset.shape}, and the coordinate {name!r} has {lengths[name]} "
                    f"values for its axis of {axis}; name the axes in the order of the dataset"
                )
        columns += split_columns(request, ours, theirs, dataset, (*along, *("component",) * trailing), (), {})
    return GridTable(tuple(lengths.items()), tuple(columns))


def _axis(
    request: ColumnRequest,
    ours: str,
    dataset: DatasetInfo,
    name: str | None,
    found: Mapping[str, tuple[str, DatasetInfo]],
    coordinates: dict[str, DatasetInfo],
) -> str:
    """The name of the coordinate along an axis; it is found in the file unless it has been already."""
    assert name is not None
    column, coordinate = next(
        ((known, each) for known, (theirs, each) in found.items() if name in (known, theirs, each.name)), (None, None)
    )
    if column is None or coordinate is None:
        beside = dataset.name.rsplit("/", maxsplit=1)[0] + "/" + name
        there = [each for each in (name, beside) if _is_dataset(request, each)]
        if not there:
            raise DataError(
                f"{request.path}: {name!r}, an axis of {ours!r}, is neither a column nor a dataset of the file. It holds\n"
                + tree(request.handles[request.path])
            )
        column, coordinate = name.strip("/").rsplit("/", maxsplit=1)[-1], request.locate(there[0])
    if len(coordinate.shape) != 1:
        raise DataError(
            f"{request.path}: {column!r}, an axis of {ours!r}, has shape {coordinate.shape}; the coordinate of an axis is a "
            "one-dimensional dataset"
        )
    coordinates.setdefault(column, coordinate)
    return column


def _rows(request: ColumnRequest, rest: Sequence[tuple[str, str, DatasetInfo]]) -> GridTable:
    """Plain columns of one length."""
    path = request.path
    columns: list[Column] = []
    lengths: dict[str, int] = {}
    for ours, theirs, dataset in rest:
        axes = ("row", *("component",) * (len(dataset.shape) - 1)) if dataset.shape else ()
        if len(dataset.shape) > 1 and request.named(request.split, ours, theirs) is None:
            candidates = [name for name, _, each in rest if len(each.shape) == 1]
            raise DataError(
                f"{path}: {ours!r} has shape {dataset.shape}; which coordinates run along its axes? Pass axes={{{ours!r}: "
                f"('t', 'x')}} with one-dimensional datasets ({listed(candidates)}), or, if its last axis holds components, "
                f"split={{{ours!r}: ('u', 'v')}}. The file holds\n{tree(request.handles[path])}"
            )
        if dataset.shape:
            lengths[ours] = dataset.shape[0]
        columns += split_columns(request, ours, theirs, dataset, axes, (), {})
    if not lengths:
        raise DataError(f"{path} has no columns of numbers. It holds\n{tree(request.handles[path])}")
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{path}: the datasets have different lengths: {lengths}; name those that belong together with columns=, or say "
            "with axes= which are coordinates of which"
        )
    return GridTable((("row", next(iter(lengths.values()))),), tuple(columns))


def _usable(request: ColumnRequest, group: str | None) -> dict[str, str]:
    """Every dataset of numbers in the file, by the last part of its path where that is unique."""
    names = []
    for name, thing in things(request.handles[request.path]):
        if name == (group or "").strip("/"):
            continue
        if isinstance(thing, Exception):
            raise DataError(
                f"{request.path}: {name!r} cannot be opened: damaged ({thing}); get the file again, or name other datasets "
                "with columns="
            )
        if isinstance(thing, h5py.Dataset) and thing.shape != () and unusable(thing) is None:
            names.append(name)
    last = [name.rsplit("/", maxsplit=1)[-1] for name in names]
    return {short if last.count(short) == 1 else name: name for name, short in zip(names, last, strict=True)}


def _is_dataset(request: ColumnRequest, name: str) -> bool:
    try:
        find(request.handles, request.path, name, links=request.links)
    except DataError:
        return False
    return True


def _check_names(request: ColumnRequest, grid: GridTable) -> None:
    names = [column.name for column in grid.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{request.path}: the column {listed(twice)} would occur more than once; rename with columns= or split="
        )
    told = {column.dataset.name.strip("/") for column in grid.columns} | set(names) | set(request.wanted or ())
    for option, given in (("axes", request.axes), ("split", request.split)):
        for name in given:
            if name.strip("/") not in told and not any(each.endswith("/" + name) for each in told):
                raise DataError(
                    f"{option} names {name!r}, which is not read; columns: {listed(names)}.{nearest(name, names)}"
                )


def _check_group(request: ColumnRequest, grid: GridTable, name: str) -> None:
    dataset = find(request.handles, request.path, name, links=request.links)
    if dataset.shape != grid.shape or len(grid.shape) != 1:
        raise DataError(
            f"{request.path}: group={name!r} has shape {dataset.shape}; expected one value for each of the {grid.rows} rows"
        )

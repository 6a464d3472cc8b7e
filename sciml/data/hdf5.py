"""Reading HDF5 files: which datasets become which columns of a table, along which dimensions, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from sciml._text import sequences
from sciml.data.arrays import checked_path, names_of
from sciml.data.hdf5_file import DatasetInfo, OpenFiles, label, things, tree, unusable
from sciml.data.hdf5_grid import ROW, Column, ColumnRequest, GridTable, Placed, check_names, product, unplaced
from sciml.data.layouts import Layout, recognised, sample_grids
from sciml.data.lazy import LazyTable, LoaderOptions
from sciml.data.memory import check_memory
from sciml.data.provenance import provenance, stamp
from sciml.data.sandbox import check_safe, refusals
from sciml.data.table import Table
from sciml.data.units import Units, conversions
from sciml.errors import DataError
from sciml.typing import Array


def read_hdf5(
    path: str | Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    axes: Mapping[str, Sequence[str]] | None = None,
    split: Mapping[str, Sequence[str]] | None = None,
    units: Units | None = None,
    missing: str = "error",
    group: str | None = None,
    sample: int | str | Sequence[int | str] | None = None,
    rows: tuple[int, int] | slice | None = None,
    links: str | Path | None = None,
    memory: int | None = None,
    lazy: bool | LoaderOptions = False,
) -> Table | LazyTable:
    r"""Read datasets of an HDF5 file as columns of a table.

    One-dimensional datasets of one length are columns. A dataset of more dimensions lies on the product of its axes'
    coordinates and becomes a column beside them, the last axis running fastest:

    .. math::
        (t_i, x_j, u_{ij}), \qquad i = 1 \dots N_t,\; j = 1 \dots N_x.

    Files of PDEBench and The Well are recognised. Their variables have the names ``t``, ``x``, ``y``, ``z`` and those of the
    fields; components of vectors are ``velocity_x``, ``velocity_y``; ``sample`` chooses among the runs.

    Args:
        path: the file.
        columns: ``{name in the problem: dataset}``, or names of datasets; by default every dataset of numbers.
        axes: for each dataset of more dimensions the coordinates of its axes, in order: ``{"u": ("t", "x")}``. They are
            columns, or one-dimensional datasets of the file. By default the dimension scales that the file attaches.
        split: ``{"V": ("u", "v")}``: the columns that the last axis of a dataset becomes, or the real and imaginary part of
            complex numbers.
        units: ``{"x": "m"}`` converts from the unit that the file gives, in the attribute ``units``; ``{"x": ("cm", "m")}``
            from that given.
        missing: ``"error"`` refuses NaN; ``"mask"`` keeps it, and fits skip those entries.
        group: a one-dimensional dataset of texts or whole numbers that says which experiment a row belongs to.
        sample: in the layouts named above, the number (or name) of a run, or several; several are groups of the table.
        rows: the first row and the one after the last; by default all.
        links: the folder below which other files may be read: external links, external storage, virtual datasets. By
            default they are refused.
        memory: the bytes that reading may take; by default half of what is free.
        lazy: True leaves the rows in the file: a ``LazyTable`` reads them when they are asked for, so that the file may be
            larger than memory. ``LoaderOptions(...)`` says how they reach a training loop.

    Returns:
        A table of float64 columns, coordinates first; a ``LazyTable`` of the same rows if that was asked for.

    Raises:
        DataError: no such file, damaged, in use, not HDF5; no such dataset, or a group; texts, ragged, compound or empty
            datasets; axes that do not fit; numbers packed by the conventions CF; links that are not allowed or lead nowhere;
            data that were never written; more than memory holds.
        MissingExtraError: units to convert without pint.

    Example:
        >>> import pathlib, tempfile, h5py, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "rod.h5"
        >>> with h5py.File(file, "w") as content:
        ...     content["t"], content["x"] = [0.0, 1.0], [0.0, 50.0, 100.0]
        ...     content["T"] = [[20.0, 30.0, 20.0], [20.0, 25.0, 20.0]]
        >>> sciml.read_hdf5(file, axes={"T": ("t", "x")}, units={"x": ("cm", "m")}).to_pandas().head(3)
             t    x     T
        0  0.0  0.0  20.0
        1  0.0  0.5  30.0
        2  0.0  1.0  20.0
    """
    options = {name: value for name, value in locals().items() if name != "path"}
    path = checked_path(path, "read_hdf5")
    if not isinstance(links, str | Path | None):
        raise DataError(f"links must be the path of a folder, below which other files may be read; given: {links!r}")
    if not isinstance(group, str | None):
        raise DataError(f"group must be the name of a dataset; given: {group!r}")
    along, parts = sequences("axes", axes, "{'u': ('t', 'x')}"), sequences("split", split, "{'V': ('u', 'v')}")
    wanted = names_of(columns) or {}
    if not isinstance(columns, Mapping):
        wanted = {name.strip("/").rsplit("/", maxsplit=1)[-1]: name for name in wanted}
    with refusals(path, "an HDF5 file"), OpenFiles(links) as handles:
        # Opening first: its errors are better than those of a file that is not there.
        handles[path]
        before = stamp(path)
        request = ColumnRequest(handles, path, wanted, along, parts)
        plan = _planned(request, recognised(request) if axes is None else None, units, group, sample)
        if lazy is not False:
            return _lazy(path, plan, missing, lazy, rows)
        total = sum(grid.rows for grid in plan.grids)
        start, stop = _range(path, rows, total)
        needed = 2 * sum(grid.nbytes for grid in plan.grids) * (stop - start) // total
        check_memory(path, needed, memory, "pass lazy=True, read fewer columns, or part of it with rows=")
        values, labels = _values(request, plan, start, stop)
    content = values if labels is None else {**values, str(plan.group): labels}
    return Table(
        content,
        source=str(path),
        missing=missing,
        group=plan.group,
        units=plan.units,
        provenance=provenance(path, "read_hdf5", stop - start, options, before, ["h5py"]),
    )


def _lazy(path: Path, plan: _Plan, missing: str, lazy: object, rows: object) -> LazyTable:
    if not (lazy is True or isinstance(lazy, LoaderOptions)):
        raise DataError(f"{path}: lazy must be True, False or sciml.LoaderOptions(...); given: {lazy!r}")
    if rows is not None or plan.labels is not None:
        raise DataError(
            f"{path}: a lazy table has all rows, and no groups; leave out {'rows=' if rows is not None else 'group='} and take "
            "rows from it, table.read(slice(0, 1000)), or leave out lazy="
        )
    loading = lazy if isinstance(lazy, LoaderOptions) else LoaderOptions()
    return LazyTable(plan.grids, source=str(path), missing=missing, loading=loading, units=plan.units)


def _range(path: Path, rows: tuple[int, int] | slice | None, total: int) -> tuple[int, int]:
    asked: Any = slice(*rows) if isinstance(rows, tuple | list) and len(rows) == 2 else slice(None) if rows is None else rows
    if isinstance(asked, slice) and asked.step in (None, 1):
        start, stop = 0 if asked.start is None else asked.start, total if asked.stop is None else asked.stop
        whole = all(isinstance(each, int | np.integer) and not isinstance(each, bool) for each in (start, stop))
        if whole and 0 <= start < stop <= total:
            return int(start), int(stop)
    raise DataError(f"{path}: rows must be (first, after the last) within 0 and {total}; given: {rows!r}")


def _values(request: ColumnRequest, plan: _Plan, start: int, stop: int) -> tuple[dict[str, Array], list[str] | None]:
    """The columns between two rows, and the name of each row's group."""
    parts, labels, passed = [], [], 0
    for grid in plan.grids:
        first, last = max(start - passed, 0), min(stop - passed, grid.rows)
        if first < last:
            # Whole slices of the first dimension are read, and the rest is left out.
            name, length = grid.dimensions[0]
            inner = grid.rows // length
            low, high = first // inner, -(-last // inner)
            slab = grid.read(request.handles, {name: (low, high)})
            parts.append({key: each[first - low * inner : last - low * inner] for key, each in slab.items()})
            labels += [grid.label or ""] * (last - first)
        passed += grid.rows
    values = {name: np.concatenate([part[name] for part in parts]) if len(parts) > 1 else parts[0][name] for name in parts[0]}
    if plan.labels is None:
        return values, None if plan.group is None else labels
    dataset, what = request.find(plan.labels), f"{request.path}: group={plan.labels!r}"
    raw = dataset[...].tolist()
    if h5py.check_string_dtype(dataset.dtype) is None and dataset.dtype.kind not in "iu":
        raise DataError(f"{what} holds {dataset.dtype}; expected texts or whole numbers")
    return values, [label(what, row, each) for row, each in enumerate(raw)][start:stop]


class _Plan(NamedTuple):
    """The rows of a table that lie in an HDF5 file: one grid after another, and the dataset of groups."""

    grids: tuple[GridTable, ...]
    group: str | None
    labels: str | None
    units: Mapping[str, str]


def _planned(request: ColumnRequest, layout: Layout | None, units: Units | None, group: str | None, sample: Any) -> _Plan:
    """What is to be read, checked that it fits together."""
    path, labels = request.path, None
    if layout is not None:
        grids = sample_grids(request, layout, sample)
        if group not in (None, "sample"):
            raise DataError(f"{path}: this layout ({layout.name}) is grouped by 'sample'; given: group={group!r}")
        group = "sample" if len(grids) > 1 or group else None
    elif sample is not None:
        raise DataError(
            f"{path} has none of the layouts that have samples (PDEBench, The Well); name datasets with columns= and axes="
        )
    else:
        request = request if request.wanted else replace(request, wanted=_usable(request, group))
        grids, labels = (_grid(request),), group
    check_names(request, grids[0])
    if labels is not None:
        shape = request.find(labels).shape
        if shape != grids[0].shape or len(shape) != 1:
            raise DataError(
                f"{path}: group={labels!r} has shape {shape}; expected one value for each of the {grids[0].rows} rows"
            )
    own_units = {column.name: column.dataset.units for column in grids[0].columns if column.dataset.units is not None}
    names = tuple(column.name for column in grids[0].columns)
    factors, after = conversions(str(path), units, names, own_units)

    def converted(column: Column) -> Column:
        factor, offset = factors.get(column.name, (1.0, 0.0))
        return replace(column, factor=factor, offset=offset)

    grids = tuple(replace(grid, columns=tuple(map(converted, grid.columns))) for grid in grids)
    return _Plan(grids, group, labels, after)


def _grid(request: ColumnRequest) -> GridTable:
    """The grid of datasets that the file does not lay out by itself."""
    check_safe(request.path, request.wanted.values())
    found = {ours: request.locate(theirs) for ours, theirs in request.wanted.items()}
    coordinates: dict[str, DatasetInfo] = {}
    fields: list[Placed] = []
    rest: dict[str, DatasetInfo] = {}
    for ours, dataset in found.items():
        names = request.named(request.axes, ours)
        if names is None and dataset.shape and all(dataset.scales[: len(dataset.shape)]):
            names = dataset.scales
        if names is None or (len(dataset.shape) == 1 and dataset.scales[0] == dataset.name):
            rest[ours] = dataset
        else:
            fields.append((ours, dataset, tuple(_axis(request, ours, str(name), found, coordinates) for name in names)))
    if not fields:
        return _rows(request, rest)
    for ours, dataset in rest.items():
        if ours in coordinates:
            continue
        if dataset.shape:
            one = [name for name, each in coordinates.items() if each.shape == dataset.shape]
            raise DataError(
                f"{request.path}: along which coordinates does {ours!r} (shape {dataset.shape}) lie? Pass "
                f"axes={{{ours!r}: ({', '.join(map(repr, one or ['<coordinate>']))},)}}, or leave it out with columns="
            )
        fields.append((ours, dataset, ()))
    return product(request, [*((name, each, (name,)) for name, each in coordinates.items()), *fields])


def _axis(
    request: ColumnRequest, ours: str, name: str, found: Mapping[str, DatasetInfo], coordinates: dict[str, DatasetInfo]
) -> str:
    """The name of the coordinate along an axis; it is found in the file unless it has been already."""
    column = next((known for known, each in found.items() if name in (known, request.wanted[known], each.name)), None)
    if column is None:
        beside = found[ours].name.rsplit("/", maxsplit=1)[0] + "/" + name
        there = [each for each in (name, beside) if _is_dataset(request, each)]
        if not there:
            raise DataError(
                f"{request.path}: {name!r}, an axis of {ours!r}, is neither a column nor a dataset of the file. It holds\n"
                + tree(request.file)
            )
        column, coordinate = name.strip("/").rsplit("/", maxsplit=1)[-1], request.locate(there[0])
    else:
        coordinate = found[column]
    if len(coordinate.shape) != 1:
        raise DataError(
            f"{request.path}: {column!r}, an axis of {ours!r}, has shape {coordinate.shape}; the coordinate of an axis is a "
            "one-dimensional dataset"
        )
    coordinates.setdefault(column, coordinate)
    return column


def _rows(request: ColumnRequest, found: Mapping[str, DatasetInfo]) -> GridTable:
    """Plain columns of one length."""
    for ours, dataset in found.items():
        if len(dataset.shape) > 1 and request.named(request.split, ours) is None:
            raise unplaced(request.path, ours, dataset.shape, f". The file holds\n{tree(request.file)}")
    if not any(dataset.shape for dataset in found.values()):
        raise DataError(f"{request.path} has no columns of numbers. It holds\n{tree(request.file)}")
    return product(request, [(ours, dataset, (ROW,) if dataset.shape else ()) for ours, dataset in found.items()])


def _usable(request: ColumnRequest, group: str | None) -> dict[str, str]:
    """Every dataset of numbers in the file, by the last part of its path where that is unique."""
    names = []
    for name, thing in things(request.file):
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
        request.find(name)
    except DataError:
        return False
    return True

"""Arrays on coordinates as columns of a table: each point of the product of the coordinates is a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sciml._text import listed, nearest
from sciml.data.memory import check_memory
from sciml.data.provenance import provenance
from sciml.data.table import Table
from sciml.data.units import conversions
from sciml.errors import DataError
from sciml.typing import Array

LARGEST_EXACT = 2**53

_ROW = "row"


def checked_path(path: object, reader: str) -> Path:
    """The path of a file.

    Raises:
        DataError: something else was given.
    """
    if not isinstance(path, str | Path):
        raise DataError(f"{reader} needs the path of a file; given: {path!r}")
    return Path(path)


def names_of(columns: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    """Names in the problem with those in a file; None where none are given.

    Raises:
        DataError: neither a mapping of texts nor texts.
    """
    if columns is None:
        return None
    columns = [columns] if isinstance(columns, str) else columns
    texts = [*columns, *columns.values()] if isinstance(columns, Mapping) else columns
    if not isinstance(columns, Mapping | Sequence) or not columns or not all(isinstance(each, str) for each in texts):
        raise DataError(f"columns must be {{name in the problem: name in the file}} or names; given: {columns!r}")
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def wanted_names(
    path: Path, columns: Mapping[str, str] | Sequence[str] | None, there: Sequence[str], usable: Sequence[str]
) -> dict[str, str]:
    """Names in the problem with those in a file, which has ``there``; all that is ``usable`` where none are given.

    Raises:
        DataError: something else than names, or a name that the file does not have.
    """
    wanted = names_of(columns)
    if wanted is None:
        wanted = {name: name for name in usable}
        if not usable:
            raise DataError(f"{path} has no columns of numbers; it has {listed(there)}")
    for theirs in wanted.values():
        if theirs not in there:
            raise DataError(f"{path} has no {theirs!r}; it has {listed(there)}.{nearest(theirs, there)}")
    return wanted


def finished(
    path: Path,
    reader: str,
    values: dict[str, Any],
    stated: Mapping[str, str],
    options: Mapping[str, Any],
    before: tuple[int, int],
    packages: Sequence[str],
    labels: Any = None,
) -> Table:
    """The table of columns that were read, converted to the units that were asked for.

    Args:
        path: of the file.
        reader: the name of the function that read it.
        values: the columns as float64.
        stated: the units that the file gives.
        options: of the reader, with ``units``, ``missing`` and, for rows with ``labels``, ``group``.
        before: the file's stamp before it was read.
        packages: that the numbers depend on.
        labels: for each row the name of its group.

    Raises:
        DataError: units that do not fit, values that are not finite.
        MissingExtraError: units to convert without pint.
    """
    stated = {name: unit for name, unit in stated.items() if name in values}
    factors, units = conversions(str(path), options["units"], tuple(values), stated)
    for name, (factor, offset) in factors.items():
        values[name] = values[name] * factor + offset
    origin = provenance(path, reader, len(next(iter(values.values()))), options, before, packages)
    group = None if labels is None else options["group"]
    values = values if group is None else {**values, group: labels}
    return Table(values, source=str(path), missing=options["missing"], group=group, units=units, provenance=origin)


def as_columns(
    path: Path,
    arrays: Mapping[str, Array],
    dimensions: Mapping[str, tuple[str, ...] | None],
    axes: Mapping[str, Sequence[str]],
    split: Mapping[str, Sequence[str]],
    memory: int | None,
) -> dict[str, Array]:
    """The columns of a table: coordinates in the order of their axes, then what depends on them.

    Args:
        path: of the file, for messages.
        arrays: by name in the problem.
        dimensions: the names of the axes of those arrays whose file says so; None for the others.
        axes, split, memory: as in ``read_hdf5``.

    Raises:
        DataError: axes that do not fit, complex numbers, components without names, more than memory holds.
    """
    for option, given in (("axes", axes), ("split", split)):
        for name in given:
            if name not in arrays:
                raise DataError(
                    f"{option} names {name!r}, which is not read; columns: {listed(arrays)}.{nearest(name, arrays)}"
                )
    along = {name: _along(path, name, array, dimensions.get(name), axes, split) for name, array in arrays.items()}
    used = {axis for names in along.values() for axis in names or ()}
    on = {name: ((name,) if name in used else (_ROW,)) if names is None else names for name, names in along.items()}
    lengths: dict[str, int] = {}
    for name, names in sorted(on.items(), key=lambda item: -len(item[1])):
        for axis, length in zip(names, arrays[name].shape, strict=False):
            if lengths.setdefault(axis, length) != length:
                what = "the rows" if axis == _ROW else f"the axis {axis!r}"
                raise DataError(
                    f"{path}: {name!r} has shape {arrays[name].shape}, and {what} of another column {lengths[axis]} values; "
                    "name those that belong together with columns=, or say with axes= which are coordinates of which"
                )
    largest = max(on, key=lambda name: len(on[name]))
    order = on[largest]
    for name, names in on.items():
        if not set(names) <= set(order):
            raise DataError(
                f"{path}: {name!r} lies along {listed(names)}, and {largest!r} along {listed(order)}; name those that belong "
                "together with columns="
            )
    shape = tuple(lengths[axis] for axis in order)
    check_memory(path, 2 * 8 * math.prod(shape) * len(arrays), memory, "name fewer columns")
    coordinates = [axis for axis in order if axis in arrays]
    columns: dict[str, Array] = {}
    for name in [*coordinates, *(name for name in arrays if name not in coordinates)]:
        for column, values in _parts(path, name, arrays[name], len(on[name]), split.get(name)).items():
            if column in columns:
                raise DataError(
                    f"{path}: the column {column!r} would occur more than once; rename with columns= or split="
                )
            columns[column] = spread(values, on[name], order, shape)
    return columns


def exact(what: str, values: Array) -> Array:
    """Numbers as float64 in the machine's byte order, if none of them is rounded.

    Raises:
        DataError: an integer beyond 2^53, or no numbers.
    """
    if values.dtype.kind not in "iuf" or values.dtype.itemsize > 8:
        raise DataError(f"{what} holds {values.dtype}, not numbers that float64 can take; convert it, or pass casts=")
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        beyond = (values > LARGEST_EXACT) | (values < -LARGEST_EXACT if values.dtype.kind == "i" else False)
        if beyond.any():
            raise DataError(
                f"{what} has {int(beyond.sum())} integer(s) beyond 2^53 (the first {values[beyond][0]}), which float64 cannot "
                "hold exactly; store them as float64 if that does not matter"
            )
    return values.astype(np.float64, copy=False)


def spread(values: Array, along: Sequence[str], order: Sequence[str], shape: Sequence[int]) -> Array:
    """Values along some of the dimensions as a column along all of them, those in this order and of these lengths."""
    turned = values.transpose([along.index(axis) for axis in order if axis in along])
    turned = turned.reshape([length if axis in along else 1 for axis, length in zip(order, shape, strict=True)])
    return np.broadcast_to(turned, tuple(shape)).reshape(-1)


def _along(
    path: Path,
    name: str,
    array: Array,
    stated: tuple[str, ...] | None,
    axes: Mapping[str, Sequence[str]],
    split: Mapping[str, Sequence[str]],
) -> tuple[str, ...] | None:
    """The axes of an array, without that of its components; None for a single one that nothing is said of."""
    components = int(name in split and array.dtype.kind != "c")
    names = tuple(axes.get(name, ())) or (stated[: len(stated) - components] if stated is not None else None)
    if names is None and array.ndim - components == 1:
        return (_ROW,) if components else None
    if names is None or len(names) != array.ndim - components:
        raise DataError(
            f"{path}: {name!r} has shape {array.shape}; which coordinates run along its axes? Pass "
            f"axes={{{name!r}: ('t', 'x')}} with one-dimensional columns, or, if its last axis holds components, "
            + f"split={{{name!r}: ('u', 'v')}}"
        )
    return names


def _parts(path: Path, name: str, array: Array, dimensions: int, named: Sequence[str] | None) -> dict[str, Array]:
    """The columns that an array becomes."""
    what = f"{path}: {name!r}"
    if array.dtype.kind == "c":
        if named is None or len(named) != 2:
            raise DataError(
                f"{what} is complex; pass split={{{name!r}: ('u', 'v')}} to have its real and imaginary part as two columns"
            )
        return {named[0]: array.real.astype(np.float64), named[1]: array.imag.astype(np.float64)}
    if array.ndim == dimensions:
        return {name: exact(what, array)}
    assert named is not None
    if len(named) != array.shape[-1]:
        raise DataError(
            f"{what} has {array.shape[-1]} components (shape {array.shape}); split gives {len(named)}: {tuple(named)!r}"
        )
    return {each: exact(what, array[..., number]) for number, each in enumerate(named)}

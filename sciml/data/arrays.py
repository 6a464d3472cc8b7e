"""Arrays on coordinates, made columns of a table: each point of their product is a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sciml._text import listed, nearest, sequences
from sciml.data.memory import check_memory
from sciml.errors import DataError
from sciml.typing import Array

_LARGEST_EXACT = 2**53

_ROW = "row"


def wanted_names(
    path: Path, columns: Mapping[str, str] | Sequence[str] | None, there: Sequence[str], usable: Sequence[str]
) -> dict[str, str]:
    """Names in the problem with those in a file.

    Args:
        path: of the file.
        columns: as in the readers; None takes all that is usable.
        there: everything that the file has.
        usable: what of it is taken unless something is asked for.

    Raises:
        DataError: something else than names, or a name that the file does not have.
    """
    if columns is None:
        if not usable:
            raise DataError(f"{path} has no columns of numbers; it has {listed(there)}")
        return {name: name for name in usable}
    columns = [columns] if isinstance(columns, str) else columns
    texts = [*columns, *columns.values()] if isinstance(columns, Mapping) else columns
    if not isinstance(columns, Mapping | Sequence) or not columns or not all(isinstance(each, str) for each in texts):
        raise DataError(f"columns must be {{name in the problem: name in the file}} or names; given: {columns!r}")
    wanted = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    for theirs in wanted.values():
        if theirs not in there:
            raise DataError(f"{path} has no {theirs!r}; it has {listed(there)}.{nearest(theirs, there)}")
    return wanted


def as_columns(
    path: Path,
    arrays: Mapping[str, Array],
    dimensions: Mapping[str, tuple[str, ...] | None],
    axes: Mapping[str, Sequence[str]] | None,
    split: Mapping[str, Sequence[str]] | None,
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
    axes, split = sequences("axes", axes, "{'u': ('t', 'x')}"), sequences("split", split, "{'V': ('u', 'v')}")
    for option, given in (("axes", axes), ("split", split)):
        for name in given:
            if name not in arrays:
                raise DataError(
                    f"{option} names {name!r}, which is not read; columns: {listed(arrays)}.{nearest(name, arrays)}"
                )
    along = {name: _along(path, name, array, dimensions.get(name), axes, split) for name, array in arrays.items()}
    used = {axis for names in along.values() if names is not None for axis in names}
    for name, names in along.items():
        if names is None:
            along[name] = (name,) if name in used else (_ROW,)
    lengths: dict[str, int] = {}
    for name, names in sorted(along.items(), key=lambda item: -len(item[1] or ())):
        for axis, length in zip(names or (), arrays[name].shape, strict=False):
            if lengths.setdefault(axis, length) != length:
                what = "the rows" if axis == _ROW else f"the axis {axis!r}"
                raise DataError(
                    f"{path}: {name!r} has shape {arrays[name].shape}, and {what} of another column {lengths[axis]} values; "
                    "name those that belong together with columns=, or say with axes= which are coordinates of which"
                )
    largest = max(along, key=lambda name: len(along[name] or ()))
    for name, names in along.items():
        if not set(names or ()) <= set(along[largest] or ()):
            raise DataError(
                f"{path}: {name!r} lies along {listed(names or ())}, and {largest!r} along {listed(along[largest] or ())}; "
                "name those that belong together with columns="
            )
    shape = tuple(lengths[axis] for axis in along[largest] or ())
    check_memory(path, 2 * 8 * math.prod(shape) * len(arrays), memory, "name fewer columns")
    coordinates = [axis for axis in along[largest] or () if axis in arrays]
    columns: dict[str, Array] = {}
    for name in [*coordinates, *(name for name in arrays if name not in coordinates)]:
        for column, values in _parts(path, name, arrays[name], len(along[name] or ()), split).items():
            if column in columns:
                raise DataError(
                    f"{path}: the column {column!r} would occur more than once; rename with columns= or split="
                )
            columns[column] = _repeated(values, along[name] or (), along[largest] or (), shape)
    return columns


def exact(what: str, values: Array) -> Array:
    """Numbers as float64, if none of them is rounded.

    Raises:
        DataError: an integer beyond 2^53, or no numbers.
    """
    if values.dtype.kind not in "iuf" or values.dtype.itemsize > 8:
        raise DataError(f"{what} holds {values.dtype}, not numbers that float64 can take; convert it, or pass casts=")
    if values.dtype.kind in "iu" and values.size and max(-int(values.min()), int(values.max())) > _LARGEST_EXACT:
        raise DataError(
            f"{what} has an integer beyond 2^53, which float64 cannot hold exactly; store it as float64 if that does not matter"
        )
    return values.astype(np.float64)


def _along(
    path: Path,
    name: str,
    array: Array,
    told: tuple[str, ...] | None,
    axes: Mapping[str, Sequence[str]] | None,
    split: Mapping[str, Sequence[str]] | None,
) -> tuple[str, ...] | None:
    """The axes of an array, without that of its components; None for a single one that nothing is said of."""
    components = int(name in dict(split or {}) and array.dtype.kind != "c")
    names = tuple((axes or {}).get(name, ())) or (told[: len(told) - components] if told is not None else None)
    if names is None and array.ndim - components == 1:
        return (_ROW,) if components else None
    if names is None or len(names) != array.ndim - components:
        raise DataError(
            f"{path}: {name!r} has shape {array.shape}; which coordinates run along its axes? Pass "
            f"axes={{{name!r}: ('t', 'x')}} with one-dimensional columns, or, if its last axis holds components, "
            + f"split={{{name!r}: ('u', 'v')}}"
        )
    return names


def _parts(
    path: Path, name: str, array: Array, dimensions: int, split: Mapping[str, Sequence[str]] | None
) -> dict[str, Array]:
    """The columns that an array becomes."""
    what, named = f"{path}: {name!r}", dict(split or {}).get(name)
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


def _repeated(values: Array, along: Sequence[str], order: Sequence[str], shape: tuple[int, ...]) -> Array:
    """Values along some of the dimensions as a column along all of them."""
    turned = values.transpose([along.index(axis) for axis in order if axis in along])
    spread = turned.reshape([length if axis in along else 1 for axis, length in zip(order, shape, strict=True)])
    return np.broadcast_to(spread, shape).reshape(-1)

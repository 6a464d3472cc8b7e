"""What readers have in common: names of columns, exact numbers, and the table that is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sciml._text import among, listed
from sciml.data.provenance import provenance
from sciml.data.table import Table
from sciml.data.units import conversions
from sciml.errors import DataError
from sciml.typing import Array

LARGEST_EXACT = 2**53


def checked_path(path: object, reader: str) -> Path:
    """The path of a file."""
    if not isinstance(path, str | Path):
        raise DataError(f"{reader} needs the path of a file; given: {path!r}")
    return Path(path)


def names_of(columns: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    """Names in the problem with those in a file; None where none are given."""
    if columns is None:
        return None
    columns = [columns] if isinstance(columns, str) else columns
    texts = [*columns, *columns.values()] if isinstance(columns, Mapping) else columns
    if not isinstance(columns, Mapping | Sequence) or not columns or not all(isinstance(each, str) for each in texts):
        raise DataError(f"columns must be {{name in the problem: name in the file}} or names; given: {columns!r}")
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def wanted_names(
    path: Path,
    columns: Mapping[str, str] | Sequence[str] | None,
    there: Sequence[str],
    usable: Sequence[str],
    group: str | None = None,
) -> dict[str, str]:
    """Names in the problem with those in a file, which has ``there``; all that is ``usable`` where none are given."""
    if group is not None and group not in there:
        raise DataError(f"{path} has no column {group!r} to group by; it has {among(group, there)}")
    wanted = names_of(columns)
    if wanted is None:
        wanted = {name: name for name in usable if name != group}
        if not wanted:
            beside = "of numbers" if group is None else f"beside {group!r}, which rows are grouped by"
            raise DataError(f"{path} has no column {beside}; it has {listed(there)}")
    for theirs in wanted.values():
        if theirs not in there:
            raise DataError(f"{path} has no column {theirs!r}; it has {among(theirs, there)}")
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
    """The table of columns that were read, converted to the units that were asked for."""
    stated = {name: unit for name, unit in stated.items() if name in values}
    factors, units = conversions(str(path), options["units"], tuple(values), stated)
    for name, (factor, offset) in factors.items():
        values[name] = values[name] * factor + offset
    origin = provenance(path, reader, len(next(iter(values.values()))), options, before, packages)
    group = None if labels is None else options["group"]
    values = values if group is None else {**values, group: labels}
    return Table(values, source=str(path), missing=options["missing"], group=group, units=units, provenance=origin)


def exact(what: str, values: Array) -> Array:
    """Numbers as float64 in the machine's byte order, if none of them is rounded."""
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

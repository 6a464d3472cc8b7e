"""Reading Parquet files: only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sciml._text import listed, mapping
from sciml.data.arrays import checked_path, exact, finished, wanted_names
from sciml.data.hdf5_file import text
from sciml.data.memory import check_memory
from sciml.data.provenance import stamp
from sciml.data.sandbox import refusals
from sciml.data.table import Table
from sciml.data.units import Units, cast, check_casts
from sciml.data.write import arrow
from sciml.errors import DataError


def read_parquet(
    path: str | Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    units: Units | None = None,
    missing: str = "error",
    group: str | None = None,
    casts: Mapping[str, str] | None = None,
    memory: int | None = None,
) -> Table:
    """Read columns of a Parquet file; the others are not touched.

    Args:
        path: the file.
        columns: ``{name in the problem: name in the file}``, or names; by default every column of numbers.
        units: ``{"x": ("cm", "m")}``: the unit in the file and in the problem; ``{"x": "m"}`` from the unit in the column's
            metadata.
        missing: ``"error"`` refuses nulls and NaN; ``"mask"`` keeps them as NaN, and fits skip those entries.
        group, casts, memory: as for ``read_csv``.

    Returns:
        A table of float64 columns.

    Raises:
        DataError: no such file, damaged, another format; no such column; texts, lists, truth values and dates without a cast;
            integers beyond 2^53; more than memory holds.
        MissingExtraError: pyarrow is not installed.

    Example:
        >>> import pathlib, tempfile, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.parquet"
        >>> sciml.Table({"t": [0.0, 1.0], "u": [0.1, 0.2], "v": [5.0, 6.0]}).save(file)
        >>> sciml.read_parquet(file, columns={"t": "t", "speed": "v"}).columns
        ('t', 'speed')
    """
    options = {name: value for name, value in locals().items() if name != "path"}
    path = checked_path(path, "read_parquet")
    mapping("casts", casts, "{'on': 'bool'}")
    pyarrow, parquet = arrow()
    with refusals(path, "a Parquet file", pyarrow.ArrowException):
        before = stamp(path)
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            if not rows:
                raise DataError(f"{path} has no rows")
            types = pyarrow.types
            numeric = [each.name for each in schema if types.is_integer(each.type) or types.is_floating(each.type)]
            usable = [each for each in (*numeric, *(casts or {})) if each in schema.names]
            wanted = wanted_names(path, columns, schema.names, list(dict.fromkeys(usable)), group)
            twice = [name for name in (*wanted.values(), group) if schema.names.count(name) > 1]
            if twice:
                raise DataError(f"{path}: the column {listed(twice)} occurs more than once; rename one of them")
            taken = list(dict.fromkeys([*wanted.values(), *([group] if group is not None else [])]))
            check_memory(path, 3 * 8 * rows * len(taken), memory, "read fewer columns")
            content = file.read(columns=taken)
    asked = check_casts(casts, list(wanted))
    values: dict[str, Any] = {}
    stated = {name: how for name, how in asked.items() if how != "bool"}
    for ours, theirs in wanted.items():
        column = content[theirs]
        if ours in asked:
            values[ours] = cast(str(path), theirs, column.to_pandas(), asked[ours], lambda row: f"row {row}")
        elif theirs in numeric:
            plain = (column.fill_null(0) if column.null_count else column).to_numpy()
            values[ours] = exact(f"{path}: column {theirs!r}", plain)
            if column.null_count:
                values[ours] = np.where(column.is_null().to_numpy(), np.nan, values[ours])
        else:
            raise DataError(
                f"{path}: column {theirs!r} holds {column.type}, not numbers; leave it out, group by it, or for truth values "
                "and dates pass casts="
            )
        metadata = schema.field(theirs).metadata or {}
        if b"units" in metadata and ours not in stated:
            stated[ours] = text(metadata[b"units"]) or ""
    labels = None if group is None else content[group].to_pandas()
    return finished(path, "read_parquet", values, stated, options, before, ["pyarrow", "pandas"], labels)

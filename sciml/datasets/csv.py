"""Reading CSV files so that no number changes place or meaning without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sciml.datasets.casts import cast, check_casts, unit_after
from sciml.datasets.csv_lines import check_finite, check_points, layout, names_wanted, numbers, parsed
from sciml.datasets.csv_quick import quick
from sciml.datasets.limits import check_memory
from sciml.datasets.unpacked import content, packed, text
from sciml.errors import DataError, mapping
from sciml.provenance import provenance, stamp
from sciml.table import Table
from sciml.units import Units, conversions

_REMEDY = "read fewer rows of it at a time, or convert it to HDF5 and read parts of that with rows="


def read_csv(
    path: str | Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    sep: str = ",",
    decimal: str = ".",
    comment: str = "#",
    encoding: str = "utf-8",
    missing: str = "error",
    units: Units | None = None,
    group: str | None = None,
    casts: Mapping[str, str] | None = None,
    memory: int | None = None,
    largest: int | None = None,
) -> Table:
    r"""Read numeric columns of a CSV file with a header line, packed by gzip or not.

    Comment lines, blank lines, blanks around names and values, and a byte-order mark are taken as they come. Everything
    that could shift or change a number silently is refused with the line where it happens.

    Args:
        path: the file.
        columns: ``{name in the problem: name in the file}``, or the names to take; by default every column.
        sep: the character between values.
        decimal: the decimal sign.
        comment: lines that begin with this are skipped.
        encoding: of the file.
        missing: ``"error"`` refuses blanks and ``n/a``; ``"mask"`` keeps them as NaN, and fits skip those entries.
        units: ``{"x": ("cm", "m")}``: the unit in the file and in the problem; the numbers are converted.
        group: the name of a column in the file, of texts or whole numbers, that says which experiment a row belongs to.
        casts: ``{"on": "bool", "day": "days since 2020-01-01"}``: columns of truth values or dates that count as numbers.
        memory: the bytes that reading may take; by default half of what is free.
        largest: the bytes that a gzip file may unpack to; by default a hundred times its size, and at least a MiB.

    Returns:
        A table of float64 columns.

    Raises:
        DataError: no such file, not text in that encoding, empty, no header, a wrong separator or decimal sign, doubled
            or missing columns, rows with too many or too few values, values that are not finite numbers; larger than
            memory; units that do not fit.
        MissingExtraError: units to convert without pint.

    Example:
        >>> import pathlib, tempfile, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "pelts.csv"
        >>> _ = file.write_text("# thousands a year\nYear, Hare\n1900, 30.0\n1901, 47.2\n")
        >>> sciml.read_csv(file, columns={"t": "Year", "hare": "Hare"}).to_pandas()
                t  hare
        0  1900.0  30.0
        1  1901.0  47.2
    """
    options = {name: value for name, value in locals().items() if name != "path"}
    if not isinstance(path, str | Path):
        raise DataError(f"read_csv needs the path of a file; given: {path!r}")
    path = Path(path)
    texts = (sep, decimal, comment, encoding)
    if not all(isinstance(each, str) for each in texts):
        raise DataError(f"sep, decimal, comment and encoding must be texts; given: {texts!r}")
    if len(sep) != 1 or len(decimal) != 1 or sep == decimal:
        raise DataError(f"sep and decimal must be two different single characters; given: {sep!r} and {decimal!r}")
    if {sep, decimal} & set('\r\n"\0'):
        raise DataError(
            "sep and decimal cannot be ends of lines, quotes or NUL, which mean something else in every CSV file; "
            f"given: {sep!r} and {decimal!r}"
        )
    mapping("casts", casts, "{'on': 'bool'}")
    before = stamp(path) if path.is_file() else (0, 0)
    raw = content(path, memory, largest, _REMEDY) if packed(path) else None
    if raw is None:
        check_memory(path, 3 * before[0], memory, _REMEDY)
    found = None if casts else quick(path, raw, columns, group, sep, decimal, comment, encoding)
    if found is None:
        raw = content(path, memory, largest, _REMEDY) if raw is None else raw
        # Some eight times the text: each line, its number, and the values as texts.
        check_memory(path, 8 * len(raw), memory, _REMEDY)
        found = _careful(path, text(path, raw, encoding), columns, group, casts, sep, decimal, comment, missing)
    values, labels = found
    factors, after = conversions(
        str(path), units, tuple(values), {name: unit for name, unit in _cast_units(casts) if name in values}
    )
    for name, (factor, offset) in factors.items():
        values[name] = values[name] * factor + offset
    rows = len(next(iter(values.values())))
    if group is not None and labels is not None:
        values[group] = labels
    origin = provenance(path, "read_csv", rows, options, before, ["pandas"])
    return Table(values, source=str(path), missing=missing, group=group, units=after, provenance=origin)


def _careful(
    path: Path,
    body: str,
    columns: Mapping[str, str] | Sequence[str] | None,
    group: str | None,
    casts: Mapping[str, str] | None,
    sep: str,
    decimal: str,
    comment: str,
    missing: str,
) -> tuple[dict[str, Any], list[str] | None]:
    """The columns and the name of each row's group, line by line: slower, and every fault is told with its line."""
    lines = layout(path, body, sep, decimal, comment)
    wanted = names_wanted(path, lines.names, columns, group)
    asked = check_casts(casts, list(wanted))
    texts = {wanted[name] for name in asked} | ({group} if group is not None else set())
    check_points(path, lines, sep, decimal, [each for each in wanted.values() if each not in texts], texts)
    frame = parsed(path, lines, sep, decimal, texts)
    values: dict[str, Any] = {}
    for ours, theirs in wanted.items():
        column = frame[lines.names.index(theirs)]
        if ours in asked:
            values[ours] = cast(str(path), theirs, column, asked[ours], lambda row: f"line {lines.lines[row]}")
            check_finite(path, lines, theirs, values[ours], missing)
        else:
            values[ours] = numbers(path, lines, theirs, column, decimal, missing)
    if group is None:
        return values, None
    names = frame[lines.names.index(group)]
    if names.isna().any():
        row = int(np.flatnonzero(names.isna())[0])
        raise DataError(
            f"{path}, line {lines.lines[row]}: no value in {group!r}, which rows are grouped by; name its group"
        )
    return values, names.tolist()


def _cast_units(casts: Mapping[str, str] | None) -> list[tuple[str, str]]:
    return [(name, unit) for name, how in dict(casts or {}).items() if (unit := unit_after(how)) is not None]

"""Reading CSV files so that no number changes place or meaning without a word."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sciml.errors import DataError, listed, nearest
from sciml.provenance import provenance, stamp
from sciml.table import Table
from sciml.typing import Array

_OTHER_SEPARATORS = (";", "\t", "|")
_LARGEST_EXACT = 2**53


def read_csv(
    path: str | Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    sep: str = ",",
    decimal: str = ".",
    comment: str = "#",
    encoding: str = "utf-8",
    missing: str = "error",
) -> Table:
    r"""Read numeric columns of a CSV file with a header line.

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

    Returns:
        A table of float64 columns.

    Raises:
        DataError: no such file, not text in that encoding, empty, no header, a wrong separator or decimal sign, doubled
            or missing columns, rows with too many or too few values, values that are not finite numbers.

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
    text = _text(path, encoding)
    before = stamp(path)
    layout = _layout(path, text, sep, decimal, comment)
    wanted = _wanted(path, layout.names, columns)
    frame = _parsed(layout, sep, decimal)
    values = {
        ours: _numbers(path, layout, theirs, frame[layout.names.index(theirs)], decimal, missing)
        for ours, theirs in wanted.items()
    }
    origin = provenance(path, "read_csv", len(layout.lines), options, before, ["pandas"])
    return Table(values, source=str(path), missing=missing, provenance=origin)


@dataclass(frozen=True)
class _Layout:
    """The text of the data lines, their line numbers in the file, and the header's names."""

    names: list[str]
    body: str
    lines: Array


def _text(path: Path, encoding: str) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and "16" not in encoding:
        raise DataError(f"{path} is encoded in UTF-16; pass encoding='utf-16'")
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: not {encoding} text (byte {raw[error.start]:#04x}); if it comes from an older Windows "
            "program pass encoding='cp1252', otherwise the encoding it was written in"
        ) from error
    except LookupError:
        raise DataError(f"there is no encoding {encoding!r}") from None
    if "\0" in text:
        raise DataError(
            f"{path}, line {text[: text.index(chr(0))].count(chr(10)) + 1}: a NUL character; not a text file?"
        )
    return text


def _layout(path: Path, text: str, sep: str, decimal: str, comment: str) -> _Layout:
    kept = [
        (number, line)
        for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1)
        if (stripped := line.strip()) and not (comment and stripped.startswith(comment))
    ]
    if not kept:
        raise DataError(f"{path} is empty: a header line with the names of the columns and at least one row are needed")
    (first, header), rows = kept[0], kept[1:]
    names = [name.strip() for name in next(csv.reader([header], delimiter=sep, skipinitialspace=True))]
    _check_header(path, first, header, names, sep, decimal)
    if not rows:
        raise DataError(f"{path} has a header and no rows")
    _check_counts(path, rows, names, sep, decimal)
    return _Layout(names, "\n".join(line for _, line in rows), np.array([number for number, _ in rows]))


def _check_header(path: Path, line: int, header: str, names: list[str], sep: str, decimal: str) -> None:
    other = next((each for each in (*_OTHER_SEPARATORS, ",") if each != sep and header.count(each)), None)
    if len(names) == 1 and other is not None:
        raise DataError(
            f"{path}, line {line}: with the separator {sep!r} the header is one column, {header.strip()!r}; pass sep={other!r}"
        )
    if all(_is_number(name, decimal) for name in names):
        raise DataError(
            f"{path}, line {line}: the header is numeric ({header.strip()!r}): the file has no header line; add one with "
            "the names of the columns"
        )
    if "" in names:
        raise DataError(
            f"{path}, line {line}: column {names.index('') + 1} has no name in the header {header.strip()!r} (a trailing "
            f"{sep!r}?)"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}, line {line}: the column {listed(twice)} occurs more than once; rename one of them")


def _check_counts(path: Path, rows: list[tuple[int, str]], names: list[str], sep: str, decimal: str) -> None:
    expected = len(names)
    for number, line in rows:
        if line.count(sep) + 1 == expected and '"' not in line:
            continue
        found = len(next(csv.reader([line], delimiter=sep, skipinitialspace=True)))
        if found == expected:
            continue
        hint = ""
        if found > expected and sep == "," and decimal == ".":
            hint = "; if the comma is the decimal sign, the file needs another separator, and decimal=','"
        if line.rstrip().endswith(sep):
            hint = f"; the line ends with a {sep!r}"
        raise DataError(
            f"{path}, line {number}: {found} values for {expected} columns ({listed(names)}): {line.strip()!r}{hint}"
        )


def _wanted(path: Path, names: list[str], columns: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    if columns is None:
        return {name: name for name in names}
    if isinstance(columns, str):
        columns = [columns]
    if not isinstance(columns, Mapping | Sequence) or not all(isinstance(name, str) for name in columns):
        raise DataError(
            f"columns must be {{name in the problem: name in the file}} or a list of names; given: {columns!r}"
        )
    wanted = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    if not wanted:
        raise DataError("columns is empty: name at least one column")
    for theirs in wanted.values():
        if theirs not in names:
            raise DataError(
                f"{path} has no column {theirs!r}; its columns are {listed(names)}.{nearest(theirs, names)}"
            )
    return wanted


def _parsed(layout: _Layout, sep: str, decimal: str) -> pd.DataFrame:
    return pd.read_csv(
        io.StringIO(layout.body),
        sep=sep,
        decimal=decimal,
        header=None,
        index_col=False,
        skipinitialspace=True,
        skip_blank_lines=False,
        low_memory=False,
    )


def _numbers(path: Path, layout: _Layout, name: str, column: pd.Series, decimal: str, missing: str) -> Array:
    if column.dtype.kind not in "iuf":
        column = _converted(path, layout, name, column, decimal)
    values = column.to_numpy(dtype=np.float64)
    # Compared as integers: as floats they have been rounded already.
    if column.dtype.kind in "iu":
        _check_integers(path, layout, name, column, ((column > _LARGEST_EXACT) | (column < -_LARGEST_EXACT)).to_numpy())
    infinite, absent = np.isinf(values), np.isnan(values)
    if infinite.any():
        raise DataError(
            f"{path}: column {name!r} has {int(infinite.sum())} infinite value(s), in line(s) {_some(layout, infinite)}; "
            "correct or remove them"
        )
    if absent.any() and missing != "mask":
        raise DataError(
            f"{path}: column {name!r} has {int(absent.sum())} missing value(s), in line(s) {_some(layout, absent)}; fill "
            "or remove them, or pass missing='mask' to skip them"
        )
    return values


def _converted(path: Path, layout: _Layout, name: str, column: pd.Series, decimal: str) -> pd.Series:
    """A column that pandas did not take for numbers, if blanks were the only reason; otherwise the first reason why not."""
    numeric = column.dtype.kind != "b"
    text = column.astype("string").str.strip()
    absent = text.isna() | text.isin(["", "n/a", "N/A", "NA", "nan", "NaN", "null", "None"])
    plain = text if decimal == "." else text.str.replace(decimal, ".", regex=False)
    values = pd.to_numeric(plain.where(~absent), errors="coerce").astype("float64")
    wrong = (values.isna() & ~absent).to_numpy()
    whole = plain.str.fullmatch(r"[+-]?\d+").fillna(False).to_numpy(dtype=bool)
    _check_integers(path, layout, name, text, whole & (values.abs() > _LARGEST_EXACT).to_numpy())
    if not numeric:
        wrong = np.ones(len(column), dtype=bool)
    if not wrong.any():
        return values
    row = int(np.flatnonzero(wrong)[0])
    value = str(text.iloc[row])
    hint = ""
    if "," in value and decimal != ",":
        hint = "; if the comma is the decimal sign pass decimal=',', if it separates thousands remove it"
    elif "d" in value.lower() and _is_number(value.lower().replace("d", "e"), "."):
        hint = "; Fortran's exponent D must be written E"
    raise DataError(
        f"{path}, line {layout.lines[row]}: {value!r} in column {name!r} is not a number ({int(wrong.sum())} such "
        f"value(s)){hint}"
    )


def _check_integers(path: Path, layout: _Layout, name: str, column: pd.Series, beyond: Array) -> None:
    if beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        raise DataError(
            f"{path}, line {layout.lines[row]}: {column.iloc[row]} in column {name!r} is an integer beyond 2^53, which "
            "float64 cannot hold exactly; write it with a decimal point if that does not matter"
        )


def _is_number(text: str, decimal: str) -> bool:
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _some(layout: _Layout, which: Array) -> str:
    """The first few line numbers."""
    numbers = layout.lines[which]
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")

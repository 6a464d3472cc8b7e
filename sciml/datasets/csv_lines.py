"""The lines of CSV files, each with its number, for everything that has to be said about one of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sciml.errors import DataError, listed, nearest
from sciml.typing import Array

_OTHER_SEPARATORS = (";", "\t", "|")
_LARGEST_EXACT = 2**53
# From 3.1 on pandas reads every decimal number exactly, and warns of being asked to.
EXACTLY: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)


@dataclass(frozen=True)
class Lines:
    r"""The lines of a file of columns.

    Args:
        names: the header's.
        body: the text of the data lines.
        lines: their numbers in the file, shape ``(n,)``.

    Raises:
        DataError: never by itself; ``layout`` checks.

    Example:
        >>> import pathlib
        >>> from sciml.datasets.csv_lines import layout
        >>> layout(pathlib.Path("pelts.csv"), "# by hand\n t, u\n\n0, 1\n", ",", ".", "#").lines.tolist()
        [4]
    """

    names: list[str]
    body: str
    lines: Array


def layout(path: Path, text: str, sep: str, decimal: str, comment: str) -> Lines:
    """The header and the data lines of a text, comments and blank lines left out.

    Raises:
        DataError: empty, no header or rows, doubled names, a wrong separator, rows with too many or too few values.
    """
    kept = [
        (number, line)
        for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1)
        if (stripped := line.strip()) and not (comment and stripped.startswith(comment))
    ]
    if not kept:
        raise DataError(f"{path} is empty: a header line with the names of the columns and at least one row are needed")
    (first, header), rows = kept[0], kept[1:]
    names = [name.strip() for name in _cells(path, first, header, sep)]
    check_header(path, first, header, names, sep, decimal)
    if not rows:
        raise DataError(f"{path} has a header and no rows")
    _check_counts(path, rows, names, sep, decimal)
    return Lines(names, "\n".join(line for _, line in rows), np.array([number for number, _ in rows]))


def _cells(path: Path, number: int, line: str, sep: str) -> list[str]:
    """The values of a line."""
    try:
        return next(csv.reader([line], delimiter=sep, skipinitialspace=sep != " "), [])
    except csv.Error as error:
        raise DataError(f"{path}, line {number} ({len(line)} characters) cannot be cut into values: {error}") from error


def check_header(path: Path, line: int, header: str, names: list[str], sep: str, decimal: str) -> None:
    """Refuse a header that cannot be right.

    Raises:
        DataError: a wrong separator, numbers, a column without a name, a name that occurs twice.
    """
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
        found = len(_cells(path, number, line, sep))
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


def names_wanted(
    path: Path, names: list[str], columns: Mapping[str, str] | Sequence[str] | None, group: str | None
) -> dict[str, str]:
    """Names in the problem with those in the header, the group's left out.

    Raises:
        DataError: a column that the file does not have, or something else than names.
    """
    if group is not None and group not in names:
        raise DataError(
            f"{path} has no column {group!r} to group by; its columns are {listed(names)}.{nearest(group, names)}"
        )
    if columns is None:
        rest = {name: name for name in names if name != group}
        if not rest:
            raise DataError(f"{path} has no column beside {group!r}, which rows are grouped by; add one with numbers")
        return rest
    if isinstance(columns, str):
        columns = [columns]
    told = [*columns, *columns.values()] if isinstance(columns, Mapping) else columns
    if not isinstance(columns, Mapping | Sequence) or not all(isinstance(name, str) for name in told):
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


def parsed(path: Path, layout: Lines, sep: str, decimal: str, texts: Iterable[str]) -> pd.DataFrame:
    """The data lines as pandas sees them, columns numbered.

    Args:
        path: of the file.
        layout: the lines.
        sep, decimal: the character between values, and the decimal sign.
        texts: the columns that are kept as texts.

    Raises:
        DataError: quotes that do not belong together.
    """
    try:
        frame = pd.read_csv(
            io.StringIO(layout.body),
            sep=sep,
            decimal=decimal,
            header=None,
            index_col=False,
            # A blank that separates must not be skipped: the values after it would move.
            skipinitialspace=sep != " ",
            skip_blank_lines=False,
            low_memory=False,
            **EXACTLY,
            dtype={layout.names.index(name): str for name in texts},
        )
    except UnicodeError as error:
        raise DataError(f"{path} holds characters that are none in its encoding: {error}; give encoding=") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, IndexError) as error:
        raise DataError(f"{path} cannot be cut into columns by sep={sep!r}: {error}; are all quotes closed?") from error
    expected = (len(layout.lines), len(layout.names))
    if frame.shape != expected:
        raise DataError(
            f"{path} has {expected[0]} lines of values for {expected[1]} columns, which make {frame.shape[0]} rows of "
            f"{frame.shape[1]}; are all quotes closed?"
        )
    return frame


def check_points(
    path: Path, layout: Lines, sep: str, decimal: str, columns: Sequence[str], texts: Iterable[str] = ()
) -> None:
    """Refuse numbers with a point where something else is the decimal sign: ``1.250`` may be 1250, or 1.25.

    Args:
        path: of the file.
        layout: the lines.
        sep, decimal: the character between values, and the decimal sign.
        columns: of numbers.
        texts: other columns, in which points may be.

    Raises:
        DataError: the first such number, with its line.
    """
    if decimal == "." or "." not in layout.body:
        return
    frame = parsed(path, layout, sep, decimal, [*columns, *texts])
    for name in columns:
        column = frame[layout.names.index(name)].fillna("").str.strip()
        dotted = np.flatnonzero(column.str.contains(".", regex=False))
        for row in dotted:
            if _is_number(column.iloc[row].replace(".", ""), decimal):
                raise DataError(
                    f"{path}, line {layout.lines[row]}: {column.iloc[row]!r} in column {name!r} has a point, and "
                    f"decimal={decimal!r}; if points separate thousands remove them, if they are decimal signs pass decimal='.'"
                )


def numbers(path: Path, layout: Lines, name: str, column: pd.Series, decimal: str, missing: str) -> Array:
    """A column as float64, every value checked.

    Raises:
        DataError: the first value that is no number, or lines of values that are missing or infinite.
    """
    if column.dtype.kind not in "iuf":
        column = _converted(path, layout, name, column, decimal)
    values = column.to_numpy(dtype=np.float64)
    # Compared as integers: as floats they have been rounded already.
    if column.dtype.kind in "iu":
        _check_integers(path, layout, name, column, ((column > _LARGEST_EXACT) | (column < -_LARGEST_EXACT)).to_numpy())
    check_finite(path, layout, name, values, missing)
    return values


def check_finite(path: Path, layout: Lines, name: str, values: Array, missing: str) -> None:
    """Refuse infinite values, and missing ones unless they are to be masked.

    Raises:
        DataError: with their lines.
    """
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


def _converted(path: Path, layout: Lines, name: str, column: pd.Series, decimal: str) -> pd.Series:
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


def _check_integers(path: Path, layout: Lines, name: str, column: pd.Series, beyond: Array) -> None:
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


def _some(layout: Lines, which: Array) -> str:
    """The first few line numbers."""
    numbers = layout.lines[which]
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")

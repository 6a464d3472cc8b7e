"""CSV files: columns of numbers parsed by pandas; where a value is refused, its line and the reason are found.

The parser sees the data lines as they stand. Only where the text could mislead it (comments, quotes, blank lines, rows with
too many or too few values) is it cut into lines first, each with its number.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sciml._text import listed, mapping
from sciml.data.arrays import LARGEST_EXACT, checked_path, finished, wanted_names
from sciml.data.memory import check_memory, readable
from sciml.data.provenance import stamp
from sciml.data.table import Table
from sciml.data.units import Units, cast, check_casts
from sciml.errors import DataError
from sciml.typing import Array

_OTHER_SEPARATORS = (";", "\t", "|", ",")
_ABSENT = ["", "n/a", "N/A", "NA", "nan", "NaN", "null", "None"]
_LINE, _BLANK = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)"), re.compile(r"\n\s*(?:\n|\Z)")
# From 3.1 on pandas reads every decimal number exactly, and warns of being asked to.
_EXACTLY: dict[str, Any] = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
_GZIP = b"\x1f\x8b"
# Measured columns compress by a factor of two to ten.
_LIKELY = 100
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
    path, texts = checked_path(path, "read_csv"), (sep, decimal, comment, encoding)
    if not all(isinstance(each, str) for each in texts):
        raise DataError(f"sep, decimal, comment and encoding must be texts; given: {texts!r}")
    if len(sep) != 1 or len(decimal) != 1 or sep == decimal:
        raise DataError(f"sep and decimal must be two different single characters; given: {sep!r} and {decimal!r}")
    if {sep, decimal} & set('\r\n"\0'):
        raise DataError(f"sep and decimal cannot be ends of lines, quotes or NUL; given: {sep!r} and {decimal!r}")
    mapping("casts", casts, "{'on': 'bool'}")
    before = stamp(path) if path.is_file() else (0, 0)
    file = _File(path, _decoded(path, _content(path, memory, largest), encoding), sep, decimal, comment, memory)
    wanted = wanted_names(path, columns, file.names, file.names, group)
    asked = check_casts(casts, list(wanted))
    kept = {wanted[name] for name in asked} | ({group} if group is not None else set())
    body, frame = file.parsed([each for each in wanted.values() if each not in kept], kept)
    values: dict[str, Any] = {}
    for ours, theirs in wanted.items():
        column = frame[file.names.index(theirs)]
        if ours in asked:
            values[ours] = cast(str(path), theirs, column, asked[ours], lambda row: f"line {body.lines[row]}")
        else:
            values[ours] = _numbers(file, body, theirs, column)
        _check_finite(file, body, theirs, values[ours], missing)
    labels = None if group is None else frame[file.names.index(group)]
    if labels is not None and labels.isna().any():
        line = body.lines[int(np.flatnonzero(labels.isna())[0])]
        raise DataError(f"{path}, line {line}: no value in {group!r}, which rows are grouped by; name its group")
    stated = {name: how for name, how in asked.items() if how != "bool"}
    return finished(path, "read_csv", values, stated, options, before, ["pandas"], labels)


def _content(path: Path, memory: int | None, largest: int | None) -> bytes:
    """The bytes of a file, unpacked if gzip packed it, within the memory and the size that are allowed."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder; give the path of a file")
        size = path.stat().st_size
        check_memory(path, 3 * size, memory, _REMEDY)
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not raw.startswith(_GZIP):
        return raw
    if largest is not None and not (isinstance(largest, int) and largest > 0):
        raise DataError(f"largest must be a number of bytes; given: {largest!r}")
    limit = max(_LIKELY * size, 2**20) if largest is None else min(largest, sys.maxsize - 1)
    parts, room = [], limit + 1
    while raw and room:
        machine = zlib.decompressobj(wbits=31)
        try:
            parts.append(machine.decompress(raw, room))
        except zlib.error as error:
            raise DataError(f"{path} is a damaged gzip file: {error}; get it again") from error
        room -= len(parts[-1])
        if room and not machine.eof:
            raise DataError(f"{path} is a gzip file that was cut short; get it again")
        raw = machine.unused_data.lstrip(b"\0")
    if not room:
        raise DataError(
            f"{path} unpacks to more than {readable(limit)} from {readable(size)}; if that is right pass largest=<bytes>"
        )
    check_memory(path, 3 * (limit + 1 - room), memory, _REMEDY)
    return b"".join(parts)


def _decoded(path: Path, raw: bytes, encoding: str) -> str:
    """The text that bytes stand for, without a byte-order mark."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and "16" not in encoding:
        raise DataError(f"{path} is encoded in UTF-16; pass encoding='utf-16'")
    try:
        decoded = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: not {encoding} text (byte {raw[error.start]:#04x}); if it comes from an older Windows "
            "program pass encoding='cp1252', otherwise the encoding it was written in"
        ) from error
    except LookupError:
        raise DataError(f"there is no encoding {encoding!r}") from None
    if "\0" in decoded:
        line = decoded[: decoded.index("\0")].count("\n") + 1
        raise DataError(f"{path}, line {line}: a NUL character; not a text file?")
    return decoded


class _Body(NamedTuple):
    """The data lines as one text, and the number of each in the file."""

    text: str
    lines: Sequence[int]


class _File:
    """A text with a header line, and how it is cut into columns."""

    def __init__(self, path: Path, text: str, sep: str, decimal: str, comment: str, memory: int | None) -> None:
        self.path, self.sep, self.decimal, self.memory = path, sep, decimal, memory
        self._text, self._comment = text, comment
        lines = enumerate(_LINE.finditer(text), start=1)
        number, match = next(((number, match) for number, match in lines if self._counts(match[1])), (0, None))
        if match is None:
            raise DataError(f"{path} is empty: a header line with names of columns and at least one row are needed")
        self._number, self._start = number, match.end()
        self.names = [name.strip() for name in self._cells(number, match[1])]
        self._check_header(f"{path}, line {number}", match[1].strip())

    def parsed(self, numeric: Sequence[str], texts: Iterable[str]) -> tuple[_Body, pd.DataFrame]:
        """The data lines, and what pandas makes of them with its columns numbered, ``texts`` left as they are."""
        body = self._plain()
        frame = None if body is None else self._parse(body, numeric, texts)
        if body is None or frame is None:
            body = self._each_line()
            frame = self._parse(body, numeric, texts, last=True)
            assert frame is not None
        return body, frame

    def _counts(self, line: str) -> bool:
        """A line that is neither blank nor a comment."""
        stripped = line.strip()
        return bool(stripped) and not (self._comment and stripped.startswith(self._comment))

    def _cells(self, number: int, line: str) -> list[str]:
        try:
            return next(csv.reader([line], delimiter=self.sep, skipinitialspace=self.sep != " "), [])
        except csv.Error as error:
            raise DataError(
                f"{self.path}, line {number} ({len(line)} characters) cannot be cut into values: {error}"
            ) from error

    def _check_header(self, where: str, header: str) -> None:
        """Refuse a header with a wrong separator, numbers, a column without a name, or a name that occurs twice."""
        names, sep = self.names, self.sep
        other = next((each for each in _OTHER_SEPARATORS if each != sep and each in header), None)
        if len(names) == 1 and other is not None:
            raise DataError(f"{where}: separated by {sep!r} the header is one column, {header!r}; pass sep={other!r}")
        if all(_is_number(name, self.decimal) for name in names):
            raise DataError(
                f"{where}: the header is numeric ({header!r}): the file has no header line; add one with the names of the "
                "columns"
            )
        if "" in names:
            raise DataError(f"{where}: column {names.index('') + 1} has no name in {header!r} (a trailing {sep!r}?)")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"{where}: the column {listed(twice)} occurs more than once; rename one of them")

    def _plain(self) -> _Body | None:
        """The data lines as they stand, if nothing in them has to be left out and they have as many separators as they should.

        A row with too many values is refused by the parser. So if there are as many separators as rows need together, no row
        has too few either, and no value has moved.
        """
        text = self._text[self._start :].rstrip("\r\n")
        if '"' in text or (self._comment and self._comment[0] in text):
            return None
        if "\r" in text and text.count("\r") != text.count("\r\n"):
            return None
        # Elsewhere blank lines have too few separators.
        if (len(self.names) == 1 or self.sep.isspace()) and _BLANK.search("\n" + text):
            return None
        rows = _count(text, "\n") + 1
        if _count(text, self.sep) != rows * (len(self.names) - 1):
            return None
        return _Body(text, range(self._number + 1, self._number + 1 + rows))

    def _each_line(self) -> _Body:
        """The data lines one by one, comments and blank lines left out, and the number of values in each checked."""
        # Some eight times the text: each line, its number, and the values as texts.
        check_memory(self.path, 8 * len(self._text), self.memory, _REMEDY)
        rest = _LINE.finditer(self._text, self._start)
        rows = [(number, match[1]) for number, match in enumerate(rest, self._number + 1) if self._counts(match[1])]
        if not rows:
            raise DataError(f"{self.path} has a header and no rows")
        for number, line in rows:
            self._check_count(number, line)
        return _Body("\n".join(line for _, line in rows), [number for number, _ in rows])

    def _check_count(self, number: int, line: str) -> None:
        expected = len(self.names)
        found = line.count(self.sep) + 1 if '"' not in line else 0
        if found != expected and (found := len(self._cells(number, line))) != expected:
            hint = ""
            if found > expected and self.sep == "," and self.decimal == ".":
                hint = "; if the comma is the decimal sign, the file needs another separator, and decimal=','"
            if line.rstrip().endswith(self.sep):
                hint = f"; the line ends with a {self.sep!r}"
            raise DataError(
                f"{self.path}, line {number}: {found} values for {expected} columns ({listed(self.names)}): "
                f"{line.strip()!r}{hint}"
            )

    def _parse(self, body: _Body, numeric: Iterable[str], texts: Iterable[str], last: bool = False) -> pd.DataFrame | None:
        """What pandas makes of the data lines; None where it refuses them, an error if these are the ``last`` ones."""
        places, end = {self.names.index(name) for name in (*numeric, *texts)}, len(self.names) - 1
        some = not last and len(places) < len(self.names)
        try:
            frame = pd.read_csv(
                io.BytesIO(body.text.encode()),
                sep=self.sep,
                decimal=self.decimal,
                header=None,
                index_col=False,
                usecols=sorted({*places, end}) if some else None,
                # A blank that separates must not be skipped: the values after it would move.
                skipinitialspace=self.sep != " " and " " in body.text,
                skip_blank_lines=False,
                low_memory=False,
                dtype={self.names.index(name): str for name in texts},
                **_EXACTLY,
            )
        except UnicodeError as error:
            raise DataError(f"{self.path} holds characters that are none in its encoding: {error}; give encoding=") from error
        except (IndexError, ValueError) as error:
            if not last:
                return None
            raise DataError(f"{self.path} cannot be cut by sep={self.sep!r}: {error}; are all quotes closed?") from error
        rows, width = len(body.lines), len(self.names)
        # Of some columns pandas accepts rows with too many values, and then another row misses its last one.
        if not last and (len(frame) != rows or (frame[end].isna().any() if some else frame.shape[1] != width)):
            return None
        if last and frame.shape != (rows, width):
            raise DataError(
                f"{self.path} has {rows} lines of values for {width} columns, which make {frame.shape[0]} rows of "
                f"{frame.shape[1]}; are all quotes closed?"
            )
        return frame


def _numbers(file: _File, body: _Body, name: str, column: pd.Series) -> Array:
    """A column as float64, if each value is a number that float64 holds, or missing."""
    beyond = None
    if column.dtype.kind in "iu":
        # Compared as integers: as floats they have been rounded already.
        beyond = ((column > LARGEST_EXACT) | (column < -LARGEST_EXACT)).to_numpy()
    elif column.dtype.kind != "f":
        text = column.astype("string").str.strip()
        pointed = text.str.contains(".", regex=False).fillna(False).to_numpy(dtype=bool) & (file.decimal != ".")
        for row in np.flatnonzero(pointed).tolist():
            # It may be 1250, or 1.25.
            if _is_number(text.iloc[row].replace(".", ""), file.decimal):
                raise DataError(
                    f"{file.path}, line {body.lines[row]}: {text.iloc[row]!r} in column {name!r} has a point, and "
                    f"decimal={file.decimal!r}; if points separate thousands remove them, if they are decimal signs pass "
                    "decimal='.'"
                )
        plain = text if file.decimal == "." else text.str.replace(file.decimal, ".", regex=False)
        absent = text.isna() | text.isin(_ABSENT)
        values = pd.to_numeric(plain.where(~absent), errors="coerce").astype("float64")
        whole = plain.str.fullmatch(r"[+-]?\d+").fillna(False).to_numpy(dtype=bool)
        beyond = whole & (values.abs() > LARGEST_EXACT).to_numpy()
    if beyond is not None and beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        raise DataError(
            f"{file.path}, line {body.lines[row]}: {str(column.iloc[row]).strip()} in column {name!r} is an integer beyond "
            "2^53, which float64 cannot hold exactly; write it with a decimal point if that does not matter"
        )
    if column.dtype.kind in "iuf":
        return column.to_numpy(dtype=np.float64)
    wrong = (values.isna() & ~absent).to_numpy() | (column.dtype.kind == "b")
    if not wrong.any():
        return values.to_numpy()
    row = int(np.flatnonzero(wrong)[0])
    value, hint = str(text.iloc[row]), ""
    if "," in value and file.decimal != ",":
        hint = "; if the comma is the decimal sign pass decimal=',', if it separates thousands remove it"
    elif "d" in value.lower() and _is_number(value.lower().replace("d", "e"), "."):
        hint = "; Fortran's exponent D must be written E"
    raise DataError(
        f"{file.path}, line {body.lines[row]}: {value!r} in column {name!r} is not a number ({int(wrong.sum())} such "
        f"value(s)){hint}"
    )


def _check_finite(file: _File, body: _Body, name: str, values: Array, missing: str) -> None:
    """Refuse infinite values, and missing ones unless they are to be masked, with their lines."""
    for wrong, what, remedy in (
        (np.isinf(values), "infinite", "correct or remove them"),
        (np.isnan(values), "missing", "fill or remove them, or pass missing='mask' to skip those of measured values"),
    ):
        if wrong.any() and (what == "infinite" or missing != "mask"):
            lines = [str(body.lines[row]) for row in np.flatnonzero(wrong)[:6]]
            raise DataError(
                f"{file.path}: column {name!r} has {int(wrong.sum())} {what} value(s), in line(s) "
                f"{', '.join(lines[:5])}{', …' if len(lines) > 5 else ''}; {remedy}"
            )


def _count(text: str, character: str) -> int:
    """How often a character occurs; several times as fast as ``str.count`` where it occurs often."""
    if not (character.isascii() and text.isascii()):
        return text.count(character)
    return int(np.count_nonzero(np.frombuffer(text.encode(), dtype=np.uint8) == ord(character)))


def _is_number(text: str, decimal: str) -> bool:
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True

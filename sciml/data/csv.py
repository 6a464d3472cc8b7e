"""Reading CSV files so that no number changes place or meaning without a word.

CSV files without anything odd, read at nearly the speed of pandas.

The lines of CSV files, each with its number, for everything that has to be said about one of them.

The bytes and the text of a file, unpacked within limits.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from sciml._text import listed, mapping, nearest
from sciml.data.casts import cast, check_casts, unit_after
from sciml.data.memory import check_memory, readable
from sciml.data.provenance import provenance, stamp
from sciml.data.table import Table
from sciml.data.units import Units, conversions
from sciml.errors import DataError
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


_GZIP = b"\x1f\x8b"

# Measured columns compress by a factor of two to ten.
_LIKELY = 100

_SMALL = 2**20

_PIECE = 2**20


def packed(path: Path) -> bool:
    """Whether a file is packed by gzip; False if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _GZIP
    except OSError:
        return False


def content(path: Path, memory: int | None, largest: int | None, remedy: str) -> bytes:
    """A file's bytes; those of a gzip file unpacked.

    Args:
        path: of the file.
        memory: the bytes that reading may take; None stands for half of what is free.
        largest: the bytes that a compressed file may unpack to; None stands for a hundred times its size, and at least a MiB.
        remedy: what to do about a file that is larger than memory.

    Raises:
        DataError: it cannot be read, needs more memory, is damaged, or unpacks to more.
    """
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder; give the path of a file")
        size = path.stat().st_size
        check_memory(path, 3 * size, memory, remedy)
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not raw.startswith(_GZIP):
        return raw
    if largest is not None and not (isinstance(largest, int) and largest > 0):
        raise DataError(f"largest must be a number of bytes; given: {largest!r}")
    limit = max(_LIKELY * size, _SMALL) if largest is None else largest
    parts, unpacked = [], 0
    while raw:
        machine = zlib.decompressobj(wbits=31)
        piece = raw
        while True:
            try:
                part = machine.decompress(piece, _PIECE)
            except zlib.error as error:
                raise DataError(f"{path} is a damaged gzip file: {error}; get it again") from error
            parts.append(part)
            unpacked += len(part)
            if unpacked > limit:
                raise DataError(
                    f"{path} unpacks to more than {readable(limit)} from {readable(size)}; if that is right pass "
                    "largest=<bytes>"
                )
            piece = machine.unconsumed_tail
            if machine.eof:
                break
            if not piece and not part:
                raise DataError(f"{path} is a gzip file that was cut short; get it again")
        raw = machine.unused_data.lstrip(b"\0")
    check_memory(path, 3 * unpacked, memory, remedy)
    return b"".join(parts)


def text(path: Path, raw: bytes, encoding: str) -> str:
    """The text that bytes stand for.

    Raises:
        DataError: not text in that encoding; a NUL character.
    """
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


_LIKE_ASCII = ("utf-8", "ascii", "iso8859-1", "cp1252", "utf-8-sig")

_LARGEST_EXACT = 2**53

# A block stays in the processor's cache while it is looked through.
_BLOCK = 2**18

_NEWLINE, _RETURN = 10, 13


def quick(
    path: Path,
    raw: bytes | None,
    columns: Mapping[str, str] | Sequence[str] | None,
    group: str | None,
    sep: str,
    decimal: str,
    comment: str,
    encoding: str,
) -> tuple[dict[str, Any], list[str] | None] | None:
    """The columns, and the name of each row's group; None where anything is odd, whatever it is.

    A row with too few values misses its last one. So if the last column is complete, and there are as many separators as
    there should be, every row has the right number of values, and none has moved.

    Args:
        path: of the file.
        raw: its content if it had to be unpacked; None if it is to be read from the file.
        columns, group, sep, decimal, comment, encoding: as in ``read_csv``.

    Raises:
        DataError: a header that cannot be right, or columns that it does not have.
    """
    try:
        if codecs.lookup(encoding).name not in _LIKE_ASCII or not (sep + decimal + comment).isascii():
            return None
        with io.BytesIO(raw) if raw is not None else path.open("rb", buffering=0) as file:
            found = _header(file, comment)
            if found is None:
                return None
            header, number = found
            scanned = _scanned(file, sep, decimal, comment)
    except (LookupError, OSError):
        return None
    if scanned is None:
        return None
    separators, blanks = scanned
    names = [name.strip() for name in header.split(sep)]
    check_header(path, number, header, names, sep, decimal)
    wanted = names_wanted(path, names, columns, group)
    last = len(names) - 1
    kinds: dict[int, Any] = {last: str, **({names.index(group): str} if group is not None else {})}
    kinds |= {names.index(each): "float64" for each in wanted.values() if each != group}

    def parsed(kinds: Mapping[int, Any] | None, places: list[int]) -> pd.DataFrame:
        return pd.read_csv(
            io.BytesIO(raw) if raw is not None else path,
            sep=sep,
            decimal=decimal,
            header=None,
            skiprows=number,
            names=range(len(names)),
            # Choosing among the columns takes time as well.
            usecols=None if len(places) == len(names) else places,
            index_col=False,
            # It costs a tenth of the time.
            skipinitialspace=blanks and sep != " ",
            low_memory=kinds is not None,
            dtype=kinds,
            **EXACTLY,
        )

    try:
        frame = parsed(kinds, sorted(kinds))
        if not len(frame) or frame[last].isna().any() or separators != len(frame) * last:
            return None
        values = {ours: frame[names.index(theirs)].to_numpy(dtype=np.float64) for ours, theirs in wanted.items()}
        if not all(np.isfinite(each).all() for each in values.values()):
            return None
        large = [ours for ours, each in values.items() if max(-each.min(), each.max()) > _LARGEST_EXACT]
        # Integers of that size must not be rounded; numbers with a decimal point may.
        if large and any(parsed(None, [names.index(wanted[ours])]).dtypes.iloc[0].kind != "f" for ours in large):
            return None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, IndexError, OSError):
        return None
    if group is None:
        return values, None
    labels = frame[names.index(group)]
    return None if labels.isna().any() else (values, labels.tolist())


def _header(file: IO[bytes], comment: str) -> tuple[str, int] | None:
    """The header line, and its number; None for one that is not plain text. The file is left at the line after it."""
    at, number, rest = 0, 0, b""
    while True:
        while b"\n" not in rest:
            block = file.read(_BLOCK)
            if not block:
                return None
            rest += block
        end = rest.index(b"\n") + 1
        line = rest[:end].removesuffix(b"\n").removesuffix(b"\r")
        line = (line.removeprefix(codecs.BOM_UTF8) if not number else line).strip()
        at, number, rest = at + end, number + 1, rest[end:]
        if not line.isascii() or b"\r" in line or b'"' in line or b"\0" in line:
            return None
        if line and not (comment and line.startswith(comment.encode())):
            file.seek(at)
            return line.decode("ascii"), number


def _scanned(file: IO[bytes], sep: str, decimal: str, comment: str) -> tuple[int, bool] | None:
    """How many separators there are in the rest of a file, and whether blanks; None unless it is plain lines of ASCII."""
    buffer, odd = bytearray(_BLOCK), [b'"', b"\0", *([comment[0].encode()] if comment else [])]
    if decimal != ".":
        odd.append(b".")
    block, code = np.frombuffer(buffer, dtype=np.uint8), ord(sep)
    found, blanks, returned = 0, False, False
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        found += int(np.count_nonzero(block[:count] == code))
        # What is left of the block before has been looked at already.
        blanks = blanks or b" " in buffer
        if not buffer.isascii() or any(each in buffer for each in odd):
            return None
        returns = (
            np.flatnonzero(block[:count] == _RETURN) if returned or b"\r" in buffer else np.empty(0, dtype=np.int64)
        )
        if returned and block[0] != _NEWLINE:
            return None
        returned = bool(len(returns)) and returns[-1] == count - 1
        if not (block[returns[: len(returns) - returned] + 1] == _NEWLINE).all():
            return None
    if returned:
        return None
    return found, blanks


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

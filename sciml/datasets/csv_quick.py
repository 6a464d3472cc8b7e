"""CSV files without anything odd, read at nearly the speed of pandas."""

from __future__ import annotations

import codecs
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from sciml.datasets.csv_lines import EXACTLY, check_header, names_wanted

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

"""The bytes and the text of a file, unpacked within limits."""

from __future__ import annotations

import codecs
import zlib
from pathlib import Path

from sciml.datasets.limits import check_memory, readable
from sciml.errors import DataError

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

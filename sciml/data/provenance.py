"""Provenance of numbers: the file, its checksum, and how it was read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sciml.errors import DataError


@dataclass(frozen=True)
class Provenance:
    """A file that numbers were read from, and how; ``stamp`` is its size in bytes and time of change in nanoseconds."""

    path: Path
    reader: str
    rows: int
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    stamp: tuple[int, int] = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        """The checksum of the file, computed at the first use; a ``DataError`` if the file is gone or has changed."""
        try:
            if stamp(self.path) != self.stamp:
                raise DataError(f"{self.path} has changed since it was read; read it again")
            return digest_of(self.path)
        except OSError as error:
            raise DataError(f"cannot read {self.path} any more: {error.strerror or error}") from error

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values; the checksum is None if the file is gone or has changed."""
        try:
            checksum: str | None = self.sha256
        except DataError:
            checksum = None
        plain = str | int | float | None
        return {
            "path": str(self.path),
            "sha256": checksum,
            "rows": self.rows,
            "reader": self.reader,
            "options": {name: value if isinstance(value, plain) else repr(value) for name, value in self.options.items()},
            "versions": dict(self.versions),
        }


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(path: Path) -> tuple[int, int]:
    """Size and time of change of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def installed(package: str) -> str:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def provenance(
    path: Path,
    reader: str,
    rows: int,
    options: Mapping[str, Any],
    before: tuple[int, int],
    packages: Sequence[str] = (),
) -> Provenance:
    """The record of a file that has just been read; ``before`` is its stamp before, and options left at None are left out."""
    versions = {name: installed(name) for name in ("sciml", "numpy", *packages)}
    stated = {name: value for name, value in options.items() if value is not None}
    return Provenance(path, reader, rows, stated, versions, before)

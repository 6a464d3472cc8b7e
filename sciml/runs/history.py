"""Training history as JSON Lines: one JSON object for each report on held-out rows."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from sciml.data import archive
from sciml.errors import ArchiveWarning, FileError


class Lines:
    """The file of a history, whose first ``keep`` lines are right; where it cannot be written it ends, with a warning."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self._path, self._count = path, 0
        self._file: FileIO | None = None
        try:
            # Lines that are damaged are written anew, as those that are missing.
            old = _whole(path.read_bytes())[:keep] if keep and path.exists() else []
            archive.write_atomic(path, b"".join(old))
            self._count = len(old)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close
        except OSError as error:
            self._fail(error)

    def write(self, index: int, content: Mapping[str, Any]) -> None:
        """Write the line of a number, unless it is there."""
        if index < self._count or self._file is None:
            return
        rest = memoryview((json.dumps(finite(content)) + "\n").encode())
        try:
            while rest:
                # A disk that becomes full takes a part.
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self._fail(error)
        self._count = index + 1

    def flush(self) -> None:
        """Have all lines written through to the disk."""
        try:
            if self._file is not None:
                os.fsync(self._file.fileno())
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _fail(self, error: OSError) -> None:
        self.close()
        self._file = None
        warnings.warn(f"{self._path} ends here, the fit goes on: {error}", ArchiveWarning, stacklevel=3)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a history, up to the first that is none; a ``FileError`` where it cannot be read."""
    try:
        return [json.loads(line) for line in _whole(path.read_bytes())]
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}") from error


def _whole(content: bytes) -> list[bytes]:
    """The lines up to the first that is cut off or none of ours."""
    lines = content.splitlines(keepends=True)
    return list(itertools.takewhile(lambda line: line.endswith(b"\n") and json_object(line) is not None, lines))


def json_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError, MemoryError):
        return None
    return content if isinstance(content, dict) else None


def finite(content: Any) -> Any:
    """Nested values of JSON; numbers that are not finite, which JSON lacks, become None."""
    text = json.dumps(content, default=lambda value: value.item() if hasattr(value, "item") else str(value))
    return json.loads(text, parse_constant=lambda constant: None)

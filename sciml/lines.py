"""A history that grows line by line: one JSON object a look."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sciml import archive
from sciml.errors import ArchiveWarning, FileError


class Lines:
    """The file of a history, each line written as soon as it is known.

    A line that a crash has cut off is no line. Where the disk is full the fit goes on without lines, with one warning.

    Args:
        path: the file.
        keep: how many lines from the beginning are known to be right; later ones are written anew.

    Raises:
        FileError: the file cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> from sciml.lines import Lines, read_lines
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "history.jsonl"
        >>> lines = Lines(path)
        >>> lines.write(0, {"step": 50, "loss": 0.25})
        >>> lines.close()
        >>> read_lines(path)
        [{'step': 50, 'loss': 0.25}]
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        try:
            old = path.read_bytes().splitlines(keepends=True)[:keep] if keep and path.exists() else []
            whole = [line for line in old if line.endswith(b"\n")]
            archive.write_atomic(path, b"".join(whole))
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"cannot write {path}: {error}") from error
        self._path, self._count, self._failed = path, len(whole), False

    def write(self, index: int, content: Mapping[str, Any]) -> None:
        """Write the line of a number, unless it is there."""
        if index < self._count or self._failed:
            return
        try:
            self._file.write((json.dumps(_plain(content), default=str) + "\n").encode())
        except OSError as error:
            self._failed = True
            warnings.warn(f"{self._path} ends here, the fit goes on: {error}", ArchiveWarning, stacklevel=2)
        self._count = index + 1

    def flush(self) -> None:
        """Have all lines written through to the disk."""
        if not self._failed:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a history, up to the first that is none.

    Raises:
        FileError: the file cannot be read.
    """
    found: list[dict[str, Any]] = []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}") from error
    for line in content.splitlines(keepends=True):
        try:
            each = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not (line.endswith(b"\n") and isinstance(each, dict)):
            break
        found.append(each)
    return found


def _plain(value: Any) -> Any:
    """Numbers that are not finite become null: JSON has none."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

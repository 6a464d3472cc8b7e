"""Files that are either complete or not there: temporary file, fsync, rename."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from sciml.errors import FileError

FORMAT = 1


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, never a mixture.

    Raises:
        FileError: the file cannot be written (no space, no permission); an older file of that name is still there.
    """
    with replaced(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file beside another one to write to, which takes its place when the block ends well and vanishes when it does not.

    Raises:
        FileError: the file cannot be written (no space, no permission); an older file of that name is still there.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        yield Path(temporary)
        _flush(temporary)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        _flush(str(path.parent))
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot write {path}: {error}; what was there before is unchanged") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def _flush(path: str) -> None:
    """Have a file or directory written through to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(directory: Path) -> None:
    """Refuse a directory that cannot be written, before time is spent on what should go there.

    Raises:
        FileError: with the reason.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise FileError(f"cannot write into {directory}: {error}") from error


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Save tensors and plain values (numbers, texts, lists, dicts) in torch's format.

    Raises:
        FileError: the file cannot be written.
    """
    buffer = io.BytesIO()
    torch.save({"sciml_format": FORMAT, **content}, buffer)
    write_atomic(path, buffer.getvalue())


def load_tensors(path: Path) -> dict[str, Any]:
    """Load what ``save_tensors`` saved; code in the file is never run.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, or is not one of ours.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileError(f"there is no file {path}") from None
    except pickle.UnpicklingError as error:
        raise FileError(f"{path} holds more than tensors and plain values and was refused: {error}") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} cannot be read; it is damaged or not a saved solution: {error}") from error
    if not isinstance(content, dict) or content.get("sciml_format") != FORMAT:
        version = content.get("sciml_format") if isinstance(content, dict) else None
        raise FileError(f"{path} is not a saved solution of format {FORMAT} (found {version!r})")
    return content

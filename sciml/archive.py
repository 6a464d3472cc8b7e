"""Files that are either complete or not there: temporary file, fsync, rename; and tensors with their own checksum."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from sciml import payload
from sciml.errors import FileError

FORMAT = 2
PREVIOUS = ".previous"
# From this version of HDF5 on the structure of a file has checksums, and not only its numbers.
HDF5 = ("v110", "v110")
_HEADER = re.compile(rb"sciml ([0-9]{1,6}) ([0-9a-f]{64})\n")
_LENGTH = len(b"sciml 2 \n") + 64
# Distinguishes this process from a dead one that had the same number, as happens in containers.
_PROCESS = secrets.token_hex(4)
# A file's name may have 255 bytes, its temporary one 35 more than what is taken of it.
_TAKEN = 100
# What file systems answer that have no such thing.
_UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_TEMPORARY = re.compile(r"\..+?\.(?:(\d+)-([0-9a-f]{8})\.)?\w{8}\.tmp")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, never a mixture.

    Raises:
        FileError: the file cannot be written (no space, no permission); an older file of that name is still there.
    """
    with replaced(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file beside another one to write to, which takes its place when the block ends well and vanishes when it does not.

    It has the permissions of the other; where there is none, those of any new file. A symbolic link stays, and leads to it.

    Raises:
        FileError: the file cannot be written (no space, no permission); an older file of that name is still there.
    """
    path = followed(path)
    with temporary(path) as beside:
        yield beside
        settle(beside, path)
        moved(beside, path)


def followed(path: Path) -> Path:
    """Where a symbolic link leads, be there a file or not; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def moved(source: Path, target: Path) -> None:
    """Rename a file, for good before anything else is done.

    Raises:
        FileError: it has its new name, and that could not be written through to the disk.
    """
    os.replace(source, target)
    try:
        flush(target.parent)
    except OSError as error:
        raise FileError(
            f"{target} was replaced by the new file, which may not outlast a power failure: {error}; write it again"
        ) from error


@contextlib.contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """An empty file beside another one, gone when the block ends unless it was moved into the place of the other.

    Raises:
        FileError: anything that the system refuses within the block.
    """
    name = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = _made(path)
        yield Path(name)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot write {path}: {error}; what was there before is unchanged") from error
    finally:
        if name and os.path.exists(name):
            os.unlink(name)


def _made(path: Path) -> str:
    """Make the temporary file of another, which nobody may read who may not read that."""
    beginning = os.fsencode(path.name)[:_TAKEN].decode(errors="ignore") or "file"
    mode = _mode(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    while True:
        name = path.parent / f".{beginning}.{os.getpid()}-{_PROCESS}.{secrets.token_hex(4)}.tmp"
        with contextlib.suppress(FileExistsError):
            # The system takes off what the umask forbids; to ask for the umask would change it for other threads.
            os.close(os.open(name, flags, 0o666 if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR))
            return str(name)


def _mode(path: Path) -> int | None:
    """The permissions of a file; None if there is none."""
    try:
        found = path.stat().st_mode
    except OSError:
        return None
    return stat.S_IMODE(found) & 0o777 if stat.S_ISREG(found) else None


def settle(path: Path, target: Path) -> None:
    """Have a temporary file written through to the disk, with the permissions of the file whose place it will take."""
    flush(path)
    mode = _mode(target)
    if mode is not None and mode != _mode(path):
        try:
            os.chmod(path, mode)
        except OSError as error:
            # Where permissions cannot be changed, they say nothing either.
            if error.errno not in _UNSUPPORTED | {errno.EPERM, errno.EACCES}:
                raise


def flush(path: Path) -> None:
    """Have a file or directory written through to the disk; for directories not every file system has such a thing."""
    directory = path.is_dir()
    if os.name == "nt" and directory:
        return
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # One may write into a directory that one may not read.
        if not directory or error.errno not in _UNSUPPORTED | {errno.EACCES}:
            raise


def orphaned(name: str) -> bool:
    """Whether a file of this name is the temporary one of a writer that is dead."""
    found = _TEMPORARY.fullmatch(name)
    if found is None:
        return False
    if found[1] is None:
        return True
    process = int(found[1])
    if process == os.getpid():
        return found[2] != _PROCESS
    # On Windows signal 0 would end the process; an open file cannot be removed there anyway.
    return os.name == "nt" or not _alive(process)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def removed(path: Path) -> None:
    """Remove a file if it is there.

    Raises:
        FileError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"cannot remove {path}: {error}") from error


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


def packed(content: dict[str, Any]) -> bytes:
    """Tensors and plain values (numbers, texts, lists, dicts) as the bytes of a file.

    The file is torch's, after a line with the SHA-256 of all that follows it: a byte that changed anywhere is found out.

    Raises:
        FileError: it holds anything else, which could not be read again.

    Example:
        >>> from sciml import archive
        >>> archive.packed({"seed": 1})[:8]
        b'sciml 2 '
    """
    payload.check(content)
    buffer = io.BytesIO()
    torch.save({"sciml_format": FORMAT, **content}, buffer)
    inner = buffer.getbuffer()
    return b"".join([f"sciml {FORMAT} {hashlib.sha256(inner).hexdigest()}\n".encode(), inner])


def unpacked(data: bytes, path: Path) -> dict[str, Any]:
    """What ``packed`` packed, or torch's file alone, as version 0.1 wrote it; code in it is never run.

    Args:
        data: the whole content of a file.
        path: of the file, for messages.

    Raises:
        FileError: it is damaged, holds anything but tensors and plain values, or is not one of ours.

    Example:
        >>> import pathlib
        >>> from sciml import archive
        >>> archive.unpacked(archive.packed({"seed": 1}), pathlib.Path("a.pt"))["seed"]
        1
    """
    expected, inner = check(data, path)
    content = payload.tensors(inner, path, check=expected == 1)
    found = content.get("sciml_format")
    if type(found) is not int or found != expected:
        raise FileError(f"{path} is not a file of sciml's (format {FORMAT}); its format is {found!r}")
    return content


def check(data: bytes, path: Path) -> tuple[int, memoryview]:
    """The format of a file and what follows its header, which agrees with the checksum.

    Raises:
        FileError: it is damaged, or not one of ours.
    """
    if not data:
        raise FileError(f"{path} is damaged: it is empty")
    if data[:2] == b"PK":
        return 1, memoryview(data)
    header = _HEADER.fullmatch(data[:_LENGTH])
    if header is None:
        newer = _HEADER.match(data[: _LENGTH + 6])
        if newer is not None:
            raise FileError(f"{path} has format {int(newer[1])}, this sciml knows {FORMAT}: update sciml to read it")
        raise FileError(f"{path} is not a file of sciml's, or its beginning is damaged")
    if int(header[1]) != FORMAT:
        raise FileError(f"{path} has format {int(header[1])}, this sciml knows {FORMAT}: update sciml to read it")
    inner = memoryview(data)[_LENGTH:]
    if hashlib.sha256(inner).hexdigest().encode() != header[2]:
        raise FileError(f"{path} is damaged: its content does not agree with its checksum (SHA-256)")
    return FORMAT, inner


def state(path: Path) -> tuple[str, str]:
    """Whether a file alone is whole, damaged or missing, and what to do; ``unlisted`` where it has no checksum of its own.

    Example:
        >>> import pathlib
        >>> from sciml import archive
        >>> archive.state(pathlib.Path("nowhere.pt"))[0]
        'missing'
    """
    try:
        with path.open("rb") as file:
            own = file.read(6) == b"sciml "
        if own:
            check(read(path), path)
    except FileNotFoundError:
        return "missing", "write it again"
    except FileError as error:
        return "damaged", str(error)
    except OSError as error:
        return "damaged", f"it cannot be read: {error}"
    if own:
        return "whole", "nothing; it has a checksum of its own"
    return "unlisted", "nothing; it was not written as a file of the run, and cannot be checked"


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Save tensors and plain values (numbers, texts, lists, dicts) with a checksum.

    Raises:
        FileError: the file cannot be written.
    """
    write_atomic(path, packed(content))


def load_tensors(path: Path) -> dict[str, Any]:
    """Load what ``save_tensors`` saved; code in the file is never run.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, or is not one of ours; if the
            one before it is still there and whole, the message names it.
    """
    try:
        return unpacked(read(path), path)
    except FileError as error:
        earlier = path.parent / PREVIOUS / path.name
        if path.parent.name == PREVIOUS or not earlier.is_file():
            raise
        try:
            unpacked(read(earlier), earlier)
        except FileError:
            raise error from None
        raise FileError(f"{error}; the one saved before it is whole: load {earlier}") from error


def read(path: Path) -> bytes:
    """The content of a file.

    Raises:
        FileError: there is none, or it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"there is no file {path}") from None
    except (OSError, MemoryError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error or type(error).__name__}") from error

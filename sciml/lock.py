"""A lock on a directory that its holder cannot leave behind: it is the kernel's, and goes when the process goes."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import socket
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

from sciml.errors import ArchiveWarning, FileError

LOCK = ".lock"
_PATIENCE = 0.2
_PAUSE = 0.01
# Beyond the text, which others must be able to read: on Windows a locked byte cannot be read.
_FAR = 2**30
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class Lock:
    """The right to write into a directory, taken at once or not at all, until ``release`` or the end of the process.

    Args:
        directory: it is there already.

    Raises:
        FileError: another process holds it, named by number and host; or its file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> from sciml.lock import Lock
        >>> lock = Lock(pathlib.Path(tempfile.mkdtemp()))
        >>> lock.held
        True
        >>> lock.release()
    """

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise FileError(f"cannot write into {directory}: {error}") from error
        self._handle: int | None = handle
        try:
            self._take(directory)
            told = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, json.dumps(told).encode())
        except OSError as error:
            self._close()
            if isinstance(error, FileError):
                raise
            raise FileError(f"cannot write {path}: {error}") from error
        _held.add(self)

    def _take(self, directory: Path) -> None:
        assert self._handle is not None
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                _lock(self._handle, exclusive=True)
                return
            except OSError as error:
                if error.errno in _UNSUPPORTED:
                    warnings.warn(
                        f"the file system of {directory} has no locks ({error}): a second writer would not be noticed",
                        ArchiveWarning,
                        stacklevel=5,
                    )
                    return
                if error.errno not in _TAKEN:
                    raise FileError(
                        f"cannot lock {directory}: {error}; repair its file system, or choose another directory"
                    ) from error
            # Someone who looks whether there is a holder has it for a moment.
            if time.monotonic() > end:
                told = _told(directory)
                raise FileError(
                    f"{directory} is being written by process {told['pid']} on {told['host']} since {told['since']}: wait "
                    "until it ends, stop it, or choose another directory"
                )
            time.sleep(_PAUSE)

    @property
    def held(self) -> bool:
        """Whether it is still held."""
        return self._handle is not None

    def release(self) -> None:
        """Let others have it."""
        if self._handle is not None:
            # Who held it is of no interest any more; on a full disk the text may stay.
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            self._close()

    def _close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _held.discard(self)
            with contextlib.suppress(OSError):
                os.close(handle)


def holder(directory: Path) -> dict[str, Any] | None:
    """Who holds the lock of a directory: ``pid``, ``host``, ``since`` (``unknown`` if unreadable); None if nobody does.

    Example:
        >>> import pathlib
        >>> from sciml.lock import holder
        >>> holder(pathlib.Path("nowhere")) is None
        True
    """
    try:
        handle = os.open(
            directory / LOCK, (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
        )
    except OSError:
        return None
    try:
        _lock(handle, exclusive=False)
    except OSError as error:
        return _told(directory) if error.errno in _TAKEN else None
    finally:
        os.close(handle)
    return None


def _told(directory: Path) -> dict[str, Any]:
    """What the lock's file says of its holder."""
    unknown = dict.fromkeys(("pid", "host", "since"), "unknown")
    try:
        with (directory / LOCK).open("rb") as file:
            told = json.loads(file.read(4096))
    except (OSError, ValueError, RecursionError):
        return unknown
    return {key: told.get(key, "unknown") for key in unknown} if isinstance(told, dict) else unknown


def _lock(handle: int, *, exclusive: bool) -> None:
    """Take the kernel's lock on an open file at once, or raise ``OSError``; it goes when the file is closed."""
    if os.name == "nt":  # pragma: no cover
        import msvcrt

        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    import fcntl

    fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def _forget() -> None:
    """In a copy of the process: close what it has of its parent's locks, which would outlive the parent otherwise."""
    for each in list(_held):
        each._close()


_held: weakref.WeakSet[Lock] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

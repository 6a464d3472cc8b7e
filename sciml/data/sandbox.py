"""What libraries raise on damaged files, told as errors of ours.

HDF5 and .mat files looked at by a process of its own, since a damaged one can end or hang the process that reads it.

Their libraries trust sizes and addresses that a file holds: one wrong bit can make it read beyond its memory or go round
in a circle for ever, and neither is an error that could be caught. So what is to be read is first walked through by a helper,
``walker.py`` run as a program, which serves one process for as long as that lives. A helper that cannot be had, or that goes
wrong by itself, is no fault of the file: it is taken as it is then, with a warning.

The program that ``probe`` starts: it walks through HDF5 and .mat files as a reader would, for another process.

It loads h5py (and SciPy for .mat files) and nothing of this package, and ends or hangs in its reader's place.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sciml.errors import ArchiveWarning, DataError, SciMLError

_READ, _BLOCK = 2**24, 2**20

# Bytes a second that even slow compression and a busy machine reach, and seconds between signs of life.
_PACE, _SIGN = 2**25, 30.0

# Seconds to wait for a slow disk, for each byte of a file, and for the helper to start.
_PATIENCE, _SLOWEST, _START = 120.0, 2.0**-23, 60.0

_KEPT, _NOISE = 256, 2**20

_WALKER = Path(__file__).with_name("walker.py")

# Set in a helper: were it this very application once more, it would start helpers without end.
_INSIDE = "SCIML_READS_FOR_ANOTHER_PROCESS"

_ENDS, _HANGS = "reading it ends the process that reads it", "reading it does not come to an end"

# Others are sent from outside, such as SIGKILL where the system is out of memory.
_CRASHES = {
    -number
    for name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")
    if (number := getattr(signal, name, None)) is not None
}

_PROFILED = -getattr(signal, "SIGPROF", 0) or None

_WINDOWS_FAULT = 2**31


class Prober:
    """Has files walked through by a helper process.

    What was sound is not looked at again while the file is the same by its size and the time of its last change. Where no
    helper can be started, files are taken as they are, which is told once.

    Args:
        seconds: of work without coming to the next object after which a file is given up; more for large files.

    Raises:
        OSError: never; see ``probe``.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
        >>> h5py.File(file, "w").close()
        >>> prober = Prober()
        >>> prober.probe(file) is None
        True
        >>> prober.close()
    """

    def __init__(self, seconds: float = 4.0) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None
        self._owner = 0
        # None stands for all that a file holds.
        self._sound: dict[tuple[Any, ...], set[str] | None] = {}
        self._given_up = False
        self._token, self._number, self._heard = "", 0, b""

    def probe(self, path: Path, names: Iterable[str] | None = None) -> str | None:
        """Why a file must not be read in this process; None if nothing speaks against it.

        Args:
            path: of the file. If there is none, or it cannot be opened, that is for the reader to say.
            names: of the objects that will be read, with their parents; by default all of them.

        Raises:
            ArchiveWarning: the file is taken without having been looked at (a warning).
        """
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        key = (os.path.abspath(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        wanted = None if names is None else set(names)
        with self._lock:
            if key in self._sound:
                known = self._sound[key]
                if known is None or (wanted is not None and wanted <= known):
                    return None
                if wanted is not None:
                    wanted -= known
            try:
                reason, fault = self._looked(key[0], found.st_size, wanted)
            except BaseException:
                # Whatever it still answers would be taken for the answer to the next question.
                self._end()
                raise
            if reason is None:
                # Taken as it is, a file is not asked about again.
                self._remember(key, None if fault else wanted)
        if fault:
            warnings.warn(f"{fault}: {path} is read as it is; a damaged file may end the process", ArchiveWarning, 3)
        return reason

    def unlock(self) -> None:
        """Forget that another thread was at work, in a process that has been forked from it."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the helper; the next file starts another."""
        with self._lock:
            self._end()

    def _remember(self, key: tuple[Any, ...], names: set[str] | None) -> None:
        known = self._sound.get(key, set())
        self._sound[key] = None if names is None or known is None else known | names
        while len(self._sound) > _KEPT:
            del self._sound[next(iter(self._sound))]

    def _looked(self, path: str, size: int, names: set[str] | None) -> tuple[str | None, str | None]:
        """What is wrong with a file, and what went wrong with the helper instead."""
        ended = ""
        for fresh in (False, True):
            helper, was_there, fault = self._served(fresh)
            if helper is None:
                return None, fault
            kind, text = self._asked(helper, path, size, names)
            if kind == "sound":
                return None, None
            if kind == "wrong":
                return text, None
            code = self._end(kind == "ended")
            if kind == "silent" or code == _PROFILED:
                return _HANGS, None
            crashed = code in _CRASHES or code >= _WINDOWS_FAULT
            # A helper that an earlier file has damaged may end at a good one.
            if crashed and (fresh or not was_there):
                return _ENDS, None
            ended = (
                f"failed ({text})"
                if text
                else f"was ended by signal {-code}"
                if code < 0
                else f"ended with status {code}"
            )
        return None, f"the process that looks at files first {ended}"

    def _served(self, fresh: bool) -> tuple[subprocess.Popen[bytes] | None, bool, str | None]:
        """The helper, whether it has served before, and why there is none."""
        if self._helper is not None and self._owner != os.getpid():
            # It belongs to the process that this one was forked from.
            self._helper.returncode = 0
            self._helper = None
        if self._helper is not None and not fresh and self._helper.poll() is None:
            return self._helper, True, None
        self._end()
        if self._given_up or _INSIDE in os.environ:
            return None, False, None
        fault = _no_python() or self._started()
        if fault is not None:
            self._given_up = True
            fault = f"no process can be started that looks at HDF5 and .mat files first ({fault})"
        return self._helper, False, fault

    def _started(self) -> str | None:
        """Start a helper, and say what went wrong."""
        kind, code = "", 0
        for _ in range(2):
            self._token, self._number, self._heard = secrets.token_hex(8), 0, b""
            # Python itself passes over anything else that stands there.
            searched = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
            try:
                self._helper = subprocess.Popen(
                    # Without -P a file of the user's called json.py would be imported.
                    [sys.executable, "-P", "-c", _PROGRAM, searched, str(_WALKER), self._token, str(self.seconds)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    env={**os.environ, _INSIDE: "1"},
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                return str(error) or type(error).__name__
            self._owner = os.getpid()
            kind, _ = self._answer(self._helper, _START)
            if kind == "ready":
                return None
            code = self._end(kind == "ended")
            # Somebody else ended it, as Ctrl-C does before it is deaf to that.
            if kind != "ended" or code >= 0:
                break
        return f"it does not answer in {_START:g} s" if kind == "silent" else f"it ends with status {code}"

    def _asked(self, helper: subprocess.Popen[bytes], path: str, size: int, names: set[str] | None) -> tuple[str, str]:
        assert helper.stdin is not None
        self._number += 1
        asked = [self._number, path, None if names is None else sorted(names)]
        rest = memoryview(json.dumps(asked).encode() + b"\n")
        try:
            while rest:
                rest = rest[helper.stdin.write(rest) :]
        except OSError:
            return "ended", ""
        return self._answer(helper, _PATIENCE + size * _SLOWEST)

    def _answer(self, helper: subprocess.Popen[bytes], patience: float) -> tuple[str, str]:
        """Its answer to the last question; ``ended`` or ``silent`` if there is none. Whatever else it prints is left."""
        assert helper.stdout is not None
        handle, end = helper.stdout.fileno(), time.monotonic() + patience
        while True:
            line, complete, rest = self._heard.partition(b"\n")
            if complete:
                self._heard = rest
                if not line.startswith(f'["{self._token}", {self._number}, '.encode()):
                    continue
                _, _, kind, text = json.loads(line)
                if kind != "more":
                    return kind, text
                end = time.monotonic() + patience
            elif not _readable(handle, end - time.monotonic()):
                return "silent", ""
            else:
                try:
                    said = os.read(handle, 2**16)
                except OSError:
                    said = b""
                if not said:
                    return "ended", ""
                self._heard = (self._heard + said)[-_NOISE:]

    def _end(self, by_itself: bool = False) -> int:
        """End the helper, unless it is about to end; its exit status."""
        helper, self._helper = self._helper, None
        if helper is None or self._owner != os.getpid():
            return 0
        for pipe in (helper.stdin, helper.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        if by_itself:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return helper.wait(_PATIENCE / 4)
        helper.kill()
        return helper.wait()


def _readable(handle: int, seconds: float) -> bool:
    """Whether there is something to read before time is up; where that cannot be waited for, reading will wait."""
    if seconds <= 0:
        return False
    if not hasattr(select, "poll"):  # pragma: no cover
        return True
    # Unlike `select` it takes more than 1024 open files.
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _no_python() -> str | None:
    """Why this process's executable cannot be run as Python: in a frozen application it is the application itself."""
    if getattr(sys, "frozen", False):
        return "this is a frozen application"
    if not isinstance(sys.executable, str) or not sys.executable:
        return f"sys.executable is {sys.executable!r}"
    name = os.path.basename(sys.executable).lower()
    return None if "python" in name or "pypy" in name else f"{sys.executable} is no Python by its name"


_PROGRAM = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""

PROBER = Prober()

atexit.register(PROBER.close)

if hasattr(os, "register_at_fork"):
    # Another thread may have held the lock.
    os.register_at_fork(after_in_child=PROBER.unlock)

# What h5py, SciPy and xarray raise when sizes, names and addresses in a file contradict each other.
FOREIGN = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    NameError,
    NotImplementedError,
    EOFError,
    SystemError,
    zlib.error,
)

# Of the file system, not of the content.
_ELSEWHERE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EIO)


@contextlib.contextmanager
def refusals(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Run a block that reads a file; what a library raises because of the file's content becomes an error of ours.

    Args:
        path: of the file.
        kind: its format in words, such as ``an HDF5 file``.
        more: a library's own exceptions.

    Raises:
        DataError: the file is damaged, or needs more memory than there is.

    Example:
        >>> import pathlib
        >>> with refusals(pathlib.Path("run.h5"), "an HDF5 file"):
        ...     raise KeyError("bad object header version number")
        Traceback (most recent call last):
        sciml.errors.DataError: run.h5 is damaged or not an HDF5 file: bad object header version number; get it again
    """
    foreign: tuple[type[Exception], ...] = (*FOREIGN, *more)
    try:
        yield
    except SciMLError:
        raise
    except MemoryError as error:
        raise DataError(f"{path} asks for more memory than there is: it is too large, or damaged") from error
    except foreign as error:
        if isinstance(error, OSError) and error.errno in _ELSEWHERE:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        words = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        raise DataError(f"{path} is damaged or not {kind}: {words or type(error).__name__}; get it again") from error


def check_safe(path: Path, names: Iterable[str] | None = None) -> None:
    """Refuse an HDF5 or .mat file that would end or hang the process that reads it; others are left to their reader.

    Args:
        path: of the file.
        names: of the datasets or variables that are about to be read, with what lies on the way to them; none for the root
            or the list of variables alone, by default everything.

    Raises:
        DataError: with what is wrong.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
        >>> h5py.File(file, "w").close()
        >>> check_safe(file)
    """
    reason = PROBER.probe(path, names)
    if reason is not None:
        raise DataError(f"{path} is damaged: {reason}; it was not opened, get it again")

"""Damaged HDF5 and .mat files: a sandboxed trial reading in a helper process, and errors of libraries as errors of ours.

The libraries of these formats trust sizes and addresses that a file holds: one wrong bit can make them read beyond their
memory or go round in a circle for ever, and neither is an error that could be caught. So a helper process, which serves for
as long as this one lives, first does to a file what its reader will do (``walker``). A helper that cannot be had, or that goes
wrong by itself, is no fault of the file: it is taken as it is then, with a warning.
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
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sciml.errors import ArchiveWarning, DataError, SciMLError

# Seconds to wait for a slow disk, for each byte of a file, and for the helper to start.
_PATIENCE, _SLOWEST, _START = 120.0, 2.0**-23, 60.0
_KEPT = 256
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
# The packages themselves stay unread: their contents would load torch, which takes seconds.
_PROGRAM = """
import json, sys, types
sys.path[:] = json.loads(sys.argv[1])
for name, folder in (("sciml", sys.argv[2]), ("sciml.data", sys.argv[2] + "/data")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from sciml.data import walker
walker.serve(sys.argv[3], float(sys.argv[4]))
"""


class Prober:
    """Has files read on trial by a helper process."""

    def __init__(self, seconds: float = 4.0) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None
        self._owner, self._token, self._given_up = 0, "", False
        # None stands for all that a file holds.
        self._sound: dict[tuple[Any, ...], set[str] | None] = {}

    def probe(self, path: Path, names: Iterable[str] | None = None) -> str | None:
        """Why a file must not be read in this process; None if nothing speaks against it."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        key = (os.path.abspath(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        wanted = None if names is None else set(names)
        with self._lock:
            known = self._sound.get(key, set())
            if known is None or (key in self._sound and wanted is not None and wanted <= known):
                return None
            try:
                reason, fault = self._looked(key[0], found.st_size, None if wanted is None else wanted - known)
            except BaseException:
                # Whatever it still answers would be taken for the answer to the next question.
                self._end()
                raise
            if reason is None:
                # Taken as it is, a file is not asked about again.
                self._sound[key] = None if fault or wanted is None else known | wanted
                while len(self._sound) > _KEPT:
                    del self._sound[next(iter(self._sound))]
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

    def _looked(self, path: str, size: int, names: set[str] | None) -> tuple[str | None, str | None]:
        """What is wrong with a file, and what went wrong with the helper instead."""
        ended = ""
        for attempt in range(2):
            used = attempt == 0 and self._serves()
            if not used and (fault := self._started()) is not None:
                return None, fault or None
            question = json.dumps([path, None if names is None else sorted(names)])
            kind, text = self._answer(question, _PATIENCE + size * _SLOWEST)
            if kind in ("sound", "wrong"):
                return text or None, None
            code = self._end(kind == "ended")
            if kind == "silent" or code == _PROFILED:
                return _HANGS, None
            # A helper that an earlier file has damaged may end at a good one.
            if not used and (code in _CRASHES or code >= _WINDOWS_FAULT):
                return _ENDS, None
            how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
            ended = f"failed ({text})" if text else how
        return None, f"the process that looks at files first {ended}"

    def _serves(self) -> bool:
        """True if a helper of this very process runs."""
        if self._helper is not None and self._owner != os.getpid():
            # It belongs to the process that this one was forked from.
            self._helper.returncode = 0
            self._helper = None
        return self._helper is not None and self._helper.poll() is None

    def _started(self) -> str | None:
        """Start a helper; what went wrong, or nothing more than an empty text where that is known already."""
        self._end()
        if self._given_up or _INSIDE in os.environ:
            return ""
        fault = _no_python()
        for _ in range(2 if fault is None else 0):
            self._token, self._owner = secrets.token_hex(8), os.getpid()
            # Python itself passes over anything else that stands there.
            searched = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
            package = str(Path(__file__).parents[1])
            try:
                self._helper = subprocess.Popen(
                    # Without -P a file of the user's called json.py would be imported.
                    [sys.executable, "-P", "-c", _PROGRAM, searched, package, self._token, str(self.seconds)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, _INSIDE: "1"},
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                fault = str(error) or type(error).__name__
                break
            kind, _ = self._answer(None, _START)
            if kind == "ready":
                return None
            code = self._end(kind == "ended")
            fault = f"it does not answer in {_START:g} s" if kind == "silent" else f"it ends with status {code}"
            # Somebody else may have ended it, as Ctrl-C does before it is deaf to that.
            if kind == "silent" or code >= 0:
                break
        self._given_up = True
        return f"no process can be started that looks at HDF5 and .mat files first ({fault})"

    def _answer(self, question: str | None, patience: float) -> tuple[str, str]:
        """The helper's answer; ``ended`` or ``silent`` if there is none. Whatever else it prints is left."""
        assert self._helper is not None
        assert self._helper.stdin is not None
        try:
            if question is not None:
                self._helper.stdin.write(question.encode() + b"\n")
                self._helper.stdin.flush()
        except OSError:
            return "ended", ""
        while line := _heard(self._helper, patience):
            if line.startswith(self._token.encode()):
                kind, text = json.loads(line[len(self._token) :])
                if kind != "more":
                    return kind, text
        return "silent" if line is None else "ended", ""

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


def _heard(helper: subprocess.Popen[bytes], patience: float) -> bytes | None:
    """The next line that a process prints, nothing if it has ended; None if it is silent for too long."""
    assert helper.stdout is not None
    # Where it cannot be waited for, reading will wait. Unlike `select`, `poll` takes more than 1024 open files.
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(helper.stdout, select.POLLIN)
        if not poll.poll(1000 * patience):
            return None
    # What a buffer holds could not be waited for.
    return helper.stdout.raw.readline()  # type: ignore[attr-defined]


def _no_python() -> str | None:
    """Why this process's executable cannot be run as Python: in a frozen application it is the application itself."""
    if getattr(sys, "frozen", False):
        return "this is a frozen application"
    if not isinstance(sys.executable, str) or not sys.executable:
        return f"sys.executable is {sys.executable!r}"
    name = os.path.basename(sys.executable).lower()
    return None if "python" in name or "pypy" in name else f"{sys.executable} is no Python by its name"


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
    """Run a block that reads a file; what a library raises because of the file's content becomes an error of ours."""
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
    """Refuse an HDF5 or .mat file that would end or hang the process that reads it; others are left to their reader."""
    reason = PROBER.probe(path, names)
    if reason is not None:
        raise DataError(f"{path} is damaged: {reason}; it was not opened, get it again")

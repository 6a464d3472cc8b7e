"""HDF5 and .mat files looked at by a process of its own, since a damaged one can end or hang the process that reads it.

Their libraries trust sizes and addresses that a file holds: one wrong bit can make it read beyond its memory or go round
in a circle for ever, and neither is an error that could be caught. So every file is first walked through by a helper, this
file run as a program, which loads h5py (and SciPy for .mat files) and serves one process for as long as that lives.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Seconds to wait for a slow disk.
_PATIENCE = 120.0
_MEMORY = 2 * 2**30
_READ, _BLOCK = 2**24, 2**20
# HDF5 takes the bytes of a checksum off a chunk without looking whether there are as many.
_CHECKSUM = 4
_KEPT = 256
_ENDS, _HANGS = "reading it ends the process that reads it", "reading it does not come to an end"


class Prober:
    """Has files walked through by a helper process.

    A file that was sound is not looked at again while it is the same by its size and the time of its last change. Where no
    helper can be started, files are taken as they are.

    Args:
        seconds: of work without coming to the next object after which a file is given up.

    Raises:
        OSError: never; see ``probe``.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> from sciml.datasets.probe import Prober
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
        self._sound: dict[tuple[Any, ...], None] = {}

    def probe(self, path: Path) -> str | None:
        """Why a file must not be opened in this process; None if nothing speaks against it.

        Args:
            path: of the file. If there is none, or it cannot be opened, that is for the reader to say.
        """
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        key = (os.path.abspath(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        with self._lock:
            if key in self._sound:
                return None
            # A helper that an earlier file has damaged may end at a good one.
            for fresh in (False, True):
                helper, was_there = self._served(fresh)
                if helper is None:
                    return None
                reason = self._asked(helper, key[0])
                if reason != _ENDS or not was_there:
                    break
            if reason is None:
                self._sound[key] = None
                while len(self._sound) > _KEPT:
                    del self._sound[next(iter(self._sound))]
            return reason

    def unlock(self) -> None:
        """Forget that another thread was at work, in a process that has been forked from it."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the helper; the next file starts another."""
        with self._lock:
            self._end()

    def _served(self, fresh: bool) -> tuple[subprocess.Popen[bytes] | None, bool]:
        """The helper, and whether it has served before."""
        if self._helper is not None and self._owner != os.getpid():
            # It belongs to the process that this one was forked from.
            self._helper.returncode = 0
            self._helper = None
        if self._helper is not None and not fresh and self._helper.poll() is None:
            return self._helper, True
        self._end()
        try:
            self._helper = subprocess.Popen(
                # Without -P a file of the user's called json.py would be imported.
                [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), __file__, str(self.seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # So that nothing waits in a buffer while `select` waits for the pipe.
                bufsize=0,
            )
            self._owner = os.getpid()
        except OSError:
            return None, False
        if self._answer(self._helper) != "ready":
            self._end()
        return self._helper, False

    def _asked(self, helper: subprocess.Popen[bytes], path: str) -> str | None:
        assert helper.stdin is not None
        try:
            helper.stdin.write(json.dumps(path).encode() + b"\n")
            helper.stdin.flush()
            while (answer := self._answer(helper)) == "more":
                pass
        except OSError:
            answer = None
        if answer == "sound":
            return None
        if answer:
            return answer
        helper.kill()
        hung = helper.wait() in (-signal.SIGKILL, -getattr(signal, "SIGPROF", 0))
        self._end()
        return _HANGS if hung else _ENDS

    def _answer(self, helper: subprocess.Popen[bytes]) -> str | None:
        """The next line that it writes; None if it has ended or is silent for too long."""
        assert helper.stdout is not None
        if os.name == "posix" and not select.select([helper.stdout], [], [], _PATIENCE)[0]:
            return None
        line = helper.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _end(self) -> None:
        helper, self._helper = self._helper, None
        if helper is None or self._owner != os.getpid():
            return
        for pipe in (helper.stdin, helper.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        if helper.poll() is None:
            helper.kill()
        helper.wait()


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


def walked(path: str, alive: Callable[[], object]) -> str | None:
    """Do all that reading may do to a file, object by object; what is found wrong is told, what a library refuses is not.

    Args:
        path: of the file.
        alive: is called at every step.

    Returns:
        What is wrong with it, or None.
    """
    import h5py

    # Whatever is refused here the reader will be told as well.
    with contextlib.suppress(Exception):
        if not h5py.is_hdf5(path):
            _matrices(path)
            return None
        with h5py.File(path, "r") as file:
            return _groups(file, alive)
    return None


def _matrices(path: str) -> None:
    """Read a .mat file of version 4 to 7.2, which SciPy reads with as little care."""
    from scipy.io import loadmat

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loadmat(path, appendmat=False)


def _groups(file: Any, alive: Callable[[], object]) -> str | None:
    import h5py

    seen, groups, budget = set(), [file["/"]], _READ
    while groups:
        group = groups.pop()
        with contextlib.suppress(Exception):
            for name in group:
                alive()
                with contextlib.suppress(Exception):
                    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                        continue
                    thing = group[name]
                    address = h5py.h5o.get_info(thing.id).addr
                    if address in seen:
                        continue
                    seen.add(address)
                    _attributes(thing)
                    if isinstance(thing, h5py.Group):
                        groups.append(thing)
                    elif isinstance(thing, h5py.Dataset):
                        wrong, taken = _dataset(thing, budget, alive)
                        if wrong is not None:
                            return wrong
                        budget -= taken
    return None


def _attributes(thing: Any) -> None:
    for name in thing.attrs:
        with contextlib.suppress(Exception):
            thing.attrs[name]


def _dataset(dataset: Any, budget: int, alive: Callable[[], object]) -> tuple[str | None, int]:
    """What is wrong with a dataset, and how many bytes of it were read."""
    with contextlib.suppress(Exception):
        for dimension in dataset.dims:
            for place in range(len(dimension)):
                str(dimension[place].name)
    if dataset.is_virtual:
        list(dataset.virtual_sources())
        return None, 0
    if dataset.external or not dataset.shape or 0 in dataset.shape:
        return None, 0
    if dataset.chunks is not None:
        sizes: list[int] = []

        def look(chunk: Any) -> None:
            alive()
            if chunk.size < _CHECKSUM:
                sizes.append(chunk.size)

        dataset.id.chunk_iter(look)
        if sizes and dataset.fletcher32:
            return f"a chunk of {dataset.name!r} has {sizes[0]} bytes, fewer than its checksum", 0
    # What is packed is at most a thousand times as large.
    declared = dataset.dtype.itemsize * math.prod(dataset.shape)
    if budget <= 0 or declared > 1100 * dataset.id.get_storage_size() + _READ:
        return None, 0
    row = max(1, declared // dataset.shape[0])
    step = dataset.chunks[0] if dataset.chunks is not None else 1
    if row * step > budget:
        corner = dataset.chunks if dataset.chunks is not None else (1,) * len(dataset.shape)
        return None, dataset[tuple(slice(0, length) for length in corner)].nbytes
    step *= max(1, _BLOCK // (row * step))
    last = (dataset.shape[0] - 1) // step
    read = 0
    # The beginning, within what may be read, and the end.
    for number in sorted({*range(min(last, budget // (row * step)) + 1), last}):
        alive()
        read += getattr(dataset[number * step : (number + 1) * step], "nbytes", 0)
    return None, read


def _serve(seconds: float) -> None:
    """Walk through the files whose paths come line by line, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import h5py  # noqa: F401

    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def say(what: str) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    heard = 0.0

    def alive() -> None:
        nonlocal heard
        # Its signal ends the process; a handler in Python would never be called while HDF5 is at work.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, seconds)
        if time.monotonic() > heard + _PATIENCE / 4:
            heard = time.monotonic()
            say("more")

    say("ready")
    for line in sys.stdin:
        heard = time.monotonic()
        alive()
        found = walked(json.loads(line), alive)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
        say("sound" if found is None else found)


if __name__ == "__main__":
    _serve(float(sys.argv[3]))

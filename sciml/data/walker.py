"""Reading HDF5 and .mat files on trial, in the helper process that ``sandbox`` starts.

The helper finds objects and follows links as the reader does, by the reader's own functions, and ends or hangs in its place.
Of what is packages alone it loads h5py, and SciPy for .mat files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py

from sciml.data.hdf5_file import MOST_COMPRESSED, OpenFiles, address, follow, things

_MEMORY = 2 * 2**30
_READ, _BLOCK = 2**24, 2**20
# HDF5 takes the bytes of a checksum off a chunk without looking whether there are as many.
_CHECKSUM = 4
# To read a chunk takes as long as to read so many bytes of a larger one.
_LEAST = 2**12
# Bytes a second that even slow compression and a busy machine reach, and seconds between signs of life.
_PACE, _SIGN = 2**25, 30.0
# Variables of a .mat file up to so many bytes are read together, since each reading begins at the file's beginning.
_TOGETHER = 2**22


def walked(path: str, alive: Callable[..., object], names: Sequence[str] | None = None) -> str | None:
    """Do all that reading may do to a file; what is wrong with it, or None. What a library refuses is left to the reader."""
    with contextlib.suppress(Exception):
        if not h5py.is_hdf5(path):
            _matrices(path, alive, names)
            return None
        with OpenFiles() as handles:
            seen, budget = set(), _READ
            for thing in _asked(handles, Path(path), names, alive):
                where = address(thing)
                if where in seen:
                    continue
                seen.add(where)
                # Attributes that cannot be listed do not keep a reader from the data.
                with contextlib.suppress(Exception):
                    for name in thing.attrs:
                        with contextlib.suppress(Exception):
                            thing.attrs[name]
                if isinstance(thing, h5py.Dataset):
                    with contextlib.suppress(Exception):
                        wrong, taken = _dataset(thing, budget, alive)
                        if wrong is not None:
                            return wrong
                        budget -= taken
    return None


def _asked(
    handles: OpenFiles, path: Path, names: Sequence[str] | None, alive: Callable[..., object]
) -> Iterator[h5py.HLObject]:
    """The root, and what is asked for of the objects in a file."""
    alive()
    root = handles[path]["/"]
    yield root
    if names is None:
        for _, thing in things(root):
            alive()
            if isinstance(thing, h5py.HLObject):
                yield thing
        return
    list(root)
    for name in names:
        alive()
        # Links into other files are followed once these have been looked at.
        with contextlib.suppress(Exception):
            _, thing, missing = follow(handles, path, name)
            if missing is None:
                list(thing) if isinstance(thing, h5py.Group) else None
                yield thing


def _matrices(path: str, alive: Callable[..., object], names: Sequence[str] | None) -> None:
    """Read variables of a .mat file of version 4 to 7.2, which SciPy reads with as little care; first what it holds."""
    from scipy.io import loadmat, whosmat

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = whosmat(path, appendmat=False)
        sizes = {name: 8 * math.prod(shape) for name, shape, _ in found if names is None or name in names}
        small = [name for name, size in sizes.items() if size <= _TOGETHER]
        for part in (small, *([name] for name in sizes if name not in small)):
            with contextlib.suppress(Exception):
                if part:
                    alive(sum(sizes[name] for name in part))
                    loadmat(path, appendmat=False, variable_names=part)


def _dataset(dataset: h5py.Dataset, budget: int, alive: Callable[..., object]) -> tuple[str | None, int]:
    """What is wrong with a dataset, and how many bytes of it were read: its beginning, within the budget, and its end."""
    with contextlib.suppress(Exception):
        for dimension in dataset.dims:
            for place in range(len(dimension)):
                str(dimension[place].name)
    if dataset.is_virtual:
        list(dataset.virtual_sources())
        return None, 0
    if dataset.external or not dataset.shape or 0 in dataset.shape:
        return None, 0
    chunks = dataset.chunks
    if chunks is not None:
        # As every reader does before reading.
        dataset.id.get_num_chunks()
    # No other filter relies on the size of a chunk that the file declares, and to look at each takes long where there are many.
    if chunks is not None and dataset.fletcher32:
        sizes: list[int] = []

        def look(chunk: Any) -> None:
            alive()
            if chunk.size < _CHECKSUM:
                sizes.append(chunk.size)

        dataset.id.chunk_iter(look)
        if sizes:
            return f"a chunk of {dataset.name!r} has {sizes[0]} bytes, fewer than its checksum", 0
    declared = dataset.dtype.itemsize * math.prod(dataset.shape)
    if budget <= 0 or declared > MOST_COMPRESSED * dataset.id.get_storage_size() + _READ:
        return None, 0
    corner = chunks or (1,) * len(dataset.shape)
    weight = 1 if chunks is None else max(1, _LEAST // (dataset.dtype.itemsize * math.prod(chunks)))
    row, step = max(1, weight * declared // dataset.shape[0]), corner[0]
    if row * step > budget:
        return None, dataset[tuple(slice(0, length) for length in corner)].nbytes
    step *= max(1, _BLOCK // (row * step))
    last = (dataset.shape[0] - 1) // step
    read = 0
    for number in sorted({*range(min(last, budget // (row * step)) + 1), last}):
        alive()
        read += getattr(dataset[number * step : (number + 1) * step], "nbytes", 0)
    return None, weight * read


def serve(token: str, seconds: float) -> None:
    """Answer questions about files, one a line on standard input, until there are no more; answers begin with the token."""
    # What libraries print must not come among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGPROF"):
        # Whoever started the reader may have switched it off.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit, most = pages * resource.getpagesize() + _MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if most < 0 else min(limit, most), most))
    size, heard = 0, 0.0

    def say(kind: str, text: str = "") -> None:
        # On a line of its own, whatever was printed before.
        os.write(answers, f"\n{token}{json.dumps([kind, text])}\n".encode())

    def timer(left: float) -> None:
        # Its signal ends the process; a handler in Python would never be called while HDF5 is at work.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, left)

    def alive(more: int = 0) -> None:
        nonlocal heard
        timer(seconds + (size + min(more, _MEMORY)) / _PACE)
        if time.monotonic() > heard + _SIGN:
            heard = time.monotonic()
            say("more")

    say("ready")
    for line in sys.stdin:
        path, names = json.loads(line)
        heard = time.monotonic()
        try:
            # A file that has gone is for the reader to tell.
            size = os.path.getsize(path) if os.path.exists(path) else 0
            alive()
            found = walked(path, alive, names)
            kind, text = ("sound", "") if found is None else ("wrong", found)
        except Exception as error:
            kind, text = "fault", f"{type(error).__name__}: {error}"
        timer(0)
        say(kind, text)

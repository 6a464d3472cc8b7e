"""The program that ``probe`` starts: it walks through HDF5 and .mat files as a reader would, for another process.

It loads h5py (and SciPy for .mat files) and nothing of this package, and ends or hangs in its reader's place.
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

_MEMORY = 2 * 2**30
_READ, _BLOCK = 2**24, 2**20
# HDF5 takes the bytes of a checksum off a chunk without looking whether there are as many.
_CHECKSUM = 4
# To read a chunk takes as long as to read so many bytes of a larger one.
_LEAST = 2**12
_MOST_LINKS = 16
# Bytes a second that even slow compression and a busy machine reach, and seconds between signs of life.
_PACE, _SIGN = 2**25, 30.0
# Variables of a .mat file are read together up to so many bytes, since each reading begins at the file's beginning.
_TOGETHER = 2**26


def walked(path: str, alive: Callable[..., object], names: Sequence[str] | None = None) -> str | None:
    """Do all that reading may do to a file, object by object; what is found wrong is told, what a library refuses is not.

    Args:
        path: of the file.
        alive: is called at every step, with the bytes that the next one may take if they are more than the file has.
        names: of the objects that will be read; those on the way to them are looked at too. By default all.

    Returns:
        What is wrong with it, or None.
    """
    import h5py

    # Whatever is refused here the reader will be told as well.
    with contextlib.suppress(Exception):
        if not h5py.is_hdf5(path):
            _matrices(path, alive, names)
            return None
        with h5py.File(path, "r") as file:
            return _groups(file, alive) if names is None else _named(file, names, alive)
    return None


def _matrices(path: str, alive: Callable[..., object], names: Sequence[str] | None) -> None:
    """Read variables of a .mat file of version 4 to 7.2, which SciPy reads with as little care; first what it holds."""
    from scipy.io import loadmat, whosmat

    def load(some: list[str]) -> None:
        alive(sum(sizes[name] for name in some))
        loadmat(path, appendmat=False, variable_names=some)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = whosmat(path, appendmat=False)
        sizes = {name: 8 * math.prod(shape) for name, shape, _ in found if names is None or name in names}
        parts: list[list[str]] = [[]]
        total = 0
        for name, size in sizes.items():
            if total + size > _TOGETHER:
                parts.append([])
                total = 0
            parts[-1].append(name)
            total += size
        for part in filter(None, parts):
            try:
                load(part)
            except Exception:
                # One that is refused must not hide those after it.
                for name in part:
                    with contextlib.suppress(Exception):
                        load([name])


def _named(file: Any, names: Sequence[str], alive: Callable[..., object]) -> str | None:
    """Look at the root, at some objects, and at what lies on the way to them; the names at the root are listed as well."""
    import h5py

    alive()
    root = file["/"]
    _attributes(root)
    list(root)
    seen, budget = {h5py.h5o.get_info(root.id).addr}, _READ
    for name in names:
        with contextlib.suppress(Exception):
            for thing in _way(file, name, alive):
                address = _address(thing)
                if address in seen:
                    continue
                seen.add(address)
                _attributes(thing)
                if isinstance(thing, h5py.Group):
                    list(thing)
                elif isinstance(thing, h5py.Dataset):
                    wrong, taken = _dataset(thing, budget, alive)
                    if wrong is not None:
                        return wrong
                    budget -= taken
    return None


def _way(file: Any, name: str, alive: Callable[..., object]) -> Iterator[Any]:
    """The objects from the root to one of them, through links within the file."""
    import h5py

    parts, at, hops = name.split("/"), file["/"], 0
    while parts:
        key = parts.pop(0)
        if key in ("", "."):
            continue
        alive()
        link = at.get(key, getlink=True)
        if isinstance(link, h5py.SoftLink) and hops < _MOST_LINKS:
            hops += 1
            parts = link.path.split("/") + parts
            at = file["/"] if link.path.startswith("/") else at
        elif isinstance(link, h5py.HardLink):
            at = at[key]
            yield at
        else:
            return


def _groups(file: Any, alive: Callable[..., object]) -> str | None:
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
                    address = _address(thing)
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


def _address(thing: Any) -> object:
    """What an object is known by; one whose header cannot be counted through is read all the same."""
    import h5py

    try:
        return h5py.h5o.get_info(thing.id).addr
    except Exception:
        return thing.name


def _attributes(thing: Any) -> None:
    # Attributes that cannot be listed do not keep a reader from the data.
    with contextlib.suppress(Exception):
        for name in thing.attrs:
            with contextlib.suppress(Exception):
                thing.attrs[name]


def _dataset(dataset: Any, budget: int, alive: Callable[..., object]) -> tuple[str | None, int]:
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
        # As every reader does before reading.
        dataset.id.get_num_chunks()
    # No other filter relies on the size of a chunk that the file declares, and to look at each takes long where there are many.
    if dataset.chunks is not None and dataset.fletcher32:
        sizes: list[int] = []

        def look(chunk: Any) -> None:
            alive()
            if chunk.size < _CHECKSUM:
                sizes.append(chunk.size)

        dataset.id.chunk_iter(look)
        if sizes:
            return f"a chunk of {dataset.name!r} has {sizes[0]} bytes, fewer than its checksum", 0
    # What is packed is at most a thousand times as large.
    declared = dataset.dtype.itemsize * math.prod(dataset.shape)
    if budget <= 0 or declared > 1100 * dataset.id.get_storage_size() + _READ:
        return None, 0
    weight = 1 if dataset.chunks is None else max(1, _LEAST // (dataset.dtype.itemsize * math.prod(dataset.chunks)))
    row = max(1, weight * declared // dataset.shape[0])
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
    return None, weight * read


def _serve(token: str, seconds: float) -> None:
    """Walk through the files that are asked about line by line, until there are no more; answers begin with the token."""
    # What libraries print must not come among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGPROF"):
        # Whoever started the reader may have switched it off.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    import h5py  # noqa: F401

    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit, most = pages * resource.getpagesize() + _MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if most < 0 else min(limit, most), most))

    number, size, heard = 0, 0, 0.0

    def say(kind: str, text: str = "") -> None:
        # On a line of its own, whatever was printed before.
        line = json.dumps([token, number, kind, text])
        os.write(answers, f"\n{line}\n".encode())

    def alive(more: int = 0) -> None:
        nonlocal heard
        # Its signal ends the process; a handler in Python would never be called while HDF5 is at work.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, seconds + (size + min(more, _MEMORY)) / _PACE)
        if time.monotonic() > heard + _SIGN:
            heard = time.monotonic()
            say("more")

    say("ready")
    for line in sys.stdin:
        number, path, names = json.loads(line)
        heard = time.monotonic()
        try:
            # A file that has gone is for the reader to tell.
            size = os.path.getsize(path) if os.path.exists(path) else 0
            alive()
            found = walked(path, alive, names)
        except Exception as error:
            kind, text = "fault", f"{type(error).__name__}: {error}"
        else:
            kind, text = ("sound", "") if found is None else ("wrong", found)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
        say(kind, text)


if __name__ == "__main__":
    _serve(sys.argv[3], float(sys.argv[4]))

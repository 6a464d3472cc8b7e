"""Streaming of mini-batches: rows of a lazy table in random order, read ahead by worker processes."""

from __future__ import annotations

import itertools
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from sciml._text import whole
from sciml.data.lazy import LazyTable
from sciml.errors import DataError, SolverError
from sciml.typing import Array

_SMALL = 1_000_000
_MOST_WORKERS = 2
_AHEAD = 2
_ROLL = 7919
# As for tables in memory: rounding must not push a measurement out of the domain.
_SLACK = 1e-9

# Epoch, number of the group in its epoch, and the pieces that it is made of.
Key = tuple[int, int, tuple[int, ...]]


class Stream:
    """Batches of a lazy table's rows, every row once in an epoch, for any training loop.

    The pieces of the file, whole chunks each, come in random order. Some of them at a time are read and their rows shuffled
    together (``LoaderOptions.buffer``); ``torch.utils.data.DataLoader`` does so ahead of time in worker processes that live
    as long as the stream. What comes depends on the seed and not on the number of workers. A ``with`` statement, or
    ``close``, ends the workers.

    Args:
        table: the lazy table.
        batch: the number of rows of a batch; the last of an epoch may have fewer.
        columns: the columns to read; all by default.
        epochs: how often the whole table comes; None goes on for ever.
        seed: of the order.
        pin: whether batches lie in pinned memory, from which a GPU copies without waiting.
        without: rows that never come, their numbers increasing, shape ``(k,)``.
        bounds: the lowest and the highest value that a column may have.
        needed: a row in which all of these columns are missing never comes.
        share: the number of this process and how many there are, where several read the same batches: each reads pieces of
            its own, and of every batch the rows in these come; a row without a value comes, too.

    Raises:
        DataError: a column that is not there, numbers out of range; while iterating, values that are not finite or out of
            bounds.
        SolverError: while iterating, workers that cannot be started, or that died.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> import numpy as np, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
        >>> with h5py.File(file, "w") as content:
        ...     content["t"] = np.arange(100.0)
        >>> table = sciml.LazyTable.of(file, {"t": "t"})
        >>> with sciml.Stream(table, 40) as batches:
        ...     [len(batch["t"]) for batch in batches]
        [40, 40, 20]
    """

    def __init__(
        self,
        table: LazyTable,
        batch: int,
        *,
        columns: Sequence[str] | None = None,
        epochs: int | None = 1,
        seed: int = 0,
        pin: bool = False,
        without: Array | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        needed: Sequence[str] = (),
        share: tuple[int, int] = (0, 1),
    ) -> None:
        if not isinstance(table, LazyTable):
            raise DataError(f"Stream needs a lazy table, read_hdf5(path, lazy=True); given: {type(table).__name__}")
        batch, seed = whole("batch", batch, 1), whole("seed", seed, 0)
        epochs = None if epochs is None else whole("epochs", epochs, 1)
        self.table, self.batch, self.epochs = table, batch, epochs
        self.workers = _workers(table)
        self.waited = 0.0
        self._columns = table.columns if columns is None else table._known(columns)
        self._order = _Order(table, seed, epochs)
        together = self._order.together
        self._pin = pin
        room = together * table.pieces.largest
        # A group that is being cut, and those that the loader has asked for; shared, so that nothing is copied on the way.
        self._shared = share[1] > 1
        # One more column says which rows were read here.
        width = len(self._columns) + self._shared
        self._pool = torch.empty(_AHEAD * self.workers + 2, width, room, dtype=torch.float64)
        if self.workers:
            self._pool.share_memory_()
        limits, needed = dict(bounds or {}), () if self._shared else tuple(needed)
        groups = _Groups(table, self._columns, seed, without, limits, tuple(needed), self._order, self._pool, share)
        # The file must not be open in a process that is copied.
        table.close()
        self._loader: DataLoader[Any] = DataLoader(
            groups,
            batch_size=None,
            sampler=self._order,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            prefetch_factor=_AHEAD if self.workers else None,
            multiprocessing_context=_context(table.loading.context) if self.workers else None,
            # Without one of its own the loader would draw from the caller's global generator.
            generator=torch.Generator().manual_seed(seed),
        )
        self._groups: Iterator[Any] | None = None
        self._batches: Iterator[dict[str, Tensor]] | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> dict[str, Tensor]:
        """The next batch: for each column a tensor of shape ``(n,)``, float64."""
        start = time.perf_counter()
        try:
            if self._batches is None:
                self._batches = self._cut()
            return next(self._batches)
        except BaseException:
            self.close()
            raise
        finally:
            self.waited += time.perf_counter() - start

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes and close the file; the next batch begins the epochs anew."""
        groups, self._groups, self._batches = self._groups, None, None
        # A traceback may keep the iterator, and with it the workers, alive.
        shutdown = getattr(groups, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
        # A loader with persistent workers remembers its iterator.
        if getattr(self._loader, "_iterator", None) is not None:
            self._loader._iterator = None
        self.table.close()

    def _cut(self) -> Iterator[dict[str, Tensor]]:
        """Batches cut from groups; what is left of one begins with the next, except at the end of an epoch."""
        rest: list[Tensor] = []
        came = 0
        for (_, number, _), group in zip(iter(self._order), self._arriving(), strict=False):
            last, start, size = number == self._order.groups - 1, 0, group.shape[1]
            came += size
            if last and not came:
                raise DataError(f"{self.table.source}: every row is left out, or has no value; there is nothing to train on")
            short = self.batch - sum(part.shape[1] for part in rest)
            while start + short <= size or (last and (rest or start < size)):
                yield self._named([*rest, group[:, start : start + short]])
                rest, start, short = [], start + short, self.batch
            if start < size:
                rest.append(group[:, start:].clone())

    def _named(self, parts: list[Tensor]) -> dict[str, Tensor]:
        # A copy, for the memory of a group is that of a later one, too.
        rows = sum(part.shape[1] for part in parts)
        pin = self._pin and not self._shared
        pinned = torch.empty(len(self._columns), rows, dtype=torch.float64, pin_memory=True) if pin else None
        batch = torch.cat([part[:, part[-1] > 0][:-1] for part in parts] if self._shared else parts, dim=1, out=pinned)
        return dict(zip(self._columns, batch.unbind(0), strict=True))

    def _arriving(self) -> Iterator[Tensor]:
        try:
            # h5py holds its lock while the process is copied, and workers use nothing else that locks; newer Pythons warn of
            # every fork of a process with threads.
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                self._groups = iter(self._loader)
            for group in self._groups:
                if isinstance(group, str):
                    raise DataError(group)
                place, size = group
                yield self._pool[place, :, :size]
        except RuntimeError as error:
            raise SolverError(
                f"the {self.workers} worker process(es) that read the table could not be started or died: {error}. If they are "
                "spawned and this is a script, what it does must stand under `if __name__ == '__main__':`; if memory ran out, "
                "use a smaller buffer; or let the training process read, read_hdf5(..., lazy=sciml.LoaderOptions(workers=0))"
            ) from error


class _Order(Sampler[Key]):
    """Groups of pieces in random order, epoch after epoch."""

    def __init__(self, table: LazyTable, seed: int, epochs: int | None) -> None:
        self._pieces, self._seed, self._epochs = table.pieces.count, seed, epochs
        rows = table.pieces.largest
        self.together = max(1, table.loading.buffer // rows)
        self.groups = -(-self._pieces // self.together)

    def __iter__(self) -> Iterator[Key]:
        for epoch in itertools.count() if self._epochs is None else range(self._epochs):
            order = np.random.default_rng([self._seed, epoch]).permutation(self._pieces).tolist()
            for number in range(self.groups):
                yield epoch, number, tuple(order[number * self.together : (number + 1) * self.together])


class _Groups(Dataset[Any]):
    """Puts shuffled rows of some pieces into a place of the pool and returns it and their number.

    ``pool``, of shape ``(places, columns, rows)``, is shared memory that is used in turn: to allocate it anew for every
    group took more than half of the time. Where the rows are not as they should be, the sentence of an error is returned.
    """

    def __init__(
        self,
        table: LazyTable,
        columns: tuple[str, ...],
        seed: int,
        without: Array | None,
        bounds: dict[str, tuple[float, float]],
        needed: tuple[str, ...],
        sequence: _Order,
        pool: Tensor,
        share: tuple[int, int],
    ) -> None:
        table._known([*columns, *bounds, *needed])
        self._table, self._columns, self._seed = table, columns, seed
        self._without = np.empty(0, dtype=np.int64) if without is None else np.asarray(without)
        self._bounds = {columns.index(name): ends for name, ends in bounds.items()}
        self._needed = [columns.index(name) for name in needed]
        self._sequence, self._pool, self._share = sequence, pool, share
        self._buffer = np.empty((0, 0))
        self._drawn: tuple[int, Array] | None = None

    def __getitem__(self, key: Key) -> Any:
        epoch, number, pieces = key
        try:
            size, kept = self._read(pieces)
        except DataError as error:
            # A loader would wrap it into another message, with a traceback.
            return str(error)
        order = self._order(epoch, number, size)
        if not kept.all():
            order = order[kept[order]]
        place = (epoch * self._sequence.groups + number) % len(self._pool)
        # Any other mode would make a copy first.
        for values, shuffled in zip(self._buffer, self._pool[place, :, : len(order)].numpy(), strict=True):
            np.take(values, order, out=shuffled, mode="clip")
        return place, len(order)

    def _order(self, epoch: int, number: int, size: int) -> Array:
        """A random order of so many rows.

        Within an epoch it is one permutation that is rolled on: which rows meet is random anyway, since pieces are, and
        drawing a permutation takes as long as reading the rows.
        """
        drawn = self._drawn
        if drawn is None or drawn[0] != epoch:
            permutation = np.random.default_rng([self._seed, epoch]).permutation(len(self._buffer[0]))
            # Twice in a row, so that rolling it on copies nothing.
            drawn = self._drawn = epoch, np.concatenate([permutation, permutation])
        length = len(drawn[1]) // 2
        start = number * _ROLL % length
        order = drawn[1][start : start + length]
        return order if len(order) == size else order[order < size]

    def _read(self, pieces: Sequence[int]) -> tuple[int, Array]:
        """Fill the buffer with the rows of some pieces; their number, and which are to come."""
        if not len(self._buffer):
            # Kept from group to group: touching new memory costs more than reading a file that is in memory.
            self._buffer = np.empty(tuple(self._pool.shape[1:]))
        keep, start = np.ones(len(self._buffer[0]), dtype=bool), 0
        own, processes = self._share
        for number, piece in enumerate(pieces):
            if processes > 1:
                here, stop = number % processes == own, start + len(self._table.pieces.rows(piece))
                self._buffer[-1, start:stop] = here
                if not here:
                    self._buffer[:-1, start:stop] = 0.0
                    self._leave_out(keep[start:stop], piece, ())
                    start = stop
                    continue
            columns = self._table.read_piece(piece, self._columns)
            for place, (low, high) in self._bounds.items():
                slack = _SLACK * (high - low)
                # Written so that a missing value fails, too.
                if not (columns[place].min() >= low - slack and columns[place].max() <= high + slack):
                    raise DataError(self._outside(piece, place, columns[place], low, high))
            stop = start + len(columns[0])
            for buffer, values in zip(self._buffer, columns, strict=False):
                buffer[start:stop] = values
            self._leave_out(keep[start:stop], piece, columns)
            start = stop
        return start, keep

    def _leave_out(self, keep: Array, piece: int, columns: Sequence[Array]) -> None:
        """Mark the rows of a piece that are not to come."""
        if len(self._without):
            numbers = self._table.pieces.rows(piece)
            low, high = np.searchsorted(self._without, [numbers[0], numbers[-1] + 1])
            if high > low:
                keep &= ~np.isin(numbers, self._without[low:high], assume_unique=True)
        if self._needed and math.isnan(columns[self._needed[0]].sum()):
            keep &= ~np.logical_and.reduce([np.isnan(columns[place]) for place in self._needed])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffer": np.empty((0, 0)), "_drawn": None}

    def _outside(self, piece: int, place: int, values: Array, low: float, high: float) -> str:
        slack = _SLACK * (high - low)
        wrong = np.flatnonzero(~((values >= low - slack) & (values <= high + slack)))
        row, name = self._table.pieces.rows(piece)[wrong[0]], self._columns[place]
        return (
            f"{self._table.source}: {len(wrong)} of the {len(values)} rows that were read lie outside the domain, the first in "
            f"row {row} with {name} = {values[wrong[0]]:g}; the domain has {name} from {low:g} to {high:g}: widen it, or "
            "remove these rows (table.statistics() has the range of every column)"
        )


def _workers(table: LazyTable) -> int:
    """How many worker processes to use."""
    if table.loading.workers is not None:
        return table.loading.workers
    if len(table) < _SMALL:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(_MOST_WORKERS, cores - 1))


def _context(name: str) -> str:
    """How worker processes are started."""
    if name != "auto":
        return name
    # Older versions of h5py leave their lock as it is in a copy of the process, held for ever where another thread held it.
    safe = hasattr(h5py._objects, "_phil_before_fork") or threading.active_count() == 1
    return "fork" if sys.platform == "linux" and safe else "spawn"

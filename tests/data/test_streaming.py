"""Rows of a file in batches, read by worker processes."""

import collections
import multiprocessing
import os
import signal
import threading

import h5py
import numpy as np
import pytest
import torch

import sciml
from sciml.data import streaming
from sciml.data.hdf5_file import OpenFiles
from sciml.errors import DataError, SolverError

ROWS = 30_000


@pytest.fixture
def path(tmp_path):
    """Row number and its square in chunks of 1,000."""
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        for name, values in (("n", np.arange(ROWS, dtype=float)), ("s", np.arange(ROWS, dtype=float) ** 2)):
            file.create_dataset(name, data=values, chunks=(1000,), fletcher32=True)
    return tmp_path / "rows.h5"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr("sciml.data.lazy._PIECE_ROWS", 2000)


def table_of(path, **loading):
    loading = {"workers": 0, "buffer": 6000, "context": "fork", **loading}
    return sciml.LazyTable.of(path, {"n": "n", "s": "s"}, loading=sciml.LoaderOptions(**loading))


def epochs_of(stream):
    """The row numbers in the order in which they come."""
    with stream as batches:
        return torch.cat([batch["n"] for batch in batches]).numpy()


@pytest.mark.parametrize("batch", [100, 700, 6000, 7001, 10**6])
def test_every_row_comes_once_an_epoch(path, batch):
    rows = epochs_of(sciml.Stream(table_of(path), batch, epochs=2))
    first, second = rows[:ROWS], rows[ROWS:]
    for each in (first, second):
        assert np.array_equal(np.sort(each), np.arange(ROWS))
    assert not np.array_equal(first, second)


def test_batches_are_full_but_the_last_and_columns_belong_together(path):
    with sciml.Stream(table_of(path), 999, epochs=2) as batches:
        sizes = []
        for batch in batches:
            sizes.append(len(batch["n"]))
            assert torch.equal(batch["s"], batch["n"] ** 2)
    assert sizes == 2 * ([999] * 30 + [30])


def test_batches_mix_rows_of_the_whole_buffer(path):
    with sciml.Stream(table_of(path), 500) as batches:
        spreads = [np.unique(batch["n"].numpy() // 2000) for batch in batches]
    # A buffer is three pieces.
    assert min(map(len, spreads)) == 3


def test_batches_that_are_kept_do_not_change(path):
    with sciml.Stream(table_of(path), 500) as batches:
        kept = list(batches)
    assert all(torch.equal(batch["s"], batch["n"] ** 2) for batch in kept)
    assert np.array_equal(np.sort(torch.cat([batch["n"] for batch in kept]).numpy()), np.arange(ROWS))


def test_worker_processes_read_a_real_file_and_the_order_is_that_without_them(path):
    alone = epochs_of(sciml.Stream(table_of(path), 700, epochs=3, seed=4))
    for workers in (1, 2):
        assert np.array_equal(epochs_of(sciml.Stream(table_of(path, workers=workers), 700, epochs=3, seed=4)), alone)
    assert not np.array_equal(epochs_of(sciml.Stream(table_of(path), 700, epochs=3, seed=5)), alone)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_fault_43_spawned_workers_read_the_same(path):
    """They start from nothing: the table, the pool and the order are all sent to them."""
    alone = epochs_of(sciml.Stream(table_of(path), 700))
    assert np.array_equal(epochs_of(sciml.Stream(table_of(path, workers=1, context="spawn"), 700)), alone)


def test_fault_43_forked_workers_open_the_file_once_each_and_never_use_the_handle_of_their_parent(path, tmp_path, monkeypatch):
    """Each forked worker opens the file once, for itself."""
    log, original = tmp_path / "opened", OpenFiles.__getitem__

    def noted(self, file):
        fresh = file not in self._open
        found = original(self, file)
        if fresh:
            with log.open("a") as lines:
                lines.write(f"{os.getpid()}\n")
        return found

    monkeypatch.setattr(OpenFiles, "__getitem__", noted)
    table = table_of(path, workers=2)
    # The file is open in the parent when the workers are made.
    assert table.read([7])["n"] == 7.0
    stream = sciml.Stream(table, 700, epochs=5)
    table.read([8])
    assert np.array_equal(np.sort(epochs_of(stream)), np.repeat(np.arange(ROWS), 5))
    opened = collections.Counter(map(int, log.read_text().split()))
    workers = {process: times for process, times in opened.items() if process != os.getpid()}
    assert sorted(workers.values()) == [1, 1]


@pytest.mark.skipif(not hasattr(h5py._objects, "_phil_before_fork"), reason="older versions of h5py are not forked then")
def test_fault_43_workers_are_forked_while_another_thread_reads_hdf5(path):
    """h5py has to hold its lock while the process is copied: taken by a thread that is not copied, it would never be free."""
    going = threading.Event()
    going.set()

    def busy():
        with h5py.File(path, "r") as file:
            while going.is_set():
                file["s"][...]

    reader = threading.Thread(target=busy)
    reader.start()
    try:
        for seed in range(5):
            rows = epochs_of(sciml.Stream(table_of(path, workers=2), 700, seed=seed))
            assert np.array_equal(np.sort(rows), np.arange(ROWS))
    finally:
        going.clear()
        reader.join()


def test_fault_43_a_forked_table_opens_the_file_for_itself(path):
    """A table in a forked process does not use its parent's handle."""
    table = table_of(path)
    table.read([0])
    mine = table._opened
    table._opened = (os.getpid() + 1, mine[1])
    assert table.read([9])["n"] == 9.0
    assert table._opened[0] == os.getpid()
    assert table._opened[1] is not mine[1]


def test_workers_end_with_the_stream_and_with_an_exception(path):
    def left():
        with sciml.Stream(table_of(path, workers=2), 100, epochs=None) as batches:
            next(batches)
            assert len(multiprocessing.active_children()) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        left()
    assert not multiprocessing.active_children()
    stream = sciml.Stream(table_of(path, workers=1), 100)
    first = next(stream)
    stream.close()
    assert not multiprocessing.active_children()
    assert torch.equal(next(stream)["n"], first["n"])
    stream.close()
    stream.close()


def test_a_worker_that_dies_is_told(path):
    with sciml.Stream(table_of(path, workers=1), 100, epochs=None) as batches:
        next(batches)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(SolverError, match=r"could not be started or died: .*LoaderOptions\(workers=0\)"):
            for _ in batches:
                pass
    assert not multiprocessing.active_children()


def test_the_callers_random_numbers_stay_as_they_are(path):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    epochs_of(sciml.Stream(table_of(path, workers=1), 1000))
    assert torch.equal(torch.rand(4), expected)


def test_rows_can_be_left_out(path):
    without = np.unique(np.random.default_rng(0).integers(0, ROWS, 4000))
    rows = epochs_of(sciml.Stream(table_of(path), 700, without=without))
    assert np.array_equal(np.sort(rows), np.setdiff1d(np.arange(ROWS), without))
    with pytest.raises(DataError, match="every row is left out"):
        next(sciml.Stream(table_of(path), 700, without=np.arange(ROWS)))


def test_rows_without_any_value_do_not_come(path):
    with h5py.File(path, "r+") as file:
        file["s"][2500:9100] = np.nan
    table = sciml.LazyTable.of(path, {"n": "n", "s": "s"}, missing="mask", loading=sciml.LoaderOptions(workers=0))
    rows = epochs_of(sciml.Stream(table, 700, needed=["s"]))
    assert np.array_equal(np.sort(rows), np.r_[0:2500, 9100:ROWS])


def test_rows_out_of_bounds_are_told(path):
    for workers in (0, 1):
        stream = sciml.Stream(table_of(path, workers=workers), 700, bounds={"n": (0.0, 29_990.0)})
        with pytest.raises(DataError, match=r"9 of the 2000 rows .* the first in row 29991 with n = 29991"):
            epochs_of(stream)


def test_how_many_workers_and_how_they_start_is_chosen(path, monkeypatch):
    table = table_of(path, workers=None)
    assert streaming._workers(table) == 0
    monkeypatch.setattr(streaming, "_SMALL", 100)
    for cores, workers in ((1, 0), (2, 1), (16, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert streaming._workers(table) == workers
    for platform, start in (("linux", "fork"), ("darwin", "spawn"), ("win32", "spawn")):
        monkeypatch.setattr(streaming.sys, "platform", platform)
        assert streaming._context("auto") == start
    monkeypatch.setattr(streaming.sys, "platform", "linux")
    monkeypatch.delattr(h5py._objects, "_phil_before_fork", raising=False)
    for threads, start in ((1, "fork"), (2, "spawn")):
        monkeypatch.setattr(streaming.threading, "active_count", lambda threads=threads: threads)
        assert streaming._context("auto") == start
    assert streaming._context("forkserver") == "forkserver"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is pinned for CUDA alone")
def test_batches_lie_in_pinned_memory(path):
    with sciml.Stream(table_of(path, workers=1), 1000, pin=True) as batches:
        assert next(batches)["n"].is_pinned()


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": "a"}, {"epochs": "2"}, {"epochs": -1}, {"epochs": 1.5}])
def test_streams_of_numbers_that_cannot_be(path, options):
    with pytest.raises(DataError, match=r"(seed|epochs) must be a whole number of at least"):
        sciml.Stream(table_of(path), 10, **options)


def test_streams_need_a_lazy_table_and_names(path):
    with pytest.raises(DataError, match=r"Stream needs a lazy table.*given: Table"):
        sciml.Stream(sciml.Table({"t": [0.0]}), 10)
    with pytest.raises(DataError, match="columns must be a list of names"):
        sciml.Stream(table_of(path), 10, columns=5)


def test_processes_read_disjoint_pieces(path, monkeypatch):
    """Every row comes to one of them, and none reads what is another's."""
    read, pieces = sciml.LazyTable.read_piece, []

    def watched(self, piece, columns):
        pieces[-1].append(piece)
        return read(self, piece, columns)

    monkeypatch.setattr(sciml.LazyTable, "read_piece", watched)
    shares = []
    for own in range(3):
        pieces.append([])
        shares.append(epochs_of(sciml.Stream(table_of(path), 1000, share=(own, 3))))
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(ROWS))
    assert sorted(piece for each in pieces for piece in each) == list(range(15))

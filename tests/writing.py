"""What other processes do in the tests of run directories; they are killed in the midst of it."""

import contextlib
import ctypes
import dataclasses
import functools
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import sciml
from sciml.data import write as embedding_files
from sciml.errors import FileError
from sciml.runs import RunDirectory

PROCESSES = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
if hasattr(os, "fork"):
    # The library is imported once, and not by every process.
    PROCESSES.set_forkserver_preload(["sciml"])


@contextlib.contextmanager
def other(task, directory):
    """Another process with something to do, and the line to it; it is killed in the end."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=task, args=(str(directory), theirs))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()


def save_for_ever(directory, told):
    """Save one generation after another, and tell of each that is done."""
    with RunDirectory(directory) as run:
        step = run.load("a.pt")["step"] if run.exists("a.pt") else 0
        while True:
            step += 1
            run.save("a.pt", {"step": step, "u": torch.full((20000,), float(step))})
            told.send(step)


def hold(directory, told):
    """Hold the lock until there is a word."""
    with RunDirectory(directory):
        told.send("held")
        told.recv()


def hold_with_a_copy(directory, told):
    """Hold the lock in a process that has a copy of itself, as those that load data are."""
    with RunDirectory(directory):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        told.send(child)
        told.recv()


def count(directory, told):
    """Add one to a number in a file whenever the lock can be had, for a second, and tell how often it could and could not."""
    told.recv()
    won, lost, end = 0, 0, time.monotonic() + 1.0
    while time.monotonic() < end:
        try:
            with RunDirectory(directory) as run:
                number = int(run.read("count.txt")) if run.exists("count.txt") else 0
                run.write("count.txt", str(number + 1).encode())
                won += 1
                time.sleep(0.3 if won == 1 else 0.005)
        except FileError as error:
            if "is being written by process" not in str(error):
                raise
            lost += 1
    told.send((won, lost))


def on_a_small_disk(directory, told):
    """Save with ever more room on a disk of 1 MB that is filled up, and tell what became of each try."""
    try:
        _mount(directory)
    except OSError as error:
        told.send(f"no disk can be mounted here: {error}")
        return
    told.send("")
    told.send([_tries(Path(directory) / "run", range(0, 26))])
    os.link = _no_links
    told.send([_tries(Path(directory) / "copies", range(0, 40))])
    told.send([_full(Path(directory), write) for write in WRITERS])


def _tries(directory, rooms):
    """For each number of free pages: the error, the step that is loaded then, the states, and temporary files left."""
    found = []
    u = torch.arange(45_000 // 8, dtype=torch.float64)
    with RunDirectory(directory) as run:
        for step in (0, 1):
            run.save("a.pt", {"step": step, "u": u + step})
        for room in rooms:
            step = run.load("a.pt")["step"]
            with _filled(directory.parent, room):
                error = ""
                try:
                    run.save("a.pt", {"step": step + 1, "u": u + step + 1})
                except FileError as raised:
                    error = str(raised)
                content = run.load("a.pt")
            assert torch.equal(content["u"], u + content["step"])
            left = [path.name for path in directory.rglob("*.tmp")]
            found.append((room, error, content["step"] - step, set(run.verify()["state"]), left))
    return found


def _full(directory, write):
    """The error of a writer on a full disk, and whether the old file is as it was."""
    path = write(directory, 1)
    before = path.read_bytes()
    with _filled(directory, 2):
        try:
            write(directory, 2)
        except FileError as error:
            return (
                write.__name__,
                str(error),
                path.read_bytes() == before,
                [each.name for each in directory.glob(".*.tmp")],
            )
    return write.__name__, "", path.read_bytes() == before, []


class Decay(sciml.Problem):
    """A rate from a few measurements."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]
    rate = sciml.Unknown(1.0)

    @sciml.equation
    def decay(self, u, t):
        return sciml.d(u, t) + self.rate * u

    def measurements(self):
        return {"t": [0.0, 0.3, 0.5, 0.8, 1.0], "u": [1.0, 0.55, 0.36, 0.21, 0.13]}


@functools.cache
def small_solution():
    """A solution of few kilobytes, of a problem with an unknown."""
    return sciml.fit(Decay(), sciml.MLP(4), solver=sciml.LBFGS(5))


def write_table(directory, value):
    sciml.Table({"u": np.arange(5000.0) + value}).save(directory / "table.csv")
    return directory / "table.csv"


def write_hdf5(directory, value):
    sciml.Table({"u": np.arange(5000.0) + value}).save(directory / "table.h5")
    return directory / "table.h5"


def write_reference(directory, value):
    t = np.linspace(0, 1, 20_000)
    sciml.StoredReference.write(directory / "reference.h5", {"t": t}, {"u": np.sin(1e5 * t) + value})
    return directory / "reference.h5"


def write_embedding(directory, value):
    frame = pd.DataFrame({"z0": np.arange(5000.0) + value})
    embedding_files.write(directory / "z.h5", [frame, frame], 10_000)
    return directory / "z.h5"


def write_parquet(directory, value):
    frame = pd.DataFrame({"z0": np.arange(5000.0) + value})
    embedding_files.write(directory / "z.parquet", [frame, frame], 10_000)
    return directory / "z.parquet"


def write_solution(directory, value):
    return dataclasses.replace(small_solution(), message=f"{value}" * 20_000).save(directory / "solution.pt")


WRITERS = (write_table, write_hdf5, write_reference, write_embedding, write_parquet, write_solution)


def _no_links(*_):
    raise PermissionError("no links here")


def _free(directory):
    """Free pages of a disk, and their size."""
    found = os.statvfs(directory)
    return found.f_bavail, found.f_bsize


@contextlib.contextmanager
def _filled(directory, room):
    """A disk with so many free pages and no more."""
    free, page = _free(directory)
    (directory / "filler").write_bytes(bytes((free - room) * page))
    assert _free(directory)[0] == room
    try:
        yield
    finally:
        (directory / "filler").unlink()


def _mount(directory):
    """A disk of 1 MB at a directory, which nobody sees but this process, and which goes with it."""
    system, new_user, new_mounts, private = ctypes.CDLL(None, use_errno=True), 0x10000000, 0x20000, 0x44000
    user, group, root = os.getuid(), os.getgid(), os.geteuid() == 0

    def checked(result):
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    checked(system.unshare(new_mounts if root else new_mounts | new_user))
    if not root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    checked(system.mount(b"none", b"/", None, ctypes.c_ulong(private), None))
    checked(system.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", ctypes.c_ulong(0), b"size=1m"))

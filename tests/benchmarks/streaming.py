"""How fast a file larger than memory reaches a training loop: ``python -m tests.benchmarks.streaming --gigabytes 12 --cap 2``.

Each measurement runs in a process of its own whose memory, with that of its workers, is watched and kept below a cap. Before
each one the file is dropped from the cache of the system; a gigabyte that stays there is measured for comparison.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

import sciml
from sciml import d
from sciml.data.streaming import _Order
from sciml.problem import Measurements
from sciml.solvers import Objective
from sciml.strategies.minibatches import fed
from sciml.strategies.prepare import prepare

from .stored import ROOT

COLUMNS = ("t", "x", "y", "u")
CHUNK = 65536
BATCH = 8192


class Diffusion(sciml.Problem):
    """u_t = κ (u_xx + u_yy) on a unit cube, with κ to be found."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = ["u"]
    kappa = sciml.Unknown(0.05, lower=0)

    @sciml.equation
    def diffusion(self, u, x, y, t):
        return d(u, t) - self.kappa * (d(u, x, x) + d(u, y, y))


def write(path: Path, gigabytes: float) -> None:
    """A file of measurements of a decaying wave at random points, in chunks with checksums."""
    rows = max(1, round(gigabytes * 1e9 / (8 * len(COLUMNS) * CHUNK))) * CHUNK
    generator = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name in COLUMNS:
            file.create_dataset(name, (rows,), "f8", chunks=(CHUNK,), fletcher32=True)
        for start in range(0, rows, 16 * CHUNK):
            size = min(16 * CHUNK, rows - start)
            t, x, y = generator.random((3, size))
            u = np.exp(-0.2 * np.pi**2 * t) * np.sin(np.pi * x) * np.sin(np.pi * y) + 0.01 * generator.random(size)
            for name, values in zip(COLUMNS, (t, x, y, u), strict=True):
                file[name][start : start + size] = values
        file.flush()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def forget(path: Path) -> None:
    """Drop a file from the system's cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def table_of(path: Path, workers: int) -> sciml.LazyTable:
    """The file as a lazy table."""
    columns = dict(zip(COLUMNS, COLUMNS, strict=True))
    return sciml.LazyTable.of(path, columns, loading=sciml.LoaderOptions(workers=workers))


def speed(rows: int, seconds: float) -> dict[str, float]:
    """Of so many rows in so many seconds; with what the processors did, workers that have ended included."""
    gigabytes, used = rows * 8e-9 * len(COLUMNS), os.times()
    busy = used.user + used.system + used.children_user + used.children_system
    return {"seconds": seconds, "gigabytes_a_second": gigabytes / seconds, "processor_seconds_with_imports": busy}


def by_h5py(path: Path, workers: int) -> dict[str, float]:
    """h5py alone reads the chunks in the order in which the stream does, and does nothing with them."""
    table = table_of(path, workers)
    order = [table.pieces.place(piece)[1][0] for _, _, pieces in _Order(table, 0, 1) for piece in pieces]
    start = time.perf_counter()
    with h5py.File(path, "r") as file:
        datasets = [file[name] for name in COLUMNS]
        for place in order:
            for dataset in datasets:
                dataset[place]
    return speed(len(table), time.perf_counter() - start)


def by_stream(path: Path, workers: int) -> dict[str, float]:
    """One epoch of shuffled batches, each looked at once."""
    table, rows = table_of(path, workers), 0
    start = time.perf_counter()
    with sciml.Stream(table, BATCH) as batches:
        for batch in batches:
            rows += len(batch["u"])
    seconds = time.perf_counter() - start
    if rows != len(table):
        raise RuntimeError(f"{rows} of {len(table)} rows came")
    return speed(rows, seconds)


def by_training(path: Path, workers: int, limit: float) -> dict[str, float]:
    """Adam on a network of three layers of 64, as ``fit`` does it, for some seconds; the share of them spent waiting."""
    problem = Diffusion()
    start = time.perf_counter()
    sample, feed = fed(problem, table_of(path, workers), 0)
    assert feed is not None
    measured = Measurements(sample)
    setup = prepare(problem, sciml.MLP(64, 64, 64), measured, 1024, None, torch.float64, "cpu", 0)
    solver = sciml.Adam(10**6, batch=BATCH)
    objective = Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)
    objective.feed = batches = feed.batches(setup, solver)
    run = solver.start(objective)
    run.step()
    first, waited, begun, steps = time.perf_counter() - start, batches.stream.waited, time.perf_counter(), 0
    while time.perf_counter() - begun < limit:
        run.step()
        steps += 1
    seconds, waited = time.perf_counter() - begun, batches.stream.waited - waited
    batches.close()
    return {"seconds_to_first_step": first, "milliseconds_a_step": 1e3 * seconds / steps, "waiting": waited / seconds}


def family(process: int) -> Iterator[int]:
    """A process and all that it has started."""
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from family(int(child))


def resident(process: int) -> int:
    """Bytes of a process, memory that it shares with others counted in parts."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def capped(what: str, path: Path, workers: int, cap: float, limit: float) -> dict[str, Any]:
    """A measurement in a process of its own, killed as soon as it and its workers take more than so many gigabytes."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.streaming",
        "--measure",
        what,
        "--file",
        str(path),
        "--workers",
        str(workers),
    ]
    command += ["--seconds", str(limit)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        while process.poll() is None:
            everybody = list(family(process.pid))
            now = sum(map(resident, everybody))
            peak = max(peak, now)
            if now > cap * 1e9:
                for each in everybody:
                    # Some may have ended meanwhile.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
                return {"failed": f"took {now / 1e9:.2f} GB of {cap:g}"}
            time.sleep(0.1)
        text = process.communicate()[0]
    if process.returncode:
        return {"failed": f"ended with {process.returncode}"}
    return {**json.loads(text), "peak_gigabytes": peak / 1e9}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.streaming", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the file (1)")
    parser.add_argument("--cap", type=float, default=2.0, help="gigabytes that a measurement may take (2)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to train (30)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each, in turn (2)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the file is written")
    parser.add_argument("--measure", choices=["h5py", "stream", "train"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measures = {"h5py": by_h5py, "stream": by_stream, "train": by_training}
        more = [options.seconds] if options.measure == "train" else []
        print(json.dumps(measures[options.measure](options.file, options.workers, *more)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for gigabytes, cold in ((min(1.0, options.gigabytes), False), (options.gigabytes, True)):
            path = Path(folder) / "measured.h5"
            write(path, gigabytes)
            print(f"{path.stat().st_size / 1e9:.2f} GB, {'not in the cache' if cold else 'in the cache'}", flush=True)
            for _ in range(options.repeats):
                for what in ("h5py", "stream"):
                    if cold:
                        forget(path)
                    found = capped(what, path, options.workers, options.cap, options.seconds)
                    print(what, json.dumps(found), flush=True)
            if cold:
                forget(path)
                print(
                    "train",
                    json.dumps(capped("train", path, options.workers, options.cap, options.seconds)),
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""How a fit scales: over processes (strong and weak), and over points and parameters on one device.

``python -m tests.benchmarks.scaling`` measures steps of training in one and in two processes of this machine and prints the
table of docs/scaling.md; ``python -m tests.benchmarks.scaling --device cuda`` (``make bench-gpu``) measures kernels, steps and
an epoch on one device and writes docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import sciml
from sciml import operators, solvers
from sciml.strategies.prepare import prepare
from sciml.studies.profile import measured_rates

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gpu.md"
_REPEATS = 3

# Method, points inside, widths of the network.
CASES = {
    "Adam, 20,000 points, MLP(64, 64, 64)": (solvers.Adam(12), 20_000, (64, 64, 64)),
    "L-BFGS, 20,000 points, MLP(64, 64, 64)": (solvers.LBFGS(6), 20_000, (64, 64, 64)),
    "Levenberg-Marquardt, 8,000 points, MLP(20, 20, 20)": (solvers.LeastSquares(4), 8_000, (20, 20, 20)),
    "matrix-free Levenberg-Marquardt, 8,000 points, MLP(64, 64)": (
        solvers.LeastSquares(1, factorisation="cg"),
        8_000,
        (64, 64),
    ),
}


def step_seconds(name: str, weak: int) -> float:
    """The median over steps of one objective: a step alone, without looks."""
    solver, points, widths = CASES[name]
    setup = prepare(sciml.gallery.problem("burgers"), sciml.MLP(*widths), None, weak * points, None, torch.float64, "cpu", 0)
    run = solver.start(setup.objective())
    run.step()
    taken = []
    for _ in range(max(solver.steps, _REPEATS)):
        start = time.perf_counter()
        run.step()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def worker(name: str, weak: int) -> None:
    """One of the processes that measure a case; the first prints."""
    torch.set_num_threads(1)
    from sciml.parallel import process_group

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        with process_group.joined():
            found = step_seconds(name, weak)
    else:
        found = step_seconds(name, weak)
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps({"seconds": found}), flush=True)


def in_processes(name: str, processes: int, weak: int) -> float:
    """Seconds a step of a case in so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "tests.benchmarks.scaling", "--worker", name, str(weak)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    return float(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["seconds"])


def processes_table() -> str:
    """Strong and weak scaling at one and two processes, as a table in Markdown."""
    lines = [
        "| a step of | 1 process | 2 processes, the same points | speed-up | 2 processes, twice the points | efficiency |",
        "|---|---|---|---|---|---|",
    ]
    for name in CASES:
        one, two, weak = in_processes(name, 1, 1), in_processes(name, 2, 1), in_processes(name, 2, 2)
        lines.append(
            f"| {name} | {1e3 * one:.0f} ms | {1e3 * two:.0f} ms | {one / two:.2f} | {1e3 * weak:.0f} ms | {one / weak:.0%} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def device_rows(device: str) -> list[tuple[str, float, float, float]]:
    """What, seconds, share of the rate of products, and peak bytes, for kernels on one device."""
    where = torch.device(device)
    rate = measured_rates(where)["gemm"]
    problem, found = sciml.gallery.problem("burgers"), []

    def measured(what: str, work: object, operations: float) -> None:
        if where.type == "cuda":
            torch.cuda.reset_peak_memory_stats(where)
        work()  # type: ignore[operator]
        taken = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            work()  # type: ignore[operator]
            if where.type == "cuda":
                torch.cuda.synchronize(where)
            taken.append(time.perf_counter() - start)
        seconds = statistics.median(taken)
        held = torch.cuda.max_memory_allocated(where) if where.type == "cuda" else float("nan")
        found.append((what, seconds, operations / seconds / rate, held))

    large = where.type == "cuda"
    for points in (10_000, 100_000, 1_000_000) if large else (10_000,):
        setup = prepare(problem, sciml.MLP(64, 64, 64, 64), None, points, None, torch.float64, where, 0)
        objective = setup.objective()
        weights = objective.shape[1]
        # Four streams; forward, and twice as much back.
        measured(f"gradient, {points:,} points, {weights:,} weights", objective.evaluate, 6.0 * 4 * points * weights)
    for width in (20, 40, 56) if large else (20,):
        setup = prepare(problem, sciml.MLP(width, width, width), None, 4_000, None, torch.float64, where, 0)
        objective = setup.objective()
        rows, weights = objective.shape
        run = solvers.LeastSquares(100).start(objective)
        measured(f"Levenberg-Marquardt step, {rows:,} rows, {weights:,} weights", run.step, 1.0 * rows * weights**2)
    side = 85
    pairs = _pairs(64, side)
    model = operators.FNO(16, 32)
    solver = sciml.FirstOrder(torch.optim.AdamW, 4, batch=16)
    start = time.perf_counter()
    sciml.fit(pairs, model, solver=solver, device=device)
    found.append((f"FNO, four steps of 16 pairs on {side} x {side}", time.perf_counter() - start, float("nan"), float("nan")))
    return found


FITS = {
    "Burgers, MLP(20, 20, 20)": ("burgers", (20, 20, 20)),
    "Allen-Cahn, MLP(40, 40, 40)": ("allen_cahn", (40, 40, 40)),
    "Heat around holes, MLP(32, 32, 32)": ("heat_holed", (32, 32, 32)),
}


def fits_table(device: str) -> list[str]:
    """Seconds and errors of whole fits on one device and on the CPU beside it, as a table in Markdown."""
    lines = ["| fit | there | on the CPU | error there | error on the CPU |", "|---|---|---|---|---|"]
    for what, (name, widths) in FITS.items():
        seconds, errors = [], []
        for each in (device, "cpu"):
            start = time.perf_counter()
            solution = sciml.fit(sciml.gallery.problem(name), sciml.MLP(*widths), device=each, seconds=30, progress=False)
            seconds.append(f"{time.perf_counter() - start:.1f} s")
            errors.append(f"{max(solution.error().values()):.1e}")
        lines.append("| " + " | ".join([what, *seconds, *errors]) + " |")
    return lines


def _pairs(count: int, side: int) -> operators.Pairs:
    generator = np.random.default_rng(0)
    nodes = {"x": np.linspace(0, 1, side), "y": np.linspace(0, 1, side)}
    values = generator.normal(size=(count, side, side))
    return operators.Pairs({"a": values}, {"u": np.cumsum(values, axis=1) / side}, nodes, {"a": nodes})


def device_page(device: str) -> str:
    """The page of one device."""
    where = torch.device(device)
    machine = measured_rates(where)
    lines = [
        "# On a GPU",
        "",
        f"Measured on {machine['device']} (torch {torch.__version__}): {machine['gemm'] / 1e9:.3g} GFlop/s in float64 matrix",
        f"products, {machine['memory'] / 1e9:.3g} GB/s in copies. `make bench-gpu` writes this page.",
        "",
        "| what | seconds | share of the rate of products | peak memory |",
        "|---|---|---|---|",
    ]
    for what, seconds, share, held in device_rows(device):
        memory = "" if held != held else f"{held / 2**30:.2f} GiB"
        lines.append(f"| {what} | {seconds:.3g} | {'' if share != share else f'{share:.0%}'} | {memory} |")
    lines += ["", f"Whole fits of at most 30 s, there and on the CPU beside it with {torch.get_num_threads()} threads:", ""]
    return "\n".join([*lines, *fits_table(device)]) + "\n"


def main() -> None:
    """Measure processes, or a device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", help="cpu, cuda, ...: measure it and write docs/gpu.md")
    parser.add_argument("--print", action="store_true", help="print the page of a device instead of writing it")
    parser.add_argument("--worker", nargs=2, metavar=("CASE", "TIMES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], int(given.worker[1]))
    elif given.device is None:
        print(processes_table())
    elif given.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU here: docs/gpu.md stays as it is")
    else:
        page = device_page(given.device)
        if given.print:
            print(page)
        else:
            PAGE.write_text(page)


if __name__ == "__main__":
    main()

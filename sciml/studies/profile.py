"""Profiling of a fit: where time and memory went by phase and by kernel, and what bounds it (roofline model)."""

from __future__ import annotations

import contextlib
import resource
import sys
import threading
import time
import timeit
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.profiler import ProfilerActivity

from sciml.data.memory import readable
from sciml.fitting import fit
from sciml.problem import Problem
from sciml.solution import Solution
from sciml.solvers import Report

_GIGA = 1e9
# Side of the matrices and bytes of the arrays by which the machine is measured; how often memory is looked at, in seconds.
_SIDE, _BYTES, _LOOK = 768, 2**26, 0.02
# Kernels of matrix products and factorisations, by parts of their names.
_PRODUCTS = ("mm", "matmul", "linalg", "cholesky", "triangular", "lu_", "qr", "einsum", "conv")
# A kernel that takes no longer than this on average, in microseconds, is mostly the call.
_CALL = 15.0


@dataclass(frozen=True, repr=False, eq=False)
class Profile:
    """Where the time of a fit went.

    Attributes:
        solution: what the fit found.
        phases: a DataFrame with a row for every phase: ``seconds``, ``share``, ``steps``, ``memory``, the most bytes that the
            process held while it lasted.
        kernels: a DataFrame with a row for every kernel of torch, as far as the profiler was on: ``calls``, ``seconds`` of its
            own, ``share`` of the time that was profiled, ``gflops`` a second where they are counted.
        profiled: for how many seconds the profiler was on.
        outside: the share of these that was spent outside of torch's kernels: in NumPy, SciPy and Python.
        machine: what was measured here: ``gemm``, float64 operations a second of a matrix product, ``memory``, bytes a second
            of a copy, ``device``.
        bound: a sentence on what bounds it.
    """

    solution: Solution
    phases: pd.DataFrame
    kernels: pd.DataFrame
    profiled: float
    outside: float
    machine: dict[str, Any]
    bound: str

    def __repr__(self) -> str:
        phases = self.phases.copy()
        phases["memory"] = phases["memory"].map(lambda number: readable(number) if number == number else "")
        return (
            f"{phases.to_string(float_format=lambda value: f'{value:.3g}')}\n\n"
            f"{self.kernels.head(12).to_string(float_format=lambda value: f'{value:.3g}')}\n\n{self.bound}"
        )


def profile(
    problem: Problem,
    model: Any = None,
    *,
    trace: str | Path | None = None,
    most: float = 1.0,
    **options: Any,
) -> Profile:
    """Profile a fit: its time and memory by phase and by kernel, and what bounds it, by the roofline model.

    Args:
        problem: the problem.
        model: as for ``fit``.
        trace: a file for the events, which Perfetto and ``chrome://tracing`` show.
        most: for how many seconds kernels are recorded. The fit runs once undisturbed, for its phases, and then once more up to
            there, for its kernels: recording takes time and memory of its own, and reading a record ten times as long.
        options: keywords for ``fit``.

    Returns:
        A ``Profile``; printed it shows all of it.

    Raises:
        SciMLError: what ``fit`` raises.

    Example:
        >>> import sciml
        >>> growth = sciml.gallery.problem("logistic_growth")
        >>> found = sciml.profile(growth, sciml.MLP(8), solver=sciml.LBFGS(20))
        >>> list(found.phases.index)
        ['before and between', 'LBFGS', 'judging']

    Reference: S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model for multicore
    architectures, Communications of the ACM 52 (2009).
    """
    machine = measured_rates(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    marks: list[tuple[float, str, int]] = []

    def watch(report: Report) -> bool:
        marks.append((time.perf_counter(), report.phase.partition(", from ")[0], report.step))
        return False

    own = list(options.pop("callbacks", ()))
    begin = time.perf_counter()
    with _watched_memory() as held:
        solution = fit(problem, model, **options, callbacks=[*own, watch])
    end = time.perf_counter()
    kernels, profiled = _recorded(problem, model, options, most, trace)
    outside = max(0.0, 1.0 - float(kernels["seconds"].sum()) / profiled)
    phases = _phases(marks, begin, end, held)
    return Profile(solution, phases, kernels, profiled, outside, machine, _bound(kernels, outside, machine))


def _recorded(
    problem: Problem, model: Any, options: dict[str, Any], most: float, trace: str | Path | None
) -> tuple[pd.DataFrame, float]:
    """The kernels of the first seconds of a fit, and how many seconds these were."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    recorder = torch.profiler.profile(activities=activities, with_flops=True)
    # Nothing is written twice.
    options = {name: value for name, value in options.items() if name not in ("out", "resume", "checkpoint")}
    begin = time.perf_counter()
    recorder.start()
    try:
        fit(problem, model, **options, callbacks=[lambda report: time.perf_counter() - begin > most])
    finally:
        profiled = time.perf_counter() - begin
        recorder.stop()
    if trace is not None:
        recorder.export_chrome_trace(str(trace))
    return _kernels(recorder, profiled), profiled


def measured_rates(device: torch.device) -> dict[str, Any]:
    """Operations a second of a product in float64 and bytes a second of a copy, measured here and now: the best of some."""
    side = _SIDE if device.type == "cpu" else 8 * _SIDE
    matrix = torch.rand(side, side, dtype=torch.float64, device=device)
    source = torch.rand(_BYTES // 8, dtype=torch.float64, device=device)
    target = torch.empty_like(source)

    def best(work: Any) -> float:
        def once() -> None:
            work()
            _wait(device)

        _wait(device)
        return min(timeit.repeat(once, number=1, repeat=4))

    gemm = 2 * side**3 / best(lambda: matrix @ matrix)
    memory = 2 * _BYTES / best(lambda: target.copy_(source))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"
    return {"gemm": gemm, "memory": memory, "device": name}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def _watched_memory() -> Iterator[list[tuple[float, float]]]:
    """Times and the bytes that the process holds, as they are seen while the block runs."""
    seen: list[tuple[float, float]] = []
    over = threading.Event()
    page = resource.getpagesize()

    def look() -> None:
        while not over.wait(_LOOK):
            try:
                held = int(Path("/proc/self/statm").read_text().split()[1]) * page
            except (OSError, ValueError, IndexError):
                # Elsewhere the system only tells the most that there ever was, on macOS in bytes.
                unit = 1 if sys.platform == "darwin" else 1024
                held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
            seen.append((time.perf_counter(), float(held)))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _phases(marks: list[tuple[float, str, int]], begin: float, end: float, held: list[tuple[float, float]]) -> pd.DataFrame:
    """Time, steps and memory of every phase: from its first look's beginning to its last look."""
    names = list(dict.fromkeys(phase for _, phase, _ in marks))
    rows, spent, at, steps = {}, 0.0, begin, 0
    spans: dict[str, tuple[float, float]] = {}
    for name in names:
        own = [(when, step) for when, phase, step in marks if phase == name]
        # Up to its first look a phase has taken as long for each step as after it; what came before was preparing.
        (first, one), (last, most) = own[0], own[-1]
        pace = (last - first) / (most - one) if most > one else 0.0
        start = max(at, first - pace * (one - steps)) if pace else at
        spans[name] = start, last
        rows[name] = {"seconds": last - start, "steps": most - steps}
        spent, at, steps = spent + last - start, last, most
    rows["judging"] = {"seconds": end - at if names else 0.0, "steps": 0}
    spans["judging"] = at, end
    rest = {"seconds": max(0.0, end - begin - spent - rows["judging"]["seconds"]), "steps": 0}
    table = pd.DataFrame.from_dict({"before and between": rest, **rows}, orient="index")
    table.insert(1, "share", table["seconds"] / (end - begin))
    times, bytes_held = (np.array(each) for each in (zip(*held, strict=True) if held else ((), ())))
    peaks = {}
    for name in table.index:
        start, stop = spans.get(name, (begin, min((pair[0] for pair in spans.values()), default=end)))
        inside = bytes_held[(times >= start) & (times <= stop)] if len(times) else bytes_held
        peaks[name] = float(inside.max()) if len(inside) else np.nan
    table["memory"] = pd.Series(peaks)
    return table.astype({"steps": int})


def _kernels(recorder: Any, profiled: float) -> pd.DataFrame:
    """Calls, time of their own and operations of every kernel, those that took longest first."""
    rows = {}
    for each in recorder.key_averages():
        own = getattr(each, "self_device_time_total", 0) or each.self_cpu_time_total
        if each.key.startswith(("ProfilerStep", "cuda", "[memory]")):
            continue
        seconds = own / 1e6
        rate = each.flops / seconds / _GIGA if each.flops and seconds > 0 else np.nan
        rows[each.key] = {"calls": each.count, "seconds": seconds, "share": seconds / profiled, "gflops": rate}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["calls", "seconds", "share", "gflops"])
    return table.sort_values("seconds", ascending=False).astype({"calls": int})


def _bound(kernels: pd.DataFrame, outside: float, machine: dict[str, Any]) -> str:
    """What bounds the time, in a sentence."""
    gemm, copies = machine["gemm"] / _GIGA, machine["memory"] / _GIGA
    here = f"{machine['device']}: {gemm:.3g} GFlop/s in products, {copies:.3g} GB/s in copies"
    if outside > 0.5 or not len(kernels):
        return f"{outside:.0%} of the time is spent outside of torch's kernels, in NumPy, SciPy and Python ({here})"
    products = kernels.index.str.contains("|".join(_PRODUCTS))
    share, whole = kernels["share"][products].sum(), kernels["share"].sum()
    mean = 1e6 * kernels["seconds"].sum() / max(kernels["calls"].sum(), 1)
    if share > 0.5 * whole:
        counted = kernels[products & kernels["gflops"].notna()]
        rate = (counted["gflops"] * counted["seconds"]).sum() / counted["seconds"].sum() if len(counted) else np.nan
        at = f" at {rate:.3g} GFlop/s, {rate * _GIGA / machine['gemm']:.0%} of what was measured here" if rate == rate else ""
        return f"bound by computing: matrix products and factorisations take {share:.0%} of the time{at} ({here})"
    if mean < _CALL:
        return (
            f"bound by calls: {kernels['calls'].sum()} kernels of {mean:.1f} microseconds on average, so that more points at a "
            f"time cost little more ({here})"
        )
    return f"bound by memory: kernels that go through arrays once take {whole - share:.0%} of the time ({here})"

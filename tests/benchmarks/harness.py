"""Processes with a time limit, what surrounds them, and the files that keep what they found."""

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from . import report
from .stored import ROOT
from .table import CASES, LEFT_OUT

_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")}


def in_process(module: str, *words: str, limit: float) -> dict[str, Any]:
    """The record that a module prints on its last line, on one thread, without a GPU; what went wrong if it prints none."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *words]
    surroundings = {**os.environ, **_ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""}
    try:
        ended = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"timed_out": True, "seconds": limit}
    said = (ended.stdout if ended.returncode == 0 else ended.stderr).strip().splitlines() or [
        f"ended with status {ended.returncode} and said nothing"
    ]
    return json.loads(said[-1]) if ended.returncode == 0 else {"failed": said[-1].replace("|", "/")}


def environment() -> dict[str, str]:
    """The machine, the versions and the day."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "scipy")}
    said = {
        words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for words in (("describe", "--always"), ("status", "--porcelain", "--", ":!docs"))
    }
    # This page itself is written between two problems, and changes nothing that is measured.
    commit, changed = said.values()
    commit += "-dirty" if changed else ""
    return {
        "processor": f"{_processor()} (one thread)",
        "Python": platform.python_version(),
        **versions,
        "sciml": f"{metadata.version('sciml')} {commit}".strip(),
        "on": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def earlier(path: Path) -> dict[str, Any]:
    """Results of earlier runs, by name; those of benchmarks that are no more are dropped."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: result for name, result in found.items() if name in CASES}


def write(results: Mapping[str, Any], path: Path) -> None:
    """Write the figures as JSON and the page beside it, each all or nothing."""
    ordered = {name: results[name] for name in CASES if name in results}
    for file, text in (
        (path, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"),
        (path.with_suffix(".md"), report.page(CASES, ordered, LEFT_OUT)),
    ):
        part = file.with_name(file.name + ".part")
        part.write_text(text)
        part.replace(file)

"""How long it takes to save a checkpoint so that it cannot be lost: ``python tests/benchmarks/saving.py [DIRECTORY]``.

The directory should be on the disk that is meant; a temporary one is used by default.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sciml.data import archive
from sciml.runs import RunDirectory

MEGABYTES = (1, 20, 100)
REPEATS = 5


def content_of(megabytes: float) -> dict[str, Any]:
    """A state of that size, in twenty tensors and a few thousand numbers."""
    generator = torch.Generator().manual_seed(0)
    size = int(megabytes * 1e6) // 8 // 20
    tensors = [torch.rand(size, dtype=torch.float64, generator=generator) for _ in range(20)]
    return {"tensors": tensors, "history": [float(number) for number in range(2000)]}


def seconds(what: Callable[[], object]) -> float:
    """The median time of some calls."""
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        what()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def measure(directory: Path, megabytes: float) -> dict[str, float]:
    """Seconds of every part, and of all together."""
    content, step = content_of(megabytes), iter(range(10**6))
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    with RunDirectory(directory / "run") as run:
        run.save("a.pt", {**content, "step": next(step)})
        return {
            "MB": megabytes,
            "torch.save": seconds(lambda: torch.save(content, directory / "plain.pt")),
            "SHA-256": seconds(lambda: hashlib.sha256(data).hexdigest()),
            "packed": seconds(lambda: archive.packed(content)),
            "atomic": seconds(lambda: archive.write_atomic(directory / "atomic.pt", data)),
            "save": seconds(lambda: run.save("a.pt", {**content, "step": next(step)})),
            "load": seconds(lambda: run.load("a.pt")),
            "verify": seconds(run.verify),
        }


def main() -> None:
    """Print a row for each size."""
    directory = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        for megabytes in MEGABYTES:
            row = measure(directory, megabytes)
            print("  ".join(f"{name} {value:.3g}" for name, value in row.items()), flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()

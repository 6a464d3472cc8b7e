"""One benchmark with one seed in a process of its own: ``python -m tests.benchmarks.worker poisson 0`` prints a record.

A third word names another way to solve it: ``network``, or ``scipy`` for the classical solver behind the same class.
"""

import json
import math
import resource
import sys
import time
from typing import Any

import torch

import sciml

from .case import Case
from .table import CASES

NETWORK = (20, 20, 20)
WAYS: dict[str, Any] = {
    "automatic": lambda problem, seed: sciml.fit(problem, seed=seed),
    "network": lambda problem, seed: sciml.fit(problem, sciml.MLP(*NETWORK), seed=seed),
    "scipy": lambda problem, seed: sciml.baseline(problem),
}


def record(case: Case, seed: int, way: str = "automatic") -> dict[str, Any]:
    """Value (an error, a ratio or a rate), seconds, what was chosen, and whether the solution calls itself a success."""
    start, busy = time.perf_counter(), time.process_time()
    found: dict[str, Any] = {"seed": seed}
    if case.problem is None:
        found["value"] = case.measure(seed)
        found["seconds"], found["success"] = time.perf_counter() - start, True
    else:
        solution = WAYS[way](case.problem(), seed)
        found["seconds"], found["processor_seconds"] = time.perf_counter() - start, time.process_time() - busy
        error = case.error(solution)
        found["value"] = error if math.isfinite(error) else None
        found |= {
            "success": bool(solution.success),
            "status": solution.status,
            "solver": solution.solver,
            "choices": list(solution.choices),
        }
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return found | {"peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(record(CASES[sys.argv[1]], int(sys.argv[2]), *sys.argv[3:4])))

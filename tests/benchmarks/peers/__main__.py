"""One peer on one problem in a process of its own: PEER PROBLEM [SEED [SECONDS]]."""

import importlib
import json
import os
import resource
import sys
import time

import torch

from . import MODULES, RUNS, package

torch.set_num_threads(1)
if hasattr(os, "sched_setaffinity"):  # JAX takes all cores that it sees
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
peer, problem, *given = sys.argv[1:]
name = package(peer)
importlib.import_module(MODULES.get(name, name))
solve, error = RUNS[peer, problem](int(given[0]) if given else 0, float(given[1]) if given[1:] else None)
began = time.perf_counter()
answer = solve()
took = time.perf_counter() - began
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
print(json.dumps({"value": error(answer), "seconds": took, "peak_megabytes": memory}))

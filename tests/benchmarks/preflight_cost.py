"""Seconds of the look before the first step, for every problem of the gallery; run by hand:

``python -m tests.benchmarks.preflight_cost``
"""

from __future__ import annotations

import time

import pandas as pd

import sciml

_ROUNDS = 3


def cost(name: str) -> dict[str, float]:
    """The least seconds of some rounds, without a model and with one."""
    problem = sciml.gallery.problem(name)
    own = getattr(problem, "measurements", None)
    data = None if own is None else own()
    found = {}
    for label, model in (("problem", None), ("with MLP(20, 20, 20, 20)", sciml.MLP(20, 20, 20, 20))):
        seconds = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            findings = sciml.preflight(problem, model, data)
            seconds.append(time.perf_counter() - start)
            assert not any(each.severity != "warning" for each in findings), (name, findings)
        found[label] = min(seconds)
    return found


def main() -> None:
    """Print a table."""
    print(pd.DataFrame({name: cost(name) for name in sciml.gallery.names()}).T.round(3).to_string())


if __name__ == "__main__":
    main()

"""``make bench``: run benchmarks, show them as they come, keep them in docs/benchmarks.json and docs/benchmarks.md."""

import argparse
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Column, Table

from . import harness, peers
from .report import aim, number, summary
from .stored import ROOT
from .table import CASES


def run(names: list[str], seeds: int, limit: float, path: Path, with_peers: bool) -> None:
    """Run benchmarks in turn; after each one the files are written, with what earlier runs left for the others."""
    results = harness.earlier(path)
    shown: dict[str, dict[str, Any]] = {name: {"time_limit": limit, "runs": []} for name in names}
    with Live(_progress(shown, seeds), refresh_per_second=4) as live:
        for name, result in shown.items():
            result["environment"] = harness.environment()
            for seed in range(seeds):
                found = harness.in_process("worker", name, str(seed), limit=limit)
                result["runs"].append({"seed": seed, **found})
                live.update(_progress(shown, seeds))
            if CASES[name].problem is not None:
                # In the same sitting, once each: what a network and SciPy make of the same class.
                result["beside"] = {
                    way: harness.in_process("worker", name, "0", way, limit=limit) for way in ("network", "scipy")
                }
            if with_peers:
                result["peers"] = peers.all_of(name, limit)
            results[name] = result
            harness.write(results, path)
        if with_peers:
            live.console.print(*peers.missing(), sep="\n")


def _progress(shown: dict[str, dict[str, Any]], seeds: int) -> Table:
    columns = (Column(name, no_wrap=True) for name in ("benchmark", "seeds", "median", "worst", "seconds", "target", "met"))
    table = Table(*columns, title="Benchmarks, one thread")
    for name, result in shown.items():
        case, done = CASES[name], len(result["runs"])
        cells = [""] * 3 + [aim(case, case.targets[0]), ""]
        if done:
            found = summary(case, result)
            cells[:3] = [number(found["median"]), number(found["worst"]), f"{found['seconds']:.3g}"]
            cells[4] = "[green]yes" if found["met"][0] else "[red]no"
            if found["timeouts"] or found["failures"]:
                cells[4] += f" ({found['timeouts']} timed out, {len(found['failures'])} failed)"
        table.add_row(name, f"{done}/{seeds}", *cells)
    return table


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all by default: {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, with seeds 0, 1, ... (5)")
    parser.add_argument("--peers", action="store_true", help="run DeepXDE and FastLSQ in turn with ours, if installed")
    parser.add_argument("--json", type=Path, default=ROOT / "docs" / "benchmarks.json", help="where results are kept")
    parser.add_argument("--time-limit", type=float, default=400.0, help="seconds that one run may take (400)")
    parser.add_argument("--pages", action="store_true", help="write docs/benchmarks.md from what is known; run nothing")
    given = parser.parse_args()
    wrong = [name for name in given.names if name not in CASES]
    if wrong:
        parser.error(f"no benchmark is called {', '.join(wrong)}; there are {', '.join(CASES)}")
    if given.seeds < 1 or given.time_limit <= 0:
        parser.error(f"--seeds and --time-limit must be positive; given: {given.seeds} and {given.time_limit:g}")
    if given.pages:
        harness.write(harness.earlier(given.json), given.json)
        return
    run(given.names or list(CASES), given.seeds, given.time_limit, given.json, given.peers)


if __name__ == "__main__":
    main()

"""How good estimated errors are: the gallery and the benchmark problems, by starved and by good networks and by ``fit`` alone.

python -m tests.benchmarks.estimates [NAMES] [--out FILE]
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import sciml

from .__main__ import CASES

# From which on errors are those of rounding and of references.
ROUNDING = 1e-9
# The most that a success may be wrong by: ten times the error that counts as one.
WRONG = 1e-2
# A plain fit that takes longer is left out; networks learn or train in any case.
LONG = ("lid_driven_cavity", "kuramoto_sivashinsky", "schroedinger", "darcy_inverse", "burgers_sharp", "gray_scott_plane")
WAYS = {
    "fit(P())": {},
    "MLP(4), taught": {"model": sciml.MLP(4)},
    "MLP(4), 60 steps": {"model": sciml.MLP(4), "solver": [sciml.Adam(100), sciml.SSBroyden(60)]},
    "MLP(12, 8), 80 points": {"model": sciml.MLP(12, 8), "solver": sciml.LeastSquares(40), "points": 80},
    "MLP(12, 12), 400 steps": {"model": sciml.MLP(12, 12), "solver": [sciml.Adam(300), sciml.SSBroyden(400)]},
}


def problems():
    """Problems that have a reference and no unknowns, each with the function of a solution that gives its error."""
    for name in sciml.gallery.names():
        problem = sciml.gallery.problem(name)
        if problem.has_reference and not problem.unknowns and not hasattr(problem, "measurements"):
            yield f"gallery {name}", problem, lambda solution: max(solution.error().values())
    for name in ("helmholtz", "wave", "advection_30", "allen_cahn_fixed", "four_holes", "waves_plane"):
        case = CASES[name]
        yield name, case.problem(), case.error


def measured(names):
    """A row for each problem and way: true and estimated error, success and seconds."""
    rows = []
    for name, problem, error in problems():
        short = name.removeprefix("gallery ")
        if (names and short not in names) or (not names and short in LONG):
            continue
        for way, options in WAYS.items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    solution = sciml.fit(problem, **options, seconds=40.0, progress=False)
                except sciml.errors.SciMLError as failure:
                    print(f"{name}, {way}: {type(failure).__name__}: {str(failure)[:100]}", file=sys.stderr)
                    continue
                true = float(error(solution))
            estimate = max(solution.estimated_error.values(), default=None)
            rows.append((name, way, true, estimate, bool(solution.success), time.perf_counter() - start))
            shown = "none" if estimate is None else f"{estimate:.1e}"
            print(f"{name}, {way}: {true:.1e}, estimate {shown}, {'success' if solution.success else 'no'}", flush=True)
    return rows


def summary(rows):
    """The table of all ways."""
    lines = ["| way | solutions | with an estimate | within a factor 5 | below a twentieth | success, error above 1e-2 |"]
    lines.append("|---|---|---|---|---|---|")
    for way in [*WAYS, "all"]:
        own = [row for row in rows if way in (row[1], "all") and np.isfinite(row[2])]
        pairs = [(true, estimate) for _, _, true, estimate, _, _ in own if estimate is not None]
        close = [max(true, ROUNDING) / 5 <= max(guess, ROUNDING) <= 5 * max(true, ROUNDING) for true, guess in pairs]
        low = sum(max(guess, ROUNDING) < max(true, ROUNDING) / 20 for true, guess in pairs)
        wrong = sum(success and true > WRONG for _, _, true, _, success, _ in own)
        share = f"{sum(close)} ({sum(close) / len(close):.0%})" if close else "0"
        lines.append(f"| {way} | {len(own)} | {len(pairs)} | {share} | {low} | {wrong} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="which; all that do not take minutes by default")
    parser.add_argument("--out", type=Path, help="a JSON file for all rows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(given.names)
    print(summary(rows))
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

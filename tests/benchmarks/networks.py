"""Networks handed to ``fit`` without settings, as a table: ``python -m tests.benchmarks.networks [NAMES] [--seeds 3]``."""

import argparse
import math
import statistics
import time

import torch
from torch import nn

import sciml
from sciml import d

from . import peers
from .table import CASES


class KleinGordon(sciml.Problem):
    """A nonlinear wave with the solution x cos 5πt + (xt)³."""

    domain = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: x, u_t=0.0),
        sciml.Dirichlet(u=lambda x, t: x * torch.cos(5 * math.pi * t) + (x * t) ** 3, on=domain.faces("x")),
    ]

    @sciml.equation
    def motion(self, u, x, t):
        exact = x * torch.cos(5 * math.pi * t) + (x * t) ** 3
        force = -25 * math.pi**2 * x * torch.cos(5 * math.pi * t) + 6 * x**3 * t - 6 * x * t**3 + exact**3
        return d(u, t, t) - d(u, x, x) + u**3 - force

    def reference(self, x, t):
        return {"u": x * torch.cos(5 * math.pi * t) + (x * t) ** 3}


class Skipping(nn.Module):
    """A residual network of SiLU layers, as a user writes it."""

    def __init__(self, inputs, outputs, seed, width=32):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, outputs)
            self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, points):
        found = nn.functional.silu(self.first(points))
        for layer in self.inner:
            found = found + nn.functional.silu(layer(found))
        return self.last(found)


def small(problem, seed):
    return sciml.MLP(20, 20, 20)


def wide(problem, seed):
    return sciml.MLP(40, 40, 40)


def skipping(problem, seed):
    return Skipping(len(problem.coordinates), len(problem.fields), seed)


def worst(solution):
    return max(solution.error().values())


# Each with its problem, its error, its model, and the error and seconds that are wanted.
ROWS = {
    "burgers": (CASES["burgers"].problem, CASES["burgers"].error, small, 1e-4, 30),
    "poisson": (CASES["poisson"].problem, CASES["poisson"].error, small, 1e-6, 20),
    "klein_gordon": (KleinGordon, worst, small, 3e-5, 40),
    "advection_30": (CASES["advection_30"].problem, CASES["advection_30"].error, small, 1e-5, 40),
    "allen_cahn": (CASES["allen_cahn_periodic"].problem, CASES["allen_cahn_periodic"].error, small, 1e-3, 60),
    "kovasznay": (CASES["kovasznay"].problem, CASES["kovasznay"].error, small, 1e-5, 40),
    "burgers, own module": (CASES["burgers"].problem, CASES["burgers"].error, skipping, 3e-4, 60),
    "poisson, own module": (CASES["poisson"].problem, CASES["poisson"].error, skipping, 3e-6, 60),
    "klein_gordon, own module": (KleinGordon, worst, skipping, 1e-4, 60),
    "helmholtz": (CASES["helmholtz"].problem, CASES["helmholtz"].error, wide, 1e-5, 40),
}


COMPARED = {problem for _, problem in peers.WITH_NETWORKS}


def compare(name, seconds, seeds):
    """A row for each peer that is installed: the same network, no more than the seconds of the target."""
    found = {}
    for seed in range(seeds):
        for record in peers.at_equal_time(name, seed, seconds):
            found.setdefault(record["peer"], []).append(record)
    for peer, records in found.items():
        errors = [record.get("value", math.inf) for record in records]
        times = [record["seconds"] for record in records if "seconds" in record] or [math.nan]
        reached = f"{statistics.median(errors):.1e}, {max(errors):.1e} | – | {statistics.median(times):.0f}"
        failed = [record.get("failed", "timed out") for record in records if "value" not in record]
        print(
            f"| {name}, {peer} | | {reached} | {len(records) - len(failed)} of {seeds} ended | {'; '.join(failed)} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all by default: {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="other libraries with the same network and seconds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| problem | target | error, median and worst | estimate | seconds | success | `fit(problem)` |")
    print("|---|---|---|---|---|---|---|")
    for name in given.names or ROWS:
        make, error, model, wanted, limit = ROWS[name]
        begin = time.perf_counter()
        alone = f"{error(sciml.fit(make(), progress=False)):.0e} in {time.perf_counter() - begin:.1f} s"
        found = []
        for seed in range(given.seeds):
            problem, begin = make(), time.perf_counter()
            solution = sciml.fit(problem, model(problem, seed), seed=seed, progress=False)
            seconds = time.perf_counter() - begin
            found.append((error(solution), max(solution.estimated_error.values()), seconds, solution.success))
        errors, estimates, times, successes = zip(*found, strict=True)
        middle = [statistics.median(each) for each in (errors, estimates, times)]
        reached = f"{middle[0]:.1e}, {max(errors):.1e} | {middle[1]:.1e} | {middle[2]:.0f} | {sum(successes)} of {len(found)}"
        print(f"| {name} | {wanted:.0e} in {limit} s | {reached} | {alone} |", flush=True)
        if given.peers and name in COMPARED:
            compare(name, limit, given.seeds)


if __name__ == "__main__":
    main()

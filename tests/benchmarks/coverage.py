"""How often 95 % intervals hold the truth: many synthetic data sets for each of three problems.

``python -m tests.benchmarks.coverage --sets 200`` prints a table: for each constant the share of data sets whose interval holds
the truth, the mean of (estimate - truth) / standard error, and its standard deviation, which should be 0 and 1.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import pandas as pd
import torch
from scipy.integrate import solve_ivp

import sciml
from sciml import d
from tests.problems import LotkaVolterra


class Epidemic(sciml.Problem):
    """Kermack and McKendrick's epidemic in a school of 763, only the infected counted."""

    domain = sciml.Interval(t=(0, 14))
    fields = ["S", "I"]
    infection, recovery = sciml.Unknown(1.0, lower=0), sciml.Unknown(0.5, lower=0)
    conditions = [sciml.Initial(S=760.0, I=3.0)]

    @sciml.equation
    def susceptible(self, S, I, t):
        return d(S, t) + self.infection * S * I / 763

    @sciml.equation
    def infected(self, S, I, t):
        return d(I, t) - self.infection * S * I / 763 + self.recovery * I


class Rod(sciml.Problem):
    """A rod that cools, its diffusivity and the strength of a source unknown."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["T"]
    diffusivity, source = sciml.Unknown(0.3, lower=0), sciml.Unknown(0.0)
    conditions = [
        sciml.Initial(T=lambda x: torch.sin(torch.pi * x)),
        sciml.Dirichlet(T=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, T, x, t):
        return d(T, t) - self.diffusivity * d(T, x, x) - self.source * torch.sin(torch.pi * x)


def lotka_volterra(generator):
    """40 years of both, 5 % of each column's standard deviation."""
    truth = {"birth": 0.55, "predation": 0.028, "death": 0.80, "conversion": 0.024}
    b, p, m, c = truth.values()
    t = np.linspace(0, 15, 40)
    exact = solve_ivp(
        lambda _, y: [(b - p * y[1]) * y[0], (c * y[0] - m) * y[1]], (0, 15), [30, 6], t_eval=t, rtol=1e-10, atol=1e-10
    ).y
    noisy = exact + 0.05 * exact.std(axis=1, keepdims=True) * generator.normal(size=exact.shape)
    return LotkaVolterra(), truth, {"t": t, "hare": noisy[0], "lynx": noisy[1]}


def epidemic(generator):
    """15 days of the infected, with 12 boys of noise."""
    truth = {"infection": 1.8, "recovery": 0.45}
    t = np.linspace(0, 14, 15)
    exact = solve_ivp(
        lambda _, y: [-1.8 * y[0] * y[1] / 763, 1.8 * y[0] * y[1] / 763 - 0.45 * y[1]],
        (0, 14),
        [760, 3],
        t_eval=t,
        rtol=1e-10,
        atol=1e-10,
    ).y[1]
    return Epidemic(), truth, {"t": t, "I": exact + 12 * generator.normal(size=len(t))}


def rod(generator):
    """100 places and times of the temperature, 2 % of noise."""
    truth = {"diffusivity": 0.1, "source": 0.5}
    x, t = generator.uniform(size=(2, 100))
    rate = 0.1 * np.pi**2
    exact = np.sin(np.pi * x) * (np.exp(-rate * t) + 0.5 / rate * (1 - np.exp(-rate * t)))
    return Rod(), truth, {"x": x, "t": t, "T": exact + 0.02 * generator.normal(size=100)}


PROBLEMS = {"Lotka-Volterra": lotka_volterra, "SIR": epidemic, "heat conduction": rod}


def coverage(name: str, sets: int, seed: int = 0) -> pd.DataFrame:
    """Shares of data sets whose interval holds the truth, and standardised errors, by constant."""
    rows = []
    for generator in np.random.default_rng([seed, len(name)]).spawn(sets):
        problem, truth, data = PROBLEMS[name](generator)
        unknowns = sciml.fit(problem, data=data).unknowns
        for constant, value in truth.items():
            estimate, error, low, high = unknowns.loc[constant]
            rows.append((constant, low < value < high, (estimate - value) / error))
    found = pd.DataFrame(rows, columns=["constant", "held", "z"])
    by = found.groupby("constant", sort=False)
    return pd.DataFrame({"held": by["held"].mean(), "mean z": by["z"].mean(), "sd z": by["z"].std()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROBLEMS)}; all without any")
    parser.add_argument("--sets", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names or PROBLEMS:
        start = time.perf_counter()
        table = coverage(name, given.sets)
        seconds = (time.perf_counter() - start) / given.sets
        print(f"{name}: {given.sets} data sets, {seconds:.2g} s each\n{table.round(3).to_string()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

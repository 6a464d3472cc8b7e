"""Makes the curves and records that docs/embeddings.md embeds: ``python -m tests.benchmarks.embeddings [names]``."""

import sys
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import torch

import sciml

from . import spectral
from .stored import ROOT, problem_class

CURVES = 96
# Regimes of the reaction along the line of Pearson's: feed and kill rate in the middle of each.
REGIMES = {
    "extinct": (0.012, 0.05),
    "uniform": (0.03, 0.05),
    "stripes": (0.035, 0.0575),
    "pulses": (0.055, 0.0628),
    "chaos": (0.0195, 0.0505),
}
RUNS = 12
LENGTH, PLACES, PERIOD, TIMES = 2.5, 256, 25.0, 8
SPREAD = (2e-5, 1e-5)


def path_of(name: str) -> Path:
    """Where a set is kept."""
    return ROOT / "data" / "embeddings" / f"{name}.h5"


def curve(viscosity: float, amplitude: float, x: np.ndarray) -> list[np.ndarray]:
    r"""Burgers' equation at t = 1 from :math:`-a \sin \pi x`: the values u, u_x and u_xx at some places.

    With :math:`u(x, t) = a\,w(x, at)` it is the gallery's problem for w with the viscosity :math:`\nu/a`.
    """
    problem = problem_class("burgers")(nu=viscosity / amplitude, domain=sciml.Box(x=(-1, 1), t=(0, amplitude)))
    solution = sciml.fit(problem)
    if not solution.success:
        raise RuntimeError(f"Burgers' equation with viscosity {viscosity}: {solution.message}")
    place = torch.from_numpy(x).requires_grad_()
    found = [amplitude * solution(x=place, t=torch.full_like(place, amplitude))["u"]]
    for _ in range(2):
        found.append(torch.autograd.grad(found[-1].sum(), place, create_graph=True)[0])
    return [each.detach().numpy() for each in found]


def burgers_family() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Curves of many viscosities and amplitudes, drawn at random."""
    generator = np.random.default_rng(0)
    viscosity, amplitude = 10 ** generator.uniform(-2, -0.5, CURVES), generator.uniform(0.5, 1.5, CURVES)
    x = np.linspace(-1, 1, 65)
    curves = [curve(*both, x) for both in zip(viscosity, amplitude, strict=True)]
    u, u_x, u_xx = (np.array(each) for each in zip(*curves, strict=True))
    columns = {"x": x, "viscosity": viscosity, "amplitude": amplitude, "u": u, "u_x": u_x, "u_xx": u_xx}
    return columns, {
        "equation": "u_t + u u_x = viscosity u_xx on [-1, 1], u = -amplitude sin(pi x) at t = 0, 0 at both ends; at t = 1",
        "method": "sciml.fit, windows on elements; derivatives by their closed form",
    }


def start(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Six drops at random places, and some noise."""
    generator, x = np.random.default_rng(seed), np.linspace(0, LENGTH, PLACES, endpoint=False)
    drops = np.zeros(PLACES)
    for place in generator.uniform(0, LENGTH, 6):
        away = np.minimum(np.abs(x - place), LENGTH - np.abs(x - place))
        drops += np.exp(-((away / 0.05) ** 2))
    noise = 0.01 * generator.normal(size=(2, PLACES))
    return np.clip(1 - 0.4 * drops, 0, 1) + noise[0], 0.25 * drops + np.abs(noise[1])


def record(feed: float, kill: float, seed: int) -> np.ndarray:
    """The field v at the last times of a long run, shape ``(TIMES, PLACES / 2)``."""
    times = np.arange(0, 6000 + PERIOD, PERIOD)
    v = spectral.gray_scott(start(seed), SPREAD, feed, feed + kill, LENGTH, times, 25)[1]
    return v[-TIMES:, ::2]


def gray_scott_regimes() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Runs around the middle of each regime, from random starts."""
    generator = np.random.default_rng(0)
    rates, names = [], []
    for name, (feed, kill) in REGIMES.items():
        for _ in range(RUNS):
            rates.append((feed * generator.uniform(0.95, 1.05), kill * generator.uniform(0.995, 1.005)))
            names.append(name)
    v = np.array([record(*both, seed) for seed, both in enumerate(rates)])
    feed, kill = np.array(rates).T
    columns = {"feed": feed, "kill": kill, "regime": np.array(names, dtype="S"), "v": v}
    return columns, {
        "equation": "u_t = 2e-5 u_xx + feed (1 - u) - u v^2, v_t = 1e-5 v_xx - (feed + kill) v + u v^2, periodic on [0, 2.5]; "
        "v at eight times 25 apart, the last 6000",
        "method": "Fourier in x, 256 modes, two thirds of them in products, ETDRK4 with steps of 1; every second place",
    }


def write(name: str, columns: Mapping[str, np.ndarray], attributes: Mapping[str, str]) -> None:
    """Write a set: compressed, with checksums."""
    path_of(name).parent.mkdir(exist_ok=True)
    with h5py.File(path_of(name), "w") as file:
        for key, values in columns.items():
            file.create_dataset(key, data=values, chunks=values.shape, compression="gzip", fletcher32=True)
        file.attrs.update(attributes)


SETS = {"burgers_family": burgers_family, "gray_scott_regimes": gray_scott_regimes}

if __name__ == "__main__":
    for name in sys.argv[1:] or SETS:
        write(name, *SETS[name]())

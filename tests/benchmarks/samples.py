"""Makes the samples of inverse problems from their exact solutions: ``python -m tests.benchmarks.samples [names]``."""

import sys
from pathlib import Path

import numpy as np

from .stored import ROOT, problem_class

# File, header, number of samples, standard deviation of the noise, digits after the point.
SAMPLES = {
    "burgers_inverse": ("samples.csv", "x,t,u", 2000, 0.01, 6),
    "darcy_inverse": ("pressure.csv", "x,p", 200, 0.001, 6),
    "darcy_field": ("conductivity.csv", "x,y,k", 41, 0.0, 8),
}


def text(name: str) -> str:
    """The file's content: a comment, a header, and scattered points with noisy values, by a fixed seed."""
    _, header, count, noise, digits = SAMPLES[name]
    if name == "darcy_field":
        return _conductivity(header, count, digits)
    *coordinates, field = header.split(",")
    problem = problem_class(name)()
    generator = np.random.default_rng(0)
    low, high = np.array(list(problem.domain.bounds.values())).T
    places = np.round(low + (high - low) * generator.random((count, len(low))), digits)
    exact = problem.reference_values(dict(zip(coordinates, places.T, strict=True)))[field]
    rows = np.column_stack([places, exact + noise * generator.standard_normal(count)])
    lines = [",".join(f"{value:.{digits}f}" for value in row) for row in rows]
    comment = f"# {count} samples of {field}, normal noise of standard deviation {noise:g}"
    return "\n".join([comment, header, *lines, ""])


def _conductivity(header: str, count: int, digits: int) -> str:
    """The exponential of a sum of cosines with random weights that fall with their wave numbers, on a grid."""
    generator, at = np.random.default_rng(3), np.linspace(0, 1, count)
    x, y = (each.ravel() for each in np.meshgrid(at, at, indexing="ij"))
    wave = [(k, j, generator.standard_normal() / (1 + k * k + j * j)) for k in range(4) for j in range(4) if k + j]
    values = np.exp(sum(size * np.cos(np.pi * k * x) * np.cos(np.pi * j * y) for k, j, size in wave))
    lines = [",".join(f"{value:.{digits}f}" for value in row) for row in np.column_stack([x, y, values])]
    return "\n".join([f"# a conductivity at {count} x {count} nodes", header, *lines, ""])


def path_of(name: str) -> Path:
    """Where the samples of a problem are kept."""
    return ROOT / "data" / name / SAMPLES[name][0]


if __name__ == "__main__":
    for name in sys.argv[1:] or SAMPLES:
        path_of(name).parent.mkdir(exist_ok=True)
        path_of(name).write_text(text(name))

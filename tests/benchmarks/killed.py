"""Fits that ``killing`` kills: a few seconds each, of different kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import sciml
from sciml.gallery import load_problem
from tests.problems import Growth, Heat

ROD = sciml.Box(x=(0, 1), t=(0, 0.2))
TIMES = np.linspace(0, 2, 15)
DATA = {"t": TIMES, "u": np.exp(0.8 * TIMES) + 0.01 * np.random.default_rng(0).standard_normal(15)}


def _growth(*solvers: Any) -> Callable[..., sciml.Solution]:
    return lambda **options: sciml.fit(Growth(), sciml.MLP(8, 8), data=DATA, solver=list(solvers), **options)


def _heat(*solvers: Any, **more: Any) -> Callable[..., sciml.Solution]:
    return lambda **options: sciml.fit(Heat(domain=ROD), sciml.MLP(8, 8), solver=list(solvers), points=256, **more, **options)


FITS: dict[str, Callable[..., sciml.Solution]] = {
    "Adam, then L-BFGS": _growth(sciml.Adam(400), sciml.LBFGS(300)),
    "SSBroyden, redrawn points": _heat(sciml.SSBroyden(200), sampler=sciml.Adaptive(every=20)),
    "Levenberg-Marquardt, polished": _heat(sciml.LeastSquares(40), sciml.Polish(200)),
    "batches, balanced weights": _heat(sciml.Adam(300, batch=64), weights=sciml.Balanced(every=20)),
    "windows": _heat(sciml.LBFGS(60), windows=4),
    "constants": lambda **options: sciml.fit(load_problem("lynx_hare"), **options),
    "elements": lambda **options: sciml.fit(load_problem("burgers"), **options),
}

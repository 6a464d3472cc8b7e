"""Correction of predictions: Gauss-Newton steps on the equation, begun at what a surrogate predicts (Newton-Kantorovich)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sciml.fitting import fit
from sciml.geometry import Interior, draw
from sciml.models import Scaled, Spectral
from sciml.problem import Problem
from sciml.solution import Solution
from sciml.solvers import GaussNewton
from sciml.typing import Array

_POINTS_A_WEIGHT, _STEPS = 3, 8


def corrected(
    problem: Problem,
    prediction: Callable[..., Mapping[str, Array]],
    values: Array,
    axes: Mapping[str, Array],
    ways: Mapping[str, Any],
    **options: Any,
) -> Solution:
    """The solution of a problem, begun at a prediction with ``values`` at the nodes of axes; see ``Prediction.correct``."""
    begin = time.perf_counter()
    degrees, how = ways.get("degrees"), {"progress": False, **options}
    found = None
    if degrees is not None and not {"model", "strategy", "solver", "start"} & set(how):
        model = Spectral(tuple(degrees), periodic=tuple(ways["periodic"]))
        found = fit(problem, start=in_polynomials(problem, model, prediction, axes), solver=GaussNewton(_STEPS), **how)
    if found is None or not found.success:
        # The polynomials of the samples do not resolve this one, or there were none.
        found = fit(problem, **how)
    at: dict[str, Any] = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    known = found(**at)
    truth = np.stack([np.asarray(known[name]).ravel() for name in problem.fields], axis=1)
    before = float(np.linalg.norm(values - truth) / max(np.linalg.norm(truth), np.finfo(float).tiny))
    took, cold = time.perf_counter() - begin, ways.get("seconds")
    said = f"corrected from a prediction with the relative L2 error {before:.1e} in {took:.2f} s"
    said += "" if cold is None else f"; a sample of training took {cold:.2f} s"
    return replace(found, choices=(said, *found.choices), seconds=took)


def in_polynomials(
    problem: Problem, model: Spectral, prediction: Callable[..., Mapping[str, Array]], axes: Mapping[str, Array]
) -> Solution:
    """The prediction in polynomials, by least squares, as something to begin a fit from."""
    count, fields = len(problem.coordinates), len(problem.fields)
    model.build(count, fields, torch.Generator())
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, [0.0] * fields, [1.0] * fields).double()
    number = max(_POINTS_A_WEIGHT * model.basis.width, 200)
    points = draw(Interior(), problem.domain, number, np.random.default_rng(0)).points[0]
    inside = np.clip(points.numpy(), [axes[name][0] for name in axes], [axes[name][-1] for name in axes])
    values = prediction(**dict(zip(problem.coordinates, inside.T, strict=True)))
    with torch.no_grad():
        table = model.basis((points - trial.center) / trial.half_width).numpy()
        # Predictions are rough where the operator is not known: high degrees would follow that.
        wanted = np.stack([values[name] for name in problem.fields], axis=1)
        weights = np.linalg.lstsq(table, wanted, rcond=1e-6)[0]
        model.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights.T)))
    return Solution(
        trial=trial,
        problem=problem,
        name=type(problem).__name__,
        fields=tuple(problem.fields),
        domain=problem.domain,
        success=False,
        status="budget",
        message="a prediction",
        solver="surrogate",
    )

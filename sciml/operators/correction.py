"""Correction of predictions: Gauss-Newton steps on the equation, begun at what a surrogate predicts (Newton-Kantorovich)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from sciml.errors import ProblemError
from sciml.fitting import fit
from sciml.geometry import Interior, draw
from sciml.models import Scaled, Spectral
from sciml.problem import Problem
from sciml.solution import Solution
from sciml.solvers import GaussNewton

if TYPE_CHECKING:
    from sciml.operators.surrogate import Prediction

_POINTS_A_WEIGHT, _STEPS, _PROBES = 3, 8, 2000


def corrected(prediction: Prediction, **options: Any) -> Solution:
    """The solution of the problem that a prediction is of; see ``Prediction.correct``."""
    surrogate, begin = prediction.surrogate, time.perf_counter()
    if surrogate.family is None:
        raise ProblemError("correct() solves the equation, and these pairs have no family: make them by operators.sample")
    problem = surrogate.family.posed(prediction.inputs)
    degrees, how = surrogate.ways.get("degrees"), {"progress": False, **options}
    found = None
    if degrees is not None and not {"model", "strategy", "solver", "start"} & set(how):
        model = Spectral(tuple(degrees), periodic=tuple(surrogate.ways["periodic"]))
        started = _start(problem, model, prediction)
        found = fit(problem, start=started, solver=GaussNewton(_STEPS), **how)
    if found is None or not found.success:
        # The polynomials of the samples do not resolve this one, or there were none.
        found = fit(problem, **how)
    before = distance(prediction, found)
    cold = surrogate.ways.get("seconds")
    said = f"corrected from a prediction with the relative L2 error {before:.1e}"
    took = time.perf_counter() - begin
    said += "" if cold is None else f", in {took:.2f} s; a sample of training took {cold:.2f} s"
    return replace(found, choices=(said, *found.choices), seconds=took)


def distance(prediction: Prediction, solution: Solution) -> float:
    """The relative L2 distance of a prediction from a solution at the nodes."""
    frame = prediction.frame
    at: dict[str, Any] = dict(zip(frame.axes, np.meshgrid(*frame.axes.values(), indexing="ij"), strict=True))
    known = solution(**at)
    truth = np.stack([np.asarray(known[name]).ravel() for name in frame.fields], axis=1)
    return float(np.linalg.norm(prediction.values - truth) / max(np.linalg.norm(truth), np.finfo(float).tiny))


def _start(problem: Problem, model: Spectral, prediction: Prediction) -> Solution:
    """The prediction in polynomials, by least squares, as something to begin a fit from."""
    count, fields = len(problem.coordinates), len(problem.fields)
    model.build(count, fields, torch.Generator())
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, [0.0] * fields, [1.0] * fields).double()
    number = max(_POINTS_A_WEIGHT * model.basis.width, 200)
    points = draw(Interior(), problem.domain, number, np.random.default_rng(0)).points[0]
    nodes = prediction.frame.axes
    inside = np.clip(points.numpy(), [nodes[name][0] for name in nodes], [nodes[name][-1] for name in nodes])
    values = prediction(**dict(zip(problem.coordinates, inside.T, strict=True)))
    with torch.no_grad():
        table = model.basis((points - trial.center) / trial.half_width).numpy()
        # Predictions are rough where the operator is not known: high degrees would follow that.
        wanted = np.stack([values[name] for name in problem.fields], axis=1)
        weights = np.linalg.lstsq(table, wanted, rcond=1e-6)[0]
        model.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights.T)))
    empty = pd.DataFrame(columns=["estimate", "standard_error", "low", "high"])
    return Solution(
        trial=trial,
        problem=problem,
        name=type(problem).__name__,
        fields=tuple(problem.fields),
        domain=problem.domain,
        unknowns=empty,
        history=pd.DataFrame(),
        residuals=pd.DataFrame(),
        success=False,
        status="budget",
        message="a prediction",
        nit=0,
        nfev=0,
        seconds=0.0,
        solver="surrogate",
        engine="",
    )

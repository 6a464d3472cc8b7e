"""Distillation: one network fitted to a solution that is made of many functions."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml._text import whole
from sciml.data import Table
from sciml.embedding import checked_jets
from sciml.errors import ProblemError, SolverError
from sciml.fitting import fit
from sciml.geometry import Interior, draw
from sciml.jets import d, jets_of
from sciml.models import MLP
from sciml.plots import living
from sciml.problem import Problem, equation
from sciml.problem.functions import named
from sciml.solution import Solution
from sciml.solvers import LeastSquares, Solver
from sciml.strategies.teaching import steepest
from sciml.typing import Array, MultiIndex

_FRESH, _CANDIDATES = 4096, 8


def distil(
    solution: Solution,
    model: nn.Module | None = None,
    *,
    points: int = 1500,
    jets: Sequence[str | Sequence[str]] = (),
    solver: Solver | Sequence[Solver] | None = None,
    tolerance: float = 1e-2,
    seed: int = 0,
) -> Solution:
    r"""Fit one network to a solution of any kind: windows, elements, polished features, values on a grid.

    The network N makes the distance to the solution u least squares,

    .. math::  \min_N \sum_i \lvert N(x_i) - u(x_i)\rvert^2
               + \sum_\alpha \sum_i \lvert\partial^\alpha N(x_i) - \partial^\alpha u(x_i)\rvert^2/s_\alpha^2,

    at points of which half are uniform and half where u is steep. The equations are not used. ``message`` and ``residuals``
    give the distance to u on fresh uniform points; a network that is farther than ``tolerance`` is no success.

    Args:
        solution: the solution to be distilled.
        model: the network, as for ``fit``; ``MLP(24, 24)`` by default.
        points: the number of points to fit at.
        jets: derivatives to be fitted as well, as ``("x", ("x", "x"))``.
        solver: as for ``fit``; by default Adam and quasi-Newton steps, with derivatives ``LeastSquares(200)``.
        tolerance: the relative L2 distance, of every field and of every derivative in ``jets``, that counts as a success.
        seed: of weights and points.

    Returns:
        A solution of the same problem with the network in it, to be embedded with. Its ``residuals`` are distances to
        ``solution``, a row ``distance.u`` for each field u and ``distance.u_x`` for each derivative: ``rms`` and ``max`` in
        its unit, ``relative`` the relative L2 distance, ``points``.

    Raises:
        ProblemError: ``points`` is not a positive number, or a derivative is not one by coordinates.
        SolverError: ``tolerance`` is no positive number, or ``seed`` no whole number that is not negative.
        ModelError: the model cannot serve; see ``fit``.

    Example:
        >>> import sciml
        >>> growth = sciml.baseline(sciml.gallery.problem("logistic_growth"))
        >>> network = sciml.distil(growth, sciml.MLP(6), points=100)
        >>> network.success, sciml.embed(network, {"t": [0.0, 1.0]}).shape
        (True, (2, 6))

    Reference: G. Hinton, O. Vinyals and J. Dean, Distilling the knowledge in a neural network, 2015; with derivatives
    W. M. Czarnecki et al., Sobolev training for neural networks, NIPS 2017.
    """
    start = time.perf_counter()
    if not isinstance(solution, Solution):
        raise ProblemError(f"distil needs a solution of fit or baseline; given: {type(solution).__name__}")
    whole("points", points, 8, ProblemError)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < math.inf:
        raise SolverError(f"tolerance must be a positive number; given: {tolerance!r}")
    seed = whole("seed", seed, 0, SolverError)
    plan = checked_jets(jets, solution.coordinates)
    even, candidates, fresh = (
        draw(Interior(), solution.domain, count, np.random.default_rng([seed, 40 + number])).points[0].numpy()
        for number, count in enumerate(((points + 1) // 2, _CANDIDATES * points, _FRESH))
    )
    problem = _problem(solution, plan)
    steep = steepest(solution.trial, problem, candidates, points // 2, np.random.default_rng([seed, 43]))
    table = _table(solution, np.concatenate([even, steep]))
    found = fit(
        problem,
        MLP(24, 24) if model is None else model,
        data=table,
        solver=LeastSquares(200) if solver is None and plan else solver,
        teacher=None,
        # Nothing here is measured: values count as much as derivatives do.
        weights=dict.fromkeys(("data", *problem.equations), 1.0) if plan else None,
        points=points if plan else None,
        dtype=solution.dtype,
        device=solution.device,
        sampler=None,
        seed=seed,
    )
    distances = _distances(solution, found, fresh, plan)
    worst = str(distances["relative"].idxmax())
    far = float(distances["relative"].max())
    ended = found.status not in ("diverged", "interrupted")
    verdict = f"the relative L2 distance from {solution.title} is {far:.1e} ({worst}, {_FRESH} fresh points)"
    if not far <= tolerance:
        verdict += f", more than {tolerance:g}: try a larger model, more points or more steps"
    if not solution.success:
        verdict += "; and that solution was no success itself"
    return dataclasses.replace(
        found,
        problem=solution.problem,
        name=solution.name,
        unknowns=solution.unknowns,
        residuals=distances,
        success=ended and far <= tolerance and solution.success,
        message=verdict,
        seconds=time.perf_counter() - start,
        tolerance=solution.tolerance,
        choices=(*found.choices, f"distilled from {solution.title} ({solution.engine}); no equation was used"),
        data=None,
    )


def _table(solution: Solution, points: Array) -> Table:
    """The solution's values, NaN where a field does not live."""
    at = dict(zip(solution.coordinates, points.T, strict=True))
    return Table({**at, **living(solution, at)}, source="the solution to be distilled", missing="mask")


def _problem(solution: Solution, plan: Sequence[MultiIndex]) -> Problem:
    """A problem whose only equations are that derivatives are those of the solution."""
    slopes = {"_".join(("slope", field, *index)): (field, index) for field in solution.fields for index in plan}
    equations = {name: equation(_equal_jets(solution, *which, name)) for name, which in slopes.items()}
    members = {"domain": solution.domain, "fields": list(solution.fields), "__doc__": f"Values of {solution.name}."}
    return type("Distilled", (Problem,), members | equations)()


def _equal_jets(solution: Solution, field: str, index: MultiIndex, name: str) -> Callable[..., Tensor]:
    """An equation: a derivative of the field less that of the solution."""
    known: dict[tuple[int, bytes], Tensor] = {}

    def residual(self: Problem, **given: Tensor) -> Tensor:
        columns = [given[key] for key in solution.coordinates]
        points = torch.stack([column.detach() for column in columns], dim=1)
        key = len(points), points.cpu().numpy().tobytes()
        if key not in known:
            # The solution stays as it is: its derivatives at a set of points are computed once.
            known[key] = (
                jets_of(solution.trial, points, solution.coordinates, solution.fields).jet(field, index).detach().to(points)
            )
        return d(given[field], *(given[each] for each in index)) - known[key]

    residual.__name__ = name
    return named(residual, ("self", field, *solution.coordinates))


def _distances(solution: Solution, found: Solution, points: Array, plan: Sequence[MultiIndex]) -> pd.DataFrame:
    """The distances of a network from a solution, in the form of a certificate."""
    at = torch.from_numpy(points)
    lives = solution.lives(dict(zip(solution.coordinates, points.T, strict=True)))
    old, new = (jets_of(each.trial, at, solution.coordinates, solution.fields) for each in (solution, found))
    rows = {}
    for field in solution.fields:
        there = torch.from_numpy(np.array(lives[field]))
        for index in ((), *plan):
            true, own = (each.jet(field, index).detach().double().cpu()[there] for each in (old, new))
            gap, size = own - true, float(true.square().mean().sqrt())
            rms = float(gap.square().mean().sqrt())
            row = rms, float(gap.abs().max()), rms / size if size > 0 else math.inf, len(true)
            rows["distance." + "_".join((field, *index))] = row
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rms", "max", "relative", "points"])

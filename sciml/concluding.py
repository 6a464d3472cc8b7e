"""From a trained set-up to a solution: its certificate, intervals, doubts and message."""

from __future__ import annotations

import time

import pandas as pd

from sciml.certificate import certificate, failures
from sciml.doubts import estimated, overfit
from sciml.evidence import statistics
from sciml.passes import Attempt
from sciml.problem import Problem
from sciml.profiles import profiled
from sciml.setup import Setup
from sciml.solution import Solution, unknowns_frame
from sciml.spread import spread_of

_MESSAGES = {
    "converged": "the last solver converged",
    "plateau": "the loss on held-out rows no longer falls",
    "budget": "all steps were used",
    "stopped": "a callback ended the fit",
    "interrupted": "interrupted; this is the best state up to then",
}


def concluded(
    problem: Problem, done: Attempt, notes: list[str], *, seed: int, tolerance: float, intervals: str, clock: float
) -> Solution:
    """The solution of a fit, judged on points that nothing was trained on.

    Args:
        problem: the mathematics.
        done: the trained set-up, and how it was arrived at.
        notes: choices to be told beside those of the set-up.
        seed: of the fit.
        tolerance: the relative residual above which the certificate fails.
        intervals: the kind of intervals of unknown constants.
        clock: when the fit began, as ``time.perf_counter`` tells it.
    """
    setup, outcome = done.setup, done.outcome
    setup.trial.eval()
    residuals = certificate(setup.rows, setup.fresh, setup.scales)
    misses = failures(residuals, tolerance)
    inference, doubt = estimated(setup, residuals)
    if intervals == "profile" and inference.measurements and not outcome.stopped:
        inference = profiled(setup, inference)
    spread = spread_of(setup, inference)
    doubt += overfit(setup, residuals)
    message = _MESSAGES.get(outcome.status, outcome.message)
    if outcome.message and outcome.status in _MESSAGES:
        message = f"{message} ({outcome.message})"
    if len(misses):
        worst = misses["relative"].idxmax()
        doubt.insert(
            0,
            f"the certificate fails: on fresh points {worst!r} is {misses['relative'].max():.1e} of its natural size, "
            f"more than {tolerance:g}: try more steps, more points or a larger model",
        )
    counts = ", ".join(f"{block.size} for {'/'.join(term.name for term in block.terms)}" for block in setup.train)
    return Solution(
        trial=setup.trial.requires_grad_(False),
        problem=problem,
        name=type(problem).__name__,
        fields=tuple(problem.fields),
        domain=problem.domain,
        unknowns=unknowns_frame(inference.estimates),
        history=pd.DataFrame(outcome.history),
        residuals=residuals,
        success=outcome.status in ("converged", "plateau", "budget", "stopped") and not doubt,
        status=outcome.status,
        message="; ".join([message, *doubt]),
        nit=outcome.steps,
        nfev=outcome.evaluations,
        seconds=time.perf_counter() - clock,
        solver=done.solver,
        engine=setup.rows.engine,
        seed=seed,
        points={term.name: block.size for block in setup.train for term in block.terms},
        choices=(*setup.choices, *notes, f"points: {counts}"),
        data=setup.table,
        tolerance=float(tolerance),
        statistics=statistics(setup.rows, setup.train, inference, _found(setup)),
        spread=spread,
    )


def _found(setup: Setup) -> frozenset[str]:
    """The columns whose noise has a size that was found from the data."""
    return frozenset() if setup.measurements is None else setup.measurements.found

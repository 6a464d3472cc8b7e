"""From a trained set-up to a solution: its certificate, intervals, doubts and message."""

from __future__ import annotations

import time

import pandas as pd

from sciml.certificate import certificate
from sciml.doubts import estimated, not_finite, overfit, uncertified
from sciml.evidence import statistics
from sciml.passes import Attempt
from sciml.problem import Problem
from sciml.profiles import profiled
from sciml.setup import Setup
from sciml.solution import Solution, unknowns_frame
from sciml.spread import spread_of
from sciml.stagnation import overfitted, stagnant

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
    if not outcome.ended and (lost := not_finite(setup, residuals)):
        outcome.status, outcome.message = "diverged", lost
    inference, doubt = estimated(setup, residuals)
    if intervals == "profile" and inference.measurements and not outcome.stopped:
        try:
            inference = profiled(setup, inference)
        except KeyboardInterrupt:
            outcome.status, outcome.message = "interrupted", "intervals are from the covariance"
    spread = spread_of(setup, inference)
    doubt += overfit(setup, residuals)
    message = _MESSAGES.get(outcome.status, outcome.message)
    if outcome.message and outcome.status in _MESSAGES:
        message = f"{message} ({outcome.message})"
    doubt = [*(failed := uncertified(residuals, tolerance)), *doubt]
    remarks = overfitted(outcome.history) or (stagnant(setup, outcome.history) if failed and not outcome.ended else [])
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
        message="; ".join([message, *doubt, *remarks]),
        nit=outcome.steps,
        nfev=outcome.evaluations,
        seconds=time.perf_counter() - clock,
        solver=done.solver,
        engine=setup.rows.engine,
        seed=seed,
        points={term.name: block.size for block in setup.train for term in block.terms},
        choices=(
            *setup.choices,
            *setup.rows.portion.said(),
            *notes,
            *(f"{name}: {note}" for name, note in outcome.notes.items()),
            f"points: {counts}",
        ),
        data=setup.table,
        tolerance=float(tolerance),
        statistics=statistics(setup.rows, setup.train, inference, _found(setup)),
        spread=spread,
    )


def _found(setup: Setup) -> frozenset[str]:
    """The columns whose noise has a size that was found from the data."""
    return frozenset() if setup.measurements is None else setup.measurements.found

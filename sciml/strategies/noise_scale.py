"""Iteratively re-estimated noise variance: fits in turn, each with the size that the one before found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from sciml._text import listed
from sciml.problem import Measurements, Normal, Problem
from sciml.solvers import DiscreteProblem
from sciml.strategies.search import STOPPED, Candidate, Workspace
from sciml.uncertainty.covariance import from_rows
from sciml.uncertainty.model_selection import deviations

_PASSES = 4
_SETTLED = 0.05


def iterate(solve: Callable[[Workspace], Candidate], work: Workspace) -> tuple[Candidate, list[str]]:
    """Iteratively re-estimated variances: the last of some fits, and what is to be said about the noise and its choices.

    Sizes are wanted of columns whose noise model was named without one, and of all columns where some size or a prior is known,
    for then it matters how much a row of theirs weighs against those. The first fit takes squares; outliers that it sees by a
    robust estimate weigh less in the next. It ends once no size changes by more than a twentieth.

    Reference: R. J. Carroll and D. Ruppert, Transformation and Weighting in Regression, Chapman and Hall 1988, section 2.
    """
    measurements = work.measurements
    done = solve(work)
    wanted = [] if measurements is None else _wanted(work.problem, measurements)
    if measurements is None or not wanted:
        return done, work.choices
    if done.ended:
        return _squares_alone(done, measurements, wanted), work.choices
    sizes = _sizes(done.discrete, measurements, wanted)
    if sizes is None:
        return done, [f"too few measurements to find the size of the noise of {', '.join(wanted)}", *work.choices]
    rounds, settled = 1, False
    while rounds < _PASSES and not done.ended and not settled and not work.log.over():
        work = replace(work.on(measurements.with_sigma(sizes)), begun=done.discrete.raw)
        try:
            again = solve(work)
        except KeyboardInterrupt:
            return replace(done, status="interrupted", message=""), work.choices
        if again.status in STOPPED:
            # The fit before it is whole, this one is not.
            done = replace(done, status=again.status, message=again.message)
            break
        done = again
        found = _sizes(done.discrete, measurements, wanted) or sizes
        settled = all(abs(found[column] - sizes[column]) <= _SETTLED * sizes[column] for column in wanted)
        sizes, rounds = found, rounds + 1
    if rounds == 1 and not settled:
        done = _squares_alone(done, measurements, wanted)
    found_sizes = ", ".join(f"{sizes[column]:.3g} for {column}" for column in wanted)
    return done, [f"size of the noise, found from the misfit in {rounds} passes: {found_sizes}", *work.choices]


def _squares_alone(done: Candidate, measurements: Measurements, wanted: list[str]) -> Candidate:
    """Least squares alone: the first of the fits, where it is the only one, is no success if some noise is not normal."""
    other = [column for column in wanted if not isinstance(measurements.noise_or_normal(column), Normal)]
    if not other:
        return done
    what = f"the noise that was stated of {listed(other)} was not fitted yet, only least squares: the fit ended before"
    return replace(done, doubt=done.doubt or what)


def _wanted(problem: Problem, measurements: Measurements) -> list[str]:
    columns = list(measurements.observables(problem))
    noises = {column: measurements.noise_of(column) for column in columns}
    known = any(unknown.prior is not None for unknown in problem.unknowns.values())
    known = known or any(noise is not None and noise.known for noise in noises.values())
    return [column for column, noise in noises.items() if (known if noise is None else not noise.known)]


def _sizes(setup: DiscreteProblem, measurements: Measurements, wanted: list[str]) -> dict[str, float] | None:
    """The size of each column's noise, as its misfit tells it; what was fitted shared out among all values."""
    inference = setup.inference or from_rows(setup.objective())
    if inference.freedom < 1:
        return None
    fraction = min(inference.fitted / max(inference.measurements, 1), 0.9)
    found = {}
    for column, values in deviations(setup.rows, setup.train, measurements, wanted).items():
        given, noise = torch.as_tensor(measurements.table[column].copy()), measurements.noise_or_normal(column)
        least = noise.rounding(given[given.isfinite()])
        found[column] = max(noise.estimate(values, (1 - fraction) * len(values)), least, 1e-300)
    return found

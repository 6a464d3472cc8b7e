"""What ``fit`` does when no model, solver or number of points is named: measure what the problem is, then choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sciml.geometry import Box
from sciml.problem.structure import is_linear
from sciml.solvers import Adaptive, Callback, DiscreteProblem, LeastSquares
from sciml.strategies.inverse_fields import solve_for_fields, why_not_smooth
from sciml.strategies.inverse_ode import solve_for_constants
from sciml.strategies.inverse_pde import solve_by_tiles, why_not_tiles
from sciml.strategies.network import solve_by_network
from sciml.strategies.random_features import Found, solve_by_features
from sciml.strategies.singular import has_reentrant_corners, solve_by_corners, stalls_at_corners
from sciml.strategies.slabs import SpaceTimeSlabs, why_not_elements
from sciml.strategies.spectral import MOST_COORDINATES, Degrees, solve_by_degrees
from sciml.strategies.time_marching import Level, joined, march, why_not_windows
from sciml.strategies.training import Training
from sciml.strategies.window_solvers import DeepWindows, FeatureWindows, SpectralWindows, feature_count

_WINDOW_SCALES = (8.0, 16.0, 32.0)

_ODE_SCALE = 6.0

_ODE_WISH = 1e-9

_WISH = 1e-7

_SPECTRAL_WISH = 1e-9

_ACCEPTED, _FAR = 1e-6, 1e-4

_GOOD_ENOUGH, _SHORTEST = 1e-3, 1e-7

_WEIGHTS, _MORE_WEIGHTS, _FINE = 2400, 3600, 1e-6

_INVERSE = ((100, 32.0), (200, 48.0))

_INVERSE_POINTS = 6

_DATA_WEIGHTS = (1e-2, 1e-4, 1e-6)

_INVERSE_STEPS = LeastSquares(200)

# Of unknown fields: smooth ones first, and measurements that lead.
_FIELDS = ((40, 4.0), (60, 8.0), (100, 16.0))

_FIELD_WEIGHTS = (10.0, 1.0)

_GAIN = 0.9

_NEGLIGIBLE = 0.01

_CLOSE = 1e-5

_INVERSE_GOOD = 1e-3

_WINDOWS_GOOD = 1e-2

_ENOUGH = 1e-6

_FIRST_WAY = {
    FeatureWindows: "random features",
    SpectralWindows: "products of polynomials and waves",
    SpaceTimeSlabs: "piecewise polynomials",
}


def choose(
    setup: DiscreteProblem, seed: int, tolerance: float, watchers: Sequence[Callback], start: float
) -> Found | None:
    """The best that can be found without a person's choosing; None where a network is the better answer.

    Linear problems: products of polynomials and waves on boxes of at most three coordinates, random features elsewhere and
    where those do not resolve it; one solve. Problems in time: windows, the same functions in them for as long as they resolve
    them, then polished networks. Stationary problems: the same functions by Gauss-Newton steps; in many coordinates, where
    features are too few, a network by Levenberg-Marquardt.

    Args:
        setup: a problem with as many points as ``most_points`` says.
        seed: of features, networks and points.
        tolerance: a relative residual that is wished for; smaller ones than the default are tried for.
        watchers: see every look; a true return value ends the search.
        start: when the fit began.
    """
    problem = setup.problem
    linear = is_linear(problem, setup.train)
    measured = setup.table is not None
    best = None
    if why_not_smooth(setup) is None:
        return solve_for_fields(setup, seed, watchers, start)
    if len(problem.coordinates) == 1 and measured and problem.unknowns:
        return solve_for_constants(setup, seed, watchers, start)
    if measured and not linear and why_not_tiles(problem) is None:
        return solve_by_tiles(setup, watchers)
    if linear or not (problem.unknowns or measured):
        marches, marched, smooth = why_not_windows(problem, measured) is None, None, None
        if linear and marches and why_not_elements(problem) is None:
            smooth = solve_by_degrees(setup, seed, tolerance, linear=True, watchers=watchers)
            if smooth is not None and (smooth.relative <= _ENOUGH or smooth.ended in ("stopped", "interrupted")):
                return smooth
            # A jump or a layer: elements are better at these than anything for the whole domain.
            marched = _march(setup, seed, tolerance, watchers, start)
            found = marched if smooth is None else _better(smooth, marched)
            if found.taken:
                return found
        if linear or not marches:
            best = _whole(setup, seed, tolerance, linear, watchers, smooth)
            if best.taken:
                return best
            if len(problem.coordinates) > 3 and not marches and not problem.unknowns:
                found = solve_by_network(setup, seed, watchers, start)
                history, solves = [*best.history, *found.history], best.solves + found.solves
                better = found if found.relative < best.relative else replace(best, ended=found.ended)
                return replace(better, history=history, solves=solves)
        if marches:
            marched = marched or _march(setup, seed, tolerance, watchers, start)
            if best is None or marched.good or marched.relative < best.relative:
                best = marched
            elif marched.taken:
                best = replace(best, ended=marched.ended)
    return best


def _whole(
    setup: DiscreteProblem,
    seed: int,
    tolerance: float,
    linear: bool,
    watchers: Sequence[Callback],
    smooth: Found | None,
) -> Found:
    """The whole domain at once: products of polynomials and waves where they are good, else these or features.

    ``smooth`` is what these products reached, if they were tried before. Functions that are singular at
    corners join them where corners are re-entrant, or where residuals are large.
    """
    best: Found | None = None
    if has_reentrant_corners(setup.problem):
        best = solve_by_corners(setup, seed, tolerance, linear=linear, earlier=None, watchers=watchers)
        if best is not None and (best.relative <= _ENOUGH or best.ended in ("stopped", "interrupted")):
            return best
    cornered = best is not None
    if isinstance(setup.problem.domain, Box) and len(setup.problem.coordinates) <= MOST_COORDINATES:
        best = smooth or solve_by_degrees(setup, seed, tolerance, linear=linear, watchers=watchers)
        if best is not None and (best.relative <= _ENOUGH or best.ended in ("stopped", "interrupted")):
            return best
        if best is not None and stalls_at_corners(best.setup):
            cornered = True
            best = _better(
                best, solve_by_corners(setup, seed, tolerance, linear=linear, earlier=best, watchers=watchers)
            )
            if best.taken:
                return best
    found = solve_by_features(setup, seed, tolerance, linear=linear, watchers=watchers)
    best = found if best is None else _better(best, found)
    if best.relative > _ENOUGH and not cornered and found.ended == "converged" and stalls_at_corners(best.setup):
        best = _better(best, solve_by_corners(setup, seed, tolerance, linear=linear, earlier=best, watchers=watchers))
    return best


def _better(first: Found, second: Found | None) -> Found:
    """The one with the smaller residual, with the history of both."""
    if second is None:
        return first
    history, solves = [*first.history, *second.history], first.solves + second.solves
    better = second if second.relative < first.relative else first
    return replace(better, history=history, solves=solves, ended=second.ended)


def _march(setup: DiscreteProblem, seed: int, tolerance: float, watchers: Sequence[Callback], start: float) -> Found:
    problem = setup.problem
    training = Training(None, Adaptive(every=10), watchers, start)
    count = feature_count(problem)
    if len(problem.coordinates) == 1:
        wish = min(tolerance, _ODE_WISH)
        levels = [Level(FeatureWindows(setup, training, seed, count, (_ODE_SCALE,), wish), 0.1, 1e-9)]
    else:
        wish = min(tolerance, _WISH)
        first: Level
        if why_not_elements(problem) is None:
            elements = SpaceTimeSlabs(setup, training, min(wish, _SPECTRAL_WISH), _GOOD_ENOUGH)
            first = Level(elements, 0.05, _SHORTEST, wish=lambda: elements.wish, accepted=_GOOD_ENOUGH)
        elif isinstance(problem.domain, Box) and len(problem.coordinates) <= MOST_COORDINATES:
            most = _WEIGHTS if tolerance > _FINE else _MORE_WEIGHTS
            bases = [Degrees.first(problem)]
            if bases[0].waves:
                # A periodic function need not be smooth where its ends meet.
                bases.append(Degrees.first(problem, ()))
            spectral = SpectralWindows(setup, training, seed, min(wish, _SPECTRAL_WISH), _ACCEPTED, bases, most)
            first = Level(spectral, 0.05, 0.025, wish=lambda: spectral.wish, accepted=_ACCEPTED, far=_FAR)
        else:
            first = Level(FeatureWindows(setup, training, seed, count, _WINDOW_SCALES, wish), 0.1, 0.025)
        levels = [first, Level(DeepWindows(setup, training, seed, wish), 0.1, 0.05)]
    marched = march(setup, levels, wish=wish, ended=lambda: training.outcome.stopped)
    how = _FIRST_WAY[type(levels[0].attempt)]
    if marched.climbed:
        at_once = marched.climbed[0] <= marched.edges[0]
        before = "" if at_once else f"{how} up to {problem.time} = {marched.climbed[0]:.4g}, then "
        how = f"{before}polished networks"
    missed = f", {marched.failed} of them above the residual of {wish:.0e} that was aimed at" if marched.failed else ""
    worst = f"the worst with {marched.worst:.1e} of its natural size{missed}"
    end = problem.domain.bounds[str(problem.time)][1]
    short = f"; it ended at {problem.time} = {marched.edges[-1]:.4g} of {end:g}" if marched.edges[-1] < end else ""
    reason = (
        f"the problem starts at {problem.time} = {marched.edges[0]:g}: {len(marched.setups)} windows of time, lengths chosen "
        f"by the residual on held-out points ({worst}), solved by {how}{short}"
    )
    outcome = training.outcome
    # How the last attempt ended says nothing of the windows, unless somebody wanted the end.
    ended = "interrupted" if marched.interrupted else outcome.status if outcome.stopped else "converged"
    return Found(
        joined(setup, marched),
        marched.relative,
        "windows",
        reason,
        outcome.steps,
        outcome.history,
        ended,
        _WINDOWS_GOOD,
    )

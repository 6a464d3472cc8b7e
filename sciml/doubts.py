"""Reasons not to believe a fit that looks well: what is said in its message, and keeps it from being a success."""

from __future__ import annotations

import math

import pandas as pd
from scipy import stats

from sciml.certificate import failures
from sciml.diagnosis import told
from sciml.misfit import Misfit
from sciml.models import Windowed
from sciml.objective import Objective
from sciml.resolution import hidden_step
from sciml.setup import Setup
from sciml.uncertainty import Estimate, Inference, from_rows

_MOST_DRIFT = 0.5
_MOST_OVERFIT = 30.0
_NEGLIGIBLE = 1e-3
_AT_A_BOUND = 8.0
_CHANCE = 1e-4


def estimated(setup: Setup, residuals: pd.DataFrame) -> tuple[Inference, list[str]]:
    """What the measurements say, and every reason to doubt that and the fit."""
    values = {name: float(value.detach()) for name, value in setup.rows.values().items()}
    blank = Inference({name: Estimate(value, math.nan, math.nan, math.nan) for name, value in values.items()})
    misfits: dict[str, float] = {str(name): float(value) for name, value in residuals["relative"].items()}
    measured = [term.name for block in setup.train for term in block.terms if isinstance(term.evaluate, Misfit)]
    doubt = [
        f"the solution explains nothing of {name!r}: its misfit is {misfits[name]:.1g} of the spread of the column"
        for name in measured
        if not misfits[name] < 1.0
    ]
    fields = len(setup.problem.equations) < len(setup.problem.fields)
    if not values and not (measured and fields and setup.problem.equations):
        return blank, doubt
    if not measured:
        return blank, [*doubt, "the unknowns cannot be estimated without measurements"]
    if not all(map(math.isfinite, values.values())):
        return blank, [*doubt, "an unknown is not finite"]
    try:
        known = setup.measurements is not None and setup.measurements.known(setup.problem)
        inference = setup.inference or from_rows(setup.rows, setup.train, setup.scales, setup.weights, known=known)
    except KeyboardInterrupt:
        return blank, [*doubt, "interrupted before the intervals were computed"]
    found, drift = inference.estimates, inference.drift
    if known:
        doubt += _beyond_noise(setup, inference)
    lost = [name for name, estimate in found.items() if not math.isfinite(estimate.standard_error)]
    unseen = {name: found[name].singular for name in lost if math.isfinite(found[name].singular)}
    if unseen:
        shares = ", ".join(f"{share:.0e}" for share in unseen.values())
        doubt.append(
            f"the data do not determine {', '.join(unseen)} (no row sees them: singular value {shares} of the largest): "
            "fix one, measure something else, or take it out of the equations"
        )
    elif lost:
        doubt.append(f"the data do not determine {', '.join(lost)}, or are too few to tell their noise")
    if drift > _MOST_DRIFT:
        doubt.append(
            f"the unknowns have not arrived: the linearised problem would move one by {drift:.1g} of its standard errors; "
            "use more steps"
        )
    stuck = [
        name for name, raw in setup.raw.items() if abs(float(raw.detach())) > _AT_A_BOUND and _bounded(setup, name)
    ]
    if stuck:
        doubt.append(f"{', '.join(stuck)} went to a bound: the data contradict the equations, or the bound is wrong")
    return inference, doubt


def not_finite(setup: Setup, residuals: pd.DataFrame) -> str:
    """What is not finite on fresh points, in a sentence; an empty one where all is."""
    if all(map(math.isfinite, residuals["relative"])):
        return ""
    lost = [str(name) for name, value in residuals["relative"].items() if not math.isfinite(value)]
    fallback = f"the residual {lost[0]!r} is not finite"
    fresh = Objective(setup.rows, setup.fresh, setup.scales, setup.weights, setup.parameters)
    return f"on fresh points {told(fresh, fallback)}"


def uncertified(residuals: pd.DataFrame, tolerance: float) -> list[str]:
    """That the certificate fails, where by how much, and what to try; nothing where it holds."""
    misses = failures(residuals, tolerance)["relative"]
    lost = [str(name) for name, value in misses.items() if math.isnan(value)]
    if lost:
        return [f"the certificate fails: on fresh points {lost[0]!r} is not a number"]
    if not len(misses):
        return []
    return [
        f"the certificate fails: on fresh points {misses.idxmax()!r} is {misses.max():.1e} of its natural size, more than "
        f"{tolerance:g}: try more steps, more points or a larger model"
    ]


def _beyond_noise(setup: Setup, inference: Inference) -> list[str]:
    """A reason to doubt standard deviations that were given, or equations: data farther from them than chance allows.

    Sums of squares are compared with chi-squared of the same mean and variance (F. E. Satterthwaite, Biometrics Bulletin 2,
    1946).
    """
    total, mean, variance = 0.0, 0.0, 0.0
    for block in setup.train:
        for term in block.terms:
            if not isinstance(term.evaluate, Misfit):
                continue
            scene, _ = setup.rows.scene(block)
            model = term.evaluate.model(scene).detach()
            known = term.evaluate.squares(model)
            if known is not None:
                total, mean = total + float(known[0].sum()), mean + len(model)
                variance += float(known[1].sum())
    share = inference.freedom / max(inference.measurements, 1)
    if mean * share < 1:
        return []
    spread = variance / (2 * mean)
    if stats.chi2.sf(total / spread, 2 * mean**2 * share / variance) > _CHANCE:
        return []
    return [
        f"the data lie {math.sqrt(total / (mean * share)):.3g} of their standard deviations from the solution in the root "
        f"mean square, which chance does not explain (chi-squared {total:.4g} at {mean * share:.4g} degrees of freedom): "
        "the equations do not describe them, or the standard deviations given are too small"
    ]


def overfit(setup: Setup, residuals: pd.DataFrame) -> list[str]:
    """A reason to doubt a fit that satisfies the equations at its training points and not between them."""
    if isinstance(setup.trial, Windowed):
        # Every window was judged by points of its own; these, of the whole, are too few to tell a transient from a step.
        return []
    if not len(failures(residuals, _NEGLIGIBLE)):
        return _needle(setup)
    objective = Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)
    trained, held_out = objective.value(), float(objective.total(objective.means(setup.held)))
    # What is not finite is another matter, and told elsewhere.
    if held_out <= _MOST_OVERFIT * trained or not (math.isfinite(held_out) and math.isfinite(trained)):
        return _needle(setup)
    return [
        f"the loss on held-out points is {held_out / trained if trained > 0 else math.inf:.0f} times that on training points: "
        "the equations hold at the points and not between them; use more points, or begin with sciml.Adam"
    ]


def _needle(setup: Setup) -> list[str]:
    step = hidden_step(setup.rows)
    if step is None:
        return []
    return [
        f"{step.derivative} makes a step of {step.share:.0%} of its range near {step.coordinate} = {step.position:.4g} that no "
        "point has seen: the equations hold at the points and not between them; use more points, or begin with sciml.Adam"
    ]


def _bounded(setup: Setup, name: str) -> bool:
    unknown = setup.problem.unknowns[name]
    return unknown.lower is not None or unknown.upper is not None

"""Reasons not to believe a fit that looks well: what is said in its message, and keeps it from being a success."""

from __future__ import annotations

import math

import pandas as pd

from sciml.certificate import failures
from sciml.models import Windowed
from sciml.objective import Objective
from sciml.resolution import hidden_step
from sciml.setup import Setup
from sciml.uncertainty import Estimate, from_rows

_MOST_DRIFT = 0.5
_MOST_OVERFIT = 30.0
_NEGLIGIBLE = 1e-3
_AT_A_BOUND = 8.0


def estimated(setup: Setup, residuals: pd.DataFrame) -> tuple[dict[str, Estimate], list[str]]:
    """The unknowns with their intervals, and every reason to doubt them and the fit."""
    values = {name: float(value.detach()) for name, value in setup.rows.values().items()}
    blank = {name: Estimate(value, math.nan, math.nan, math.nan) for name, value in values.items()}
    misfits: dict[str, float] = {str(name): float(value) for name, value in residuals["relative"].items()}
    measured = [term.name for block in setup.train for term in block.terms if term.measured]
    doubt = [
        f"the solution explains nothing of {name!r}: its misfit is {misfits[name]:.1g} of the spread of the column"
        for name in measured
        if not misfits[name] < 1.0
    ]
    if not values:
        return blank, doubt
    if not measured:
        return blank, [*doubt, "the unknowns cannot be estimated without measurements"]
    if not all(map(math.isfinite, values.values())):
        return blank, [*doubt, "an unknown is not finite"]
    try:
        found, drift = setup.estimates or from_rows(setup.rows, setup.train, setup.scales)
    except KeyboardInterrupt:
        return blank, [*doubt, "interrupted before the intervals were computed"]
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
    return found, doubt


def overfit(setup: Setup, residuals: pd.DataFrame) -> list[str]:
    """A reason to doubt a fit that satisfies the equations at its training points and not between them."""
    if isinstance(setup.trial, Windowed):
        # Every window was judged by points of its own; these, of the whole, are too few to tell a transient from a step.
        return []
    if not len(failures(residuals, _NEGLIGIBLE)):
        return _needle(setup)
    objective = Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)
    trained, held_out = objective.value(), float(objective.total(objective.terms(setup.held)).detach())
    if held_out <= _MOST_OVERFIT * trained:
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

"""Convergence diagnostics: overfitting in a fit's history, and why a loss stands still, in a sentence with a remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from sciml.problem.compatibility import contradictions
from sciml.problem.observations import is_measured
from sciml.solvers import DiscreteProblem

_FEW_LOOKS = 4
_STILL_FALLING, _FALLING_A_LOOK = 0.2, 0.05
_OPPOSED, _CANCELLED = -0.7, 0.3
_VANISHED = 1e-9
_LENGTHS = (0.1, 0.03, 0.01, 0.003)
_RISE, _FALL, _RISING_LOOKS = 3.0, 2.0, 5


def overfitted(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Overfitting: the training loss went on falling in some phase while that on held-out points rose."""
    found = []
    for phase in dict.fromkeys(str(look["phase"]) for look in history):
        looks = [look for look in history if look["phase"] == phase]
        held = [float(look["held_out"]) for look in looks]
        place = min(range(len(held)), key=lambda position: held[position])
        # Reports scatter, and a rise in one means nothing.
        best, last, later = looks[place], looks[-1], held[place + 1 :][-_RISING_LOOKS:]
        fell = float(best["loss"]) >= _FALL * float(last["loss"])
        if len(later) == _RISING_LOOKS and min(later) > _RISE * held[place] and fell:
            found.append(
                f"in {phase} the loss on training points fell after step {best['step']} from {best['loss']:.1e} to "
                f"{last['loss']:.1e} while that on held-out points rose from {held[place]:.1e} to {held[-1]:.1e} (overfitting; "
                f"the state at step {best['step']} was kept): more points, sampler=sciml.Adaptive() or a smaller model narrow "
                "the gap"
            )
    return found[-1:]


def stagnant(setup: DiscreteProblem, history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the loss no longer falls, or does not fall yet, where a certificate fails; nothing where no cause is seen."""
    looks = [look for look in history if look.get("phase") == history[-1]["phase"]] if history else []
    losses = [float(look["loss"]) for look in looks]
    if len(losses) < _FEW_LOOKS or not all(map(math.isfinite, losses)) or not setup.parameters:
        return []
    quarter = max(1, len(losses) // 4)
    fell = min(losses[-quarter:]) / min(losses[:-quarter]) if min(losses[:-quarter]) > 0 else 1.0
    if fell < 1 - _STILL_FALLING or _falls(losses):
        return ["the loss was still falling when the steps were used up: use more of them, or a larger learning rate"]
    objective = setup.objective()
    pulls = {name: objective.weights[name] * pull for name, pull in objective.pulls().items()}
    whole = torch.stack(list(pulls.values())).sum(0)
    if not bool(torch.isfinite(whole).all()):
        return []
    present, lower, slope, here = objective.value(), math.inf, float(whole.norm()), objective.vector()
    size = float(here.norm())
    for length in _LENGTHS if slope > 0 else ():
        objective.assign(here - length * size / slope * whole)
        lower = min(lower, objective.value())
    objective.assign(here)
    if lower < (1 - _STILL_FALLING) * present:
        return [
            f"the loss stood still at {present:.1e} though one longer step along its gradient lowers it to {lower:.1e}: the "
            "steps were too small or too few; use a larger learning rate, more steps, or sciml.LBFGS"
        ]
    opposed = _opposed(setup, looks, pulls, whole)
    if opposed or slope * size > _VANISHED * present:
        return opposed
    return [
        f"the gradient vanishes ({slope:.1e}) where the loss is {present:.1e}: the model is saturated or stuck at a solution "
        "that is none; use another seed, other initial weights, or sciml.LeastSquares"
    ]


def _falls(values: Sequence[float]) -> bool:
    """True if values fall by some per cent from one of the last few reports to the next, in the mean."""
    few = values[-_FEW_LOOKS:]
    if len(few) < _FEW_LOOKS or not all(math.isfinite(each) and each > 0 for each in few):
        return False
    return (few[-1] / few[0]) ** (1 / (len(few) - 1)) < 1 - _FALLING_A_LOOK


def _opposed(
    setup: DiscreteProblem, looks: Sequence[Mapping[str, Any]], pulls: Mapping[str, Tensor], whole: Tensor
) -> list[str]:
    sizes = {name: float(pull.norm()) for name, pull in pulls.items()}
    pairs = combinations([name for name in pulls if sizes[name] > 0], 2)
    cosines = {(one, two): float(pulls[one] @ pulls[two] / (sizes[one] * sizes[two])) for one, two in pairs}
    pair = min(cosines, key=lambda each: cosines[each], default=None)
    if pair is None or cosines[pair] > _OPPOSED or float(whole.norm()) > _CANCELLED * sum(sizes.values()):
        return []
    falling = any(_falls([float(look.get(name, math.nan)) for look in looks]) for name in pair)
    what = ""
    if any(map(is_measured, pair)) and not falling:
        what = " the measurements contradict the equations, or"
    elif any(all(repr(name) in each for name in pair) for each in contradictions(setup.problem)):
        what = " they contradict each other, or"
    return [
        f"{pair[0]!r} and {pair[1]!r} pull against one another (cosine of their gradients {cosines[pair]:.2f}),"
        f"{' though they still fall: more steps,' if falling else ' and neither falls:'}{what} weights=sciml.Balanced(), "
        "exact=True for conditions, or a larger model lets both hold"
    ]

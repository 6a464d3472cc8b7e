"""Why a fit did not get where it should: what its history and the gradients at its end tell, in a sentence with a remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sciml.problem.compatibility import contradictions
from sciml.problem.observations import is_measured
from sciml.solvers import DiscreteProblem, Objective

_FEW_LOOKS = 4

_STILL_FALLING = 0.2

_FALLING_A_LOOK = 0.05

_OPPOSED, _CANCELLED = -0.7, 0.3

_VANISHED = 1e-9

_LENGTHS = (0.1, 0.03, 0.01, 0.003)

_RISE, _FALL, _RISING_LOOKS = 3.0, 2.0, 5


def overfitted(history: Sequence[Mapping[str, Any]]) -> list[str]:
    r"""Whether the training loss went on falling in some phase while that on held-out points rose.

    The lowest held-out loss of the phase must lie at least five looks before its end, each of the last five looks three times
    above it, and the training loss must have fallen by a factor of two since: looks scatter, and a rise in one means nothing.

    Args:
        history: the looks of a fit, in order, as in ``solution.history``.

    Returns:
        A sentence for the last such phase, or nothing.

    Example:
        >>> looks = [{"phase": "Adam", "step": k, "loss": 0.5**k, "held_out": 0.5 ** min(k, 8 - k)} for k in range(1, 13)]
        >>> overfitted(looks)[0][:70]
        'in Adam the loss on training points fell after step 4 from 6.2e-02 to '
    """
    found = []
    for phase in dict.fromkeys(str(look["phase"]) for look in history):
        looks = [look for look in history if look["phase"] == phase]
        held = [float(look["held_out"]) for look in looks]
        place = min(range(len(held)), key=lambda position: held[position])
        later = held[place + 1 :][-_RISING_LOOKS:]
        fell = float(looks[place]["loss"]) >= _FALL * float(looks[-1]["loss"])
        if len(later) == _RISING_LOOKS and min(later) > _RISE * held[place] and fell:
            found.append(
                f"in {phase} the loss on training points fell after step {looks[place]['step']} from "
                f"{looks[place]['loss']:.1e} to {looks[-1]['loss']:.1e} while that on held-out points rose from "
                f"{held[place]:.1e} to {held[-1]:.1e} (overfitting; the state at step {looks[place]['step']} was kept): more "
                "points, sampler=sciml.Adaptive() or a smaller model narrow the gap"
            )
    return found[-1:]


def stagnant(setup: DiscreteProblem, history: Sequence[Mapping[str, Any]]) -> list[str]:
    r"""Why the loss no longer falls, or does not fall yet, where a certificate fails; nothing where no cause is seen.

    In order: the loss was still falling when the steps were used up; a single step along the gradient still lowers it by much
    (the steps were too few or too small); two terms pull against one another,
    :math:`\cos(\nabla L_i, \nabla L_j) < -0.7` with most of the gradient cancelled; the gradient vanishes.

    Args:
        setup: as the fit left it.
        history: its looks, in order.
    """
    looks = [look for look in history if look.get("phase") == history[-1]["phase"]] if history else []
    losses = [float(look["loss"]) for look in looks]
    if len(losses) < _FEW_LOOKS or not all(map(math.isfinite, losses)) or not setup.parameters:
        return []
    quarter = max(1, len(losses) // 4)
    fell = min(losses[-quarter:]) / min(losses[:-quarter]) if min(losses[:-quarter]) > 0 else 1.0
    if fell < 1 - _STILL_FALLING or _a_look(losses) < 1 - _FALLING_A_LOOK:
        return ["the loss was still falling when the steps were used up: use more of them, or a larger learning rate"]
    objective = setup.objective()
    pulls = {name: objective.weights[name] * pull for name, pull in objective.pulls().items()}
    whole = torch.stack(list(pulls.values())).sum(0)
    if not bool(torch.isfinite(whole).all()):
        return []
    present, lower = objective.value(), _lower_along(objective, whole)
    if lower < (1 - _STILL_FALLING) * present:
        return [
            f"the loss stood still at {present:.1e} though one longer step along its gradient lowers it to {lower:.1e}: the "
            "steps were too small or too few; use a larger learning rate, more steps, or sciml.LBFGS"
        ]
    return _opposed(setup, looks, pulls, whole) or _vanished(objective, whole)


def _lower_along(objective: Objective, gradient: Tensor) -> float:
    """The lowest loss that steps of some lengths along the gradient reach; the parameters stay where they are."""
    here, size, best = objective.vector(), float(gradient.norm()), math.inf
    for share in _LENGTHS if size > 0 else ():
        objective.assign(here - share * float(here.norm()) / size * gradient)
        best = min(best, objective.value())
    objective.assign(here)
    return best


def _a_look(values: Sequence[float]) -> float:
    """By which factor values change from one of the last few looks to the next, in the mean; 1 where that says nothing."""
    few = values[-_FEW_LOOKS:]
    if len(few) < _FEW_LOOKS or not all(math.isfinite(each) and each > 0 for each in few):
        return 1.0
    return float((few[-1] / few[0]) ** (1 / (len(few) - 1)))


def _opposed(
    setup: DiscreteProblem, looks: Sequence[Mapping[str, Any]], pulls: Mapping[str, Tensor], whole: Tensor
) -> list[str]:
    names = [name for name in pulls if float(pulls[name].norm()) > 0]
    cosines = {
        (one, other): float(pulls[one] @ pulls[other] / (pulls[one].norm() * pulls[other].norm()))
        for place, one in enumerate(names)
        for other in names[place + 1 :]
    }
    if not cosines:
        return []
    pair = min(cosines, key=lambda each: cosines[each])
    total = sum(float(each.norm()) for each in pulls.values())
    if cosines[pair] > _OPPOSED or float(whole.norm()) > _CANCELLED * total:
        return []
    falling = any(_a_look([float(look.get(name, math.nan)) for look in looks]) < 1 - _FALLING_A_LOOK for name in pair)
    both = " and neither falls:" if not falling else " though they still fall: more steps,"
    clashes = any(all(repr(name) in each for name in pair) for each in contradictions(setup.problem))
    what = (
        " the measurements contradict the equations, or"
        if any(map(is_measured, pair)) and not falling
        else " they contradict each other, or"
        if clashes
        else ""
    )
    return [
        f"{pair[0]!r} and {pair[1]!r} pull against one another (cosine of their gradients {cosines[pair]:.2f}),{both}{what} "
        "weights=sciml.Balanced(), exact=True for conditions, or a larger model lets both hold"
    ]


def _vanished(objective: Objective, whole: Tensor) -> list[str]:
    value, size = objective.value(), float(objective.vector().norm())
    if float(whole.norm()) * size > _VANISHED * value:
        return []
    return [
        f"the gradient vanishes ({float(whole.norm()):.1e}) where the loss is {value:.1e}: the model is saturated or stuck at "
        "a solution that is none; use another seed, other initial weights, or sciml.LeastSquares"
    ]

"""Why a fit did not get where it should: what its history and the gradients at its end tell, in a sentence with a remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sciml.misfit import is_measured
from sciml.objective import Objective
from sciml.setup import Setup

_RUNAWAY = 1e12
_FEW_LOOKS = 4
_FLAT = 0.1
_STILL_FALLING = 0.2
_OPPOSED, _CANCELLED = -0.7, 0.3
_VANISHED = 1e-9
_SHARE_OF_PARAMETERS = 1e-2
_RISE, _FALL, _RISING_LOOKS = 3.0, 2.0, 5


def run_away(loss: float, lowest: float) -> bool:
    """Whether a loss has grown so far beyond the lowest that no step will bring it back.

    Args:
        loss: at the present step; residuals are scaled, so that a loss of order one means nothing is solved yet.
        lowest: of the phase so far.

    Example:
        >>> from sciml.stagnation import run_away
        >>> run_away(1e30, 0.5), run_away(1e-3, 1e-20)
        (True, False)
    """
    return loss > _RUNAWAY * max(lowest, 1.0)


def grown(loss: float, lowest: float, step: int) -> str:
    """The same in words, with what to do."""
    return (
        f"at step {step} the loss has grown to {loss:.1e} from {lowest:.1e}; this is the best state before it: use a smaller "
        "learning rate, or clip= the gradient"
    )


def overfitted(history: Sequence[Mapping[str, Any]]) -> list[str]:
    r"""Whether the training loss went on falling in some phase while that on held-out points rose.

    The lowest held-out loss of the phase must lie at least five looks before its end, each of the last five looks three times
    above it, and the training loss must have fallen by a factor of two since: looks scatter, and a rise in one means nothing.

    Args:
        history: the looks of a fit, in order, as in ``solution.history``.

    Returns:
        A sentence for the last such phase, or nothing.

    Example:
        >>> from sciml.stagnation import overfitted
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


def stagnant(setup: Setup, history: Sequence[Mapping[str, Any]]) -> list[str]:
    r"""Why the loss no longer falls, or does not fall yet, where a certificate fails; nothing where no cause is seen.

    In order: the loss was still falling when the steps were used up; the loss hardly fell at all while a step of a hundredth
    of the size of the parameters along the gradient would have lowered it by much (the steps are too small); two terms pull
    against one another, :math:`\cos(\nabla L_i, \nabla L_j) < -0.7` with most of the gradient cancelled; the gradient vanishes.

    Args:
        setup: as the fit left it.
        history: its looks, in order.
    """
    looks = [look for look in history if look.get("phase") == history[-1]["phase"]] if history else []
    losses = [float(look["loss"]) for look in looks]
    if len(losses) < _FEW_LOOKS or not all(map(math.isfinite, losses)) or not setup.parameters:
        return []
    quarter = max(1, len(losses) // 4)
    hardly = min(losses) > (1 - _FLAT) * losses[0]
    if not hardly and min(losses[-quarter:]) < (1 - _STILL_FALLING) * min(losses[:-quarter]):
        return ["the loss was still falling when the steps were used up: use more of them, or a larger learning rate"]
    objective = Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)
    pulls = {name: objective.weights[name] * pull for name, pull in objective.pulls().items()}
    whole = torch.stack(list(pulls.values())).sum(0)
    if not bool(torch.isfinite(whole).all()):
        return []
    if hardly:
        shorter = _lower_along(objective, whole)
        if shorter is not None:
            return [
                f"the loss hardly fell, from {losses[0]:.2e} to {min(losses):.2e}, though a longer step along the gradient "
                f"lowers it to {shorter:.2e}: the learning rate is too small"
            ]
    return _opposed(pulls, whole) or _vanished(objective, whole)


def _lower_along(objective: Objective, gradient: Tensor) -> float | None:
    """A loss far below the present one that a step along the gradient reaches; None where none does."""
    here, size = objective.vector(), float(gradient.norm())
    if size == 0:
        return None
    value, best = objective.value(), math.inf
    length = _SHARE_OF_PARAMETERS * float(here.norm())
    for share in (1.0, 0.3, 0.1):
        objective.assign(here - share * length / size * gradient)
        best = min(best, objective.value())
    objective.assign(here)
    return best if best < (1 - _STILL_FALLING) * value else None


def _opposed(pulls: Mapping[str, Tensor], whole: Tensor) -> list[str]:
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
    what = (
        "the measurements contradict the equations, or"
        if any(map(is_measured, pair))
        else "they contradict each other, or"
    )
    return [
        f"{pair[0]!r} and {pair[1]!r} pull against one another (cosine of their gradients {cosines[pair]:.2f}), and neither "
        f"falls: {what} weights=sciml.Balanced(), exact=True for conditions, or a larger model lets both hold"
    ]


def _vanished(objective: Objective, whole: Tensor) -> list[str]:
    value, size = objective.value(), float(objective.vector().norm())
    if float(whole.norm()) * size > _VANISHED * value:
        return []
    return [
        f"the gradient vanishes ({float(whole.norm()):.1e}) where the loss is {value:.1e}: the model is saturated or stuck at "
        "a solution that is none; use another seed, other initial weights, or sciml.LeastSquares"
    ]

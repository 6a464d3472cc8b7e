"""Line search by the strong Wolfe conditions, for quasi-Newton steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Trial:
    """A point on the line: step length, loss, slope along the line, the whole gradient, and the terms of the loss."""

    step: float
    loss: float
    slope: float
    gradient: Tensor
    terms: Mapping[str, Tensor] = field(default_factory=dict)


# The constants of the two conditions, and evaluations after which the lowest point found is taken.
_DECREASE, _CURVATURE, _MOST = 1e-4, 0.9, 25


def strong_wolfe(evaluate: Callable[[float], Trial], start: Trial, first: float = 1.0) -> tuple[Trial, int]:
    r"""A step with :math:`f(\alpha) \le f(0) + c_1 \alpha f'(0)`, :math:`|f'(\alpha)| \le c_2 |f'(0)|`; evaluations.

    It is ``start`` where no lower point was found; losses that are not finite count as too long a step.

    Reference: J. Nocedal and S. J. Wright, Numerical Optimization, 2nd ed., Springer 2006, algorithms 3.5 and 3.6.
    """
    low, high, best, step = start, None, start, first
    for used in range(1, _MOST + 1):
        trial = evaluate(step)
        if math.isfinite(trial.loss) and trial.loss < best.loss:
            best = trial
        too_high = not trial.loss <= start.loss + _DECREASE * trial.step * start.slope
        if too_high or (used > 1 and trial.loss >= low.loss):
            high = trial
        elif abs(trial.slope) <= -_CURVATURE * start.slope:
            return trial, used
        elif high is None:
            # The interval is not yet closed: beyond the trial while the function falls there, before it otherwise.
            low, high = (trial, low) if trial.slope >= 0 else (trial, None)
        else:
            low, high = trial, low if trial.slope * (high.step - low.step) >= 0 else high
        if high is None:
            step *= 2.0
            continue
        step = _between(low, high)
        if abs(high.step - low.step) <= 1e-12 * max(abs(low.step), abs(high.step)):
            break
    return best, used


def _between(low: Trial, high: Trial) -> float:
    """The minimiser of the cubic through both points, kept away from the ends; the middle where that fails."""
    width = high.step - low.step
    middle = low.step + 0.5 * width
    if not (math.isfinite(high.loss) and math.isfinite(high.slope)):
        return low.step + 0.1 * width
    first = low.slope + high.slope - 3.0 * (high.loss - low.loss) / width
    square = first * first - low.slope * high.slope
    if square < 0:
        return middle
    second = math.copysign(math.sqrt(square), width)
    denominator = high.slope - low.slope + 2.0 * second
    if denominator == 0:
        return middle
    fraction = 1.0 - (high.slope + second - first) / denominator
    return low.step + min(max(fraction, 0.1), 0.9) * width if math.isfinite(fraction) else middle

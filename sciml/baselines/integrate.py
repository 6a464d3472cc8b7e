"""Initial-value integration by ``scipy.integrate.solve_ivp`` within a time limit, with a fallback from explicit to implicit.

Beside what SciPy reports, growth without bound (finite-time blow-up) is detected, and rates that are not finite are explained.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy

from sciml.errors import BaselineError
from sciml.typing import Array

_GROWTH, _EARLY, _FASTER = 1e8, 1e4, 1e4


class IntegrationError(BaselineError):
    """An integration was given up; the message says where and why."""


class BlowUpError(IntegrationError):
    """A solution grows without bound; ``time`` is where that was seen."""

    def __init__(self, message: str, time: float) -> None:
        super().__init__(message)
        self.time = time


@dataclass
class Budget:
    """A limit of wall-clock time shared by all integrations of one baseline, and a count of evaluations."""

    seconds: float
    start: float = field(default_factory=time.perf_counter)
    evaluations: int = 0
    granted: float = math.inf

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def over(self) -> bool:
        """Whether the time that was granted is over."""
        return self.spent > min(self.granted, self.seconds)

    @property
    def exhausted(self) -> bool:
        """Whether all of the time is over."""
        return self.spent > self.seconds

    def grant(self, share: float) -> None:
        """Allow the next integrations no more than a share of the time that is left."""
        self.granted = self.spent + share * (self.seconds - self.spent)

    def check(self, t: float | None = None, ahead: float = 0.0) -> None:
        """Count one evaluation; an ``IntegrationError`` when the time is over, or will be in so many seconds."""
        self.evaluations += 1
        if self.spent + ahead > min(self.granted, self.seconds):
            where = "" if t is None else f" at t = {t:.6g}"
            share = "" if self.granted >= self.seconds else f" ({self.granted:.2g} s of it were granted to this grid)"
            raise IntegrationError(f"the time limit of {self.seconds:g} s was reached{where}{share}; raise time_limit")


@dataclass(frozen=True)
class BlowUp:
    """When growth counts as a blow-up: far beyond the size at the start, and over in a fraction of the time that is left.

    Attributes:
        sudden: how many times larger a solution would become by the end at its present rate.
        least: the smallest size that growth is measured by.
        patience: for how many evaluations in a row: a trial step of an explicit method may leap as far, but is soon taken back.
        paced: growth at a relative rate that is not far above the fastest one near the natural size is none, since the relative
            rate of a blow-up has no bound. A rough start of a field has any rate, and says nothing.
    """

    sudden: float = 1e3
    least: float = 0.0
    patience: int = 300
    paced: bool = True


def integrate(
    rate: Callable[[float, Array], Array],
    start: Array,
    span: tuple[float, float],
    rtol: float,
    budget: Budget,
    method: str = "auto",
    *,
    coordinate: str = "t",
    first: str = "DOP853",
    most: float = math.inf,
    blow_up: BlowUp = BlowUp(),
    reason: Callable[[float, Array], str] | None = None,
    explicit: Mapping[str, Any] | None = None,
    implicit: Mapping[str, Any] | None = None,
    stops: Sequence[float] = (),
    **options: Any,
) -> tuple[Any, str]:
    """Integrate a system from its start to its end.

    ``"auto"`` begins with an explicit method and, when that takes too many steps or leaves what the equations are made for (a
    stiff problem), starts again with the implicit Radau.

    Args:
        rate: the rate of change at a time and a state, flat or with a batch of states as columns.
        start: the state at the start, ``(rows, n)``, each row with a natural size of its own.
        span: the first and the last time.
        rtol: relative tolerance; the absolute one follows from the size of each row at the start.
        budget: the time that is left.
        method: ``"auto"`` or a method of ``solve_ivp``.
        coordinate: what time is called in messages.
        first: the method that ``"auto"`` begins with.
        most: the number of evaluations after which an explicit method of ``"auto"`` is given up.
        blow_up: what counts as one.
        reason: why a rate is not finite, in words.
        explicit: options of explicit methods.
        implicit: options of Radau and BDF.
        stops: where steps end, such as in the middle of a pulse that they would step over, in order; others are left out.
        options: of all methods.

    Returns:
        SciPy's result, and the method.

    Raises:
        IntegrationError: a rate or state is not finite, the solution blows up, or the time is over.

    Reference: E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, Springer 1993 (DOP853);
    II, Springer 1996 (Radau IIA).
    """
    sizes = np.abs(start).max(axis=1)
    sizes = np.maximum(sizes, 1e-3 * max(float(sizes.max()), 1e-3))
    largest = max(float(sizes.max()), blow_up.least)
    bound = _GROWTH * largest
    used = leaps = 0
    pace = 0.0

    def blown_up(t: float, y: Array) -> BlowUpError:
        return BlowUpError(f"the solution grows to {np.abs(y).max():.1e} at {coordinate} = {t:.6g}: it blows up", t)

    def guarded(t: float, y: Array) -> Array:
        nonlocal used, leaps, pace
        used += 1
        budget.check(t)
        if used > most:
            raise IntegrationError(f"{first} takes too many steps: the problem must be stiff")
        size = np.abs(y).max()
        if not math.isfinite(size):
            raise blown_up(t, y)
        found = rate(t, y)
        speed = np.abs(found).max()
        if not math.isfinite(speed):
            if size >= bound or reason is None:
                raise blown_up(t, y)
            raise IntegrationError(reason(t, y))
        if size <= _EARLY * largest:
            pace = max(pace, speed / max(size, 1e-300))
        faster = not blow_up.paced or speed > _FASTER * pace * size
        leaps = leaps + 1 if size >= bound and speed * abs(span[1] - t) > blow_up.sudden * size and faster else 0
        if leaps > blow_up.patience:
            raise blown_up(t, y)
        return found

    def timed(jacobian: Callable[[float, Array], Any], t: float, y: Array) -> Any:
        budget.check(t)
        return jacobian(t, y)

    def attempt(name: str) -> Any:
        own = (implicit if name in ("Radau", "BDF") else {} if name == "LSODA" else explicit) or {}
        atol = np.repeat(rtol * sizes, start.shape[1])
        everything = {"rtol": rtol, "atol": atol, "dense_output": True} | options | dict(own)
        if callable(jacobian := everything.get("jac")):
            # An implicit step may spend all of its time in Jacobians and their factors.
            everything["jac"] = partial(timed, jacobian)
        parts, state = list[Any](), start.reshape(-1)
        inside = (at for at in stops if span[0] < at < span[1])
        for piece in itertools.pairwise([span[0], *inside, span[1]]):
            parts.append(scipy.integrate.solve_ivp(guarded, piece, state, method=name, **everything))
            state = parts[-1].y[:, -1]
            if parts[-1].status != 0:
                # It failed, or an event ended it.
                break
        return parts[0] if len(parts) == 1 else _joined(parts)

    chosen = first if method == "auto" else method
    if method != "auto" or chosen == "Radau":
        most = math.inf
    with np.errstate(all="ignore"):
        try:
            result = attempt(chosen)
        except IntegrationError:
            # What an explicit method cannot do, since it takes forever or leaps out of the domain, may still be stiff.
            # A single evaluation beyond all bounds may be a leap; many in a row are none.
            if method != "auto" or chosen == "Radau" or budget.over or leaps > max(1, blow_up.patience):
                raise
            most, chosen = math.inf, "Radau"
            result = attempt(chosen)
    # A state that is not a number has left all bounds, too.
    if not result.success and not np.abs(result.y[:, -1]).max() < bound:
        raise blown_up(result.t[-1], result.y[:, -1])
    if not result.success or not np.isfinite(result.y).all():
        raise IntegrationError(
            f"{chosen} stopped at {coordinate} = {result.t[-1]:.6g} of {span[1]:g}: {result.message}; the solution may blow up "
            "there, or a grid be too coarse"
        )
    return result, chosen


def _joined(parts: Sequence[Any]) -> Any:
    """SciPy's results of intervals one after the other as one, which ended as the last of them did."""
    found = copy.copy(parts[-1])
    # Each part begins where the one before it ended.
    found.t = np.concatenate([parts[0].t, *(each.t[1:] for each in parts[1:])])
    found.y = np.concatenate([parts[0].y, *(each.y[:, 1:] for each in parts[1:])], axis=1)
    times = [parts[0].sol.ts, *(each.sol.ts[1:] for each in parts[1:])]
    segments = [segment for each in parts for segment in each.sol.interpolants]
    found.sol = scipy.integrate.OdeSolution(np.concatenate(times), segments, alt_segment=parts[0].sol.side == "right")
    for what in ("t_events", "y_events") if found.t_events is not None else ():
        by_event = zip(*(getattr(each, what) for each in parts), strict=True)
        setattr(found, what, [np.concatenate([some for some in each if len(some)] or [each[-1]]) for each in by_event])
    return found

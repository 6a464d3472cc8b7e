"""Initial-value problems by ``scipy.integrate.solve_ivp``, guarded against what it does not report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.errors import BaselineError
from sciml.models import PiecewisePolynomial, hermite
from sciml.typing import Array

_MOST_EXPLICIT = 20_000

_GROWTH, _SUDDEN, _MOST_LEAPS = 1e8, 1e3, 300

_EARLY, _FASTER = 1e4, 1e4


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

    def grant(self, share: float) -> None:
        """Allow the next integrations no more than a share of the time that is left."""
        self.granted = self.spent + share * (self.seconds - self.spent)

    def check(self, t: float | None = None) -> None:
        """Count one evaluation.

        Raises:
            IntegrationError: the time is over.
        """
        self.evaluations += 1
        if self.over:
            where = "" if t is None else f" at t = {t:.6g}"
            share = "" if self.granted >= self.seconds else f" ({self.granted:.2g} s of it were granted to this grid)"
            raise IntegrationError(f"the time limit of {self.seconds:g} s was reached{where}{share}; raise time_limit")


@dataclass(frozen=True)
class Trajectory:
    """An integrated batch: SciPy's dense output, its steps, the method that did it, and times and states of each event."""

    dense: Callable[[Array], Array]
    steps: Array
    method: str
    events: tuple[tuple[Array, Array], ...] = ()


def integrate(
    system: FirstOrderSystem,
    start: Array,
    end: float,
    constants: Mapping[str, Tensor],
    rtol: float,
    budget: Budget,
    method: str = "auto",
    events: Sequence[Callable[[float, Array], float]] = (),
) -> Trajectory:
    """Integrate a batch of states together, with the same steps for all of them.

    ``"auto"`` begins with the explicit method DOP853 and, when that takes too many steps (a stiff problem), starts again
    with the implicit Radau.

    Args:
        system: the equations.
        start: the states at the start, shape ``(len(system.state), n)``.
        end: the last value of the coordinate.
        constants: values of the unknowns, each of shape ``()`` or ``(n,)``.
        rtol: relative tolerance of the integrator; the absolute one follows from the size of the initial states.
        budget: the time that is left.
        method: ``"auto"`` or a method of ``solve_ivp``.
        events: functions of time and state whose zeros are looked for, for a batch of one.

    Raises:
        IntegrationError: a rate or state is not finite, the solution blows up, or the time is over.

    Reference: E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, Springer 1993 (DOP853);
    II, Springer 1996 (Radau IIA).
    """
    rows, size = start.shape
    begin = system.problem.domain.bounds[system.coordinate][0]
    largest = np.maximum(np.abs(start).max(axis=1), 1e-3 * max(np.abs(start).max(), 1e-3))
    most = _MOST_EXPLICIT if method == "auto" else np.inf
    used = leaps = 0
    # The fastest relative growth while the state is still near its natural size.
    pace = 0.0

    def grown(y: Array) -> bool:
        # A state that is not a number has left all bounds, too.
        return not np.abs(y).max() < _GROWTH * largest.max()

    def blown_up(t: float, y: Array) -> BlowUpError:
        return BlowUpError(
            f"the solution grows to {np.abs(y).max():.1e} at {system.coordinate} = {t:.6g}: it blows up", t
        )

    def rate(t: float, y: Array) -> Array:
        nonlocal used, leaps, pace
        used += 1
        budget.check(t)
        if used > most:
            raise TooManyStepsError
        batch = 1 if y.ndim == 1 else y.shape[1]
        states = y.reshape(rows, size * batch)
        repeated = {name: value.repeat_interleave(batch) if value.ndim else value for name, value in constants.items()}
        try:
            found = system.rate(np.full(size * batch, t), states, repeated)
        except np.linalg.LinAlgError:
            raise IntegrationError(
                f"the highest derivatives are not determined at {system.coordinate} = {t:.6g} (singular mass matrix)"
            ) from None
        if not np.isfinite(found).all():
            if grown(y):
                raise blown_up(t, y)
            raise IntegrationError(system.why_not_finite(np.full(size * batch, t), states, repeated))
        # Growth that would go on like this to the end is none, and no more is growth at a relative rate that does not rise: a
        # blow-up is over in a fraction of what is left, since |f|/|y| has no bound. A trial step of an explicit method may leap
        # as far, but is soon taken back.
        reach, speed = np.abs(y).max(), np.abs(found).max()
        if reach <= _EARLY * largest.max():
            pace = max(pace, speed / max(reach, 1e-300))
        sudden = grown(y) and speed * abs(end - t) > _SUDDEN * reach and speed > _FASTER * pace * reach
        leaps = leaps + 1 if sudden else 0
        if leaps > _MOST_LEAPS:
            raise blown_up(t, y)
        return found.reshape(y.shape)

    def attempt(name: str) -> Any:
        options: dict[str, Any] = {"rtol": rtol, "atol": np.repeat(rtol * largest, size), "dense_output": True}
        if name in ("Radau", "BDF"):
            options["vectorized"] = True
        if events:
            options["events"] = list(events)
        return solve_ivp(rate, (begin, end), start.reshape(-1), method=name, **options)

    chosen = "DOP853" if method == "auto" else method
    with np.errstate(all="ignore"):
        try:
            result = attempt(chosen)
        except (TooManyStepsError, IntegrationError):
            # What an explicit method cannot do, since it takes forever or leaps out of the domain, may still be stiff.
            if method != "auto" or budget.over or leaps > _MOST_LEAPS:
                raise
            most, chosen = np.inf, "Radau"
            result = attempt(chosen)
    if not result.success and grown(result.y[:, -1]):
        raise blown_up(result.t[-1], result.y[:, -1])
    if not result.success or not np.isfinite(result.y).all():
        raise IntegrationError(f"{chosen} stopped at t = {result.t[-1]:.6g} of {end:g}: {result.message}")

    def dense(t: Array) -> Array:
        return result.sol(t).reshape(rows, size, len(t))

    found = () if not events else tuple(zip(result.t_events, result.y_events, strict=True))
    return Trajectory(dense, result.t, chosen, found)


class TooManyStepsError(Exception):
    """An explicit method needs so many steps that the problem must be stiff."""


def trial_from(
    system: FirstOrderSystem, path: Trajectory, constants: Mapping[str, Tensor], tolerance: float
) -> PiecewisePolynomial:
    """The first path of a batch as a piecewise polynomial, with knots until it is as exact as the integration."""
    fields = [system.state.index((name, 0)) for name in system.orders]

    def at(knots: Array) -> list[Array]:
        """Each field and its derivatives up to the highest, which is the rate of change of the last of its states."""
        states = path.dense(knots)[:, 0]
        rates = system.rate(knots, states, constants)
        return [
            np.vstack([states[row : row + order], rates[row + order - 1]])
            for row, order in zip(fields, system.orders.values(), strict=True)
        ]

    pieces = 2
    while True:
        knots = _subdivided(path.steps, pieces)
        jets = at(knots)
        trial = hermite(torch.from_numpy(knots), [torch.from_numpy(each) for each in jets])
        between = (knots[1:] + knots[:-1]) / 2
        gap = np.abs(trial(torch.from_numpy(between[:, None])).numpy().T - path.dense(between)[fields, 0])
        size = np.array([[np.abs(each[0]).max()] for each in jets])
        if (gap <= 0.1 * tolerance * np.where(size > 0, size, 1.0)).all() or len(knots) > 100_000:
            return trial
        pieces *= 2


def _subdivided(steps: Array, pieces: int) -> Array:
    """Each step cut into equal pieces."""
    shares = np.arange(pieces) / pieces
    inner = steps[:-1, None] + np.diff(steps)[:, None] * shares
    return np.append(inner.reshape(-1), steps[-1])

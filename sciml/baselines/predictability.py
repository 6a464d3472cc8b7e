r"""Predictability of initial-value problems: how fast neighbouring solutions part, and until when one can be foretold.

A path and one that begins beside it are integrated as one system, with common steps, so that what is between them is no
error of the steps. Their distance :math:`\delta(t)` in units of the one at the start, at its largest so far, is the growth
:math:`G(t)` of errors; where it has become as large as the solution, another one begins beside it, so that the growth is that
of the largest Lyapunov exponent in finite time. A solver with relative errors :math:`\varepsilon` foretells the path until
:math:`\varepsilon\,G(t)` is a hundredth, and to its end where less is left of that there and it never was a tenth.

References: E. Ott, Chaos in Dynamical Systems, Cambridge University Press 2002, section 4.4; G. Benettin, L. Galgani,
A. Giorgilli and J.-M. Strelcyn, Lyapunov characteristic exponents for smooth dynamical systems, Meccanica 15 (1980).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.initial_value import is_initial_value_problem, trajectory
from sciml.baselines.integrate import BlowUpError, Budget, IntegrationError
from sciml.errors import BaselineError
from sciml.problem import Problem
from sciml.typing import Array

_BESIDE, _AS_LARGE = 1e-7, 1e-2
# By how much closer another neighbour must begin to be worth it.
_GAINED = 10.0
_FORETOLD = 1e-2
# How large an error may become that vanishes again.
_PASSING = 0.1
_TIMES = 2000
# The logarithm of a growth by which any error of double precision is as large as the solution.
_LOST = 40.0
# By how much more, in logarithms, later errors may grow than those at the start where these tell all.
_LATER = 5.0
_ROUGHLY, _CLOSE, _CLOSELY = 1e-6, 1e-3, 1e-8
# What the errors of a path may have grown to that is a measure of others.
_SURELY = 1e-4
# An absolute tolerance that keeps steps at zeros from vanishing, and nothing else.
_NOTHING = 1e-60


@dataclass(frozen=True)
class Predictability:
    """Finite-time Lyapunov growth of errors along a path.

    Attributes:
        times: from the start to the end, ``(n,)``.
        growth: the logarithm of the factor by which an error at the start has grown, at most, ``(n,)``.
        states: the fields on the path, ``(F, n)``.
        sizes: the largest absolute value of each field, ``(F,)``.
        since: the same of an error at any time before, ``(n,)``.
        left: what is left of the growth at the end.
    """

    times: Array
    growth: Array
    states: Array
    sizes: Array
    since: Array
    left: float

    def horizon(self, error: float) -> float:
        """Until when a path can be foretold with relative errors ``error`` along the way; infinite where to its end.

        Errors that grow where a path leaps and vanish afterwards, as those of its phase do on the way to a limit cycle, lose
        nothing unless they come near the size of the path.
        """
        begun = math.log(max(error, 1e-300))
        if max(self.left - math.log(_FORETOLD), float(self.growth[-1]) - math.log(_PASSING)) + begun <= 0:
            return math.inf
        lost = self.growth + begun > math.log(_FORETOLD)
        return float(self.times[lost.argmax()]) if lost.any() else math.inf

    def said(self, coordinate: str, horizon: float) -> str:
        """Why a path cannot be foretold to its end, as a sentence."""
        pace = self.growth[-1] / (self.times[-1] - self.times[0])
        return (
            f"neighbouring solutions part as exp({pace:.2g} {coordinate}), as in chaos: nothing can be foretold beyond "
            f"{coordinate} = {horizon:.3g}; end the domain there"
        )


def predictability(system: FirstOrderSystem, constants: Mapping[str, Tensor], budget: Budget, **options: Any) -> Predictability:
    """Finite-time Lyapunov exponent: how errors grow along a path all of whose initial values are given.

    ``options`` are those of SciPy's LSODA.

    Raises:
        IntegrationError: it blows up, or the time is over.
    """
    begin, end = system.problem.domain.bounds[system.coordinate]
    start = np.repeat(system.initial(constants, 1), 2, axis=1)
    natural = _sizes_of_state(np.abs(start[:, 0]), np.array([order for _, order in system.state]), end - begin)
    start[:, 1] += _BESIDE * natural * np.random.default_rng(0).choice([-1.0, 1.0], len(natural))
    # Whether a path is stiff is not known. With this tolerance LSODA takes as many evaluations as DOP853 with the rough one, is
    # closer than that, and takes a tenth where the path is stiff.
    path = trajectory(system, start, end, constants, _CLOSELY, budget, "LSODA", **options)
    times = np.linspace(begin, end, _TIMES)
    states = path.dense(times)
    # What an error is measured by is how large the solution was until then.
    sizes = np.maximum(np.maximum.accumulate(np.abs(states[:, 0]), axis=1), natural[:, None])
    gaps = (np.abs(states[:, 1] - states[:, 0]) / sizes).max(axis=0)
    grown, first, pair = np.log(np.maximum(gaps, 1e-300) / _BESIDE), 0, states
    while len(large := np.flatnonzero(gaps > _AS_LARGE)) and 0 < large[0] < len(gaps) - 1:
        # Where a neighbour that comes close again, as planets do far from the sun, is closest: at a distance that is soon much
        # smaller, the next one would be lost in rounding.
        half = large[0] // 2
        closest = half + int(gaps[half : large[0] + 1].argmin())
        chosen = closest if gaps[closest] > _GAINED * _BESIDE else large[0]
        first += chosen
        # As up to there, where time or numbers do not suffice for another one.
        grown[first:] = grown[first] * (times[first:] - begin) / (times[first] - begin)
        if grown[first] > _LOST:
            break
        here, beside = pair[:, :, chosen].T
        start = np.stack([here, here + _BESIDE / gaps[chosen] * (beside - here)], axis=1)
        try:
            path = trajectory(system, start, end, constants, _CLOSELY, budget, "LSODA", begin=times[first], **options)
        except (IntegrationError, BlowUpError):
            break
        pair = path.dense(times[first:])
        gaps = (np.abs(pair[:, 1] - pair[:, 0]) / sizes[:, first:]).max(axis=0)
        grown[first:] = grown[first] + np.log(np.maximum(gaps, 1e-300) / _BESIDE)
    growth, since = (np.maximum.accumulate(each) for each in (np.maximum(grown, 0.0), grown - np.minimum.accumulate(grown)))
    fields = [system.state.index((name, 0)) for name in system.orders]
    return Predictability(times, growth, states[fields, 0], sizes[fields, -1], since, float(grown[-1]))


def _sizes_of_state(start: Array, orders: Array, span: float) -> Array:
    """Sizes of neighbouring states: those of its entries, a thousandth of others of their order at least, in its unit."""
    units = span ** -orders.astype(float)
    # Where all entries of an order are zero, they are what others come to within the span.
    within = np.max(start / units) or 1e-3
    by_order = [start[orders == order].max() or within * units[orders == order][0] for order in range(orders.max() + 1)]
    return np.asarray(np.maximum(start, 1e-3 * np.array(by_order)[orders]))


@dataclass(frozen=True)
class Doubt:
    """A solution beside a rough integration by SciPy.

    Attributes:
        why: why it cannot be right to its end, or None where nothing speaks against it.
        apart: how far the integration is from it, the relative L2 distance of each field; where its own errors may have grown,
            what those of the solution have grown to, if that is less and known; empty where the two say nothing.
    """

    why: str | None = None
    apart: Mapping[str, float] = field(default_factory=dict)


def doubt(problem: Problem, trial: nn.Module, error: float, seconds: float, tolerance: float = 1e-2) -> Doubt:
    """Why a solution of an initial-value problem cannot be right to its end, and how far SciPy's rough path is from it.

    It may be beyond what can be foretold, the true one may blow up, or a rough integration by SciPy may differ.

    Args:
        problem: with or without one coordinate and initial values; of others nothing is said.
        trial: the solution, from points ``(n, 1)`` to fields ``(n, F)``.
        error: its relative error along the way; of a rough one, what a careful solver would have.
        seconds: for how long to look.
        tolerance: the difference from SciPy's path, as a fraction of the largest value of a field, that is let pass.
    """
    if not is_initial_value_problem(problem):
        return Doubt()
    constants = {name: torch.tensor(each.initial, dtype=torch.float64) for name, each in problem.unknowns.items()}
    try:
        system = FirstOrderSystem(problem)
        if set(system.prescribed) != set(system.state):
            return Doubt()
        budget = Budget(seconds)
        found = predictability(system, constants, budget)
    except BlowUpError as error_of_path:
        return Doubt(str(error_of_path))
    except (BaselineError, IntegrationError):
        # Nothing that SciPy can integrate, or not within that time.
        return Doubt()
    if math.isfinite(horizon := found.horizon(min(error, _ROUGHLY))):
        return Doubt(found.said(system.coordinate, horizon))
    values = _values(found, trial)
    if (since := _parted(found, values, tolerance)) is not None:
        with contextlib.suppress(IntegrationError):
            # What became tiny before it grew again is lost in an absolute tolerance, and not in a relative one.
            found = predictability(system, constants, budget, atol=_NOTHING)
            since = _parted(found, values, tolerance)
    if since is not None:
        return Doubt(f"SciPy's integration of the same equations differs from {system.coordinate} = {since:.3g} on")
    apart = _apart(found, values)
    if found.since[-1] + math.log(_CLOSELY) > math.log(_SURELY):
        with contextlib.suppress(IntegrationError):
            # Two that agree are no farther off, and of what grows from next to nothing a path is closer without an absolute
            # tolerance.
            apart = np.minimum(apart, _apart(predictability(system, constants, budget, atol=_NOTHING), values))
        if found.since[-1] <= found.growth[-1] + _LATER and found.growth[-1] <= _LOST:
            # What the errors of the first steps grow to, at most about.
            grown = error * np.linalg.norm(np.exp(found.growth)) * found.sizes / _norms(found)
            apart = np.minimum(np.minimum(grown, apart), 1.0)
        elif apart.max() > _SURELY:
            # What errors along the way grow to is not known: a path that may have lost its digits says nothing against another.
            return Doubt()
    return Doubt(apart=dict(zip(problem.fields, apart.tolist(), strict=True)))


def _values(found: Predictability, trial: nn.Module) -> Array:
    """A solution at the times of a path, ``(F, n)``."""
    like = next(iter([*trial.buffers(), *trial.parameters()]))
    with torch.no_grad():
        return np.asarray(trial(torch.from_numpy(found.times[:, None]).to(like)).double().cpu().numpy().T)


def _norms(found: Predictability) -> Array:
    """The norms of the fields on a path, or of their sizes where they vanish, ``(F,)``."""
    norms = np.linalg.norm(found.states, axis=1)
    return np.asarray(np.where(norms > 0, norms, found.sizes * len(found.times) ** 0.5))


def _apart(found: Predictability, values: Array) -> Array:
    """The relative L2 distances of the fields of a solution from a path, ``(F,)``."""
    return np.asarray(np.linalg.norm(values - found.states, axis=1) / _norms(found))


def _parted(found: Predictability, values: Array, tolerance: float) -> float | None:
    """From when on a path and a solution differ; None where they do not, or the path is no longer sure itself."""
    apart = (np.abs(values - found.states) / found.sizes[:, None]).max(axis=0)
    wrong = (apart > tolerance) & (found.growth + math.log(_ROUGHLY) < math.log(_CLOSE))
    return float(found.times[wrong.argmax()]) if wrong.any() else None

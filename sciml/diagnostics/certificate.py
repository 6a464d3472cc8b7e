r"""The certificate of a solution: its residuals on points that nothing was fitted to.

Reasons not to believe a fit that looks well: what is said in its message, and keeps it from being a success.

Whether a solution's derivatives belong together between the points too.

A strong solver can satisfy an equation at every point by hiding a step of a derivative in a needle thinner than the distance of
points, which fresh points miss as well. Along lines through the domain the fundamental theorem of calculus finds it:

.. math::  u_k(b) - u_k(a) = \int_a^b u_{k+x}\,dx

with the integral by Gauss' rule on segments, halved where it does not hold. A layer is resolved after some halvings; a step
thinner than anything that was sampled is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from sciml.geometry import Box
from sciml.jets.calculus import describe
from sciml.models import Windowed
from sciml.problem.collocation import Collocation
from sciml.problem.observations import Observation, is_measured
from sciml.solvers import DiscreteProblem, ResidualSystem
from sciml.solvers.nonfinite import described
from sciml.typing import MultiIndex
from sciml.uncertainty import Estimate, Inference
from sciml.uncertainty.covariance import from_rows


def certificate(rows: ResidualSystem, blocks: Sequence[Collocation], scales: Mapping[str, float]) -> pd.DataFrame:
    """The size of every residual at the points of some blocks.

    Returns:
        A DataFrame indexed by term: ``rms`` and ``max`` in the residual's unit, ``relative`` (rms by natural size), and
        the number of ``points``.
    """
    found = {}
    for name, values in rows.numbers(blocks).items():
        sizes = values.double().abs()
        rms = float(sizes.square().mean().sqrt())
        found[name] = {"rms": rms, "max": float(sizes.max()), "relative": rms / scales[name], "points": len(sizes)}
    return pd.DataFrame.from_dict(found, orient="index", columns=["rms", "max", "relative", "points"])


def failures(residuals: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """The terms, measurements excepted, whose relative residual is not below the tolerance."""
    own = residuals[[not is_measured(str(name)) for name in residuals.index]]
    return own[~(own["relative"] <= tolerance)]


_SEGMENTS = 64

_LINES = 8

_HALVINGS = 4

_SHARE = 0.02

_BETWEEN = 5


@dataclass(frozen=True)
class Step:
    """A step of a derivative that its own derivative does not show: its size as a share of the derivative's range."""

    derivative: str
    coordinate: str
    position: float
    share: float


def hidden_step(rows: ResidualSystem) -> Step | None:
    """The largest step of a field or derivative that the equations ask for, along each coordinate; None without any."""
    found = [step for number in range(len(rows.problem.coordinates)) if (step := _along(rows, number)) is not None]
    return max(found, key=lambda step: step.share, default=None)


def _along(rows: ResidualSystem, number: int) -> Step | None:
    problem = rows.problem
    name = problem.coordinates[number]
    asked = {pair for pair in problem.asked() if name in pair[1]}
    if not asked:
        return None
    starts, length = _lines(rows, number)
    if not len(starts):
        return None
    ranges: dict[tuple[str, MultiIndex], Tensor] = {}
    share = starts.new_zeros(len(starts))
    which: list[tuple[str, MultiIndex]] = []
    for _ in range(_HALVINGS + 1):
        gaps = []
        for (field, index), (change, integral, spread) in _changes(rows, number, starts, length, asked).items():
            size = ranges.setdefault((field, index), spread)
            gaps.append((change - integral).abs() / size)
            which = list(ranges)
        share, worst = torch.stack(gaps).max(dim=0)
        wrong = share > _SHARE
        if not bool(wrong.any()):
            return None
        last = int(share.argmax())
        report = Step(
            describe(*which[int(worst[last])]), name, float(starts[last, number] + length / 2), float(share[last])
        )
        length = length / 2
        second = starts[wrong].clone()
        second[:, number] += length
        starts = torch.cat([starts[wrong], second])
    return report


def _lines(rows: ResidualSystem, number: int) -> tuple[Tensor, float]:
    """Where the segments of some lines through the domain, parallel to a coordinate, begin, ``(n, D)``, and their length."""
    domain = rows.problem.domain
    like = next(iter(rows.trial.state_dict().values()))
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in (domain.lower, domain.upper))
    count = 1 if len(lower) == 1 else _LINES
    generator = torch.Generator().manual_seed(0)
    places = lower + (upper - lower) * torch.rand(count, len(lower), generator=generator, dtype=torch.float64)
    starts = places.repeat_interleave(_SEGMENTS, 0)
    length = float(upper[number] - lower[number]) / _SEGMENTS
    starts[:, number] = lower[number] + length * torch.arange(_SEGMENTS, dtype=torch.float64).repeat(count)
    if not isinstance(domain, Box):
        # A segment belongs to the domain if both ends and what lies between them do.
        within = np.ones(len(starts), dtype=bool)
        for share in np.linspace(0, 1, _BETWEEN):
            at = starts.numpy().copy()
            at[:, number] += share * length
            within &= domain.contains(at)
        starts = starts[torch.from_numpy(within)]
    return starts.to(like), length


def _changes(
    rows: ResidualSystem, number: int, starts: Tensor, length: float, asked: set[tuple[str, MultiIndex]]
) -> dict[tuple[str, MultiIndex], tuple[Tensor, Tensor, Tensor]]:
    """For every derivative: its change over the segments, the integral of the next one, and its range over all nodes."""
    name = rows.problem.coordinates[number]
    nodes, weights = np.polynomial.legendre.leggauss(8)
    places = torch.tensor([0.0, *(0.5 + 0.5 * nodes), 1.0], dtype=starts.dtype, device=starts.device)
    points = starts.repeat_interleave(len(places), 0)
    points[:, number] += length * places.repeat(len(starts))
    below = {(field, index): _without(index, name) for field, index in asked}
    plan = [index for pair, under in below.items() for index in (pair[1], under)]

    def sampled(most: int | None) -> dict[tuple[str, MultiIndex], Tensor]:
        suppliers = [rows.supplier(part, plan) for part in points.split(most or len(points))]
        wanted = {key for (field, index), under in below.items() for key in ((field, index), (field, under))}
        return {key: torch.cat([each.jet(*key).detach() for each in suppliers]) for key in wanted}

    jets = rows.portion.attempt(sampled, len(points))
    found = {}
    for (field, index), under in below.items():
        values = jets[(field, under)].reshape(len(starts), -1)
        slopes = jets[(field, index)].reshape(len(starts), -1)[:, 1:-1]
        integral = 0.5 * length * (slopes @ torch.tensor(weights).to(slopes))
        # What is constant to rounding has no range to speak of.
        spread = (values.max() - values.min()).clamp(min=1e-6 * float(values.abs().max()) + 1e-12)
        found[(field, under)] = (values[:, -1] - values[:, 0], integral, spread)
    return found


def _without(index: MultiIndex, name: str) -> MultiIndex:
    position = index.index(name)
    return (*index[:position], *index[position + 1 :])


_MOST_DRIFT = 0.5

_MOST_OVERFIT = 30.0

_NEGLIGIBLE = 1e-3

_AT_A_BOUND = 8.0

_CHANCE = 1e-4


def estimated(setup: DiscreteProblem, residuals: pd.DataFrame) -> tuple[Inference, list[str]]:
    """What the measurements say, and every reason to doubt that and the fit."""
    values = {name: float(value.detach()) for name, value in setup.rows.values().items()}
    blank = Inference({name: Estimate(value, math.nan, math.nan, math.nan) for name, value in values.items()})
    misfits: dict[str, float] = {str(name): float(value) for name, value in residuals["relative"].items()}
    measured = [term.name for block in setup.train for term in block.terms if isinstance(term.evaluate, Observation)]
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


def not_finite(setup: DiscreteProblem, residuals: pd.DataFrame) -> str:
    """What is not finite on fresh points, in a sentence; an empty one where all is."""
    if all(map(math.isfinite, residuals["relative"])):
        return ""
    lost = [str(name) for name, value in residuals["relative"].items() if not math.isfinite(value)]
    fallback = f"the residual {lost[0]!r} is not finite"
    fresh = setup.objective(setup.fresh)
    return f"on fresh points {described(fresh, fallback)}"


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


def _beyond_noise(setup: DiscreteProblem, inference: Inference) -> list[str]:
    """A reason to doubt standard deviations that were given, or equations: data farther from them than chance allows.

    Sums of squares are compared with chi-squared of the same mean and variance (F. E. Satterthwaite, Biometrics Bulletin 2,
    1946).
    """
    total, mean, variance = 0.0, 0.0, 0.0
    for block in setup.train:
        for term in block.terms:
            if not isinstance(term.evaluate, Observation):
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


def overfit(setup: DiscreteProblem, residuals: pd.DataFrame) -> list[str]:
    """A reason to doubt a fit that satisfies the equations at its training points and not between them."""
    if isinstance(setup.trial, Windowed):
        # Every window was judged by points of its own; these, of the whole, are too few to tell a transient from a step.
        return []
    if not len(failures(residuals, _NEGLIGIBLE)):
        return _needle(setup)
    objective = setup.objective()
    trained, held_out = objective.value(), float(objective.total(objective.means(setup.held)))
    # What is not finite is another matter, and told elsewhere.
    if held_out <= _MOST_OVERFIT * trained or not (math.isfinite(held_out) and math.isfinite(trained)):
        return _needle(setup)
    return [
        f"the loss on held-out points is {held_out / trained if trained > 0 else math.inf:.0f} times that on training points: "
        "the equations hold at the points and not between them; use more points, or begin with sciml.Adam"
    ]


def _needle(setup: DiscreteProblem) -> list[str]:
    step = hidden_step(setup.rows)
    if step is None:
        return []
    return [
        f"{step.derivative} makes a step of {step.share:.0%} of its range near {step.coordinate} = {step.position:.4g} that no "
        "point has seen: the equations hold at the points and not between them; use more points, or begin with sciml.Adam"
    ]


def _bounded(setup: DiscreteProblem, name: str) -> bool:
    unknown = setup.problem.unknowns[name]
    return unknown.lower is not None or unknown.upper is not None

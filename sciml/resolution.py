r"""Whether a solution's derivatives belong together between the points too.

A strong solver can satisfy an equation at every point by hiding a step of a derivative in a needle thinner than the distance of
points, which fresh points miss as well. Along lines through the domain the fundamental theorem of calculus finds it:

.. math::  u_k(b) - u_k(a) = \int_a^b u_{k+x}\,dx

with the integral by Gauss' rule on segments, halved where it does not hold. A layer is resolved after some halvings; a step
thinner than anything that was sampled is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sciml.derivative import describe
from sciml.domains import Box
from sciml.rows import Rows
from sciml.typing import MultiIndex

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


def hidden_step(rows: Rows) -> Step | None:
    """The largest step of a field or derivative that the equations ask for, along each coordinate; None without any."""
    found = [step for number in range(len(rows.problem.coordinates)) if (step := _along(rows, number)) is not None]
    return max(found, key=lambda step: step.share, default=None)


def _along(rows: Rows, number: int) -> Step | None:
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


def _lines(rows: Rows, number: int) -> tuple[Tensor, float]:
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
    rows: Rows, number: int, starts: Tensor, length: float, asked: set[tuple[str, MultiIndex]]
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

"""Damped Gauss-Newton steps for the weights of a tiling and the unknowns together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sciml.journal import Journal
from sciml.tiles.condensed import Factor, Normal
from sciml.tiles.system import System

_TINY = 1e-13
_RAISED, _LOWERED = 10.0, 0.01
_FIRST, _MOST = 1e-6, 1e6
_LENGTHS = (1.0, 0.5, 0.2, 0.05)


@dataclass(frozen=True)
class Arrived:
    """Where Gauss-Newton steps ended.

    Attributes:
        weights: of the tiling, ``(width, F)``.
        raw: of the unknowns.
        loss: the weighted sum of squares.
        steps: how many were taken.
        converged: whether the last one hardly lowered the loss.
    """

    weights: Tensor
    raw: dict[str, Tensor]
    loss: float
    steps: int
    converged: bool


def bordered_solve(found: Normal, factor: Factor, damping: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """The step of the weights and of the unknowns, and the matrix that is left for the unknowns alone.

    With N for the weights, B and g in the border, C and h in the corner: (C - B'X) dq = X'... by elimination of the weights.
    ``damping`` is that of the factor: with the weights alone held back, no damping would make the loss fall.
    """
    inner = factor.solve(found.border)
    count = found.border.shape[1] - 1
    corner = found.corner.clone()
    corner.diagonal()[:count] *= 1 + damping
    left = corner - found.border.T @ inner
    schur, right = left[:count, :count], left[:count, -1]
    schur = (schur + schur.T) / 2
    move = torch.zeros(count, dtype=torch.float64)
    if count:
        scale = found.corner.diagonal()[:count].clamp_min(1e-300).sqrt()
        unit = schur / scale / scale[:, None]
        move = -torch.linalg.lstsq(unit, (right / scale)[:, None], driver="gelsd").solution[:, 0] / scale
    return -(inner[:, -1] + inner[:, :count] @ move), move, schur


def gauss_newton(
    system: System,
    weights: Tensor,
    raw: Mapping[str, Tensor],
    steps: int,
    tolerance: float,
    stop: Callable[[], bool] = lambda: False,
    journal: Journal | None = None,
) -> Arrived:
    """Lower the loss that steps are judged by through Gauss-Newton steps, damped where they would raise it.

    Args:
        system: the rows.
        weights: to begin with, ``(width, F)``.
        raw: the unknowns to begin with.
        steps: how many at most.
        tolerance: a relative fall of the loss that counts as none.
        stop: asked after each step whether to end.
        journal: knows where they ended if they were taken before an interruption.

    Reference: J. Nocedal and S. J. Wright, Numerical Optimization, 2nd ed., Springer 2006, chapter 10.
    """
    compute = lambda: vars(_arrived(system, weights, raw, steps, tolerance, stop))  # noqa: E731
    return Arrived(**(journal or Journal()).recalled(f"tiles with {len(weights)} functions", compute))


def _arrived(
    system: System, weights: Tensor, raw: Mapping[str, Tensor], steps: int, tolerance: float, stop: Callable[[], bool]
) -> Arrived:
    here, names, damping = dict(raw), list(raw), 0.0
    loss = system.judged(weights, here)
    for count in range(steps):
        found, _ = system.normal(weights, here)
        fallen = False
        while not fallen and damping <= _MOST:
            try:
                factor = found.factorised(max(damping, _TINY))
            except np.linalg.LinAlgError:
                damping = max(damping * _RAISED, 1e3 * _TINY)
                continue
            move, shift, _ = bordered_solve(found, factor, damping)
            shift = shift.clamp(-_FAR, _FAR)
            # What a step violates of nearly exact equations falls with the square of its length.
            for length in _LENGTHS:
                moved = weights + length * move.view_as(weights)
                then = {name: here[name] + length * shift[place] for place, name in enumerate(names)}
                after = system.judged(moved, then)
                fallen = math.isfinite(after) and after <= loss * (1 + 1e-12)
                if fallen:
                    break
            if not fallen:
                damping = max(damping * _RAISED, _FIRST)
        if not fallen:
            return Arrived(weights, here, system.loss(weights, here), count, True)
        damping = damping * _LOWERED if damping * _LOWERED > _FIRST else 0.0
        weights, here, before, loss = moved, then, loss, after
        if before - after <= tolerance * before or stop():
            return Arrived(weights, here, system.loss(weights, here), count + 1, before - after <= tolerance * before)
    return Arrived(weights, here, system.loss(weights, here), steps, False)


_FAR = 3.0

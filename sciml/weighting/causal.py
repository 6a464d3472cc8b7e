"""Weights of points that make the solution grow from the start of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sciml.domains import Face, Interior, OnFaces
from sciml.errors import ProblemError, SolverError, listed
from sciml.objective import Objective
from sciml.problem import Problem
from sciml.rows import Block
from sciml.weighting.base import Weighting


@dataclass(frozen=True)
class Causal(Weighting):
    r"""Weights of the points inside that let the equations count at a time only once they hold before it.

    Time is cut into chunks. With :math:`L_k` the sum over the equations of the mean of :math:`(r/s)^2` in chunk k, and
    :math:`L_0` that over the conditions at the start, the points of chunk k weigh

    .. math::  c_k = \exp\Big(-\varepsilon \sum_{j<k} L_j\Big).

    Held-out rows have such weights of their own, and to their loss is added the share of time that does not count yet, the
    mean of :math:`1 - c_k`: the best state is the one that has come farthest. The smallest weight is the column ``causal`` of
    ``solution.history``; it nears 1 when all of time is solved. Points on faces and measurements keep their weights.

    Args:
        chunks: the number of chunks.
        strength: :math:`\varepsilon`; the larger, the stricter.
        every: steps between renewals.

    Raises:
        SolverError: a number is not positive.
        ProblemError: in ``fit``, for a problem without time.

    Example:
        >>> import sciml
        >>> sciml.Causal(strength=100.0).chunks
        32

    Reference: S. Wang, S. Sankaran and P. Perdikaris, Respecting causality for training physics-informed neural networks,
    Computer Methods in Applied Mechanics and Engineering 421 (2024).
    """

    chunks: int = 32
    strength: float = 10.0
    every: int = 10

    def __post_init__(self) -> None:
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (self.chunks, self.every))
        if not whole or min(self.chunks, self.every) < 1 or not 0 < self.strength < float("inf"):
            raise SolverError(f"chunks and every must be positive whole numbers and strength positive; given: {self}")

    def check(self, problem: Problem) -> None:
        if problem.time is None:
            raise ProblemError(
                f"causal weights need a time coordinate, but {type(problem).__name__} has {listed(problem.coordinates)}: "
                "name it 't', or say which one it is with time = '...' in the class"
            )

    def renew(self, objective: Objective, *, first: bool = False) -> float:
        old = {id(block.sample): block.weights for block in objective.blocks}
        objective.blocks, _ = self.judged(objective, objective.blocks)
        change = 0.0
        for block in objective.blocks:
            if block.weights is not None:
                before = old[id(block.sample)]
                before = torch.ones_like(block.weights) if before is None else before
                change = max(change, float((block.weights - before).abs().max()))
        return change

    def judged(self, objective: Objective, blocks: Sequence[Block]) -> tuple[tuple[Block, ...], float]:
        problem = objective.rows.problem
        time = problem.coordinates.index(str(problem.time))
        before, after = problem.domain.bounds[str(problem.time)]
        # Equations share one block: they all live inside.
        position = next((k for k, block in enumerate(blocks) if _equations(block)), None)
        if position is None:
            return tuple(blocks), 0.0
        block = blocks[position]
        share = (block.sample.points[0][:, time] - before) / (after - before)
        chunk = (share * self.chunks).long().clamp(0, self.chunks - 1)
        squares = _squares(objective, block)
        losses = squares.new_zeros(self.chunks).index_add(0, chunk, squares)
        losses = losses / torch.bincount(chunk, minlength=self.chunks).clamp(min=1)
        start = sum(float(_squares(objective, each).mean()) for each in blocks if _initial(each, problem))
        exponents = -self.strength * (losses.cumsum(0) - losses + start)
        if not bool(torch.isfinite(exponents).all()):
            return tuple(blocks), math.nan
        found = list(blocks)
        found[position] = replace(block, weights=exponents.exp()[chunk])
        return tuple(found), -float(torch.expm1(exponents).mean())

    def record(self, objective: Objective) -> dict[str, float]:
        found = [block.weights.min() for block in objective.blocks if block.weights is not None]
        return {"causal": min(map(float, found), default=1.0)}


def _equations(block: Block) -> bool:
    return all(isinstance(term.place, Interior) and not term.measured for term in block.terms)


def _initial(block: Block, problem: Problem) -> bool:
    start = OnFaces((Face(str(problem.time), "lower"),))
    return all(term.place == start for term in block.terms)


def _squares(objective: Objective, block: Block) -> Tensor:
    """The sum over a block's residuals of their squares by natural size, shape ``(n,)``."""
    residuals = objective.rows.numbers([block])
    return torch.stack([(values / objective.scales[name]).square() for name, values in residuals.items()]).sum(0)

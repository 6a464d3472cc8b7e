"""Residual-based adaptive distribution (RAD): collocation points where the residual is large."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Interior, PointSet, draw
from sciml.problem.collocation import Collocation
from sciml.solvers.base import check_settings
from sciml.solvers.objective import Objective

# Points that residuals are evaluated at together; fresh points as a multiple of a block's, and the part of it that is added.
_CHUNK, _CANDIDATES, _MORE = 4096, 4, 0.25


@dataclass(frozen=True)
class Adaptive:
    r"""Residual-based adaptive distribution: points inside are redrawn, more of them where the equations are violated.

    From ``candidates`` times as many fresh Sobol points, points are drawn without replacement with probability
    proportional to :math:`|r|^k/\operatorname{mean}|r|^k + c`. The number of points stays the same; points on faces and
    measurements stay where they are.

    Args:
        every: steps between redraws.
        candidates: fresh points to choose from, as a multiple of the number of points.
        power: the exponent k.
        floor: the constant c; the larger, the more uniform.

    Raises:
        SolverError: a number is not positive.

    Example:
        >>> import sciml
        >>> sciml.Adaptive(every=50).candidates
        8

    Reference: C. Wu, M. Zhu, Q. Tan, Y. Kartha and L. Lu, A comprehensive study of non-adaptive and residual-based
    adaptive sampling for physics-informed neural networks, Computer Methods in Applied Mechanics and Engineering 403
    (2023).
    """

    every: int = 100
    candidates: int = 8
    power: float = 1.0
    floor: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self, whole="every candidates", positive="power floor")

    def renewed(self, objective: Objective, generator: np.random.Generator) -> tuple[Collocation, ...]:
        """The blocks of an objective with new points inside."""

        def renewed(block: Collocation) -> Collocation:
            fresh, squares = _fresh(objective, block, generator, self.candidates)
            density = squares.sqrt().pow(self.power).double().cpu().numpy()
            if not np.isfinite(density).all() or not density.mean() > 0:
                return block
            chance = density / density.mean() + self.floor
            chosen = generator.choice(len(chance), block.size, replace=False, p=chance / chance.sum())
            return _at(block, fresh[torch.from_numpy(chosen).to(fresh.device)])

        return tuple(renewed(block) if of_equations(block) else block for block in objective.blocks)


def enriched(objective: Objective, generator: np.random.Generator) -> tuple[Collocation, ...]:
    """The blocks of an objective with more points inside: those of many fresh ones at which the residual is largest."""

    def enriched(block: Collocation) -> Collocation:
        fresh, squares = _fresh(objective, block, generator, _CANDIDATES)
        worst = squares.nan_to_num(nan=0.0).topk(max(1, round(_MORE * block.size))).indices
        return _at(block, torch.cat([block.sample.points[0], fresh[worst]]))

    return tuple(enriched(block) if of_equations(block) else block for block in objective.blocks)


def of_equations(block: Collocation) -> bool:
    """Whether all residuals of a block are equations inside the domain."""
    return all(isinstance(term.place, Interior) and not term.measured for term in block.terms)


def squares_at(objective: Objective, block: Collocation) -> Tensor:
    """The sum of the squares of a block's scaled residuals at each of its points, shape ``(n,)``."""
    residuals = objective.rows.numbers([block], _CHUNK)
    return torch.stack([(values / objective.scales[name]).square() for name, values in residuals.items()]).sum(0)


def _fresh(objective: Objective, block: Collocation, generator: np.random.Generator, multiple: int) -> tuple[Tensor, Tensor]:
    """A multiple of a block's points drawn anew, ``(n, D)``, with the squares of the residuals there."""
    like = block.sample.points[0]
    fresh = draw(Interior(), objective.rows.problem.domain, multiple * block.size, generator).to(like.device, like.dtype)
    return fresh.points[0], squares_at(objective, replace(block, sample=fresh, weights=None))


def _at(block: Collocation, points: Tensor) -> Collocation:
    """The same residuals at other points, for which the weights of the old ones mean nothing."""
    return replace(block, sample=PointSet((points,)), weights=None)

"""Points where the residual is large: residual-based adaptive distribution (RAD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sciml.domains import Box, Interior
from sciml.errors import SolverError
from sciml.rows import Block, Rows
from sciml.sampling.points import Sample, draw


@dataclass(frozen=True)
class Adaptive:
    r"""Redraw the points inside the domain now and then, more of them where the equations are violated.

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
        if min(self.every, self.candidates) < 1 or self.power <= 0 or self.floor <= 0:
            raise SolverError(f"every, candidates, power and floor must be positive; given: {self}")

    def renewed(
        self, rows: Rows, blocks: Sequence[Block], box: Box, scales: dict[str, float], generator: np.random.Generator
    ) -> tuple[Block, ...]:
        """The same blocks with new points inside."""
        return tuple(
            self._renewed(rows, block, box, scales, generator)
            if all(isinstance(term.place, Interior) and not term.measured for term in block.terms)
            else block
            for block in blocks
        )

    def _renewed(
        self, rows: Rows, block: Block, box: Box, scales: dict[str, float], generator: np.random.Generator
    ) -> Block:
        like = block.sample.points[0]
        fresh = draw(Interior(), box, self.candidates * block.size, generator).to(like.device, like.dtype)
        residuals = rows.residuals([replace(block, sample=fresh)])
        square = torch.stack([(values.detach() / scales[name]).square() for name, values in residuals.items()]).sum(0)
        density = square.sqrt().pow(self.power).double().cpu().numpy()
        if not np.isfinite(density).all() or not density.mean() > 0:
            return block
        chance = density / density.mean() + self.floor
        chosen = generator.choice(len(chance), block.size, replace=False, p=chance / chance.sum())
        # The weights of the old points mean nothing for the new ones.
        sample = Sample((fresh.points[0][torch.from_numpy(chosen).to(like.device)],))
        return replace(block, sample=sample, weights=None)

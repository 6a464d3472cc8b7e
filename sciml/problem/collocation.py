"""Collocation: points, and the residuals that are evaluated there together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sciml.geometry import PointSet
from sciml.parallel import process_group
from sciml.problem.conditions import Term
from sciml.problem.observations import Observation


@dataclass(frozen=True)
class Collocation:
    """Points, the residuals there, and the loss weights ``(n,)`` of the points; None stands for ones.

    ``whole`` is the number of points of which these are a part, where means are to be added up from parts.
    """

    sample: PointSet
    terms: tuple[Term, ...]
    weights: Tensor | None = None
    whole: int | None = None

    @property
    def size(self) -> int:
        """The number of points, a pair counting once."""
        return len(self.sample.points[0])

    @property
    def height(self) -> int:
        """The number of rows of each residual: those of the quadrature if it is averaged, else as many as there are points."""
        quadrature = self.sample.quadrature
        return self.size if quadrature is None else quadrature.numel() // self.size

    @property
    def share(self) -> float:
        """The part of the whole that these points are."""
        return 1.0 if self.whole is None else self.size / self.whole

    def to(self, device: torch.device, dtype: torch.dtype) -> Collocation:
        """The same residuals at the same points elsewhere."""
        weights = None if self.weights is None else self.weights.to(device, dtype)
        terms = tuple(
            replace(term, evaluate=term.evaluate.to(device)) if isinstance(term.evaluate, Observation) else term
            for term in self.terms
        )
        return Collocation(self.sample.to(device, dtype), terms, weights, self.whole)

    def thinned(self, most: int) -> Collocation:
        """Evenly chosen points of the block, at most so many, with their weights."""
        # A quadrature needs all of its points.
        step = 1 if self.sample.quadrature is not None else -(-self.size // most)
        return self if step == 1 else self.part(torch.arange(0, self.size, step, device=self.sample.points[0].device))

    def parts(self, most: int | None) -> Iterator[tuple[slice, Collocation]]:
        """The block in parts of at most so many points, with their positions; whole for None."""
        if most is None or most >= self.size:
            yield slice(0, self.size), self
            return
        for start in range(0, self.size, most):
            chosen = slice(start, min(start + most, self.size))
            yield chosen, self.piece(chosen)

    def piece(self, chosen: slice) -> Collocation:
        """Successive points of the block, as a part of the whole."""
        places = torch.arange(chosen.start, chosen.stop, device=self.sample.points[0].device)
        return replace(self.part(places), whole=self.size if self.whole is None else self.whole)

    @property
    def divided(self) -> bool:
        """Whether the processes of a fit each take some of the points; a quadrature needs all of them in one place."""
        return self.whole is None and self.sample.quadrature is None and process_group.current().divides(self.size)

    def part(self, chosen: Tensor) -> Collocation:
        """The block at some of its points, measurements with them; ``chosen`` holds their positions."""
        terms = tuple(
            replace(term, evaluate=term.evaluate.part(chosen)) if isinstance(term.evaluate, Observation) else term
            for term in self.terms
        )
        weights = None if self.weights is None else self.weights[chosen]
        return Collocation(self.sample.part(chosen), terms, weights)


def shares(blocks: Sequence[Collocation]) -> list[Collocation]:
    """What this process adds to sums over all points: its part of every large block, and some of the small ones whole."""
    group = process_group.current()
    if group.size == 1:
        return list(blocks)
    found = []
    for number, block in enumerate(blocks):
        if block.divided:
            found.append(block.piece(group.slice_of(block.size)))
        elif block.whole is not None or number % group.size == group.rank:
            found.append(block)
    return found

"""Collocation: points, and the residuals that are evaluated there together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sciml.geometry import PointSet
from sciml.problem.conditions import Term
from sciml.problem.observations import Observation


@dataclass(frozen=True)
class Collocation:
    """Points, the residuals there, and the loss weights ``(n,)`` of the points; None stands for ones."""

    sample: PointSet
    terms: tuple[Term, ...]
    weights: Tensor | None = None

    @property
    def size(self) -> int:
        """The number of points, a pair counting once."""
        return len(self.sample.points[0])

    @property
    def height(self) -> int:
        """The number of rows of each residual: those of the quadrature if it is averaged, else as many as there are points."""
        quadrature = self.sample.quadrature
        return self.size if quadrature is None else quadrature.numel() // self.size

    def to(self, device: torch.device, dtype: torch.dtype) -> Collocation:
        """The same residuals at the same points elsewhere."""
        weights = None if self.weights is None else self.weights.to(device, dtype)
        return Collocation(self.sample.to(device, dtype), self.terms, weights)

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
        everything = torch.arange(self.size, device=self.sample.points[0].device)
        for start in range(0, self.size, most):
            stop = min(start + most, self.size)
            yield slice(start, stop), self.part(everything[start:stop])

    def part(self, chosen: Tensor) -> Collocation:
        """The block at some of its points, measurements with them; ``chosen`` holds their positions."""
        terms = tuple(
            replace(term, evaluate=term.evaluate.part(chosen)) if isinstance(term.evaluate, Observation) else term
            for term in self.terms
        )
        weights = None if self.weights is None else self.weights[chosen]
        return Collocation(self.sample.part(chosen), terms, weights)

r"""Lack-of-fit test: misfits of neighbouring measurements that are alike, as independent noise does not make them.

With :math:`r_i` the misfits of one column, of any sign alike under independent noise, and neighbours the pairs of which one is
among the nearest few of the other:

.. math::  I = \frac{\overline{r_i r_j}}{\overline{r_i^2}}, \qquad
           z = \frac{\sum r_i r_j}{\bigl(\sum r_i^2 r_j^2\bigr)^{1/2}} .

I is Moran's, about zero of independent noise whose mean is zero and about the share of the variance that is systematic
elsewhere. z has the variance one whatever the size of the noise does from place to place, for signs alone are random; in what
is left of a fit I and z lie a little below zero.

References: P. A. P. Moran, Notes on continuous stochastic phenomena, Biometrika 37 (1950); A. D. Cliff and J. K. Ord, Testing
for spatial autocorrelation among regression residuals, Geographical Analysis 4 (1972).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree

from sciml.problem.collocation import Collocation
from sciml.solvers import ResidualSystem
from sciml.typing import Array
from sciml.uncertainty.model_selection import observations

# Nearest neighbours of each measurement; measurements of a column at most; fewer say nothing.
_NEIGHBOURS, _MOST, _FEWEST = 4, 20_000, 8


@dataclass(frozen=True)
class LackOfFit:
    """The pattern in the misfits of one column.

    ``correlation`` is Moran's I, ``score`` its z; ``systematic`` is the root mean square of what neighbours have in common as
    a share of the column's scatter, and ``error`` the same as a share of the root mean square of what is measured.
    """

    column: str
    field: str | None
    correlation: float
    score: float
    systematic: float
    error: float

    @property
    def said(self) -> str:
        """The pattern in a sentence."""
        return (
            f"neighbouring measurements of {self.column!r} deviate alike (correlation {self.correlation:.2g}, {self.score:.2g} "
            "standard errors from zero): the equations do not describe them, or their noise is not independent; standard "
            "errors and intervals do not count that"
        )


def lack_of_fit(rows: ResidualSystem, blocks: Sequence[Collocation]) -> list[LackOfFit]:
    """The patterns in the misfits of all columns of more than a few measurements."""
    found = []
    for whole in blocks:
        block = whole.thinned(_MOST)
        measured = [observation for observation, _ in observations([block])]
        if not measured or block.size < _FEWEST:
            continue
        one, other = _neighbours(block.sample.points[0].double().cpu().numpy())
        with torch.no_grad():
            evaluation, _ = rows.evaluation(block)
            for observation in measured:
                deviation, model = observation.deviation(evaluation).detach(), observation.model(evaluation).detach()
                # What the noise model takes for an outlier counts as little as it did in the fit.
                score = observation.noise.score(deviation)
                kept = torch.where(deviation == 0, 1.0, score / deviation)
                alike = score[one] * score[other]
                square, length = float(score.square().mean()), float(alike.square().sum().sqrt())
                if not (0 < square < math.inf and length > 0):
                    continue
                correlation = float(alike.mean()) / square
                gap = float(((model - observation.measured.to(model)) * kept).square().mean().sqrt())
                share, size = math.sqrt(max(correlation, 0.0)), float(model.square().mean().sqrt())
                found.append(
                    LackOfFit(
                        observation.name,
                        observation.field if observation.plain else None,
                        correlation,
                        float(alike.sum()) / length,
                        share * math.sqrt(square) / (observation.size or math.inf),
                        share * gap / (size or math.inf),
                    )
                )
    return found


def _neighbours(points: Array) -> tuple[Array, Array]:
    """The numbers of the points ``(n, D)`` of all pairs of neighbours, each pair once; distances in units of their scatter."""
    spread = points.std(axis=0)
    scaled = points / np.where(spread > 0, spread, 1.0)
    _, near = cKDTree(scaled).query(scaled, k=min(_NEIGHBOURS + 1, len(points)))
    pairs = np.stack([np.repeat(np.arange(len(points)), near.shape[1]), near.ravel()])
    pairs = np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], axis=0), axis=1)
    return pairs[0], pairs[1]

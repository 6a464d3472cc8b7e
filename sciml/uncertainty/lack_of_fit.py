r"""Lack-of-fit test: misfits of neighbouring measurements that are alike, as independent noise does not make them.

With :math:`r_i` the misfits of one column, and neighbours the pairs of which one is among the nearest few of the other:

.. math::  I = \frac{\overline{r_i r_j}}{\overline{r_i^2}}, \qquad
           z = \frac{\sum r_i r_j}{\bigl(\sum r_i^2 r_j^2\bigr)^{1/2}} .

I is Moran's: about zero where misfits are independent and their mean is zero, and elsewhere about the share of their variance
that is systematic. Where signs are independent z has the variance one, whatever the sizes do from place to place. What a fit
leaves lies a little below zero.

References: P. A. P. Moran, Notes on continuous stochastic phenomena, Biometrika 37 (1950); A. D. Cliff and J. K. Ord, Testing
for spatial autocorrelation among regression residuals, Geographical Analysis 4 (1972).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.problem.collocation import Collocation
from sciml.solvers import ResidualSystem
from sciml.typing import Array
from sciml.uncertainty.model_selection import observations

# Nearest neighbours of each measurement; measurements of a column at most; fewer say nothing.
_NEIGHBOURS, _MOST, _FEWEST = 4, 20_000, 8
# The standard errors that a correlation of neighbouring misfits lies from zero with a chance of 1e-4, of ten measurements and
# more: such sums have longer tails than the normal density.
_ALIKE = 4.4


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
    def significant(self) -> bool:
        """Whether chance does not explain it."""
        return self.score > _ALIKE

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
        pairs = neighbours(block.sample.points[0].double().cpu().numpy())
        # What is measured may differentiate expressions of its own.
        evaluation, _ = rows.evaluation(block)
        for observation in measured:
            model = observation.model(evaluation).detach()
            deviation = observation.deviation(model)
            # What the noise model takes for an outlier counts as little as it did in the fit.
            score = observation.noise.score(deviation)
            correlation, errors = autocorrelation(score.double().cpu().numpy(), pairs)
            if not math.isfinite(errors):
                continue
            kept = torch.where(deviation == 0, 1.0, score / deviation)
            share, natural = math.sqrt(max(correlation, 0.0)), observation.size or math.inf
            systematic = share * _size(score) / natural
            error = share * _size((model - observation.measured.to(model)) * kept) / (_size(model) or math.inf)
            field = observation.field if observation.plain else None
            found.append(LackOfFit(observation.name, field, correlation, errors, systematic, error))
    return found


def _size(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def autocorrelation(values: Array, pairs: tuple[Array, Array]) -> tuple[float, float]:
    """Moran's I of values ``(n,)`` over pairs of neighbours, and by how many standard errors it differs from zero."""
    products = values[pairs[0]] * values[pairs[1]]
    square, length = float(np.mean(values**2)), float(np.linalg.norm(products))
    if not (0 < square < math.inf and 0 < length < math.inf):
        return math.nan, math.nan
    return float(products.mean()) / square, float(products.sum()) / length


def neighbours(points: Array) -> tuple[Array, Array]:
    """The numbers of the points ``(n, D)`` of all pairs of neighbours, each pair once; distances in units of their scatter."""
    spread = points.std(axis=0)
    scaled = points / np.where(spread > 0, spread, 1.0)
    _, near = scipy.spatial.cKDTree(scaled).query(scaled, k=min(_NEIGHBOURS + 1, len(points)))
    pairs = np.stack([np.repeat(np.arange(len(points)), near.shape[1]), near.ravel()])
    pairs = np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], axis=0), axis=1)
    return pairs[0], pairs[1]

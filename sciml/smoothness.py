"""What is assumed of an unknown function of the coordinates: that it bends no more than the measurements ask for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sciml.conditions import Scene, Term
from sciml.derivative import describe
from sciml.domains import Interior
from sciml.misfit import PRIOR
from sciml.problem import Problem
from sciml.rows import Block
from sciml.sampling import draw
from sciml.sampling.clustered import clustered
from sciml.typing import MultiIndex


@dataclass(frozen=True)
class Smoothness:
    r"""A second derivative of a field as a row in the unit of measurements:
    :math:`\tau\,\partial_i\partial_j a\,(1 + (2a/a_0)^2)^{-1/2}` with the natural size :math:`a_0`.

    Least squares with such rows is the posterior mean of a field whose second derivatives are white noise before the data, a
    smoothing spline; and its covariance is that of the posterior (G. Wahba, Spline Models for Observational Data, SIAM 1990,
    chapters 1 and 5). Where a field is large it may bend more: what conducts ten times as well varies by ten times as much.
    Points are denser towards the ends of coordinates, where polynomials would bend between them, and count less there.
    """

    field: str
    index: MultiIndex
    strength: float
    size: float
    bounds: Mapping[str, tuple[float, float]]

    def __call__(self, scene: Scene) -> Tensor:
        values = scene.space.jet(self.field)
        bent = self.strength * scene.space.jet(self.field, self.index) / (1 + (2 * values / self.size) ** 2).sqrt()
        for name, (lower, upper) in self.bounds.items():
            place = (2 * scene.space.coordinates[name].detach() - lower - upper) / (upper - lower)
            bent = bent * (math.pi / 2 * (1 - place.square()).clamp(min=0).sqrt()).sqrt()
        return bent


def unknown_fields(problem: Problem, measured: Sequence[str]) -> tuple[str, ...]:
    """The fields that equations leave free: as many as equations are missing, those first that nobody measured.

    Among these the ones with the lowest derivatives are taken: a conductivity is differentiated less often than the pressure.
    """
    missing = len(problem.fields) - len(problem.equations)
    orders = {field: max(problem.order(field, each) for each in problem.coordinates) for field in problem.fields}
    ranked = sorted(problem.fields, key=lambda field: (field in measured, orders[field]))
    return tuple(ranked[: max(missing, 0)])


def smoothness_blocks(
    problem: Problem, fields: Sequence[str], sizes: dict[str, float], share: float, count: int
) -> Block:
    """Rows that ask fields not to bend.

    Args:
        problem: the problem, on a box.
        fields: which.
        sizes: the natural size of each.
        share: how large a row is where a field bends as functions of its size do.
        count: the number of points.
    """
    reach = {name: (upper - lower) / 2 for name, (lower, upper) in problem.domain.bounds.items()}
    terms = []
    for field in fields:
        for index in itertools.combinations_with_replacement(problem.coordinates, 2):
            mixed = math.sqrt(2) if index[0] != index[1] else 1.0
            strength = share * mixed * math.prod(reach[name] for name in index) / (sizes[field] * math.sqrt(count))
            rows = Smoothness(field, index, strength, sizes[field], problem.domain.bounds)
            terms.append(Term(f"{PRIOR}{describe(field, index)}", Interior(), rows, measured=True))
    evenly = draw(Interior(), problem.domain, count, np.random.default_rng(0))
    return Block(clustered(evenly, problem.domain), tuple(terms))

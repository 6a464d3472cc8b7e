r"""Differentiation index: what residuals of differential-algebraic equations mean to fields that depend on their derivatives.

Where an equation determines a field only after it was differentiated, as the length of a pendulum does the force in its rod, so
does what is missing of it: :math:`10^{-6} \sin 100 t` in a position is :math:`10^{-2}` in a force, and no residual says so.

With the orders :math:`\sigma_{ij}` of the highest rate of field j in equation i, the least offsets for which

.. math::  d_j - c_i \ge \sigma_{ij}, \qquad d_{\pi(i)} - c_i = \sigma_{i\pi(i)},

where each equation i has a field :math:`\pi(i)` of its own so that the sum of these orders is largest, say that equation i is
differentiated :math:`c_i` times and field j enters up to its rate of order :math:`d_j`: the rate of order :math:`c_i - d_j` of
what is missing of equation i is an error of field j.

Reference: J. D. Pryce, A simple structural analysis method for DAEs, BIT Numerical Mathematics 41 (2001).
"""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.diagnostics.estimated_error import NEXT_TO_NOTHING
from sciml.geometry import PointSet
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.linearize import linearize
from sciml.solvers import DiscreteProblem, ResidualSystem
from sciml.typing import Array

# The distance of points between which rates are taken, as a share of the time; how many points are looked at; what of a field
# is rounding.
_STEP, _MANY, _ROUNDING = 5e-4, 2000, 1e-13


def differentiations(problem: Problem) -> Array:
    """Structural analysis: how often each equation is differentiated until it determines each field, below 0 if it does not.

    It has the shape ``(equations, fields)``. Nothing is positive where there are other coordinates than time, or another number
    of fields than of equations.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Forced(sciml.Problem):
        ...     domain = sciml.Interval(t=(0, 1))
        ...     fields = ["x", "v", "force"]
        ...     conditions = []
        ...     @sciml.equation
        ...     def path(self, x, t):
        ...         return x - t**3
        ...     @sciml.equation
        ...     def velocity(self, x, v, t):
        ...         return d(x, t) - v
        ...     @sciml.equation
        ...     def newton(self, v, force, t):
        ...         return d(v, t) - force
        >>> differentiations(Forced()).tolist()
        [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    """
    names, terms = list(problem.fields), [each for each in problem.terms() if each.name in problem.equations]
    none = np.full((len(terms), len(names)), -1)
    if problem.time is None or len(problem.coordinates) > 1 or len(terms) != len(names):
        return none
    orders = np.full(none.shape, -math.inf)
    for row, term in enumerate(terms):
        for field, index in problem.system.depends(term):
            orders[row, names.index(field)] = max(orders[row, names.index(field)], len(index))
    most = float(orders[np.isfinite(orders)].max(initial=0.0))
    rows, own = scipy.optimize.linear_sum_assignment(np.maximum(orders, -2 * len(names) * (most + 1)), maximize=True)
    if not np.isfinite(orders[rows, own]).all():
        return none
    offsets = np.zeros(len(terms))
    # Each round adds to an offset that is too small; none is larger than all orders together.
    for _ in range(len(terms) * int(most + 1) + 1):
        before, highest = offsets, (orders + offsets[:, None]).max(0)
        offsets = highest[own] - orders[rows, own]
        if np.array_equal(before, offsets):
            break
    return np.rint(offsets[:, None] - highest).astype(int)


def errors_of_rates(setup: DiscreteProblem) -> dict[str, float]:
    """A posteriori error of fields that depend on rates of what equations miss, relative; nothing of others.

    They are the rates of a residual beside those of its parts, differences of values at points that lie close together.
    """
    problem, rows = setup.problem, setup.rows
    if next(iter(setup.trial.state_dict().values())).dtype != torch.float64:
        # Differences in single precision are rounding.
        return {}
    needed, terms = differentiations(problem), [each for each in problem.terms() if each.name in problem.equations]
    found = dict[str, float]()
    for row, column in np.argwhere((needed >= 0) & (needed > 0).any(0)).tolist():
        name = problem.fields[column]
        own = _missed(rows, terms[row], int(needed[row, column]), setup.scales[terms[row].name])
        found[name] = max(found.get(name, _ROUNDING), own)
    return {name: each for name, each in found.items() if math.isfinite(each)}


def _missed(rows: ResidualSystem, term: Term, order: int, natural: float) -> float:
    """The root mean square of a rate of a residual of a ``natural`` size, as a share of that of its parts."""
    ((low, high),) = rows.problem.domain.bounds.values()
    step = _STEP * (high - low)
    first = low + (high - low - order * step) * torch.rand(
        _MANY, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    weights = [(-1) ** (order - number) * math.comb(order, number) for number in range(order + 1)]
    like, usual = next(iter(rows.trial.state_dict().values())), 0.0
    missed, parts = torch.zeros(_MANY, dtype=like.dtype, device=like.device), dict[object, Tensor]()
    for number, weight in enumerate(weights):
        evaluation, _ = rows.evaluation(Collocation(PointSet(((first + number * step).to(like),)), (term,)))
        linear = linearize(term, evaluation)
        missed = missed + weight * linear.values.detach()
        for jet, slope in linear.by_jet[0].items():
            part = (slope * evaluation.space.jets[jet]).detach()
            parts[jet] = parts.get(jet, torch.zeros_like(part)) + weight * part
            usual = max(usual, float(part.square().mean()))
    # What hardly changes has rates that are next to nothing, and rounding beside them.
    least = max(usual, natural**2) * (NEXT_TO_NOTHING * (2 * step / (high - low)) ** order) ** 2
    size = max(sum(float(each.square().mean()) for each in parts.values()), least, 1e-300)
    rounded = (torch.finfo(like.dtype).eps * sum(map(abs, weights))) ** 2 * usual
    return math.sqrt(max(float(missed.square().mean()) - rounded, 0.0) / size)

"""TODO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sciml.jets import JetSpace
from sciml.models.grid import GridJets
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, Term
from sciml.typing import Array, MultiIndex


@dataclass(frozen=True)
class Linearised:
    """A residual at sites and its derivatives by jets and by unknown constants, all of shape ``(m,)``."""

    residual: Array
    slopes: Mapping[tuple[str, MultiIndex], Array]
    by_unknown: Mapping[str, Array] = field(default_factory=dict)


def evaluated(
    term: Term,
    problem: Problem,
    points: Mapping[str, Tensor],
    jets: GridJets,
    *,
    normals: Array | None = None,
    after: Callable[[Tensor, JetSpace], Tensor] | None = None,
) -> tuple[Tensor, JetSpace]:
    """A residual ``(m,)``, and the jet space that it was evaluated on; arguments as for ``linearised``."""
    space = JetSpace(points, problem.fields, jets)
    value = term.evaluate(Evaluation(problem, (space,), None if normals is None else torch.from_numpy(normals)))
    return value if after is None else after(value, space), space


def linearised(
    term: Term,
    problem: Problem,
    points: Mapping[str, Tensor],
    jets: GridJets,
    *,
    normals: Array | None = None,
    unknowns: Mapping[str, float] | None = None,
    after: Callable[[Tensor, JetSpace], Tensor] | None = None,
) -> Linearised:
    """Evaluate a term and differentiate it by every jet that it asked for.

    Args:
        term: the residual.
        problem: the problem.
        points: each coordinate ``(m,)``.
        jets: the supplier.
        normals: outward normals ``(m, D)``, on sides.
        unknowns: values of unknown constants; the residual is differentiated by them too.
        after: what is done to the residual before it is differentiated, such as a total derivative.
    """
    count = len(next(iter(points.values())))
    constants = {
        name: torch.full((count,), value, dtype=torch.float64, requires_grad=True)
        for name, value in (unknowns or {}).items()
    }
    bound = problem.bind(**constants) if constants else problem
    value, space = evaluated(term, bound, points, jets, normals=normals, after=after)
    keys = list(space.jets)
    inputs = [space.jets[key] for key in keys] + list(constants.values())
    found: list[Tensor | None] = [None] * len(inputs)
    if value.requires_grad and inputs:
        found = list(torch.autograd.grad(value.sum(), inputs, allow_unused=True))
    slopes = {
        key: grad.numpy() for key, grad in zip(keys, found, strict=False) if grad is not None and bool(grad.any())
    }
    by_unknown = {
        name: np.zeros(count) if grad is None else grad.numpy()
        for name, grad in zip(constants, found[len(keys) :], strict=True)
    }
    return Linearised(value.detach().numpy(), slopes, by_unknown)

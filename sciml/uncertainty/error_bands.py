r"""Error bands: standard errors of fields at any point, from the covariance of a trial function's parameters.

The covariance of the parameters at the solution is :math:`SS^T` (``uncertainty``); a field's variance at x is then
:math:`\lVert S^T \partial u(x)/\partial\theta\rVert^2`. Of the columns of S those are kept that move the fields.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from sciml.geometry import Interior, PointSet, draw
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term, jet_value
from sciml.solvers import DiscreteProblem, ResidualSystem
from sciml.solvers.jacobian import jacobian
from sciml.typing import Array
from sciml.uncertainty.covariance import Inference

_PROBES = 200
_KEPT = 1e-5
_MOST = 128


@dataclass(frozen=True)
class FieldCovariance:
    """Directions ``(p, k)`` of the named parameters along which the solution scatters by one standard deviation each.

    The names may be those of buffers, such as the coefficients of polynomials, in all of which the trial function is linear.
    ``quantile`` is how many standard errors the 95 % interval reaches to either side.
    """

    names: tuple[str, ...]
    directions: Tensor
    quantile: float


def spread_of(setup: DiscreteProblem, inference: Inference) -> FieldCovariance | None:
    """The directions that move the fields most; None where nothing was inferred."""
    trial = setup.trial
    names = tuple(name for name, parameter in trial.named_parameters() if parameter.requires_grad)
    if not inference.spread.size or not names:
        return None
    split = len(inference.spread) - len(setup.raw)
    if not split:
        return None
    whole = inference.spread[:split]
    points = draw(Interior(), setup.problem.domain, _PROBES, np.random.default_rng(0)).points[0]
    slopes = field_slopes(setup.problem, trial, points, names)
    moved = slopes.reshape(-1, split) @ torch.from_numpy(whole)
    # A field's own size does not matter: what scatters little is as well wanted as what scatters much.
    scale = moved.square().mean(dim=1, keepdim=True).sqrt().clamp(min=1e-300)
    _, singular, right = torch.linalg.svd(moved / scale, full_matrices=False)
    kept = (singular > _KEPT * singular[0]).nonzero()[:, 0][:_MOST]
    return FieldCovariance(names, torch.from_numpy(whole) @ right[kept].T, inference.quantile)


def carried(spread: FieldCovariance, problem: Problem, before: nn.Module, after: nn.Module) -> FieldCovariance:
    """The same scatter of the fields in the parameters of another trial function, which has learned the first."""
    names = tuple(name for name, parameter in after.named_parameters() if parameter.requires_grad)
    points = draw(Interior(), problem.domain, _PROBES, np.random.default_rng(0)).points[0]
    moved = _moved(problem, before, spread, points).flatten(0, 1)
    slopes = field_slopes(problem, after, points, names).flatten(0, 1)
    directions = torch.linalg.lstsq(slopes, moved, driver="gelsd").solution
    return FieldCovariance(names, directions, spread.quantile)


def field_slopes(problem: Problem, trial: nn.Module, points: Tensor, names: Sequence[str]) -> Tensor:
    """Derivatives of all fields by parameters, shape ``(F, n, p)``."""
    trial = copy.deepcopy(trial)
    parameters = dict(trial.named_parameters())
    chosen = [parameters[name].requires_grad_() for name in names]
    terms = tuple(Term(f"value.{field}", Interior(), partial(jet_value, field, (), 1.0), field) for field in problem.fields)
    block = Collocation(PointSet((points.to(chosen[0]),)), terms)
    rows = ResidualSystem(problem.bind_initial(), trial, {})
    _, slopes = jacobian(rows, [block], dict.fromkeys((term.name for term in terms), 1.0), chosen)
    return slopes.double().cpu().reshape(len(terms), len(points), -1)


def _moved(problem: Problem, trial: nn.Module, spread: FieldCovariance, points: Tensor) -> Tensor:
    """By how much all fields move along the directions at points ``(n, D)``, ``(F, n, k)``."""
    buffers = dict(trial.named_buffers())
    if not set(spread.names) <= set(buffers):
        return field_slopes(problem, trial, points, spread.names) @ spread.directions
    like = [buffers[name] for name in spread.names]
    sizes = [each.numel() for each in like]

    def along(direction: Tensor) -> Tensor:
        parts = zip(spread.names, direction.to(like[0]).split(sizes), like, strict=True)
        return functional_call(trial, {name: part.view_as(each) for name, part, each in parts}, points.to(like[0])).T

    with torch.no_grad():
        still, *moved = map(along, (torch.zeros_like(spread.directions[:, 0]), *spread.directions.T))
    return torch.stack([each - still for each in moved], dim=2).double().cpu()


def standard_errors(problem: Problem, trial: nn.Module, spread: FieldCovariance, points: Tensor) -> dict[str, Array]:
    """Standard errors of all fields at points ``(n, D)``, each of shape ``(n,)``."""
    errors = _moved(problem, trial, spread, points).norm(dim=2)
    return {field: errors[row].numpy() for row, field in enumerate(problem.fields)}

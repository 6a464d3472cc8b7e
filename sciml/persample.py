r"""Derivatives of rows by the parameters of any model, through ``torch.func``.

The residual is a pointwise function of jets, so with :math:`c_k = \partial r/\partial u_k` from one reverse sweep over vectors,

.. math::  \partial r_n/\partial\theta = \nabla_\theta \sum_k c_{kn}\, u_k(x_n; \theta),

and only the model, one point and its nested derivatives have to be understood by ``torch.func``, not what a person wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, vmap

from sciml.conditions import Scene
from sciml.derivative import JetSpace
from sciml.portions import exhausted
from sciml.rows import Block, Rows
from sciml.typing import MultiIndex


def per_sample(rows: Rows, scene: Scene, block: Block, residual: Tensor, parameters: Sequence[Tensor]) -> Tensor | None:
    """The derivative of a residual, shape ``(n, p)``, or None where ``torch.func`` cannot follow the model.

    Args:
        rows: the residuals' trial function.
        scene: what the residual was evaluated on.
        block: the points of the scene.
        residual: the residual, shape ``(n,)``, with its graph.
        parameters: the parameters of the trial function to differentiate by.
    """
    names = {id(parameter): name for name, parameter in rows.trial.named_parameters()}
    if not all(id(parameter) in names for parameter in parameters):
        return None
    varied = {names[id(parameter)]: parameter.detach() for parameter in parameters}
    total = residual.new_zeros(len(residual), sum(parameter.numel() for parameter in parameters))
    try:
        for space, points in zip(scene.spaces, block.sample.points, strict=True):
            shares = _shares(residual, space)
            if not shares or not varied:
                continue
            weighted = _weighted_jets(rows, list(shares))
            slopes = vmap(grad(weighted), in_dims=(None, 0, 0))(
                varied, points.detach(), torch.stack(list(shares.values()), dim=1)
            )
            total += torch.cat([slopes[name].flatten(1) for name in varied], dim=1)
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        if exhausted(error):
            raise
        # What torch.func cannot follow (calls on data, operators without a rule, hooks), it refuses in one of these ways.
        return None
    return total


def _shares(residual: Tensor, space: JetSpace) -> dict[tuple[str, MultiIndex], Tensor]:
    """The derivative of a residual by each jet it depends on, shape ``(n,)``."""
    jets = dict(space.jets)
    if not jets or not residual.requires_grad:
        return {}
    backs = torch.autograd.grad(residual.sum(), list(jets.values()), retain_graph=True, allow_unused=True)
    return {key: back for key, back in zip(jets, backs, strict=True) if back is not None}


def _weighted_jets(
    rows: Rows, jets: Sequence[tuple[str, MultiIndex]]
) -> Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]:
    """The sum of a point's jets with weights, as a function of parameters, a point ``(D,)`` and weights ``(k,)``."""
    position = {name: column for column, name in enumerate(rows.problem.coordinates)}
    column = {name: number for number, name in enumerate(rows.problem.fields)}

    def weighted(varied: Mapping[str, Tensor], point: Tensor, weights: Tensor) -> Tensor:
        fields: dict[MultiIndex, Callable[[Tensor], Tensor]] = {
            (): lambda at: functional_call(rows.trial, dict(varied), (at[None],))[0]
        }

        def derivative(index: MultiIndex) -> Callable[[Tensor], Tensor]:
            if index not in fields:
                below, coordinate = derivative(index[:-1]), position[index[-1]]
                fields[index] = lambda at: jacrev(below)(at)[:, coordinate]
            return fields[index]

        values = {index: derivative(index)(point) for index in {index for _, index in jets}}
        return torch.stack([values[index][column[field]] for field, index in jets]) @ weights

    return weighted

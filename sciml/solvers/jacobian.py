r"""The Jacobian of all residuals by the parameters of a trial function and by unknowns.

For models made of linear layers and activations a row's derivative by a weight matrix is a sum over streams of outer products,

.. math::  \partial r_n/\partial W = \sum_s \bar Z_{sn} \otimes A_{sn}, \quad \bar Z = \partial \Big(\sum_n r_n\Big)/\partial Z,

with A the inputs and Z the outputs of the layer. It is valid because the residual at a point depends on that point alone. One
reverse sweep a residual gives all rows. For any other model the chain rule through jets, :math:`\partial r_n/\partial\theta =
\sum_k (\partial r_n/\partial u_k)\, \partial u_k(x_n)/\partial\theta`, leaves the derivatives of the model alone, at one point
each, to ``torch.func``; where that cannot follow a model, every row has a reverse sweep of its own, in batches.

The residuals receive unknowns as one value a point, so that their columns are pointwise derivatives too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, vmap

from sciml.jets import LinearJets, TaylorJets
from sciml.jets.differentiable import differentiable
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.linearize import Jet, Linearization, gradients, linearize, per_point
from sciml.solvers.batching import exhausted, named
from sciml.solvers.residuals import ResidualSystem
from sciml.typing import MultiIndex

_BATCH = 64
CHUNK = 2**28


def jacobian(
    rows: ResidualSystem,
    blocks: Sequence[Collocation],
    factors: Mapping[str, float | Tensor],
    parameters: Sequence[Tensor],
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """All rows ``(m,)``, times their factors, and their derivatives ``(m, p + q)`` by parameters and raw unknowns."""
    like = parameters[0] if parameters else next(iter(rows.raw.values()))
    width = sum(parameter.numel() for parameter in parameters) + len(rows.raw)
    height = sum(block.height * len(block.terms) for block in blocks)
    with named(f"a dense Jacobian of {height} rows by {width} parameters"):
        values, slopes = like.new_empty(height), like.new_empty(height, width)
    start = 0
    for block in blocks:
        for chosen, piece in pieces(block, width * like.element_size(), chunk, rows.portion.size):
            for number, (term, (residual, slope)) in enumerate(
                zip(piece.terms, _rows_of(rows, piece, parameters), strict=True)
            ):
                factor = factors[term.name]
                if piece.sample.quadrature is not None:
                    # To what is averaged every part of the points adds.
                    first, means = chosen.start == 0, piece.sample.quadrature.view(block.height, -1)
                    row = slice(start + number * block.height, start + (number + 1) * block.height)
                    values[row] = factor * (means @ residual) + (0.0 if first else values[row])
                    slopes[row] = factor * (means @ slope) + (0.0 if first else slopes[row])
                    continue
                place = slice(start + number * block.size + chosen.start, start + number * block.size + chosen.stop)
                if isinstance(factor, Tensor):
                    factor = factor[chosen, None]
                torch.mul(residual[:, None], factor, out=values[place, None])
                torch.mul(slope, factor, out=slopes[place])
        start += block.height * len(block.terms)
    return values, slopes


def pieces(block: Collocation, row_bytes: int, chunk: int, most: int | None = None) -> Iterator[tuple[slice, Collocation]]:
    """A block in parts whose rows, and what computing them needs, stay within some bytes, and at most so many points."""
    # Every term's slopes, and one more while they are assembled.
    count = max(1, chunk // (row_bytes * (len(block.terms) + 1)))
    yield from block.parts(count if most is None else min(count, most))


def _rows_of(rows: ResidualSystem, block: Collocation, parameters: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    leaves, values = per_point(rows.problem, rows.raw, block.size)
    evaluation, suppliers = rows.evaluation(block, values)
    taylor = [supplier for supplier in suppliers if isinstance(supplier, TaylorJets | LinearJets)]
    if len(taylor) == len(suppliers):
        return _layered(evaluation, taylor, block, parameters, list(leaves.values()))
    found = []
    for term in block.terms:
        linear = linearize(term, evaluation, leaves)
        residual = linear.values.detach()
        slope = per_sample(rows, block, linear, parameters)
        if slope is None:
            slope = _row_by_row(linear.values, parameters)
        columns = [linear.by_unknown.get(name, torch.zeros_like(residual))[:, None] for name in leaves]
        found.append((residual, torch.cat([slope, *columns], dim=1)))
    return found


def _layered(
    evaluation: Evaluation,
    suppliers: Sequence[TaylorJets | LinearJets],
    block: Collocation,
    parameters: Sequence[Tensor],
    leaves: Sequence[Tensor],
) -> list[tuple[Tensor, Tensor]]:
    """Rows and slopes of models made of known layers: outer products instead of the chain rule through jets."""
    columns, width = {}, 0
    for parameter in parameters:
        columns[id(parameter)] = slice(width, width + parameter.numel())
        width += parameter.numel()
    found = []
    for term in block.terms:
        residual = term.evaluate(evaluation)
        layers = [
            layer
            for supplier in suppliers
            for layer in supplier.layers
            if any(id(own) in columns for own in layer.module.parameters(recurse=False))
        ]
        backs = gradients(residual, [*(layer.outputs for layer in layers), *leaves])
        alone = len(layers) == 1 and columns.get(id(layers[0].module.weight)) == slice(0, width + len(leaves))
        if alone and backs[0] is not None:
            # One layer's weights are all there is: no zeros to add to.
            found.append((residual.detach(), layers[0].outer(backs[0]).reshape(len(residual), -1)))
            continue
        slope = residual.new_zeros(len(residual), width + len(leaves))
        for layer, back in zip(layers, backs, strict=False):
            if back is None:
                continue
            weight, bias = layer.module.weight, layer.module.bias
            if id(weight) in columns:
                slope[:, columns[id(weight)]] += layer.outer(back).reshape(len(residual), -1)
            if bias is not None and id(bias) in columns:
                slope[:, columns[id(bias)]] += back[0]
        for position, back in enumerate(backs[len(layers) :]):
            if back is not None:
                slope[:, width + position] = back
        found.append((residual.detach(), slope))
    return found


def per_sample(rows: ResidualSystem, block: Collocation, linear: Linearization, parameters: Sequence[Tensor]) -> Tensor | None:
    """The slopes ``(n, p)`` of a linearized residual, or None where ``torch.func`` cannot follow the model."""
    names = {id(parameter): name for name, parameter in rows.trial.named_parameters()}
    if not all(id(parameter) in names for parameter in parameters):
        return None
    varied = {names[id(parameter)]: parameter.detach() for parameter in parameters}
    total = linear.values.new_zeros(block.size, sum(parameter.numel() for parameter in parameters))
    try:
        for by_jet, points in zip(linear.by_jet, block.sample.points, strict=True):
            if not by_jet or not varied:
                continue
            with differentiable():
                slopes = vmap(grad(_weighted_jets(rows, list(by_jet))), in_dims=(None, 0, 0))(
                    varied, points.detach(), torch.stack(list(by_jet.values()), dim=1)
                )
            total += torch.cat([slopes[name].flatten(1) for name in varied], dim=1)
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        if exhausted(error):
            raise
        # What torch.func cannot follow (calls on data, operators without a rule, hooks), it refuses in one of these ways.
        return None
    return total


def _weighted_jets(rows: ResidualSystem, jets: Sequence[Jet]) -> Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]:
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


def _row_by_row(residual: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The slopes ``(n, p)`` of a residual with its graph, by one reverse sweep a row."""
    size = len(residual)
    if not residual.requires_grad:
        return residual.new_zeros(size, sum(parameter.numel() for parameter in parameters))
    found = []
    for start in range(0, size, _BATCH):
        units = torch.eye(size, dtype=residual.dtype, device=residual.device)[start : start + _BATCH]
        parts = torch.autograd.grad(
            residual, list(parameters), units, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        flat = [
            units.new_zeros(len(units), parameter.numel()) if part is None else part.reshape(len(units), -1)
            for part, parameter in zip(parts, parameters, strict=True)
        ]
        found.append(torch.cat(flat, dim=1))
    return torch.cat(found)

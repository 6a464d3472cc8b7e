r"""Derivatives of rows by parameters and unknowns.

For models made of linear layers and activations a row's derivative by a weight matrix is a sum over streams of outer products,

.. math::  \partial r_n/\partial W = \sum_s \bar Z_{sn} \otimes A_{sn}, \quad \bar Z = \partial \Big(\sum_n r_n\Big)/\partial Z,

with A the inputs and Z the outputs of the layer. It is valid because the residual at a point depends on that point alone. One
reverse sweep a residual gives all rows. For any other model the chain rule through jets, :math:`\partial r_n/\partial\theta =
\sum_k (\partial r_n/\partial u_k)\, \partial u_k(x_n)/\partial\theta`, leaves the derivatives of the model alone to
``torch.func``; where that cannot follow a model, every row has a reverse sweep of its own, in batches.

Unknowns are handed to the residuals as one value a point, so that their columns are pointwise derivatives too.

Derivatives of rows by the parameters of any model, through ``torch.func``.

The residual is a pointwise function of jets, so with :math:`c_k = \partial r/\partial u_k` from one reverse sweep over vectors,

.. math::  \partial r_n/\partial\theta = \nabla_\theta \sum_k c_{kn}\, u_k(x_n; \theta),

and only the model, one point and its nested derivatives have to be understood by ``torch.func``, not what a person wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, vmap

from sciml.jets import JetSpace, LinearJets, TaylorJets
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.solvers.batching import exhausted, named
from sciml.solvers.residuals import ResidualSystem
from sciml.typing import MultiIndex


def per_sample(
    rows: ResidualSystem, scene: Evaluation, block: Collocation, residual: Tensor, parameters: Sequence[Tensor]
) -> Tensor | None:
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
    rows: ResidualSystem, jets: Sequence[tuple[str, MultiIndex]]
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


_BATCH = 64

CHUNK = 2**28


def jacobian(
    rows: ResidualSystem,
    blocks: Sequence[Collocation],
    factors: Mapping[str, float | Tensor],
    parameters: Sequence[Tensor],
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """All rows, multiplied by a factor for each term, and their derivatives.

    Args:
        rows: the residuals.
        blocks: where they are taken.
        factors: what each term is multiplied by, one number or one for each of its rows.
        parameters: the parameters to differentiate by; raw unknowns follow after them.
        chunk: about how many bytes may be needed at once beside the result: points are taken in parts.

    Returns:
        The rows, shape ``(m,)``, and the Jacobian, shape ``(m, p + q)``, in the order of blocks and terms.
    """
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
                if piece.sample.shares is not None:
                    # What is averaged is one row, to which every part of the points adds.
                    first = chosen.start == 0
                    row = start + number
                    values[row] = factor * (piece.sample.shares @ residual) + (0.0 if first else values[row])
                    slopes[row] = factor * (piece.sample.shares @ slope) + (0.0 if first else slopes[row])
                    continue
                place = slice(start + number * block.size + chosen.start, start + number * block.size + chosen.stop)
                if isinstance(factor, Tensor):
                    factor = factor[chosen, None]
                torch.mul(residual[:, None], factor, out=values[place, None])
                torch.mul(slope, factor, out=slopes[place])
        start += block.height * len(block.terms)
    return values, slopes


def pieces(
    block: Collocation, row_bytes: int, chunk: int, most: int | None = None
) -> Iterator[tuple[slice, Collocation]]:
    """A block in parts whose rows, and what computing them needs, stay within some bytes, and at most so many points."""
    # Every term's slopes, and one more while they are assembled.
    count = max(1, chunk // (row_bytes * (len(block.terms) + 1)))
    yield from block.parts(count if most is None else min(count, most))


def _per_point(rows: ResidualSystem, block: Collocation) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Raw unknowns as one leaf a point, and their values."""
    unknowns = rows.problem.unknowns
    leaves = [raw.detach().expand(block.size).clone().requires_grad_() for raw in rows.raw.values()]
    return leaves, {name: unknown.value(leaf) for (name, unknown), leaf in zip(unknowns.items(), leaves, strict=True)}


def _rows_of(rows: ResidualSystem, block: Collocation, parameters: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    leaves, values = _per_point(rows, block)
    scene, suppliers = rows.scene(block, values)
    taylor = [supplier for supplier in suppliers if isinstance(supplier, TaylorJets | LinearJets)]
    if len(taylor) == len(suppliers):
        return _layered(scene, taylor, block, parameters, leaves)
    found = []
    for term in block.terms:
        residual = term.evaluate(scene)
        slope = per_sample(rows, scene, block, residual, parameters)
        if slope is None:
            slope = _row_by_row(residual, parameters)
        backs = _gradient(residual, leaves)
        columns = [torch.zeros_like(residual)[:, None] if back is None else back[:, None] for back in backs]
        found.append((residual.detach(), torch.cat([slope, *columns], dim=1)))
    return found


def _layered(
    scene: Evaluation,
    suppliers: Sequence[TaylorJets | LinearJets],
    block: Collocation,
    parameters: Sequence[Tensor],
    leaves: Sequence[Tensor],
) -> list[tuple[Tensor, Tensor]]:
    columns, width = {}, 0
    for parameter in parameters:
        columns[id(parameter)] = slice(width, width + parameter.numel())
        width += parameter.numel()
    found = []
    for term in block.terms:
        residual = term.evaluate(scene)
        layers = [
            layer
            for supplier in suppliers
            for layer in supplier.layers
            if any(id(own) in columns for own in layer.module.parameters(recurse=False))
        ]
        inputs = [*(layer.outputs for layer in layers), *leaves]
        backs = _gradient(residual, inputs)
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


def _gradient(residual: Tensor, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    used = [value for value in inputs if value.requires_grad]
    gradients = iter(
        torch.autograd.grad(residual.sum(), used, retain_graph=True, allow_unused=True)
        if residual.requires_grad and used
        else [None] * len(used)
    )
    return [next(gradients) if value.requires_grad else None for value in inputs]


def _row_by_row(residual: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    size = len(residual)
    if not residual.requires_grad:
        return residual.new_zeros(size, sum(parameter.numel() for parameter in parameters))
    found = []
    for start in range(0, size, _BATCH):
        units = torch.eye(size, dtype=residual.dtype, device=residual.device)[start : start + _BATCH]
        parts = torch.autograd.grad(
            residual,
            list(parameters),
            units,
            retain_graph=True,
            allow_unused=True,
            is_grads_batched=True,
        )
        flat = [
            units.new_zeros(len(units), parameter.numel()) if part is None else part.reshape(len(units), -1)
            for part, parameter in zip(parts, parameters, strict=True)
        ]
        found.append(torch.cat(flat, dim=1))
    return torch.cat(found)

r"""Matrix-free Gauss-Newton: products with the Jacobian, and damped steps by preconditioned conjugate gradients.

A row's derivative by a weight matrix is a sum over streams of outer products (``jacobian.py``), so that the products

.. math::  (Jv)_n = \sum_s \bar Z_{sn}\cdot (V A_{sn}), \qquad J^Tw = \sum_{sn} w_n \bar Z_{sn} \otimes A_{sn}

need the factors A and :math:`\bar Z` alone, some tens of times smaller than J. They are kept where memory holds them, and
computed again where it does not. Models of other modules have both products by reverse sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sciml.jets import LinearJets, TaylorJets
from sciml.jets.streams import Layer
from sciml.parallel import process_group
from sciml.problem.collocation import Collocation, shares
from sciml.problem.linearize import gradients, per_point
from sciml.solvers.gauss_newton import DampedStep, conjugate_gradients
from sciml.solvers.jacobian import CHUNK, jacobian, pieces
from sciml.solvers.objective import Objective

# Rows of each term by which the preconditioner is made, and parameters that one of its blocks has at most.
_SAMPLE, _BLOCK = 512, 256


@dataclass(frozen=True)
class _Rows:
    """Rows ``(n,)`` at some points, and what their products with the Jacobian are made of."""

    values: Tensor
    times: Callable[[Tensor], Tensor]
    transposed: Callable[[Tensor], Tensor]
    size: float


def _rows_of(objective: Objective, block: Collocation, roots: Mapping[str, float | Tensor]) -> Iterator[_Rows]:
    """The rows of each term of a block, times the roots of their weights."""
    rows, parameters = objective.rows, objective.parameters
    leaves, values = per_point(rows.problem, rows.raw, block.size)
    evaluation, suppliers = rows.evaluation(block, values)
    layered = all(isinstance(each, TaylorJets | LinearJets) for each in suppliers) and block.sample.quadrature is None
    for term in block.terms:
        root = roots[term.name]
        if not layered:
            yield _by_sweeps(objective, block, term, root)
            continue
        residual = term.evaluate(evaluation) * root
        layers = [layer for each in suppliers for layer in each.layers]  # type: ignore[attr-defined]
        backs = gradients(residual, [*(layer.outputs for layer in layers), *leaves.values()])
        places = {id(parameter): place for place, parameter in enumerate(parameters)}
        factors = [(layer, back) for layer, back in zip(layers, backs, strict=False) if back is not None]
        raw = {id(rows.raw[name]): back for name, back in zip(leaves, backs[len(layers) :], strict=True) if back is not None}
        yield _layered(objective, residual.detach(), factors, raw, places)


def _layered(
    objective: Objective,
    residual: Tensor,
    factors: Sequence[tuple[Layer, Tensor]],
    raw: Mapping[int, Tensor],
    places: Mapping[int, int],
) -> _Rows:
    """Products by the factors of linear layers."""

    def times(vector: Tensor) -> Tensor:
        parts, found = objective.split(vector), torch.zeros_like(residual)
        for layer, back in factors:
            weight, bias = layer.module.weight, layer.module.bias
            if id(weight) in places:
                found += layer.times(back, parts[places[id(weight)]])
            if bias is not None and id(bias) in places:
                found += back[0] @ parts[places[id(bias)]]
        for which, back in raw.items():
            found += back * parts[places[which]]
        return found

    def transposed(weights: Tensor) -> Tensor:
        parts = [torch.zeros_like(parameter) for parameter in objective.parameters]
        for layer, back in factors:
            weight, bias = layer.module.weight, layer.module.bias
            if id(weight) in places:
                parts[places[id(weight)]] += layer.transposed(back, weights)
            if bias is not None and id(bias) in places:
                parts[places[id(bias)]] += weights @ back[0]
        for which, back in raw.items():
            parts[places[which]] += weights @ back
        return torch.cat([part.detach().reshape(-1) for part in parts])

    held = sum((layer.inputs.numel() + back.numel()) * back.element_size() for layer, back in factors)
    return _Rows(residual, times, transposed, held)


def _by_sweeps(objective: Objective, block: Collocation, term: object, root: float | Tensor) -> _Rows:
    """Products by reverse sweeps through a graph that is kept, for models of any modules and for averages."""
    single = Collocation(block.sample, (term,), whole=block.whole)  # type: ignore[arg-type]
    (values,) = objective.rows.residuals([single]).values()
    residual = values * root
    dual = torch.ones_like(residual, requires_grad=True)
    slopes = torch.autograd.grad(residual, objective.parameters, dual, create_graph=True, materialize_grads=True)
    flat = torch.cat([slope.reshape(-1) for slope in slopes])

    def times(vector: Tensor) -> Tensor:
        if not flat.requires_grad:
            return torch.zeros_like(residual)
        (found,) = torch.autograd.grad(flat, dual, vector, retain_graph=True, materialize_grads=True)
        return found

    def transposed(weights: Tensor) -> Tensor:
        found = torch.autograd.grad(residual, objective.parameters, weights, retain_graph=True, materialize_grads=True)
        return torch.cat([each.reshape(-1) for each in found])

    # A graph is of no use any more once a parameter has changed.
    return _Rows(residual.detach(), times, transposed, math.inf)


class MatrixFreeSystem:
    r"""Rows whose Jacobian is never formed: products with it, and damped steps by conjugate gradients.

    A step solves :math:`(J^TJ + \lambda D^2)\,\delta = -J^Tr`. The preconditioner is the block diagonal of the system, a block
    for the weights of each unit, from some hundred rows of each term.

    Args:
        objective: its rows; of several processes each has a share, and what they add up to.
        memory: bytes that the factors may take; beyond them they are computed anew for every product.
        tolerance: the residual at which the iteration for a step ends, relative to the right-hand side.
        most: the most iterations.

    Reference: S. G. Nash, A survey of truncated-Newton methods, Journal of Computational and Applied Mathematics 124 (2000).
    """

    def __init__(self, objective: Objective, memory: float, tolerance: float = 1e-2, most: int = 200) -> None:
        self._objective, self._position = objective, objective.vector()
        self._tolerance, self._most = tolerance, most
        self._kept: dict[int, list[_Rows]] = {}
        # The factors are some times smaller than a row of J.
        row = max(1, len(self._position) // 2)
        self._parts = [part for block in shares(objective.blocks) for part in self._pieces(block, row)]
        values, gradient = [self._position[:0]], torch.zeros_like(self._position)
        for number, part in enumerate(self._parts):
            own = list(_rows_of(objective, *part))
            memory -= sum(each.size for each in own)
            if memory >= 0:
                self._kept[number] = own
            for each in own:
                values.append(each.values)
                gradient += each.transposed(each.values)
        rows, self.gradient = torch.cat(values), process_group.total(gradient)
        self.value = float(process_group.total(rows @ rows))

    def foretold(self, move: Tensor) -> float:
        """The loss of the linear model after a move ``(p,)``."""
        after = [(each.values + each.times(move)).square().sum() for each in self._each()]
        return float(process_group.total(torch.stack(after).sum() if after else move.new_zeros(())))

    def square(self, vector: Tensor) -> Tensor:
        """The product of JᵀJ and a vector ``(p,)``."""
        found = torch.zeros_like(vector)
        for each in self._each():
            found += each.transposed(each.times(vector))
        return process_group.total(found)

    @cached_property
    def norms(self) -> Tensor:
        """About the norm of every column of J, shape ``(p,)``: the diagonal of D."""
        return torch.cat([block.diagonal(dim1=1, dim2=2).reshape(-1) for block in self._blocks]).clamp(min=0).sqrt()

    def damped(self, scale: Tensor) -> DampedStep:
        return lambda damping: self.step(damping, scale)

    def step(self, damping: float, scale: Tensor) -> Tensor | None:
        """The step for a damping and the diagonal of D, shape ``(p,)``; None where it cannot be computed."""
        damped = damping * scale.square()
        solve = self._preconditioner(damped)
        if solve is None:
            return None
        square = lambda vector: self.square(vector) + damped * vector  # noqa: E731
        found, _ = conjugate_gradients(square, solve, -self.gradient, self._tolerance, self._most)
        return found if bool(torch.isfinite(found).all()) else None

    def _preconditioner(self, damped: Tensor) -> Callable[[Tensor], Tensor] | None:
        sizes = [block.shape[0] * block.shape[1] for block in self._blocks]
        factors = []
        for block, part in zip(self._blocks, damped.split(sizes), strict=True):
            square = block + torch.diag_embed(part.view(block.shape[0], block.shape[1]))
            # Directions that the sampled rows do not see must not become infinite.
            floor = 1e-12 * square.diagonal(dim1=1, dim2=2).amax(dim=1).clamp(min=torch.finfo(square.dtype).tiny)
            square.diagonal(dim1=1, dim2=2).add_(floor[:, None])
            factor, failed = torch.linalg.cholesky_ex(square)
            if int(failed.max()):
                return None
            factors.append(factor)

        def solve(vector: Tensor) -> Tensor:
            parts = zip(vector.split(sizes), factors, strict=True)
            return torch.cat([torch.cholesky_solve(part.view(len(each), -1, 1), each).reshape(-1) for part, each in parts])

        return solve

    @cached_property
    def _blocks(self) -> list[Tensor]:
        """The blocks of JᵀJ, for each parameter tensor a stack ``(count, width, width)``, from a sample of rows."""
        objective = self._objective
        layout = [_widths(parameter) for parameter in objective.parameters]
        like = objective.parameters[0]
        found = [like.new_zeros(count, width, width) for count, width in layout]
        raw = {id(value) for value in objective.rows.raw.values()}
        model = [parameter for parameter in objective.parameters if id(parameter) not in raw]
        row = like.element_size() * sum(parameter.numel() for parameter in objective.parameters)
        for block in objective.blocks:
            for piece, roots in self._pieces(block.thinned(_SAMPLE), row):
                _, slopes = jacobian(objective.rows, [piece], roots, model)
                start = 0
                for place, (count, width) in enumerate(layout):
                    part = slopes[:, start : start + count * width].view(-1, count, width).transpose(0, 1)
                    found[place] += part.transpose(1, 2) @ part
                    start += count * width
        return found

    def _each(self) -> Iterator[_Rows]:
        """All rows, those that are not kept computed anew where they were linearised."""
        objective, now = self._objective, None
        if len(self._kept) < len(self._parts):
            now = objective.vector()
            objective.assign(self._position)
        try:
            for number, part in enumerate(self._parts):
                yield from self._kept.get(number) or _rows_of(objective, *part)
        finally:
            if now is not None:
                objective.assign(now)

    def _pieces(self, block: Collocation, row: int) -> Iterator[tuple[Collocation, dict[str, float | Tensor]]]:
        """A block in parts whose rows take so many bytes each, and what their residuals are multiplied by."""
        roots = self._objective.roots([block])
        for chosen, piece in pieces(block, row, CHUNK, self._objective.rows.portion.size):
            yield piece, {name: root[chosen] if isinstance(root, Tensor) else root for name, root in roots.items()}


def _widths(parameter: Tensor) -> tuple[int, int]:
    """How many blocks a parameter tensor has, and of how many numbers each: those of one unit, or fewer."""
    rows = parameter.shape[0] if parameter.dim() > 1 else 1
    width = parameter.numel() // rows
    while width > _BLOCK:
        divisor = next((each for each in range(2, width + 1) if width % each == 0), width)
        rows, width = rows * divisor, width // divisor
    return rows, width

r"""Linearization of residuals by jets and unknowns, point by point.

A residual is a pointwise function of jets and unknowns, :math:`r_n = R(x_n, u_k(x_n), c_n)`, so one reverse sweep over vectors
gives all of its partial derivatives. Whoever knows the jets as functions of parameters completes the chain rule,

.. math::  \partial r_n/\partial\theta = \sum_k (\partial R/\partial u_k)_n\, \partial u_k(x_n)/\partial\theta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from sciml.jets import JetSpace
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.protocol import ProblemLike
from sciml.typing import MultiIndex

Jet: TypeAlias = tuple[str, MultiIndex]


@dataclass(frozen=True)
class Linearization:
    """A residual and its derivatives by each space's jets and by unknowns, all ``(n,)``; zeros are left out."""

    values: Tensor
    by_jet: tuple[dict[Jet, Tensor], ...]
    by_unknown: dict[str, Tensor]

    @property
    def jets(self) -> dict[Jet, Tensor]:
        """The derivatives by jets of all spaces; of paired points those at the second where it has any."""
        return {key: slope for space in self.by_jet for key, slope in space.items()}


def linearize(
    term: Term,
    at: Evaluation,
    unknowns: Mapping[str, Tensor] | None = None,
    after: Callable[[Tensor, JetSpace], Tensor] | None = None,
) -> Linearization:
    """A residual (``after`` a total derivative, say) with derivatives by its jets and by leaves of unknowns."""
    unknowns = unknowns or {}
    values = term.evaluate(at)
    if after is not None:
        values = after(values, at.space)
    jets = (jet for space in at.spaces for jet in space.jets.values())
    found = iter(gradients(values, [*jets, *unknowns.values()]))
    by_jet = [{key: slope for key in space.jets if (slope := next(found)) is not None} for space in at.spaces]
    by_unknown = {name: slope for name in unknowns if (slope := next(found)) is not None}
    return Linearization(values, tuple(by_jet), by_unknown)


def gradients(values: Tensor, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """The derivative of a pointwise result by each input, None where there is none; the graph is kept."""
    used = [each for each in inputs if each.requires_grad]
    if not values.requires_grad or not used:
        return [None] * len(inputs)
    found = iter(torch.autograd.grad(values.sum(), used, retain_graph=True, allow_unused=True))
    return [next(found) if each.requires_grad else None for each in inputs]


def per_point(problem: ProblemLike, raw: Mapping[str, Tensor], size: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Raw unknowns as leaves of one number a point, and the values of the unknowns that follow from them."""
    leaves = {name: value.detach().expand(size).clone().requires_grad_() for name, value in raw.items()}
    unknowns = problem.unknowns
    return leaves, {name: unknowns[name].value(leaf) for name, leaf in leaves.items()}

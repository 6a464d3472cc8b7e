r"""Variable projection: the output weights of a network follow from all its other parameters by linear least squares.

Where rows are affine in the output weights w, :math:`r = \Phi(\theta)\,w - y`, the reduced function

.. math::  f(\theta) = \min_w \lVert\Phi(\theta)\,w - y\rVert^2, \qquad
           \nabla f(\theta) = \partial_\theta \lVert\Phi(\theta)\,w - y\rVert^2 \text{ at } w = w(\theta),

has fewer variables than the sum of squares, and quasi-Newton methods take far fewer steps to its minimum.

Reference: G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose
variables separate, SIAM Journal on Numerical Analysis 10 (1973).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from sciml.models import Scaled
from sciml.models.layer_outputs import LayerOutput, head_of
from sciml.problem.collocation import Collocation
from sciml.problem.noise import Normal
from sciml.problem.observations import Observation
from sciml.solvers.gauss_newton import factorised
from sciml.solvers.objective import Objective

_RANK = 1e-13


@dataclass(eq=False, repr=False)
class ProjectedObjective(Objective):
    """The loss of measured fields as a function of all parameters but the output weights, which are always the best ones."""

    output: nn.Linear | None = None
    _settled_for: Any = field(default=None, init=False)
    _features: list[Tensor] | None = field(default=None, init=False)

    def assign(self, vector: Tensor) -> None:
        if not (self._settled_for == self._key(self.blocks) and torch.equal(vector, self.vector())):
            super().assign(vector)
            self._settle(self.blocks)

    def evaluate(self, blocks: Sequence[Collocation] | None = None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        own = self.blocks if blocks is None else tuple(blocks)
        if self._features is None or self._settled_for != self._key(own):
            self._settle(own)
        features, self._features = self._features or [], None
        kept = {id(block): each for block, each in zip(own, features, strict=True)}
        terms = self._mean_squares(lambda some: self._deviations(some[0], kept[id(some[0])]), own)
        loss = self.total(terms)
        return loss.detach(), self._gradient(loss), {name: value.detach() for name, value in terms.items()}

    def _deviations(self, block: Collocation, features: Tensor) -> dict[str, Tensor]:
        assert self.output is not None
        trial, columns = self.rows.trial, self._columns
        values = trial.offset + trial.scale * self.output(features)
        found = {}
        for term in block.terms:
            observation = cast(Observation, term.evaluate)
            sigma = 1.0 if observation.sigma is None else observation.sigma
            found[term.name] = (values[:, columns[str(observation.field)]] - observation.measured) / sigma
        return found

    @property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.rows.problem.fields)}

    def _key(self, blocks: Sequence[Collocation]) -> tuple[Any, ...]:
        return tuple(map(id, blocks)), tuple(self.weights.items())

    def _settle(self, blocks: Sequence[Collocation]) -> None:
        """Set the output weights, and keep what they are applied to at the points of every block, with a graph."""
        assert self.output is not None
        trial, output = cast(Scaled, self.rows.trial), self.output
        layer = LayerOutput(trial, trial.model, output, inputs=True)
        with torch.enable_grad():
            features = [layer.values(block.sample.points[0]).to(output.weight) for block in blocks]
        rows: dict[int, list[Tensor]] = {}
        for block, each in zip(blocks, features, strict=True):
            table = each.detach()
            if output.bias is not None:
                table = torch.cat([table, table.new_ones(len(table), 1)], dim=1)
            for term in block.terms:
                observation = cast(Observation, term.evaluate)
                column = self._columns[str(observation.field)]
                root = table.new_tensor(math.sqrt(self.weights[term.name] / block.size) / self.scales[term.name])
                root = root if block.weights is None else root * block.weights.sqrt()
                root = (root if observation.sigma is None else root / observation.sigma).expand(len(table))
                wanted = (observation.measured - trial.offset[column]) / trial.scale[column]
                scaled = (root * trial.scale[column])[:, None]
                rows.setdefault(column, []).append(scaled * torch.cat([table, wanted[:, None]], dim=1))
        width = output.in_features
        with torch.no_grad():
            for column, parts in rows.items():
                both = torch.cat(parts)
                found = factorised(-both[:, -1], both[:, :-1])[0](_RANK)
                if bool(torch.isfinite(found).all()):
                    output.weight[column] = found[:width]
                    if output.bias is not None:
                        output.bias[column] = found[width]
        self._settled_for, self._features = self._key(blocks), features


def projected(objective: Objective) -> Objective:
    """The same objective with its output weights eliminated, where rows are measured fields and a linear layer comes last."""
    rows = objective.rows
    terms = [term.evaluate for block in objective.blocks for term in block.terms]
    measured = [each for each in terms if isinstance(each, Observation) and each.plain and isinstance(each.noise, Normal)]
    output = None if rows.raw or objective.feed is not None or len(measured) < len(terms) else output_of(rows.trial)
    if output is None:
        return objective
    own = {id(parameter) for parameter in output.parameters()}
    rest = [parameter for parameter in objective.parameters if id(parameter) not in own]
    if not rest or len(rest) + len(own) != len(objective.parameters):
        return objective
    return ProjectedObjective(rows, objective.blocks, objective.scales, objective.weights, rest, output=output)


def output_of(trial: nn.Module) -> nn.Linear | None:
    """The linear layer that gives the fields of a scaled model, or None where none does."""
    if not isinstance(trial, Scaled):
        return None
    head = head_of(trial.model)
    return head if head is not None and head.out_features == len(trial.offset) else None

"""Slices of trial functions: a coordinate, such as a promoted parameter, fixed at one value."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.models.base import Block, SequentialModel, linear
from sciml.models.bases import chebyshev
from sciml.models.blocks import PeriodicInputs
from sciml.models.scaled import Scaled
from sciml.models.spectral import Spectral
from sciml.models.windowed import Windowed


class Sliced(Block):
    """A model at a fixed value of one coordinate: points ``(n, D - 1)`` to fields ``(n, F)``.

    Args:
        model: maps ``(n, D)`` to ``(n, F)``.
        column: the column of the coordinate among the D.
        value: its value, as the model is given it.

    Example:
        >>> import torch
        >>> from sciml.models.mlp import MLP
        >>> model = MLP(8, inputs=2, outputs=1)
        >>> bool(torch.equal(Sliced(model, 1, 0.5)(torch.ones(1, 1)), model(torch.tensor([[1.0, 0.5]]))))
        True
    """

    arguments = ("column", "value")
    value: Tensor

    def __init__(self, model: nn.Module, column: int, value: float) -> None:
        super().__init__()
        self.model = model
        self.column = column
        self.register_buffer("value", torch.tensor(value, dtype=torch.float64))

    def forward(self, points: Tensor) -> Tensor:
        """``(n, D - 1)`` to ``(n, F)``."""
        fixed = self.value.to(points).expand(points.shape[0], 1)
        return self.model(torch.cat([points[:, : self.column], fixed, points[:, self.column :]], dim=1))


def sliced(trial: nn.Module, column: int, value: float) -> nn.Module:
    """A scaled model, or windows of such, at a value of one coordinate, in its unit, behind all columns that repeat.

    Networks and random features take the value into the biases of their first layer, products of polynomials sum over the
    polynomials of that coordinate: they stay what they are, with one input less. Any other model is wrapped in ``Sliced``.

    Raises:
        ModelError: the trial function is of another kind.
    """
    if isinstance(trial, Windowed):
        windows = [sliced(each, column, value) for each in trial.windows]
        found = Windowed(trial.edges.tolist(), windows, trial.column - (column < trial.column), trial.order)
        return found.to(trial.edges)
    if not isinstance(trial, Scaled):
        raise ModelError(
            f"a {type(trial).__name__} cannot be taken at one value of a coordinate: fit the promoted problem with a model"
        )
    share = (value - float(trial.center[column])) / float(trial.half_width[column])
    made = Scaled(_model(trial.model, column, share), [], [], [], []).to(trial.center)
    made.center, made.half_width = (_without(each, column) for each in (trial.center, trial.half_width))
    made.offset, made.scale = trial.offset.clone(), trial.scale.clone()
    return made


def _model(model: nn.Module, column: int, share: float) -> nn.Module:
    if isinstance(model, PeriodicInputs):
        waves = 2 * model.harmonics * len(model.columns)
        behind = waves + column - sum(each < column for each in model.columns)
        columns = [each - (each > column) for each in model.columns]
        return PeriodicInputs(_model(model.model, behind, share), columns, model.harmonics)
    if type(model) is Spectral and column not in model.periodic:
        return _spectral(model, column, share)
    if isinstance(model, SequentialModel) and len(model.layers) and type(model.layers[0]) is nn.Linear:
        return _layered(model, column, share)
    return Sliced(copy.deepcopy(model), column, share)


def _layered(model: SequentialModel, column: int, share: float) -> nn.Module:
    """The first layer without a column of its weights, which the biases take over."""
    first: Any = model.layers[0]
    made = copy.deepcopy(model)
    fewer = linear(first.in_features - 1, first.out_features, like=first.weight)
    with torch.no_grad():
        fewer.weight.copy_(_without(first.weight, column))
        fewer.bias.copy_(first.bias + share * first.weight[:, column])
    fewer.weight.requires_grad_(first.weight.requires_grad)
    fewer.bias.requires_grad_(first.bias.requires_grad)
    made.layers[0] = fewer
    made.narrowed(column)
    return made


def _spectral(model: Spectral, column: int, share: float) -> Spectral:
    """The sum over the polynomials of one coordinate."""
    degree = model.degree if isinstance(model.degree, tuple) else (model.degree,) * model.basis.inputs
    kept = [place for place in range(len(degree)) if place != column]
    weight = model.weight.detach()
    made = Spectral([degree[place] for place in kept], periodic=[place - (place > column) for place in model.periodic])
    made.build(len(kept), len(weight), torch.Generator())
    values = chebyshev(torch.tensor([share], dtype=weight.dtype, device=weight.device), degree[column], 0)[0][0]
    place = {product: number for number, product in enumerate(made.basis.products)}
    numbers = [product[column] for product in model.basis.products]
    rest = [place[product[:column] + product[column + 1 :]] for product in model.basis.products]
    made.to(weight)
    with torch.no_grad():
        made.weight.index_add_(1, torch.tensor(rest, device=weight.device), weight * values[numbers])
    return made


def _without(values: Tensor, column: int) -> Tensor:
    return torch.cat([values[..., :column], values[..., column + 1 :]], dim=-1)

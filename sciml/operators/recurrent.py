"""Recurrent roll-outs: a gated recurrent unit that advances the principal components of a state in time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.errors import ModelError
from sciml.operators.codes import PrincipalComponents
from sciml.operators.learning import Frame, LearnedOperator, mlp
from sciml.operators.pairs import Pairs
from sciml.typing import Array


class Recurrent(LearnedOperator):
    r"""Recurrent roll-out: a gated recurrent unit (GRU) on the principal components of the fields at each time.

    .. math::  h_{k+1} = \mathrm{GRU}(c_k, h_k), \qquad c_{k+1} = c_k + A h_{k+1}, \qquad
               u(t_k) = \bar u + \sum_j c_{kj}\,\phi_j

    with :math:`c_0, h_0` from the input. The outputs have a coordinate of time, with equal steps. ``Surrogate.roll`` goes on
    beyond the last of them.

    Args:
        width: of the hidden state h.
        components: principal components of the fields.
        time: the coordinate of time.
        batch, lr: as for ``DeepONet``.

    Raises:
        ModelError: no coordinate of time, or steps that are not equal.

    Example:
        >>> from sciml import operators
        >>> operators.Recurrent(width=64).time
        't'

    Reference: K. Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
    EMNLP 2014.
    """

    dtype: ClassVar[torch.dtype] = torch.float64
    kept = ("count",)

    width: int
    components: int

    def __init__(self, width: int = 96, components: int = 48, *, time: str = "t", batch: int = 32, lr: float = 2e-3) -> None:
        super().__init__(width=width, components=components, batch=batch, lr=lr)
        self.time, self.count = time, 0

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        if self.time not in frame.axes or len(frame.axes[self.time]) < 2:
            raise ModelError(
                f"Recurrent needs a coordinate of time in the outputs; they have {listed(frame.axes)}, time={self.time!r}"
            )
        steps = np.diff(frame.axes[self.time])
        if np.ptp(steps) > 1e-6 * steps.max():
            raise ModelError("Recurrent needs equal steps of time")
        numbers = math.prod(frame.shape) // len(frame.axes[self.time]) * len(frame.fields)
        if pairs is None:
            self.modes = PrincipalComponents(shape=(numbers, self.count))
        else:
            rows = self._states(self.scaled(pairs), frame).reshape(-1, numbers)
            chosen = np.random.default_rng(0).permutation(len(rows))[:4000]
            self.modes = PrincipalComponents(rows[np.sort(chosen)], most=self.components)
            self.count = self.modes.count
        inputs = sum(self.scaling.sizes)
        self.start = mlp(inputs, 2 * self.width, 1, self.width + self.modes.count, nn.GELU).to(self.dtype)
        self.cell = nn.GRUCell(self.modes.count, self.width).to(self.dtype)
        self.move = nn.Linear(self.width, self.modes.count).to(self.dtype)

    def _states(self, values: Array, frame: Frame) -> Array:
        """Outputs ``(n, points, fields)`` as ``(n, times, numbers)``."""
        column = list(frame.axes).index(self.time)
        found = np.moveaxis(values.reshape(len(values), *frame.shape, -1), 1 + column, 1)
        return found.reshape(len(values), frame.shape[column], -1)

    def forward(self, rows: Tensor, frame: Frame) -> Tensor:
        return self._unrolled(rows, frame, frame.shape[list(frame.axes).index(self.time)])

    def _unrolled(self, rows: Tensor, frame: Frame, times: int) -> Tensor:
        begun = self.start(rows)
        hidden, code = begun[:, : self.width].tanh(), begun[:, self.width :]
        codes = [code]
        for _ in range(times - 1):
            hidden = self.cell(code, hidden)
            code = code + self.move(hidden)
            codes.append(code)
        states = (
            self.modes.spread.square().mean().sqrt() * torch.stack(codes, dim=1)
        ) @ self.modes.directions + self.modes.mean
        column = list(frame.axes).index(self.time)
        rest = [length for number, length in enumerate(frame.shape) if number != column]
        grid = states.view(len(rows), times, *rest, len(frame.fields)).movedim(1, 1 + column)
        return grid.reshape(len(rows), -1, len(frame.fields))

    @torch.no_grad()
    def rolled(self, inputs: Mapping[str, Array], steps: int) -> Array:
        """Outputs at so many times, more than those of training if wanted, ``(samples, points, fields)``."""
        (rows,) = self.features(self.frame, inputs)
        found = self._unrolled(rows, self.frame, steps)
        return (found * self.output_scale + self.output_center).numpy()

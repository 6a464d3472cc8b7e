"""Models of periodic functions."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams
from sciml.models.blocks import PeriodicEmbedding


class PeriodicInputs(nn.Module):
    r"""A model that sees :math:`\cos k\pi x, \sin k\pi x` for k = 1 ... K in place of some coordinates x in [-1, 1].

    Whatever the model is, the whole is periodic in these coordinates with period 2, and so are all its derivatives.

    Args:
        model: maps ``(n, D + (2 K - 1) p)`` to ``(n, F)``, with p periodic coordinates of D.
        columns: the columns of the periodic coordinates.
        harmonics: the number K.

    Raises:
        ModelError: ``harmonics`` is not a positive whole number.

    Example:
        >>> import torch
        >>> from sciml.models import MLP
        >>> model = PeriodicInputs(MLP(8, inputs=3, outputs=1), columns=[0])
        >>> ends = torch.tensor([[-1.0, 0.3], [1.0, 0.3]])
        >>> left, right = model(ends).detach()
        >>> bool(torch.allclose(left, right))
        True

    Reference: S. Dong and N. Ni, A method for representing periodic functions and enforcing exactly periodic boundary
    conditions with deep neural networks, Journal of Computational Physics 435 (2021).
    """

    def __init__(self, model: nn.Module, columns: Sequence[int], harmonics: int = 1) -> None:
        super().__init__()
        if isinstance(harmonics, bool) or not isinstance(harmonics, int) or harmonics < 1:
            raise ModelError(f"harmonics must be a positive whole number; given: {harmonics!r}")
        self.model = model
        self.columns = tuple(columns)
        self.harmonics = harmonics

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at scaled points ``(n, D)``."""
        return self.model(self._embedding(points.shape[1])(points))

    def parts(self) -> Sequence[nn.Module]:
        """The model."""
        return [self.model]

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The model's streams behind those of the waves."""
        return propagation.through(self.model, self._embedding(streams.before.shape[2]).jets(streams, propagation))

    def _embedding(self, inputs: int) -> PeriodicEmbedding:
        names = tuple(map(str, range(inputs)))
        return PeriodicEmbedding(names, {names[column]: 2.0 for column in self.columns}, self.harmonics)

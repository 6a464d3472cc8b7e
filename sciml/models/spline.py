"""Splines of one coordinate: piecewise polynomials with continuous derivatives, whose coefficients are parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams
from sciml.models.base import Block, SequentialModel, linear
from sciml.models.bases import PiecewiseBasis


class Spline(SequentialModel):
    r"""Splines of one coordinate: polynomials of degree n between breaks, with continuous derivatives below the order m.

    .. math::  u(x) = \sum_k w_k \phi_k(x), \qquad u \in C^{m-1}

    with functions :math:`\phi_k` that extend over one or two pieces. A linear problem of one coordinate is a linear
    least-squares problem in the weights w.

    Args:
        breaks: increasing numbers; from -1 to 1 inside a ``Scaled``.
        degree: n, at least 2m - 1.
        smooth: m, at least 1.
        inputs: 1, or None to be filled in by ``build``.
        outputs: the number of fields F, or None.

    Raises:
        ModelError: breaks that do not increase, a degree that is too low, or more than one coordinate.

    Example:
        >>> import torch
        >>> from sciml.models import Spline
        >>> model = Spline([-1.0, 0.0, 1.0], degree=5, smooth=2, inputs=1, outputs=3)
        >>> model(torch.zeros(4, 1)).shape, model.weight.shape
        (torch.Size([4, 3]), torch.Size([3, 10]))

    Reference: C. de Boor, A Practical Guide to Splines, Springer 2001.
    """

    arguments = ("breaks", "degree", "smooth")

    def __init__(
        self, breaks: Sequence[float], degree: int, smooth: int, *, inputs: int | None = None, outputs: int | None = None
    ) -> None:
        super().__init__()
        increasing = len(breaks) > 1 and all(low < high for low, high in itertools.pairwise(breaks))
        if not increasing or smooth < 1 or degree < 2 * smooth - 1:
            raise ModelError(
                "a Spline needs increasing breaks, an order smooth of at least 1 and a degree of at least 2 smooth - 1; given: "
                f"{list(breaks)}, degree {degree}, smooth {smooth}"
            )
        self.breaks, self.degree, self.smooth = tuple(map(float, breaks)), degree, smooth
        self.build_if_asked(inputs, outputs)

    @property
    def weight(self) -> Tensor:
        """The weights, shape ``(F, width)``: bubbles element by element, then the derivatives at every break."""
        return cast(nn.Linear, self.layers[-1]).weight

    @property
    def widths(self) -> dict[str, int | None]:
        return {**super().widths, "inputs": 1 if len(self.layers) else None}

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Make the functions and set all their weights to zero; nothing is random here."""
        if inputs != 1:
            raise ModelError(f"a Spline has one coordinate; given: {inputs}")
        functions = SplineFunctions(PiecewiseBasis(self.breaks, self.degree, self.smooth))
        self.layers.extend([functions, linear(functions.basis.width, outputs, zero=True, bias=False)])

    def extra_repr(self) -> str:
        return f"{len(self.breaks) - 1} pieces of degree {self.degree}, {self.smooth - 1} continuous derivatives"


class SplineFunctions(Block):
    """The functions of a basis of piecewise polynomials at points, without weights."""

    takes_coordinates = True

    def __init__(self, basis: PiecewiseBasis) -> None:
        super().__init__()
        self.basis = basis

    def forward(self, points: Tensor) -> Tensor:
        """``(n, 1)`` to ``(n, width)``."""
        return self._tables(points, 0)[0]

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """Derivatives by the one coordinate, in its unit."""
        (name,) = propagation.coordinates
        first = streams.parts().get((name,))
        unit = 1.0 if first is None else first[0]
        orders = [index.count(name) for index in propagation.plan]
        tables = self._tables(streams.values[0].detach(), max(orders))
        return Streams(propagation.plan, torch.stack([tables[order] * unit**order for order in orders]))

    def _tables(self, points: Tensor, highest: int) -> list[Tensor]:
        _, functions, tables = self.basis.scattered(points[:, 0], highest)
        return [points.new_zeros(len(points), self.basis.width).scatter(1, functions, table) for table in tables]

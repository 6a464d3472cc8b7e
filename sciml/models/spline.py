"""Splines of one coordinate: piecewise polynomials with continuous derivatives, whose coefficients are parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from sciml.errors import ModelError
from sciml.models.bases import PiecewiseBasis
from sciml.models.spectral import Expansion, Products


class Spline(Expansion):
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

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Make the functions and set all their weights to zero; nothing is random here."""
        if inputs != 1:
            raise ModelError(f"a Spline has one coordinate; given: {inputs}")
        # Weights are those of bubbles, element by element, then of the derivatives at every break.
        basis = PiecewiseBasis(self.breaks, self.degree, self.smooth)
        self.fill(Products([basis.tables], torch.arange(basis.width)[:, None]), outputs)

    def extra_repr(self) -> str:
        return f"{len(self.breaks) - 1} pieces of degree {self.degree}, {self.smooth - 1} continuous derivatives"

"""Piecewise polynomials with continuous derivatives: a basis of functions that reach over two elements at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import chebyshev as cheb
from numpy.polynomial import legendre
from scipy.special import eval_jacobi
from torch import Tensor

from sciml.errors import ProblemError
from sciml.models.spectral import chebyshev
from sciml.typing import Array


@dataclass(frozen=True)
class Trace:
    """Some elements, seen at the same places in each.

    Attributes:
        elements: which.
        tables: the local basis and its derivatives at the places, each ``(q, J)``.
        stretch: what a derivative is multiplied by in each element.
        x: the coordinate, ``(elements, q)``.
        upper: whether it is the upper end of the last element.
    """

    elements: slice
    tables: tuple[Tensor, ...]
    stretch: Tensor
    x: Tensor
    upper: bool = False

    def jet(self, local: Tensor, order: int) -> Tensor:
        """A derivative from local weights ``(..., E, J)``: ``(..., elements, q)``."""
        if order >= len(self.tables):
            raise ProblemError(
                f"a residual asks for a derivative of order {order} in space, which it did not ask for when its derivatives "
                "were recorded: let it ask for the same ones whatever the values are"
            )
        return (local[..., self.elements, :] @ self.tables[order].T) * self.stretch[:, None] ** order


class PiecewiseBasis:
    r"""Polynomials of degree n on the elements between breaks, with continuous derivatives below the order m.

    On each element there are n + 1 - 2m *bubbles*, polynomials that vanish with their derivatives below m at both ends, and
    2m *nodal* functions, which continue in the neighbour. A function's weights are all bubbles' first, element by element,
    then for every break the derivatives below m, in units of the shorter neighbour's half width.

    Args:
        breaks: increasing, at least two.
        degree: n, at least 2m.
        smooth: m, at least 1.

    Example:
        >>> mesh = PiecewiseBasis([0.0, 0.5, 1.0], degree=6, smooth=2)
        >>> mesh.width
        12
    """

    def __init__(self, breaks: Sequence[float] | Array, degree: int, smooth: int) -> None:
        self.breaks = np.asarray(breaks, dtype=float)
        self.degree, self.smooth = degree, smooth
        self.count = len(self.breaks) - 1
        half = np.diff(self.breaks) / 2
        self.half = torch.from_numpy(half)
        self.bubbles = degree + 1 - 2 * smooth
        self.width = self.count * self.bubbles + (self.count + 1) * smooth
        self._basis = local_basis(degree, smooth)
        unit = np.minimum(np.append(half, half[-1]), np.insert(half, 0, half[0]))
        powers = np.arange(smooth)
        ratios = [(half[:, None] / side[:, None]) ** powers for side in (unit[:-1], unit[1:])]
        self.factor = torch.from_numpy(np.concatenate([np.ones((self.count, self.bubbles)), *ratios], axis=1))
        inside = np.arange(self.count * self.bubbles).reshape(self.count, self.bubbles)
        nodal = self.count * self.bubbles + np.arange((self.count + 1) * smooth).reshape(-1, smooth)
        self._places = torch.from_numpy(np.concatenate([inside, nodal[:-1], nodal[1:]], axis=1))

    def local(self, weights: Tensor) -> Tensor:
        """Each element's weights of the local basis, ``(..., width)`` to ``(..., E, J)``."""
        return weights[..., self._places] * self.factor

    def coefficients(self, weights: Tensor) -> Tensor:
        """Each element's Chebyshev coefficients, ``(..., width)`` to ``(..., E, J)``."""
        return self.local(weights) @ self._basis.T

    def inside(self, places: Tensor, highest: int) -> Trace:
        """All elements at places in [-1, 1]."""
        return self._trace(slice(None), places, highest)

    def end(self, *, upper: bool, highest: int) -> Trace:
        """The first element at its lower end, or the last at its upper end."""
        where = slice(self.count - 1, self.count) if upper else slice(0, 1)
        return self._trace(where, torch.tensor([1.0 if upper else -1.0], dtype=torch.float64), highest, upper=upper)

    def _trace(self, elements: slice, places: Tensor, highest: int, *, upper: bool = False) -> Trace:
        tables = tuple(table @ self._basis for table in chebyshev(places, self.degree, highest))
        half = self.half[elements]
        middle = torch.from_numpy((self.breaks[:-1] + self.breaks[1:]) / 2)[elements]
        return Trace(elements, tables, 1 / half, middle[:, None] + half[:, None] * places, upper)

    def scattered(self, x: Tensor, highest: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """At any places ``(n,)``: elements ``(n,)``, the functions there ``(n, J)``, and their derivatives, each ``(n, J)``.

        The outermost elements continue outside.
        """
        element = torch.bucketize(x.contiguous(), torch.from_numpy(self.breaks)[1:-1], right=True)
        half, left = self.half[element], torch.from_numpy(self.breaks)[element]
        found = chebyshev((x - left) / half - 1, self.degree, highest)
        tables = tuple(
            (table @ self._basis) * self.factor[element] / half[:, None] ** order for order, table in enumerate(found)
        )
        return element, self._places[element], tables

    @property
    def ranks(self) -> Tensor:
        """The place of each function if they are sorted along the coordinate: then those of an element are neighbours."""
        beginnings = np.arange(self.count + 1)
        first = np.concatenate([np.repeat(beginnings[:-1] + 0.5, self.bubbles), np.repeat(beginnings, self.smooth)])
        return torch.from_numpy(np.argsort(np.argsort(first, kind="stable")))

    def interpolated(self, values: Tensor) -> Tensor:
        """The weights ``(..., width)`` of a function with values ``(..., E, J)`` at ``chebyshev_places(J)`` of the elements.

        Where its derivatives below the order m jump from one element to the next, their mean is taken.
        """
        local = values @ _to_local(self.degree, self.smooth).T / self.factor
        found = values.new_zeros(*values.shape[:-2], self.width)
        found[..., self._places[:, : self.bubbles]] = local[..., : self.bubbles]
        left, right = local[..., self.bubbles : -self.smooth], local[..., -self.smooth :]
        nodal = torch.zeros_like(left[..., :1, :]).expand(*left.shape[:-2], self.count + 1, self.smooth).clone()
        nodal[..., :-1, :] += left
        nodal[..., 1:, :] += right
        nodal[..., 1:-1, :] /= 2
        found[..., self.count * self.bubbles :] = nodal.flatten(-2)
        return found

    def fitted(self, values: Tensor, places: Tensor, shares: Tensor) -> Tensor:
        """The weights ``(k, width)`` closest in the mean to values ``(k, E, q)`` at the places of a quadrature.

        For functions that jump: interpolation would carry the derivatives there into the elements beside.
        """
        trace = self.inside(places, 0)
        weights = (self.half[:, None] * shares).sqrt()
        rows = torch.zeros(self.count, len(places), self.width, dtype=torch.float64)
        local = trace.tables[0] * self.factor[:, None, :] * weights[:, :, None]
        rows.scatter_add_(2, self._places[:, None, :].expand(-1, len(places), -1), local)
        wanted = (values * weights).flatten(1).T
        return torch.linalg.lstsq(rows.flatten(0, 1), wanted, driver="gels").solution.T

    def transferred(self, other: PiecewiseBasis, weights: Tensor) -> Tensor:
        """The weights of the function that has some weights on another mesh; exact if every break of that is one of this."""
        x = self.inside(chebyshev_places(self.degree + 1), 0).x
        # An element of this mesh may reach over several of the other.
        element = np.clip(np.searchsorted(other.breaks, x.numpy(), side="right") - 1, 0, other.count - 1)
        where = torch.from_numpy(element)
        middle = torch.from_numpy((other.breaks[:-1] + other.breaks[1:]) / 2)
        table = chebyshev(((x - middle[where]) / other.half[where]).flatten(), other.degree, 0)[0]
        own = other.coefficients(weights)[..., where.flatten(), :]
        return self.interpolated((own * table).sum(-1).unflatten(-1, x.shape))

    def split(self, which: Array) -> PiecewiseBasis:
        """The mesh with some elements cut in half."""
        middle = ((self.breaks[:-1] + self.breaks[1:]) / 2)[which]
        return PiecewiseBasis(np.sort(np.concatenate([self.breaks, middle])), self.degree, self.smooth)

    def merged(self, quiet: Array) -> PiecewiseBasis:
        """The mesh with pairs of neighbours joined that were one element once and are both quiet."""
        widths, whole = np.diff(self.breaks), self.breaks[-1] - self.breaks[0]
        drop, element = [], 0
        while element + 1 < self.count:
            left, right = widths[element], widths[element + 1]
            place = (self.breaks[element] - self.breaks[0]) / (2 * left)
            twins = abs(left - right) < 1e-9 * whole and abs(place - round(place)) < 1e-6
            if twins and quiet[element] and quiet[element + 1]:
                drop.append(element + 1)
                element += 1
            element += 1
        return self if not drop else PiecewiseBasis(np.delete(self.breaks, drop), self.degree, self.smooth)


def gauss(count: int) -> tuple[Tensor, Tensor]:
    """Places and weights of Gauss and Legendre on [-1, 1]."""
    places, weights = legendre.leggauss(count)
    return torch.from_numpy(places), torch.from_numpy(weights)


def chebyshev_places(count: int) -> Tensor:
    """The zeros of the Chebyshev polynomial of some degree."""
    return torch.from_numpy(np.cos(np.pi * (np.arange(count) + 0.5) / count))


@lru_cache(maxsize=32)
def _to_local(degree: int, smooth: int) -> Tensor:
    """From values at ``chebyshev_places`` to the weights of the local basis."""
    at = chebyshev_places(degree + 1).numpy()
    return torch.from_numpy(
        np.linalg.inv(local_basis(degree, smooth).numpy()) @ np.linalg.inv(cheb.chebvander(at, degree))
    )


@lru_cache(maxsize=32)
def local_basis(degree: int, smooth: int) -> Tensor:
    """Chebyshev coefficients of bubbles and nodal functions, as columns of a square matrix."""
    at = chebyshev_places(degree + 1).numpy()
    edge = (1 - at**2) ** smooth
    inside = [edge * eval_jacobi(k, 2 * smooth, 2 * smooth, at) for k in range(degree + 1 - 2 * smooth)]
    values = np.stack([each / np.abs(each).max() for each in inside], axis=1) if inside else np.zeros((degree + 1, 0))
    bubbles = np.linalg.solve(cheb.chebvander(at, degree), values)
    low = np.eye(2 * smooth)
    ends = np.concatenate(
        [[cheb.chebval(end, cheb.chebder(low, k) if k else low) for k in range(smooth)] for end in (-1.0, 1.0)]
    )
    nodal = np.zeros((degree + 1, 2 * smooth))
    nodal[: 2 * smooth] = np.linalg.inv(ends)
    return torch.from_numpy(np.concatenate([bubbles, nodal], axis=1))

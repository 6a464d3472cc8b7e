r"""Gaussian random fields on boxes: input functions for operator learning, drawn by their Karhunen-Loève expansion.

.. math::  f = m + \sum_k \sqrt{\lambda_k}\,\xi_k\,\varphi_k, \qquad \xi_k \sim N(0, 1), \qquad
           \lambda_k = \sigma^2 (\mu_k + \tau^2)^{-\alpha}

with the eigenpairs :math:`-\Delta\varphi_k = \mu_k\varphi_k` on the box, so that :math:`f \sim N(m, \sigma^2(-\Delta +
\tau^2)^{-\alpha})`. The functions are analytic: they are sums of waves or cosines, evaluated anywhere.

Reference: A. M. Stuart, Inverse problems: a Bayesian perspective, Acta Numerica 19 (2010), section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import whole
from sciml.errors import ProblemError
from sciml.typing import Array

Bounds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class GaussianField:
    r"""A Gaussian random field :math:`N(m, \sigma^2(-\Delta + \tau^2)^{-\alpha})` on a box, of any number of coordinates.

    Along a coordinate the eigenfunctions are waves where it is periodic, else cosines (Neumann) or sines (Dirichlet). They are
    normalised in L2. As in the published recipes for Burgers' equation and Darcy's flow, ``sigma`` multiplies the root of the
    operator: ``GaussianField(sigma=25.0, tau=5.0, alpha=2.0, periodic=True)`` is :math:`N(0, 625(-\Delta + 25)^{-2})`.

    Args:
        sigma: :math:`\sigma`, in the unit of the function times length to the power of :math:`D/2 - \alpha`.
        tau: the inverse correlation length :math:`\tau`, positive (may be 0 where the constant is left out, for sines).
        alpha: the smoothness :math:`\alpha`, more than half the number of coordinates.
        periodic: True, or the names of periodic coordinates.
        boundary: ``"neumann"`` or ``"dirichlet"``, along the others.
        mean: the mean m.
        modes: frequencies along each coordinate.
        transform: a function of the values that are drawn, torch in, torch out, such as ``torch.exp`` or a threshold.

    Raises:
        ProblemError: a number that is not positive, an unknown boundary, or too small an ``alpha``.

    Example:
        >>> import numpy as np, torch, sciml
        >>> field = sciml.operators.GaussianField(sigma=25.0, tau=5.0, alpha=2.0, periodic=True)
        >>> f = field.draw({"x": (0.0, 1.0)}, np.random.default_rng(0))
        >>> ends = f(torch.tensor([0.0, 1.0], dtype=torch.float64))
        >>> bool(torch.isclose(ends[0], ends[1]))
        True

    Reference: G. J. Lord, C. E. Powell and T. Shardlow, An Introduction to Computational Stochastic PDEs, Cambridge University
    Press 2014, chapter 7.
    """

    sigma: float = 1.0
    tau: float = 3.0
    alpha: float = 2.0
    periodic: bool | Sequence[str] = False
    boundary: str = "neumann"
    mean: float = 0.0
    modes: int = 64
    transform: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("sigma", "alpha"):
            if not 0 < getattr(self, name) < math.inf:
                raise ProblemError(f"GaussianField: {name} must be a positive number; given: {getattr(self, name)!r}")
        if self.boundary not in ("neumann", "dirichlet"):
            raise ProblemError(f"GaussianField: boundary must be 'neumann' or 'dirichlet'; given: {self.boundary!r}")
        if not 0 <= self.tau < math.inf or (self.tau == 0 and self.boundary == "neumann"):
            raise ProblemError(f"GaussianField: tau must be positive, or the constant has no variance; given: {self.tau!r}")
        whole("modes", self.modes, 1, ProblemError)

    def draw(self, bounds: Bounds, generator: np.random.Generator) -> RandomFunction:
        """A function of the coordinates of ``bounds``."""
        kinds, spread = self.expansion(bounds)
        # Drawn by frequency, so that more modes keep those that there were, where there is one coordinate.
        weights = spread * generator.standard_normal(spread.shape)
        return RandomFunction(dict(bounds), kinds, weights, float(self.mean), self.transform)

    def expansion(self, bounds: Bounds) -> tuple[tuple[str, ...], Array]:
        """The kind of eigenfunctions along each coordinate, and the standard deviations of their weights."""
        if 2 * self.alpha <= len(bounds):
            raise ProblemError(
                f"GaussianField: alpha = {self.alpha:g} gives no functions of {len(bounds)} coordinates, only distributions: "
                f"take more than {len(bounds) / 2:g}"
            )
        kinds = tuple(self._kind(name) for name in bounds)
        lengths = [high - low for low, high in bounds.values()]
        eigenvalues = [_eigenvalues(kind, length, self.modes) for kind, length in zip(kinds, lengths, strict=True)]
        total = reduce(np.add.outer, eigenvalues) + self.tau**2
        # A constant that has no variance of its own is left out.
        return kinds, np.where(total > 0, self.sigma * np.where(total > 0, total, 1.0) ** (-self.alpha / 2), 0.0)

    def _kind(self, name: str) -> str:
        around = self.periodic if isinstance(self.periodic, bool) else name in self.periodic
        return "periodic" if around else self.boundary


def _eigenvalues(kind: str, length: float, modes: int) -> Array:
    """Of minus the second derivative, in the order of ``_eigenfunctions``."""
    if kind == "periodic":
        return (2 * np.pi / length * np.repeat(np.arange(modes + 1), 2)[1:]) ** 2
    return (np.pi / length * np.arange(1, modes + 1)) ** 2 if kind == "dirichlet" else (np.pi / length * np.arange(modes)) ** 2


def _eigenfunctions(kind: str, low: float, high: float, count: int, x: Tensor) -> Tensor:
    """``(n, count)``, normalised in L2: 1, cos, sin, cos 2 ... where periodic."""
    length = high - low
    s = (x - low)[:, None] / length
    if kind == "periodic":
        k = torch.arange(1, count // 2 + 1, dtype=x.dtype, device=x.device)
        waves = torch.stack([torch.cos(2 * math.pi * k * s), torch.sin(2 * math.pi * k * s)], dim=2).flatten(1)
        found = torch.cat([torch.ones_like(s), math.sqrt(2) * waves], dim=1)
    elif kind == "dirichlet":
        found = math.sqrt(2) * torch.sin(math.pi * torch.arange(1, count + 1, dtype=x.dtype, device=x.device) * s)
    else:
        found = math.sqrt(2) * torch.cos(math.pi * torch.arange(count, dtype=x.dtype, device=x.device) * s)
        found = torch.cat([torch.ones_like(s), found[:, 1:]], dim=1)
    return found / math.sqrt(length)


@dataclass(frozen=True)
class RandomFunction:
    """A function that was drawn: a sum of products of waves, cosines or sines, called with one tensor a coordinate."""

    bounds: Bounds
    kinds: tuple[str, ...]
    weights: Array
    mean: float = 0.0
    transform: Callable[[Tensor], Tensor] | None = None

    def __call__(self, *columns: Tensor) -> Tensor:
        """Values at points, ``(n,)`` from a column ``(n,)`` for each coordinate."""
        shape = columns[0].shape
        flat = [column.reshape(-1) for column in columns]
        found = self._summed(flat, "n")
        return self._finished(found).reshape(shape)

    def on_grid(self, *axes: Array) -> Array:
        """Values at all combinations of the nodes of axes."""
        found = self._summed([torch.as_tensor(axis, dtype=torch.float64) for axis in axes], None)
        return self._finished(found).numpy()

    def many(self, weights: Tensor, *columns: Tensor) -> Tensor:
        """Values ``(n,)`` of functions of the same kind whose weights ``(n, ...)`` differ from row to row."""
        found = weights.to(columns[0])
        for kind, (low, high), column in zip(self.kinds, self.bounds.values(), columns, strict=True):
            found = torch.einsum("nk,nk...->n...", _eigenfunctions(kind, low, high, found.shape[1], column), found)
        return self._finished(found)

    def _summed(self, columns: Sequence[Tensor], common: str | None) -> Tensor:
        """The expansion: all columns share their points, or each has an axis of its own."""
        found = torch.as_tensor(self.weights, dtype=columns[0].dtype, device=columns[0].device)
        sides = zip(self.kinds, self.bounds.values(), columns, found.shape, strict=True)
        for number, (kind, (low, high), column, count) in enumerate(sides):
            table = _eigenfunctions(kind, low, high, count, column)
            if common is None:
                found = torch.tensordot(found, table, dims=([0], [1]))
            elif number == 0:
                found = torch.tensordot(table, found, dims=1)
            else:
                found = torch.einsum("nk,nk...->n...", table, found)
        return found

    def _finished(self, values: Tensor) -> Tensor:
        values = values + self.mean
        return values if self.transform is None else self.transform(values)


def drawn(sampler: Any, name: str, bounds: Bounds, generator: np.random.Generator) -> Callable[..., Tensor]:
    """A function from a sampler: a ``GaussianField``, or a callable of a NumPy generator that returns a function."""
    if isinstance(sampler, GaussianField):
        return sampler.draw(bounds, generator)
    if not callable(sampler):
        raise ProblemError(
            f"{name} must be a GaussianField, a pair (low, high) for a constant, or a callable that makes a function from a "
            f"NumPy generator; given: {sampler!r}"
        )
    found = sampler(generator)
    if not callable(found):
        raise ProblemError(f"{name}: the sampler must return a function of {', '.join(bounds)}; it returned {found!r}")
    return found

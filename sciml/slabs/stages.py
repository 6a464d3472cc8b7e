r"""Polynomials in time through the stages of the Radau IIA method: what collocation in a slab of time is made of.

A field of order m in time is given by its highest derivative :math:`K_i = \partial_t^m u` at the stages and by
:math:`u, \dots, \partial_t^{m-1} u` at the start; lower derivatives are exact integrals of the polynomial through the stages.

Reference: E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, 2nd ed., Springer 1996, sections IV.5 and IV.8.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.polynomial import chebyshev
from scipy.special import roots_jacobi
from torch import Tensor

from sciml.typing import Array


class Stages:
    r"""The stages of one slab, in time from 0 to 1.

    Args:
        count: how many; even, so that the eigenvalues come in pairs.

    Attributes:
        nodes: the times of the stages, the last one 1, shape ``(p,)``.
        eigenvalues: those of the matrix :math:`\mathcal A` that integrates once from 0 to the stages, one of each pair.
        vectors: the eigenvectors that belong to them, as columns, ``(p, p / 2)``.
        inverse: the rows of the inverse of the matrix of all eigenvectors that belong to them, ``(p / 2, p)``.

    Example:
        >>> stages = Stages(4)
        >>> float(stages.nodes[-1])
        1.0
    """

    def __init__(self, count: int) -> None:
        inner, _ = roots_jacobi(count - 1, 1.0, 0.0)
        nodes = np.append((1 + np.sort(inner)) / 2, 1.0)
        self.count = count
        self.nodes = torch.from_numpy(nodes)
        # Chebyshev coefficients of the polynomials that are one at one stage and zero at the others, as columns.
        self._lagrange = np.linalg.inv(chebyshev.chebvander(2 * nodes - 1, count - 1))
        values, vectors = np.linalg.eig(self.integrated(self.nodes, 1).numpy())
        kept = values.imag > 0
        self.eigenvalues = torch.from_numpy(values[kept])
        self.vectors = torch.from_numpy(vectors[:, kept])
        self.inverse = torch.from_numpy(np.linalg.inv(vectors)[kept])

    def polynomials(self, times: int) -> Array:
        """The Chebyshev coefficients of the stages' polynomials, integrated so many times from 0: ``(p + times, p)``."""
        return _integral(self._lagrange, times)

    def integrated(self, at: Tensor, times: int) -> Tensor:
        """The stages' polynomials, integrated so many times from 0, at some times: ``(len(at), p)``."""
        return torch.from_numpy(chebyshev.chebval(2 * at.numpy() - 1, self.polynomials(times)).T)


def start_polynomial(power: int) -> Array:
    r"""The Chebyshev coefficients of :math:`\tau^k/k!` on [0, 1]."""
    return _integral(np.ones(1), power)


def start_values(at: Tensor, power: int) -> Tensor:
    r""":math:`\tau^k/k!` at some times."""
    return at**power / math.factorial(power)


def _integral(coefficients: Array, times: int) -> Array:
    return chebyshev.chebint(coefficients, times, lbnd=-1, scl=0.5) if times else coefficients

r"""Radau IIA method: polynomials in time through its stages: what collocation in a slab of time is made of.

A field of order m in time is given by its highest derivative :math:`K_i` at the stages and by its lower derivatives at the
start. Lower derivatives at the stages follow by the matrix :math:`\mathcal A` that integrates polynomials through the
stages, one power for each derivative, as for a system of first order; the function itself is the integral of the polynomial
through its first derivative at the stages. (To integrate the polynomial through K itself m times is another method, unstable
for waves.)

Reference: E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, 2nd ed., Springer 1996, sections IV.5 and IV.8.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from sciml.typing import Array


class RadauIIA:
    r"""The stages of one slab, at the times ``nodes``, ``(p,)``, from 0 to 1, the last one 1.

    A mean over the slab is that over the stages with their ``weights``. Of the matrix :math:`\mathcal A`, which integrates once
    from 0 to the stages, ``eigenvalues`` are one of each conjugate pair and the real one of an odd number; ``vectors``,
    ``(p, m)``, are twice the eigenvectors of the pairs and that of the real one, so that real parts add up, and ``inverse``,
    ``(m, p)``, holds their rows of the inverse of all.
    """

    def __init__(self, count: int) -> None:
        inner = scipy.special.roots_jacobi(count - 1, 1.0, 0.0)[0] if count > 1 else np.zeros(0)
        nodes = np.append((1 + np.sort(inner)) / 2, 1.0)
        self.count = count
        self.nodes = torch.from_numpy(nodes)
        # Chebyshev coefficients of the polynomials that are one at one stage and zero at the others, as columns.
        self._lagrange = np.linalg.inv(chebyshev.chebvander(2 * nodes - 1, count - 1))
        self._matrix = self.integrated(self.nodes, 1)
        self.weights = self._matrix[-1]
        values, vectors = (each.astype(complex) for each in np.linalg.eig(self._matrix.numpy()))
        kept = values.imag >= 0
        self.eigenvalues = torch.from_numpy(values[kept])
        self.vectors = torch.from_numpy(vectors[:, kept] * np.where(values[kept].imag > 0, 2.0, 1.0))
        self.inverse = torch.from_numpy(np.linalg.inv(vectors)[kept])

    @property
    def between(self) -> Tensor:
        """Times half way between the stages, and before the first one."""
        return (torch.cat([self.nodes.new_zeros(1), self.nodes[:-1]]) + self.nodes) / 2

    def polynomials(self, order: int) -> Array:
        """The Chebyshev coefficients of a field of some order whose highest derivative is one at one stage, as columns."""
        if order == 0:
            return self._lagrange
        return _integral(self._lagrange, 1) @ self.power(order - 1).numpy()

    def power(self, times: int) -> Tensor:
        """The matrix that integrates so many times, from stages to stages: ``(p, p)``."""
        return torch.linalg.matrix_power(self._matrix, times)

    def moved(self, at: Tensor, order: int, in_time: int) -> Tensor:
        """A time derivative of such fields at some times: ``(len(at), p)``."""
        coefficients = chebyshev.chebder(self.polynomials(order), in_time, scl=2)
        return torch.from_numpy(chebyshev.chebval(2 * at.numpy() - 1, coefficients).T)

    def integrated(self, at: Tensor, times: int) -> Tensor:
        """The stages' polynomials, integrated so many times from 0, at some times: ``(len(at), p)``."""
        coefficients = _integral(self._lagrange, times)
        return torch.from_numpy(chebyshev.chebval(2 * at.numpy() - 1, coefficients).T)


def start_polynomial(power: int) -> Array:
    r"""The Chebyshev coefficients of :math:`\tau^k/k!` on [0, 1]."""
    return _integral(np.ones(1), power)


def start_values(at: Tensor, power: int) -> Tensor:
    r""":math:`\tau^k/k!` at some times."""
    return at**power / math.factorial(power)


def _integral(coefficients: Array, times: int) -> Array:
    return chebyshev.chebint(coefficients, times, lbnd=-1, scl=0.5)

r"""Principal component analysis of functions: the code of an input, the numbers :math:`c_k = \langle f - \bar f,
\varphi_k\rangle` of its expansion in the directions that vary most.

Reference: K. Bhattacharya, B. Hosseini, N. B. Kovachki and A. M. Stuart, Model reduction and neural networks for parametric
PDEs, SMAI Journal of Computational Mathematics 7 (2021).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sciml.typing import Array

# Directions that vary less than this, relative to the first, are those of rounding.
_ROUNDING = 1e-12
# Up to how many operations singular values are worth.
_WORK = 2e9


class Operator(nn.Module):
    """A map between functions: its settings, and what it found."""

    # What was found beside tensors, and is needed to build the parts anew.
    kept: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    @property
    def config(self) -> dict[str, Any]:
        """The settings, by the names of the constructor's arguments."""
        given = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @property
    def found(self) -> dict[str, Any]:
        """What was found beside tensors, as plain values."""
        return {name: getattr(self, name) for name in self.kept}


class PrincipalComponents(nn.Module):
    """Principal components of rows of numbers: their mean, orthonormal directions, and how the codes scatter.

    Args:
        rows: the numbers that were observed, ``(samples, numbers)``; None for one that is filled from a state.
        most: directions at most.
        left: the relative variance that may be left out.
        shape: numbers and directions, for one that is filled from a state.
    """

    mean: Tensor
    directions: Tensor
    spread: Tensor

    def __init__(self, rows: Array | None = None, *, most: int = 500, left: float = 0.0, shape: Sequence[int] = (1, 1)) -> None:
        super().__init__()
        if rows is None:
            mean, directions, spread = np.zeros(shape[0]), np.zeros((shape[1], shape[0])), np.ones(shape[1])
        else:
            mean = rows.mean(axis=0)
            directions, spread = _components(rows - mean, most, left)
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("directions", torch.tensor(np.array(directions, order="C")))
        self.register_buffer("spread", torch.tensor(spread))

    @property
    def count(self) -> int:
        """The number of directions."""
        return len(self.spread)

    def encode(self, rows: Array) -> Array:
        """Codes ``(n, k)`` of rows."""
        return np.asarray((rows - self.mean.cpu().numpy()) @ self.directions.cpu().numpy().T)

    def decode(self, codes: Array) -> Array:
        """Rows of codes."""
        return np.asarray(codes @ self.directions.cpu().numpy() + self.mean.cpu().numpy())

    def distance(self, rows: Array) -> Array:
        r"""The Mahalanobis distance of rows from what was observed, :math:`\sqrt{k^{-1}\sum_k c_k^2/s_k^2}`: 1 is usual."""
        scaled = self.encode(rows) / self.spread.cpu().numpy()
        return np.asarray(np.sqrt(np.mean(scaled**2, axis=1)))


def _components(rows: Array, most: int, left: float) -> tuple[Array, Array]:
    """Directions ``(k, numbers)`` and standard deviations: by singular values, or the smaller Gram matrix of many numbers."""
    count, numbers = rows.shape
    small = numbers <= count
    if min(rows.shape) * rows.size <= _WORK:
        _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
        least = _ROUNDING
    else:
        values, vectors = np.linalg.eigh(rows.T @ rows if small else rows @ rows.T)
        # Squares lose half of the digits.
        sizes, vectors, least = np.sqrt(values[::-1].clip(min=0.0)), vectors[:, ::-1], math.sqrt(_ROUNDING)
        kept = int((sizes > least * sizes[0]).sum()) or 1
        sizes, vectors = sizes[:kept], vectors[:, :kept]
        directions = vectors.T if small else (rows.T @ (vectors / np.maximum(sizes, np.finfo(float).tiny))).T
    shares = np.cumsum(sizes**2)
    keep = int(np.searchsorted(shares, (1 - left) * shares[-1]) + 1) if left > 0 else len(sizes)
    keep = max(1, min(keep, most, count - 1 or 1, int((sizes > least * sizes[0]).sum())))
    return directions[:keep], np.maximum(sizes[:keep], np.finfo(float).tiny) / math.sqrt(max(1, count - 1))


class Scaling(nn.Module):
    """Inputs as rows of numbers of order one: every input by its mean and standard deviation in training.

    Args:
        sizes: how many numbers each input has.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = list(sizes)
        self.register_buffer("center", torch.zeros(len(sizes), dtype=torch.float64))
        self.register_buffer("scale", torch.ones(len(sizes), dtype=torch.float64))

    @classmethod
    def of(cls, parts: Sequence[Array]) -> Scaling:
        """Standardization learned from parts ``(samples, size)``."""
        found = cls([part.shape[1] for part in parts])
        found.learn(parts)
        return found

    def learn(self, parts: Sequence[Array]) -> None:
        """Take mean and standard deviation of parts ``(samples, size)``; the statistics are those of training alone."""
        for number, part in enumerate(parts):
            self.center[number] = float(part.mean())
            self.scale[number] = float(part.std()) or 1.0

    def only(self, numbers: Sequence[int]) -> Scaling:
        """The scaling of some of the inputs."""
        found = Scaling([self.sizes[number] for number in numbers])
        found.center, found.scale = self.center[list(numbers)], self.scale[list(numbers)]
        return found

    def rows(self, parts: Sequence[Array]) -> Array:
        """All inputs beside each other, each with the weight of one function, ``(samples, numbers)``."""
        pairs = zip(parts, self.center.tolist(), self.scale.tolist(), strict=True)
        return np.concatenate([(part - center) / scale / math.sqrt(part.shape[1]) for part, center, scale in pairs], axis=1)


def parts_of(inputs: Mapping[str, Any]) -> list[Array]:
    """Every input as ``(samples, numbers)``."""
    return [np.reshape(values, (len(values), -1)) for values in inputs.values()]

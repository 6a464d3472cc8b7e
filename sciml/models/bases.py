"""Nodes along one coordinate, differentiation matrices on them, and the functions between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from sciml.errors import ModelError
from sciml.models.spectral import chebyshev, waves
from sciml.typing import Array


class Basis1D(ABC):
    """Nodes along one coordinate, and how a function goes on between them.

    Attributes:
        low, high: the ends of the coordinate, in its unit.
        nodes: increasing, shape ``(n,)``.
        periodic: whether the function goes round; then the upper end is no node.
        theory: the order in the distance of the nodes at which derivatives converge, or None where that is exponential.
    """

    periodic = False
    theory: int | None = None

    def __init__(self, low: float, high: float, nodes: Array) -> None:
        self.low, self.high = float(low), float(high)
        self.nodes = nodes

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def reach(self) -> int | None:
        """How many nodes take part in a value between them; None for all."""
        return None

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What ``axis_from`` makes it of again."""

    @abstractmethod
    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        """From values to a derivative at points ``(m,)``: factors ``(m, s)`` of some nodes, and their numbers, None for all."""


class Nodal(Basis1D):
    """An axis whose functions are known by their values at the nodes, so that derivatives are matrices."""

    def __init__(self, low: float, high: float, nodes: Array) -> None:
        super().__init__(low, high, nodes)
        self._matrices: dict[int, sparse.csr_array] = {}

    @property
    @abstractmethod
    def weights(self) -> Array:
        """A quadrature, shape ``(n,)``; its sum is the length."""

    def matrix(self, order: int) -> sparse.csr_array:
        """From values at the nodes to derivatives there, ``(n, n)``; made once."""
        if order not in self._matrices:
            count = len(self)
            self._matrices[order] = self._matrix(order) if order else sparse.csr_array(sparse.eye_array(count))
        return self._matrices[order]

    @abstractmethod
    def _matrix(self, order: int) -> sparse.csr_array:
        """The matrix of a derivative of order one or more."""


class _Spectral(Nodal):
    """All nodes take part in every value."""

    @cached_property
    def _weights_of_values(self) -> Tensor:
        """From values at the nodes to weights of the functions, ``(n, n)``."""
        return torch.linalg.inv(self._functions(torch.from_numpy(self.nodes), 0))

    @abstractmethod
    def _functions(self, x: Tensor, order: int) -> Tensor:
        """A derivative of the functions that values are expanded in, ``(m, n)``."""

    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        return None, self._functions(x, order) @ self._weights_of_values.to(x)

    def _unit(self, x: Tensor) -> Tensor:
        return (2 * x - (self.low + self.high)) / (self.high - self.low)


class Chebyshev(_Spectral):
    r"""The extrema of a Chebyshev polynomial, :math:`x_j = -\cos(j\pi/(n-1))`, dense towards both ends.

    Args:
        low: lower end.
        high: upper end.
        count: n, at least 2.

    Example:
        >>> import numpy as np
        >>> axis = Chebyshev(0.0, 1.0, 8)
        >>> bool(np.allclose(axis.matrix(2) @ axis.nodes**3, 6 * axis.nodes))
        True

    Reference: L. N. Trefethen, Spectral Methods in MATLAB, SIAM 2000, chapter 6; B. D. Welfert, SIAM Journal on Numerical
    Analysis 34 (1997), for higher derivatives.
    """

    def __init__(self, low: float, high: float, count: int) -> None:
        unit = -np.cos(np.pi * np.arange(count) / (count - 1))
        super().__init__(low, high, low + (high - low) * (unit - unit[::-1] + 2) / 4)

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "chebyshev", "low": self.low, "high": self.high, "count": len(self)}

    @property
    def weights(self) -> Array:
        degree = np.arange(len(self))
        whole = np.where(degree % 2 == 0, 2 / (1 - degree.astype(float) ** 2 + (degree == 1)), 0.0)
        return (self.high - self.low) / 2 * (whole @ self._weights_of_values.numpy())

    def _matrix(self, order: int) -> sparse.csr_array:
        count = len(self)
        barycentric = (-1.0) ** np.arange(count)
        barycentric[[0, -1]] /= 2
        # Differences of nodes by the sine of their angles: subtraction would cost digits at the ends.
        angle = np.pi * np.arange(count) / (count - 1) / 2
        apart = (self.high - self.low) * np.sin(angle[:, None] - angle) * np.sin(angle[:, None] + angle)
        np.fill_diagonal(apart, 1.0)
        ratio = barycentric[None, :] / barycentric[:, None]
        found = np.eye(count)
        for k in range(1, order + 1):
            found = k / apart * (ratio * np.diag(found)[:, None] - found)
            np.fill_diagonal(found, 0.0)
            # The derivative of a constant vanishes.
            np.fill_diagonal(found, -found.sum(axis=1))
        return sparse.csr_array(found)

    def _functions(self, x: Tensor, order: int) -> Tensor:
        return chebyshev(self._unit(x), len(self) - 1, order)[order] * (2 / (self.high - self.low)) ** order


class Fourier(_Spectral):
    """Equally spaced nodes round a periodic coordinate, an odd number of them, so that no wave is left without its partner.

    Args:
        low: lower end.
        high: upper end, the same point again.
        count: n; an even one is raised by one.

    Example:
        >>> import numpy as np
        >>> axis = Fourier(0.0, 2 * np.pi, 9)
        >>> bool(np.allclose(axis.matrix(1) @ np.sin(axis.nodes), np.cos(axis.nodes)))
        True

    Reference: L. N. Trefethen, Spectral Methods in MATLAB, SIAM 2000, chapter 3.
    """

    periodic = True

    def __init__(self, low: float, high: float, count: int) -> None:
        count += 1 - count % 2
        super().__init__(low, high, low + (high - low) * np.arange(count) / count)

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "fourier", "low": self.low, "high": self.high, "count": len(self)}

    @property
    def weights(self) -> Array:
        return np.full(len(self), (self.high - self.low) / len(self))

    def _matrix(self, order: int) -> sparse.csr_array:
        return sparse.csr_array(self.table(torch.from_numpy(self.nodes), order)[1].numpy())

    def _functions(self, x: Tensor, order: int) -> Tensor:
        return waves(self._unit(x), len(self) // 2, order)[order] * (2 / (self.high - self.low)) ** order


class FiniteDifferences(Nodal):
    """Equally spaced nodes with finite differences of some even order, central inside and one-sided at the ends.

    Between the nodes the function is a polynomial through the p + 2 nearest ones.

    Args:
        low: lower end.
        high: upper end.
        count: number of nodes n.
        theory: the order p.
        periodic: whether the function goes round.

    Raises:
        ModelError: too few nodes for the differences.

    Example:
        >>> import numpy as np
        >>> axis = FiniteDifferences(0.0, 1.0, 17, theory=4)
        >>> bool(np.allclose(axis.matrix(2) @ axis.nodes**5, 20 * axis.nodes**3))
        True

    Reference: B. Fornberg, Generation of finite difference formulas on arbitrarily spaced grids, Mathematics of Computation 51
    (1988).
    """

    def __init__(self, low: float, high: float, count: int, theory: int = 4, *, periodic: bool = False) -> None:
        if count < theory + 6:
            raise ModelError(f"differences of order {theory} need at least {theory + 6} nodes; given: {count}")
        steps = count if periodic else count - 1
        super().__init__(low, high, low + (high - low) * np.arange(count) / steps)
        self.theory, self.periodic = theory, periodic
        self.step = (self.high - self.low) / steps

    @property
    def reach(self) -> int:
        assert self.theory is not None
        return self.theory + 2

    @property
    def config(self) -> dict[str, Any]:
        own = {"count": len(self), "theory": self.theory, "periodic": self.periodic}
        return {"kind": "differences", "low": self.low, "high": self.high, **own}

    @property
    def weights(self) -> Array:
        found = np.full(len(self), self.step)
        if not self.periodic:
            # Gregory's corrections at the ends, exact for cubics.
            found[:3] = found[:-4:-1] = self.step * np.array([3 / 8, 7 / 6, 23 / 24])
        return found

    def _matrix(self, order: int) -> sparse.csr_array:
        count = len(self)
        assert self.theory is not None
        reach = (order - 1) // 2 + self.theory // 2
        wide = order + self.theory
        found = sparse.lil_array((count, count))
        central = _difference(np.arange(-reach, reach + 1), order)
        if self.periodic:
            offsets = np.arange(-reach, reach + 1)
            rows = np.repeat(np.arange(count), len(offsets))
            columns = (np.arange(count)[:, None] + offsets).ravel() % count
            return sparse.csr_array((np.tile(central, count), (rows, columns)), shape=(count, count)) / self.step**order
        for row in range(reach):
            found[row, :wide] = _difference(np.arange(wide) - row, order)
            found[count - 1 - row, count - wide :] = _difference(np.arange(wide) - (wide - 1 - row), order)
        inside = sparse.diags_array(list(central), offsets=list(range(2 * reach + 1)), shape=(count - 2 * reach, count))
        edges = found.tocsr()
        return sparse.csr_array(sparse.vstack([edges[:reach], inside, edges[count - reach :]]) / self.step**order)

    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        size = self.reach
        place = (x - self.low) / self.step
        first = place.detach().floor().long() - (size // 2 - 1)
        if not self.periodic:
            first = first.clamp(0, len(self) - size)
        numbers = first[:, None] + torch.arange(size, device=x.device)
        centred = place - first - (size - 1) / 2
        powers = torch.arange(order, size, dtype=x.dtype, device=x.device)
        factor = torch.tensor([math.perm(k, order) for k in range(order, size)], dtype=x.dtype, device=x.device) / (
            self.step**order
        )
        monomials = centred[:, None] ** (powers - order) * factor
        return numbers % len(self), monomials @ torch.from_numpy(_lagrange(size)).to(x)[order:]


class Knots(Basis1D):
    """Knots with a value and a slope at each: cubic pieces, numbered value, slope, value, slope, ...

    Args:
        knots: increasing, at least two.

    Example:
        >>> import torch
        >>> axis = Knots(torch.tensor([0.0, 1.0], dtype=torch.float64).numpy())
        >>> numbers, factors = axis.table(torch.tensor([0.5], dtype=torch.float64), 0)
        >>> factors.tolist()
        [[0.5, 0.125, 0.5, -0.125]]
    """

    def __init__(self, knots: Array) -> None:
        super().__init__(knots[0], knots[-1], np.asarray(knots, dtype=float))

    @property
    def reach(self) -> int:
        return 4

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "knots", "nodes": self.nodes.tolist()}

    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        knots = torch.from_numpy(self.nodes).to(x)
        piece = (torch.searchsorted(knots, x.detach().contiguous(), right=True) - 1).clamp(0, len(knots) - 2)
        left, width = knots[piece], knots[piece + 1] - knots[piece]
        share = (x - left) / width
        powers = torch.arange(order, 4, dtype=x.dtype, device=x.device)
        factor = torch.tensor([math.perm(k, order) for k in range(order, 4)], dtype=x.dtype, device=x.device)
        shares = (share[:, None] ** (powers - order) * factor) @ _CUBIC.to(x)[order:]
        scale = width[:, None] ** torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=x.dtype, device=x.device)
        return 2 * piece[:, None] + torch.arange(4, device=x.device), shares * scale / width[:, None] ** order


# Coefficients of the powers of a share of the piece: of value and slope at its lower end, then at its upper end.
_CUBIC = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [-3, -2, 3, -1], [2, 1, -2, 1]], dtype=torch.float64)


def axis_from(config: dict[str, Any]) -> Basis1D:
    """The axis that ``config`` describes."""
    options = {key: value for key, value in config.items() if key != "kind"}
    if config["kind"] == "knots":
        return Knots(np.array(options["nodes"]))
    kinds: dict[str, type[Basis1D]] = {"chebyshev": Chebyshev, "fourier": Fourier, "differences": FiniteDifferences}
    return kinds[config["kind"]](**options)


def _difference(offsets: Array, order: int) -> Array:
    """Factors of values at whole offsets that give a derivative at zero, in units of the step."""
    powers = np.arange(len(offsets))
    wanted = np.where(powers == order, float(math.factorial(order)), 0.0)
    return np.linalg.solve(offsets.astype(float) ** powers[:, None], wanted)


@cache
def _lagrange(size: int) -> Array:
    """Coefficients of the polynomials that are one at one node: powers of the distance from the middle by nodes."""
    places = np.arange(size) - (size - 1) / 2
    return np.linalg.inv(places[:, None] ** np.arange(size))

"""One-dimensional bases: collocation nodes, differentiation matrices and quadratures; continuously joined polynomials."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy
import torch
from numpy.polynomial import chebyshev as cheb, legendre
from torch import Tensor

from sciml.errors import ModelError, ProblemError
from sciml.models.one_graph import one_graph
from sciml.typing import Array, MultiIndex

# From what degree on derivatives of polynomials are sums of others, and no longer products with a matrix.
_BY_SUMS = 64


def chebyshev(x: Tensor, degree: int, highest: int) -> list[Tensor]:
    r"""Derivatives of :math:`T_0, \dots, T_n` at points ``(m,)`` from order zero to ``highest``, each ``(m, n + 1)``."""
    if one_graph():
        found = [_doubled(x, degree)]
    else:
        columns, twice = [torch.ones_like(x), x], 2 * x
        for _ in range(2, degree + 1):
            columns.append(twice * columns[-1] - columns[-2])
        found = [torch.stack(columns[: degree + 1], dim=1)]
    if not highest:
        return found
    # T_n' = n (T_{n-1} + T_{n-3} + ...) twice over, T_0 once.
    number = torch.arange(degree + 1, dtype=x.dtype, device=x.device)
    if degree > _BY_SUMS:
        for _ in range(highest):
            found.append(_summed(found[-1], number))
        return found
    below = number[None, :] - number[:, None]
    doubled = torch.where(number[:, None] > 0, 2 * number[None, :], number[None, :])
    slope = torch.where((below > 0) & (below % 2 == 1), doubled, torch.zeros_like(below))
    for _ in range(highest):
        found.append(found[-1] @ slope)
    return found


def _summed(values: Tensor, number: Tensor) -> Tensor:
    """The same slopes by sums of every other function: one pass, where a matrix takes one for each degree."""
    halved, sums = torch.cat([values[:, :1] / 2, values[:, 1:]], dim=1), torch.zeros_like(values)
    for first in (0, 1):
        following = sums[:, first + 1 :: 2]
        following.copy_(halved[:, first::2].cumsum(1)[:, : following.shape[1]])
    return 2 * number * sums


def _doubled(x: Tensor, degree: int) -> Tensor:
    r"""The same polynomials by :math:`T_{m+k} = 2 T_m T_k - T_{m-k}`: few operations, and some digits less."""
    found = torch.stack([torch.ones_like(x), x], dim=1)
    while found.shape[1] <= degree:
        found = torch.cat([found, 2 * found[:, -1:] * found[:, 1:] - found[:, :-1].flip(1)], dim=1)
    return found[:, : degree + 1]


def waves(x: Tensor, degree: int, highest: int) -> list[Tensor]:
    r"""Derivatives of 1, :math:`\cos\pi x, \sin\pi x, \cos 2\pi x, \dots` at points ``(m,)``, each ``(m, 2n + 1)``."""
    k = math.pi * torch.arange(1, degree + 1, dtype=x.dtype, device=x.device)
    cos, sin = (x[:, None] * k).cos(), (x[:, None] * k).sin()
    found = []
    for order in range(highest + 1):
        constant = torch.ones_like(x) if order == 0 else torch.zeros_like(x)
        pairs = torch.stack([cos, sin], dim=2).flatten(1)
        found.append(torch.cat([constant[:, None], pairs], dim=1))
        cos, sin = -k * sin, k * cos
    return found


class Basis1D(ABC):
    """Functions of one coordinate: nodes, and the derivatives of the functions anywhere.

    Attributes:
        low, high: the ends of the coordinate, in its unit.
        nodes: increasing, shape ``(n,)``.
        periodic: whether the functions are periodic; then the upper end is no node.
        theory: the order in the distance of the nodes at which derivatives converge, or None where that is exponential.
        reach: the number of functions that do not vanish at a point, or None for all.
        columns: the number of coordinates; where they are several, nodes have shape ``(n, columns)``, points ``(m, columns)``,
            and the order of a derivative is a tuple.
    """

    kind: str
    periodic = False
    theory: int | None = None
    reach: int | None = None
    columns = 1
    _kinds: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            Basis1D._kinds[cls.kind] = cls

    def __init__(self, low: float, high: float, nodes: Array) -> None:
        self.low, self.high = float(low), float(high)
        self.nodes = nodes

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def config(self) -> dict[str, Any]:
        """The plain values from which ``axis_from`` makes the basis again."""
        return {"kind": self.kind, "low": self.low, "high": self.high, "count": len(self)}

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.config.items() if name != "kind")
        return f"{type(self).__name__}({options})"

    @abstractmethod
    def table(self, x: Tensor, order: Any) -> tuple[Tensor | None, Tensor]:
        """A derivative at points ``(m,)``: the numbers of s functions, None for all, and their values, each ``(m, s)``."""


class Nodal(Basis1D):
    """A basis of cardinal functions: coefficients are values at the nodes, derivatives there are matrices."""

    def __init__(self, low: float, high: float, nodes: Array) -> None:
        super().__init__(low, high, nodes)
        self._matrices: dict[int, scipy.sparse.csr_array] = {}

    @property
    @abstractmethod
    def weights(self) -> Array:
        """A quadrature, shape ``(n,)``; its sum is the length."""

    def matrix(self, order: int) -> scipy.sparse.csr_array:
        """The differentiation matrix from values to derivatives at the nodes, ``(n, n)``; computed once."""
        if order not in self._matrices:
            count = len(self)
            self._matrices[order] = self._matrix(order) if order else scipy.sparse.csr_array(scipy.sparse.eye_array(count))
        return self._matrices[order]

    @abstractmethod
    def _matrix(self, order: int) -> scipy.sparse.csr_array:
        """The matrix of a derivative of order one or more."""


class Spectral1D(Nodal):
    """Global functions: a value depends on all nodes."""

    expansion: Callable[[Tensor, int, int], list[Tensor]]
    degree: int

    @cached_property
    def expanded(self) -> Tensor:
        """From values at the nodes to weights of the functions, ``(n, n)``."""
        return torch.linalg.inv(self._functions(torch.from_numpy(self.nodes), 0))

    def _functions(self, x: Tensor, order: int) -> Tensor:
        """A derivative of the functions that values are expanded in, ``(m, n)``."""
        factor = 2 / (self.high - self.low)
        unit = (2 * x - (self.low + self.high)) / (self.high - self.low)
        return self.expansion(unit, self.degree, order)[order] * factor**order

    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        return None, self._functions(x, order) @ self.expanded.to(x)


class Chebyshev(Spectral1D):
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

    kind = "chebyshev"
    expansion = staticmethod(chebyshev)

    def __init__(self, low: float, high: float, count: int) -> None:
        self.degree = count - 1
        unit = -np.cos(np.pi * np.arange(count) / (count - 1))
        super().__init__(low, high, low + (high - low) * (unit - unit[::-1] + 2) / 4)

    @property
    def weights(self) -> Array:
        degree = np.arange(len(self))
        whole = np.where(degree % 2 == 0, 2 / (1 - degree.astype(float) ** 2 + (degree == 1)), 0.0)
        return (self.high - self.low) / 2 * (whole @ self.expanded.numpy())

    def _matrix(self, order: int) -> scipy.sparse.csr_array:
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
        return scipy.sparse.csr_array(found)


class Fourier(Spectral1D):
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

    kind = "fourier"
    expansion = staticmethod(waves)
    periodic = True

    def __init__(self, low: float, high: float, count: int) -> None:
        count += 1 - count % 2
        self.degree = count // 2
        super().__init__(low, high, low + (high - low) * np.arange(count) / count)

    @property
    def weights(self) -> Array:
        return np.full(len(self), (self.high - self.low) / len(self))

    def _matrix(self, order: int) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(self.table(torch.from_numpy(self.nodes), order)[1].numpy())


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

    kind = "differences"
    theory: int
    reach: int

    def __init__(self, low: float, high: float, count: int, theory: int = 4, *, periodic: bool = False) -> None:
        if count < theory + 6:
            raise ModelError(f"differences of order {theory} need at least {theory + 6} nodes; given: {count}")
        steps = count if periodic else count - 1
        super().__init__(low, high, low + (high - low) * np.arange(count) / steps)
        self.theory, self.reach, self.periodic = theory, theory + 2, periodic
        self.step = (self.high - self.low) / steps

    @property
    def config(self) -> dict[str, Any]:
        return {**super().config, "theory": self.theory, "periodic": self.periodic}

    @property
    def weights(self) -> Array:
        found = np.full(len(self), self.step)
        if not self.periodic:
            # Gregory's corrections at the ends, exact for cubics.
            found[:3] = found[:-4:-1] = self.step * np.array([3 / 8, 7 / 6, 23 / 24])
        return found

    def _matrix(self, order: int) -> scipy.sparse.csr_array:
        count = len(self)
        reach = (order - 1) // 2 + self.theory // 2
        wide = order + self.theory
        found = scipy.sparse.lil_array((count, count))
        central = _difference(np.arange(-reach, reach + 1), order)
        if self.periodic:
            offsets = np.arange(-reach, reach + 1)
            rows = np.repeat(np.arange(count), len(offsets))
            columns = (np.arange(count)[:, None] + offsets).ravel() % count
            return scipy.sparse.csr_array((np.tile(central, count), (rows, columns)), shape=(count, count)) / self.step**order
        for row in range(reach):
            found[row, :wide] = _difference(np.arange(wide) - row, order)
            found[count - 1 - row, count - wide :] = _difference(np.arange(wide) - (wide - 1 - row), order)
        inside = scipy.sparse.diags_array(list(central), offsets=list(range(2 * reach + 1)), shape=(count - 2 * reach, count))
        edges = found.tocsr()
        return scipy.sparse.csr_array(scipy.sparse.vstack([edges[:reach], inside, edges[count - reach :]]) / self.step**order)

    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        size = self.reach
        place = (x - self.low) / self.step
        first = place.detach().floor().long() - (size // 2 - 1)
        if not self.periodic:
            first = first.clamp(0, len(self) - size)
        numbers = first[:, None] + torch.arange(size, device=x.device)
        centred = place - first - (size - 1) / 2
        powers = torch.arange(order, size, dtype=x.dtype, device=x.device)
        factor = x.new_tensor([math.perm(k, order) for k in range(order, size)]) / self.step**order
        monomials = centred[:, None] ** (powers - order) * factor
        return numbers % len(self), monomials @ torch.from_numpy(_lagrange(size)).to(x)[order:]


@dataclass(frozen=True)
class Trace:
    """The local basis and its scaled derivatives, ``(q, J)``, at q places of some elements; x is ``(elements, q)``."""

    elements: slice
    tables: tuple[Tensor, ...]
    stretch: Tensor
    x: Tensor
    upper: bool = False

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """The places, for each coordinate: there is one."""
        return (self.x,)

    def jet(self, local: Tensor, index: MultiIndex) -> Tensor:
        """A derivative from local weights ``(..., E, J)``: ``(..., elements, q)``."""
        order = len(index)
        if order >= len(self.tables):
            raise ProblemError(
                f"a residual asks for a derivative of order {order} in space, which it did not ask for when its derivatives "
                "were recorded: let it ask for the same ones whatever the values are"
            )
        return (local[..., self.elements, :] @ self.tables[order].T) * self.stretch[:, None] ** order


class PiecewiseBasis(Basis1D):
    r"""Piecewise polynomials of degree n between breaks, with continuous derivatives below the order m.

    On each element there are n + 1 - 2m *bubbles*, polynomials that vanish with their derivatives below m at both ends, and
    2m *nodal* functions, which continue in the neighbour. A function's weights are all bubbles' first, element by element,
    then for every break the derivatives below m.

    Args:
        breaks: increasing, at least two, in the unit of the coordinate.
        degree: n, at least 2m - 1.
        smooth: m, at least 1.
        scaled: whether derivatives at a break are in units of the shorter neighbour's half width, or of the coordinate.

    Example:
        >>> PiecewiseBasis([0.0, 0.5, 1.0], degree=6, smooth=2).width
        12
    """

    kind = "pieces"
    reach: int

    def __init__(self, breaks: Sequence[float] | Array, degree: int, smooth: int, *, scaled: bool = True) -> None:
        self.breaks = np.asarray(breaks, dtype=float)
        super().__init__(self.breaks[0], self.breaks[-1], self.breaks)
        self.degree, self.smooth, self.scaled, self.reach = degree, smooth, scaled, degree + 1
        self.count = len(self.breaks) - 1
        half = np.diff(self.breaks) / 2
        self.half = torch.from_numpy(half)
        self.bubbles = degree + 1 - 2 * smooth
        self.width = self.count * self.bubbles + (self.count + 1) * smooth
        self._basis = local_basis(degree, smooth)
        unit = np.minimum(np.append(half, half[-1]), np.insert(half, 0, half[0])) if scaled else np.ones(len(self))
        powers = np.arange(smooth)
        ratios = [(half[:, None] / side[:, None]) ** powers for side in (unit[:-1], unit[1:])]
        self.factor = torch.from_numpy(np.concatenate([np.ones((self.count, self.bubbles)), *ratios], axis=1))
        inside = np.arange(self.count * self.bubbles).reshape(self.count, self.bubbles)
        nodal = self.count * self.bubbles + np.arange((self.count + 1) * smooth).reshape(-1, smooth)
        self._places = torch.from_numpy(np.concatenate([inside, nodal[:-1], nodal[1:]], axis=1))

    @property
    def config(self) -> dict[str, Any]:
        own = {"degree": self.degree, "smooth": self.smooth, "scaled": self.scaled}
        return {"kind": self.kind, "breaks": self.breaks.tolist(), **own}

    def table(self, x: Tensor, order: int) -> tuple[Tensor | None, Tensor]:
        _, numbers, tables = self.scattered(x, order)
        return numbers, tables[order]

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

    def scattered(self, x: Tensor, highest: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """At any places ``(n,)``: elements ``(n,)``, the functions there ``(n, J)``, and their derivatives, each ``(n, J)``."""
        element, half, inside = located(x, torch.from_numpy(self.breaks).to(x))
        basis, factor = self._basis.to(x), self.factor.to(x)[element]
        tables = [
            (table @ basis) * factor / half[:, None] ** order
            for order, table in enumerate(chebyshev(inside, self.degree, highest))
        ]
        return element, self._places.to(x.device)[element], tables

    def tables(self, x: Tensor, highest: int) -> list[Tensor]:
        """All functions' derivatives at places ``(n,)`` from the zeroth to the highest, each ``(n, width)``."""
        _, functions, tables = self.scattered(x, highest)
        return [x.new_zeros(len(x), self.width).scatter(1, functions, table) for table in tables]

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
        """The weights of a function given on another basis; exact if every break of that is one of this."""
        x = self.inside(chebyshev_places(self.degree + 1), 0).x
        # An element of this mesh may extend over several of the other.
        element, _, inside = located(x.flatten(), torch.from_numpy(other.breaks))
        own = other.coefficients(weights)[..., element, :]
        return self.interpolated((own * chebyshev(inside, other.degree, 0)[0]).sum(-1).unflatten(-1, x.shape))

    def split(self, which: Array) -> PiecewiseBasis:
        """The basis with some elements cut in half."""
        middle = ((self.breaks[:-1] + self.breaks[1:]) / 2)[which]
        return PiecewiseBasis(np.sort(np.concatenate([self.breaks, middle])), self.degree, self.smooth)

    def merged(self, quiet: Array) -> PiecewiseBasis:
        """The basis with pairs of neighbours joined that were halves of one element and are both marked."""
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


# Saved functions may call cubic Hermite functions so.
Basis1D._kinds["knots"] = lambda nodes: PiecewiseBasis(nodes, degree=3, smooth=2, scaled=False)


def axis_from(config: dict[str, Any]) -> Basis1D:
    """The basis that ``config`` describes."""
    return Basis1D._kinds[config["kind"]](**{key: value for key, value in config.items() if key != "kind"})


def products(bases: Sequence[Basis1D], sizes: Sequence[int], points: Tensor, orders: Sequence[int]) -> tuple[Tensor, Tensor]:
    """At points ``(n, D)`` the numbers of the products that do not vanish, the last basis fastest, and a derivative."""
    numbers, values = torch.zeros(1, 1, dtype=torch.int64, device=points.device), points.new_ones(len(points), 1)
    first = 0
    for basis, size in zip(bases, sizes, strict=True):
        own, table = tabulated(basis, points, orders, first)
        first += basis.columns
        own = torch.arange(size, device=points.device)[None] if own is None else own
        numbers = (numbers[:, :, None] * size + own[:, None, :]).flatten(1)
        values = (values[:, :, None] * table[:, None, :]).flatten(1)
    return numbers.expand_as(values), values


def tabulated(basis: Basis1D, points: Tensor, orders: Sequence[int], first: int) -> tuple[Tensor | None, Tensor]:
    """The table of a basis whose coordinates begin at column ``first`` of points ``(n, D)``, with a derivative's orders."""
    if basis.columns == 1:
        return basis.table(points[:, first], orders[first])
    own = slice(first, first + basis.columns)
    return basis.table(points[:, own], tuple(orders[own]))


def element_of(x: Tensor, breaks: Tensor) -> Tensor:
    """The element of each place; the outermost continue outside."""
    if one_graph():
        return (x.detach()[:, None] >= breaks[1:-1]).sum(1)
    return torch.bucketize(x.detach().contiguous(), breaks[1:-1], right=True)


def located(x: Tensor, breaks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The element of each place, half its width, and the place scaled to [-1, 1]."""
    own = element_of(x, breaks)
    half = (breaks.diff() / 2)[own]
    return own, half, (x - breaks[own]) / half - 1


def gauss(count: int) -> tuple[Tensor, Tensor]:
    """Places and weights of Gauss and Legendre on [-1, 1]."""
    places, weights = legendre.leggauss(count)
    return torch.from_numpy(places), torch.from_numpy(weights)


def chebyshev_places(count: int) -> Tensor:
    """The zeros of the Chebyshev polynomial of some degree."""
    return torch.from_numpy(np.cos(np.pi * (np.arange(count) + 0.5) / count))


@lru_cache(maxsize=32)
def from_values(count: int) -> Tensor:
    """Chebyshev coefficients, by rows, of the Lagrange polynomials of ``chebyshev_places``."""
    return torch.from_numpy(np.linalg.inv(cheb.chebvander(chebyshev_places(count).numpy(), count - 1)))


@lru_cache(maxsize=32)
def _to_local(degree: int, smooth: int) -> Tensor:
    """From values at ``chebyshev_places`` to the weights of the local basis."""
    return torch.linalg.inv(local_basis(degree, smooth)) @ from_values(degree + 1)


@lru_cache(maxsize=32)
def local_basis(degree: int, smooth: int) -> Tensor:
    """Chebyshev coefficients of bubbles and nodal functions, as columns of a square matrix."""
    at = chebyshev_places(degree + 1).numpy()
    edge = (1 - at**2) ** smooth
    inside = [edge * scipy.special.eval_jacobi(k, 2 * smooth, 2 * smooth, at) for k in range(degree + 1 - 2 * smooth)]
    values = np.stack([each / np.abs(each).max() for each in inside], axis=1) if inside else np.zeros((degree + 1, 0))
    bubbles = np.linalg.solve(cheb.chebvander(at, degree), values)
    low = np.eye(2 * smooth)
    ends = np.concatenate(
        [[cheb.chebval(end, cheb.chebder(low, k) if k else low) for k in range(smooth)] for end in (-1.0, 1.0)]
    )
    nodal = np.zeros((degree + 1, 2 * smooth))
    nodal[: 2 * smooth] = np.linalg.inv(ends)
    return torch.from_numpy(np.concatenate([bubbles, nodal], axis=1))


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

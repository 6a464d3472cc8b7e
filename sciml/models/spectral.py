"""Spectral methods: products of Chebyshev polynomials and Fourier modes with free coefficients."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams
from sciml.models.base import Block, SequentialModel, linear
from sciml.models.bases import chebyshev, waves


class Expansion(SequentialModel):
    """Tensor-product basis expansion: products of fixed functions of which only the weights are free."""

    @property
    def widths(self) -> dict[str, int | None]:
        return {**super().widths, "inputs": self.basis.inputs if len(self.layers) else None}

    @property
    def weight(self) -> Tensor:
        """The weights, shape ``(F, width)``."""
        return cast(nn.Linear, self.layers[-1]).weight

    @property
    def basis(self) -> Products:
        """The products, without their weights."""
        return cast(Products, self.layers[0])

    def fill(self, basis: Products, outputs: int) -> None:
        """Take products and weights of zero."""
        self.layers.extend([basis, linear(basis.width, outputs, zero=True, bias=False)])


class Spectral(Expansion):
    r"""Products of Chebyshev polynomials, or of waves along periodic coordinates, with only their weights free.

    .. math::  u(x) = \sum_k w_k \prod_i \phi_{k_i}(x_i), \qquad \sum_i (k_i/n_i)^2 \le 1

    in coordinates scaled to [-1, 1], where :math:`\phi_k` is the polynomial :math:`T_k`, or :math:`\cos \pi kx` and
    :math:`\sin \pi kx` along a periodic coordinate. A linear problem is then one linear least-squares problem, and functions
    that are analytic on the whole domain are approximated exponentially fast in n. Where a solution has layers thinner than
    about 1/n, corners or more than three or four coordinates, networks and random features are better.

    Args:
        degree: the highest degree n along every coordinate, or one for each; along a periodic one the highest harmonic.
        periodic: the columns of the coordinates along which the function is periodic, its period the side of the domain.
        inputs: the number of coordinates D, or None to be filled in by ``fit``.
        outputs: the number of fields F, or None.

    Raises:
        ModelError: a degree that is negative or not whole, or a column that is not.

    Example:
        >>> import torch, sciml
        >>> model = sciml.Spectral((8, 3), periodic=[0], inputs=2, outputs=1)
        >>> model(torch.zeros(5, 2)).shape
        torch.Size([5, 1])

    Reference: L. N. Trefethen, Multivariate polynomial approximation in the hypercube, Proceedings of the American
    Mathematical Society 145 (2017), for the set of degrees; J. P. Boyd, Chebyshev and Fourier Spectral Methods, Dover 2001.
    """

    arguments = ("degree", "periodic")

    def __init__(
        self,
        degree: int | Sequence[int] = 16,
        *,
        periodic: Sequence[int] = (),
        inputs: int | None = None,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        degrees = list(degree) if isinstance(degree, Sequence) else [degree]
        if not degrees or not all(type(each) is int and each >= 0 for each in [*degrees, *periodic]):
            raise ModelError(
                f"degree must be a whole number that is not negative, or one for each coordinate, and periodic the numbers of "
                f"columns; given: {degree!r} and {periodic!r}"
            )
        self.degree = degree if isinstance(degree, int) else tuple(degrees)
        self.periodic = tuple(periodic)
        self.build_if_asked(inputs, outputs)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Make the products and set all their weights to zero; nothing is random here.

        Raises:
            ModelError: there are degrees, but not one for each of D coordinates, or a periodic column beyond them.
        """
        degrees = (self.degree,) * inputs if isinstance(self.degree, int) else self.degree
        if len(degrees) != inputs or any(column >= inputs for column in self.periodic):
            raise ModelError(
                f"Spectral has degrees {self.degree} and periodic columns {self.periodic} for {inputs} coordinates; give one "
                "degree, or one for each coordinate, and count columns from 0"
            )
        sizes = [(2 * n if column in self.periodic else n) + 1 for column, n in enumerate(degrees)]
        kinds = [waves if column in self.periodic else chebyshev for column in range(inputs)]
        tables = [partial(kind, degree=n) for kind, n in zip(kinds, degrees, strict=True)]
        self.fill(Products(tables, ellipsoid(degrees, self.periodic, _by_size(sizes))), outputs)

    @property
    def degrees_of(self) -> Tensor:
        """The degree of every product along every coordinate, shape ``(width, D)``."""
        return _degrees_of(self.basis.numbers, self.periodic)

    def start_from(self, other: Spectral) -> None:
        """Take over the weights of products that both have; the others become zero."""
        known = {product: column for column, product in enumerate(other.basis.products)}
        pairs = [(new, known[product]) for new, product in enumerate(self.basis.products) if product in known]
        new, old = (list(column) for column in zip(*pairs, strict=True))
        with torch.no_grad():
            self.weight.zero_()
            self.weight[:, new] = other.weight[:, old]

    def tails(self) -> tuple[float, ...]:
        """For each coordinate the share of the weights in the highest sixth of its degrees: how well it is resolved."""
        weight = self.weight.detach()
        whole = float(weight.norm()) or 1.0
        found = []
        for degrees in self.degrees_of.T:
            high = degrees >= math.ceil(5 / 6 * int(degrees.max())) if int(degrees.max()) else degrees < 0
            found.append(float(weight[:, high].norm()) / whole)
        return tuple(found)

    def extra_repr(self) -> str:
        degrees = (self.degree,) if isinstance(self.degree, int) else self.degree
        around = f", periodic={list(self.periodic)}" if self.periodic else ""
        return f"degree={' x '.join(map(str, degrees))}{around}"


class Products(Block):
    """Products of one function a coordinate, ``table(x, highest=...)`` giving the functions of a coordinate and derivatives.

    Args:
        tables: for each coordinate what gives at places ``(n,)`` the derivatives from the zeroth, each ``(n, functions)``.
        numbers: the numbers of each product's factors, ``(width, D)``, counting along the coordinate of the most fastest.
    """

    takes_coordinates = True
    numbers: Tensor

    def __init__(self, tables: Sequence[Callable[..., list[Tensor]]], numbers: Tensor) -> None:
        super().__init__()
        self._tables, self.inputs, self.width = tuple(tables), len(tables), len(numbers)
        self.register_buffer("numbers", numbers, persistent=False)
        self._order = _by_size((numbers.amax(0) + 1).tolist())
        self._groups = list(Counter(map(tuple, numbers[:, self._order[:-1]].tolist())).items())
        self.products = tuple(map(tuple, numbers.tolist()))

    def forward(self, points: Tensor) -> Tensor:
        """``(n, D)`` to ``(n, width)``."""
        tables = [table(x, highest=0)[0] for table, x in zip(self._tables, points.unbind(1), strict=True)]
        pieces = [long if share is None else share * long for share, long in self._factors(tables)]
        return torch.cat(pieces, dim=1)

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """Derivatives of products are products of derivatives."""
        points, names = streams.values[0].detach(), propagation.coordinates
        units = streams.units()
        most = [max(index.count(name) for index in propagation.plan) for name in names]
        every = zip(self._tables, points.unbind(1), most, strict=True)
        tables = [table(x, highest=highest) for table, x, highest in every]
        found = points.new_empty(len(propagation.plan), len(points), self.width)
        for place, index in enumerate(propagation.plan):
            factors = []
            for column, (name, table) in enumerate(zip(names, tables, strict=True)):
                count = index.count(name)
                factors.append(table[count] * units[name][column] ** count if count else table[0])
            start = 0
            for share, long in self._factors(factors):
                part = found[place, :, start : start + long.shape[1]]
                torch.mul(long, 1.0 if share is None else share, out=part)
                start += long.shape[1]
        return Streams(propagation.plan, found)

    def _factors(self, tables: Sequence[Tensor]) -> Iterator[tuple[Tensor | None, Tensor]]:
        """Group after group of products: what they have in common ``(n, 1)``, and the functions of the longest table."""
        *short, long = (tables[column] for column in self._order)
        for numbers, count in self._groups:
            share = None
            for number, table in zip(numbers, short, strict=True):
                factor = table[:, number, None]
                share = factor if share is None else share * factor
            yield share, long[:, :count]


def _by_size(sizes: Sequence[int]) -> list[int]:
    """The columns, the longest table last: its functions stand side by side for every product of the others."""
    return sorted(range(len(sizes)), key=lambda column: sizes[column])


def ellipsoid(
    degrees: Sequence[int],
    periodic: Collection[int] = (),
    order: Sequence[int] | None = None,
    full: Collection[int] = (),
) -> Tensor:
    r"""The numbers of products with :math:`\sum_i (k_i/n_i)^2 \le 1`, ``(K, D)``, counting along coordinates in an order.

    Of coordinates that are ``full`` all degrees are combined with those of the others.
    """
    order = range(len(degrees)) if order is None else order
    sizes = [(2 * n if column in periodic else n) + 1 for column, n in enumerate(degrees)]
    ordered = torch.cartesian_prod(*(torch.arange(sizes[column]) for column in order)).reshape(-1, len(degrees))
    numbers = torch.empty_like(ordered)
    numbers[:, list(order)] = ordered
    parts = _degrees_of(numbers, periodic) / torch.tensor([max(1, n) for n in degrees])
    parts[:, list(full)] = 0
    return numbers[parts.square().sum(1) <= 1 + 1e-9]


def _degrees_of(numbers: Tensor, periodic: Collection[int]) -> Tensor:
    waved = torch.tensor([column in periodic for column in range(numbers.shape[1])], device=numbers.device)
    return torch.where(waved, (numbers + 1) // 2, numbers)

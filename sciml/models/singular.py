"""Singular functions at corners of the domain beside smooth functions: a trial function linear in its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams
from sciml.models.base import Block, SequentialModel, linear
from sciml.models.blocks import Concatenation
from sciml.models.random_features import RandomFeatures
from sciml.models.spectral import Spectral

_NEAREST, _WHOLE, _TERMS_AHEAD = 1e-14, 1e-6, 200


@dataclass(frozen=True)
class CornerExponents:
    r"""A corner and the functions :math:`\operatorname{Re}, \operatorname{Im}\; z^a \bar z^m (\log z)` that are singular there.

    With :math:`z = r e^{i(\theta - \theta_0)}`, θ₀ the direction of the bisector, they are what solutions of elliptic equations
    consist of near a corner of angle ω, whatever the conditions: :math:`a` runs through the multiples of π/2ω (those of π/ω are
    the exponents of Laplace's equation with one kind of condition on both edges, the others with two kinds) and the whole
    numbers, which come with a logarithm. Powers of :math:`\bar z` are what lower-order terms, coefficients that vary and
    equations of fourth order add.

    Args:
        position: the corner.
        direction: the angle of the bisector of the inside, from the axis of the first coordinate, in radians.
        angle: the interior angle ω.
        length: about how far the edges go, the unit of r.
        degree: the highest :math:`\lambda = a + m` that is singular enough to be there.
        order: half the order of the equation, k: :math:`\lambda > k - 1`, and :math:`m < k` at least.
        spread: how much larger m may be, for each unit of :math:`\lambda - k`.

    Example:
        >>> import math
        >>> wedge = CornerExponents((0.0, 0.0), 0.0, 1.5 * math.pi, 1.0, degree=2, spread=0)
        >>> [(round(a, 2), m, log) for a, m, log in wedge.terms]
        [(0.33, 0, False), (0.67, 0, False), (1.33, 0, False), (1.67, 0, False), (1.0, 0, True), (2.0, 0, True)]

    Reference: P. Grisvard, Elliptic Problems in Nonsmooth Domains, Pitman (1985), for the exponents; the form with complex
    numbers is Goursat's.
    """

    position: tuple[float, float]
    direction: float
    angle: float
    length: float
    degree: float = 4.0
    order: int = 1
    spread: float = 0.0

    @cached_property
    def terms(self) -> tuple[tuple[float, int, bool], ...]:
        """For each function the exponents a and m, and whether it has the logarithm."""
        lowest, step = self.order - 1, math.pi / (2 * self.angle)
        multiples = [step * k for k in range(-_TERMS_AHEAD, _TERMS_AHEAD)]

        def widest(total: float) -> float:
            return lowest + self.spread * max(0.0, total - self.order) + _WHOLE

        def wanted(a: float, m: int) -> bool:
            return lowest + _WHOLE < a + m <= self.degree + _WHOLE and m <= widest(a + m)

        found: list[tuple[float, int, bool]] = []
        for m in range(math.floor(widest(self.degree)) + 1):
            whole = [float(a) for a in range(-m, math.floor(self.degree + _WHOLE) + 1) if wanted(a, m)]
            found += [(a, m, False) for a in multiples if abs(a - round(a)) > _WHOLE and wanted(a, m)]
            found += [(a, m, False) for a in whole if a < 0]
            found += [(a, m, True) for a in whole]
        return tuple(found)


class CornerFunctions(Block):
    r"""All singular functions of some corners, and their derivatives in closed form; no parameters.

    .. math::  \partial_x^p \partial_y^q\, f(z)\, \bar z^m = \sum_j c_j\, f^{(j)}(z)\, (\bar z^m)^{(p + q - j)}, \qquad
        \sum_j c_j s^j t^{p + q - j} = (s + t)^p (is - it)^q

    for z without rotation and scale. The inputs are scaled coordinates; angles are those of the plane.

    Args:
        wedges: the corners.
        center: centre of the two coordinates.
        half_width: half their extent.

    Attributes:
        width: the number of functions.

    Raises:
        ModelError: no corner, or one with no singular function.

    Example:
        >>> import math, torch
        >>> wedge = CornerExponents((0.0, 0.0), 0.0, 1.5 * math.pi, 1.0)
        >>> CornerFunctions([wedge], (0.0, 0.0), (1.0, 1.0))(torch.rand(5, 2)).shape
        torch.Size([5, 24])
    """

    arguments = ("wedges", "center", "half_width")
    takes_coordinates = True

    def __init__(self, wedges: Sequence[CornerExponents], center: Sequence[float], half_width: Sequence[float]) -> None:
        super().__init__()
        self.wedges, self.center, self.half_width = tuple(wedges), tuple(center), tuple(half_width)
        if not self.wedges or not all(wedge.terms for wedge in self.wedges):
            raise ModelError(
                f"CornerFunctions needs corners at each of which there are singular functions; given: {wedges!r}; leave out "
                "corners without any, or raise their degree"
            )
        self.width = sum(2 * len(wedge.terms) for wedge in self.wedges)

    def forward(self, points: Tensor) -> Tensor:
        """``(n, 2)`` to ``(n, width)``."""
        return self._at(points, [(0, 0)], (1.0, 1.0))[0]

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """Every derivative from those of the analytic functions."""
        names = propagation.coordinates
        units = streams.units()
        slopes = [float(units[name][column]) if name in units else 0.0 for column, name in enumerate(names)]
        orders = [(index.count(names[0]), index.count(names[1])) for index in propagation.plan]
        return Streams(propagation.plan, self._at(streams.values[0].detach(), orders, slopes))

    def _at(self, points: Tensor, orders: Sequence[tuple[int, int]], slopes: Sequence[float]) -> Tensor:
        return torch.cat([self._of(wedge, points, orders, slopes) for wedge in self.wedges], dim=2)

    def _of(self, wedge: CornerExponents, points: Tensor, orders: Sequence[tuple[int, int]], slopes: Sequence[float]) -> Tensor:
        """Derivatives of one corner's functions, shape ``(S, n, width)``."""
        terms = wedge.terms
        turn = complex(math.cos(wedge.direction), -math.sin(wedge.direction)) / wedge.length
        at = [self.half_width[c] * points[:, c] + (self.center[c] - wedge.position[c]) for c in (0, 1)]
        z = turn * torch.complex(at[0], at[1])
        # Derivatives are unbounded at the corner itself; a point very close to it stands for it.
        z = torch.where(z.detach().abs() < _NEAREST, torch.full_like(z, _NEAREST), z)[:, None]
        highest, most = max(map(sum, orders)), max(m for _, m, _ in terms)
        conjugates = [z.conj() ** m for m in range(most + 1)]
        groups = []
        for m in range(most + 1):
            plain, logs = ([a for a, own, log in terms if own == m and log is with_log] for with_log in (False, True))
            if plain or logs:
                groups.append((m, _analytic(plain, logs, z, highest)))
        across, up = self.half_width[0] * slopes[0] * turn, 1j * self.half_width[1] * slopes[1] * turn
        found = []
        for by_x, by_y in orders:
            total, factors = by_x + by_y, [1.0 + 0.0j]
            for step in [across] * by_x + [up] * by_y:
                # z̄ is the conjugate of z, so its derivative is the conjugate of z's.
                padded = [0.0, *factors, 0.0]
                factors = [padded[j] * step + padded[j + 1] * step.conjugate() for j in range(len(factors) + 1)]
            columns = []
            for m, analytic in groups:
                pairs = [(j, total - j) for j in range(total + 1) if total - j <= m]
                value = torch.zeros_like(analytic[0])
                for j, k in pairs:
                    value = value + factors[j] * math.perm(m, k) * analytic[j] * conjugates[m - k]
                columns += [value.real, value.imag]
            found.append(torch.cat(columns, dim=1))
        return torch.stack(found)


def _analytic(powers: Sequence[float], logs: Sequence[float], z: Tensor, highest: int) -> list[Tensor]:
    r"""Derivatives of :math:`z^a` and of :math:`z^b \log z` from order zero to ``highest``, each ``(n, functions)``."""
    found, log = [], z.log()
    a, b = (log.real.new_tensor(list(exponents)) for exponents in (powers, logs))
    fall, factor, rest = torch.ones_like(a), torch.ones_like(b), torch.zeros_like(b)
    for order in range(highest + 1):
        plain, logged = fall * ((a - order) * log).exp(), (factor * log + rest) * ((b - order) * log).exp()
        found.append(torch.cat([plain, logged], dim=1))
        fall, factor, rest = fall * (a - order), factor * (b - order), rest * (b - order) + factor
    return found


class CornerSingular(SequentialModel):
    r"""Smooth functions and functions that are singular at corners, side by side, with only their weights free.

    .. math::  u(x) = \sum_k w_k \varphi_k(x) + \sum_c \sum_j v_{cj} \psi_{cj}(x - x_c)

    The first are random sines or products of polynomials, the second the functions of every ``CornerExponents``.

    Args:
        smooth: a ``RandomFeatures`` or ``Spectral``, whose functions are taken over.
        wedges: the corners.
        center: centre of the two coordinates.
        half_width: half their extent.
        inputs: the number of coordinates, 2, or None to be filled in by ``fit``.
        outputs: the number of fields, or None.
        seed: seed of random features when ``inputs`` and ``outputs`` are given.

    Raises:
        ModelError: not two coordinates, or smooth functions that are neither.

    Example:
        >>> import math, torch
        >>> wedge = CornerExponents((0.0, 0.0), 0.0, 1.5 * math.pi, 1.0)
        >>> model = CornerSingular(RandomFeatures(50), [wedge], center=(0, 0), half_width=(1, 1), inputs=2, outputs=1)
        >>> model(torch.zeros(5, 2)).shape
        torch.Size([5, 1])

    Reference: G. J. Fix, S. Gulati and G. I. Wakoff, On the use of singular functions with finite element approximations,
    Journal of Computational Physics 13 (1973).
    """

    def __init__(
        self,
        smooth: RandomFeatures | Spectral,
        wedges: Sequence[CornerExponents],
        *,
        center: Sequence[float],
        half_width: Sequence[float],
        inputs: int | None = None,
        outputs: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(smooth, RandomFeatures | Spectral):
            raise ModelError(f"smooth must be a RandomFeatures or a Spectral; given: {type(smooth).__name__}")
        self._kind, self._options = type(smooth), {**smooth.config, "inputs": None, "outputs": None}
        self._singular = CornerFunctions(wedges, center, half_width)
        self.smooth_width = 0
        self.build_if_asked(inputs, outputs, seed)

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds this architecture: the keywords of ``CornerSingular.from_config``."""
        singular = self._singular
        return {
            "smooth": {"kind": self._kind.__name__, **self._options},
            "wedges": [[list(wedge.position), *astuple(wedge)[1:]] for wedge in singular.wedges],
            "center": list(singular.center),
            "half_width": list(singular.half_width),
            "inputs": 2 if len(self.layers) else None,
            "outputs": self.widths["outputs"],
        }

    @classmethod
    def from_config(cls, smooth: dict[str, Any], wedges: Sequence[Sequence[Any]], **options: Any) -> CornerSingular:
        kind = {each.__name__: each for each in (RandomFeatures, Spectral)}[smooth["kind"]]
        inner = kind.from_config(**{key: value for key, value in smooth.items() if key != "kind"})
        corners = [CornerExponents((position[0], position[1]), *rest) for position, *rest in wedges]
        return cls(inner, corners, **options)

    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Make the smooth functions and set all weights to zero.

        Raises:
            ModelError: there are not two coordinates.
        """
        if inputs != 2:
            raise ModelError(f"CornerSingular is for two coordinates, in which corners have angles; given: {inputs}")
        inner = self._kind.from_config(**self._options)
        inner.build(inputs, outputs, generator)
        *layers, last = inner.layers
        assert isinstance(last, nn.Linear)
        self.smooth_width = last.in_features
        smooth = nn.Sequential(*layers).requires_grad_(False)
        width = self.smooth_width + self._singular.width
        self.layers.extend([Concatenation(smooth, self._singular), linear(width, outputs, zero=True, bias=False)])

    def extra_repr(self) -> str:
        smooth, singular = self._kind.from_config(**self._options), self._singular
        return f"{smooth.extra_repr()}, {singular.width} functions singular at {len(singular.wedges)} corner(s)"

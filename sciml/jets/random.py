"""What a residual asks for: a supplier that answers with noise and remembers every request.

Made-up jets: random numbers in the place of fields and their derivatives, of natural size and of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sciml.typing import MultiIndex, Values

_WILD = 64

_FLAT = frozenset(
    ("Exp", "Exp2", "Sigmoid", "LogSigmoid", "Tanh", "Erf", "Erfc", "Softplus", "Relu", "Clamp", "ClampMin", "ClampMax")
)


@dataclass(frozen=True)
class JetKind:
    """One kind of made-up jets.

    Attributes:
        size: how large they are by their natural size; positive ones alone where it is negative.
        shift: by how much the raw numbers of unknowns are moved.
        seed: of their random numbers.
        wild: each jet has a sign and a size of its own, from a ten-thousandth to a thousand times the natural one.
        near: a value that fields lie near, ``size`` times as far away as it is large; None leaves them where they lie.
    """

    size: float
    shift: float = 0.0
    seed: int = 0
    wild: bool = False
    near: float | None = None


# Jets of natural size, far larger ones, positive ones, hardly any.
USUAL = (JetKind(1.0), JetKind(10.0, 0.7), JetKind(-1.0), JetKind(1e-4))


def wild_kinds() -> Iterator[JetKind]:
    """Jets that leave nothing untried: what is the same for all of these is so whatever the fields are."""
    return (JetKind(1.0, seed=100 * (number + 1), wild=True) for number in range(_WILD))


def near_kinds(values: Sequence[float | None]) -> Iterator[JetKind]:
    """Fields near given values, such as an unknown's and its bounds, where a threshold that depends on it is felt."""
    for number, value in enumerate(values):
        if value is not None:
            for place, size in enumerate((1e-4, 1e-2, 1.0)):
                yield JetKind(size, seed=1000 + 10 * number + place, near=value)


class RandomJets:
    """Random jets at some points, the same at every call.

    Args:
        fields: centre and size of each field, in its unit.
        reach: half the width of the domain along each coordinate, in its unit.
        attempt: what kind of jets.
        count: the number of points.
        seed: of the random numbers, beside that of the attempt.

    Example:
        >>> made = RandomJets({"u": (0.0, 1.0)}, {"x": 0.5, "t": 0.1}, USUAL[0], 3, 0)
        >>> made.jet("u", ()).shape
        torch.Size([3])
    """

    def __init__(
        self,
        fields: Mapping[str, tuple[float, float]],
        reach: Mapping[str, float],
        attempt: JetKind,
        count: int,
        seed: int,
    ) -> None:
        self._fields, self._reach = fields, reach
        self._generator = torch.Generator().manual_seed(attempt.seed + seed)
        self._attempt, self._count = attempt, count
        self._table: dict[tuple[str, MultiIndex], Tensor] = {}

    def jet(self, field: str, index: MultiIndex) -> Values:
        """A field or a derivative of it at the points, shape ``(n,)``."""
        key = (field, index)
        if key not in self._table:
            self._table[key] = self._made(field, index)
        return self._table[key]

    def _made(self, field: str, index: MultiIndex) -> Tensor:
        centre, scale = self._fields[field]
        natural = scale / float(np.prod([self._reach[name] for name in index]))
        noise = torch.randn(self._count, dtype=torch.float64, generator=self._generator)
        offset, size = (0.0 if index else centre), self._attempt.size
        if self._attempt.near is not None and not index:
            return self._attempt.near + size * (abs(self._attempt.near) or natural) * noise
        if self._attempt.wild:
            sign, place, kept = torch.rand(3, dtype=torch.float64, generator=self._generator).tolist()
            # A third of either sign, and a third of both.
            noise = noise if sign < 1 / 3 else noise.abs() if sign < 2 / 3 else -noise.abs()
            return 10.0 ** (7 * place - 4) * natural * noise + (offset if kept < 0.5 else 0.0)
        values = size * natural * noise + offset
        return values if size > 0 else values.abs()

    def part(self, chosen: Tensor) -> SomeJets:
        """The same jets at some of the points."""
        return SomeJets(self, chosen)


class SomeJets:
    """Made-up jets at some of their points.

    Example:
        >>> import torch
        >>> made = RandomJets({"u": (0.0, 1.0)}, {"x": 0.5, "t": 0.1}, USUAL[0], 3, 0)
        >>> bool(made.part(torch.tensor([2])).jet("u", ())[0] == made.jet("u", ())[2])
        True
    """

    def __init__(self, whole: RandomJets, chosen: Tensor) -> None:
        self._whole, self._chosen = whole, chosen

    def jet(self, field: str, index: MultiIndex) -> Values:
        """A field or a derivative of it at the points, shape ``(n,)``."""
        return self._whole.jet(field, index)[self._chosen]


def levels_off(values: Tensor, nodes: Sequence[object]) -> bool:
    """Whether values depend on some nodes of their graph through functions that are flat far away, as the exponential is.

    Args:
        values: the result of a computation.
        nodes: ``grad_fn`` of what it depends on.

    Example:
        >>> import torch
        >>> k = 2 * torch.ones((), requires_grad=True)
        >>> levels_off(torch.exp(-1e9 * k), [k.grad_fn]), levels_off(torch.floor(k), [k.grad_fn])
        (True, False)
    """
    waiting, seen = [(values.grad_fn, False)], set[tuple[object, bool]]()
    while waiting:
        node, flat = waiting.pop()
        if node is None or (node, flat) in seen:
            continue
        seen.add((node, flat))
        if flat and node in nodes:
            return True
        flat = flat or node.name().removesuffix("0").removesuffix("Backward") in _FLAT
        waiting += [(each, flat) for each, _ in node.next_functions]
    return False


class Recorder:
    """Answers any request with random values, so that a residual can be asked what it needs.

    Args:
        size: the number of points ``n``.
        seed: seed of the recorder's own generator; the caller's generators are not touched.
    """

    name = "recorder"

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._generator = torch.Generator().manual_seed(seed)

    def jet(self, field: str, index: MultiIndex) -> Values:
        """Random values of shape ``(n,)``, positive so that logarithms and roots are defined."""
        return 0.5 + torch.rand(self._size, dtype=torch.float64, generator=self._generator)


def orders_asked(jets: Mapping[tuple[str, MultiIndex], object], coordinate: str) -> dict[str, int]:
    """The highest derivative by ``coordinate`` that was asked of each field."""
    orders: dict[str, int] = {}
    for field, index in jets:
        orders[field] = max(orders.get(field, 0), index.count(coordinate))
    return orders

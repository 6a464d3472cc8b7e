"""Random jets: random numbers in the place of fields and their derivatives, to see what a residual asks for and depends on."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.typing import MultiIndex, Values


@dataclass(frozen=True)
class JetKind:
    """The distribution of random jets around the natural size of fields and derivatives.

    ``size`` is the standard deviation by the natural size (negative: absolute values are taken), ``shift`` is added
    to the raw numbers of unknowns; ``wild``: each jet has its own sign and size, from a ten-thousandth to a thousand
    times the natural one; ``near`` is the value that fields lie near, at distances of ``size`` times itself, or None
    for the centre of the field.
    """

    size: float
    shift: float = 0.0
    seed: int = 0
    wild: bool = False
    near: float | None = None


# Jets of natural size, far larger ones, positive ones, hardly any.
USUAL = (JetKind(1.0), JetKind(10.0, 0.7), JetKind(-1.0), JetKind(1e-4))
# What is the same for all of these is so whatever the fields are.
WILD = tuple(JetKind(1.0, seed=100 * (number + 1), wild=True) for number in range(64))


def near_kinds(values: Sequence[float | None]) -> list[JetKind]:
    """Fields near given values, such as an unknown's and its bounds, where a threshold that depends on it is felt."""
    return [
        JetKind(size, seed=1000 + 10 * number + place, near=value)
        for number, value in enumerate(values)
        if value is not None
        for place, size in enumerate((1e-4, 1e-2, 1.0))
    ]


class RandomJets:
    """A supplier of random jets: each is drawn at its first request, and is the same at every other.

    Args:
        count: the number of points ``n``.
        fields: centre and size of each field, in its unit; 0 and 1 for those left out.
        half_widths: half the width of the domain along each coordinate, in its unit; 1 for those left out.
        kind: the distribution; None for numbers from 0.5 to 1.5, of which logarithms and roots are defined.
        seed: of a generator of its own, beside that of the kind.
        generator: is drawn from instead.
        table: jets that are known already; new ones are added to it.

    Example:
        >>> jets = RandomJets(3, {"u": (0.0, 1.0)}, {"x": 0.5, "t": 0.1}, USUAL[0])
        >>> jets.jet("u", ()).shape
        torch.Size([3])
        >>> bool(jets.part(torch.tensor([2])).jet("u", ()) == jets.jet("u", ())[2])
        True
    """

    name = "random"

    def __init__(
        self,
        count: int,
        fields: Mapping[str, tuple[float, float]] | None = None,
        half_widths: Mapping[str, float] | None = None,
        kind: JetKind | None = None,
        *,
        seed: int = 0,
        generator: torch.Generator | None = None,
        table: dict[tuple[str, MultiIndex], Tensor] | None = None,
    ) -> None:
        self._count, self._fields, self._half_widths, self._kind = count, fields or {}, half_widths or {}, kind
        own = seed + (0 if kind is None else kind.seed)
        self._generator = torch.Generator().manual_seed(own) if generator is None else generator
        self._table = {} if table is None else table
        self._chosen: Tensor | None = None

    def jet(self, field: str, index: MultiIndex) -> Values:
        """A field or a derivative of it at the points, shape ``(n,)``."""
        key = (field, index)
        if key not in self._table:
            self._table[key] = self._drawn(field, index)
        return self._table[key] if self._chosen is None else self._table[key][self._chosen]

    def part(self, chosen: Tensor) -> RandomJets:
        """The same jets at some of the points, or at points repeated: ``chosen`` holds their positions."""
        found = copy.copy(self)
        found._chosen = chosen
        return found

    def repeated(self, count: int) -> RandomJets:
        """The jets of the first point at so many points: what differs between these does so by their coordinates alone."""
        return self.part(torch.zeros(count, dtype=torch.long))

    def _drawn(self, field: str, index: MultiIndex) -> Tensor:
        kind, generator = self._kind, self._generator
        if kind is None:
            return 0.5 + torch.rand(self._count, dtype=torch.float64, generator=generator)
        centre, scale = self._fields.get(field, (0.0, 1.0))
        natural = scale / math.prod(self._half_widths.get(name, 1.0) for name in index)
        noise = torch.randn(self._count, dtype=torch.float64, generator=generator)
        offset = 0.0 if index else centre
        if kind.near is not None and not index:
            return kind.near + kind.size * (abs(kind.near) or natural) * noise
        if kind.wild:
            sign, place, kept = torch.rand(3, dtype=torch.float64, generator=generator).tolist()
            # A third of either sign, and a third of both.
            noise = noise if sign < 1 / 3 else noise.abs() if sign < 2 / 3 else -noise.abs()
            return 10.0 ** (7 * place - 4) * natural * noise + (offset if kept < 0.5 else 0.0)
        values = kind.size * natural * noise + offset
        return values if kind.size > 0 else values.abs()

"""Inner surfaces, where two domains meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import qmc

from sciml.domains.region import Face, Side
from sciml.errors import ProblemError, listed, nearest
from sciml.typing import Array

if TYPE_CHECKING:
    from sciml.domains.domain import Domain
    from sciml.domains.geometry import Placed

_PROBES = 256
_ON, _STEP = 1e-9, 1e-6


@dataclass(frozen=True)
class Interface:
    """What the boundaries of two domains with the same coordinates have in common; made by ``first.interface(second)``.

    Normals point out of the first domain, into the second. Conditions lie on it as on a piece of a boundary; it is itself
    no part of the boundary of the domain that holds both. What a part has of the boundary of the whole is
    ``part.interface(whole)``.

    Raises:
        ProblemError: the two have different coordinates, or no piece of their boundaries in common.

    Example:
        >>> import sciml
        >>> core, shell = sciml.Disk((0, 0), 1), sciml.Disk((0, 0), 2, piece="outer") - sciml.Disk((0, 0), 1)
        >>> core.interface(shell)
        Disk((0, 0), 1).interface(Disk((0, 0), 2) - Disk((0, 0), 1))
    """

    first: Domain
    second: Domain
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.first.coordinates != self.second.coordinates or not self.sides:
            raise ProblemError(
                f"{self!r}: the two domains must have the same coordinates and a piece of their boundaries in common; do they "
                "overlap, or leave a gap?"
            )

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of the first domain that lie on the boundary of the second, in part at least."""
        return tuple(self._kept)

    def piece(self, *names: str) -> Interface:
        """The part of it that lies on pieces of the first domain with these names.

        Raises:
            ProblemError: none of it lies on one of them.
        """
        own = [side.describe(self.first) for side in self.sides]
        for name in names:
            if name not in own:
                raise ProblemError(
                    f"{self!r} has no piece {name!r}; its pieces are {listed(dict.fromkeys(own))}.{nearest(name, own)}"
                )
        return replace(self, names=names)

    def freedom(self, side: Side) -> int:
        """How many numbers in [0, 1] a point on a side takes."""
        return self.first.freedom(side)

    def on_side(self, side: Side, unit: Array) -> Placed:
        """Points of a side, normals out of the first domain, and which points belong to both boundaries."""
        points, normals, keep = self.first.on_side(side, unit)
        keep = keep & (np.abs(self.second.distance(points)) <= _ON * self.first.diameter)
        # What a difference was cut with has the distance zero, too, where it touches the boundary of what it was cut from.
        step = _STEP * self.first.diameter * normals
        ahead, behind = (self.second.distance(points + sign * step) < 0 for sign in (1, -1))
        return points, normals, keep & (ahead != behind)

    def kept(self, side: Side) -> float:
        """The share of the points of ``on_side`` that are kept."""
        return self._kept[side]

    def share(self, side: Side) -> float:
        """The size of a side, where that of a square, or cube, of the first domain's measure is 1."""
        return self.first.share(side) * self._kept[side] / self.first.kept(side)

    def between(self, coordinate: str, lower: float, upper: float) -> Interface:
        """The same surface between other bounds of a coordinate, a window of time."""
        first, second = (clipped(part, coordinate, lower, upper) for part in (self.first, self.second))
        return Interface(first, second, self.names)

    @cached_property
    def _kept(self) -> dict[Side, float]:
        found = {}
        for side in self.first.sides:
            if self.names and side.describe(self.first) not in self.names:
                continue
            freedom = self.first.freedom(side)
            unit = np.empty((1, 0))
            if freedom:
                unit = qmc.Sobol(freedom, rng=np.random.default_rng(0)).random(_PROBES)
            kept = float(self.on_side(side, unit)[2].mean())
            if kept > 0:
                found[side] = kept
        return found

    def __repr__(self) -> str:
        pieces = f".piece({', '.join(map(repr, self.names))})" if self.names else ""
        return f"{self.first!r}.interface({self.second!r}){pieces}"


def clipped(part: Domain, coordinate: str, lower: float, upper: float) -> Domain:
    """A part of a domain between bounds of a coordinate, if it has faces of it that lie beyond them."""
    if Face(coordinate, "lower") not in part.sides:
        return part
    low, high = part.bounds[coordinate]
    return part if low >= lower and high <= upper else part.between(coordinate, max(low, lower), min(high, upper))

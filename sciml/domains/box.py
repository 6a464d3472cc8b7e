"""Axis-aligned boxes with named coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from sciml.domains.region import Face, Region
from sciml.errors import ProblemError, listed, nearest


class Box:
    """The product of intervals, one for each named coordinate.

    Args:
        bounds: ``name=(lower, upper)`` for every coordinate, finite and increasing, in the units of the problem. The
            order in which they are named is the order of the columns of every points tensor.

    Raises:
        ProblemError: no coordinate, or bounds that are not two finite, increasing numbers.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(-1, 1), t=(0, 2))
        >>> box.coordinates, box.measure
        (('x', 't'), 4.0)
    """

    def __init__(self, **bounds: tuple[float, float]) -> None:
        if not bounds:
            raise ProblemError("a box needs at least one coordinate, as in Box(x=(0, 1), t=(0, 2)); none was given")
        self._bounds = {name: _checked_bounds(name, pair) for name, pair in bounds.items()}

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Lower and upper bound of each coordinate."""
        return MappingProxyType(self._bounds)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates, in order."""
        return tuple(self.bounds)

    @property
    def lower(self) -> tuple[float, ...]:
        """The lower bound of every coordinate."""
        return tuple(pair[0] for pair in self.bounds.values())

    @property
    def upper(self) -> tuple[float, ...]:
        """The upper bound of every coordinate."""
        return tuple(pair[1] for pair in self.bounds.values())

    @property
    def measure(self) -> float:
        """The volume of the box, in the product of the coordinates' units."""
        return math.prod(upper - lower for lower, upper in self.bounds.values())

    @property
    def boundary(self) -> Region:
        """Every face except those of the problem's time coordinate."""
        return Region(boundary=True)

    def faces(self, *coordinates: str) -> Region:
        """Both faces of each coordinate named, ``box.faces("x")``; of every coordinate when none is named."""
        for name in coordinates:
            self._known(name)
        names = coordinates or self.coordinates
        return Region(tuple(Face(name, side) for name in names for side in ("lower", "upper")))

    def face(self, **position: float) -> Region:
        """The face at which one coordinate has one of its bounds, as in ``box.face(x=0)``.

        Raises:
            ProblemError: not exactly one coordinate, an unknown one, or a value that is neither of its bounds.
        """
        if len(position) != 1:
            raise ProblemError(
                f"face() takes exactly one coordinate, as in domain.face({self.coordinates[0]}="
                f"{self.lower[0]:g}); given: {listed(position)}"
            )
        ((name, value),) = position.items()
        lower, upper = self._known(name)
        tolerance = 1e-12 * (upper - lower)
        if abs(value - lower) <= tolerance:
            return Region((Face(name, "lower"),))
        if abs(value - upper) <= tolerance:
            return Region((Face(name, "upper"),))
        raise ProblemError(
            f"face({name}={value!r}) is not a face of the box: {name} runs from {lower:g} to {upper:g}; give one "
            f"of these two values"
        )

    def _known(self, name: str) -> tuple[float, float]:
        if name not in self.bounds:
            raise ProblemError(
                f"the domain has no coordinate {name!r}; its coordinates are {listed(self.coordinates)}."
                f"{nearest(name, self.coordinates)}"
            )
        return self.bounds[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and tuple(self.bounds.items()) == tuple(other.bounds.items())

    def __hash__(self) -> int:
        return hash(tuple(self.bounds.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}=({lower:g}, {upper:g})" for name, (lower, upper) in self.bounds.items())
        return f"{type(self).__name__}({inside})"


class Interval(Box):
    """A box with a single coordinate: the domain of an ordinary differential equation.

    Raises:
        ProblemError: not exactly one coordinate, or bounds that are not two finite, increasing numbers.

    Example:
        >>> import sciml
        >>> sciml.Interval(t=(1900, 1920)).measure
        20.0
    """

    def __init__(self, **bounds: tuple[float, float]) -> None:
        if len(bounds) != 1:
            raise ProblemError(
                f"an Interval has exactly one coordinate, as in Interval(t=(0, 1)); given: {listed(bounds)}. "
                "Use Box for more"
            )
        super().__init__(**bounds)


def _checked_bounds(name: str, pair: object) -> tuple[float, float]:
    try:
        lower, upper = (float(value) for value in pair)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ProblemError(f"bounds of {name!r} must be a pair of numbers (lower, upper); given: {pair!r}") from None
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        raise ProblemError(
            f"bounds of {name!r} must be finite and increasing; given: ({lower:g}, {upper:g})"
            + (", which has no points inside" if lower == upper else "")
        )
    return lower, upper

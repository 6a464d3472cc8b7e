"""What a callback sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Look:
    """The state of a fit at one look at held-out rows.

    ``phase`` is the solver's name, ``step`` counts over all phases, ``steps`` is the most there can be; ``loss``,
    ``held_out`` and ``best`` (the lowest held-out loss of the phase) are weighted sums of mean squares, ``terms`` their
    parts before weighting, ``unknowns`` the current values. ``replayed`` is true of what happened before an interruption and
    is told again, so that callbacks arrive at the state in which they were.
    """

    phase: str
    step: int
    steps: int
    seconds: float
    loss: float
    held_out: float
    best: float
    terms: Mapping[str, float]
    unknowns: Mapping[str, float]
    replayed: bool = False


Callback: TypeAlias = Callable[[Look], object]
"""Called at every look; a true return value ends the fit with the best state so far."""

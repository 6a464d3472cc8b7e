"""Many looks in little room: numbers in one array, names once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sciml.callbacks import Look

_NUMBERS = ("step", "seconds", "loss", "held_out", "best")


class LookLog:
    """Looks of a phase with what else is in their line of the history, kept as a checkpoint holds them.

    Example:
        >>> from sciml.callbacks import Look
        >>> from sciml.look_log import LookLog
        >>> log = LookLog()
        >>> log.append(Look("Adam", 50, 1000, 0.1, 0.25, 0.3, 0.3, {"decay": 0.25}, {}), {"causal": 0.5})
        >>> (look, more), = LookLog.of(log.state())
        >>> look.step, look.terms, more
        (50, {'decay': 0.25}, {'causal': 0.5})
    """

    def __init__(self) -> None:
        self._values, self._kinds = array("d"), array("q")
        self._names: dict[tuple[Any, ...], int] = {}

    def append(self, look: Look, more: Mapping[str, float]) -> None:
        """Add a look."""
        names = (look.phase, look.steps, tuple(look.terms), tuple(look.unknowns), tuple(more))
        self._kinds.append(self._names.setdefault(names, len(self._names)))
        self._values.extend(float(getattr(look, name)) for name in _NUMBERS)
        for each in (look.terms, look.unknowns, more):
            self._values.extend(map(float, each.values()))

    def state(self) -> dict[str, Any]:
        """Everything as tensors and plain values."""
        names = [[phase, steps, *map(list, rest)] for phase, steps, *rest in self._names]
        kinds = torch.tensor(self._kinds, dtype=torch.int64)
        return {"names": names, "kinds": kinds, "values": torch.tensor(self._values, dtype=torch.float64)}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> LookLog:
        """The looks of a state.

        Raises:
            TypeError: the state is none.
            ValueError: it holds too few or too many numbers, or names that are not there.
        """
        found = cls()
        for phase, steps, *rest in state["names"]:
            if not (isinstance(phase, str) and isinstance(steps, int) and len(rest) == 3):
                raise TypeError("the names of looks are texts")
            found._names[(phase, steps, *(tuple(map(str, names)) for names in rest))] = len(found._names)
        found._kinds, found._values = array("q", state["kinds"].tolist()), array("d", state["values"].tolist())
        sizes = [len(_NUMBERS) + sum(map(len, names[2:])) for names in found._names]
        if any(not 0 <= kind < len(sizes) for kind in found._kinds):
            raise ValueError("looks with names that are not there")
        if sum(sizes[kind] for kind in found._kinds) != len(found._values):
            raise ValueError("too few or too many numbers for the looks")
        return found

    def __iter__(self) -> Iterator[tuple[Look, dict[str, float]]]:
        names, place = list(self._names), 0
        for kind in self._kinds:
            phase, steps, terms, unknowns, more = names[kind]
            step, *numbers = self._values[place : place + len(_NUMBERS)]
            place += len(_NUMBERS)
            parts = []
            for each in (terms, unknowns, more):
                parts.append(dict(zip(each, self._values[place : place + len(each)], strict=True)))
                place += len(each)
            seconds, loss, held_out, best = numbers
            yield Look(phase, int(step), steps, seconds, loss, held_out, best, parts[0], parts[1]), parts[2]

    def __len__(self) -> int:
        return len(self._kinds)

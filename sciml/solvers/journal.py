r"""Journal for exact resuming: memoised results of a fit's pieces of work.

A fit is a deterministic function of what is handed to it. It is resumed by calling it again: wherever it did something that
takes time, the journal holds the result and the work is left out; everything between is computed again, to the same bits. What
was in the middle of being done, a solver's phase, continues from its last state. No part of ``fit`` has to know how it got
where it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from sciml.errors import FileError

# What is computed faster than it is worth its place is computed again; beyond so many bytes, what costs least a byte.
_WORTH = 0.02
_MOST_BYTES = 2**26

Content = dict[str, Any]
Request = Callable[[], str | None]


class Journal:
    """A fit's pieces of work in order, written by ``save`` where ``due``, or on a ``request`` to end."""

    def __init__(
        self,
        save: Callable[[Content], None] | None = None,
        due: Callable[[int], bool] = lambda steps: False,
        request: Request = lambda: None,
    ) -> None:
        self._save, self._due, self._request = save, due, request
        self._entries: dict[int, tuple[str, float, Content]] = {}
        self._phases: set[int] = set()
        # Only what was read from a checkpoint and is still to come: a state of now changes with the next step.
        self._live: tuple[int, str, Content] | None = None
        self._index = self._steps = 0
        self._at: tuple[int, str, float] | None = None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what another journal holds, from the beginning; a ``FileError`` where that is damaged."""
        try:
            self._entries = {int(place): (str(name), float(cost), dict(each)) for place, name, cost, each in state["entries"]}
            live = state["live"]
            self._live = None if live is None else (int(live[0]), str(live[1]), dict(live[2]))
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise FileError(f"the checkpoint is damaged: its journal cannot be read ({error!r})") from error
        self._index = 0
        # Until it is known which of them are phases, none is forgotten.
        self._phases = set(self._entries)

    def state_dict(self) -> Content:
        """Everything known, as tensors and plain values."""
        self._trim()
        live = None if self._live is None else list(self._live)
        return {"entries": [[index, *each] for index, each in self._entries.items()], "live": live}

    def recalled(self, name: str, compute: Callable[[], Content]) -> Content:
        """The result of a piece of work, done unless it was before: tensors and plain values, all that it changed."""
        index, known = self._begun(name)
        self._at = None
        self._phases.discard(index)
        if known is None:
            begin = time.perf_counter()
            known = compute()
            cost = time.perf_counter() - begin
            if self._save is not None and cost >= _WORTH:
                self._entries[index] = (name, cost, known)
            self._steps += 1
        self._attend()
        return known

    def phase(self, name: str) -> tuple[Content | None, Content | None]:
        """A piece of work of many steps begins: its result if it was done before, or the state it was in the middle of."""
        index, known = self._begun(name)
        self._at = None if known is not None else (index, name, time.perf_counter())
        live = self._live
        if known is not None:
            self._phases.add(index)
        if live is None or live[0] != index:
            return known, None
        if live[1] != name:
            raise _foreign(index, live[1], name)
        self._live = None
        return known, live[2]

    def step(self, state: Callable[[], Content]) -> None:
        """A step of a phase is done; ``state`` gives the state from which it can be continued."""
        self._steps += 1
        self._attend(state)

    def finish(self, result: Content) -> None:
        """A phase is done."""
        assert self._at is not None
        (index, name, begin), self._at = self._at, None
        if self._save is not None:
            # A phase that was continued is worth keeping however long its end took.
            self._entries[index] = (name, max(time.perf_counter() - begin, _WORTH), result)
            self._phases.add(index)

    def save(self, state: Callable[[], Content] | None = None) -> None:
        """Write everything known; in the middle of a phase only together with its state."""
        if self._save is None or (self._at is not None and state is None):
            return
        known = self.state_dict()
        if self._at is not None and state is not None:
            known["live"] = [*self._at[:2], state()]
        self._save(known)
        self._steps = 0

    def keep_no_more(self) -> None:
        """Keep and write nothing from now on: what follows is no longer the fit as it would have gone on."""
        self._save = None

    def close(self) -> None:
        """Keep and write nothing from now on, and answer no request to end."""
        self.keep_no_more()
        self._request = lambda: None

    def _begun(self, name: str) -> tuple[int, Content | None]:
        index = self._index
        self._index += 1
        if index not in self._entries:
            return index, None
        known, _, content = self._entries[index]
        if known != name:
            raise _foreign(index, known, name)
        return index, content

    def _attend(self, state: Callable[[], Content] | None = None) -> None:
        """Save if it is time to, and answer a request to end."""
        request = self._request()
        if request is None and (self._save is None or not self._due(self._steps)):
            return
        self.save(state)
        if request is not None:
            self.close()
            raise KeyboardInterrupt if request == "interrupt" else Terminated

    def _trim(self) -> None:
        """Forget what is computed again most cheaply for its size; never a phase, for what follows may be under way."""
        sizes = {index: _size(each[2]) for index, each in self._entries.items() if index not in self._phases}
        over = sum(sizes.values()) - _MOST_BYTES
        for index in sorted(sizes, key=lambda index: self._entries[index][1] / max(sizes[index], 1)):
            if over <= 0:
                return
            del self._entries[index]
            over -= sizes[index]


class Terminated(BaseException):
    """The process was asked to end, and everything is saved; handlers of errors must not take it for an ``Exception``."""


def _foreign(index: int, known: str, name: str) -> FileError:
    return FileError(
        f"the checkpoint does not belong to this fit: its piece of work number {index + 1} is {known!r}, and the fit is at "
        f"{name!r}; call fit with the same arguments and the same version of the library, or begin anew in another directory"
    )


def _size(content: Any) -> int:
    """About how many bytes tensors and plain values take."""
    if isinstance(content, Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, Mapping | list | tuple):
        return sum(map(_size, content.values() if isinstance(content, Mapping) else content))
    return 8

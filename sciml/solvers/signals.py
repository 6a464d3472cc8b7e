"""Signal handling: SIGTERM and Ctrl-C are noticed at once and answered when the step is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

INTERRUPT, TERMINATE = "interrupt", "terminate"


class Abandoned(BaseException):
    """A second Ctrl-C: leave at once; no ``KeyboardInterrupt``, which is what the first one leads to."""


class Signals:
    """While entered (main thread), SIGTERM and the first SIGINT are requests; the second SIGINT is ``Abandoned``."""

    def __init__(self) -> None:
        self._request: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                # A handler that was not installed by Python cannot be put back, and a signal that is ignored stays so.
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._answer)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def request(self) -> str | None:
        """What was asked for: ``"interrupt"``, ``"terminate"`` or None."""
        return self._request

    def _answer(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._request is not None:
            raise Abandoned
        self._request = INTERRUPT if number == signal.SIGINT else TERMINATE

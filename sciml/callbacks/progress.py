"""A live line that says how the fit is doing."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sciml.callbacks.watch import Look


class ProgressLine:
    """One line, rewritten in place on a terminal; where there is none, a plain line now and then.

    Args:
        console: where to write; standard error when not given.
        every: seconds between plain lines.
    """

    def __init__(self, console: Console | None = None, every: float = 5.0) -> None:
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, transient=False) if self._console.is_terminal else None
        self._every = every
        self._last = -every

    def __enter__(self) -> ProgressLine:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, look: Look) -> None:
        """Show one look."""
        unknowns = "".join(f"  {name} {value:.4g}" for name, value in look.unknowns.items())
        line = (
            f"{look.phase:<6} {look.step:>6}/{look.steps}  loss {look.loss:.2e}  held-out {look.held_out:.2e}"
            f"{unknowns}  {look.seconds:.0f} s"
        )
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif look.seconds - self._last >= self._every:
            self._last = look.seconds
            self._console.print(line, highlight=False, soft_wrap=True)

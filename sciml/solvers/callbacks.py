"""Callbacks: the progress reports of a fit, and who receives them (early stopping, a progress line, experiment trackers)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rich.console import Console
from rich.live import Live
from rich.text import Text


@dataclass(frozen=True)
class Report:
    """A progress report: the state of a fit where held-out rows are evaluated.

    ``phase`` is the solver's name, ``step`` counts over all phases, ``steps`` is the most there can be; ``loss``,
    ``held_out`` and ``best`` (the lowest held-out loss of the phase) are weighted sums of mean squares, ``terms`` their
    parts before weighting, ``unknowns`` the current values. ``replayed`` is true of reports from before an interruption, which
    are sent again so that callbacks arrive at the state in which they were.
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


Callback: TypeAlias = Callable[[Report], object]
"""Called with every report; a true return value ends the fit with the best state so far."""


@dataclass(frozen=True)
class EarlyStopping:
    """Early stopping of a phase when the loss on held-out rows has not fallen for a while.

    Args:
        patience: the number of reports without improvement that are waited for.
        improvement: the relative fall that counts as one.

    Example:
        >>> import sciml
        >>> sciml.EarlyStopping(patience=5).over([1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
        True

    Reference: L. Prechelt, Early stopping - but when?, in Neural Networks: Tricks of the Trade, Springer 1998.
    """

    patience: int = 15
    improvement: float = 1e-2

    def over(self, held_out: list[float]) -> bool:
        """Whether a phase with these held-out losses, one a report, should stop."""
        if len(held_out) <= self.patience:
            return False
        before = min(held_out[: -self.patience])
        return not min(held_out[-self.patience :]) < before * (1.0 - self.improvement)


class ProgressLine:
    """Progress on one line, rewritten in place on a terminal; where there is none, a plain line now and then.

    Args:
        console: where to write; standard error when not given.
        every: seconds between plain lines.
        after: seconds from the start of the fit up to which nothing is shown.
    """

    def __init__(self, console: Console | None = None, every: float = 5.0, after: float = 0.0) -> None:
        self._console = console or Console(stderr=True)
        self._after, self._started = after, False
        self._live = Live(console=self._console, transient=False) if self._console.is_terminal else None
        self._every = every
        self._last = -every

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None and self._started:
            self._live.stop()

    def __call__(self, report: Report) -> None:
        """Show one report."""
        if report.seconds < self._after:
            return
        if self._live is not None and not self._started:
            self._live.start()
        self._started = True
        unknowns = "".join(f"  {name} {value:.4g}" for name, value in report.unknowns.items())
        line = (
            f"{report.phase:<6} {report.step:>6}/{report.steps}  loss {report.loss:.2e}  held-out {report.held_out:.2e}"
            f"{unknowns}  {report.seconds:.0f} s{_peak()}"
        )
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif report.seconds - self._last >= self._every:
            self._last = report.seconds
            self._console.print(line, highlight=False, soft_wrap=True)


def _peak() -> str:
    """The most memory that the process has taken, where the system says so."""
    try:
        import resource
    except ImportError:
        return ""
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return f"  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit:.1f} GB"

"""A callback that tells a tracker of experiments what a fit does, and survives it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from sciml.callbacks.watch import Look
from sciml.errors import SolverError, TrackerWarning


class Tracker:
    """Hands the numbers of every look to a function, such as that of MLflow, Weights & Biases or TensorBoard.

    Where the function raises, because its server or database is down, there is one warning and the fit goes on; the numbers
    are in ``history.jsonl`` and ``solution.history`` all the same. It is called again at the next look, so that a tracker that
    comes back is told of what follows. After an interruption looks are told again from the last checkpoint on, with the
    steps that they had.

    Args:
        log: takes a dict of numbers by name and, as the keyword ``step``, the step over all phases. It runs in the fit's own
            thread: give its client a short timeout.

    Raises:
        SolverError: ``log`` cannot be called.

    Example:
        >>> import sciml
        >>> seen = []
        >>> tracker = sciml.Tracker(lambda numbers, step: seen.append((step, numbers["loss"])))
        >>> tracker(sciml.Look("Adam", 50, 1000, 0.1, 0.25, 0.3, 0.3, {"decay": 0.25}, {}))
        >>> seen
        [(50, 0.25)]
    """

    def __init__(self, log: Callable[..., Any]) -> None:
        if not callable(log):
            raise SolverError(
                f"Tracker needs a function log(numbers, step=...), such as mlflow.log_metrics; given: {log!r}"
            )
        self._log, self._warned = log, False

    def __call__(self, look: Look) -> None:
        """Tell of one look."""
        if look.replayed:
            return
        try:
            self._log(numbers_of(look), step=look.step)
        except Exception as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"the tracker failed at step {look.step} and the fit goes on without it: {type(error).__name__}: {error}",
                    TrackerWarning,
                    stacklevel=2,
                )


def numbers_of(look: Look) -> Mapping[str, float]:
    """What a look holds, as numbers by name."""
    return {
        "seconds": look.seconds,
        "loss": look.loss,
        "held_out": look.held_out,
        **{f"loss.{name}": value for name, value in look.terms.items()},
        **look.unknowns,
    }

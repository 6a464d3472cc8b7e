"""Solvers: the interface between the training loop and every algorithm, and the check of their settings."""

from __future__ import annotations

import inspect
import itertools
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

from torch import Tensor

from sciml.errors import SolverError
from sciml.solvers.objective import Objective


@dataclass(frozen=True)
class Step:
    """The result of one step.

    ``loss`` and ``terms`` are those at the point the step arrived at, or (first-order methods) left from;
    ``evaluations`` counts gradients; ``done`` is None, ``"converged"``, ``"diverged"`` or (out of time) ``"budget"``, and then
    ``message`` says why.
    """

    loss: Tensor
    terms: Mapping[str, Tensor]
    evaluations: int = 1
    done: str | None = None
    message: str = ""


class Run(ABC):
    """A solver at work on one objective; its whole state can be saved."""

    @abstractmethod
    def step(self) -> Step:
        """Take one step."""

    def renewed(self) -> None:
        """Called when the points or weights of the objective have changed."""
        return

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state beyond the parameters themselves: tensors and plain numbers."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""


class Solver(ABC):
    """A solver: an immutable record of settings that starts runs.

    ``steps`` is the most steps that it may take, ``look`` how many steps lie between two reports on held-out rows. One that
    ``projects`` may be given an objective whose output weights are eliminated.
    """

    steps: int
    look: int
    projects: ClassVar[bool] = False

    @abstractmethod
    def start(self, objective: Objective) -> Run:
        """Begin to minimise an objective from where its parameters stand."""

    def solve(self, objective: Objective) -> None:
        """Take steps until nothing is left to do, or as many as it may."""
        run = self.start(objective)
        for _ in range(self.steps):
            if run.step().done is not None:
                return

    @property
    def name(self) -> str:
        """The name in histories and reports."""
        return type(self).__name__

    def __repr__(self) -> str:
        """The call that makes the solver, with those arguments that differ from the defaults."""
        shown = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                shown += [f"{key}={_as_code(value)}" for key, value in getattr(self, name).items()]
                continue
            value = getattr(self, name, parameter.default)
            if value != parameter.default and not (parameter.default is None and value == {}):
                shown.append(f"{name}={_as_code(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _as_code(value: object) -> str:
    """A value as an expression in Python: classes and functions by module and name."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if not hasattr(value, "__qualname__"):
        return repr(value)
    # By the outermost package that has it: torch.optim.SGD, and not torch.optim.sgd.SGD.
    rooms = list(itertools.accumulate(value.__module__.split("."), "{}.{}".format))
    home = next((each for each in rooms if getattr(sys.modules.get(each), value.__qualname__, None) is value), rooms[-1])
    return f"{home}.{value.__qualname__}"


def check_settings(given: object, *, whole: str = "", positive: str = "", not_negative: str = "") -> None:
    """Refuse settings out of range by a SolverError; None is not given, whole numbers are at least 1."""
    for fields, wanted, allowed in (
        (
            whole,
            "be positive whole numbers of at least 1",
            lambda value: isinstance(value, Integral) and int(value) > 0,
        ),
        (positive, "be positive", lambda value: value > 0),
        (not_negative, "not be negative", lambda value: value >= 0),
    ):
        names = fields.split()
        values = [getattr(given, name) for name in names]
        if not all(value is None or (not isinstance(value, bool) and allowed(value)) for value in values):
            named = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
            raise SolverError(f"{named} must {wanted}; given: {given}")

"""The interface between the training loop and every rule that sets weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sciml.objective import Objective
from sciml.problem import Problem
from sciml.rows import Block


class Weighting(ABC):
    """A strategy: an immutable record of how the weights of an objective follow from its state.

    ``every`` is how many steps lie between renewals; the loop renews at least once in the middle of a phase, after every redraw
    of points, and when a solver has converged. Between renewals the weights are constants to the solver. The certificate is
    taken without them.
    """

    every: int

    @abstractmethod
    def renew(self, objective: Objective, *, first: bool = False) -> float:
        """Give the objective new weights; how much the largest change was. ``first`` is at the beginning of a phase."""

    @abstractmethod
    def record(self, objective: Objective) -> dict[str, float]:
        """The weights as columns of the history."""

    def judged(self, objective: Objective, blocks: Sequence[Block]) -> tuple[tuple[Block, ...], float]:
        """Held-out blocks with the weights that their points should have, and what is to be added to their loss."""
        return tuple(blocks), 0.0

    def check(self, problem: Problem) -> None:
        """Refuse a problem that the rule does not apply to.

        Raises:
            ProblemError: with the reason.
        """
        return

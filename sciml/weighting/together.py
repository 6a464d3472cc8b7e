"""All rules that set weights in one fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sciml.errors import SolverError
from sciml.objective import Objective
from sciml.problem import Problem
from sciml.rows import Block
from sciml.weighting.balanced import Balanced
from sciml.weighting.base import Weighting
from sciml.weighting.causal import Causal

_NOTICEABLE = 0.01


@dataclass(frozen=True)
class Weightings:
    """The rules by which weights are renewed in one fit, in order."""

    rules: tuple[Weighting, ...] = ()

    @classmethod
    def of(cls, weights: object, causal: object, problem: object) -> Weightings:
        """What the arguments ``weights`` and ``causal`` of ``fit`` mean.

        Raises:
            SolverError: ``causal`` is something else.
            ProblemError: a rule does not apply to the problem.
        """
        if not isinstance(causal, Causal | None):
            raise SolverError(f"causal must be sciml.Causal(...) or None; given: {causal!r}")
        # Points first: how strongly a term pulls depends on their weights.
        rules = tuple(each for each in (causal, weights) if isinstance(each, Weighting))
        if isinstance(problem, Problem):
            for rule in rules:
                rule.check(problem)
        return cls(rules)

    def renew(self, objective: Objective, *, first: bool = False) -> bool:
        """Give the objective new weights; whether that made a difference."""
        return max((rule.renew(objective, first=first) for rule in self.rules), default=0.0) > _NOTICEABLE

    def due(self, count: int, steps: int) -> bool:
        """Whether weights are to be renewed after ``count`` of at most ``steps`` steps."""
        return any(count % min(rule.every, max(1, steps // 2)) == 0 for rule in self.rules)

    def judge(self, objective: Objective, blocks: Sequence[Block], weights: Mapping[str, float]) -> float:
        """The loss on held-out blocks by which states are compared; the weights of terms are fixed, or it could not be."""
        missing = 0.0
        for rule in self.rules:
            blocks, more = rule.judged(objective, blocks)
            missing += more
        return missing + float(sum(weights[name] * term for name, term in objective.means(blocks).items()))

    def record(self, objective: Objective) -> dict[str, float]:
        """The weights as columns of the history."""
        return {name: value for rule in self.rules for name, value in rule.record(objective).items()}


def fixed(weights: Mapping[str, float] | Balanced | None) -> Mapping[str, float] | None:
    """The weights that are numbers and stay."""
    return None if isinstance(weights, Balanced) else weights

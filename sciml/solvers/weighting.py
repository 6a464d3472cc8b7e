"""Loss weights that follow the training: balanced terms, causal points, and the interface of such rules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from sciml._text import listed
from sciml.errors import ProblemError, SolverError
from sciml.geometry import Face, OnFaces
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.solvers.adaptive_sampling import of_equations, squares_at
from sciml.solvers.base import check_settings
from sciml.solvers.objective import Objective


class Weighting(ABC):
    """A rule for weights: an immutable record of how those of an objective follow from its state.

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

    def judged(self, objective: Objective, blocks: Sequence[Collocation]) -> tuple[tuple[Collocation, ...], float]:
        """Held-out blocks with the weights that their points should have, and what is to be added to their loss."""
        return tuple(blocks), 0.0

    def check(self, problem: Problem) -> None:
        """Refuse a problem that the rule does not apply to, by a ProblemError with the reason."""
        return


_METHODS = ("gradient", "ntk")
# Of the mean pull, what is added to each; points of a term for its neural tangent kernel; a change of weights that counts.
_FLOOR, _MOST_POINTS, _NOTICEABLE = 1e-5, 64, 0.01


@dataclass(frozen=True)
class Balanced(Weighting):
    r"""Balanced weights of terms: from their gradients or their neural tangent kernels, in place of fixed ones.

    Every term i has a pull :math:`a_i`: by ``"gradient"`` the norm of its gradient, :math:`\lVert\nabla L_i\rVert`, so that all
    terms change the parameters by as much; by ``"ntk"`` the mean over its points of :math:`\lVert\nabla r_i\rVert^2`, the
    trace of the neural tangent kernel, so that all terms fall at the same rate. With m the mean of the pulls the weights follow

    .. math::  \lambda_i \leftarrow \alpha\lambda_i + (1 - \alpha)\,\frac{m}{a_i + 10^{-5} m},

    and begin every phase at the fraction itself. Their course is in ``solution.history``, in columns ``weight.<term>``.

    Args:
        method: ``"gradient"`` or ``"ntk"``; the latter takes at most 64 points of each term.
        every: steps between renewals.
        smoothing: :math:`\alpha`, the fraction of the old weights that is kept.

    Raises:
        SolverError: an unknown method, or a number out of range.

    Example:
        >>> import sciml
        >>> sciml.Balanced("ntk", every=50).smoothing
        0.9

    Reference: S. Wang, Y. Teng and P. Perdikaris, Understanding and mitigating gradient flow pathologies in physics-informed
    neural networks, SIAM Journal on Scientific Computing 43 (2021); S. Wang, X. Yu and P. Perdikaris, When and why PINNs fail
    to train: a neural tangent kernel perspective, Journal of Computational Physics 449 (2022).
    """

    method: str = "gradient"
    every: int = 100
    smoothing: float = 0.9

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise SolverError(f"method must be one of {listed(_METHODS)}; given: {self.method!r}")
        check_settings(self, whole="every")
        if not 0 <= self.smoothing < 1:
            raise SolverError(f"smoothing must be at least 0 and less than 1; given: {self.smoothing!r}")

    def renew(self, objective: Objective, *, first: bool = False) -> float:
        pulls = gradient_norms(objective) if self.method == "gradient" else tangent_traces(objective)
        mean = sum(pulls.values()) / len(pulls)
        if not 0 < mean < math.inf:
            return 0.0
        keep, changes = 0.0 if first else self.smoothing, [0.0]
        for name, pull in pulls.items():
            old = objective.weights[name]
            objective.weights[name] = new = keep * old + (1 - keep) * mean / (pull + _FLOOR * mean)
            changes.append(abs(new - old) / new)
        return max(changes)

    def record(self, objective: Objective) -> dict[str, float]:
        names = [term.name for block in objective.blocks for term in block.terms]
        return {f"weight.{name}": objective.weights[name] for name in names}


def gradient_norms(objective: Objective) -> dict[str, float]:
    """The norm of the gradient of each term, without its weight."""
    return {name: float(pull.norm()) for name, pull in objective.pulls().items()}


def tangent_traces(objective: Objective) -> dict[str, float]:
    """The mean over points of the squared norm of each row's gradient, without the term's weight."""
    blocks = [block.thinned(_MOST_POINTS) for block in objective.blocks]
    _, slopes = objective.linearised(blocks, dict.fromkeys(objective.weights, 1.0))
    sizes = {term.name: block.size for block in blocks for term in block.terms}
    parts = slopes.square().sum(1).split(list(sizes.values()))
    return {name: float(part.sum()) for name, part in zip(sizes, parts, strict=True)}


@dataclass(frozen=True)
class Causal(Weighting):
    r"""Causal weights of the points inside: equations count at a time only once they hold before it.

    Time is cut into chunks. With :math:`L_k` the sum over the equations of the mean of :math:`(r/s)^2` in chunk k, and
    :math:`L_0` that over the conditions at the start, the points of chunk k weigh

    .. math::  c_k = \exp\Big(-\varepsilon \sum_{j<k} L_j\Big).

    Held-out rows have such weights of their own, and to their loss is added the fraction of time that does not count yet, the
    mean of :math:`1 - c_k`: the best state is the one that has come farthest. The smallest weight is the column ``causal`` of
    ``solution.history``; it nears 1 when all of time is solved. Points on faces and measurements keep their weights.

    Args:
        chunks: the number of chunks.
        strength: :math:`\varepsilon`; the larger, the stricter.
        every: steps between renewals.

    Raises:
        SolverError: a number is not positive.
        ProblemError: in ``fit``, for a problem without time.

    Example:
        >>> import sciml
        >>> sciml.Causal(strength=100.0).chunks
        32

    Reference: S. Wang, S. Sankaran and P. Perdikaris, Respecting causality for training physics-informed neural networks,
    Computer Methods in Applied Mechanics and Engineering 421 (2024).
    """

    chunks: int = 32
    strength: float = 10.0
    every: int = 10

    def __post_init__(self) -> None:
        check_settings(self, whole="chunks every")
        if not 0 < self.strength < math.inf:
            raise SolverError(f"strength must be positive and finite; given: {self}")

    def check(self, problem: Problem) -> None:
        if problem.time is None:
            raise ProblemError(
                f"causal weights need a time coordinate, but {type(problem).__name__} has {listed(problem.coordinates)}: "
                "name it 't', or say which one it is with time = '...' in the class"
            )

    def renew(self, objective: Objective, *, first: bool = False) -> float:
        old, changes = objective.blocks, [0.0]
        objective.blocks, _ = self.judged(objective, old)
        for block, before in zip(objective.blocks, old, strict=True):
            if block.weights is not None:
                weights = torch.ones_like(block.weights) if before.weights is None else before.weights
                changes.append(float((block.weights - weights).abs().max()))
        return max(changes)

    def judged(self, objective: Objective, blocks: Sequence[Collocation]) -> tuple[tuple[Collocation, ...], float]:
        problem = objective.rows.problem
        time = problem.coordinates.index(str(problem.time))
        before, after = problem.domain.bounds[str(problem.time)]
        # Equations share one block: they all live inside.
        block = next((each for each in blocks if of_equations(each)), None)
        if block is None:
            return tuple(blocks), 0.0
        fraction = (block.sample.points[0][:, time] - before) / (after - before)
        chunk = (fraction * self.chunks).long().clamp(0, self.chunks - 1)
        squares = squares_at(objective, block)
        losses = squares.new_zeros(self.chunks).index_add(0, chunk, squares)
        losses = losses / torch.bincount(chunk, minlength=self.chunks).clamp(min=1)
        place = OnFaces((Face(str(problem.time), "lower"),))
        initial = [each for each in blocks if all(term.place == place for term in each.terms)]
        start = sum(float(squares_at(objective, each).mean()) for each in initial)
        exponents = -self.strength * (losses.cumsum(0) - losses + start)
        if not bool(torch.isfinite(exponents).all()):
            return tuple(blocks), math.nan
        found = replace(block, weights=exponents.exp()[chunk])
        return tuple(found if each is block else each for each in blocks), -float(torch.expm1(exponents).mean())

    def record(self, objective: Objective) -> dict[str, float]:
        found = [float(block.weights.min()) for block in objective.blocks if block.weights is not None]
        return {"causal": min(found, default=1.0)}


@dataclass(frozen=True)
class Weightings:
    """The rules by which weights are renewed in one fit, in order."""

    rules: tuple[Weighting, ...] = ()

    @classmethod
    def of(cls, weights: object, causal: object, problem: object) -> Weightings:
        """What the arguments ``weights`` and ``causal`` of ``fit`` mean, refused where a rule does not apply to the problem."""
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

    def judge(self, objective: Objective, blocks: Sequence[Collocation], weights: Mapping[str, float]) -> float:
        """The loss on held-out blocks by which states are compared; the weights of terms are fixed, or it could not be."""
        missing = 0.0
        for rule in self.rules:
            blocks, more = rule.judged(objective, blocks)
            missing += more
        return missing + float(sum(weights[name] * term for name, term in objective.means(blocks).items()))

    def record(self, objective: Objective) -> dict[str, float]:
        """The weights as columns of the history."""
        return {name: value for rule in self.rules for name, value in rule.record(objective).items()}

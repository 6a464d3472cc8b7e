"""Weights of terms that make them pull alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sciml.errors import SolverError, listed
from sciml.objective import Objective
from sciml.weighting.base import Weighting

_METHODS = ("gradient", "ntk")
_FLOOR = 1e-5
_MOST_POINTS = 64


@dataclass(frozen=True)
class Balanced(Weighting):
    r"""Weights of terms from how strongly they pull at the parameters, in place of fixed ones.

    Every term i has a pull :math:`a_i`: by ``"gradient"`` the norm of its gradient, :math:`\lVert\nabla L_i\rVert`, so that all
    terms change the parameters by as much; by ``"ntk"`` the mean over its points of :math:`\lVert\nabla r_i\rVert^2`, the
    trace of the neural tangent kernel, so that all terms fall at the same rate. With m the mean of the pulls the weights follow

    .. math::  \lambda_i \leftarrow \alpha\lambda_i + (1 - \alpha)\,\frac{m}{a_i + 10^{-5} m},

    and begin every phase at the fraction itself. Their course is in ``solution.history``, in columns ``weight.<term>``.

    Args:
        method: ``"gradient"`` or ``"ntk"``; the latter takes at most 64 points of each term.
        every: steps between renewals.
        smoothing: :math:`\alpha`, the share of the old weights that is kept.

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
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise SolverError(f"every must be a positive whole number of steps; given: {self.every!r}")
        if not 0 <= self.smoothing < 1:
            raise SolverError(f"smoothing must be at least 0 and less than 1; given: {self.smoothing!r}")

    def renew(self, objective: Objective, *, first: bool = False) -> float:
        pulls = gradient_norms(objective) if self.method == "gradient" else tangent_traces(objective)
        mean = sum(pulls.values()) / len(pulls)
        if not 0 < mean < math.inf:
            return 0.0
        keep = 0.0 if first else self.smoothing
        change = 0.0
        for name, pull in pulls.items():
            old = objective.weights[name]
            new = keep * old + (1 - keep) * mean / (pull + _FLOOR * mean)
            objective.weights[name] = new
            change = max(change, abs(new - old) / new)
        return change

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

"""Diagnosis of NaN and infinity: the residual, the points and the derivative that stopped being finite numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sciml.jets.calculus import describe
from sciml.problem.collocation import Collocation
from sciml.problem.linearize import linearize, per_point
from sciml.solvers.objective import Objective

_JETS_TOLD = 6
_SINGULAR = (
    "a root, logarithm, quotient or power at its singular point; torch.where differentiates both of its branches: keep the "
    "argument of the one not taken away from there"
)


def described(objective: Objective, otherwise: str, blocks: Sequence[Collocation] | None = None) -> str:
    """The first term whose values, or else whose gradient, are not finite, in a sentence; ``otherwise`` where all are."""
    # A loss of another kind has no residuals to look into.
    if not isinstance(objective, Objective):
        return otherwise
    blocks = objective.blocks if blocks is None else blocks
    if not all(bool(torch.isfinite(parameter).all()) for parameter in objective.parameters):
        block = blocks[0]
        return _at(objective, block, torch.ones(block.size, dtype=torch.bool), "the parameters are")
    single = [Collocation(block.sample, (term,), block.weights) for block in blocks for term in block.terms]
    found = (look(objective, block) for look in (_values, _slopes) for block in single)
    return next(filter(None, found), otherwise)


def _values(objective: Objective, block: Collocation) -> str | None:
    (term,) = block.terms
    evaluation, _ = objective.rows.evaluation(block)
    values = term.evaluate(evaluation).detach()
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        return _at(objective, block, bad, f"the residual {term.name!r} is")
    weights = 1.0 if block.weights is None else block.weights
    bad = ~torch.isfinite(weights * (values / objective.scales[term.name]).square())
    if bool(bad.any()):
        what = f"the square of the residual {term.name!r}, which reaches {float(values.abs().max()):.1e}, is"
        return _at(objective, block, bad, what)
    return None


def _slopes(objective: Objective, block: Collocation) -> str | None:
    """Derivatives by every jet and unknown point by point, then the gradient by the parameters for halves of the points."""
    (term,) = block.terms
    rows = objective.rows
    if _finite_gradient(objective, block):
        return None
    # One value of each unknown a point, so that what is wrong with their derivatives has a place, too.
    leaves, values = per_point(rows.problem, rows.raw, block.size)
    evaluation, _ = rows.evaluation(block, values)
    linear = linearize(term, evaluation, leaves)
    by_jet = [(describe(*key), slope) for each in linear.by_jet for key, slope in each.items()]
    for name, slope in [*by_jet, *linear.by_unknown.items()]:
        bad = ~torch.isfinite(slope)
        if bool(bad.any()):
            what = f"the residual {term.name!r} is finite, but its derivative by {name} is"
            return _at(objective, block, bad, what, _SINGULAR)
    what = f"the residual {term.name!r} is finite, but its gradient by the parameters is"
    while block.size > 1 and block.sample.quadrature is None:
        everything = torch.arange(block.size, device=block.sample.points[0].device)
        halves = [block.part(everything[: block.size // 2]), block.part(everything[block.size // 2 :])]
        smaller = next((half for half in halves if not _finite_gradient(objective, half)), None)
        if smaller is None:
            break
        block = smaller
    bad = torch.ones(block.size, dtype=torch.bool, device=block.sample.points[0].device)
    return _at(objective, block, bad, what, "look at the activations of the model")


def _finite_gradient(objective: Objective, block: Collocation) -> bool:
    (mean,) = objective.terms([block]).values()
    if not mean.requires_grad:
        return True
    parts = torch.autograd.grad(mean, objective.parameters, allow_unused=True)
    return all(part is None or bool(torch.isfinite(part).all()) for part in parts)


def _at(objective: Objective, block: Collocation, bad: Tensor, what: str, why: str = "") -> str:
    """What of a block's first term is not finite, at how many points, where first, the jets there, and a likely cause."""
    first = int(bad.nonzero()[0])
    evaluation, _ = objective.rows.evaluation(block)
    block.terms[0].evaluate(evaluation)
    point = block.sample.points[0][first]
    named = zip(objective.rows.problem.coordinates, point.tolist(), strict=True)
    place = ", ".join(f"{name} = {value:.4g}" for name, value in named)
    jets = {describe(*key): float(values.detach()[first]) for key, values in evaluation.space.jets.items()}
    # What is not finite first: it is what a reader looks for.
    shown = sorted(jets.items(), key=lambda pair: math.isfinite(pair[1]))[:_JETS_TOLD]
    more = f" ({', '.join(f'{name} = {value:.3g}' for name, value in shown)})" if shown else ""
    return f"{what} not finite at {int(bad.sum())} of {len(bad)} points, first at {place}{more}{why and f': {why}'}"

"""Residual system: every residual of a problem at its points, for one trial function and one set of unknowns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from sciml.jets import AnalyticJets, AutogradJets, LinearJets, Supplier, TaylorJets, knows_derivatives
from sciml.jets.linear import Features, SineFeatures, features_at, output_layer
from sciml.jets.taylor import HIGHEST, supports
from sciml.parallel import process_group
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.solvers.batching import BatchSize
from sciml.typing import MultiIndex


class ResidualSystem:
    """The residuals of a problem as functions of a trial function's parameters and the raw unknowns.

    Args:
        problem: the mathematics.
        trial: maps points ``(n, D)`` to fields ``(n, F)``.
        raw: the raw number of each unknown, as in ``Unknown.value``.
        taylor: whether jets may come from Taylor mode; None decides by what the model is made of.
    """

    def __init__(self, problem: Problem, trial: nn.Module, raw: Mapping[str, Tensor], *, taylor: bool | None = None) -> None:
        self.problem = problem
        self.trial = trial
        self.raw = raw
        self.portion = BatchSize()
        self._unknowns = problem.unknowns
        # As long as the points live, for solvers ask again and again.
        self._kept = WeakTensorKeyDictionary()
        self._plans: dict[tuple[str, ...], tuple[MultiIndex, ...]] = {}
        highest = max((len(index) for _, index in problem.system.equations_ask), default=0)
        self.taylor = supports(trial, highest) if taylor is None else taylor
        self._closed = taylor is None and knows_derivatives(trial)

    @property
    def engine(self) -> str:
        """The name of the supplier of jets."""
        if self._closed:
            return AnalyticJets.name
        return TaylorJets.name if self.taylor else AutogradJets.name

    def values(self) -> dict[str, Tensor]:
        """The value of each unknown."""
        return {name: self._unknowns[name].value(raw) for name, raw in self.raw.items()}

    def supplier(self, points: Tensor, plan: Sequence[MultiIndex] = ()) -> Supplier:
        """The supplier of the trial function's jets at points."""
        names, fields = self.problem.coordinates, self.problem.fields
        if self._closed:
            return AnalyticJets(self.trial, points, names, fields)
        if self.taylor and max(map(len, plan), default=0) <= HIGHEST:
            if plan and output_layer(self.trial) is not None:
                return LinearJets(self.trial, fields, self._features(points, plan))
            return TaylorJets(self.trial, points, names, fields, plan)
        return AutogradJets(self.trial, points, names, fields)

    def _features(self, points: Tensor, plan: Sequence[MultiIndex]) -> Features | SineFeatures:
        """The jets of frozen features at points, and those kept from before."""
        known, found = self._kept.get(points, ((), None))
        if found is None or not set(plan) <= set(known):
            found = features_at(self.trial, points, self.problem.coordinates, plan, self.problem.fields)
            self._kept[points] = tuple(plan), found
        return found

    def evaluation(
        self, block: Collocation, values: Mapping[str, Tensor] | None = None
    ) -> tuple[Evaluation, tuple[Supplier, ...]]:
        """What residuals are evaluated on, with the present or other ``values`` of unknowns, and the suppliers of jets."""
        plan = self._plan(block)
        suppliers = tuple(self.supplier(points, plan) for points in block.sample.points)
        bound = self.problem.bind(**(self.values() if values is None else values))
        return Evaluation.of(bound, block.sample.points, suppliers, block.sample.normals), suppliers

    def residuals(self, blocks: Iterable[Collocation]) -> dict[str, Tensor]:
        """Every residual by name, shape ``(n,)`` (as many as means where it is averaged), in its own unit."""
        found: dict[str, Tensor] = {}
        for block in blocks:
            evaluation, _ = self.evaluation(block)
            for term in block.terms:
                values, quadrature = term.evaluate(evaluation), block.sample.quadrature
                found[term.name] = values if quadrature is None else (quadrature @ values).reshape(-1)
        return found

    def numbers(self, blocks: Sequence[Collocation], chunk: int | None = None) -> dict[str, Tensor]:
        """The same without a graph, of parts of the points where memory does not hold all of them at once.

        Args:
            blocks: the points; the processes of a fit divide them, and each has all of the values afterwards.
            chunk: the most points that are taken at a time.

        Raises:
            SolverError: memory does not hold what a single point needs.
        """
        found: dict[str, Tensor] = {}
        for block in blocks:
            own = block.piece(process_group.current().slice_of(block.size)) if block.divided else block
            parts = self.portion.attempt(partial(self._in_parts, own, chunk), own.size)
            for term in block.terms:
                each = [part[term.name] for part in parts]
                whole = each[0] if len(each) == 1 else torch.cat(each)
                if own is not block:
                    whole = process_group.gathered(whole, block.size)
                found[term.name] = whole if block.sample.quadrature is None or len(each) == 1 else torch.stack(each).sum(0)
        return found

    def _in_parts(self, block: Collocation, chunk: int | None, most: int | None) -> list[dict[str, Tensor]]:
        most = min(filter(None, (chunk, most)), default=None)
        parts = (part for _, part in block.parts(most))
        return [{name: each.detach() for name, each in self.residuals([part]).items()} for part in parts]

    def _plan(self, block: Collocation) -> tuple[MultiIndex, ...]:
        """The derivatives that the residuals of a block ask for."""
        key = tuple(term.name for term in block.terms)
        if key not in self._plans:
            asked = {index for term in block.terms for _, index in self.problem.system.asked(term)}
            self._plans[key] = tuple(sorted(asked))
        return self._plans[key]

"""The compiled problem: its terms, the jets that each asks for, orders of derivatives, and whether it is linear."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Opposite, Place, PointSet, draw
from sciml.jets import RandomJets, orders_asked
from sciml.jets.random import JetKind
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Jet, linearize
from sciml.problem.observations import Observation
from sciml.problem.protocol import ProblemLike

Asked = tuple[Jet, ...]

_PROBES = 8


class System:
    """A problem compiled once: what it consists of, found by evaluating its residuals on random jets.

    Every problem has one, ``problem.system``; nobody else evaluates equations to find out what they contain.

    Args:
        problem: the mathematics.

    Example:
        >>> import sciml
        >>> system = sciml.gallery.problem("burgers").system
        >>> system.order("u", "x"), system.order("u", "t")
        (2, 1)
        >>> [term.name for term in system.terms]
        ['momentum', 'initial', 'dirichlet']
    """

    def __init__(self, problem: ProblemLike) -> None:
        self.problem = problem
        self._asked: dict[Term, Asked] = {}
        self._slopes: dict[tuple[Term, Place], dict[Jet, Tensor]] = {}

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every residual: the equations, then the conditions, each under a name of its own."""
        return self.problem.terms()

    @cached_property
    def equations_ask(self) -> Asked:
        """The jets that the equations ask for, by field and multi-index."""
        evaluation = self.probe()
        for term in self.problem.equation_residuals():
            term.evaluate(evaluation)
        return tuple(evaluation.space.jets)

    def order(self, field: str, coordinate: str) -> int:
        """The highest derivative of a field by a coordinate that the equations contain."""
        return orders_asked(self.equations_ask, coordinate).get(field, 0)

    def asked(self, term: Term, sample: PointSet | None = None) -> Asked:
        """The jets that one residual asks for, by field and multi-index.

        ``sample``: the points it is asked at, whose normals may leave derivatives out; None for normals in all directions.
        """
        evaluate = term.evaluate
        if isinstance(evaluate, Observation) and evaluate.function is None:
            assert evaluate.field is not None
            return ((evaluate.field, evaluate.index),)
        if sample is None:
            if term not in self._asked:
                self._asked[term] = _requested(evaluate, self.probe(pair=isinstance(term.place, Opposite)))
            return self._asked[term]
        # Some normals may vanish in one coordinate: all points are needed to see what is asked for.
        few = (sample.part(slice(2)) if sample.normals is None else sample).to(torch.device("cpu"), torch.float64)
        if isinstance(evaluate, Observation):
            evaluate = evaluate.part(torch.arange(len(few.points[0])))
        return _requested(evaluate, self._at(few))

    def slopes(self, term: Term, place: Place | None = None) -> dict[Jet, Tensor]:
        """The derivatives of a residual by the jets that it depends on, at some points of its own or another place."""
        place = term.place if place is None else place
        if (term, place) not in self._slopes:
            sample = draw(place, self.problem.domain, _PROBES, np.random.default_rng(0))
            self._slopes[term, place] = linearize(term, self._at(sample)).jets
        return self._slopes[term, place]

    def depends(self, term: Term) -> Asked:
        """The jets that the value of a residual depends on: those of ``asked`` whose partial derivatives do not vanish."""
        return tuple(self.slopes(term))

    def _at(self, sample: PointSet) -> Evaluation:
        """Random jets at points, with the unknowns at their initial values."""
        jets = [RandomJets(len(points)) for points in sample.points]
        return Evaluation.of(self.problem.bind_initial(), sample.points, jets, sample.normals)

    def probe(self, *, pair: bool = False) -> Evaluation:
        """Random jets at some points of the domain, for finding out what residuals ask for and return."""
        problem, generator = self.problem, torch.Generator().manual_seed(0)
        lower, upper = (
            torch.tensor(each, dtype=torch.float64) for each in (problem.domain.lower, problem.domain.upper)
        )
        points = lower + (upper - lower) * torch.rand(_PROBES, len(lower), dtype=torch.float64, generator=generator)
        return self._at(PointSet((points,) * (2 if pair else 1), torch.ones_like(points)))

    def linear(self, blocks: Iterable[Collocation]) -> bool:
        """Whether every residual is affine in the fields and their derivatives, checked on random jets at these points.

        A problem with unknown constants counts as nonlinear: they multiply fields.
        """
        return not self.problem.unknowns and all(self._affine(block) for block in blocks)

    def _affine(self, block: Collocation) -> bool:
        generator, share = torch.Generator().manual_seed(0), 0.3
        sample = block.sample.to(torch.device("cpu"), torch.float64)
        tables: tuple[list[dict[Jet, Tensor]], ...] = tuple([{} for _ in sample.points] for _ in range(3))

        def residuals(jets: list[dict[Jet, Tensor]]) -> list[Tensor]:
            suppliers = [RandomJets(block.size, kind=JetKind(1.0), generator=generator, table=table) for table in jets]
            evaluation = Evaluation.of(self.problem, sample.points, suppliers, sample.normals)
            return [term.evaluate(evaluation).detach() for term in block.terms]

        first, second = residuals(tables[0]), residuals(tables[1])
        for mixed, one, two in zip(tables[2], tables[0], tables[1], strict=True):
            mixed.update({key: share * one[key] + (1 - share) * two[key] for key in one})
        for value, a, b in zip(residuals(tables[2]), first, second, strict=True):
            gap = (value - share * a - (1 - share) * b).abs().max()
            if not float(gap) <= 1e-9 * float(1 + a.abs().max() + b.abs().max()):
                return False
        return True


def _requested(evaluate: Callable[[Evaluation], Tensor], evaluation: Evaluation) -> Asked:
    """The jets that an evaluation asks for, of all jet spaces together."""
    evaluate(evaluation)
    return tuple(dict.fromkeys(key for space in evaluation.spaces for key in space.jets))

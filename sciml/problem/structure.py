"""The compiled problem: its terms, the jets that each asks for, orders of derivatives, and whether it is linear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Opposite, Place, PointSet, draw
from sciml.jets import RandomJets
from sciml.jets.random import JetKind
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Jet, linearize
from sciml.problem.observations import Observation
from sciml.problem.protocol import ProblemLike

Asked = tuple[Jet, ...]

_PROBES = 8
# By so much of their size the residuals of affine equations may differ from their chord.
_ROUNDING = 1e-9
# How many times its natural size a field may turn out to be, as near a resonance.
_LARGER = 1e6


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
        return self.problem.stated_terms()

    @cached_property
    def equations_ask(self) -> Asked:
        """The jets that the equations ask for, by field and multi-index."""
        evaluation = self.probe()
        for term in self.problem.equation_residuals():
            term.evaluate(evaluation)
        return tuple(evaluation.space.jets)

    def order(self, field: str, coordinate: str) -> int:
        """The highest derivative of a field by a coordinate that the equations contain."""
        return max((index.count(coordinate) for own, index in self.equations_ask if own == field), default=0)

    def asked(self, term: Term) -> Asked:
        """The jets that one residual asks for, by field and multi-index; on sides for normals in any direction."""
        if term not in self._asked:
            if isinstance(term.evaluate, Observation):
                scene = self.probe(min(_PROBES, len(term.evaluate.measured)))
                term.evaluate.part(torch.arange(scene.space.size))(scene)
            else:
                scene = self.probe(pair=isinstance(term.place, Opposite))
                term.evaluate(scene)
            self._asked[term] = tuple(dict.fromkeys(key for space in scene.spaces for key in space.jets))
        return self._asked[term]

    def slopes(self, term: Term, place: Place | None = None) -> dict[Jet, Tensor]:
        """The derivatives of a residual by the jets that it depends on, at some points of its own or another place."""
        place = term.place if place is None else place
        if (term, place) not in self._slopes:
            sample = draw(place, self.problem.domain, _PROBES, np.random.default_rng(0))
            self._slopes[term, place] = linearize(term, self._at(sample)).jets
        return self._slopes[term, place]

    def depends(self, term: Term) -> Asked:
        """The jets that the value of a residual is computed from: some of ``asked`` may enter it in no way."""
        return tuple(self.slopes(term))

    def _at(self, sample: PointSet) -> Evaluation:
        """Random jets at points, with the unknowns at their initial values."""
        jets = [RandomJets(len(points)) for points in sample.points]
        return Evaluation.of(self.problem.bind_initial(), sample.points, jets, sample.normals)

    def probe(self, count: int = _PROBES, *, pair: bool = False, at_once: bool = False) -> Evaluation:
        """Random jets at some points of the domain, or of one time, for finding out what residuals ask for and return."""
        problem, generator = self.problem, torch.Generator().manual_seed(0)
        lower, upper = (torch.tensor(each, dtype=torch.float64) for each in (problem.domain.lower, problem.domain.upper))
        points = lower + (upper - lower) * torch.rand(count, len(lower), dtype=torch.float64, generator=generator)
        if at_once and problem.time is not None:
            points[:, problem.coordinates.index(problem.time)] = points[0, problem.coordinates.index(problem.time)]
        return self._at(PointSet((points,) * (2 if pair else 1), torch.ones_like(points)))

    def linear(self, blocks: Iterable[Collocation], fields: Mapping[str, tuple[float, float]] | None = None) -> bool:
        """Whether every residual is affine in the fields and their derivatives, checked on random jets at these points.

        ``fields`` are centre and size of each field in its unit: what is curved at that size may look straight at another, and
        a million times that size is asked for as well. A
        problem with unknown constants counts as nonlinear: they multiply fields.
        """
        own, given = dict(fields or {}), list(blocks)
        # What looks straight at a small size may be curved at that of the solution, as sin u.
        larger = {name: (center, _LARGER * size) for name, (center, size) in own.items()}
        return not self.problem.unknowns and all(self._affine(block, sizes) for sizes in (own, larger) for block in given)

    def _affine(self, block: Collocation, fields: Mapping[str, tuple[float, float]]) -> bool:
        generator, part = torch.Generator().manual_seed(0), 0.3
        sample = block.sample.to(torch.device("cpu"), torch.float64)
        tables: tuple[list[dict[Jet, Tensor]], ...] = tuple([{} for _ in sample.points] for _ in range(3))

        def residuals(jets: list[dict[Jet, Tensor]]) -> list[Tensor]:
            half_widths = self.problem.domain.half_widths
            suppliers = [
                RandomJets(block.size, fields, half_widths, JetKind(1.0), generator=generator, table=table) for table in jets
            ]
            evaluation = Evaluation.of(self.problem, sample.points, suppliers, sample.normals)
            return [term.evaluate(evaluation).detach() for term in block.terms]

        first, second = residuals(tables[0]), residuals(tables[1])
        for mixed, one, two in zip(tables[2], tables[0], tables[1], strict=True):
            mixed.update({key: part * one[key] + (1 - part) * two[key] for key in one})
        for value, a, b in zip(residuals(tables[2]), first, second, strict=True):
            gap = (value - part * a - (1 - part) * b).abs().max()
            if not float(gap) <= _ROUNDING * float(a.abs().max() + b.abs().max()):
                return False
        return True

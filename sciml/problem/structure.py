"""The compiled problem: its terms, the jets that each asks for, orders of derivatives, and whether it is linear."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from sciml.geometry import OnFaces, Opposite
from sciml.jets import JetSpace, RandomJets, orders_asked
from sciml.jets.random import JetKind
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.protocol import ProblemLike
from sciml.typing import MultiIndex

Asked = tuple[tuple[str, MultiIndex], ...]

_PROBES = 4


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
        self._asked: dict[str, Asked] = {}

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every residual: the equations, then the conditions, each under a name of its own."""
        return self.problem.terms()

    @cached_property
    def equations_ask(self) -> Asked:
        """The jets that the equations ask for, by field and multi-index."""
        scene = self.scene()
        for term in self.problem.equation_residuals():
            term.evaluate(scene)
        return tuple(scene.space.jets)

    def order(self, field: str, coordinate: str) -> int:
        """The highest derivative of a field by a coordinate that the equations contain."""
        return orders_asked(self.equations_ask, coordinate).get(field, 0)

    def asked(self, term: Term) -> Asked:
        """The jets that one residual asks for, by field and multi-index."""
        if term.name not in self._asked:
            scene = self.scene(pair=isinstance(term.place, Opposite))
            term.evaluate(scene)
            self._asked[term.name] = tuple(dict.fromkeys(key for space in scene.spaces for key in space.jets))
        return self._asked[term.name]

    def depends(self, term: Term) -> Asked:
        """The jets that the value of a residual depends on: those of ``asked`` whose partial derivatives do not vanish."""
        scene = self.scene()
        if isinstance(term.place, OnFaces):
            normals = torch.zeros(_PROBES, len(self.problem.coordinates), dtype=torch.float64)
            columns = [self.problem.coordinates.index(str(face.coordinate)) for face in term.place.faces]
            normals[:, columns] = 1.0
            scene = replace(scene, normals=normals)
        value, keys = term.evaluate(scene), tuple(scene.space.jets)
        if not keys or not value.requires_grad:
            return ()
        slopes = torch.autograd.grad(value.sum(), [scene.space.jets[key] for key in keys], allow_unused=True)
        return tuple(key for key, slope in zip(keys, slopes, strict=True) if slope is not None)

    def scene(self, *, pair: bool = False) -> Evaluation:
        """Random jets at some points of the domain, for finding out what residuals ask for and return."""
        problem, generator = self.problem, torch.Generator().manual_seed(0)
        lower, upper = (
            torch.tensor(each, dtype=torch.float64) for each in (problem.domain.lower, problem.domain.upper)
        )
        points = lower + (upper - lower) * torch.rand(_PROBES, len(lower), dtype=torch.float64, generator=generator)
        columns = dict(zip(problem.coordinates, points.unbind(1), strict=True))
        spaces = tuple(JetSpace(columns, problem.fields, RandomJets(_PROBES)) for _ in range(2 if pair else 1))
        return Evaluation(problem.bind_initial(), spaces, torch.ones_like(points))

    def linear(self, blocks: Iterable[Collocation]) -> bool:
        """Whether every residual is affine in the fields and their derivatives, checked on random jets at these points.

        A problem with unknown constants counts as nonlinear: they multiply fields.
        """
        return not self.problem.unknowns and all(self._affine(block) for block in blocks)

    def _affine(self, block: Collocation) -> bool:
        generator, share = torch.Generator().manual_seed(0), 0.3
        sample = block.sample.to(torch.device("cpu"), torch.float64)
        tables: tuple[list[dict[tuple[str, MultiIndex], Tensor]], ...] = tuple(
            [{} for _ in sample.points] for _ in range(3)
        )

        def residuals(jets: list[dict[tuple[str, MultiIndex], Tensor]]) -> list[Tensor]:
            spaces = tuple(
                JetSpace(
                    dict(zip(self.problem.coordinates, points.unbind(1), strict=True)),
                    self.problem.fields,
                    RandomJets(len(points), kind=JetKind(1.0), generator=generator, table=table),
                )
                for points, table in zip(sample.points, jets, strict=True)
            )
            scene = Evaluation(self.problem, spaces, sample.normals)
            return [term.evaluate(scene).detach() for term in block.terms]

        first, second = residuals(tables[0]), residuals(tables[1])
        for mixed, one, two in zip(tables[2], tables[0], tables[1], strict=True):
            mixed.update({key: share * one[key] + (1 - share) * two[key] for key in one})
        for value, a, b in zip(residuals(tables[2]), first, second, strict=True):
            gap = (value - share * a - (1 - share) * b).abs().max()
            if not float(gap) <= 1e-9 * float(1 + a.abs().max() + b.abs().max()):
                return False
        return True

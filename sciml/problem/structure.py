"""Whether a problem is linear, found out by numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from sciml.jets import JetSpace
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.problem import Problem
from sciml.typing import MultiIndex, Values


class _GivenJets:
    """Jets out of a table, random at the first request for each."""

    def __init__(self, table: dict[tuple[str, MultiIndex], Tensor], size: int, generator: torch.Generator) -> None:
        self._table, self._size, self._generator = table, size, generator

    def jet(self, field: str, index: MultiIndex) -> Values:
        key = (field, index)
        if key not in self._table:
            self._table[key] = torch.randn(self._size, dtype=torch.float64, generator=self._generator)
        return self._table[key]


def is_linear(problem: Problem, blocks: tuple[Collocation, ...]) -> bool:
    """Whether every residual is affine in the fields and their derivatives, checked on random jets.

    A problem with unknown constants counts as nonlinear: they multiply fields.
    """
    return not problem.unknowns and all(_is_affine(problem, block) for block in blocks)


def _is_affine(problem: Problem, block: Collocation) -> bool:
    generator = torch.Generator().manual_seed(0)
    names = problem.coordinates
    sample = block.sample.to(torch.device("cpu"), torch.float64)
    size = len(sample.points[0])
    tables: list[list[dict[tuple[str, MultiIndex], Tensor]]] = [[{} for _ in sample.points] for _ in range(2)]

    def residuals(jets: list[dict[tuple[str, MultiIndex], Tensor]]) -> list[Tensor]:
        spaces = tuple(
            JetSpace(
                dict(zip(names, points.unbind(1), strict=True)), problem.fields, _GivenJets(table, size, generator)
            )
            for points, table in zip(sample.points, jets, strict=True)
        )
        return [term.evaluate(Evaluation(problem, spaces, sample.normals)).detach() for term in block.terms]

    first, second = residuals(tables[0]), residuals(tables[1])
    share = 0.3
    mixed = [{key: share * a[key] + (1 - share) * b[key] for key in a} for a, b in zip(*tables, strict=True)]
    for value, one, two in zip(residuals(mixed), first, second, strict=True):
        gap = (value - share * one - (1 - share) * two).abs().max()
        if not float(gap) <= 1e-9 * float(1 + one.abs().max() + two.abs().max()):
            return False
    return True

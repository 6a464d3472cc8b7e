"""Rows: every residual of a problem at its points, for one trial function and one set of unknowns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sciml.conditions import Scene, Term
from sciml.derivative import JetSpace, Supplier
from sciml.domains import Interior
from sciml.errors import ProblemError
from sciml.jets import AutogradJets
from sciml.problem import Problem
from sciml.sampling import Sample
from sciml.table import Table

SupplierFactory = Callable[[nn.Module, Tensor, Sequence[str], Sequence[str]], Supplier]


@dataclass(frozen=True)
class Block:
    """Points, and the residuals that are evaluated there together."""

    sample: Sample
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """The number of points, a pair counting once."""
        return len(self.sample.points[0])


class Rows:
    """The residuals of a problem as functions of a trial function's parameters and the raw unknowns.

    Args:
        problem: the mathematics.
        trial: maps points ``(n, D)`` to fields ``(n, F)``.
        raw: the raw number of each unknown, as in ``Unknown.value``.
        supplier: makes the jets of the trial function at points.
    """

    def __init__(
        self,
        problem: Problem,
        trial: nn.Module,
        raw: Mapping[str, Tensor],
        supplier: SupplierFactory = AutogradJets,
    ) -> None:
        self.problem = problem
        self.trial = trial
        self.raw = raw
        self._supplier = supplier
        self._unknowns = problem.unknowns

    def values(self) -> dict[str, Tensor]:
        """The value of each unknown."""
        return {name: unknown.value(self.raw[name]) for name, unknown in self._unknowns.items()}

    def space(self, points: Tensor) -> JetSpace:
        """The coordinates and jets at points."""
        names, fields = self.problem.coordinates, self.problem.fields
        supplier = self._supplier(self.trial, points, names, fields)
        return JetSpace(dict(zip(names, points.unbind(1), strict=True)), fields, supplier)

    def scene(self, sample: Sample) -> Scene:
        """What residuals are evaluated on at the points of a sample."""
        spaces = tuple(self.space(points) for points in sample.points)
        return Scene(self.problem.bind(**self.values()), spaces, sample.normals)

    def residuals(self, blocks: Iterable[Block]) -> dict[str, Tensor]:
        """Every residual by name, shape ``(n,)``, in its own unit."""
        found: dict[str, Tensor] = {}
        for block in blocks:
            scene = self.scene(block.sample)
            for term in block.terms:
                found[term.name] = term.evaluate(scene)
        return found


def data_block(problem: Problem, table: Table) -> Block:
    """The measurements of a table as residuals ``data.<field>``: field minus measured value at the measured points.

    Raises:
        ProblemError: a coordinate is missing from the table, or no column is a field of the problem.
    """
    missing = [name for name in problem.coordinates if name not in table.columns]
    measured = [name for name in problem.fields if name in table.columns]
    if missing or not measured:
        raise ProblemError(
            f"the data ({table!r}) must have the coordinates {problem.coordinates} and at least one of the fields "
            f"{problem.fields} as columns; use columns={{'{problem.coordinates[0]}': '<name in the file>', ...}} to map them"
        )
    points = torch.tensor([table[name].tolist() for name in problem.coordinates], dtype=torch.float64).T.contiguous()
    terms = []
    for field in measured:
        column = torch.tensor(table[field].tolist(), dtype=torch.float64)
        terms.append(Term(f"data.{field}", Interior(), _misfit(field, column), field, measured=True))
    return Block(Sample((points,)), tuple(terms))


def _misfit(field: str, measured: Tensor) -> Callable[[Scene], Tensor]:
    seen = ~measured.isnan()

    def residual(scene: Scene) -> Tensor:
        values = scene.space.jet(field)
        return (values - measured.to(values))[seen.to(values.device)]

    return residual

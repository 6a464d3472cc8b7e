"""Natural sizes of fields and residuals, so that every loss term is a number of order one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.jets import JetSpace
from sciml.problem import Normal, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.observations import Observation, Prior
from sciml.typing import MultiIndex, Values


@dataclass(frozen=True)
class Sizes:
    """Centre and size of each field, in its unit, in the order of the problem's fields."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def named(self, problem: Problem) -> dict[str, tuple[float, float]]:
        """Centre and size of each of the problem's fields by name."""
        return dict(zip(problem.fields, zip(self.offset, self.scale, strict=True), strict=True))


class _NaturalJets:
    """Random jets as large as fields of the given sizes have that vary over the extent of the domain."""

    def __init__(self, problem: Problem, sizes: Sizes, count: int, generator: torch.Generator) -> None:
        self._offset = dict(zip(problem.fields, sizes.offset, strict=True))
        self._scale = dict(zip(problem.fields, sizes.scale, strict=True))
        self._reach = {name: (upper - lower) / 2 for name, (lower, upper) in problem.domain.bounds.items()}
        self._count = count
        self._generator = generator

    def jet(self, field: str, index: MultiIndex) -> Values:
        noise = torch.randn(self._count, dtype=torch.float64, generator=self._generator)
        size = self._scale[field] / math.prod(self._reach[name] for name in index)
        return size * noise + (0.0 if index else self._offset[field])


def field_sizes(problem: Problem, blocks: Sequence[Collocation]) -> Sizes:
    """The centre and size of every field.

    Measured fields take the mean and standard deviation of their column; other fields the largest value that an initial
    or Dirichlet condition prescribes; fields about which nothing is prescribed but zeros take the size at which the
    equations balance their own inhomogeneous parts (a source), or 1.
    """
    offset = dict.fromkeys(problem.fields, 0.0)
    scale = dict.fromkeys(problem.fields, 0.0)
    zeros = Sizes((0.0,) * len(offset), (0.0,) * len(scale))
    residuals = _on_natural_jets(problem, blocks, zeros)
    terms = [term for block in blocks for term in block.terms if term.field is not None]
    for term in sorted(terms, key=lambda term: term.measured):
        assert term.field is not None
        # With every jet zero, the residual "field less prescribed value" is minus the prescribed value.
        prescribed = term.evaluate.measured if isinstance(term.evaluate, Observation) else -residuals[term.name]
        if not term.measured:
            scale[term.field] = max(scale[term.field], float(prescribed.abs().max()))
        elif float(prescribed.std(correction=0)) > 0:
            offset[term.field] = float(prescribed.mean())
            scale[term.field] = float(prescribed.std(correction=0))

    def sizes(of_silent: float) -> Sizes:
        return Sizes(tuple(offset.values()), tuple(size if size > 0 else of_silent for size in scale.values()))

    return sizes(_balance(problem, blocks, sizes(0.0), sizes(1.0)))


def term_sizes(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes) -> dict[str, float]:
    """The natural size of every residual, in its unit.

    For a misfit it is the size of what was measured, so that columns count alike whatever their units; but columns whose
    noise is known have one size in common, because their rows are in standard deviations, as those of priors are. For any other
    residual it is the median on random jets of natural size, scaled to a standard deviation.
    """
    scale = dict(zip(problem.fields, sizes.scale, strict=True))
    residuals = _on_natural_jets(problem, blocks, sizes)
    found, in_deviations = {}, []
    for block in blocks:
        for term in block.terms:
            size = _typical(residuals[term.name])
            if isinstance(term.evaluate, Observation):
                size = _misfit_size(term.evaluate, scale)
                in_deviations += [term.name] if term.evaluate.sigma is not None else []
            found[term.name] = size if math.isfinite(size) and size > 0 else 1.0
    found |= _alike(blocks, found)
    if in_deviations:
        # Of the most exact column, so that its rows do not outweigh equations.
        common = max(found[name] for name in in_deviations)
        found |= dict.fromkeys(in_deviations, common)
        found |= {term.name: common for block in blocks for term in block.terms if isinstance(term.evaluate, Prior)}
    return found


def _alike(blocks: Sequence[Collocation], sizes: Mapping[str, float]) -> dict[str, float]:
    """One size for columns of one kind, whose noise is the same: that of the one that varies most."""
    kinds: dict[str, list[str]] = {}
    for block in blocks:
        for term in block.terms:
            if isinstance(term.evaluate, Observation) and term.evaluate.alike:
                kinds.setdefault(term.evaluate.alike, []).append(term.name)
    return {name: max(sizes[each] for each in names) for names in kinds.values() for name in names}


def _misfit_size(misfit: Observation, scale: Mapping[str, float]) -> float:
    """How large the rows of measurements are that nothing explains; of a column that does not vary, as large as its field."""
    if misfit.plain and misfit.sigma is None and isinstance(misfit.noise, Normal):
        assert misfit.field is not None
        return scale[misfit.field]
    size, largest = misfit.size, float(misfit.measured.abs().max())
    typical = misfit.typical_sigma
    return size if size > 1e-9 * largest / typical else max(largest / typical, 1.0)


def _balance(problem: Problem, blocks: Sequence[Collocation], without: Sizes, with_unit: Sizes) -> float:
    """The size at which the fields that nothing prescribes would balance the sources of the equations."""

    def equations(sizes: Sizes) -> float:
        residuals = _on_natural_jets(problem, blocks, sizes)
        return max((_typical(residuals[name]) for name in problem.equations), default=0.0)

    if without == with_unit:
        return 1.0
    source, unit = equations(without), equations(with_unit)
    ratio = source / unit if unit > 0 else 1.0
    return ratio if math.isfinite(ratio) and ratio > 0 else 1.0


def _on_natural_jets(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes) -> dict[str, Tensor]:
    """Every residual on random jets of the given sizes."""
    generator = torch.Generator().manual_seed(0)
    bound = problem.bind_initial()
    found = {}
    for block in blocks:
        spaces = tuple(
            JetSpace(
                dict(zip(problem.coordinates, points.unbind(1), strict=True)),
                problem.fields,
                _NaturalJets(problem, sizes, len(points), generator),
            )
            for points in block.sample.points
        )
        scene = Evaluation(bound, spaces, block.sample.normals)
        for term in block.terms:
            found[term.name] = term.evaluate(scene).detach()
    return found


def _typical(values: Tensor) -> float:
    """A robust standard deviation about zero of the finite values; 0 when there are none."""
    finite = values[torch.isfinite(values)].abs()
    return 1.4826 * float(finite.quantile(0.5)) if len(finite) else 0.0

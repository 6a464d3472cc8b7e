"""Natural sizes of fields and residuals, so that every loss term is a number of order one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from sciml.jets import RandomJets
from sciml.jets.random import USUAL
from sciml.problem import Normal, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.observations import Observation, Prior

Sizes: TypeAlias = dict[str, tuple[float, float]]
"""Centre and size of each field, in its unit, in the order of the problem's fields."""
_ROUNDING = 2.0**-52


def field_sizes(problem: Problem, blocks: Sequence[Collocation]) -> Sizes:
    """The centre and size of every field.

    Measured fields take the mean and standard deviation of their column; other fields the largest value that an initial
    or Dirichlet condition prescribes; fields about which nothing is prescribed but zeros take the size at which the
    equations balance their own inhomogeneous parts (a source), or 1. What is less than rounding beside the largest of all
    prescribed values is a zero, such as the tail of a pulse.
    """
    offset = dict.fromkeys(problem.fields, 0.0)
    scale = dict.fromkeys(problem.fields, 0.0)
    residuals = _on_natural_jets(problem, blocks, dict.fromkeys(problem.fields, (0.0, 0.0)))
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

    largest = max(scale.values(), default=0.0)
    scale = {name: size if size > _ROUNDING * largest else 0.0 for name, size in scale.items()}

    def sizes(silent: float) -> Sizes:
        """``silent`` for the fields about which nothing is prescribed but zeros."""
        return {name: (offset[name], size if size > 0 else silent) for name, size in scale.items()}

    def equations(silent: float) -> float:
        residuals = _on_natural_jets(problem, blocks, sizes(silent))
        return max((_typical(residuals[name]) for name in problem.equations), default=0.0)

    if all(size > 0 for size in scale.values()):
        return sizes(1.0)
    # Of sources, by residuals of unit fields: where both balance.
    source, unit = equations(0.0), equations(1.0)
    ratio = source / unit if unit > 0 else 1.0
    return sizes(ratio if math.isfinite(ratio) and ratio > 0 else 1.0)


def term_sizes(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes, least_draws: int = 1) -> dict[str, float]:
    """The natural size of every residual, in its unit: of columns that of what was measured, of others a median.

    The median is that of one random jet at each point, and of ``least_draws`` where points are fewer.
    """
    residuals = _on_natural_jets(problem, blocks, sizes, least_draws)
    found, in_deviations, kinds = dict[str, float](), list[str](), dict[str, list[str]]()
    for block in blocks:
        for term in block.terms:
            size = _typical(residuals[term.name])
            if isinstance(term.evaluate, Observation):
                size = _misfit_size(term.evaluate, sizes)
                in_deviations += [term.name] if term.evaluate.sigma is not None else []
                if term.evaluate.alike:
                    kinds.setdefault(term.evaluate.alike, []).append(term.name)
            found[term.name] = size if math.isfinite(size) and size > 0 else 1.0
    # Columns of one kind, whose noise is the same, have one size: that of the one that varies most.
    for names in kinds.values():
        found |= dict.fromkeys(names, max(found[name] for name in names))
    if in_deviations:
        # Of the most exact column, so that its rows do not outweigh equations.
        common = max(found[name] for name in in_deviations)
        found |= dict.fromkeys(in_deviations, common)
        found |= {term.name: common for block in blocks for term in block.terms if isinstance(term.evaluate, Prior)}
    return found


def _misfit_size(misfit: Observation, sizes: Sizes) -> float:
    """The size of rows of measurements that nothing explains; that of its field for a column that does not vary."""
    if misfit.plain and misfit.sigma is None and isinstance(misfit.noise, Normal):
        assert misfit.field is not None
        return sizes[misfit.field][1]
    size, largest = misfit.size, float(misfit.measured.abs().max())
    typical = misfit.typical_sigma
    return size if size > 1e-9 * largest / typical else max(largest / typical, 1.0)


def judged_sizes(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes) -> dict[str, float]:
    """The natural sizes that residuals are reported relative to: the same for every method, also at a single point.

    A median of 256 draws scatters by a tenth, that of one by its whole size; a weight in a loss may.
    """
    return term_sizes(problem, blocks, sizes, 256)


def _on_natural_jets(problem: Problem, blocks: Sequence[Collocation], sizes: Sizes, least_draws: int = 1) -> dict[str, Tensor]:
    """Every residual on random jets as large as fields of the given sizes have that vary over the extent of the domain."""
    generator, bound, found = torch.Generator().manual_seed(0), problem.bind_initial(), dict[str, Tensor]()
    half_widths = problem.domain.half_widths
    for number, block in enumerate(blocks):
        drawn = generator
        if block.size < least_draws and block.sample.quadrature is None:
            # One jet at one point says little of what is usual: several there, of numbers that leave other blocks their own.
            block = block.part(torch.arange(block.size).repeat(-(-least_draws // block.size)))
            drawn = torch.Generator().manual_seed(1 + number)
        jets = [RandomJets(block.size, sizes, half_widths, USUAL[0], generator=drawn) for _ in block.sample.points]
        evaluation = Evaluation.of(bound, block.sample.points, jets, block.sample.normals)
        found |= {term.name: term.evaluate(evaluation).detach() for term in block.terms}
    return found


def _typical(values: Tensor) -> float:
    """A robust standard deviation about zero of the finite values; 0 when there are none."""
    finite = values[torch.isfinite(values)].abs()
    return 1.4826 * float(finite.quantile(0.5)) if len(finite) else 0.0

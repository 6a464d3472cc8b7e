"""Discretization of a problem: a model, points of training and of validation, residuals, scales and weights of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from sciml._text import listed, nearest, whole
from sciml.diagnostics.model_checks import check_model
from sciml.errors import ProblemError, SolverError
from sciml.geometry import SpectralPoints
from sciml.models import Scaled
from sciml.problem import Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import data_blocks, prior_blocks, resolve_data
from sciml.problem.narrow_features import narrow_features, with_features
from sciml.problem.observations import is_measured
from sciml.problem.pulses import pulses
from sciml.solvers import HardConstraints, ResidualSystem
from sciml.solvers.discrete_problem import (
    CONDITION_WEIGHT,
    DATA_WEIGHT,
    DiscreteProblem,
    blocks_of,
    built_model,
    device_of,
    independent_sets,
)
from sciml.solvers.hard_constraints import construct
from sciml.solvers.scaling import field_sizes, judged_sizes, term_sizes
from sciml.typing import Array

_ENOUGH_TO_HOLD_OUT, _MOST_HELD_OUT = 200, 20_000


def prepare(
    problem: Problem,
    model: nn.Module | None,
    data: object,
    points: int | Mapping[str, int] | None,
    weights: Mapping[str, float] | None,
    dtype: torch.dtype,
    device: str | torch.device,
    seed: int,
    exact: bool | HardConstraints = False,
) -> DiscreteProblem:
    """Check everything and put it in place; see ``sciml.fit`` for the arguments and the errors raised."""
    if dtype not in (torch.float32, torch.float64):
        raise SolverError(f"dtype must be torch.float64 or torch.float32; given: {dtype}")
    seed = whole("seed", seed, 0, SolverError)
    if not isinstance(points, int | Mapping | None) or isinstance(points, bool):
        raise ProblemError(f"points must be a whole number or numbers by term; given: {points!r}")
    if not isinstance(weights, Mapping | None):
        raise ProblemError(f"weights must be numbers by term, as in {{'initial': 100.0}}; given: {weights!r}")
    problem.reference_values({name: [sum(ends) / 2] * 2 for name, ends in problem.domain.bounds.items()})
    construction = construct(problem, HardConstraints.of(exact))
    choices: list[str] = list(construction.notes)
    measurements = resolve_data(problem, data)
    terms = problem.terms()
    if not terms and measurements is None:
        raise ProblemError(f"{type(problem).__name__} has no equation, no condition and no data: nothing to fit")
    if measurements is None and not problem.conditions and problem.system.equations_ask:
        raise ProblemError(
            f"{type(problem).__name__} has equations but neither conditions nor data, so infinitely many solutions: add "
            "conditions = [...], or pass data="
        )
    held_rows = None if measurements is None else _held_rows(measurements, problem, seed)
    known = prior_blocks(problem)
    sets, (narrow, stops) = [], pulses(problem)
    drawn, implied = independent_sets(problem, points, seed, narrow)
    for purpose, blocks in enumerate(drawn):
        if measurements is not None and held_rows is not None:
            keep = held_rows if purpose else ~held_rows
            blocks += data_blocks(
                problem, measurements if not held_rows.any() else measurements.on(measurements.table.take(keep))
            )
        sets.append([*blocks, *known])
    sets[-1] += implied
    if measurements is not None and held_rows is not None:
        table, unused = measurements.table, measurements.unused(problem)
        choices += measurements.notes
        if unused:
            choices.append(f"columns not used: {listed(unused)}")
        held = int(held_rows.sum())
        choices.append(
            f"{held} of {len(table)} measured rows held out to judge by"
            if held
            else f"all {len(table)} measured rows used both to fit and to judge: too few to hold any out"
        )
    sizes = field_sizes(problem, sets[0])
    scales = term_sizes(problem, [*sets[0], *implied], sizes)
    natural = judged_sizes(problem, [*sets[0], *implied], sizes)
    # Sizes are those of the whole, and each set has points of its own where data are narrow.
    features = narrow_features(problem)
    sets = [with_features(blocks, features, purpose, len(sets)) for purpose, blocks in enumerate(sets)]
    names = [term.name for block in sets[0] for term in block.terms]
    final = _weights(problem, names, weights, _shares(sets[0]))
    led = {name: final[name] / DATA_WEIGHT for name in names if is_measured(name)}
    leading = {**final, **led} if weights is None else final
    chosen = built_model(model, problem, seed, choices, construction)
    scaled = Scaled(chosen, problem.domain.lower, problem.domain.upper, *zip(*sizes.values(), strict=True))
    rows, size = sum(block.size for block in sets[0]), sum(parameter.numel() for parameter in scaled.parameters())
    where = device_of(device, rows * size)
    scaled = scaled.to(device=where, dtype=dtype).train()
    check_model(scaled, problem)
    raw = {name: unknown.raw_initial().to(where, dtype) for name, unknown in problem.unknowns.items()}
    trial = construction.around(scaled)
    for value in raw.values():
        value.requires_grad_()
    train, held_out, fresh = (tuple(block.to(where, dtype) for block in blocks) for blocks in sets)
    train, held_out = (construction.rows_left(scaled, blocks) for blocks in (train, held_out))
    if not train:
        raise ProblemError("every condition is held exactly and there is nothing else to fit: add equations or data")
    data = tuple(block for block in train if any(term.measured for term in block.terms))

    def redraw(inside: int | SpectralPoints, generator: np.random.Generator) -> tuple[Collocation, ...]:
        drawn = [block.to(where, dtype) for block in blocks_of(problem, terms, inside, generator, narrow)]
        drawn = with_features(drawn, features, 0, len(sets))
        return (*construction.rows_left(scaled, drawn), *data)

    return DiscreteProblem(
        problem=problem,
        measurements=measurements,
        trial=trial,
        raw=raw,
        rows=ResidualSystem(problem, trial, raw),
        train=train,
        held=held_out,
        fresh=fresh,
        scales=scales,
        weights=final,
        leading=leading,
        choices=tuple(choices),
        held_rows=held_rows,
        draw=redraw,
        natural=natural,
        pulses=narrow,
        stops=stops,
        narrow=features,
    )


def _held_rows(measurements: Measurements, problem: Problem, seed: int) -> Array:
    """Which rows to keep for judging: a tenth of a large table, so many at most; none of one with few values in some column."""
    table = measurements.table
    held = np.zeros(len(table), dtype=bool)
    measured = [np.isfinite(table[column]) for column in measurements.observables(problem)]
    if min(int(seen.sum()) for seen in measured) >= _ENOUGH_TO_HOLD_OUT:
        count = min(len(table) // 10, _MOST_HELD_OUT)
        held[np.random.default_rng(seed).permutation(len(table))[:count]] = True
        if not all((seen & held).any() and (seen & ~held).any() for seen in measured):
            held[:] = False
    return held


def _shares(blocks: Sequence[Collocation]) -> dict[str, float]:
    """How much each column weighs: every measurement the same, whatever the number of its column's values."""
    sizes = {term.name: block.size for block in blocks for term in block.terms if term.measured}
    return {name: size / max(sizes.values()) for name, size in sizes.items()}


def _weights(
    problem: Problem, names: Sequence[str], given: Mapping[str, float] | None, shares: Mapping[str, float]
) -> dict[str, float]:
    weights = {
        name: 1.0 if name in problem.equations else DATA_WEIGHT * shares[name] if name in shares else CONDITION_WEIGHT
        for name in names
    }
    if not problem.equations:
        weights = {name: shares.get(name, 1.0) for name in weights}
    for key, value in (given or {}).items():
        meant = [name for name in names if key in (name, name.partition(".")[0])]
        if not meant:
            raise ProblemError(f"weights names {key!r}; it may name {listed(names)}.{nearest(key, names)}")
        if not (isinstance(value, int | float) and 0 <= value < float("inf")):
            raise ProblemError(f"weights: {key!r} needs a number that is not negative; given: {value!r}")
        weights.update(dict.fromkeys(meant, float(value)))
    return weights

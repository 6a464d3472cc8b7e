"""From what a person handed to ``fit`` to what a solver needs: model, points, scales, weights, all checked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml.conditions import Term
from sciml.domains import Average, Interior, Place, Within
from sciml.errors import ModelError, ProblemError, SolverError, listed, nearest
from sciml.exact import Construction, Exact, construct
from sciml.journal import Journal
from sciml.measurements import Measurements, data_blocks, prior_blocks, resolve_data
from sciml.misfit import is_measured
from sciml.model_checks import check_model
from sciml.models import MLP, RandomFeatures, Scaled
from sciml.models.layered import Layered
from sciml.problem import Problem
from sciml.rows import Block, Rows
from sciml.sampling import Layout, default_count, default_face_count, draw
from sciml.scaling import field_sizes, term_sizes
from sciml.table import Table
from sciml.typing import Array
from sciml.uncertainty import Inference

CONDITION_WEIGHT = 10.0
DATA_WEIGHT = 0.01
_ENOUGH_TO_HOLD_OUT = 200


@dataclass(frozen=True)
class Setup:
    """Everything that a training loop needs, on one device and in one dtype.

    ``train``, ``held`` and ``fresh`` are blocks at three independent sets of points: to train on, to judge by while
    training, and for the certificate at the end. ``draw`` makes training blocks with another number of points inside.
    ``held_rows`` says which rows of the table are held out, shape ``(n,)``, boolean. ``journal`` knows what was computed before
    an interruption.
    """

    problem: Problem
    measurements: Measurements | None
    trial: Any
    raw: dict[str, Tensor]
    rows: Rows
    train: tuple[Block, ...]
    held: tuple[Block, ...]
    fresh: tuple[Block, ...]
    scales: dict[str, float]
    weights: dict[str, float]
    leading: dict[str, float]
    choices: tuple[str, ...]
    held_rows: Any
    draw: Callable[[int | Layout, np.random.Generator], tuple[Block, ...]]
    inference: Inference | None = None
    journal: Journal = field(default_factory=Journal)

    @property
    def table(self) -> Table | None:
        """The table of measurements, if there is one."""
        return None if self.measurements is None else self.measurements.table

    @property
    def parameters(self) -> list[Tensor]:
        """The tensors to be varied."""
        return [parameter for parameter in self.trial.parameters() if parameter.requires_grad] + list(self.raw.values())


def prepare(
    problem: Problem,
    model: nn.Module | None,
    data: object,
    points: int | Mapping[str, int] | None,
    weights: Mapping[str, float] | None,
    dtype: torch.dtype,
    device: str | torch.device,
    seed: int,
    exact: bool | Exact = False,
) -> Setup:
    """Check everything and put it in place; see ``sciml.fit`` for the arguments and the errors raised."""
    if dtype not in (torch.float32, torch.float64):
        raise SolverError(f"dtype must be torch.float64 or torch.float32; given: {dtype}")
    seed = checked_seed(seed)
    if not isinstance(points, int | Mapping | None) or isinstance(points, bool):
        raise ProblemError(f"points must be a whole number or numbers by term; given: {points!r}")
    if not isinstance(weights, Mapping | None):
        raise ProblemError(f"weights must be numbers by term, as in {{'initial': 100.0}}; given: {weights!r}")
    where = device_of(device)
    problem.reference_values({name: [sum(ends) / 2] * 2 for name, ends in problem.domain.bounds.items()})
    construction = construct(problem, Exact.of(exact))
    choices: list[str] = list(construction.notes)
    measurements = resolve_data(problem, data)
    terms = problem.terms()
    if not terms and measurements is None:
        raise ProblemError(f"{type(problem).__name__} has no equation, no condition and no data: nothing to fit")
    if measurements is None and not problem.conditions and problem.asked():
        raise ProblemError(
            f"{type(problem).__name__} has equations but neither conditions nor data, so infinitely many solutions: add "
            "conditions = [...], or pass data="
        )
    held_rows = None if measurements is None else _held_rows(measurements, problem, seed)
    known = prior_blocks(problem)
    sets = []
    for purpose, generator in enumerate(np.random.SeedSequence(seed).spawn(3)):
        blocks = blocks_of(problem, terms, points, np.random.default_rng(generator))
        if measurements is not None and held_rows is not None:
            keep = held_rows if purpose else ~held_rows
            blocks += data_blocks(problem, measurements if not held_rows.any() else _part(measurements, keep))
        sets.append([*blocks, *known])
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
    scales = term_sizes(problem, sets[0], sizes)
    names = [term.name for block in sets[0] for term in block.terms]
    final = _weights(problem, names, weights, _shares(sets[0]))
    led = {name: final[name] / DATA_WEIGHT for name in names if is_measured(name)}
    leading = {**final, **led} if weights is None else final
    chosen = built_model(model, problem, seed, choices, construction)
    scaled = Scaled(chosen, problem.domain.lower, problem.domain.upper, sizes.offset, sizes.scale)
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

    def redraw(inside: int | Layout, generator: np.random.Generator) -> tuple[Block, ...]:
        drawn = [block.to(where, dtype) for block in blocks_of(problem, terms, inside, generator)]
        return (*construction.rows_left(scaled, drawn), *data)

    return Setup(
        problem=problem,
        measurements=measurements,
        trial=trial,
        raw=raw,
        rows=Rows(problem, trial, raw),
        train=train,
        held=held_out,
        fresh=fresh,
        scales=scales,
        weights=final,
        leading=leading,
        choices=tuple(choices),
        held_rows=held_rows,
        draw=redraw,
    )


def checked_seed(seed: object) -> int:
    """A seed as a number.

    Raises:
        SolverError: it is no whole number, or negative.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SolverError(f"seed must be a whole number that is not negative; given: {seed!r}")
    return int(seed)


def with_features(setup: Setup, count: int, scale: float | Sequence[float], seed: int) -> Setup:
    """The set-up with fresh random features for its model, all weights zero, and unknowns as they were at the start."""
    problem, old = setup.problem, setup.trial
    model = RandomFeatures(count, scale)
    model.build(len(problem.coordinates), len(problem.fields), torch.Generator().manual_seed(seed))
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, old.offset.tolist(), old.scale.tolist())
    trial = trial.to(device=old.offset.device, dtype=old.offset.dtype)
    raw = {name: unknown.raw_initial().to(old.offset).requires_grad_() for name, unknown in problem.unknowns.items()}
    return replace(setup, trial=trial, raw=raw, rows=Rows(problem, trial, raw))


def device_of(device: str | torch.device) -> torch.device:
    """The device that is meant; ``"auto"`` is a GPU where there is one.

    Raises:
        SolverError: it cannot be used.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise SolverError(f"device {str(device)!r} cannot be used here ({error}); use 'auto' or 'cpu'") from error
    return found


def blocks_of(
    problem: Problem,
    terms: Iterable[Term],
    points: int | Mapping[str, int] | Layout | None,
    generator: np.random.Generator,
) -> list[Block]:
    """One block for each place, with all residuals that live there."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    if isinstance(points, Layout):
        domain = problem.domain
        return [Block(points.draw(place, domain, generator), tuple(there)) for place, there in places.items()]
    wanted = {"interior": points} if isinstance(points, int) else dict(points or {})
    known = {"interior", *(name for term in terms for name in (term.name, term.name.partition(".")[0]))}
    for name, count in wanted.items():
        if name not in known:
            raise ProblemError(f"points names {name!r}; it may name {listed(sorted(known))}.{nearest(name, known)}")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ProblemError(f"points: {name!r} needs a positive whole number of points; given: {count!r}")
    inside = wanted.get("interior", default_count(problem.domain))
    on_face = default_face_count(problem.domain, inside)
    blocks = []
    for place, there in places.items():
        default = inside if isinstance(place, Interior | Within) or place == Average(Interior()) else on_face
        asked = [wanted[key] for term in there for key in (term.name, term.name.partition(".")[0]) if key in wanted]
        sample = draw(place, problem.domain, max(asked, default=default), generator)
        blocks.append(Block(sample, tuple(there)))
    return blocks


def _held_rows(measurements: Measurements, problem: Problem, seed: int) -> Array:
    """Which rows of a table to keep for judging: a tenth of a large table, none of one with few values in some column."""
    table = measurements.table
    held = np.zeros(len(table), dtype=bool)
    measured = [np.isfinite(table[column]) for column in measurements.observables(problem)]
    if min(int(seen.sum()) for seen in measured) >= _ENOUGH_TO_HOLD_OUT:
        held[np.random.default_rng(seed).permutation(len(table))[: len(table) // 10]] = True
        if not all((seen & held).any() and (seen & ~held).any() for seen in measured):
            held[:] = False
    return held


def _part(measurements: Measurements, keep: Array) -> Measurements:
    table = measurements.table
    part = Table({name: table[name][keep] for name in table.columns}, source=table.source, missing="mask")
    return measurements.on(part)


def _shares(blocks: Sequence[Block]) -> dict[str, float]:
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


def built_model(
    model: nn.Module | None, problem: Problem, seed: int, choices: list[str], construction: Construction
) -> nn.Module:
    """A copy of the model, built where that was left to us; the caller's generators are as they were afterwards.

    Raises:
        ModelError: it is no module.
    """
    inputs, outputs = len(problem.coordinates), len(problem.fields)
    if model is None:
        model = MLP(32, 32) if inputs == 1 else MLP(20, 20, 20, 20)
        choices.append(f"model: {model.extra_repr()} for {inputs} coordinate(s)")
    if not isinstance(model, nn.Module):
        hint = " (a class: call it)" if isinstance(model, type) else ""
        raise ModelError(f"a model must be a torch.nn.Module; given: {type(model).__name__}{hint}")
    with torch.random.fork_rng(devices=[]):
        # For lazy layers of the user's, which draw from the global generator at their first call.
        torch.manual_seed(seed)
        copied = copy.deepcopy(model)
        if isinstance(copied, Layered) and not len(copied.layers):
            copied.build(construction.inputs, outputs, torch.Generator().manual_seed(seed))
        elif any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in copied.parameters()):
            copied(torch.zeros(2, construction.inputs))
    return construction.periodised(copied, choices)

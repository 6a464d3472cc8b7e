"""From what a person handed to ``fit`` to what a solver needs: model, points, scales, weights, all checked."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import first_line, listed, nearest
from sciml.data import Table
from sciml.errors import ModelError, ProblemError, SolverError
from sciml.geometry import (
    Average,
    Interior,
    Place,
    PointSet,
    SpectralPoints,
    Within,
    default_count,
    default_face_count,
    draw,
)
from sciml.models import MLP, RandomFeatures, Scaled, Spectral
from sciml.models.base import SequentialModel
from sciml.parallel import process_group
from sciml.problem import Measurements, Problem
from sciml.problem.boundary_conditions import periodic_fields
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.observations import is_measured
from sciml.problem.pulses import with_pulses
from sciml.solvers.hard_constraints import Ansatz
from sciml.solvers.journal import Journal
from sciml.solvers.objective import Objective
from sciml.solvers.residuals import ResidualSystem

CONDITION_WEIGHT = 10.0
DATA_WEIGHT = 0.01
_ROWS_A_WEIGHT = 1.5
# Rows times weights above which an H100 was as fast as eight cores (docs/gpu.md).
_WORTH_A_GPU = 1.5e7


@dataclass(frozen=True)
class DiscreteProblem:
    """Everything that a training loop needs, on one device and in one dtype.

    ``train``, ``held`` and ``fresh`` are blocks at three independent sets of points: to train on, to judge by while
    training, and for the certificate at the end. ``draw`` makes training blocks with another number of points inside.
    ``held_rows`` says which rows of the table are held out, shape ``(n,)``, boolean. ``journal`` knows what was computed before
    an interruption. ``scales`` divide the rows of the loss; the certificate's residuals are relative to the ``natural`` sizes,
    where there are such. ``pulses``, ``(k, D)``, are places at whose times sets of points have some;
    ``stops`` are the times at which steps and windows end, there and at jumps; ``narrow`` are points of places where their data
    are narrow.
    """

    problem: Problem
    measurements: Measurements | None
    trial: Any
    raw: dict[str, Tensor]
    rows: ResidualSystem
    train: tuple[Collocation, ...]
    held: tuple[Collocation, ...]
    fresh: tuple[Collocation, ...]
    scales: dict[str, float]
    weights: dict[str, float]
    leading: dict[str, float]
    choices: tuple[str, ...]
    held_rows: Any
    draw: Callable[[int | SpectralPoints, np.random.Generator], tuple[Collocation, ...]]
    inference: Any = None
    natural: Mapping[str, float] = field(default_factory=dict)
    pulses: Tensor = field(default_factory=lambda: torch.zeros(0, 1))
    stops: Sequence[float] = ()
    narrow: Mapping[Place, PointSet] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)

    @property
    def table(self) -> Table | None:
        """The table of measurements, if there is one."""
        return None if self.measurements is None else self.measurements.table

    @property
    def sizes(self) -> dict[str, tuple[float, float]]:
        """Centre and size of each field that the trial function is scaled by."""
        ends = zip(self.trial.offset.tolist(), self.trial.scale.tolist(), strict=True)
        return dict(zip(self.problem.fields, ends, strict=True))

    @property
    def parameters(self) -> list[Tensor]:
        """The tensors to be varied."""
        return [parameter for parameter in self.trial.parameters() if parameter.requires_grad] + list(self.raw.values())

    def objective(self, points: Sequence[Collocation] | None = None, weights: Mapping[str, float] | None = None) -> Objective:
        """The loss at the training points, or at others, with the weights of terms or with others."""
        points, weights = self.train if points is None else points, self.weights if weights is None else weights
        return Objective(self.rows, tuple(points), self.scales, dict(weights), self.parameters)

    def with_model(self, model: nn.Module, *, problem: Problem | None = None, **changes: Any) -> DiscreteProblem:
        """The same set-up with another model between the same units.

        Args:
            model: maps coordinates scaled to [-1, 1] to fields of order one.
            problem: the problem on another domain, to which the coordinates are scaled then.
            changes: further fields of the set-up, such as ``train`` or ``raw``.
        """
        stated, old = self.problem if problem is None else problem, self.trial
        domain = stated.domain
        trial = Scaled(model, domain.lower, domain.upper, old.offset.tolist(), old.scale.tolist())
        return self.with_trial(trial.to(old.offset), problem=stated, **changes)

    def with_trial(self, trial: nn.Module, **changes: Any) -> DiscreteProblem:
        """The same set-up with another trial function, in physical units."""
        found = replace(self, trial=trial, **changes)
        return replace(found, rows=ResidualSystem(found.problem, trial, found.raw))

    def with_data_weight(self, weight: float) -> DiscreteProblem:
        """The same set-up with measurements of another weight; the caller's weights of columns keep their proportions."""
        ratio = weight / DATA_WEIGHT
        weights = {name: ratio * each if is_measured(name) else each for name, each in self.weights.items()}
        return replace(self, weights=weights, leading=weights)

    def with_unknowns(self, raw: Mapping[str, Tensor] | None = None) -> DiscreteProblem:
        """The same set-up with copies of raw numbers for its unknowns: these, or their initial ones."""
        start = {name: unknown.raw_initial().to(self.trial.offset) for name, unknown in self.problem.unknowns.items()}
        found = start if raw is None else {name: value.to(self.trial.offset) for name, value in raw.items()}
        own = {name: value.detach().clone().requires_grad_() for name, value in found.items()}
        return replace(self, raw=own, rows=ResidualSystem(self.problem, self.trial, own))


def with_features(setup: DiscreteProblem, count: int, scale: float | Sequence[float], seed: int) -> DiscreteProblem:
    """The set-up with fresh random features for its model, all weights zero, and unknowns as they were at the start."""
    problem = setup.problem
    model = RandomFeatures(count, scale)
    model.build(len(problem.coordinates), len(problem.fields), torch.Generator().manual_seed(seed))
    return setup.with_model(model).with_unknowns()


def with_polynomials(
    setup: DiscreteProblem,
    degree: int | Sequence[int],
    generator: np.random.Generator,
    periodic: Sequence[int] = (),
    raw: Mapping[str, Tensor] | None = None,
) -> DiscreteProblem:
    """The set-up with products of polynomials for its model, all weights zero, points for it, and copies of raw numbers."""
    problem = setup.problem
    model = Spectral(degree, periodic=periodic)
    model.build(len(problem.coordinates), len(problem.fields), torch.Generator())
    return setup.with_model(model, train=setup.draw(layout_of(model, problem), generator)).with_unknowns(raw)


def device_of(device: str | torch.device, work: float = math.inf) -> torch.device:
    """The device that is meant; ``"auto"`` is a GPU where there is one and the work, rows times weights, is worth it."""
    automatic = device == "auto"
    if automatic:
        device = "cuda" if work >= _WORTH_A_GPU and torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        if found.type == "cuda" and found.index is None and process_group.several():
            found = torch.device("cuda", process_group.local_device())
        # To ask a GPU itself takes a second and half a gigabyte: one that is there need not be asked.
        found = found if automatic else torch.empty(0, device=found).device
    except (RuntimeError, AssertionError, TypeError) as error:
        why = first_line(error)
        there = f"there are {torch.cuda.device_count()} GPU(s) here"
        raise SolverError(f"device {str(device)!r} cannot be used ({why}); {there}: use 'auto' or 'cpu'") from error
    return found


def blocks_of(
    problem: Problem,
    terms: Iterable[Term],
    points: int | Mapping[str, int] | SpectralPoints | None,
    generator: np.random.Generator,
    pulses: Tensor | None = None,
) -> list[Collocation]:
    """One block for each place, with all residuals that live there, and points at ``pulses`` ``(k, D)``."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    if isinstance(points, SpectralPoints):
        domain = problem.domain
        return [Collocation(points.draw(place, domain, generator), tuple(there)) for place, there in places.items()]
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
        volume = place.over if isinstance(place, Average) else place
        default = inside if isinstance(volume, Interior | Within) else on_face
        asked = [wanted[key] for term in there for key in (term.name, term.name.partition(".")[0]) if key in wanted]
        sample = draw(place, problem.domain, max(asked, default=default), generator)
        if pulses is not None:
            sample = with_pulses(problem, place, sample, pulses)
        blocks.append(Collocation(sample, tuple(there)))
    return blocks


def independent_sets(
    problem: Problem, points: int | Mapping[str, int] | SpectralPoints | None, seed: int, pulses: Tensor
) -> tuple[list[list[Collocation]], list[Collocation]]:
    """Three independent sets of collocation points, to train, to judge by and to certify; and what else is only certified."""
    generators = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    sets = [blocks_of(problem, problem.terms(), points, generator, pulses) for generator in generators]
    return sets, blocks_of(problem, problem.implied_terms(), None, np.random.default_rng(seed))


def built_model(model: nn.Module | None, problem: Problem, seed: int, choices: list[str], construction: Ansatz) -> nn.Module:
    """A copy of the model, built where that was left to us; the caller's generators are as they were afterwards."""
    inputs, outputs = len(problem.coordinates), len(problem.fields)
    if model is None:
        model = MLP(32, 32) if inputs == 1 else MLP(20, 20, 20, 20)
        choices.append(f"model: {model.extra_repr()} for {inputs} coordinate(s)")
    if not isinstance(model, nn.Module):
        table = isinstance(model, Mapping) or hasattr(model, "columns")
        hint = " (a class: call it)" if isinstance(model, type) else "; measurements are passed as data=..." if table else ""
        raise ModelError(f"a model must be a torch.nn.Module; given: {type(model).__name__}{hint}")
    inside = getattr(model, "_orig_mod", None)
    if isinstance(inside, nn.Module):
        # Compiled modules can be differentiated once; residuals and their slopes need more.
        choices.append(f"model: the {type(inside).__name__} that was handed to torch.compile, not compiled")
        model = inside
    with torch.random.fork_rng(devices=[]):
        # For lazy layers of the user's, which draw from the global generator at their first call.
        torch.manual_seed(seed)
        copied = copy.deepcopy(model)
        if isinstance(copied, SequentialModel) and not len(copied.layers):
            copied.build(construction.inputs, outputs, torch.Generator().manual_seed(seed))
        elif any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in copied.parameters()):
            copied(torch.zeros(2, construction.inputs))
    return construction.periodised(copied, choices)


def wave_columns(problem: Problem) -> tuple[int, ...]:
    """The columns of the coordinates in which every field is periodic."""
    found = periodic_fields(problem.conditions, problem.fields)
    return tuple(k for k, name in enumerate(problem.coordinates) if found.get(name, set()) >= set(problem.fields))


def layout_of(model: Spectral, problem: Problem) -> SpectralPoints:
    """Points for a spectral trial function: a small multiple of its weights inside, and of its functions on each face."""
    basis = model.basis
    rows = _ROWS_A_WEIGHT * basis.width * len(problem.fields) / max(1, len(problem.equations))
    across = {}
    for column, name in enumerate(problem.coordinates):
        functions = len({product[:column] + product[column + 1 :] for product in basis.products})
        across[name] = math.ceil(_ROWS_A_WEIGHT * functions)
    return SpectralPoints(math.ceil(rows), across, model.periodic)

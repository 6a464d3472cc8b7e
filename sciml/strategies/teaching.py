r"""Teaching (knowledge distillation): a network learns the values of a solution that another strategy found.

Residuals say little of the error: a network that is trained on the equations alone may have small residuals and be far off.
Where polynomials, tiles or windows solve the problem in seconds, the network N learns their solution u,

.. math::  \min_N \sum_i \lvert N(x_i) - u(x_i)\rvert^2,

at points of which half lie where u is steep. What is left is its distance from u, which is known.

Reference: G. Hinton, O. Vinyals and J. Dean, Distilling the knowledge in a neural network, 2015.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml.diagnostics.certificate import Certificate
from sciml.diagnostics.estimated_error import relative_l2, significant
from sciml.geometry import Interior, OnFaces, PointSet, draw
from sciml.jets import jets_of
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.observations import Observation
from sciml.solvers import DiscreteProblem
from sciml.solvers.batching import predicted
from sciml.strategies.network import Train
from sciml.strategies.search import STOPPED, Candidate, Strategy, Workspace, search
from sciml.strategies.training import Training, usual_stages
from sciml.typing import Array

# Of the budget of time, for finding what to learn from.
_SHARE = 1 / 3
# Points for each weight, and how many at least and at most; candidates for steep ones; the part that lies on the boundary.
_POINTS_A_WEIGHT, _FEWEST, _MOST, _CANDIDATES, _BOUNDARY = 2, 2000, 4000, 8, 0.1
_FRESH = 4096
# Starts of a network: as the caller made it; and where it did not learn, with a first layer that is steeper.
_STARTS, _LEARNED = ((1.0, "taught"), (4.0, "taught from a steeper start")), 0.03
_PREFIX = "taught."


@dataclass(frozen=True)
class Teach(Strategy):
    """The caller's network, taught by the best solution that other strategies find; without one it is trained by equations.

    Args:
        train: how the network is trained where nothing can teach it.
        ways: the strategies that look for a solution to learn from.
        teacher: such a solution's trial function, if it is known.
    """

    train: Train
    ways: tuple[Strategy, ...] = ()
    teacher: nn.Module | None = None

    dense = True

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        try:
            found = self._found(work)
        except KeyboardInterrupt:
            # Nothing was found yet: the network is as the caller made it.
            setup = work.prepared(self.train.model, work.options.points, work.options.exact)
            yield Candidate(setup, math.inf, "none", solved=False, status="interrupted")
            return
        if found is None:
            yield from self.train.candidates(work, best)
            return
        setup = work.prepared(self.train.model, work.options.points, work.options.exact)
        setup = setup.with_unknowns(found.discrete.raw)
        if setup.measurements is not None:
            setup = replace(setup, inference=Certificate.issue(found.discrete, math.inf).inference)
        now = Candidate(setup, math.inf, "none", accepted=True, sufficient=True, teacher=found.discrete, spread=found.spread)
        if found.status in STOPPED:
            now = replace(now, status=found.status, message=found.message)
        else:
            work.log.begin()
            solver = _learned(work, setup, found.discrete.trial)
            now = replace(now, solver=solver, status=work.log.status, message=work.log.message)
        errors = distances(setup, found.discrete.trial, work.seed)
        worst = max(errors.values())
        reason = (
            f"taught: learned the solution of {found.solver} ({found.reason or 'given as teacher'}), of which it misses "
            f"{worst:.1e} in the relative L2 norm; equations were not trained on"
        )
        yield replace(now, residual=worst, reason=reason, errors=errors)

    def _found(self, work: Workspace) -> Candidate | None:
        """A solution that is good enough to learn from."""
        if self.teacher is not None:
            teacher = copy.deepcopy(self.teacher).cpu()
            return Candidate(work.on_cpu.discrete.with_trial(teacher), 0.0, type(teacher).__name__)
        log, whole = work.log, work.log.budget
        log.budget = replace(whole, seconds=log.seconds + _SHARE * (whole.seconds - log.seconds))
        try:
            found = search(self.ways, work)
        finally:
            log.budget, spent, log.spent = whole, log.spent, False
        # That the share of time for the search is over is nobody's wish for the end.
        stopped = found is not None and found.status in STOPPED and not spent
        if found is None or found.doubt or not (found.accepted or found.sufficient or stopped):
            work.choices.append("nothing could be found to learn from: trained on the equations")
            log.begin()
            return None
        return found


def _learned(work: Workspace, setup: DiscreteProblem, teacher: nn.Module) -> str:
    """Fit the network of a set-up to a teacher's values, in the best of some starts; the names of the solvers."""
    seed, best, least = work.seed, None, math.inf
    weights = sum(parameter.numel() for parameter in setup.trial.parameters() if parameter.requires_grad)
    stages, start = usual_stages(weights), copy.deepcopy(setup.trial.state_dict())
    count = min(max(_POINTS_A_WEIGHT * weights // len(setup.problem.fields), _FEWEST), _MOST)
    taught = lesson(setup, teacher, count, seed)
    for factor, label in _STARTS:
        if factor != 1.0 and not _steeper(setup, start, factor, seed):
            break
        Training(work.log, work.options.early_stopping).run(taught, stages, seed, f", {label}")
        reached = max(distances(setup, teacher, seed).values())
        if best is None or reached < least:
            best, least = copy.deepcopy(setup.trial.state_dict()), reached
        if least <= _LEARNED or work.log.ended:
            break
    assert best is not None
    setup.trial.load_state_dict(best)
    return ", ".join(each.name for each in stages)


def _steeper(setup: DiscreteProblem, start: Mapping[str, Any], factor: float, seed: int) -> bool:
    """Begin anew, with a first layer so many times as steep about places spread over the domain; whether there is one."""
    setup.trial.load_state_dict(start)
    inputs = len(setup.problem.coordinates)
    first = next((each for each in setup.trial.model.modules() if isinstance(each, nn.Linear)), None)
    if first is None or first.in_features != inputs or first.bias is None:
        return False
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        first.weight.mul_(factor)
        places = 2 * torch.rand(first.out_features, inputs, generator=generator, dtype=torch.float64) - 1
        first.bias.copy_(-(first.weight * places.to(first.weight)).sum(1))
    return True


def lesson(setup: DiscreteProblem, teacher: nn.Module, count: int, seed: int) -> DiscreteProblem:
    """The set-up whose rows are the values of a teacher, at points half of which lie where it is steep."""
    problem = setup.problem
    generator = np.random.default_rng([seed, 40])
    sizes: dict[str, float] = {}
    like, sets = setup.trial.offset, list[list[Collocation]]()
    for _ in range(2):
        sets.append([])
        points = torch.from_numpy(_points(problem, teacher, count, generator))
        values = predicted(teacher, points)
        groups: dict[bytes, list[int]] = {}
        for number, name in enumerate(problem.fields):
            groups.setdefault(problem.lives_at(name, points).numpy().tobytes(), []).append(number)
        for lives, numbers in groups.items():
            there = torch.from_numpy(np.frombuffer(lives, dtype=bool).copy())
            terms = []
            for number in numbers:
                field, own = problem.fields[number], values[there, number]
                sizes.setdefault(_PREFIX + field, _size(own))
                terms.append(Term(_PREFIX + field, Interior(), Observation(field, own.to(like)), field))
            sets[-1].append(Collocation(PointSet((points[there].to(like),)), tuple(terms)))
    train, held = map(tuple, sets)
    names = [_PREFIX + name for name in problem.fields]
    sizes = dict(zip(names, significant([sizes[name] for name in names], setup.trial), strict=True))
    ones = dict.fromkeys(sizes, 1.0)
    changes: dict[str, Any] = {"train": train, "held": held, "scales": sizes, "weights": ones, "leading": ones}
    # What was measured tells nothing more: unknowns stay as the teacher has them.
    return setup.with_trial(setup.trial, problem=problem.bind_initial(), raw={}, **changes)


def _size(values: Tensor) -> float:
    spread = float(values.std()) if len(values) > 1 else 0.0
    return spread or float(values.abs().max())


def _points(problem: Problem, teacher: nn.Module, count: int, generator: np.random.Generator) -> Array:
    """Even points, steep ones and some of the boundary, ``(n, D)``."""
    domain = problem.domain
    even = draw(Interior(), domain, (count + 1) // 2, generator).points[0].numpy()
    candidates = draw(Interior(), domain, _CANDIDATES * count, generator).points[0].numpy()
    found = [even, steepest(teacher, problem, candidates, count // 2, generator)]
    if sides := tuple(domain.sides):
        found.append(draw(OnFaces(sides), domain, max(1, round(_BOUNDARY * count / len(sides))), generator).points[0].numpy())
    return np.concatenate(found)


def steepest(trial: nn.Module, problem: Problem, candidates: Array, count: int, generator: np.random.Generator) -> Array:
    """Some of the candidates, drawn by the slopes of the fields in units of the domain and of their own size."""
    found = jets_of(trial, torch.from_numpy(candidates), problem.coordinates, problem.fields)
    steep = np.zeros(len(candidates))
    for field in problem.fields:
        size = max(float(found.jet(field, ()).detach().std()), 1e-300)
        for name, (low, high) in problem.domain.bounds.items():
            slope = found.jet(field, (name,)).detach().double().cpu().numpy()
            steep += ((high - low) * slope / size) ** 2
    steep = np.sqrt(np.where(np.isfinite(steep), steep, 0.0))
    chances = steep / steep.sum() if steep.sum() > 0 else np.full(len(steep), 1 / len(steep))
    # A little everywhere, so that enough candidates can be drawn.
    chances = 0.9 * chances + 0.1 / len(chances)
    return candidates[generator.choice(len(candidates), count, replace=False, p=chances)]


def distances(setup: DiscreteProblem, teacher: nn.Module, seed: int) -> Mapping[str, float]:
    """The relative L2 distance of each field from a teacher, on fresh points where the field lives."""
    problem = setup.problem
    points = draw(Interior(), problem.domain, _FRESH, np.random.default_rng([seed, 42])).points[0]
    own, true = (predicted(each, points) for each in (setup.trial, teacher))
    return relative_l2(problem, points, own - true, true, teacher)

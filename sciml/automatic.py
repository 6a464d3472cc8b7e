"""Random features of the whole domain, their scale and number picked by the residual on held-out points."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sciml.callbacks import Callback, Look
from sciml.conditions import Scene
from sciml.derivative import JetSpace
from sciml.models import RandomFeatures
from sciml.objective import Objective
from sciml.problem import Problem
from sciml.rows import Block
from sciml.sampling import Sample
from sciml.setup import Setup, with_features
from sciml.solvers import GaussNewton
from sciml.solvers.linear import rank_revealing
from sciml.typing import MultiIndex, Values

_SCALES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_COUNTS = {1: (60, 120, 240, 480), 2: (200, 400, 800, 1200, 1600), 3: (400, 800, 1600, 2400)}
_COUNTS_BEYOND = (500, 2000)
_SCALES_BEYOND = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_UNRESOLVED = 0.03
_EXACT = 1e-9
_ENOUGH = 0.01
_GOOD = 1e-4
_HELD = 0.25
_STEPS = 7
_MOST_WEIGHTS = 1800
_HOPELESS = 0.2
_FEW = 4
POINTS_A_FEATURE = 3


@dataclass(frozen=True)
class Found:
    """What solves a problem without a person's choosing: a set-up with the solution in it, and what it took.

    ``relative`` is the largest relative residual on held-out rows, ``reason`` the choice and why, ``solver`` what it was done
    with, ``ended`` how the search did (a status of ``Solution``), ``limit`` the residual that a network hardly betters.
    """

    setup: Setup
    relative: float
    solver: str
    reason: str
    solves: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    ended: str = "converged"
    limit: float = _GOOD

    @property
    def taken(self) -> bool:
        """Whether this is the answer: it is good, or nobody wants to wait for a better one."""
        return self.good or self.ended in ("stopped", "interrupted")

    @property
    def good(self) -> bool:
        """Whether the residual is small enough for a network hardly to do better."""
        return self.relative <= self.limit


class _GivenJets:
    """Jets out of a table, random at the first request for each."""

    def __init__(self, table: dict[tuple[str, MultiIndex], Tensor], size: int, generator: torch.Generator) -> None:
        self._table, self._size, self._generator = table, size, generator

    def jet(self, field: str, index: MultiIndex) -> Values:
        key = (field, index)
        if key not in self._table:
            self._table[key] = torch.randn(self._size, dtype=torch.float64, generator=self._generator)
        return self._table[key]


def is_linear(problem: Problem, blocks: tuple[Block, ...]) -> bool:
    """Whether every residual is affine in the fields and their derivatives, checked on random jets.

    A problem with unknown constants counts as nonlinear: they multiply fields.
    """
    return not problem.unknowns and all(_is_affine(problem, block) for block in blocks)


def _is_affine(problem: Problem, block: Block) -> bool:
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
        return [term.evaluate(Scene(problem, spaces, sample.normals)).detach() for term in block.terms]

    first, second = residuals(tables[0]), residuals(tables[1])
    share = 0.3
    mixed = [{key: share * a[key] + (1 - share) * b[key] for key in a} for a, b in zip(*tables, strict=True)]
    for value, one, two in zip(residuals(mixed), first, second, strict=True):
        gap = (value - share * one - (1 - share) * two).abs().max()
        if not float(gap) <= 1e-9 * float(1 + one.abs().max() + two.abs().max()):
            return False
    return True


def counts_of(dimension: int) -> tuple[int, ...]:
    """The numbers of features that are tried for a number of coordinates."""
    return _COUNTS.get(dimension, _COUNTS_BEYOND)


def most_points(dimension: int) -> int:
    """The number of points inside that the largest number of features asks for."""
    return POINTS_A_FEATURE * counts_of(dimension)[-1]


def solve_by_features(
    setup: Setup, seed: int, tolerance: float, *, linear: bool, watchers: Sequence[Callback] = ()
) -> Found:
    """The best of random features of several scales and numbers, by the residual on held-out points.

    For the smallest number all scales are tried; for each larger one the best so far and its neighbours, until the
    held-out residual is far below anything a person would ask for, or falls no more. Ctrl-C ends the search with the best
    so far, if there is one.

    Args:
        setup: a problem with as many points as ``most_points`` says; smaller numbers of features use a part.
        seed: seed of the features.
        tolerance: a relative residual that is wished for; the search never stops above the smaller of it and 1e-9 while
            more features help.
        linear: whether the problem is linear in its fields; if not, Gauss-Newton steps take the place of one solve.
        watchers: see every solve; a true return value ends the search.
    """
    search = _Search(setup, seed, linear, watchers)
    ended = "converged"
    try:
        if search.run(min(tolerance, _EXACT)):
            ended = "stopped"
    except KeyboardInterrupt:
        ended = "interrupted"
    if search.best is None:
        raise KeyboardInterrupt
    model = search.best.setup.trial.model
    why, how = (
        ("the problem is linear in its fields", "by one linear solve")
        if linear
        else ("the problem has no start in time", "by Gauss-Newton steps")
    )
    reason = (
        f"{why}: random features ({model.extra_repr()}) {how}; of {len(search.history)} tried, the ones with the smallest "
        f"residual on held-out points ({search.best.relative:.1e} of its natural size)"
    )
    return replace(search.best, reason=reason, solves=len(search.history), history=search.history, ended=ended)


class _Search:
    """Random features tried so far, and the best of them."""

    def __init__(self, setup: Setup, seed: int, linear: bool, watchers: Sequence[Callback]) -> None:
        self._dimension = len(setup.problem.coordinates)
        held = tuple(part_of(block, _HELD, self._dimension) for block in setup.held)
        self._setup = replace(setup, held=held)
        self._seed, self._linear, self._watchers = seed, linear, watchers
        self._start = time.perf_counter()
        self.best: Found | None = None
        self.history: list[dict[str, float | str | int]] = []

    def run(self, wish: float) -> bool:
        """Try scales and growing numbers; whether a watcher ended it."""
        ladder: tuple[float, ...] = _SCALES if self._dimension <= 3 else _SCALES_BEYOND
        scales = ladder
        before = math.inf
        fields = len(self._setup.problem.fields)
        skipped = False
        for count in counts_of(self._dimension):
            # While nothing is resolved a little more will not do; the next number after that is tried at once.
            if (
                not skipped
                and self.best is not None
                and self.best.relative > _UNRESOLVED
                and count < counts_of(self._dimension)[-1]
            ):
                skipped = True
                continue
            if not self._linear and count * fields > _MOST_WEIGHTS:
                break
            for scale in scales:
                relative, stop = self._attempt(count, scale)
                if stop:
                    return True
                rising = scales[0] < scales[-1]
                if relative <= (_ENOUGH * wish if rising else wish):
                    return False
                if rising and relative > 1000 * self.best_relative and scale > self._best_scale():
                    break  # Larger scales are worse still.
            assert self.best is not None
            model, reached = self.best.setup.trial.model, self.best.relative
            gave_up = not self._linear and reached > _HOPELESS and before < math.inf
            if reached <= wish or gave_up or (self.best.good and reached > 0.3 * before):
                return False
            assert isinstance(model, RandomFeatures)
            assert isinstance(model.scale, float)
            # More features carry higher frequencies; while nothing is resolved yet, the best scale says little.
            highest = (2 if self.best.good or self._dimension > 3 else 8) * model.scale
            scales, before = tuple(scale for scale in ladder if model.scale <= scale <= highest), reached
            scales = scales[::-1] if self.best.good else scales
        return False

    @property
    def best_relative(self) -> float:
        """The relative residual of the best features so far."""
        return math.inf if self.best is None else self.best.relative

    def _best_scale(self) -> float:
        """The scale of the best features so far."""
        assert self.best is not None
        return float(self.best.setup.trial.model.scale)

    def _attempt(self, count: int, scale: float) -> tuple[float, bool]:
        """Solve once; the relative residual on held-out points, and whether a watcher wants to stop."""
        candidate, loss, relative, terms = _solved(self._setup, count, scale, self._seed, self._linear)
        name = f"{count} features, scale {scale:g}"
        self.history.append({"phase": name, "step": len(self.history) + 1, "loss": loss, "held_out": relative, **terms})
        if self.best is None or relative < self.best.relative:
            solver = "LinearLeastSquares" if self._linear else "GaussNewton"
            self.best = Found(candidate, relative, solver, "")
        look = Look(
            phase=name,
            step=len(self.history),
            steps=len(_SCALES) + 3 * len(_COUNTS[1]),
            seconds=time.perf_counter() - self._start,
            loss=loss,
            held_out=relative,
            best=self.best.relative,
            terms=terms,
            unknowns={},
        )
        wishes = [bool(watch(look)) for watch in self._watchers]
        return relative, any(wishes)


def _solved(
    setup: Setup, count: int, scale: float, seed: int, linear: bool
) -> tuple[Setup, float, float, dict[str, float]]:
    problem = setup.problem
    share = POINTS_A_FEATURE * count * len(problem.fields) / most_points(len(problem.coordinates))
    train = tuple(part_of(block, share, len(problem.coordinates)) for block in setup.train)
    candidate = replace(with_features(setup, count, scale, seed), train=train)
    objective = Objective(candidate.rows, train, setup.scales, setup.weights, candidate.parameters)
    if linear:
        values, slopes = objective.linearised()
        objective.assign(objective.vector() + rank_revealing(values, slopes, 1e-15))
    else:
        _best_by_gauss_newton(objective, setup.held)
    held = objective.terms(setup.held)
    relative = max(math.sqrt(float(value.detach())) for value in held.values())
    terms = {name: float(value.detach()) for name, value in objective.terms().items()}
    loss = sum(setup.weights[name] * value for name, value in terms.items())
    return candidate, loss, relative if math.isfinite(relative) else math.inf, terms


def _best_by_gauss_newton(objective: Objective, held: Sequence[Block]) -> None:
    """Gauss-Newton steps, ending at the one with the smallest loss on held-out rows."""
    run = GaussNewton(_STEPS, rank_tolerance=0.0).start(objective)
    best, lowest = objective.vector(), math.inf
    for _ in range(_STEPS):
        done = run.step().done
        judged = float(objective.total(objective.terms(held)).detach())
        if judged < lowest:
            best, lowest = objective.vector(), judged
        if done is not None:
            break
    objective.assign(best)


def part_of(block: Block, share: float, dimension: int) -> Block:
    """The first part of a block's points: beginnings of the sequences inside and on each side; measurements and means whole."""
    if share >= 1 or block.sample.shares is not None or any(term.measured for term in block.terms):
        return block
    sample = block.sample
    if not sample.faces:
        on_face = len(sample.points) > 1
        keep = max(1, round(block.size * (share ** ((dimension - 1) / dimension) if on_face else share)))
        return Block(Sample(tuple(points[:keep] for points in sample.points)), block.terms)
    chosen, start = [], 0
    for count in sample.faces:
        keep = max(min(count, _FEW), round(count * share ** ((dimension - 1) / dimension)))
        chosen.append(torch.arange(start, start + keep))
        start += count
    index = torch.cat(chosen).to(sample.points[0].device)
    normals = None if sample.normals is None else sample.normals[index]
    return Block(Sample((sample.points[0][index],), normals, tuple(map(len, chosen))), block.terms)

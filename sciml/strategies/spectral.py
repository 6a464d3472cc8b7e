"""Polynomials and waves of the whole domain, their degrees raised until the residual on held-out points is small."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sciml.geometry import SpectralPoints
from sciml.models import Scaled, Spectral
from sciml.problem import Periodic, Problem
from sciml.solvers import Callback, DiscreteProblem, GaussNewton, Objective, Report, ResidualSystem
from sciml.solvers.state import settled
from sciml.strategies.random_features import Found, part_of
from sciml.strategies.training import relative

MOST_COORDINATES = 3

_ROWS_A_WEIGHT = 1.5

_FIRST = {1: 24, 2: 10, 3: 6}

_RAISES = (1.5, 1.25, 1.1)

_LOW = 0.03

_LOWER = 1.25

_SPENT = 0.3

_EXACT = 1e-11

_GOOD = 1e-4

_STEPS = 12

_MOST_WEIGHTS = {True: 2600, False: 2000}

_SETTLED = 2

_HOPELESS = 4

_USUAL = 8

_HELD = 0.25


def wave_columns(problem: Problem) -> tuple[int, ...]:
    """The columns of the coordinates in which every field is periodic."""
    found = []
    for column, name in enumerate(problem.coordinates):
        around = [each for each in problem.conditions if isinstance(each, Periodic) and each.coordinate == name]
        fields = {field for each in around for field in each.fields or problem.fields}
        if fields >= set(problem.fields):
            found.append(column)
    return tuple(found)


def layout_of(model: Spectral, problem: Problem) -> SpectralPoints:
    """Points for a spectral trial function: a small multiple of its weights inside, and of its functions on each face."""
    basis = model.basis
    rows = _ROWS_A_WEIGHT * basis.width * len(problem.fields) / max(1, len(problem.equations))
    across = {}
    for column, name in enumerate(problem.coordinates):
        functions = len({product[:column] + product[column + 1 :] for product in basis.products})
        across[name] = math.ceil(_ROWS_A_WEIGHT * functions)
    return SpectralPoints(math.ceil(rows), across, model.periodic)


def spectral_setup(setup: DiscreteProblem, degrees: Degrees, seed: int) -> DiscreteProblem:
    """The set-up with products of polynomials and waves for its model, all weights zero, and points for them."""
    problem, old = setup.problem, setup.trial
    model = degrees.model(problem)
    box = problem.domain
    trial = Scaled(model, box.lower, box.upper, old.offset.tolist(), old.scale.tolist()).to(old.offset)
    train = setup.draw(layout_of(model, problem), np.random.default_rng([seed, 5]))
    return replace(setup, trial=trial, rows=ResidualSystem(problem, trial, setup.raw), train=train)


@dataclass
class Degrees:
    """Degrees along each coordinate, and how they are raised.

    Args:
        now: the degrees.
        waves: the columns along which they are harmonics.
    """

    now: tuple[int, ...]
    waves: tuple[int, ...]

    @classmethod
    def first(cls, problem: Problem, waves: tuple[int, ...] | None = None) -> Degrees:
        """Low ones, to begin with, with waves along all periodic coordinates if these are not named."""
        found, count = wave_columns(problem) if waves is None else waves, len(problem.coordinates)
        degree = _FIRST[count]
        return cls(tuple(degree // 2 if column in found else degree for column in range(count)), found)

    def model(self, problem: Problem) -> Spectral:
        """A trial function with these degrees for a problem's fields, all its weights zero."""
        found = Spectral(self.now, periodic=self.waves)
        found.build(len(problem.coordinates), len(problem.fields), torch.Generator())
        return found

    def raised(self, tails: Sequence[float], share: float = _LOW, most: float = math.inf) -> Degrees | None:
        """Higher ones along the coordinates that are resolved worst, with at most so many weights; None if that is too few."""
        worst = max(tails)
        for factor in _RAISES:
            now = tuple(
                math.ceil(factor * degree) if tail >= share * worst else degree
                for degree, tail in zip(self.now, tails, strict=True)
            )
            if (found := replace(self, now=now)).weights <= most:
                return found
        return None

    def lowered(self, but: int) -> Degrees:
        """Lower ones along all coordinates but one: more than was needed, so the next window does with less."""
        lower = (degree if place == but else math.ceil(degree / _LOWER) for place, degree in enumerate(self.now))
        return replace(self, now=tuple(lower))

    @property
    def weights(self) -> int:
        """About how many products there are."""
        count = len(self.now)
        ball = math.pi ** (count / 2) / math.gamma(count / 2 + 1) / 2**count
        sides = [2 * degree + 1 if column in self.waves else degree + 1 for column, degree in enumerate(self.now)]
        return math.ceil(ball * math.prod(sides))


def solve_by_degrees(
    setup: DiscreteProblem, seed: int, tolerance: float, *, linear: bool, watchers: Sequence[Callback] = ()
) -> Found | None:
    """The best of products of polynomials and waves of growing degrees, by the residual on held-out points.

    The degree is raised along those coordinates whose highest degrees carry most, until the held-out residual is at the level
    of rounding or falls no more, or there are too many weights for a few seconds' solve. Ctrl-C ends the search with the best
    so far, if there is one.

    Args:
        setup: the problem, with any model.
        seed: of the points.
        tolerance: a relative residual that is wished for; the search never stops above the smaller of it and 1e-11 while
            higher degrees help.
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
            raise
    best, history = search.best, search.history
    if best is None:
        return None
    why, how = (
        ("the problem is linear in its fields", "by one linear solve")
        if linear
        else ("the problem is solved in one piece", "by Gauss-Newton steps")
    )
    reason = (
        f"{why}: products of polynomials and waves ({best.setup.trial.model.extra_repr()}) {how}; of {len(history)} tried, the "
        f"ones with the smallest residual on held-out points ({best.relative:.1e} of its natural size)"
    )
    return replace(best, reason=reason, solves=len(history), history=history, ended=ended)


class _Search:
    """Degrees tried so far, and the best of them."""

    def __init__(self, setup: DiscreteProblem, seed: int, linear: bool, watchers: Sequence[Callback]) -> None:
        held = tuple(part_of(block, _HELD, len(setup.problem.coordinates)) for block in setup.held)
        self._setup = replace(setup, held=held)
        self._seed, self._linear, self._watchers = seed, linear, watchers
        self._start = time.perf_counter()
        self._last: DiscreteProblem | None = None
        self.best: Found | None = None
        self.history: list[dict[str, Any]] = []

    def run(self, wish: float) -> bool:
        """Raise degrees for as long as that helps; whether a watcher ended it."""
        most = _MOST_WEIGHTS[self._linear] / len(self._setup.problem.fields)
        degrees: Degrees | None = Degrees.first(self._setup.problem)
        worse = 0
        while degrees is not None:
            before = math.inf if self.best is None else self.best.relative
            model, reached, stop = self._attempt(degrees)
            if stop:
                return True
            worse = worse + 1 if reached > _SPENT * before else 0
            if reached <= wish or worse >= (_SETTLED if before <= _GOOD else _HOPELESS):
                return False
            # Where that of the worst resolved coordinate gained nothing, the others' degrees are to blame.
            degrees = degrees.raised(model.tails(), 0.0 if worse else _LOW, most)
        return False

    def _attempt(self, degrees: Degrees) -> tuple[Spectral, float, bool]:
        """Solve once; the model, the relative residual on held-out points, and whether a watcher wants to stop."""
        solved = self._solved(degrees)
        model, reached = solved.trial.model, relative(solved)
        name = f"Spectral({model.extra_repr()})"
        terms = {key: float(value.detach()) for key, value in _objective(solved).terms().items()}
        loss = sum(solved.weights[key] * value for key, value in terms.items())
        self.history.append({"phase": name, "step": len(self.history) + 1, "loss": loss, "held_out": reached, **terms})
        if self.best is None or reached < self.best.relative:
            solver = "LinearLeastSquares" if self._linear else "GaussNewton"
            self.best = Found(solved, reached, solver, "", limit=_GOOD)
        self._last = solved
        look = Report(
            phase=name,
            step=len(self.history),
            steps=_USUAL,
            seconds=time.perf_counter() - self._start,
            loss=loss,
            held_out=reached,
            best=self.best.relative,
            terms=terms,
            unknowns={},
        )
        wishes = [bool(watch(look)) for watch in self._watchers]
        return model, reached, any(wishes)

    def _solved(self, degrees: Degrees) -> DiscreteProblem:
        found = spectral_setup(self._setup, degrees, self._seed)
        if self._last is not None and not self._linear:
            found.trial.model.start_from(self._last.trial.model)
        objective = _objective(found)

        def work() -> None:
            solver = GaussNewton(1 if self._linear else _STEPS, rank_tolerance=0.0)
            run = solver.start(objective)
            for _ in range(solver.steps):
                if run.step().done is not None:
                    break

        settled(self._setup.journal, f"degrees {degrees.now}", objective, work)
        return found


def _objective(setup: DiscreteProblem) -> Objective:
    return setup.objective()

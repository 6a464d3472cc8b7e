"""Random features of the whole domain, their scale and number picked by the residual on held-out points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sciml.geometry import PointSet
from sciml.problem.collocation import Collocation
from sciml.solvers import DiscreteProblem, GaussNewton, Objective
from sciml.solvers.discrete_problem import with_features
from sciml.solvers.gauss_newton import factorised
from sciml.solvers.state import settled
from sciml.strategies.search import Candidate, Strategy, Workspace, counts_of

_SCALES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_LOWEST, _HIGHEST = 0.1, 128.0
_LEAST_GROWTH, _MOST_GROWTH = 1.15, 2.0
_SCALES_BEYOND = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_UNRESOLVED = 0.03
_EXACT_NONLINEAR = 1e-9
_DIM = 0.01
_EXACT = 1e-10
_ENOUGH = 0.01
_GOOD = 1e-4
_HELD = 0.25
_STEPS = 7
_MOST_WEIGHTS = 1800
_HOPELESS = 0.2
_FEW = 4
_LARGER = 1.4

# A residual below which no other strategy is asked.
ENOUGH = 1e-6


@dataclass(frozen=True)
class RandomFeatures(Strategy):
    """Random features of the whole domain, their scale and number picked by the residual on held-out points.

    Scales are looked for among the smallest number of features: all of a ladder, then, for a linear problem in two or three
    coordinates, one for each coordinate. Larger numbers follow from the residuals so far, with scales that grow along, until
    the held-out residual is far below anything a person would ask for, or falls no more. A linear problem takes one solve for
    each; a nonlinear one Gauss-Newton steps, begun as the best function so far.

    Reference: S. Dong and Z. Li, Local extreme learning machines, Computer Methods in Applied Mechanics and Engineering 387
    (2021).
    """

    dense = True

    def obstacle(self, work: Workspace) -> str | None:
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        own = _ScaleSearch(work)
        yield from own.run(work.target(_EXACT if work.linear else _EXACT_NONLINEAR))
        if own.trials.best is not None:
            found = own.trials.described(own.trials.best, "random features")
            yield replace(found, accepted=found.residual <= ENOUGH)


class Trials:
    """Functions of the whole domain that were tried, about ``most``, and the best of them; ``good`` is sufficient."""

    def __init__(self, work: Workspace, good: float, most: int) -> None:
        self._work, self._good, self._most = work, good, most
        self.best: Candidate | None = None
        self.count = 0

    def take(self, name: str, solved: DiscreteProblem, reached: float) -> Candidate:
        """Record one, with its relative residual on held-out points; the best candidate so far."""
        solver = "LinearLeastSquares" if self._work.linear else "GaussNewton"
        self.count += 1
        if self.best is None or reached < self.best.residual:
            self.best = Candidate(solved, reached, solver, sufficient=reached <= self._good)
        objective = solved.objective()
        terms = objective.means()
        loss = float(objective.total(terms))
        self._work.log.solved(name, loss, reached, terms, best=self.best.residual, most=self._most)
        return self.best

    def described(self, found: Candidate, what: str, why: str = "") -> Candidate:
        """A candidate with the sentence that says how it was found."""
        usual, how = solved_how(self._work.linear)
        reason = (
            f"{why or usual}: {what} ({found.discrete.trial.model.extra_repr()}) {how}; of {self.count} tried, the ones with "
            f"the smallest residual on held-out points ({found.residual:.1e} of its natural size)"
        )
        return replace(found, reason=reason)


class _ScaleSearch:
    """The search for scales and numbers of random features."""

    def __init__(self, work: Workspace) -> None:
        self._work, self._dimension, self._linear = work, work.dimension, work.linear
        held = tuple(part_of(block, _HELD, self._dimension) for block in work.discrete.held)
        self._setup = replace(work.discrete, held=held)
        self._features = counts_of(self._dimension)[0]
        self._scales: tuple[float, ...] = ()
        self._tried: dict[tuple[float, ...], float] = {}
        self.trials = Trials(work, _GOOD, len(_SCALES) + 3 * len(counts_of(1)))

    def run(self, target: float) -> Iterator[Candidate]:
        """Try scales and growing numbers."""
        yield from self._scout(target)
        yield from self._climb(target)

    @property
    def _reached(self) -> float:
        """The smallest relative residual for the present number of features."""
        return self._tried.get(self._scales, math.inf)

    def _scout(self, target: float) -> Iterator[Candidate]:
        """The best scale for the smallest number of features; of several coordinates, one for each."""
        ladder: tuple[float, ...] = _SCALES if self._dimension <= 3 else _SCALES_BEYOND
        if not self._linear:
            yield self._attempt((ladder[len(ladder) // 3],) * self._dimension)
            yield from self._refine(together=True)
            return
        for scale in ladder:
            yield self._attempt((scale,) * self._dimension)
            relative = self._last
            if relative <= (_ENOUGH * target if scale < ladder[-1] else target):
                return
            if relative > 1000 * self._reached:
                break  # Larger scales are worse still.
        if self._reached > _GOOD:
            yield from self._refine()

    def _climb(self, target: float) -> Iterator[Candidate]:
        """Numbers of features as large as the residuals so far foretell, with scales that grow with them."""
        fields, most = len(self._setup.problem.fields), counts_of(self._dimension)[-1]
        known = []
        while self._reached > target and self._features < most:
            count, before, scales = self._features, self._reached, self._scales
            known.append((count, before))
            self._features = _next_count(known, target, most)
            if not self._linear and self._features * fields > _MOST_WEIGHTS:
                return
            # So many more features are as many times closer in the space of frequencies.
            growth = (self._features / count) ** (1 / self._dimension)
            self._tried = {}
            yield self._attempt(tuple(float(f"{growth * scale:.3g}") for scale in scales))
            if before > _UNRESOLVED and self._reached > _DIM:
                yield from self._refine()
            gave_up = not self._linear and self._reached > _HOPELESS
            if gave_up or (before <= _UNRESOLVED and self._reached > 0.5 * before):
                return
            if self._dimension > 3:
                finite = 0 < self._reached < math.inf and before < math.inf
                slope = math.log(self._reached / before) / math.log(self._features / count) if finite else 0.0
                if self._reached * (most / self._features) ** slope > _GOOD:
                    return  # In many coordinates the residual follows a power; this one does not get there.
        # That scales grow with the number is a guess. Where the largest number misses the target it is worth checking.
        for factor in (_LARGER, 1 / _LARGER):
            while self._linear and self._dimension <= 3 and self._reached > target:
                scales = tuple(float(f"{factor * scale:.3g}") for scale in self._scales)
                reached = self._reached
                if scales in self._tried:
                    break
                yield self._attempt(scales)
                if self._last >= reached:
                    break

    def _refine(self, *, together: bool = False) -> Iterator[Candidate]:
        """Double and halve the scale of one coordinate after the other, or of all, for as long as that gains."""
        places = [tuple(range(self._dimension))] if together else [(place,) for place in range(self._dimension)]
        if not together and not (self._linear and 2 <= self._dimension <= 3):
            return
        enough = _EXACT_NONLINEAR if together else _GOOD
        gains = True
        while gains:
            gains = False
            for place, factor in itertools.product(places, (2.0, 0.5)):
                while self._reached > enough:
                    reached = self._reached
                    scales = tuple(factor * each if at in place else each for at, each in enumerate(self._scales))
                    inside = min(scales) >= _LOWEST and max(scales) <= _HIGHEST
                    if scales in self._tried or not inside:
                        break
                    yield self._attempt(scales)
                    if self._last >= reached:
                        break
                    gains = True

    def _attempt(self, scales: tuple[float, ...]) -> Candidate:
        """Solve once for the present number of features; the best candidate so far."""
        each = scales[:1] if len(set(scales)) == 1 else scales
        scale = each if len(each) > 1 else each[0]
        best = self.trials.best
        earlier = best.discrete if best is not None and best.residual < _UNRESOLVED else None
        solved, relative = self._solved(scale, earlier)
        if relative < self._reached or not self._tried:
            self._scales = scales
        self._tried[scales] = self._last = relative
        name = f"{self._features} features, scale {' x '.join(f'{one:g}' for one in each)}"
        return self.trials.take(name, solved, relative)

    def _solved(self, scale: float | Sequence[float], earlier: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The set-up with the present number of features, solved, and its relative residual on held-out rows."""
        setup, problem, count = self._setup, self._setup.problem, self._features
        fraction = count * len(problem.fields) / max(1, len(problem.equations)) / counts_of(self._dimension)[-1]
        train = tuple(part_of(block, fraction, self._dimension) for block in setup.train)
        candidate = replace(with_features(setup, count, scale, self._work.seed), train=train)
        objective = candidate.objective(train, setup.weights)

        def work() -> None:
            if self._linear:
                linear_solve(objective)
                return
            if earlier is not None:
                take_over(candidate, earlier.trial)
            _best_by_gauss_newton(objective, setup.held)

        settled(setup.journal, f"{count} features, scale {scale}", objective, work)
        return candidate, objective.worst(setup.held)


def _next_count(known: Sequence[tuple[int, float]], target: float, most: int) -> int:
    """The number of features that is to bring a relative residual below what is wished for.

    Nothing is resolved up to some number of features, then the residual falls geometrically, slower and slower. With half of
    the present number for the first, or from the last two numbers, the one that will do is foretold. A third of the target is
    aimed at, for another solve costs more than some features too many.
    """
    count, relative = known[-1]
    growth = _MOST_GROWTH
    if relative < _UNRESOLVED:
        decades = -math.log10(relative)
        fall = decades / (count / 2)
        if len(known) > 1 and known[-2][1] < _UNRESOLVED:
            fall = min(fall, math.log10(known[-2][1] / relative) / (count - known[-2][0]))
        missing = math.log10(3 / target) - decades
        growth = 1 + 1.25 * missing / max(fall * count, 1e-3)
    larger = 10 * round(count * min(max(growth, _LEAST_GROWTH), _MOST_GROWTH) / 10)
    return most if 1.1 * larger > most else larger


def not_by_least_squares(work: Workspace) -> str | None:
    """Why a problem is not solved by functions of the whole domain, or None when it may be."""
    if not work.problem.equations:
        return "it has no equation"
    if work.options.dtype != torch.float64:
        return f"it is to be solved in {work.options.dtype}, and least squares needs float64"
    return None


def solved_how(linear: bool) -> tuple[str, str]:
    """Why and how functions of the whole domain are found, for the sentence that says so."""
    if linear:
        return "the problem is linear in its fields", "by one linear solve"
    return "the problem is solved in one piece", "by Gauss-Newton steps"


def linear_solve(objective: Objective) -> None:
    """Go to the solution of a problem that is linear in the parameters."""
    # Without ranks, as on features of coordinates all directions count; exactly dependent columns need one.
    solve, _, _ = factorised(*objective.linearised())
    move = solve(0.0)
    objective.assign(objective.vector() + (move if bool(torch.isfinite(move).all()) else solve(1e-15)))


def take_over(setup: DiscreteProblem, earlier: Callable[[Tensor], Tensor]) -> None:
    """Begin as the function that was found before, at the training points: fewer steps are left to take."""
    trial = setup.trial
    points = torch.cat([points for block in setup.train for points in block.sample.points])
    with torch.no_grad():
        weight = output_weights(trial, points, (earlier(points) - trial.offset) / trial.scale).T
        if bool(torch.isfinite(weight).all()):
            trial.model.layers[-1].weight.copy_(weight)


def output_weights(trial: Any, points: Tensor, wanted: Tensor) -> Tensor:
    """The weights ``(width, k)`` of a model linear in them with which its outputs at points are ``(n, k)``."""
    orthogonal, upper = torch.linalg.qr(trial.model.layers[:-1]((points - trial.center) / trial.half_width))
    return torch.linalg.solve_triangular(upper, orthogonal.T @ wanted, upper=True)


def _best_by_gauss_newton(objective: Objective, held: Sequence[Collocation]) -> None:
    """Gauss-Newton steps, ending at the one with the smallest loss on held-out rows."""
    run = GaussNewton(_STEPS, rank_tolerance=0.0).start(objective)
    best, lowest = objective.vector(), math.inf
    for _ in range(_STEPS):
        done = run.step().done
        judged = float(objective.total(objective.means(held)))
        if judged < lowest:
            best, lowest = objective.vector(), judged
        if done is not None:
            break
    objective.assign(best)


def part_of(block: Collocation, fraction: float, dimension: int) -> Collocation:
    """The first part of a block's points: beginnings of the sequences inside and on each side; measurements and means whole."""
    if fraction >= 1 or block.sample.quadrature is not None or any(term.measured for term in block.terms):
        return block
    sample = block.sample
    if not sample.faces:
        on_face = len(sample.points) > 1
        keep = max(1, round(block.size * (fraction ** ((dimension - 1) / dimension) if on_face else fraction)))
        return Collocation(PointSet(tuple(points[:keep] for points in sample.points)), block.terms)
    share = fraction ** ((dimension - 1) / dimension)
    counts = [max(min(count, _FEW), round(count * share)) for count in sample.faces]
    sides = [side.part(slice(keep)) for side, keep in zip(sample.by_side(), counts, strict=True)]
    return Collocation(PointSet.joined(sides, sides=True), block.terms)

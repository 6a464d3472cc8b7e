"""Spectral collocation: polynomials and waves of the whole domain, their degrees raised until the residual on
held-out points is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import torch

from sciml.diagnostics.estimated_error import relative_l2
from sciml.errors import SolverError
from sciml.geometry import Box
from sciml.problem import Problem
from sciml.problem.continuation import shorter
from sciml.solvers import DiscreteProblem, GaussNewton
from sciml.solvers.discrete_problem import wave_columns, with_polynomials
from sciml.solvers.state import settled
from sciml.strategies.random_features import ENOUGH, Trials, not_by_least_squares, part_of
from sciml.strategies.search import Candidate, Strategy, Workspace
from sciml.strategies.training import relative

MOST_COORDINATES = 3

_FIRST = {1: 24, 2: 10, 3: 6}
_RAISES = (1.5, 1.25, 1.1)
_LOW = 0.03
_SPENT = 0.3
_EXACT = 1e-11
_GOOD = 1e-4
_STEPS = 12
_MOST_WEIGHTS = {True: 2600, False: 2000}
# For waves that are known to be there: more than so many degrees, how many weights at most, how far beyond the fewest, which
# residual will do; the part of the memory, in matrices of that width, and seconds for its cube (a slow processor).
_MANY, _MOST_OF_WAVES, _BEYOND, _EXACT_WAVES = 150, 4000, 10.0, 1e-9
_MEMORY, _TABLES, _SECONDS = 0.4, 6, 4e-10
_SETTLED = 2
_HOPELESS = 4
# Residuals so many times the least, with no gain twice: higher degrees only oscillate more.
_DIVERGES = 10.0
_USUAL = 8
_HELD = 0.25
# By what share of their size two solutions differ at least.
_APART = 1e-2


@dataclass
class Degrees:
    """Degrees along each coordinate, and how they are raised."""

    now: tuple[int, ...]
    waves: tuple[int, ...]

    @classmethod
    def first(cls, problem: Problem) -> Degrees:
        """Low ones, to begin with, with waves along all periodic coordinates."""
        found, count = wave_columns(problem), len(problem.coordinates)
        degree = _FIRST[count]
        return cls(tuple(degree // 2 if column in found else degree for column in range(count)), found)

    @classmethod
    def of_waves(cls, problem: Problem, number: float) -> Degrees:
        """Those that resolve waves of a number along one coordinate: pi for each, and so many more that errors vanish."""
        first, (half,) = cls.first(problem), problem.domain.half_widths.values()
        fewest = number * half / (math.pi if first.waves else 1.0)
        # As a Bessel function of that argument does beyond this order.
        return replace(first, now=(math.ceil(fewest + _BEYOND * fewest ** (1 / 3)) + first.now[0],))

    def raised(self, tails: Sequence[float], fraction: float = _LOW, most: float = math.inf) -> Degrees | None:
        """Higher ones along the coordinates that are resolved worst, with at most so many weights; None if that is too few."""
        worst = max(tails)
        for factor in _RAISES:
            now = tuple(
                math.ceil(factor * degree) if tail >= fraction * worst else degree
                for degree, tail in zip(self.now, tails, strict=True)
            )
            if (found := replace(self, now=now)).weights <= most:
                return found
        return None

    @property
    def weights(self) -> int:
        """About how many products there are."""
        count = len(self.now)
        ball = math.pi ** (count / 2) / math.gamma(count / 2 + 1) / 2**count
        sides = [2 * degree + 1 if column in self.waves else degree + 1 for column, degree in enumerate(self.now)]
        return math.ceil(ball * math.prod(sides))


@dataclass(frozen=True)
class Spectral(Strategy):
    """Spectral collocation by least squares: products of polynomials and waves over a whole box, of growing degrees.

    The degree is raised along those coordinates whose highest degrees carry most, until the held-out residual is at the level
    of rounding or falls no more, or there are too many weights for a few seconds' solve. A linear problem takes one solve for
    each degree, a nonlinear one Gauss-Newton steps.

    Args:
        degree: the degree along every coordinate, or one for each; None finds it.

    Raises:
        SolverError: degrees that are no positive whole numbers.

    Example:
        >>> import sciml
        >>> rod = sciml.gallery.problem("heat_rod")
        >>> solution = sciml.fit(rod, strategy=sciml.strategies.Spectral(16))
        >>> solution.success, solution.solver
        (True, 'LinearLeastSquares')

    Reference: J. P. Boyd, Chebyshev and Fourier Spectral Methods, Dover 2001.
    """

    degree: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        given = self.degree if isinstance(self.degree, tuple) else (self.degree,)
        if self.degree is not None and not all(
            isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in given
        ):
            raise SolverError(f"degree must be a positive whole number, or one for each coordinate; given: {self.degree!r}")

    def obstacle(self, work: Workspace) -> str | None:
        if not isinstance(work.problem.domain, Box):
            return "its domain is no box"
        if work.dimension > MOST_COORDINATES:
            return f"it has more than {MOST_COORDINATES} coordinates"
        if isinstance(self.degree, tuple) and len(self.degree) != work.dimension:
            return f"it has {work.dimension} coordinates, and {len(self.degree)} degrees are given"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        trials = Trials(work, _GOOD, _USUAL)
        for last, reached in self._raised(work, None):
            yield trials.take(f"Spectral({last.trial.model.extra_repr()})", last, reached)
        first, trials.best = trials.best, None
        assert first is not None
        if (begin := self._continued(work)) is not None:
            for last, reached in self._raised(work, begin):
                again = trials.take(f"Spectral({last.trial.model.extra_repr()})", last, reached)
                yield min(first, again, key=attrgetter("residual"))
        found, other = min([first, *filter(None, [trials.best])], key=attrgetter("residual")), ""
        if trials.best is not None and max(first.residual, trials.best.residual) <= _GOOD:
            # Where both solve it, it is the one that follows from a short domain.
            other = _another(work, trials.best, first)
            found = trials.best if other else found
        found = trials.described(found, "products of polynomials and waves")
        yield replace(found, accepted=found.residual <= ENOUGH, message=other)

    def _raised(
        self, work: Workspace, begin: DiscreteProblem | None, label: str = ""
    ) -> Iterator[tuple[DiscreteProblem, float]]:
        """Solutions of higher and higher degrees, and their relative residuals, while these fall."""
        problem, target = work.problem, work.target(_EXACT)
        held = tuple(part_of(block, _HELD, work.dimension) for block in work.discrete.held)
        setup = replace(work.discrete, held=held)
        most = _MOST_WEIGHTS[work.linear] / len(problem.fields)
        degrees: Degrees | None = Degrees.first(problem)
        if self.degree is not None:
            fixed = self.degree if isinstance(self.degree, tuple) else (self.degree,) * work.dimension
            degrees = Degrees(fixed, wave_columns(problem))
        elif (shortest := self._of_waves(work)) is not None:
            # Below, no degree gains anything; each further one takes long.
            degrees, most, target = shortest, max(most, _RAISES[1] * shortest.weights), max(target, _EXACT_WAVES)
        least, worse = math.inf, 0
        last, label = begin, label or "continued, " * (begin is not None)
        while degrees is not None:
            last = _solved(setup, degrees, work, last, label)
            reached, before = relative(last), least
            yield last, reached
            least, worse = min(least, reached), worse + 1 if reached > _SPENT * before else 0
            patience = _SETTLED if before <= _GOOD or reached > _DIVERGES * least else _HOPELESS
            if self.degree is not None or reached <= target or worse >= patience:
                break
            # Where that of the worst resolved coordinate gained nothing, the others' degrees are to blame.
            degrees = degrees.raised(last.trial.model.tails(), 0.0 if worse else _LOW, most)

    def _of_waves(self, work: Workspace) -> Degrees | None:
        """The degrees that resolve waves which pass, where these are many and the budget holds as many degrees."""
        if work.waves is None:
            return None
        found, budget = Degrees.of_waves(work.problem, work.waves.largest), work.log.budget
        count = found.weights * len(work.problem.fields)
        affordable = budget.holds(_MEMORY, _TABLES * 8.0 * count**2) and _SECONDS * count**3 <= budget.seconds
        return found if found.weights > _MANY and count <= _MOST_OF_WAVES and affordable else None

    def _continued(self, work: Workspace) -> DiscreteProblem | None:
        """The solution of a nonlinear problem on longer and longer domains, each begun from the one before, or None."""
        found: DiscreteProblem | None = None
        if work.linear or self.degree is not None or work.measurements is not None:
            return None
        for share, problem in shorter(work.problem):
            own = replace(work, problem=problem, choices=[])
            found, reached = min(self._raised(own, found, f"length {share:g}, "), key=lambda each: each[1])
            if reached > _GOOD or work.log.over():
                return None
        return found


def _another(work: Workspace, found: Candidate, other: Candidate) -> str:
    """Non-uniqueness: that another solution was found, or an empty string where both are the same."""
    points = torch.cat([each for block in work.discrete.held for each in block.sample.points])
    values, gaps = (each.discrete.trial(points) for each in (found, other))
    apart = relative_l2(work.problem, points, values - gaps, values, found.discrete.trial)
    if max(apart.values()) <= _APART:
        return ""
    far = f"{max(apart.values()):.1g} times its size"
    return f"equations and conditions have another solution, {far} away: this one follows from that on short domains"


def _solved(
    setup: DiscreteProblem, degrees: Degrees, work: Workspace, last: DiscreteProblem | None, label: str = ""
) -> DiscreteProblem:
    """The set-up with polynomials of these degrees, solved; a nonlinear problem begins as the last ones."""
    # Unknowns of its own: a worse try must not move those of a better one.
    raw = (setup if last is None else last).raw
    found = with_polynomials(setup, degrees.now, np.random.default_rng([work.seed, 5]), degrees.waves, raw)
    if last is not None and not work.linear:
        found.trial.model.start_from(last.trial.model)
    objective = found.objective()
    solver = GaussNewton(1 if work.linear else _STEPS, rank_tolerance=0.0)
    settled(setup.journal, f"{label}degrees {degrees.now}", objective, lambda: solver.solve(objective))
    return found

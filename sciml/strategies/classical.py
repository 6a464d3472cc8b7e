"""Classical grids and SciPy's integrators, by the same residuals: what ``baseline`` does, as one of the ways of ``fit``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sciml.baselines.baseline import baseline
from sciml.baselines.collocation import NewtonError
from sciml.baselines.integrate import BlowUpError
from sciml.baselines.refinement import ContradictionError
from sciml.errors import SciMLError, SolverError
from sciml.geometry import Box
from sciml.models import Scaled
from sciml.solution import Solution
from sciml.strategies.random_features import not_by_least_squares
from sciml.strategies.search import Candidate, Strategy, Workspace
from sciml.strategies.training import relative

_GOOD = 1e-2

# Nodes along each coordinate of the finer of two coarse grids, one pair after another, by the number of coordinates.
COARSE = {1: (257, 1025, 4097), 2: (65,), 3: (25,)}
# How closely two grids agree where something is resolved; of the time that is left, the share they may take.
_RESOLVED, _SHARE = 0.3, 0.25


@dataclass(frozen=True)
class ClassicalGrids(Strategy):
    """Method of lines, collocation on grids or integration from the start, by SciPy, as ``sciml.baseline`` does it.

    It is tried where nothing else solved the problem well, before a network is trained.

    Args:
        seconds: after which it gives up.

    Raises:
        SolverError: not a positive number.

    Example:
        >>> import sciml
        >>> solution = sciml.fit(sciml.gallery.problem("logistic_growth"), strategy="ClassicalGrids")
        >>> round(float(solution(t=6.0)["u"]), 5)
        0.97818

    Reference: W. E. Schiesser, The Numerical Method of Lines, Academic Press 1991.
    """

    seconds: float = 30.0
    last_resort = True

    def __post_init__(self) -> None:
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, int | float) or not self.seconds > 0:
            raise SolverError(f"seconds must be a positive number; given: {self.seconds!r}")

    def obstacle(self, work: Workspace) -> str | None:
        if work.problem.unknowns or work.measurements is not None:
            return "it has unknown constants or measurements"
        if work.problem.promoted:
            return "constants are coordinates"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        try:
            left = max(1.0, work.log.budget.seconds - work.log.seconds)
            found = baseline(work.problem, time_limit=min(self.seconds, left), preflight="off")
        except SciMLError as error:
            work.choices.append(f"{self.name}: {error}")
            if best is not None and isinstance(error, BlowUpError | ContradictionError):
                # What does not exist is not found by a network either.
                yield replace(best, accepted=True, doubt="; ".join(filter(None, [best.doubt, f"{self.name}: {error}"])))
            return
        count, like = work.dimension, work.discrete.trial.offset
        trial = Scaled(found.trial, [-1.0] * count, [1.0] * count, [0.0] * len(like), [1.0] * len(like))
        solved = work.discrete.with_trial(trial.to(like))
        reached = relative(solved)
        work.log.solved(self.name, reached**2, reached, {}, best=reached, most=1)
        reason = f"{'' if best is None else 'nothing else solved it well: '}{found.solver}; {found.message}"
        good = found.success and reached <= _GOOD
        # Grids that both miss something agree on the rest, and leave much of the equations.
        least = 0.0 if reached <= _GOOD else min(1.0, reached)
        errors = {name: max(each, least) for name, each in found.estimated_error.items()}
        yield Candidate(solved, reached, found.solver, reason, accepted=good, sufficient=good, errors=errors)


def on_coarse_grids(work: Workspace, count: int) -> tuple[Solution | None, str, bool]:
    """Grid sequencing: the solution on the finer of two grids, with ``count`` nodes, if these nearly agree; or None and why.

    Whether finer ones may serve is told beside it.
    In an interval, where one is too coarse for a layer and the other is not, that on the finer one as it is.
    Differences on few nodes know fewer functions that are no solution than polynomials do, and pseudo-time leads to a state
    at rest where Newton's method does not.
    """
    if (obstacle := ClassicalGrids().obstacle(work)) is not None:
        return None, obstacle, False
    limit = min(ClassicalGrids.seconds, _SHARE * max(1.0, work.log.budget.seconds - work.log.seconds))
    method = "differences" if isinstance(work.problem.domain, Box) else "auto"
    try:
        found = baseline(work.problem, n=count, method=method, time_limit=limit, preflight="off")
    except SciMLError as error:
        return None, str(error), isinstance(error, NewtonError)
    errors = list(found.estimated_error.values())
    serves = all(each <= _RESOLVED for each in errors) if errors else work.dimension == 1
    return (found, "", True) if serves else (None, found.message, True)

"""Which strategies are tried for a problem, and in which order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sciml._text import listed, nearest
from sciml.baselines.initial_value import is_initial_value_problem
from sciml.errors import ProblemError, SolverError
from sciml.geometry import Box
from sciml.solvers.discrete_problem import with_polynomials
from sciml.strategies.all_at_once import AllAtOnce
from sciml.strategies.classical import ClassicalGrids
from sciml.strategies.inverse_constants import NonlinearRegression, not_by_solving
from sciml.strategies.inverse_fields import InverseFields
from sciml.strategies.network import SmallNetwork, Train
from sciml.strategies.random_features import RandomFeatures, not_by_least_squares
from sciml.strategies.search import Candidate, Strategy, Workspace, search
from sciml.strategies.singular import CornerSingular, has_singular_corners
from sciml.strategies.spectral import Spectral
from sciml.strategies.teaching import Teach
from sciml.strategies.tiles import Tiles
from sciml.strategies.window_solvers import TimeMarching, in_parts
from sciml.uncertainty.covariance import from_equations

# Degrees of polynomials that show whether constants are determined, and how fast their weights decay.
_PROBED, _DECAY = {1: 24, 2: 14}, 0.3
# How large the fields are there, in their sizes: what saturates is seen where they are small.
_SIZES = (1.0, 1e-2, 1e-4)

# Of the budget of time, for windows that SciPy may be faster than.
_SHARE = 0.6

KINDS: tuple[type[Strategy], ...] = (
    InverseFields,
    NonlinearRegression,
    AllAtOnce,
    Spectral,
    Tiles,
    TimeMarching,
    CornerSingular,
    RandomFeatures,
    SmallNetwork,
    ClassicalGrids,
    Train,
)


def select(work: Workspace, given: Any, train: Train, *, free: bool, teacher: Any = None) -> list[Strategy]:
    """The strategies for a problem, best first; what keeps the others from serving is said in ``work.choices``.

    Unknown functions and constants with measurements have strategies of their own. Linear problems: slabs of time where there
    are two coordinates beside it, polynomials on boxes of at most three coordinates, slabs of time where there is one beside
    it, polynomials on tiles where the domain is no box or those of the whole box do not arrive, singular functions where
    residuals are largest at corners, random features where tiles do not serve. Nonlinear problems that start in time: slabs or
    windows of time. Stationary ones: as linear ones, by Gauss-Newton steps, on tiles from coarse classical grids where these
    steps go astray from zero. In many coordinates, where features are too few, a small network. Whatever all of these do not
    solve well: the classical grids of ``baseline``, then a network, trained. The caller's network learns from what these find,
    or from a ``teacher``.
    """
    if not (isinstance(given, str) and given == "auto"):
        ways = [_named(each, work, train) for each in (given if isinstance(given, list | tuple) else [given])]
        if not free and not any(isinstance(way, Train) for way in ways):
            raise SolverError(
                f"{listed([way.name for way in ways])} brings its own trial function, solver and points: leave out model, "
                "solver, points, windows, exact, causal, start and freeze, or name 'Train' as well"
            )
        return ways
    if teacher is not None:
        return [Teach(train, tuple(_serving(work.on_cpu)))] if teacher == "auto" else [Teach(train, (), teacher)]
    if not free:
        if (obstacle := train.obstacle(work)) is not None:
            raise SolverError(f"windows= cannot be used for {type(work.problem).__name__}: {obstacle}")
        return [train]
    return [*_serving(work.on_cpu), train]


def solve(work: Workspace, given: Any, train: Train, *, free: bool, teacher: Any = None) -> Candidate:
    """The best that the strategies of ``select`` find.

    Raises:
        ProblemError: there are unknown constants that nothing determines.
        SolverError: none of them finds anything.
    """
    if lost := _undetermined(work.on_cpu):
        raise ProblemError(
            f"{type(work.problem).__name__}: without measurements equations and conditions do not determine {', '.join(lost)}: "
            "pass data=, give it a value, or add a condition, such as a normalisation"
        )
    ways = select(work, given, train, free=free, teacher=teacher)
    found = search(ways, work)
    if found is None:
        raise SolverError(
            f"{listed([way.name for way in ways])} found no solution of {type(work.problem).__name__}: "
            f"{'; '.join(work.choices)}. Allow more memory= or seconds=, ask the strategy for less, or leave strategy out"
        )
    return found


def _undetermined(work: Workspace) -> list[str]:
    """Unknown constants that no row sees beside the fields, without measurements, at polynomials of random weights."""
    problem = work.problem
    if not problem.unknowns or work.measurements is not None or not isinstance(problem.domain, Box) or work.dimension > 2:
        return []
    lost = list(problem.unknowns)
    for size in _SIZES:
        generator = np.random.default_rng([work.seed, 8])
        found = with_polynomials(work.discrete, _PROBED[work.dimension], generator)
        model = found.trial.model
        with torch.no_grad():
            orders = torch.tensor([sum(product) for product in model.basis.products]).to(model.weight)
            decay = size * _DECAY**orders
            model.weight.copy_(torch.from_numpy(generator.normal(size=model.weight.shape)).to(model.weight) * decay)
            for value in found.raw.values():
                # A start of zero may hide a constant that it multiplies.
                value.add_(generator.uniform(0.05, 0.2))
        estimates = from_equations(found.objective()).estimates
        lost = [name for name in lost if math.isinf(estimates[name].standard_error)]
        if not lost:
            break
    return lost


def _named(given: Any, work: Workspace, train: Train) -> Strategy:
    """A strategy that the caller wants."""
    known = {kind.__name__: kind for kind in KINDS}
    kind = known.get(given) if isinstance(given, str) else given
    if kind is Train:
        kind = train
    elif isinstance(kind, Train):
        kind = replace(train, **{name: value for name, value in vars(kind).items() if value is not None and value != ()})
    if isinstance(kind, type) and issubclass(kind, Strategy):
        kind = kind()
    measured = work.measurements is not None and bool(work.problem.unknowns)
    if isinstance(kind, NonlinearRegression) and measured and not kind.ways and kind.obstacle(work.on_cpu) is not None:
        kind = _regression(work.on_cpu) if not_by_solving(work.problem) is None else kind
    if not isinstance(kind, Strategy):
        hint = nearest(given, known) if isinstance(given, str) else ""
        raise SolverError(
            f"strategy must be 'auto', one of {listed(known)}, or an object of sciml.strategies; given: {given!r}.{hint}"
        )
    if (obstacle := kind.obstacle(work.on_cpu)) is not None:
        raise SolverError(f"the strategy {kind.name} cannot serve {type(work.problem).__name__}: {obstacle}")
    return kind


def _regression(work: Workspace) -> NonlinearRegression:
    """Nonlinear regression by what solves the problem where constants have values."""
    ways = _serving(replace(work.on(None), problem=work.problem.bind_initial().unmeasured()))
    # What is tried where all else fails would be tried again and again.
    others = tuple(way for way in ways if not isinstance(way, ClassicalGrids | SmallNetwork))
    # An initial-value problem is solved over and over again: SciPy takes milliseconds.
    starts = is_initial_value_problem(work.problem)
    classical = [way for way in ways if isinstance(way, ClassicalGrids) and starts]
    return NonlinearRegression((*classical, *others))


def _serving(work: Workspace) -> list[Strategy]:
    """The strategies that may serve, in the order in which they are tried."""
    problem, measured = work.problem, work.measurements is not None
    together: list[Strategy] = []

    def serves(way: Strategy, unless: str | None = None) -> bool:
        obstacle = way.obstacle(work) or unless
        if obstacle is not None:
            work.choices.append(f"{way.name}: left out, {obstacle}")
        return obstacle is None

    if (obstacle := not_by_least_squares(work)) is not None:
        work.choices.append(f"no strategy but {Train.__name__} is tried: {obstacle}")
        return []
    if measured:
        if serves(InverseFields()):
            return [InverseFields()]
        # Laws without derivatives; others once it is known what solves them.
        if NonlinearRegression().obstacle(work) is None:
            return [NonlinearRegression()]
        together += [AllAtOnce()] if serves(AllAtOnce()) else []
        if problem.unknowns:
            if (obstacle := not_by_solving(problem)) is not None:
                work.choices.append(f"{NonlinearRegression.__name__}: left out, {obstacle}")
                return together
            regression = _regression(work)
            # Equations that measurements contradict do not hold where both are fitted together.
            return [*together, *([regression] if serves(regression) else [])]
        if not work.linear:
            return together
    elif problem.unknowns:
        # Constants that equations and conditions determine, such as eigenvalues, are solved for beside the fields.
        box_alone = "its domain is a box" if isinstance(problem.domain, Box) else None
        return [way for way, unless in ((Spectral(), None), (Tiles(), box_alone)) if serves(way, unless)]
    # SciPy may take seconds where features take minutes.
    march = TimeMarching(_SHARE if ClassicalGrids().obstacle(work) is None else 1.0)
    in_time = serves(march)
    in_slabs = march.unless_in_slabs(work) is None
    alone = None if work.linear or not in_time else "the problem is nonlinear and starts in time: windows serve it better"
    found = [*together]
    # The functions that are singular at corners are those of one equation; several fields have others.
    corners = has_singular_corners(problem) and len(problem.fields) == 1
    if corners and serves(CornerSingular(), alone):
        found.append(CornerSingular())
    sudden = (in_time and work.dimension == 1 and work.discrete.stops) or march.begun_anew(work)
    if (in_slabs and work.dimension > 2) or sudden:
        # In two coordinates beside time one function for all times takes too many weights; where a forcing jumps it has kinks,
        # and jumps where boundary values do.
        found.append(march)
    if serves(Spectral(), alone):
        found.append(Spectral())
    if in_slabs and march not in found:
        # A jump or a layer: elements are better at these than anything for the whole domain.
        found.append(march)
    # Least squares on small tiles lose the digits of high derivatives.
    orders = [problem.order(name, coordinate) for name in problem.fields for coordinate in problem.coordinates]
    late = "it starts in time" if in_time else "its equations are of more than second order" if max(orders) > 2 else None
    whole = None if late is None else f"its domain is a box, and {late}"
    tiles = serves(Tiles(), alone if in_parts(problem) else whole)
    found += [Tiles()] if tiles else []
    # Whoever is best by then may be wrong at the corners.
    if not corners and serves(CornerSingular(), alone):
        found.append(CornerSingular(unless_smooth=True))
    if serves(RandomFeatures(), "tiles serve it" if tiles else alone):
        found.append(RandomFeatures())
    many = work.dimension > 3 and not in_time
    if serves(SmallNetwork(), None if many else "it has few coordinates, or starts in time"):
        found.append(SmallNetwork())
    if in_time and march not in found:
        found.append(march)
    if serves(ClassicalGrids()):
        found.append(ClassicalGrids())
    return found

"""Unfitted spectral elements by least squares: polynomials on tiles that the domain may cut, refined until settled."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from sciml.diagnostics.estimated_error import NEXT_TO_NOTHING, determined_up_to, relative_l2, root_mean_squares
from sciml.errors import SolverError
from sciml.models import Scaled, Tiles as TilePolynomials, model_of
from sciml.problem import Problem
from sciml.slabs.at_rest import TileRows
from sciml.slabs.tile_least_squares import CPU, ProjectedStep, TileLinearization
from sciml.slabs.tile_space import SINGULAR, TileSpace, nearest, nodes, untied
from sciml.solvers import DiscreteProblem
from sciml.solvers.gauss_newton import DampedGaussNewton, DampedStep
from sciml.solvers.scaling import even_about, regular_at
from sciml.strategies.classical import COARSE, on_coarse_grids
from sciml.strategies.random_features import ENOUGH, not_by_least_squares, solved_how
from sciml.strategies.search import WINDOWS, Candidate, Strategy, Workspace, judged_apart
from sciml.strategies.training import relative
from sciml.strategies.transfer import WarmStart
from sciml.uncertainty.covariance import from_refinement

MOST_COORDINATES = 3

# Tiles along each side of a square or cube and the degree of their polynomials, coarse to fine.
_LEVELS = {
    1: ((4, 8), (8, 10), (16, 12), (32, 12), (64, 12)),
    2: ((3, 6), (4, 8), (6, 8), (8, 10), (12, 10), (16, 10), (22, 10), (28, 12)),
    3: ((2, 4), (3, 5), (3, 7), (4, 8), (4, 9), (5, 9), (7, 9), (10, 9)),
}
# How often tiles at the ends of an interval are halved.
_TO_THE_ENDS = 18
# Multiplications that one factorisation may take, and while what was found is no success; the part of the free memory.
_EFFORT, _EFFORT_IN_NEED = 5e11, 4e12
# Multiplications that take as long as everything else that a level of refinement does at least.
_BESIDE = 1e10
# Matrices of a tile's width that are held for each tile, beside the factor.
_TABLES = 30
_EXACT, _GOOD = 1e-8, 1e-4
# A change that is accepted as the last one: so large where it was several times larger before.
_CHANGED, _FALLS = 1e-3, 0.3
# How many times the change of a local refinement may be that of an earlier one; what is left if there is a gain.
_SEEMED, _GAINS = 10.0, 0.5
# The slowest convergence that is told from two changes: the share of one that the next one is.
_SLOWEST = 0.9
# The least difference of what is left on the rows of coarser and of finer tiles, as a share, from which errors are told.
_ALIKE = 1e-4
# Changes that grew in turn before refining is given up, while they are so large that nothing is resolved yet.
_UNRESOLVED, _UNTIL_RESOLVED = 1e-2, 3
# Refinements that did not resolve anything, after which none will; those whose equations are not solved at the ends at all.
_ASTRAY, _MISLED = 12, 4
_STEPS, _TINY, _SETTLED, _IDLE, _NEARLY = 30, 1e-16, 1e-2, 2, 0.1
_LENGTHS = (1.0, 0.5, 0.2)
# How far the raw numbers of constants move in the first step; twice as far in each that follows.
_NEAREST = 0.1
# Changes that fell so many times while residuals did not fall by as little as this; residuals that may be rounding, and those
# that fall more slowly than changes do where they come from beside a singular place; how many times the least ones may be;
# the share of small ones that shows on rows at least where there is no solution: 7e-5 were seen on the smallest tiles.
_SETTLES, _STALLS, _NOISE, _SLOW, _RISES, _ON_ROWS = 10.0, 1.1, 1e-6, 1e-3, 10.0, 1e-5
# What of a root mean square the mean of what is nearly the same everywhere is at least; by what factor residuals of several
# tiles differ that are alike; how large they are where what flows is not balanced.
_EVEN, _ALIKE_TOO, _LEAKS = 0.9, 1.05, 1e-4
# What of the first change every other one is at least where changes do not fall.
_AS_MUCH = 0.5
# What two refinements leave at most of the squares on the rows where these converge; a tenth or so where nothing solves them.
_CONVERGES = 1 / 30
# How many times what rounding of the coefficients leaves of an equation least squares on cut tiles may leave.
_AMPLIFIED = 1e3
# How many natural sizes a field may have that is not chance.
_HUGE = 100.0
# Damping that leaves directions that no row sees where they are, and moves others by as little.
_LEAST_NORM = 1e-10
# How often in turn they may have done so before refining is given up.
_STUCK = 1
_MEMORY = 0.4
# Refinements from nothing of a nonlinear problem, and from what residual on its solution is begun from coarse classical grids.
_PLAIN, _ASTRAY_AT = 3, 0.1
# What a step of any length leaves of the merit at most where it is taken; the part of a direction that a constant has, and
# by how much finer tiles see less of it.
_SOLVED, _PART_OF, _HALVED = 1e-4, 0.1, 0.5
# By what share merits differ that are the same but for rounding.
_EQUAL = 1e-6
# From what misfit on tiles lie across others; how much less they keep to what these are beyond the domain.
_SAME, _BEYOND = 1e-8, 1e-6
# The share of the budget of time after which tiles for all times do not follow windows.
_LATE = 0.5
# The share of all products of degrees that tiles take, at least.
_OF_ALL = 0.5
# The share of the numbers of a solution that is begun from with which tiles may hold it; levels of refinement at least.
_TOO_FEW, _LEAST = 0.25, 3
# By how much the degree of its own tiles is lower, so that the next ones tell how far off these are.
_LOWER = 2
# By how much residuals move in a direction of natural size, in their natural sizes: below what directions are looked
# at, what share of that with coarser tiles says that finer ones would see less still, and what is rounding. A step that is
# small enough to be linear; the share of a field in a direction that is told; levels at least to see whether it is seen, and
# the latest ones; residuals that are small.
_HARDLY, _FADES, _ROUNDED, _STEP, _SHARE, _LOOKS, _LATELY, _RESOLVED = 1e-2, 0.1, 1e-6, 1e-4, 1e-3, 3, 2, 0.1
# By how much residuals move at least in a direction that may be told from one that they do not see, the share of that with
# coarser tiles at which it rests, how far what is left may move the fields along it, and levels at most until it rests.
_SEEN, _RESTS, _KNOWN, _MANY_LOOKS = 8e-4, 0.8, 1e-4, 8

_CONTRADICTS = (
    "equations and conditions contradict each other, have no solution near this one, or hold something smaller than tiles "
    "resolve, as a hole or a source; look whether sources balance what flows through the boundary, and at the values of "
    "constants"
)


@dataclass(frozen=True)
class Tiles(Strategy):
    """Least-squares spectral elements on a background grid that the domain cuts: no mesh is made.

    Every box of the grid that meets the domain carries polynomials. Equations hold at points of tile and domain, conditions
    on the boundary wherever it cuts, fields and their derivatives below the order are continuous across sides inside the
    domain. Tiles and degrees are refined until the solution hardly changes any more: that change is its estimated error.
    Nonlinear problems at rest that are far from solved from zero begin from coarse classical grids.

    Args:
        tiles: how many along the longest side of the domain, or one number for each coordinate; None finds them.
        degree: of the polynomials along every coordinate; None finds it.
        on: the tiles of another solution's ``trial.model``, taken as they are.
        begin: the solution that Newton's method and the search of constants begin from, which is ``start`` of ``fit``.

    Raises:
        SolverError: numbers that are not positive whole ones, or one of the two without the other; a solution in the place of
            ``begin``.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> square = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.2)
        >>> class Plate(sciml.Problem):
        ...     domain = square
        ...     fields = ["u"]
        ...     conditions = [sciml.Dirichlet(u=lambda x, y: x * y, on=square.boundary)]
        ...     @sciml.equation
        ...     def laplace(self, u, x, y):
        ...         return d(u, x, x) + d(u, y, y)
        >>> solution = sciml.fit(Plate(), strategy=sciml.strategies.Tiles(4, 6))
        >>> bool(abs(solution(x=0.1, y=0.9)["u"] - 0.09) < 1e-6)
        True

    Reference: P. B. Bochev and M. D. Gunzburger, Least-Squares Finite Element Methods, Springer 2009; E. Burman and others,
    CutFEM: discretizing geometry and partial differential equations, International Journal for Numerical Methods in
    Engineering 104 (2015).
    """

    tiles: int | tuple[int, ...] | None = None
    degree: int | None = None
    on: TilePolynomials | None = None
    begin: WarmStart | None = None

    def __post_init__(self) -> None:
        given = [*(self.tiles if isinstance(self.tiles, tuple) else (self.tiles,)), self.degree]
        whole = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in given)
        if not whole and any(each is not None for each in given):
            raise SolverError(f"tiles and degree must both be positive whole numbers, or left out; given: {self!r}")
        if not isinstance(self.begin, WarmStart | None):
            raise SolverError(f"hand a solution to begin from to fit, as start=; given: begin={self.begin!r}")

    def obstacle(self, work: Workspace) -> str | None:
        if work.dimension > MOST_COORDINATES:
            return f"it has more than {MOST_COORDINATES} coordinates"
        if isinstance(self.tiles, tuple) and len(self.tiles) != work.dimension:
            return f"it has {work.dimension} coordinates, and tiles are given for {len(self.tiles)}"
        if work.measurements is not None:
            beside = "; begin from the constants of a solution by Unknown(its estimate)" if self.begin is not None else ""
            return f"it has measurements{beside}"
        if work.problem.unknowns and work.problem.time is not None:
            return "it has unknown constants, and starts in time"
        if any(each.prior is not None for each in work.problem.unknowns.values()):
            return "its unknown constants have priors, and there are no measurements"
        # In time a mean ties the tiles of each time.
        return (untied(work.problem) if work.problem.time is not None else None) or not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        given = any(each is not None for each in (self.tiles, self.degree, self.on, self.begin))
        marched = best is not None and best.solver == WINDOWS and not best.solved
        if marched and not given and work.log.seconds > _LATE * work.log.budget.seconds:
            work.choices.append(f"{self.name}: left out, windows did not arrive in time, and tiles for all times take longer")
            return
        if given or work.linear or work.problem.time is not None or work.problem.unknowns:
            yield from self._refined(work)
            return
        plain = replace(self, begin=_off_singular(work))._refined(work)
        # What is far from solved has gone astray: from nothing Newton's method may end where finer tiles mend nothing.
        first, now, other = None, None, None
        for first in itertools.islice(plain, 0 if best is not None and best.residual > _ASTRAY_AT else _PLAIN):
            yield first
        if astray := first is None or first.residual > _ASTRAY_AT:
            for other in self._from_grids(work):
                yield _better(other, first)
            if other is not None and other.residual <= _ASTRAY_AT:
                return
        for now in plain:
            yield _better(now, other)
        # So it has where tiles at the ends hide what they do not solve.
        if not astray and now is not None and now.doubt and work.dimension == 1:
            for other in self._from_grids(work):
                yield _better(other, now)

    def _from_grids(self, work: Workspace) -> Iterator[Candidate]:
        """Solutions that are begun from what classical grids find, if anything: from finer ones where they end astray."""
        for count in COARSE[work.dimension]:
            last, (begin, finer) = None, _coarse_start(work, count)
            for last in () if begin is None else replace(self, begin=begin)._refined(work):
                yield last
            if not finer or work.log.overdue or (last is not None and last.residual <= _ASTRAY_AT):
                return

    def _refined(self, work: Workspace) -> Iterator[Candidate]:
        """Solutions on finer and finer tiles, the best so far each time."""
        target, budget = work.target(_EXACT), work.log.budget
        found: Candidate | None = None
        last: DiscreteProblem | None = None
        so_far = _Refinements()
        # Seconds that a multiplication takes, as far as is known.
        rate, alike, first = 0.0, True, 0.0
        levels = self._laid(work)
        if self.on is not None:
            levels = iter([TileSpace(work.problem.bind_initial(), copy.deepcopy(self.on).cpu(), work.problem.coordinates)])
        begun: DiscreteProblem | None = None
        kept: TileSpace | None = None
        if self.begin is not None:
            # A set-up of its own: constants of the shared one stay where they are.
            begun = replace(work.discrete.with_unknowns(), trial=self.begin.scaled)
            work.choices.append(self.begin.hand_on(begun))
            own = self.begin.tiles(work.problem) if self.tiles is None and self.on is None else None
            if own is not None:
                coarser = TileSpace(work.problem.bind_initial(), own, work.problem.coordinates)
                coarser = coarser.lower(_LOWER if min(own.degrees) > 2 * _LOWER else 0)
                levels = itertools.chain([_graded(work, coarser)], levels)
        space = next(levels, None)
        while space is not None:
            model = space.model
            effort, numbers, elsewhere = space.effort(budget.accelerator)
            tables = _TABLES * len(model.live) * (space.fields_a_tile * model.width) ** 2
            needed, there = 8.0 * (numbers + tables), 8.0 * (elsewhere + tables) * bool(elsewhere)
            reached = math.inf if found is None else found.known if found.at_most else found.residual
            most = _EFFORT_IN_NEED if reached > work.options.largest_error else _EFFORT
            dear = effort > most and self.degree is None
            if dear or not budget.holds(_MEMORY, needed, there):
                limit = f"{effort:.0e} multiplications, and {most:.0e} are the most"
                beside = f" and {there / 2**30:.2g} GB on {budget.accelerator}" if there else ""
                allowed = f"{needed / 2**30:.2g} GB{beside}, and may have {budget.bytes(_MEMORY) / 2**30:.2g} GB"
                work.choices.append(f"{self.name}: {model.extra_repr()} would take {limit if dear else allowed}")
                if (found is None and self.begin is None) or not alike or model.alike:
                    break
                # In three coordinates to halve some tiles may be dearer than to make all a little finer.
                space = next(levels, None)
                continue
            left = budget.seconds - work.log.seconds
            if rate * (effort + _BESIDE) > left:
                work.choices.append(f"{self.name}: {model.extra_repr()} would take longer than the {left:.0f} s that are left")
                break
            began = work.log.seconds
            near = last is not None or self.on is not None
            level = _solved(work, space, begun if last is None else last, near=near)
            # Before others are asked, who may take long.
            rate = (work.log.seconds - began) / (effort + _BESIDE)
            solved, hidden, squares = level.discrete, level.hidden, level.squares
            changes = {} if last is None else _changes(work, solved, last)
            at_most = so_far.at_most(changes, space.left(squares), model.alike, hidden, space.at_jumps, space.weight)
            # Without anything to compare with, or where no step is known, what is left on the rows has to do.
            judged = max(relative(solved) if last is None or not so_far.change else max(at_most.values()), level.jump, hidden)
            name = f"Tiles({model.extra_repr()})"
            judge = f"the last refinement changed the fields by {so_far.change:.1e} of their size"
            if last is None:
                judge = f"the residual on held-out points is {judged:.1e} of its natural size"
            solved = judged_apart(solved, space.regular)
            unsolved = _unsolved(solved)
            stalled = so_far.stalled(unsolved, space.singular, partial(_rounding, solved), partial(_even, solved))
            apart = f"; {SINGULAR}" if space.singular else ""
            how = solved_how(work.linear and not work.problem.unknowns)[0]
            reason = f"{how}: polynomials on {model.extra_repr()} by least squares; {judge}{apart}"
            at_most = {name: so_far.to_come * each for name, each in at_most.items()}
            loose = so_far.adrift(level.loosest, unsolved, work.linear)
            adrift = [name for name, share in level.shares.items() if share > _SHARE] if loose else []
            unsure = stalled or determined_up_to(adrift)
            fading = so_far.fading(level)
            if solved.raw:
                before, relative_error = {} if last is None else last.raw, max(at_most.values(), default=math.nan)
                solved = replace(
                    solved,
                    inference=from_refinement(
                        work.problem.unknowns, solved.raw, before, relative_error, [*set(level.seen) - fading]
                    ),
                )
            if level.loosest < _HARDLY:
                # What is left moves the fields that far along the direction.
                moved = {name: unsolved / max(level.loosest, 1e-300) * share for name, share in level.shares.items()}
                far = dict.fromkeys(adrift, 1.0) or moved
                at_most |= {name: max(each, at_most.get(name, 0.0)) for name, each in far.items()}
                first = max(moved.values()) if last is None else first
            # The change says how good the tiles before were, which may have seemed better than they are; so may the first ones,
            # judged by residuals alone, where these hardly see what finer tiles do.
            seemed = (1.0 if model.alike else _SEEMED) * max(0.0 if found is None else found.residual, 0.0 if adrift else first)
            # The first ones do not say how far off constants are.
            second = bool(solved.raw) and len(so_far.seen) == 2 and judged <= target
            better = found is None or last is None or judged < seemed or second
            first = 0.0 if better and last is not None else first
            solver = "GaussNewton" if level.steps > 1 else "LinearLeastSquares"
            now = Candidate(solved, judged, solver, reason, at_most=at_most, regular=space.regular if space.singular else None)
            # Corrections by smooth functions say nothing of singular ones.
            told = space.singular or level.loosest < _HARDLY
            now = replace(now, errors={name: min(1.0, each) for name, each in at_most.items()}) if told else now
            now = replace(now, sufficient=so_far.to_come * judged <= _GOOD and not unsure, doubt=unsure)
            kept, found = (space, now) if better or found is None else (kept, replace(found, doubt=unsure))
            work.log.solved(name, float(squares.sum()), judged, {}, best=found.residual, most=len(_LEVELS[work.dimension]))
            yield found
            last = solved
            if so_far.misled > _MISLED:
                beyond = "at the ends of the interval tiles make layers that do not solve the equations"
                work.choices.append(f"{self.name}: given up, {beyond}")
                found = replace(found, doubt=f"{beyond}: {_CONTRADICTS}")
                break
            if not math.isfinite(unsolved):
                # No refinement makes numbers of an equation that has none.
                yield replace(found, accepted=True)
                return
            if so_far.stuck > _STUCK:
                work.choices.append(f"{self.name}: given up, {stalled}")
                break
            ended = so_far.ended(judged, model.alike)
            if ended and not found.doubt and (vain := so_far.never_solved(space.singular)):
                work.choices.append(f"{self.name}: given up, {vain}")
                found = replace(found, doubt=vain)
                break
            enough = ended or so_far.likely <= target
            # Finer tiles may show yet that a direction is seen, unless nothing but rounding is; they alone show how far off
            # constants may be.
            looks = _MANY_LOOKS if adrift and level.loosest > _SEEN else _LOOKS if adrift or fading else 2 if solved.raw else 1
            if (adrift and so_far.blind) or (enough and len(so_far.seen) >= looks) or work.log.stopped:
                break
            alike = model.alike
            # What is left in time was carried there from earlier times: it does not say where tiles should be smaller.
            local = self.tiles is None and self.on is None and work.problem.time is None
            adapted = space.adapted(squares) if local else None
            space = next(levels, None) if adapted is None else adapted
        fixed = work.linear and not work.problem.unknowns and not work.log.stopped
        if found is not None and kept is not None and adrift and so_far.blind and fixed:
            # Of what nothing determines, the least that solves the problem: without damping rounding makes it huge.
            huge, worst = kept.model.coefficients.clone(), max(_SEEMED * relative(found.discrete), _GOOD)
            kept.model.coefficients.zero_()
            least = judged_apart(_solved(work, kept, None, near=False, damping=_LEAST_NORM).discrete, kept.regular)
            if relative(least) <= worst:
                found = replace(found, discrete=least)
            else:
                kept.model.coefficients.copy_(huge)
        if found is not None:
            # The change is the error of the coarser tiles, and so far above that of these, unless refining no longer helps.
            falls = found.residual <= _CHANGED and so_far.change < _FALLS * so_far.before
            # No way tells solutions apart that equations and conditions do not, or balances what flows.
            settled = not found.doubt or bool(adrift)
            good = (found.residual <= ENOUGH or falls or so_far.likely <= target) and settled
            # Beside what others come to, the error of these tiles counts that is likely.
            residual = found.residual if good else min(found.residual, so_far.likely)
            yield replace(found, residual=residual, accepted=good or so_far.unbalanced)

    def _can_be_laid(self, work: Workspace, counts: tuple[int, ...], degree: int) -> bool:
        """Whether memory holds one matrix for each box of a grid: more than it would be full before tiles are known."""
        numbers, budget = self._numbers(work.problem, counts, degree), work.log.budget
        needed = 8.0 * numbers**2 / math.prod(counts)
        if budget.holds(_MEMORY, needed):
            return True
        grid = f"{' x '.join(map(str, counts))} tiles of degree {degree}"
        allowed = f"{needed / 2**30:.2g} GB, and may have {budget.bytes(_MEMORY) / 2**30:.2g} GB"
        work.choices.append(f"{self.name}: {grid} would take at least {allowed}")
        return False

    def _laid(self, work: Workspace) -> Iterator[TileSpace]:
        """Background grids: the tiles of each level that meet the domain."""
        taken = 0.0
        for counts, degree in self._levels(work):
            if not self._can_be_laid(work, counts, degree):
                continue
            boxes, began = " x ".join(map(str, counts)), work.log.seconds
            # Small tiles along all edges of a body take seconds to lay, and more on each level.
            if (left := work.log.budget.seconds - began) < taken:
                work.choices.append(f"{self.name}: to lay {boxes} tiles would take longer than the {left:.0f} s that are left")
                return
            found = _space(work, counts, degree)
            taken = work.log.seconds - began
            if found is not None:
                yield found
                continue
            none = f"none of {boxes} tiles has enough points inside {work.problem.domain!r}"
            if self.tiles is not None:
                raise SolverError(f"{none}: use more tiles")
            work.choices.append(f"{self.name}: {none}")

    def _levels(self, work: Workspace) -> list[tuple[tuple[int, ...], int]]:
        """Tiles along each coordinate, about as wide as long, and their degree."""
        if self.degree is not None and self.tiles is not None:
            counts = self.tiles if isinstance(self.tiles, tuple) else _cubes(work.problem, self.tiles)
            coarse = tuple(max(1, each - 1) for each in counts)
            return [(coarse, self.degree), (counts, self.degree)]
        # As many on a long domain as on a square one.
        space = _in_space(work.problem)
        longer = max(space) / math.prod(space) ** (1 / len(space))
        levels = [(_cubes(work.problem, count * longer), degree) for count, degree in _LEVELS[work.dimension]]
        for number, (counts, degree) in enumerate(levels[1:], 1):
            coarser, before = levels[number - 1]
            # Where no more tiles lie across a thin domain, its finer levels would hide what these miss.
            as_many = any(one <= two for one, two in zip(counts, coarser, strict=True))
            levels[number] = counts, max(degree, before + as_many)
        # On tiles that are too coarse for a solution Newton's method would leave it.
        known = 0 if self.begin is None else cast(TilePolynomials, model_of(self.begin.scaled)).coefficients.numel()
        held = [self._numbers(work.problem, *each) >= _TOO_FEW * known for each in levels]
        return levels[min(held.index(True) if any(held) else len(levels), len(levels) - _LEAST) :]

    def _numbers(self, problem: Problem, counts: tuple[int, ...], degree: int) -> float:
        """How many coefficients a full grid of tiles has at least."""
        return _OF_ALL * math.prod(counts) * len(problem.fields) * (degree + 1) ** len(counts)


@dataclass
class _Refinements:
    """A posteriori error by successive refinements: changes of the fields, and the squares that are left on the rows."""

    change: float = math.inf
    before: float = math.inf
    left: float = math.inf
    coarser: float = math.inf
    falling: bool = False
    weights: tuple[float, float] = (math.inf, math.inf)
    likely: float = math.inf
    idle: int = 0
    astray: int = 0
    misled: int = 0
    stuck: int = 0
    seen: list[float] = field(default_factory=list)
    resolved: list[float] = field(default_factory=list)
    residuals: list[tuple[float, float]] = field(default_factory=list)
    smallest: float = math.inf
    weakest: float = math.inf
    unbalanced: bool = False
    floor: dict[str, float] = field(default_factory=dict)

    def at_most(
        self,
        changes: Mapping[str, float],
        left: float,
        alike: bool,
        hidden: float,
        smallest: float,
        weight: float = 1.0,
    ) -> dict[str, float]:
        """Hierarchical error estimate: how far off each field is at most, about, after a change by so much.

        What the ``smallest`` tiles at jumps miss shows only where they were halved: otherwise it is what it was. Squares of an
        equation on the largest tiles have a ``weight``.
        """
        # Of what contradicts itself rows have less on smaller tiles as well, by the weights of these alone.
        self.falling = left < _CONVERGES * min(1.0, weight / self.weights[0]) * self.coarser < math.inf
        self.left, self.coarser, self.weights = left, self.left, (self.weights[1], weight)
        self.before, self.change = self.change, max(changes.values(), default=math.inf)
        # Where few tiles were halved, the change is that of these; by Pythagoras, as what is left on the rows tells.
        unseen = 0.0 if alike else math.sqrt(left / max(self.coarser - left, _ALIKE * left, 1e-300))
        self.misled += hidden > 0
        halved, self.smallest = smallest < self.smallest, smallest
        found = {name: max(max(1.0, unseen) * each, hidden) for name, each in changes.items()}
        if not halved:
            return {name: max(each, self.floor.get(name, 0.0)) for name, each in found.items()}
        self.floor = found if smallest else {}
        return found

    @property
    def to_come(self) -> float:
        r"""Aitken's extrapolation: what all further refinements would change, by the last change: at least that of one more.

        Where each changes the fields by a share r of what the one before did, :math:`r + r^2 + \dots = r / (1 - r)`: at places
        where solutions are not smooth and tiles are halved again and again, more than the last one.
        """
        share = min(self.change / self.before, _SLOWEST) if 0 < self.before < math.inf else 0.0
        return max(1.0, share / (1 - share))

    def adrift(self, loosest: float, unsolved: float, linear: bool) -> bool:
        """Whether a direction that residuals see by so much is seen by rounding alone, or the less, the finer tiles are.

        So it is with a mode beside another one with the same eigenvalue: what is seen of it is what tiles miss. What tiles saw
        on which residuals are no small part of their natural sizes says nothing; of equations that are not linear, what coarse
        tiles saw was about another solution.
        """
        before = max(self.resolved if linear else self.resolved[-_LATELY:], default=math.inf)
        # What comes to rest far above what is left is seen by that much: a mode whose eigenvalue is near.
        rests = bool(self.seen) and loosest > max(_SEEN, _RESTS * self.seen[-1], unsolved / _KNOWN)
        self.seen.append(loosest)
        self.resolved += [loosest] * (unsolved <= _RESOLVED)
        return loosest < _HARDLY and (self.blind or (loosest < _FADES * before and not rests))

    def fading(self, level: _Level) -> set[str]:
        """Constants along the direction that rows see least, where they see less of it the finer the tiles are.

        What tells such constants apart is what tiles miss, and nothing of the problem.
        """
        before, self.weakest = self.weakest, level.weakest
        falls = level.weakest < min(_HARDLY, _HALVED * before) and before < math.inf
        return set(level.along) if falls else set()

    @property
    def blind(self) -> bool:
        """Whether residuals see some direction by rounding alone."""
        return self.seen[-1] < _ROUNDED

    def stalled(self, residual: float, singular: bool, rounding: Callable[[], float], even: Callable[[], str] = str) -> str:
        """Inconsistent equations: why least squares seem to settle where nothing is solved, after a certificate's residual.

        Where there is a solution residuals fall with the changes, whatever the order, down to what ``rounding`` leaves; where
        there is none, they have a limit. At once where those of an equation, ``even``, are the same everywhere.
        """
        earlier = [found for change, found in self.residuals if math.inf > change >= _SETTLES * self.change]
        least = min((found for _, found in self.residuals), default=math.inf)
        self.residuals.append((self.change, residual))
        latest = [found for _, found in self.residuals[-_LOOKS:]]
        # What is as large as the parts of an equation is not resolved yet, as in front of a layer.
        alike = len(latest) == _LOOKS and max(latest) < _ALIKE_TOO * min(latest) and _LEAKS < residual < _RESOLVED
        if alike and (name := even()):
            self.stuck, self.unbalanced = _STUCK + 1, True
            where = f"the equation {name!r} misses by the same nearly everywhere, {residual:.1e} of its natural size"
            return f"{where}, whatever the tiles: {_CONTRADICTS}"
        # On slivers of cut tiles, between points of rows that hold, polynomials are noise.
        noise = residual < _SLOW and self.left < (_ON_ROWS * residual) ** 2
        # Residuals that rise from where the equations held do not stay.
        if (
            not earlier
            or noise
            or self.falling
            or not math.isfinite(residual)
            or residual > _RISES * least
            or residual < max(_SLOW if singular else _NOISE, self.change, min(earlier) / _STALLS)
            or residual < rounding()
        ):
            self.stuck = 0
            # Finer tiles may resolve what these do not.
            levels = [found for _, found in self.residuals if math.isfinite(found)]
            earlier, later = levels[:-_LOOKS], levels[-_LOOKS:]
            stay = bool(earlier) and min(later) > max(_UNRESOLVED, min(earlier) / _STALLS) and math.isfinite(residual)
            return f"residuals stay at {residual:.1e} of their natural size whatever the tiles: {_CONTRADICTS}" if stay else ""
        self.stuck += 1
        changed = f"while refinements change the fields by {self.change:.1e} only"
        return f"residuals stay at {residual:.1e} of their natural size {changed}: {_CONTRADICTS}"

    def never_solved(self, singular: bool) -> str:
        """Inconsistent equations: that neither residuals nor changes ever fell, the larger of which are the residuals.

        Of what has a solution that tiles resolve, one of the two falls.
        """
        if singular or len(self.residuals) < _LOOKS + 1 or self.falling:
            return ""
        (_, first), (change, _), *_ = self.residuals
        smallest, least = map(min, zip(*self.residuals[1:], strict=True))
        # Changes that fell and came to rest say nothing, unless they are small beside residuals and still no solution.
        rests = self.idle > 0 and _CHANGED < self.change <= least / _SETTLES
        fell = smallest < _AS_MUCH * change and not rests
        # Where they rest the first tiles are too few to compare with.
        from_first = 0.0 if rests else first / _STALLS
        if fell or not max(_SLOW, self.change, from_first) <= least < math.inf:
            return ""
        return f"residuals stay at {least:.1e} of their natural size whatever the tiles: {_CONTRADICTS}"

    def ended(self, judged: float, alike: bool) -> bool:
        """Stopping criterion: whether another one would be in vain, where the fields are judged to be so far off."""
        # The change is the error of the tiles before; that of these is likely less by as much again.
        self.likely = judged * min(1.0, self.change / self.before) if 0 < self.before < math.inf else judged
        gains = not alike and self.left < _GAINS * self.coarser
        self.idle = self.idle + 1 if self.change > self.before and not gains else 0
        self.astray += self.change > _UNRESOLVED
        patience = _UNTIL_RESOLVED if judged > _UNRESOLVED else int(not alike)
        return self.idle > patience or self.astray > _ASTRAY


def _cubes(problem: Problem, most: float) -> tuple[int, ...]:
    """So many tiles along the longest side, as many as are about as long along the others; along time as along space."""
    widths = problem.domain.half_widths
    longest = max(_in_space(problem))
    return tuple(max(1, round(most * (longest if name == problem.time else width) / longest)) for name, width in widths.items())


def _in_space(problem: Problem) -> list[float]:
    """Half the widths of the domain along the coordinates beside time, or along time alone."""
    widths = problem.domain.half_widths
    return [width for name, width in widths.items() if name != problem.time] or list(widths.values())


def _space(work: Workspace, counts: tuple[int, ...], degree: int) -> TileSpace | None:
    """The tiles that meet the domain; None where none does."""
    problem = work.problem.bind_initial()
    found = TileSpace.laid(problem, problem.coordinates, counts, degree, len(problem.fields))
    return None if found is None else _graded(work, found)


def _graded(work: Workspace, space: TileSpace) -> TileSpace:
    """Grading: tiles that are smaller where it is known beforehand that they should be."""
    found = space.around(work.discrete.narrow.values()).around_small_holes()
    # Layers at the ends of an interval, where least squares spread an error that no tile resolves, cost few tiles.
    if work.dimension == 1:
        return found.towards(found.corners, _TO_THE_ENDS)
    # The singular function of an edge has second derivatives that no square integral bounds: on large tiles least squares go
    # elsewhere, and what is left says nothing.
    in_space = work.dimension == 3 and work.problem.time is None
    # Of eigenfunctions, too, those that are not smooth would have no minimum of their own; so it is with roots, where
    # conditions change.
    corners = found.reentrant
    found = found.towards(corners if in_space or work.problem.unknowns else corners[corners.mixed])
    return found if in_space else found.resolving_data()


@dataclass(frozen=True)
class _Level:
    """A problem solved on some tiles.

    Attributes:
        discrete: the set-up with them.
        steps: that were taken.
        jump: the largest between tiles.
        hidden: what is left where the certificate does not look.
        squares: the sum of those left on each tile.
        seen: the unknown constants that rows see.
        loosest: by how much residuals see the direction of natural size that they see least, in their natural sizes.
        shares: what that direction is of each field's own size.
        weakest: the smallest singular value by which rows see the unknown constants.
        along: the constants that it moves.
    """

    discrete: DiscreteProblem
    steps: int
    jump: float
    hidden: float
    squares: Tensor
    seen: list[str]
    loosest: float
    shares: dict[str, float]
    weakest: float
    along: list[str]


def _solved(work: Workspace, space: TileSpace, last: DiscreteProblem | None, *, near: bool, damping: float = 0.0) -> _Level:
    """The set-up with these tiles, solved; ``damping`` is that of linear equations."""
    model = space.model
    trial = work.discrete.with_model(model).trial.cpu()
    raw = {name: value.detach().cpu() for name, value in (work.discrete if last is None else last).raw.items()}
    problem = work.problem if raw else space.problem
    laid = partial(TileRows, problem, space, trial, [work.seed, 10], raw, work.log.budget.accelerator)
    shape, size, linear = model.coefficients.shape, model.coefficients.numel(), work.linear and not raw
    # Where no step is known, it is what is kept.
    start = model.coefficients.clone() if last is None or linear else _begun(problem, trial, cast(Scaled, last.trial))
    rows = laid() if last is None or linear else laid(about=start)
    if last is not None and not all(bool(each.isfinite().all()) for each in rows.values(start)):
        # Coarse polynomials may swing to where an equation overflows.
        start, rows = model.coefficients.clone(), laid()

    varying = bool(raw or len(rows.levels))
    linear = linear and not varying

    def at(position: Tensor) -> tuple[TileRows, Tensor]:
        beside = position[size:]
        values = dict(zip(raw, beside, strict=False))
        return rows.at(values, beside[len(raw) :]) if varying else rows, position[:size].view(shape)

    def compute() -> dict[str, object]:
        seen, taken = torch.ones(len(raw), dtype=torch.bool), itertools.count()
        factored: list[TileLinearization] = []
        weakest: list[ProjectedStep] = []

        def merit(position: Tensor) -> float:
            here, coefficients = at(position)
            return sum(float(each.square().sum()) for each in here.values(coefficients))

        def linearise(position: Tensor) -> DampedStep:
            here, coefficients = at(position)
            try:
                found = here.linearised(coefficients)
            except torch.linalg.LinAlgError:
                # Rows that are not finite know no step.
                return lambda damping: None
            factored[:] = [found]

            # Between eigenvalues lie maxima of what is left: far steps would lead to any of them. Others may be far away.
            constants = position[size : size + len(raw)].abs().tolist()
            farthest = _NEAREST * 2.0 ** next(taken) * max([1.0, *constants])

            def varied(damping: float) -> Tensor | None:
                projected = found.varied(damping)
                if projected is None:
                    return None
                if damping <= _TINY:
                    # With more damping coefficients imitate nothing.
                    seen.copy_(projected.seen[: len(raw)])
                    weakest[:] = [projected]
                whole = projected.step(math.inf)
                # What is linear is solved by a step of any length.
                near = projected.farthest <= farthest or merit(position + whole) <= _SOLVED * merit(position)
                return whole if near else projected.step(farthest)

            return varied if varying else found.step

        def told(position: Tensor, steps: int, loss: float) -> dict[str, object]:
            coefficients = position[:size].view(shape)
            model.coefficients.copy_(coefficients)
            beside = {"raw": position[size : size + len(raw)], "levels": position[size + len(raw) :]}
            kept = {"coefficients": coefficients, **beside, "seen": seen, "steps": steps, "loss": loss}
            for last in weakest:
                kept |= {"weakest": last.weakest, "along": last.along[: len(raw)]}
            return kept | _loosest(work, trial, factored)

        constants = torch.stack(list(raw.values())) if raw else torch.zeros(0, dtype=torch.float64)
        begin = torch.cat([start.flatten(), constants, rows.held(start)])
        if linear:
            step = linearise(begin)(damping)
            found = begin if step is None else begin + step
            return told(found, 1, merit(found))
        # From what coarser tiles found, a step or two is enough: the next refinement changes more than the others would.
        settled, idle = (_NEARLY, 1) if near else (_SETTLED, _IDLE)
        method = DampedGaussNewton(_TINY, 0.1, _TINY, _TINY, settled, patience=idle, lengths=_LENGTHS, same=_EQUAL)
        found, loss, steps = method.minimise(linearise, merit, begin, _STEPS, lambda: work.log.overdue)
        return told(found, max(2, steps), loss)

    got = work.journal.recalled(f"tiles {model.extra_repr()}", compute)
    found = got["coefficients"]
    model.coefficients.copy_(_levelled(space, found))
    solved = work.discrete.with_model(model)
    if varying:
        after = dict(zip(raw, got["raw"], strict=True))
        rows, solved = rows.at(after, got["levels"]), solved.with_unknowns(after)
    # Where equations and conditions contradict each other, or at a minimum that is no solution, a layer at an end hides it.
    hidden = rows.hidden(found, work.discrete.scales) if work.dimension == 1 else 0.0
    hidden = hidden if hidden > _CHANGED else 0.0
    seen = [name for name, known in zip(raw, got.get("seen", ()), strict=True) if bool(known)]
    loosest = _seen(solved, got["loosest"], linear=linear) if "loosest" in got else math.inf
    weakest = float(got["weakest"]) if "weakest" in got else math.inf
    along = [name for name, part in zip(raw, got.get("along", ()), strict=False) if float(part) > _PART_OF]
    shares = dict(zip(work.problem.fields, got["shares"].tolist() if "shares" in got else (), strict=False))
    return _Level(solved, got["steps"], rows.jumps(found), hidden, rows.by_tile(found), seen, loosest, shares, weakest, along)


def _loosest(work: Workspace, trial: Scaled, factored: Sequence[TileLinearization]) -> dict[str, Tensor]:
    """The direction of natural size, ``(T, F, K)``, that rows see least, and what it is of each field's own size, ``(F,)``.

    What polynomials are beyond the domain, or where a field does not live, is none of its size. Nothing where no factor is.
    """
    if not factored:
        return {}
    problem, model, points = work.problem, cast(TilePolynomials, trial.model), _inside(work)
    lives = torch.stack([problem.lives_at(name, points) for name in problem.fields], dim=1)
    # A field that is small beside what it is tied to would seem to be hardly held.
    units = torch.where(lives, 1.0 / lives.sum(0).clamp_min(1).sqrt(), 0.0).to(trial.scale)
    places = (points - trial.center) / trial.half_width
    tile = model.tile(places)
    table = model.functions(model.local(places, tile), [0] * len(model.degrees))

    def values(coefficients: Tensor) -> Tensor:
        return units * torch.bmm(coefficients[tile], table[:, :, None])[:, :, 0]

    found = factored[0].least_seen(values)
    moved = values(found).norm(dim=0)
    largest = float(moved.max())
    # Along a direction that nothing holds rounding may have carried the fields far.
    sizes = root_mean_squares(problem, points, trial(points)).clamp(NEXT_TO_NOTHING * trial.scale, _HUGE * trial.scale)
    known = 0 < largest < math.inf
    return {"loosest": found / largest, "shares": moved / largest * trial.scale / sizes} if known else {}


def _seen(found: DiscreteProblem, direction: Tensor, *, linear: bool) -> float:
    """By how much a direction of natural size moves the residuals, in theirs, the largest of all."""
    coefficients = cast(TilePolynomials, found.trial.model).coefficients
    kept, moved = coefficients.clone(), []
    # Of linear equations the place does not matter, and of a huge solution rounding would.
    place = torch.zeros_like(kept) if linear else kept
    try:
        for sign in (1, -1):
            coefficients.copy_(place + sign * _STEP * direction.to(kept))
            moved.append(found.rows.numbers(found.held))
    finally:
        coefficients.copy_(kept)
    changes = [float((one - moved[1][name]).square().mean().sqrt()) / found.scales[name] for name, one in moved[0].items()]
    return max(changes) / (2 * _STEP) if all(map(math.isfinite, changes)) else math.inf


def sensitivities(
    found: DiscreteProblem, raw: Mapping[str, Tensor], seed: int, accelerator: torch.device = CPU
) -> Tensor | None:
    r"""Sensitivity equations on tiles: the derivatives of all coefficients by each raw unknown, ``(q, T, F, K)``, or None.

    One factor of the rows linearised at a solution serves all of them; see ``TileLinearization``.
    """
    trial, names = copy.deepcopy(found.trial).cpu(), found.problem.coordinates
    model, raw = trial.model, {name: value.cpu() for name, value in raw.items()}
    bound = found.problem.bind(**{name: each.value(raw[name]) for name, each in found.problem.unknowns.items()})
    space = TileSpace(bound, model, names)
    rows = TileRows(found.problem, space, trial, [seed, 10], raw, accelerator)
    slopes = rows.linearised(model.coefficients).sensitivities()
    return None if slopes is None else torch.stack([_levelled(space, each) for each in slopes]).to(found.trial.scale)


def _unsolved(found: DiscreteProblem) -> float:
    """The largest root mean square of an equation on the certificate's points, as a share of its natural size."""
    means = found.objective(found.fresh).means()
    # Conditions weigh more; means are told by points whose own error does not fall.
    return math.sqrt(max(float(means[name]) for name in found.problem.equations))


def _even(found: DiscreteProblem) -> str:
    """Uniform residual: the equation that misses most, if by nearly the same everywhere, as of what flows in and not out."""
    numbers = found.rows.numbers(found.fresh)
    worst = max(found.problem.equations, key=lambda name: float(numbers[name].square().mean()) / found.scales[name] ** 2)
    values = numbers[worst]
    return worst if float(values.mean().abs()) > _EVEN * float(values.square().mean().sqrt()) else ""


def _rounding(found: DiscreteProblem) -> float:
    """What rounding may leave of an equation, as a share of its natural size: fourth derivatives on small tiles have much."""
    coefficients = cast(TilePolynomials, found.trial.model).coefficients
    kept, exact = coefficients.clone(), found.rows.numbers(found.fresh)
    noise = torch.randn(kept.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(kept)
    try:
        coefficients.add_(torch.finfo(kept.dtype).eps * kept.abs().amax((1, 2), keepdim=True) * noise)
        moved = found.rows.numbers(found.fresh)
    finally:
        coefficients.copy_(kept)
    sizes = {name: float((moved[name] - exact[name]).square().mean().sqrt()) for name in found.problem.equations}
    return _AMPLIFIED * max(size / found.scales[name] for name, size in sizes.items())


def _better(now: Candidate, other: Candidate | None) -> Candidate:
    """The latest candidate of one run, unless that of another one has a smaller residual."""
    return now if other is None or now.residual <= other.residual else other


def _off_singular(work: Workspace) -> WarmStart | None:
    """Degenerate equations, as of p-Laplace: a start where they have slopes; None where they have them at the centres."""
    problem, trial, blocks = work.problem, work.discrete.trial, work.discrete.train
    centres, sizes = (dict(zip(problem.fields, each.tolist(), strict=True)) for each in (trial.offset, trial.scale))
    if regular_at(problem, blocks, centres):
        return None
    # Where hollows would do as well they lead to another solution.
    if not even_about(problem, blocks, {name: (each, sizes[name]) for name, each in centres.items()}):
        return None
    return WarmStart.hills(problem, trial.offset.cpu(), trial.scale.cpu())


def _coarse_start(work: Workspace, count: int) -> tuple[WarmStart | None, bool]:
    """Grid sequencing: what classical grids of so many nodes find, as polynomials on tiles, or None; whether finer ones may."""

    def compute() -> dict[str, object]:
        found, why, finer = on_coarse_grids(work, count)
        if found is None:
            return {"why": why, "finer": finer}
        start = cast(TilePolynomials, model_of(cast(WarmStart, WarmStart.of(found, work.problem, None)).scaled))
        return {"config": start.config, "coefficients": start.coefficients, "said": f"what is found by {found.solver}"}

    got = work.journal.recalled(f"coarse grids {count}", compute)
    if "why" in got:
        work.choices.append(f"{Tiles.__name__}: no start from grids of {count} nodes, {got['why']}")
        return None, bool(got["finer"])
    start = replace(WarmStart.guessed({}, work.problem), said=str(got["said"]))
    start.scaled.model = TilePolynomials.from_config(**got["config"])
    start.scaled.model.coefficients.copy_(got["coefficients"])
    return start, True


def _levelled(space: TileSpace, coefficients: Tensor) -> Tensor:
    """Coefficients ``(T, F, K)`` whose levels that were held at a place are moved to their means."""
    by_field = coefficients.transpose(0, 1)
    return space.levelled(by_field.flatten(1)[:, None]).view(by_field.shape).transpose(0, 1)


def _begun(problem: Problem, trial: Scaled, last: Scaled) -> Tensor:
    """The coefficients of tiles nearest to a solution, such as that on coarser ones, tile by tile.

    Beyond the bounds of the other solution it is what it is at them.
    """
    model = cast(TilePolynomials, trial.model)
    places, table = nodes(model)
    low, high = last.center - last.half_width, last.center + last.half_width
    points = trial.center + places.flatten(0, 1) * trial.half_width
    values = (last(points.clamp(low.to(points), high.to(points)).to(last.offset)).cpu() - trial.offset) / trial.scale
    if not bool(values.isfinite().all()):
        return model.coefficients.clone()
    values = values.view(*places.shape[:2], -1)
    found = nearest(table, values)
    # A tile that is one of the others, or lies in it, is what that was. Across others, what these are where they reach beyond
    # the domain, or where a field does not live, is nobody's, and may be large.
    missed = (table @ found - values).abs().amax(1) > _SAME * values.abs().amax(1)
    if not missed.any():
        return found.mT.contiguous()
    within = torch.from_numpy(np.asarray(problem.domain.contains(points.numpy())))
    for number, name in enumerate(problem.fields):
        lives, own = (within & problem.lives_at(name, points)).view(values.shape[:2]), values[:, :, number]
        if not lives.any():
            continue
        least, most = own[lives].aminmax()
        tamed = own.clamp(least - (most - least), most + (most - least))
        far = missed[:, number] & ((tamed != own) & ~lives).any(1)
        weights = torch.where(lives[far], 1.0, _BEYOND)[:, :, None].to(table)
        wanted = torch.where(lives[far], own[far], tamed[far])[:, :, None]
        found[far, :, number] = torch.linalg.lstsq(weights * table, weights * wanted, driver="gels").solution[:, :, 0]
    return found.mT.contiguous()


def _changes(work: Workspace, now: DiscreteProblem, before: DiscreteProblem) -> dict[str, float]:
    """The root mean square by which each field has changed, as a fraction of its size."""
    points = _inside(work)
    values = now.trial(points)
    return relative_l2(work.problem, points, (values - before.trial(points)).nan_to_num(math.inf), values, now.trial)


def _inside(work: Workspace) -> Tensor:
    """The held-out points that lie in the domain, ``(n, D)``."""
    points = torch.cat([points for block in work.discrete.held for points in block.sample.points])
    return points[torch.from_numpy(np.asarray(work.problem.domain.contains(points.cpu().numpy())))]

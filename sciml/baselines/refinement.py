"""Grid refinement until two grids agree, and the observed order of convergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd
import torch

from sciml._text import listed
from sciml.baselines.collocation import NewtonError
from sciml.baselines.integrate import BlowUpError, IntegrationError
from sciml.baselines.task import Solved, Task
from sciml.errors import BaselineError
from sciml.geometry import Domain, Interface, OnFaces, Product, Within
from sciml.models import Chebyshev, FiniteDifferences, Fourier, Grid, Nodal, ScatteredNodes
from sciml.problem import Problem
from sciml.slabs.row_layout import periodic_coordinates
from sciml.typing import Array

RECOVERABLE = (IntegrationError, NewtonError)
_PROBES = 8192
_SHARE = 0.1
# The grids that are compared at least.
_COMPARED = 2
# About how many steps Newton's method takes from the solution on a coarser grid.
_AGAIN = 6
_CHEAP = 0.05
# How the time for a grid grows with its nodes, at least; in the plane with that of factors.
_GROWS, _GROWS_FACTORED = 1.25, 2.0
# By how much grids may differ that are right to a tolerance, and how fast differences must fall to tell that.
_APART, _FALLING = 100.0, 0.25
# Grids that blow up at the same time before the solution is said to: two that are too coarse may.
_BLOWN = 3
# What least squares leave of an equation that nothing solves, at least; what a finer grid leaves of that; by how much less
# solutions on the two differ: where there is a solution what is left falls as they come to agree.
_CONTRADICTED, _STAYS, _SAME = 1e-4, 0.9, 1e-2
# Of the polynomials on scattered nodes: stencils of higher degree are dear in space.
_DEGREE = {2: 6, 3: 4}


class ContradictionError(BaselineError):
    """Inconsistent equations: least squares leave as much of them on any grid."""


@dataclass
class Refinement:
    """How the last grids compare.

    Attributes:
        solved: what the finest grid gave.
        sizes: nodes along the longest axis, grid after grid.
        gaps: how far each grid's solution is from the next one's: the largest relative difference of a field.
        agreed: whether the finest grid is right to the tolerance, as far as its distance from the one before tells.
        theory: the order that the differences have, None where convergence is exponential.
        ended: why it stopped short, or an empty string.
    """

    solved: Solved
    sizes: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    agreed: bool = False
    theory: int | None = None
    ended: str = ""

    @property
    def order(self) -> float:
        """The order at which the last two gaps fell; not a number before there are two, or where rounding ends it."""
        if len(self.gaps) < 2 or min(self.gaps[-2:]) < 1e-11 or self.sizes[-1] == self.sizes[-2]:
            return math.nan
        return math.log(self.gaps[-2] / self.gaps[-1]) / math.log((self.sizes[-1] - 1) / (self.sizes[-2] - 1))

    @property
    def error(self) -> float:
        """The error of the finest grid: the last gap is that of the grid before, and falls as it fell, or by its order."""
        if len(self.gaps) < 2:
            return self.gaps[-1] if self.gaps else math.inf
        fall = self.gaps[-1] / max(self.gaps[-2], 1e-300)
        if self.theory is not None:
            fall = ((self.sizes[-2] - 1) / (self.sizes[-1] - 1)) ** self.theory if self.order > self.theory - 0.5 else 1.0
        return self.gaps[-1] * (fall if fall <= _FALLING else 1.0)

    def agrees(self, tolerance: float) -> bool:
        """Whether the finest grid is right to a tolerance."""
        return bool(self.gaps) and self.error <= tolerance and self.gaps[-1] <= _APART * tolerance

    def history(self) -> pd.DataFrame:
        """A row for each grid: ``nodes`` along the longest axis, and the ``difference`` from the grid before."""
        return pd.DataFrame({"nodes": self.sizes, "difference": [math.nan, *self.gaps]})

    def hopeless(self, most: int, tolerance: float) -> bool:
        """Whether gaps fall so slowly that the grids that are left would not bring them below the tolerance."""
        if len(self.gaps) < 3:
            return False
        # Exponential convergence gathers pace: each of the next grids is granted twice the gain of the last two.
        gain = min(1.0, (self.gaps[-1] / self.gaps[-3]) ** 0.5)
        return self.error * gain ** (2 * (most - len(self.sizes))) > tolerance

    def sentence(self) -> str:
        """The same in words."""
        words = f"one grid of {self.sizes[-1]} nodes along the longest axis, compared with no other"
        if self.gaps:
            words = f"grids of {self.sizes[-2]} and {self.sizes[-1]} nodes differ by {self.gaps[-1]:.1e}"
        if self.gaps and self.error < self.gaps[-1]:
            words += f", so that the finer one is right to about {self.error:.0e}"
        if self.gaps and self.theory is not None and math.isfinite(self.order):
            words += f"; observed order {self.order:.1f}, differences of order {self.theory}"
        return words + (f"; {self.ended}" if self.ended else "")


def refine(task: Task, grids: Iterator[Grid], most: int, solve: Callable[[Grid, Solved | None], Solved]) -> Refinement:
    """Solve on finer and finer grids until two agree, or the time that is left is not enough for the next one."""
    domain, budget = task.problem.domain, task.budget
    anywhere, within = domain.inside(np.random.default_rng(0).random((_PROBES, len(domain.bounds))))
    probes = torch.from_numpy(anywhere[within])
    found: Refinement | None = None
    failure: BaselineError | None = None
    blown: list[float] = []
    # Of two grids the first one may take what the other leaves.
    last, share, grows = (0.0, 1), 0.5 if most == _COMPARED else _SHARE, _GROWS
    for grid in grids:
        if found is not None and budget.spent + last[0] * (grid.size / last[1]) ** grows > budget.seconds:
            found.ended = f"there was no time for a finer grid within {budget.seconds:g} s"
            return found
        before = budget.spent
        # What does not fit on a coarse grid must not use up the time of the finer ones.
        budget.grant(share if found is None else 1.0)
        try:
            grid.prepare(budget.check)
            solved = solve(grid, found.solved if found else None)
        except RECOVERABLE as error:
            # A coarse grid may be too coarse to be solved at all; a fine one may run out of time.
            if found is None:
                blown = [*blown, error.time] if isinstance(error, BlowUpError) else []
                if _same_blow_up(blown):
                    raise
                if budget.exhausted:
                    if isinstance(failure, BlowUpError) and not isinstance(error, BlowUpError):
                        raise IntegrationError(f"{error}; on a coarser grid {failure}") from error
                    raise
                failure, share = error, min(2 * share, 1.0)
                continue
            found.ended = str(error)
            return found
        if found is None:
            theories = [axis.theory for axis in grid.axes.values() if axis.theory is not None]
            found = Refinement(solved, theory=min(theories, default=None))
        else:
            found.gaps.append(_gap(found.solved, solved, probes, task.sizes))
            same = found.gaps[-1] <= min(task.tolerance, _SAME * solved.left)
            if same and solved.left > max(_CONTRADICTED, _STAYS * found.solved.left):
                raise ContradictionError(
                    f"{task.name}: equations and conditions contradict each other: on any grid least squares leave "
                    f"{solved.left:.1e} of the natural size of an equation. Look whether sources balance what flows "
                    "through the boundary"
                )
            found.solved = solved
        found.sizes.append(grid.resolution)
        if found.agrees(task.tolerance):
            found.agreed = True
            return found
        if budget.spent > _CHEAP * budget.seconds and found.hopeless(most, task.tolerance):
            found.ended = "finer grids of this kind would not agree much better"
            return found
        # From the solution on the grid before Newton's method takes fewer steps than from nothing.
        fewer = min(1.0, _AGAIN / max(1, solved.steps)) if "Newton" in solved.solver else 1.0
        last = fewer * (budget.spent - before), grid.size
        factors = len(grid.coordinates) > 1 and any(each in solved.solver for each in ("Radau", "collocation"))
        grows = _GROWS_FACTORED if factors else _GROWS
    if found is None:
        assert failure is not None
        raise failure
    found.ended = "the finest grid was reached"
    return found


def described(grid: Grid) -> str:
    """The axes of a grid in words: ``chebyshev, 48 nodes``."""
    kinds = dict.fromkeys(axis.kind for axis in grid.axes.values())
    return f"{' and '.join(kinds)}, {' x '.join(map(str, grid.shape))} nodes"


def grids(problem: Problem, names: Sequence[str], family: str, sizes: Sequence[int]) -> Iterator[Grid]:
    """Grids over some coordinates of a box, along periodic ones waves, or differences that go round; nodes of a shape."""
    if family == "scattered":
        domain = _in_space(problem, names)
        sloping = {
            face for term in problem.terms() if not term.field and isinstance(term.place, OnFaces) for face in term.place.faces
        }
        # Prescribed values are kept where sides meet.
        sides = sorted(domain.sides, key=lambda side: side in sloping)
        for size in sizes:
            spacing = 2 * max(domain.half_widths.values()) / (size - 1)
            yield ScatteredNodes(domain, spacing, _DEGREE[len(names)], sides, [each for each in sides if each in sloping])
        return
    around = periodic_coordinates(problem)
    for size in sizes:
        axes: dict[str, Nodal] = {}
        for name in names:
            low, high = problem.domain.bounds[name]
            if family == "differences":
                axes[name] = FiniteDifferences(low, high, size - (name in around), periodic=name in around)
            else:
                axes[name] = (Fourier if name in around else Chebyshev)(low, high, size)
        yield Grid(axes)


def check_domain(problem: Problem, most: int) -> None:
    """Refuse domains that no grid of ours covers."""
    name = type(problem).__name__
    apart = [term.name for term in problem.terms() if isinstance(term.place, Within | Interface)]
    if apart:
        raise BaselineError(
            f"{name}: {listed(apart)} hold(s) on a part of the domain or on a surface inside it; a grid of one piece cannot "
            "tell parts apart"
        )
    if len(problem.coordinates) > most:
        raise BaselineError(
            f"{name} has the {len(problem.coordinates)} coordinates {listed(problem.coordinates)}; grids of {most} are the "
            "most that a classical solver can fill"
        )


def _in_space(problem: Problem, names: Sequence[str]) -> Domain:
    """The domain of some of the coordinates, which follow each other."""
    domain = problem.domain
    if domain.coordinates == tuple(names):
        return domain
    factors = [each for each in domain.parts if problem.time not in each.bounds] if isinstance(domain, Product) else []
    found = tuple(name for each in factors for name in each.coordinates)
    first = domain.coordinates.index(names[0])
    if found != tuple(names) or domain.coordinates[first : first + len(names)] != found:
        raise BaselineError(
            f"{type(problem).__name__} lives on {domain!r}; scattered nodes serve a shape that stays as it is in time, "
            "shape * sciml.Interval(t=(0, 1))"
        )
    return factors[0] if len(factors) == 1 else Product(*factors)


def _gap(coarse: Solved, fine: Solved, probes: torch.Tensor, natural: Array) -> float:
    """The largest relative difference of a field."""
    with torch.no_grad():
        one, other = coarse.trial(probes), fine.trial(probes)
    least = 1e-6 * len(probes) ** 0.5 * torch.from_numpy(natural)
    return float(((one - other).norm(dim=0) / torch.maximum(other.norm(dim=0), least)).max())


def _same_blow_up(times: Sequence[float]) -> bool:
    """Whether enough grids in a row blow up at the same time: then it is the solution that does, and not the grids."""
    last = times[-_BLOWN:]
    return len(last) == _BLOWN and all(abs(finer - time) <= 0.02 * abs(finer) for time, finer in pairwise(last))

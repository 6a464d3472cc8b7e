"""Singular functions at the corners of a plane domain (method of particular solutions), tried where smooth ones are
not enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Box, Corner, Interior, OnFaces, PointSet, Polygon, SpectralPoints
from sciml.models import CornerExponents, CornerSingular as SingularModel, RandomFeatures as Features, Spectral as Polynomials
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.compatibility import condition_orders
from sciml.solvers import DiscreteProblem, Objective
from sciml.solvers.discrete_problem import layout_of
from sciml.solvers.gauss_newton import factorised
from sciml.solvers.state import settled
from sciml.strategies.random_features import ENOUGH, Trials, linear_solve, not_by_least_squares, part_of
from sciml.strategies.search import Candidate, Strategy, Workspace
from sciml.typing import Array

_RADIUS, _NEAREST = 0.5, 1e-5
_CLOSE = 0.1
_MOST_CORNERS = 16
_CONCENTRATED, _SHARE = 3.0, 0.3
_ON_SIDE, _INSIDE, _A_FUNCTION = 80, 40, 2
_HELD, _HELD_SHARE = 200, 0.25
_SCALES = (2.0, 4.0, 8.0, 16.0)
# How many smooth functions (a degree on boxes), and up to which degree and how widely spread singular ones beside them.
_FEATURES = ((400, 6, 0), (400, 4, 1), (400, 4, 2), (800, 12, 0), (800, 6, 2), (1200, 6, 2))
_DEGREES = {
    1: ((14, 4, 0), (20, 4, 1), (26, 4, 2), (32, 6, 2), (38, 6, 2)),
    2: ((14, 4, 1), (20, 6, 2), (26, 6, 2), (32, 6, 2), (38, 8, 2)),
}
_POINTS_A_FEATURE = 3
_RANK = 1e-12
_STEPS = 8
_UNRESOLVED = 0.03
_ENOUGH, _EXACT = 0.5, 1e-9
_GOOD = 1e-4
_MOST_WEIGHTS = {True: 2400, False: 1800}
_FINE = 1e-8
_SETTLED = 3


@dataclass(frozen=True)
class Plane:
    """A plane domain with straight sides, its corners, and the lengths of the shorter edge at each of them."""

    domain: Polygon | Box
    corners: tuple[Corner, ...]
    lengths: tuple[float, ...]

    def nearness(self, points: Tensor) -> Tensor:
        """The distance of points from the nearest corner, as a share of half its edge, at most 1, shape ``(n,)``."""
        distances = [
            (points - points.new_tensor(corner.position)).norm(dim=1) / (_RADIUS * length)
            for corner, length in zip(self.corners, self.lengths, strict=True)
        ]
        return torch.stack(distances).amin(dim=0).clamp(max=1.0)


def plane_of(problem: Problem) -> Plane | None:
    """The corners of a stationary problem's domain, the widest of very many; None where there are none, or with time."""
    domain = problem.domain
    if problem.time is not None or len(problem.coordinates) != 2 or not isinstance(domain, Box | Polygon):
        return None
    shape = domain
    if isinstance(domain, Box):
        (left, low), (right, high) = domain.lower, domain.upper
        shape = Polygon([(left, low), (right, low), (right, high), (left, high)], names=problem.coordinates)
    assert isinstance(shape, Polygon)
    lengths = [shape.extent(side) for side in shape.sides]
    corners = tuple(sorted(shape.corners(), key=lambda corner: -corner.angle)[:_MOST_CORNERS])
    return Plane(domain, corners, tuple(min(lengths[edge] for edge in corner.edges) for corner in corners))


def has_singular_corners(problem: Problem) -> bool:
    r"""Whether smooth functions alone are known beforehand not to be enough: for :math:`r^a` with an exponent below 1.

    At an angle w it is :math:`\pi / w`, and half of that where conditions are mixed.
    """
    plane = plane_of(problem)
    if plane is None:
        return False
    sides = plane.domain.sides if isinstance(plane.domain, Polygon) else ()
    orders = condition_orders(problem) if sides else {}

    def effective(corner: Corner) -> float:
        """The angle, twice that where conditions are mixed."""
        kinds = {orders.get(sides[edge]) for edge in corner.edges if sides} - {None}
        return max(1, len(kinds)) * corner.angle

    return max(map(effective, plane.corners), default=0.0) > math.pi * (1 + 1e-9)


def stalls_at_corners(setup: DiscreteProblem) -> bool:
    """Whether a residual on held-out points near the corners is far larger than elsewhere, and not small beside the others."""
    plane = plane_of(setup.problem)
    if plane is None:
        return False
    pairs = []
    for block in near_corners(setup.held, plane, _HELD, np.random.default_rng(0), _order(setup.problem)):
        if block.sample.quadrature is not None or len(block.sample.points) > 1:
            continue
        close = plane.nearness(block.sample.points[0]) < _CLOSE / _RADIUS
        for name, values in setup.rows.residuals([replace(block, weights=None)]).items():
            squares = (values.detach() / setup.scales[name]).square()
            squares = squares if block.weights is None else block.weights * squares
            if bool(close.any()) and not bool(close.all()):
                pairs.append((float(squares[close].mean().sqrt()), float(squares[~close].mean().sqrt())))
    worst = max((max(pair) for pair in pairs), default=0.0)
    return any(near > max(_CONCENTRATED * far, _SHARE * worst) for near, far in pairs)


def near_corners(
    blocks: Sequence[Collocation], plane: Plane, count: int, generator: np.random.Generator, order: int
) -> tuple[Collocation, ...]:
    """The blocks with more points, whose distances from the corners are spread evenly on a logarithmic scale.

    Close to a corner derivatives of order 2k grow without bound, so that points inside count with the weight
    :math:`(r/R)^{2k}` there: residuals as large as a singular function's count alike at all distances.
    """
    found = []
    for block in blocks:
        place, like = block.terms[0].place, block.sample.points[0]
        measured = any(term.measured for term in block.terms)
        if isinstance(place, Interior) and not measured:
            points = torch.cat([like, torch.from_numpy(_inside(plane, count, generator)).to(like)])
            found.append(Collocation(PointSet((points,)), block.terms, plane.nearness(points) ** (2 * order)))
        elif isinstance(place, OnFaces) and block.sample.normals is not None:
            parts = [plane.domain.on_side(side, _towards_ends(_ON_SIDE, generator))[:2] for side in place.faces]
            points, normals = (torch.from_numpy(np.concatenate(each)).to(like) for each in zip(*parts, strict=True))
            sample = PointSet((torch.cat([like, points]),), torch.cat([block.sample.normals, normals]))
            found.append(Collocation(sample, block.terms))
        else:
            found.append(block)
    return tuple(found)


def _inside(plane: Plane, count: int, generator: np.random.Generator) -> Array:
    """Points near each corner, between its edges."""
    found = []
    for corner, length in zip(plane.corners, plane.lengths, strict=True):
        far = _RADIUS * length * _NEAREST ** generator.random(count)
        turn = corner.start + corner.angle * generator.random(count)
        at = np.array(corner.position) + far[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        found.append(at[plane.domain.distance(at) < 0])
    return np.concatenate(found)


def _towards_ends(count: int, generator: np.random.Generator) -> Array:
    """Numbers in [0, 1], denser and denser towards both ends."""
    near = _RADIUS * _NEAREST ** generator.random(count)
    return np.where(np.arange(count) % 2 == 0, near, 1 - near)[:, None]


def _order(problem: Problem) -> int:
    """Half the order of the equations, rounded up."""
    return max(1, math.ceil(max((len(index) for _, index in problem.system.equations_ask), default=2) / 2))


@dataclass(frozen=True)
class CornerSingular(Strategy):
    """Singular functions at corners beside smooth ones (method of particular solutions), by least squares.

    The smooth ones are products of polynomials on boxes, random features elsewhere; of these a scale is looked for first. Then
    there are more functions of both kinds, until the residual is very small or falls no more.

    Args:
        unless_smooth: take it only where residuals of the best candidate are largest at the corners, and it is not known to be
            close.

    Reference: T. Betcke and L. N. Trefethen, Reviving the method of particular solutions, SIAM Review 47 (2005).
    """

    unless_smooth: bool = False

    def obstacle(self, work: Workspace) -> str | None:
        if plane_of(work.problem) is None:
            return "its domain has no corners in the plane"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        plane = plane_of(work.problem)
        # Whose error is known is right at the corners as well.
        known = best is not None and best.solved and best.known <= work.options.largest_error
        smooth = known or (best is not None and not stalls_at_corners(best.discrete))
        if plane is None or (self.unless_smooth and smooth):
            return
        own = _CornerSearch(work, plane, best)
        least = math.inf if best is None else own.judged(best.discrete)
        for each in own.run(work.target(_EXACT)):
            # Judged near the corners, a smooth function that was found before may be worse than it seemed.
            if each.residual < least:
                yield self._described(each, work, own)
            elif work.log.stopped:
                return
        found = own.trials.best
        if found is not None and found.residual < least:
            described = self._described(found, work, own)
            yield replace(described, accepted=described.residual <= ENOUGH or (self.unless_smooth and described.sufficient))

    def _described(self, found: Candidate, work: Workspace, own: _CornerSearch) -> Candidate:
        why = "residuals are largest at the corners"
        if has_singular_corners(work.problem):
            reentrant = own.plane.corners[0].angle > math.pi * (1 + 1e-9)
            why = "the domain has re-entrant corners" if reentrant else "conditions are mixed at corners"
        found = own.trials.described(found, "functions that are singular at the corners beside smooth ones", why)
        # The certificate and later stages judge by the problem's own points.
        return replace(found, discrete=replace(found.discrete, held=work.discrete.held))


class _CornerSearch:
    """What was tried so far, and the best of it."""

    def __init__(self, work: Workspace, plane: Plane, earlier: Candidate | None) -> None:
        self._work, self.plane, self._linear, self._earlier = work, plane, work.linear, earlier
        self._order = _order(work.problem)
        # A part is enough to judge by, and all derivatives of all functions are kept there.
        few = tuple(part_of(block, _HELD_SHARE, 2) for block in work.discrete.held)
        held = near_corners(few, plane, _HELD, np.random.default_rng([work.seed, 8]), self._order)
        self._setup = replace(work.discrete, held=held)
        self.trials = Trials(work, _GOOD, len(_SCALES) + len(_FEATURES))

    def run(self, target: float) -> Iterator[Candidate]:
        """Look for a scale, then take more functions for as long as that helps."""
        boxed = isinstance(self.plane.domain, Box)
        levels = _DEGREES[min(self._order, 2)] if boxed else _FEATURES
        scale, worse = 1.0, 0
        if not boxed:
            (count, degree, spread), lowest = levels[0], math.inf
            for each in _SCALES:
                reached = self._attempt(self._smooth(count, each), degree, spread)
                if self.trials.best is not None:
                    yield self.trials.best
                if reached < lowest:
                    scale, lowest = each, reached
                if reached <= target or reached > 10 * lowest:
                    break
        for step, (size, degree, spread) in enumerate(levels):
            before = math.inf if self.trials.best is None else self.trials.best.residual
            if (worse > 0 and before <= _FINE) or before <= target:
                break
            if boxed or step:
                growth = math.sqrt(size / levels[0][0])
                reached = self._attempt(self._smooth(size, float(f"{growth * scale:.3g}")), degree, spread)
                if self.trials.best is not None:
                    yield self.trials.best
                worse = worse + 1 if reached > _ENOUGH * before else 0

    def judged(self, setup: DiscreteProblem) -> float:
        """The largest relative residual of a trial function on the held-out points, those near corners among them."""
        return setup.objective(self._setup.held).worst()

    def _smooth(self, size: int, scale: float) -> Features | Polynomials:
        return Polynomials(size) if isinstance(self.plane.domain, Box) else Features(size, scale)

    def _attempt(self, smooth: Features | Polynomials, degree: float, spread: float) -> float:
        """Solve once; the relative residual on held-out points, infinite where there would be too many weights."""
        found = self._candidate(smooth, degree, spread)
        if found.parameters[0].numel() > _MOST_WEIGHTS[self._linear]:
            return math.inf
        objective = found.objective()

        def solve() -> None:
            if self._linear:
                linear_solve(objective)
            else:
                self._begin(found)
                self._solve(found, objective)

        settled(self._setup.journal, f"corners of degree {degree:g}", objective, solve)
        reached = self.judged(found)
        self.trials.take(f"CornerSingular({found.trial.model.extra_repr()})", found, reached)
        return reached

    def _candidate(self, smooth: Features | Polynomials, degree: float, spread: float) -> DiscreteProblem:
        """The set-up with a model, all its weights zero, and points for it."""
        setup, problem, old = self._setup, self._setup.problem, self._setup.trial
        every = (
            CornerExponents(corner.position, corner.start + corner.angle / 2, corner.angle, length, degree, self._order, spread)
            for corner, length in zip(self.plane.corners, self.plane.lengths, strict=True)
        )
        wedges = [wedge for wedge in every if wedge.terms]
        model = SingularModel(smooth, wedges, center=old.center.tolist(), half_width=old.half_width.tolist())
        model.build(2, len(problem.fields), torch.Generator().manual_seed(self._work.seed))
        rows_a_weight = len(problem.fields) / max(1, len(problem.equations))
        inside: int | SpectralPoints
        if isinstance(smooth, Polynomials):
            inside = layout_of(Polynomials(smooth.degree, inputs=2, outputs=len(problem.fields)), problem)
        else:
            inside = math.ceil(_POINTS_A_FEATURE * model.smooth_width * rows_a_weight)
        generator = np.random.default_rng([self._work.seed, 7])
        each = max(len(wedge.terms) for wedge in wedges)
        count = math.ceil((_INSIDE + 2 * _A_FUNCTION * each) * rows_a_weight)
        train = near_corners(setup.draw(inside, generator), self.plane, count, generator, self._order)
        return setup.with_model(model, train=train).with_unknowns(setup.raw)

    def _begin(self, setup: DiscreteProblem) -> None:
        """Let the smooth functions be as close as they can to what was found before."""
        before = self.trials.best or self._earlier
        if before is None or before.residual > _UNRESOLVED:
            return
        trial, count = setup.trial, setup.trial.model.smooth_width
        points = torch.cat([points for block in setup.train for points in block.sample.points])
        with torch.no_grad():
            smooth, *_ = trial.model.layers[0].branches
            wanted = (before.discrete.trial(points) - trial.offset) / trial.scale
            columns = smooth((points - trial.center) / trial.half_width)
            # Not gelsy, whose pivots begin in torch as what memory held before: the same call gave other bits.
            weight = torch.linalg.lstsq(columns, wanted, driver="gelsd").solution.T
            if bool(torch.isfinite(weight).all()):
                trial.model.layers[-1].weight[:, :count] = weight

    def _solve(self, setup: DiscreteProblem, objective: Objective) -> None:
        """Whole Gauss-Newton steps, ending at the best on held-out points."""
        position = objective.vector()
        best, lowest, failed = position, self.judged(setup), 0
        for _ in range(_STEPS):
            rows, slopes = objective.linearised()
            if not bool(torch.isfinite(slopes).all() and torch.isfinite(rows).all()):
                break
            position = position + factorised(rows, slopes)[0](_RANK)
            objective.assign(position)
            reached = self.judged(setup)
            failed = failed + 1 if reached > _ENOUGH * lowest else 0
            if reached < lowest:
                best, lowest = position, reached
            if failed >= _SETTLED:
                break
        objective.assign(best)

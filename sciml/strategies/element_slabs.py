"""Space-time slabs on elements: piecewise polynomials in space, refined where the residual between points is large."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sciml.geometry import Box, Face, Interior, OnFaces, Opposite
from sciml.models import PiecewisePolynomial
from sciml.models.bases import PiecewiseBasis, chebyshev_places, gauss
from sciml.problem import Problem
from sciml.slabs.elements import ElementPreconditioner
from sciml.slabs.newton_krylov import SlabRates
from sciml.slabs.row_layout import outward
from sciml.slabs.system import Evaluated, Site, Slab, Trace
from sciml.solvers import DiscreteProblem
from sciml.strategies.slabs import SlabAttempt, lacks_start
from sciml.typing import Array

_DEGREE = 20
_QUADRATURE = 1.5
_FIRST, _MOST, _MANY = 4, 96, 32
_NARROWEST, _REFINEMENTS = 1e-5, 16
_IN_SPACE, _LOCAL = 0.3, 0.5
_USELESS, _DOUBLED = 0.7, 0.25
_GIVE_WAY = 3.0
_QUIET, _HOLD, _LONGEST_HOLD = 1e-4, 3, 24
_TOLERANCE, _ROUGH, _ROUGH_START = 1e-15, 1e-3, 1e-6


def not_on_elements(problem: Problem) -> str | None:
    """Why a problem that can be solved in windows cannot be solved on elements in them, or None when it can."""
    beside = len(problem.coordinates) - len(problem.promoted) - (problem.time in problem.coordinates)
    if not isinstance(problem.domain, Box) or len(problem.coordinates) != 2 or beside != 1:
        return "it has not one coordinate beside time"
    if len(problem.equations) != len(problem.fields):
        return "it has not one equation for each field"
    time = str(problem.time)
    (space,) = (name for name in problem.coordinates if name != time)
    ends = {Face(space, "lower"), Face(space, "upper")}
    for term in problem.terms():
        if term.place == OnFaces((Face(time, "lower"),)):
            continue
        along = isinstance(term.place, OnFaces) and set(term.place.faces) <= ends
        if not along and term.place not in (Interior(), Opposite(space)):
            return f"{term.name!r} holds neither inside nor at the ends of {space}"
        if any(index.count(time) > problem.order(name, time) for name, index in problem.system.asked(term)):
            return f"{term.name!r} asks for higher time derivatives than the equations"
    return lacks_start(problem)


@dataclass(frozen=True)
class _SlabTried:
    """A window on one mesh; ``reached`` is ``whole`` counted by the window's length where that is very short."""

    setup: DiscreteProblem
    mesh: PiecewiseBasis
    solved: bool
    whole: float
    reached: float
    in_space: float
    places: Array


@dataclass
class ElementWindows(SlabAttempt):
    """Solves windows by slabs of time on elements: an attempt for ``time_marching.march``.

    Elements are halved where the residual between the points of the quadrature is large, and joined again where it has become
    small; they stay from window to window. The residual of a window shorter than a hundredth of the time counts by its length:
    a start that contradicts the conditions at the ends has a residual of its own size however short the window is, and does
    little harm.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = self.setup.problem
        (self._space,) = (name for name in problem.coordinates if name != self._time)
        inside, ends = (
            max((index.count(self._space) for term in part for _, index in problem.system.asked(term)), default=0)
            for part in (self._equations, self._conditions)
        )
        self._highest = max(inside, ends)
        self._smooth = max(1, inside, ends + 1)
        self._degree = max(_DEGREE, 4 * self._smooth)
        low, high = problem.domain.bounds[self._space]
        self._mesh = PiecewiseBasis(np.linspace(low, high, _FIRST + 1), self._degree, self._smooth)
        self._finer: PiecewiseBasis | None = None
        self._found: tuple[PiecewiseBasis, Tensor] | None = None
        self._hold = self._patience = _HOLD

    def __call__(self, begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
        """The window's set-up, and its relative residual; that of very short windows counts by their length."""
        if begin != self._begin:
            self._go_on(begin, end)
        if before is None and not self._ends:
            self._mesh = self._resolving_start(begin)
        found = self._resolved(begin, end, before)
        self._keep_error(begin, found.setup)
        self._mesh = found.mesh
        if found.reached <= self.target:
            self._hold -= 1
            self._finer = None
            if self._hold < 0:
                self._mesh = found.mesh.merged(found.places < _QUIET * self.target)
                self._finer = found.mesh if self._mesh is not found.mesh else None
        elif found.solved:
            self._give_way(begin, found.whole)
        return found.setup, found.reached

    def _resolved(self, begin: float, end: float, before: DiscreteProblem | None) -> _SlabTried:
        """The window on as many elements as it takes, or as are worth it."""
        found, earlier = self._tried(self._mesh, begin, end, before), None
        for _ in range(_REFINEMENTS):
            if self.log.stopped or found.reached <= self.target or not found.solved:
                return found
            if self._finer is not None:
                # To join elements was too much.
                self._patience = min(2 * self._patience, _LONGEST_HOLD)
                mesh, self._finer = self._finer, None
            elif earlier is not None and found.in_space > _worth(earlier.mesh.count, found.mesh.count) * earlier.in_space:
                return self._as_good_as_it_gets(earlier)
            elif found.in_space < _IN_SPACE * found.reached:
                return found
            else:
                widths = np.diff(found.mesh.breaks)
                coarse = (found.places > _LOCAL * self.target) & (widths > _NARROWEST * widths.sum())
                if not coarse.any() or found.mesh.count + coarse.sum() > _MOST:
                    return self._as_good_as_it_gets(found)
                mesh, earlier = found.mesh.split(coarse), found
            self._hold = self._patience
            found = self._tried(mesh, begin, end, before)
        return found

    def _as_good_as_it_gets(self, found: _SlabTried) -> _SlabTried:
        if found.reached <= self.accepted:
            self.target = max(self.target, _GIVE_WAY * found.reached)
        return found

    def _tried(self, mesh: PiecewiseBasis, begin: float, end: float, before: DiscreteProblem | None) -> _SlabTried:
        starts = self._starts(mesh, begin, before)
        slab = Slab(self._problem, mesh, self.stages, begin, end - begin, self._orders, starts, self._units)
        places, quadrature = gauss(math.ceil(_QUADRATURE * (self._degree + 1)))
        inside, ends = self._sites(mesh, places)
        made = partial(ElementPreconditioner, quadrature)
        solved, error = self._solved(slab, [*inside, *ends], made, _TOLERANCE, before, self._guess(slab))
        if solved.converged:
            self._found = mesh, solved.rates[-1]
        setup = self._setup_of(slab, solved)
        self._remember(slab, solved, setup.trial, before, error)
        whole, by_element = math.inf, np.full(mesh.count, math.inf)
        if solved.converged:
            whole, by_element = self._judged(slab, solved, before)
        in_space = float(np.sqrt(by_element**2 @ np.diff(mesh.breaks) / np.diff(mesh.breaks).sum()))
        self._record(begin, solved, whole)
        fraction, reached = self._fraction(begin, end), self._counted(whole, begin, end)
        return _SlabTried(setup, mesh, solved.converged, whole, reached, fraction * in_space, fraction * by_element)

    def _everywhere(self, mesh: PiecewiseBasis) -> list[tuple[Trace, Tensor]]:
        places, quadrature = gauss(self._degree + 3)
        shares = (mesh.half / mesh.half.sum())[:, None] * (quadrature / 2)
        return [(mesh.inside(places, 0), shares.expand(len(self._orders), -1, -1))]

    def _onto(self, mesh: PiecewiseBasis, other: PiecewiseBasis, ends: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return ends if other is mesh else tuple(mesh.transferred(other, each) for each in ends)

    def _guess(self, slab: Slab[PiecewiseBasis]) -> Tensor | None:
        """Rates to begin with: fields without a time derivative, whose rates are their values, are as they were found last."""
        if self._found is None or all(self._orders):
            return None
        mesh, last = self._found
        before = last if mesh is slab.mesh else slab.mesh.transferred(mesh, last)
        return torch.stack(
            [slab.zero()[:, k] if order else before[k].expand(slab.stages.count, -1) for k, order in enumerate(self._orders)],
            dim=1,
        )

    def _starts(self, mesh: PiecewiseBasis, begin: float, before: DiscreteProblem | None) -> tuple[Tensor, ...]:
        """Each field's weights, and its time derivatives', at the start, from the window before or the initial conditions."""
        if (ended := self._ended(before)) is not None:
            return self._onto(mesh, ended.mesh, ended.ends)
        at, (places, quadrature) = chebyshev_places(self._degree + 1), gauss(self._degree + 6)
        x, between = mesh.inside(at, 0).x, mesh.inside(places, 0)
        wanted = self._start_values([x.flatten()], begin, before)
        checked = self._start_values([between.x.flatten()], begin, before)
        starts = []
        for name, order, unit in zip(self._problem.fields, self._orders, self._units, strict=True):
            if not order:
                starts.append(x.new_zeros(0, mesh.width))
                continue
            values, true = (
                torch.stack([found[name, power].view_as(like) for power in range(order)])
                for found, like in ((wanted, x), (checked, between.x))
            )
            weights = mesh.interpolated(values)
            misfit = between.jet(mesh.local(weights), ()) - true
            if float(misfit.abs().max()) > _ROUGH * unit:
                weights = mesh.fitted(true, places, quadrature)
            starts.append(weights)
        return tuple(starts)

    def _sites(self, mesh: PiecewiseBasis, places: Tensor) -> tuple[list[Site], list[Site]]:
        """Where equations and conditions are taken, in their natural sizes."""
        scales = self.setup.scales
        everywhere = mesh.inside(places, self._highest)
        inside = [Site(term, (everywhere,), 1 / scales[term.name]) for term in self._equations]
        ends = []
        for term in self._conditions:
            factor = 1 / scales[term.name]
            if isinstance(term.place, Opposite):
                pair = mesh.end(upper=False, highest=self._highest), mesh.end(upper=True, highest=self._highest)
                ends.append(Site(term, pair, factor))
                continue
            assert isinstance(term.place, OnFaces)
            for face in term.place.faces:
                assert isinstance(face, Face)
                trace = mesh.end(upper=face.side == "upper", highest=self._highest)
                ends.append(Site(term, (trace,), factor, outward(self._problem, face, 1)))
        return inside, ends

    def _judged(self, slab: Slab[PiecewiseBasis], solved: SlabRates, before: DiscreteProblem | None) -> tuple[float, Array]:
        """The largest relative residual of any term between the stages, and in each element what is not of time's making."""
        mesh = slab.mesh
        places, quadrature = gauss(self._degree + 3)
        inside, ends = self._sites(mesh, places)
        spread = mesh.half / mesh.half.sum()

        def squares(evaluated: Evaluated) -> Tensor:
            return (evaluated.values.square() @ (quadrature / 2)).mean(0)

        judged = slab.evaluate([*inside, *ends], solved.rates, slab.stages.between)
        sizes = [spread @ squares(each) for each in judged[: len(inside)]]
        sizes += [each.values.square().mean() for each in judged[len(inside) :]]
        local = [squares(each) for each in slab.evaluate(inside, solved.rates)]
        for misfit in self._misfits(mesh, slab.starts, slab.begin, before):
            local.append(misfit)
            sizes.append(spread @ misfit)
        worst = float(torch.stack(sizes).max().sqrt())
        return worst if math.isfinite(worst) else math.inf, torch.stack(local).amax(0).sqrt().numpy()

    def _misfits(
        self, mesh: PiecewiseBasis, starts: tuple[Tensor, ...], begin: float, before: DiscreteProblem | None
    ) -> list[Tensor]:
        """For every field and derivative at the start the mean square of what the elements miss, in each of them."""
        places, quadrature = gauss(self._degree + 3)
        trace, found = mesh.inside(places, 0), []
        for (name, power), wanted in self._start_values([trace.x.flatten()], begin, before).items():
            number = self._problem.fields.index(name)
            values = trace.jet(mesh.local(starts[number][power]), ())
            found.append(((values - wanted.view_as(values)) / self._units[number]).square() @ (quadrature / 2))
        return found

    def _resolving_start(self, begin: float) -> PiecewiseBasis:
        """Elements as narrow as the initial values ask for: where they jump, the jump's place is all that matters."""
        mesh = self._mesh
        while True:
            misfits = self._misfits(mesh, self._starts(mesh, begin, None), begin, None)
            widths = np.diff(mesh.breaks) / np.diff(mesh.breaks).sum()
            missed = torch.stack(misfits).amax(0).sqrt().numpy() * np.sqrt(widths)
            coarse = (missed > _ROUGH_START) & (widths > _NARROWEST)
            if not coarse.any() or mesh.count + coarse.sum() > _MOST:
                return mesh
            mesh = mesh.split(coarse)

    def _setup_of(self, slab: Slab[PiecewiseBasis], solved: SlabRates) -> DiscreteProblem:
        """The window's function as the trial function of a set-up."""
        mesh, old, whole = slab.mesh, self.setup.trial, self._problem
        weights = slab.in_time(solved.rates)
        low, high = whole.domain.bounds[self._space]
        inner = 2 * (mesh.breaks[1:-1] - low) / (high - low) - 1
        breaks, degrees = [[-1.0, *inner.tolist(), 1.0]], [mesh.degree]
        column = whole.coordinates.index(self._time)
        breaks.insert(column, [-1.0, 1.0])
        degrees.insert(column, weights.shape[1] - 1)
        model = PiecewisePolynomial(breaks, degrees, len(weights))
        coefficients = mesh.coefficients(weights).permute(2, 0, 1, 3)
        coefficients[:, :, 0, 0] -= old.offset.to(coefficients)
        coefficients /= old.scale.to(coefficients)[:, None, None]
        # Of the products' degrees that in time comes first here.
        coefficients = coefficients if column == 0 else coefficients.mT
        model.coefficients.copy_(coefficients.unsqueeze(column))
        return self._window(slab, model)


def _worth(before: int, after: int) -> float:
    """What fraction of a residual may be left by more elements: the more of them, the less."""
    if after <= _MANY:
        return _USELESS
    return max(_DOUBLED, 1 - (1 - _DOUBLED) * (after - before) / before)

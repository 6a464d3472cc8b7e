"""All-at-once parameter estimation in differential equations: polynomials on tiles and constants together, from measurements.

Which elements of which coordinate to halve, told by the residuals between the points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor

from sciml._text import listed
from sciml.diagnostics.certificate import Certificate
from sciml.geometry import At, Average, Box, Interior, Opposite, Within
from sciml.models import PiecewisePolynomial, Spline
from sciml.models.bases import PiecewiseBasis, chebyshev, gauss
from sciml.models.piecewise import located
from sciml.models.tensor_product import TensorProductBasis
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.measurements import measured_fields
from sciml.problem.observations import DATA, Observation
from sciml.problem.pulses import marching
from sciml.slabs.tile_space import is_gauge
from sciml.solvers import LeastSquares
from sciml.solvers.discrete_problem import DATA_WEIGHT
from sciml.strategies.inverse_solver import ParameterCovariance, gauss_newton, spread
from sciml.strategies.inverse_system import (
    ROUGH,
    CompressedRows,
    ElementRows,
    RowsOnTiles,
    TilingSystem,
    blocks_on,
    compressible,
    orders_asked_by,
    placeable,
    roughness,
)
from sciml.strategies.random_features import not_by_least_squares
from sciml.strategies.search import Candidate, Strategy, Workspace
from sciml.strategies.training import Training
from sciml.typing import Array
from sciml.uncertainty import Inference
from sciml.uncertainty.covariance import from_information
from sciml.uncertainty.error_bands import FieldCovariance

_SHARE = 0.8
_CLOSE = 0.8


def energies(tiling: TensorProductBasis, residuals: Sequence[Tensor], more: int) -> tuple[Array, Array]:
    """What each tile adds to the mean square of residuals on its Gauss points, and along which coordinates they oscillate.

    A residual that least squares leaves for want of functions along a coordinate is of high degree along it. So the mean degree
    of its Legendre polynomials, as a fraction of the highest, tells the coordinate.
    """
    count = len(tiling.meshes)
    shape = [size for mesh in tiling.meshes for size in (mesh.count, mesh.degree + 1 + more)]
    elements, places = list(range(0, 2 * count, 2)), list(range(1, 2 * count, 2))
    tiles = [mesh.count for mesh in tiling.meshes]
    energy = torch.zeros(tiles, dtype=torch.float64)
    degrees = torch.zeros(count, *tiles, dtype=torch.float64)
    for values in residuals:
        found = values.reshape(shape).permute(*elements, *places)
        for column, mesh in enumerate(tiling.meshes):
            at, weights = gauss(mesh.degree + 1 + more)
            table = legendre.legvander(at.numpy(), len(at) - 1) * np.sqrt(np.arange(len(at)) + 0.5)
            transform = torch.from_numpy(table) * weights.sqrt()[:, None]
            found = (found.movedim(count + column, -1) @ transform).movedim(-1, count + column)
        squares = found.square()
        energy = energy + squares.sum(dim=tuple(range(count, 2 * count)))
        each = []
        for column in range(count):
            others = tuple(count + other for other in range(count) if other != column)
            along = squares.sum(dim=others) if others else squares
            numbers = torch.arange(along.shape[-1], dtype=torch.float64) / (along.shape[-1] - 1)
            each.append((along * numbers).sum(-1))
        degrees = degrees + torch.stack(each)
    return energy.numpy(), (degrees / energy.clamp_min(1e-300)).numpy()


def refined(tiling: TensorProductBasis, energy: Array, degrees: Array) -> TensorProductBasis:
    """The tiling with those elements halved that hold most of the energy, along the coordinates in which it oscillates."""
    guilty = degrees >= _CLOSE * degrees.max(axis=0)
    columns = range(len(tiling.meshes))
    per_element: list[Array] = [
        (energy * guilty[column]).sum(axis=tuple(other for other in columns if other != column)) for column in columns
    ]
    flat = np.concatenate(per_element)
    order = np.argsort(flat)[::-1]
    enough = int(np.searchsorted(np.cumsum(flat[order]), _SHARE * flat.sum())) + 1
    marked = np.zeros(len(flat), dtype=bool)
    marked[order[:enough]] = True
    own = np.split(marked, np.cumsum([len(each) for each in per_element])[:-1])
    meshes = [
        mesh.split(np.flatnonzero(which)) if which.any() else mesh for mesh, which in zip(tiling.meshes, own, strict=True)
    ]
    return TensorProductBasis(meshes, tiling.outer)


_FIRST = {True: 2, False: 4}
_SOFT, _AS_DATA, _RAISE, _HARD = 1e-2, 0.5, 10.0, 1e6
_FALLS, _SLACK = 0.3, 0.003
_STILL, _SETTLED, _STRAIN, _SLIGHT = 0.15, 0.4, 20.0, 0.02
_STEPS, _TOLERANCE = 12, 1e-3
_LAST_STEPS, _LAST_TOLERANCE = 12, 1e-9
_ROUNDS = 60
_LIMIT = 3e-2
_MORE = 1
_SMOOTHING, _WAVY = 1e-9, 1e3
_HIGH, _STRAINED = 0.5, 2.0
_LOOSE, _PULL, _LEAST_FREE = 4.0, 1e-3, 0.05
_RIDGES, _FUTILE = 1e4, 0.9
_VAGUE, _HELD = 0.5, 1e3
_PATIENCE, _LOUDER = 2.0, 1.4
# The share of measurements that is left to tell the noise by when the first tiles are chosen; digits of breaks that differ.
_FREEDOM, _DIGITS = 0.3, 12
# The share of what measurements scatter by that is left where they are followed.
_FOLLOWED = 0.5
# Weights that are free parameters of the solution, and what dense matrices of theirs may hold, which error bands take.
_FREE, _DENSE = 2000, 10_000_000
# Normal draws of weights from which error bands are told, beside what constants drag along.
_DRAWS = 32
# By how much raw numbers of constants differ from initial ones where it is asked whether equations are linear in fields.
_ELSEWHERE = 0.3
_POLISH = LeastSquares(60)
# What equations may add to the loss, as a share of what one measurement does; what finer tiles have to gain of it.
_COST, _GAIN = 0.02, 0.7
# Measurements whose slopes by all weights of a tile are in memory at once.
_PORTION = 20_000
# Measurements at most where they are not compressed.
_MOST_ROWS = 50_000
# Measurements for each function of a tile from which on they are compressed.
_FEW = 2


# By the number of coordinates: the least degree of polynomials; how well equations hold before unknowns count as settled, and
# where nothing is left to do; multiplications that one step may take. Functions of one coordinate take high degrees, which cost
# little there, and equations that hold as by shooting.
_DEGREE, _HOLDS, _EXACT = {1: 14, 2: 6, 3: 6}, {1: 1e-6, 2: 2e-3, 3: 2e-3}, {1: 1e-11, 2: 1e-6, 3: 1e-6}
_EFFORT = {1: 1.2e9, 2: 1.2e9, 3: 3e10}


@dataclass(frozen=True)
class _Continued:
    """A least-squares solution on one tiling."""

    tiling: TensorProductBasis
    stiffness: float
    weights: Tensor
    raw: dict[str, Tensor]
    strain: float  # what equations add to the loss between the points, as a fraction of what noise does
    relative: float
    energy: Array
    degrees: Array
    spread: ParameterCovariance
    noise: float
    loss: float

    @property
    def high(self) -> float:
        """The mean degree of the residuals between the points, as a fraction of the highest."""
        whole = float(self.energy.sum())
        return float((self.energy * self.degrees.max(axis=0)).sum()) / whole if whole > 0 else 0.0

    def shift(self, other: _Continued) -> Tensor:
        """By how much the raw unknowns differ."""
        gaps = [(self.raw[name] - other.raw[name]).abs() for name in self.raw]
        return torch.stack(gaps) if gaps else torch.zeros(0)


@dataclass(frozen=True)
class AllAtOnce(Strategy):
    """All-at-once parameter estimation in differential equations: piecewise polynomials and unknown constants together.

    At first the equations weigh little, so that the measurements lead, and tiles are halved where equations do not hold
    between the points. Then the equations weigh more, tenfold a time, as long as what they add to the loss falls: on
    tiles that are too coarse it would grow. The search ends when neither weight nor finer tiles move the unknowns by
    much of their standard errors, when the equations hold to 1e-6 (of one coordinate to 1e-11), or when a step would take too
    many operations. Tiles along a promoted constant stay as they are until the equations weigh 1e4 times as much as
    measurements. Of one coordinate there are as many tiles at first as following the measurements takes, the equations hold as
    by shooting in the end, and the solution is a spline whose weights are parameters.

    Reference: J. O. Ramsay, G. Hooker, D. Campbell and J. Cao, Parameter estimation for differential equations: a generalized
    smoothing approach, Journal of the Royal Statistical Society B 69 (2007), for ordinary ones and splines.
    """

    def obstacle(self, work: Workspace) -> str | None:
        problem = work.problem
        if work.measurements is None:
            return "it has no measurements"
        if not isinstance(problem.domain, Box) or work.dimension not in _DEGREE:
            return "its domain is no box of at most three coordinates"
        if len(problem.equations) < len(problem.fields):
            return "it has more fields than equations"
        for term in problem.system.terms:
            if not placeable(_held(work, term).place):
                return f"{term.name!r} holds at a place without points of a tiling"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        measured = [term for block in work.discrete.train for term in block.terms if isinstance(term.evaluate, Observation)]
        own = _Continuation(work if all(map(compressible, measured)) else work.sampled(_MOST_ROWS))
        for _ in own.run():
            yield own.candidate()
        found = own.candidate()
        if isinstance(found.discrete.trial.model, Spline) and not work.log.ended:
            # Normal equations of equations that are nearly exact have lost the digits of the last steps.
            found = replace(found, discrete=Training(work.log).run(found.discrete, [_POLISH], work.seed))
        # In a wrong minimum equations hold as well, but some condition or a pattern in the misfits speaks against it.
        issued = Certificate.issue(found.discrete, work.options.tolerance) if found.sufficient else None
        yield replace(found, accepted=issued is not None and not (issued.fails or issued.systematic))


def _held(work: Workspace, term: Term) -> Term:
    """Gauge fixing: a mean that gives a field its level as the same at the middle of the domain; any other term as it is.

    The middle determines the field as well, and ties no tiles together; ``_level`` makes it right in the end.
    """
    place, bounds = term.place, work.problem.domain.bounds
    if not isinstance(place, Average) or place.over != Interior() or work.dimension == 1 or not is_gauge(work.problem, term):
        return term
    ((field, _),) = work.problem.system.depends(term)
    middle = tuple(None if name == place.each else sum(ends) / 2 for name, ends in bounds.items())
    return term if field in measured_fields(work.discrete.train) else replace(term, place=At(middle))


def _level(model: PiecewisePolynomial, problem: Problem, term: Term) -> None:
    """Gauge fixing: move a field that was held at the middle until its mean is what it was there."""
    assert isinstance(term.place, Average)
    ((field, _),) = problem.system.depends(term)
    number, dims = problem.fields.index(field), len(model.degrees)
    own = model.coefficients.select(dims, number)
    held, mean = own, own
    for column, (name, breaks, degree) in enumerate(zip(problem.coordinates, model.breaks, model.degrees, strict=True)):
        if name == term.place.each:
            continue
        # Tables of elements and degrees: values at the middle, and means, of Chebyshev's polynomials.
        lengths, orders = breaks.diff(), torch.arange(degree + 1)
        at, _, inside = located(breaks.new_zeros(1), breaks)
        middle = own.new_zeros(len(lengths), degree + 1)
        middle[at] = chebyshev(inside, degree, 0)[-1]
        even = torch.where(orders % 2 == 0, 1.0 / (1.0 - orders.to(own) ** 2), 0.0)
        axes, tables = (column, dims + column), (middle, lengths[:, None] / lengths.sum() * even)
        held, mean = (
            (each.movedim(axes, (-2, -1)) * table).sum((-2, -1), keepdim=True).movedim((-2, -1), axes)
            for each, table in zip((held, mean), tables, strict=True)
        )
    constant = tuple(slice(None) if name == term.place.each else slice(0, 1) for name in problem.coordinates)
    own[(..., *constant)] += held - mean


class _Continuation:
    """Tilings and weights tried so far."""

    def __init__(self, work: Workspace) -> None:
        self._work, self._setup = work, work.discrete
        setup, problem, trial = self._setup, work.problem, self._setup.trial
        held = [(term, _held(work, term)) for term in problem.terms()]
        self._terms, self._means = [own for _, own in held], [term for term, own in held if own is not term]
        self._equations = [term for term in self._terms if isinstance(term.place, Interior | Within)]
        joining = [term for term in self._terms if isinstance(term.place, Opposite)]
        inside, joined = (orders_asked_by(problem, part) for part in (self._terms, joining))
        self._highest = tuple(max(most, ROUGH) for most in inside)
        self._rough = roughness(problem, trial)
        self._data = [block for block in setup.train if any(term.measured for term in block.terms)]
        self._measured: dict[TensorProductBasis, list[RowsOnTiles]] = {}
        sizes = {term.name: block.size for block in self._data for term in block.terms}
        self._rows = sum(size for name, size in sizes.items() if name.startswith(DATA))
        # What a term's weight is made of besides the own choice: here every row has the same weight by itself.
        self._shares = {name: DATA_WEIGHT * size / max(sizes.values()) for name, size in sizes.items()}
        self._known = setup.measurements is not None and setup.measurements.known(problem)
        # Where equations have no derivatives by these, measurements pull ridges out of soft ones on fine tiles, for nothing.
        self._promoted = [
            column for column, name in enumerate(problem.coordinates) if name in problem.promoted and not inside[column]
        ]
        meshes = []
        for column, (name, most, across) in enumerate(zip(problem.coordinates, inside, joined, strict=True)):
            smooth = max(1, most, across + 1)
            count = _FIRST[name == problem.time] // max(1, work.dimension - 1)
            # Where an equation ends and another begins, and where a forcing jumps, derivatives may jump.
            ends = [end for term in self._terms if isinstance(term.place, Within) for end in term.place.part.bounds[name]]
            ends += setup.stops if column == marching(problem) else ()
            cuts = (np.array(ends) - float(trial.center[column])) / float(trial.half_width[column])
            breaks = np.unique(np.append(np.linspace(-1, 1, count + 1), cuts[np.abs(cuts) < 1]).round(_DIGITS))
            meshes.append(PiecewiseBasis(breaks, max(_DEGREE[work.dimension], 2 * smooth + 4), smooth))
        names = list(problem.coordinates)
        self._first = TensorProductBasis(meshes, names.index(problem.time) if problem.time in names else 0)
        self._initial = {name: each.raw_initial() for name, each in problem.unknowns.items()}
        # At other values than these, which may end a term.
        known = {name: each.value(self._initial[name] + _ELSEWHERE) for name, each in problem.unknowns.items()}
        self._linear = problem.bind(**known).system.linear(setup.train, setup.sizes)
        self.now: _Continued | None = None
        self._shift = torch.zeros(len(problem.unknowns), dtype=torch.float64)

    def run(self) -> Iterator[None]:
        """Search; resumed after every solve."""
        fields, dimension = len(self._setup.problem.fields), self._work.dimension
        # A number that is the exponent of an unknown can run to where no row feels it.
        unknowns = self._setup.problem.unknowns
        bounded = [name for name, each in unknowns.items() if each.lower is not None or each.upper is not None]
        self._pull = dict.fromkeys(bounded, _PULL / self._rows)
        self._smoothing = {term.name: _SMOOTHING for term in self._rough}
        here = self._begun(torch.zeros(self._first.width, fields, dtype=torch.float64))
        checked = futile = False
        # Without the fields that follow the measurements first, constants of linear equations may find another minimum.
        rival = self._initial if self._linear and self._initial else None
        for _ in range(_ROUNDS):
            self.now = here
            yield
            if here.relative <= _EXACT[dimension] or here.stiffness >= _HARD:
                break
            harder = self._tried(here.tiling, _RAISE * here.stiffness, here.weights, here.raw)
            yield
            if rival is not None and harder.stiffness >= _AS_DATA:
                # Noise that soft equations let into derivatives draws their factors towards zero (errors in variables).
                beside = self._smoothing, self._pull
                other = self._tried(here.tiling, harder.stiffness, here.weights, rival)
                alike = bool((other.shift(harder) <= harder.spread.errors()).all())
                if harder.loss <= other.loss:
                    self._smoothing, self._pull = beside
                harder, worse = sorted((harder, other), key=lambda tried: tried.loss)
                rival = None if alike or worse.loss > _LOUDER * harder.loss else worse.raw
                yield
            still = bool((harder.shift(here) <= _STILL * harder.spread.errors()).all())
            settled = still and harder.strain < min(_STRAIN / self._rows, _SLIGHT) and harder.relative < _HOLDS[dimension]
            if settled and checked:
                self._move_to(harder)
                break
            eased = harder.strain < _SLACK or harder.strain < _FALLS * here.strain
            eased = eased or (harder.high < _HIGH and harder.strain < _STRAINED * here.strain)
            # Of a few measurements that many functions follow, little is left to tell their noise by, or nothing.
            free = here.spread.freedom / self._rows
            quiet = free < _LEAST_FREE or harder.noise < _LOUDER / free * here.noise
            if not settled and (futile or (eased and quiet)):
                self._move_to(harder)
                here, futile = harder, False
                continue
            finer = refined(here.tiling, harder.energy, harder.degrees)
            begin = harder if settled else here
            if TilingSystem(finer, [], {}, fields).layout.effort > _EFFORT[dimension]:
                # Where no finer tiles can be had, harder equations serve as long as they hold better for it.
                falls = not settled and harder.relative < _GAIN * here.relative
                if settled or falls:
                    self._move_to(harder)
                if falls:
                    here = harder
                    continue
                break
            found = self._tried(finer, begin.stiffness, finer.transferred(begin.tiling, begin.weights), begin.raw)
            if settled:
                # What finer tiles hardly move is there to stay.
                checked = bool((found.shift(begin) <= _SETTLED * found.spread.errors()).all())
                self._move_to(found)
                if checked:
                    break
            self._shift = found.shift(begin)
            # Where promoted coordinates keep their tiles, finer ones along the others may be no remedy; of one coordinate, with
            # polynomials of high degree, neither.
            served = bool(self._promoted) or dimension == 1
            futile = served and not settled and found.loss > _FUTILE * begin.loss
            here = found
        if dimension == 1:
            yield from self._resolve()
        self._finish()

    def _resolve(self) -> Iterator[None]:
        """Finer tiles of one coordinate until what equations still add to the loss is less than what moves an unknown."""
        assert self.now is not None
        while self.now.strain * self._rows > _COST and not self._work.log.stopped:
            now = self.now
            finer = refined(now.tiling, now.energy, now.degrees)
            found = self._tried(finer, now.stiffness, finer.transferred(now.tiling, now.weights), now.raw)
            if found.strain > _GAIN * now.strain or found.weights.numel() > _FREE:
                break
            self._move_to(found)
            yield

    def _begun(self, blank: Tensor) -> _Continued:
        """The first solution; of one coordinate on as many tiles as following the measurements takes.

        Hard equations on tiles that cannot follow an oscillation would smooth it away, and it would never come back.
        """
        tried = [self._tried(self._first, _SOFT, blank, self._initial)]
        while self._work.dimension == 1 and not self._work.log.ended:
            before = tried[-1]
            finer = TensorProductBasis([mesh.split(np.arange(mesh.count)) for mesh in before.tiling.meshes], 0)
            # What follows most of the measurements, and no better on finer tiles, has no oscillation left to find.
            found = (
                before.noise * self._rows < _FOLLOWED
                and min((each.noise for each in tried[:-2]), default=math.inf) <= _LOUDER * before.noise
            )
            if found or before.spread.freedom < _FREEDOM * self._rows or finer.width > self._rows:
                break
            tried.append(self._tried(finer, _SOFT, finer.transferred(before.tiling, before.weights), self._initial))
        least = min(each.noise for each in tried)
        return next(each for each in tried if each.noise <= _LOUDER * least)

    def _move_to(self, found: _Continued) -> None:
        assert self.now is not None
        self._shift, self.now = found.shift(self.now), found

    def _finish(self) -> None:
        """The last steps, until nothing moves."""
        assert self.now is not None
        now = self.now
        lost = [name for name, error in zip(now.raw, now.spread.errors(), strict=True) if not error < _VAGUE]
        lost = [name for name in lost if name in self._pull]
        # Where weights are the best for any constants no valley bends.
        eased = now if self._linear else self._tried(now.tiling, now.stiffness, now.weights, now.raw, eased_judge=True)
        self.now = self._tried(now.tiling, now.stiffness, eased.weights, eased.raw, last=True)
        if not lost or self._work.log.stopped:
            return
        # Near a bound no row feels an unknown: from where it began there may be a way to a lower minimum.
        self._pull |= dict.fromkeys(lost, _HELD)
        start = now.raw | {name: self._initial[name] for name in lost}
        held = self._tried(now.tiling, now.stiffness, now.weights, start)
        free = held if self._linear else self._tried(now.tiling, now.stiffness, held.weights, held.raw, eased_judge=True)
        again = self._tried(now.tiling, now.stiffness, free.weights, free.raw, last=True)
        if again.loss < self.now.loss:
            self._shift, self.now = again.shift(free), again

    def _tried(
        self,
        tiling: TensorProductBasis,
        stiffness: float,
        weights: Tensor,
        raw: dict[str, Tensor],
        *,
        last: bool = False,
        eased_judge: bool = False,
    ) -> _Continued:
        problem, scales = self._setup.problem, self._setup.scales
        terms = {
            name: weight / self._shares[name] if name in self._shares else stiffness * weight
            for name, weight in self._setup.weights.items()
        }
        terms |= self._smoothing
        if tiling not in self._measured:
            measured = [rows for block in self._data for rows in self._placed(block, tiling)]
            # Those of the last tiling and the one before: tilings are tried with several weights.
            self._measured = {**dict(list(self._measured.items())[-1:]), tiling: measured}
        every = blocks_on(tiling, problem, [*self._terms, *self._rough])
        placed = [*(rows for block in every for rows in self._placed(block, tiling)), *self._measured[tiling]]
        # Steps along the curved valley of nearly exact equations are judged by a loss in which they count as data do.
        eased = {name: value / max(stiffness, 1.0) for name, value in terms.items() if name in self._setup.weights}
        eased = terms | {name: value for name, value in eased.items() if name not in self._shares}
        judge = eased if eased_judge else None
        system = TilingSystem(tiling, placed, terms, len(problem.fields), None if last else self._pull, judge)
        effort = (_LAST_STEPS, _LAST_TOLERANCE) if last or eased_judge else (_STEPS, _TOLERANCE)
        log = self._work.log
        weights, raw, loss = gauss_newton(
            system, weights, raw, *effort, self._setup.journal, lambda: log.overdue, linear=self._linear
        )
        parts = system.terms(weights, raw)
        # Of one coordinate the solution's weights are parameters, whose covariance is their own.
        draws = _DRAWS if last and len(tiling.meshes) > 1 and weights.numel() * (_DRAWS + len(raw)) <= _DENSE else 0
        known = spread(system, weights, raw, draws)
        rough = {name: parts.pop(name) / weight for name, weight in self._smoothing.items()}
        data = sum(value for name, value in parts.items() if name.startswith(DATA))
        # Of fewer measurements than free functions all noise is fitted, and none seems to be there.
        noise = min(known.variance, data / (_LEAST_FREE * self._rows))
        residuals, strain, squares = [], 0.0, 0.0
        for block in blocks_on(tiling, problem, self._equations, _MORE):
            assert block.weights is not None
            factors = {term.name: block.weights.sqrt() / scales[term.name] for term in block.terms}
            between = ElementRows(problem, block, factors, tiling, self._setup.trial, self._highest)
            rows = between.rows(weights, raw, slopes=False)
            for term, (values, _, _) in zip(block.terms, rows, strict=True):
                weight = self._setup.weights[term.name]
                residuals.append(math.sqrt(weight) * values)
                strain += stiffness * weight * float(values @ values)
                squares = max(squares, float(values @ values))
        energy, degrees = energies(tiling, residuals, _MORE)
        if stiffness < _RIDGES:
            degrees[self._promoted] = 0.0
        found = _Continued(
            tiling,
            stiffness,
            weights,
            raw,
            strain / max(noise * self._rows, 1e-300),
            math.sqrt(squares),
            energy,
            degrees,
            known,
            noise,
            loss,
        )
        # What bends as much as the fields do by themselves then costs what noise of a measurement or two would.
        self._smoothing = {name: _PATIENCE * noise / max(bent, _WAVY) for name, bent in rough.items()}
        self._pull = dict.fromkeys(self._pull, noise / _LOOSE**2)
        self._record(found, loss, noise * self._rows + strain, parts)
        return found

    def _placed(self, block: Collocation, tiling: TensorProductBasis) -> Iterator[RowsOnTiles]:
        """The rows of a block; those of measured fields compressed where they are more than the functions there."""
        problem = self._setup.problem
        few = _FEW * tiling.tiles * math.prod(mesh.degree + 1 for mesh in tiling.meshes)
        compressed = [term for term in block.terms if block.weights is None and block.size > few and compressible(term)]
        others = tuple(term for term in block.terms if term not in compressed)
        most = _PORTION if block.weights is None else None
        for _, part in replace(block, terms=others).parts(most) if others else ():
            even = torch.full((part.size,), self._rows**-0.5, dtype=torch.float64)
            root = even if part.weights is None else part.weights.sqrt()
            factors = {term.name: root / self._setup.scales.get(term.name, 1.0) for term in others}
            yield ElementRows(problem, part, factors, tiling, self._setup.trial, self._highest)
        for term in compressed:
            factor = self._rows**-0.5 / self._setup.scales.get(term.name, 1.0)
            yield CompressedRows(problem, term, block.sample.points[0], factor, tiling, self._setup.trial)

    def _record(self, found: _Continued, loss: float, judged: float, terms: dict[str, float]) -> None:
        free = self._setup.problem.unknowns
        unknowns = {name: float(unknown.value(found.raw[name])) for name, unknown in free.items()}
        name = f"PiecewisePolynomial({' x '.join(str(mesh.count) for mesh in found.tiling.meshes)})"
        self._work.log.solved(name, loss, judged, terms, best=judged, most=_ROUNDS, unknowns=unknowns)

    def candidate(self) -> Candidate:
        """What the search has found; with free weights where these are few, else with a closed form for its trial function."""
        assert self.now is not None
        now, problem, bands = self.now, self._setup.problem, None
        meshes, count = now.tiling.meshes, len(problem.fields)
        if len(meshes) == 1 and now.weights.numel() <= min(_FREE, _DENSE // self._rows):
            blocks = blocks_on(now.tiling, problem, self._terms)
            train = (*map(_counted, blocks), *self._data)
            spline = Spline(meshes[0].breaks.tolist(), meshes[0].degree, meshes[0].smooth)
            spline.build(1, count, torch.Generator())
            spline.weight.data.copy_(now.tiling.table(now.weights))
            solved = self._setup.with_data_weight(1 / _HARD).with_model(spline, train=train).with_unknowns(now.raw)
            said = f"splines ({spline.extra_repr()})"
        else:
            model, inference = self._polynomial(now.tiling, now.weights), self._inference(now)
            solved = self._setup.with_model(model, inference=inference if now.raw else None).with_unknowns(now.raw)
            said = f"piecewise polynomials ({model.extra_repr()})"
            bands = self._bands(now, inference)
        what = "constants" if now.raw else "fields"
        kind = "an ordinary" if len(problem.coordinates) == len(problem.promoted) + 1 else "a partial"
        along = f" for {listed(problem.promoted)} in a range" if problem.promoted else ""
        reason = (
            f"{kind} differential equation{along} and measurements: {said} and {what} "
            f"together by Gauss-Newton steps, equations with {now.stiffness:.0e} of the weight of measurements; they hold to "
            f"{now.relative:.1e} of their natural size between the points"
        )
        good = now.relative if math.isfinite(now.relative) else math.inf
        return Candidate(solved, good, "GaussNewton", reason, sufficient=good <= _LIMIT, spread=bands)

    def _polynomial(self, tiling: TensorProductBasis, weights: Tensor) -> PiecewisePolynomial:
        """The trial function with some weights ``(width, F)``."""
        breaks, degrees = [mesh.breaks.tolist() for mesh in tiling.meshes], [mesh.degree for mesh in tiling.meshes]
        model = PiecewisePolynomial(breaks, degrees, weights.shape[1])
        model.coefficients.copy_(tiling.coefficients(weights))
        for term in self._means:
            _level(model, self._setup.problem, term)
        return model

    def _bands(self, now: _Continued, inference: Inference) -> FieldCovariance | None:
        """How the fields scatter with the measurements and with the constants; None before the last steps."""
        known = now.spread
        told = [math.isfinite(each.standard_error) for each in inference.estimates.values()]
        if not (known.drawn.numel() and math.isfinite(inference.variance) and all(told)):
            return None
        moved = [known.dragged @ torch.from_numpy(inference.spread), math.sqrt(inference.variance) * known.drawn]
        directions = torch.cat(moved, dim=2).unbind(2)
        if len(directions) * now.tiling.coefficients(now.weights).numel() > _DENSE:
            return None
        columns = [self._polynomial(now.tiling, each).coefficients.flatten() for each in directions]
        return FieldCovariance(("model.coefficients",), torch.stack(columns, dim=1), inference.quantile)

    def _inference(self, now: _Continued) -> Inference:
        """Intervals, which also hold what the last change of tiles or weights has moved."""
        name = next(name for name in self._shares if name.startswith(DATA))
        # Of a row: that of the misfit, or one standard deviation where that is known.
        variance = 1.0 / (self._rows * self._setup.scales[name] ** 2) if self._known else now.spread.variance
        return from_information(
            self._setup.problem.unknowns,
            np.array([float(value) for value in now.raw.values()]),
            now.spread.information.numpy(),
            variance,
            now.spread.freedom,
            now.spread.move.numpy(),
            now.spread.size.numpy(),
            self._shift.numpy(),
            measurements=self._rows,
            known=self._known,
        )


def _counted(block: Collocation) -> Collocation:
    """The points of a block that have weights, all alike."""
    assert block.weights is not None
    return replace(block.part(torch.nonzero(block.weights)[:, 0]), weights=None)

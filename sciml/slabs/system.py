"""A problem's residuals on a grid of times and places in a slab of time, and their derivatives by what the grid stands for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from sciml.jets import Supplier
from sciml.models.radau import RadauIIA, start_polynomial, start_values
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import linearize, per_point
from sciml.typing import MultiIndex

# A field's number and its order of time derivative, to what traces take its jets from, at all times.
_Local = Callable[[int, int], Any]


class Trace(Protocol):
    """Some elements, with the same number of places in each, at which a function of space has jets."""

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """The places by coordinate, each ``(elements, q)``."""

    def jet(self, local: Any, index: MultiIndex) -> Tensor:
        """A derivative of a function given as ``Space.local`` gives it, ``(times, elements, q)``."""


class Space(Protocol):
    """What a slab is discretized by in space: functions with so many weights."""

    @property
    def width(self) -> int:
        """The number of weights of a function."""

    def local(self, weights: Tensor) -> Any:
        """What traces take jets from, of weights ``(times, width)``."""


@dataclass(frozen=True)
class Site:
    """A residual and where it is taken at every time: one trace, or two with the partners of opposite ends.

    Attributes:
        term: the residual.
        traces: where.
        factor: what it is multiplied by, a number or one for each place, ``(elements, q)``.
        normals: on faces the outward normals at all places, one after the other, ``(elements * q, D)``.
        shares: for the mean over all places their shares of it, ``(elements, q)``.
    """

    term: Term
    traces: tuple[Trace, ...]
    factor: float | Tensor
    normals: Tensor | None = None
    shares: Tensor | None = None

    @property
    def counted(self) -> Tensor:
        """Which places count, ``(elements, q)``."""
        return torch.as_tensor(self.factor > 0).expand(self.traces[0].columns[0].shape)

    def weighed(self, values: Tensor) -> Tensor:
        """Weighted residuals: values ``(times, elements, q)`` times the factor, nothing where it is zero, whatever they are.

        Polynomials beyond the domain may be so large that :math:`e^u` has no value.
        """
        found = self.factor * values
        return found.masked_fill(~self.counted, 0.0) if isinstance(self.factor, Tensor) else found

    def taken(self, values: Tensor) -> Tensor:
        """Values at all places as the residual's rows: themselves, or their mean, ``(times, 1, 1)``."""
        return values if self.shares is None else (values * self.shares).sum((1, 2), keepdim=True)


@dataclass(frozen=True)
class Part:
    """The derivative of a residual by one jet: ``slopes`` of shape ``(times, elements, q)``, the factor included."""

    trace: Trace
    field: int
    in_time: int
    in_space: MultiIndex
    slopes: Tensor


@dataclass(frozen=True)
class Evaluated:
    """A site's residual in its natural size, ``(times, elements, q)``, and its slopes by jets and unknowns, if asked for."""

    site: Site
    values: Tensor
    parts: tuple[Part, ...] = ()
    by_unknown: tuple[Tensor, ...] = ()


# From a jet to the number of its field and its derivatives in time and in space.
_Split = Callable[[str, MultiIndex], tuple[int, int, MultiIndex]]


def evaluated(
    site: Site,
    problem: Problem,
    points: Sequence[Tensor],
    suppliers: Sequence[Supplier],
    shape: Sequence[int],
    place: _Split,
    *,
    slopes: bool,
    raw: Mapping[str, Tensor] | None = None,
) -> Evaluated:
    """A site's residual in some shape, with ``slopes`` linearised: its derivatives by jets and by ``raw`` unknowns."""
    unknowns, values = per_point(problem, raw or {}, len(points[0]))
    # Normals are those of all places at one time.
    times = math.prod(shape) // site.traces[0].columns[0].numel()
    normals = None if site.normals is None else site.normals.expand(times, -1, -1).flatten(0, 1)
    at = Evaluation.of(problem.bind(**values) if values else problem, points, suppliers, normals)
    if not slopes:
        return Evaluated(site, site.taken(site.weighed(site.term.evaluate(at).detach().reshape(*shape))))
    linear = linearize(site.term, at, unknowns)
    parts = tuple(
        Part(trace, *place(*key), site.weighed(slope.detach().reshape(*shape)))
        for trace, by_jet in zip(site.traces, linear.by_jet, strict=True)
        for key, slope in by_jet.items()
    )
    residual, by_unknown = linear.values.detach(), [linear.by_unknown.get(name) for name in unknowns]
    moved = tuple(
        site.taken(site.weighed((torch.zeros_like(residual) if each is None else each.detach()).reshape(*shape)))
        for each in by_unknown
    )
    return Evaluated(site, site.taken(site.weighed(residual.reshape(*shape))), parts, moved)


SpaceT = TypeVar("SpaceT", bound=Space)


@dataclass(frozen=True)
class Slab(Generic[SpaceT]):
    """Fields in a slab of time as polynomials through stages.

    Attributes:
        problem: with its constants bound.
        mesh: the functions of space.
        stages: of the slab.
        begin: its first time.
        length: its length.
        orders: each field's order in time.
        starts: for each field its derivatives below that order at the start, ``(order, width)``.
        units: for each field what its rates are counted in, so that all are of order one.
    """

    problem: Problem
    mesh: SpaceT
    stages: RadauIIA
    begin: float
    length: float
    orders: tuple[int, ...]
    starts: tuple[Tensor, ...]
    units: tuple[float, ...]

    def zero(self) -> Tensor:
        """Highest time derivatives that vanish at all stages, ``(p, F, width)``."""
        return torch.zeros(self.stages.count, len(self.orders), self.mesh.width, dtype=torch.float64)

    def moved(self, rates: Tensor, field: int, in_time: int, at: Tensor | None) -> Tensor:
        """The part of a field's time derivative that the rates make, at some times or at the stages: ``(times, width)``."""
        order = self.orders[field]
        table = self.stages.power(order - in_time) if at is None else self.stages.moved(at, order, in_time)
        return self.units[field] * self.length ** (order - in_time) * (table @ rates[:, field])

    def kept(self, field: int, in_time: int, at: Tensor | None) -> Tensor:
        """The part of a field's time derivative that the start makes, at some times or at the stages: ``(times, width)``."""
        at = self.stages.nodes if at is None else at
        found = torch.zeros(len(at), self.mesh.width, dtype=torch.float64)
        for power in range(in_time, self.orders[field]):
            part = self.length ** (power - in_time) * start_values(at, power - in_time)
            found += part[:, None] * self.starts[field][power]
        return found

    def end(self, rates: Tensor, field: int) -> Tensor:
        """A field's weights at the end, and those of its time derivatives below the highest: ``(order, width)``."""
        orders = range(self.orders[field])
        found = [(self.moved(rates, field, power, None) + self.kept(field, power, None))[-1:] for power in orders]
        return torch.cat(found) if found else self.starts[field]

    def in_time(self, rates: Tensor) -> Tensor:
        """Each weight of each field as a polynomial in time: its Chebyshev coefficients on the slab, ``(F, J, width)``."""
        found = torch.zeros(len(self.orders), self.stages.count + max(self.orders), self.mesh.width, dtype=torch.float64)
        for number, order in enumerate(self.orders):
            polynomials = torch.from_numpy(self.stages.polynomials(order))
            factor = self.units[number] * self.length**order
            found[number, : len(polynomials)] = factor * (polynomials @ rates[:, number])
            for power in range(order):
                start = torch.from_numpy(start_polynomial(power))
                found[number, : len(start)] += self.length**power * start[:, None] * self.starts[number][power]
        return found

    def evaluate(
        self, sites: Sequence[Site], rates: Tensor, at: Tensor | None = None, *, slopes: bool = False
    ) -> list[Evaluated]:
        """All residuals, with their derivatives by jets if ``slopes``.

        At the stages they are those of the method, whose derivatives each are what they are at the stages. At other times,
        given as shares of the slab, they are those of the function.
        """
        local, times = self._local(rates, at), self.stages.nodes if at is None else at
        return [self._evaluated(site, local, times, slopes) for site in sites]

    def _local(self, rates: Tensor, at: Tensor | None) -> _Local:
        """What traces take their jets from at some times."""
        kept: dict[tuple[int, int], Any] = {}

        def local(field: int, in_time: int) -> Any:
            key = (field, in_time)
            if key not in kept:
                kept[key] = self.mesh.local(self.moved(rates, *key, at) + self.kept(*key, at))
            return kept[key]

        return local

    def _evaluated(
        self, site: Site, local: _Local, at: Tensor, slopes: bool, varied: tuple[Problem, Mapping[str, Tensor]] | None = None
    ) -> Evaluated:
        names, time = self.problem.coordinates, str(self.problem.time)
        shape = (len(at), *site.traces[0].columns[0].shape)
        space = [name for name in names if name != time]
        when = (self.begin + self.length * at)[:, None, None].expand(shape).reshape(-1)
        points = []
        for trace in site.traces:
            where = {name: column.expand(shape).reshape(-1) for name, column in zip(space, trace.columns, strict=True)}
            points.append(torch.stack([where.get(name, when) for name in names]).T)
        suppliers = [_TraceJets(self, local, trace) for trace in site.traces]
        problem, raw = (self.problem, None) if varied is None else varied
        return evaluated(site, problem, points, suppliers, shape, self.place, slopes=slopes, raw=raw)

    def place(self, field: str, index: MultiIndex) -> tuple[int, int, MultiIndex]:
        """A jet as the number of its field and its derivatives in time and in space."""
        time = self.problem.time
        return self.problem.fields.index(field), index.count(str(time)), tuple(name for name in index if name != time)

    def by_unknown(
        self, sites: Sequence[Site], rates: Tensor, problem: Problem, raw: Mapping[str, Tensor]
    ) -> list[list[Tensor]]:
        """For each of some raw unknowns of the problem the derivatives of all residuals at the stages by it."""
        local = self._local(rates, None)
        found = [self._evaluated(site, local, self.stages.nodes, True, (problem, raw)).by_unknown for site in sites]
        return [list(each) for each in zip(*found, strict=True)]

    def product(self, evaluated: Sequence[Evaluated], rates: Tensor, *, started: bool = False) -> list[Tensor]:
        """The derivative of every residual at the stages in the direction of some rates, and if ``started`` of the starts."""
        kept: dict[tuple[int, int], Any] = {}
        found = []
        for each in evaluated:
            total = torch.zeros_like(each.parts[0].slopes) if each.parts else each.values * 0
            for part in each.parts:
                key = (part.field, part.in_time)
                if key not in kept:
                    moved = self.moved(rates, *key, None)
                    kept[key] = self.mesh.local(moved + self.kept(*key, None) if started else moved)
                total.addcmul_(part.slopes, part.trace.jet(kept[key], part.in_space))
            found.append(each.site.taken(total))
        return found


class _TraceJets:
    """Jets at all times and places of a trace, one after the other."""

    def __init__(self, slab: Slab[Any], local: _Local, trace: Trace) -> None:
        self._slab, self._local, self._trace = slab, local, trace

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        """The derivative ``index`` of ``field``, ``(times * elements * q,)``."""
        number, in_time, in_space = self._slab.place(field, index)
        return self._trace.jet(self._local(number, in_time), in_space).reshape(-1)


def at_time(problem: Problem, time: float, columns: Sequence[Tensor]) -> Tensor:
    """Points ``(n, D)`` at one time, from the columns ``(n,)`` of the other coordinates."""
    others = iter(columns)
    when = torch.full_like(columns[0], time)
    return torch.stack([when if name == problem.time else next(others) for name in problem.coordinates], dim=1)


def initial_values(problem: Problem, terms: Sequence[Term], points: Tensor) -> dict[tuple[str, int], Tensor]:
    """What initial conditions prescribe at points ``(n, D)``, by field and order of the time derivative."""
    wanted = [term.prescription for term in terms if term.prescription is not None]
    return {(each.field, len(each.index)): each.values(problem, points).detach() for each in wanted}

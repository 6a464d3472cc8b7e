"""A problem's residuals on a grid of times and places in a slab of time, and their derivatives by what the grid stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.jets import RandomJets
from sciml.jets.random import JetKind
from sciml.models.bases import PiecewiseBasis, Trace
from sciml.models.radau import RadauIIA, start_values
from sciml.problem import Problem
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import linearize
from sciml.typing import MultiIndex

# A field's number and its order of time derivative, to each element's weights at all times.
_Local = Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Site:
    """A residual and where it is taken at every time: one trace, or two with the partners of opposite ends."""

    term: Term
    traces: tuple[Trace, ...]
    factor: float
    side: int = 0  # -1 or 1 on an end, the outward normal


@dataclass(frozen=True)
class Part:
    """The derivative of a residual by one jet: ``slopes`` of shape ``(times, elements, q)``, the factor included."""

    trace: Trace
    field: int
    in_time: int
    in_space: int
    slopes: Tensor


@dataclass(frozen=True)
class Evaluated:
    """A site's residual in its natural size, ``(times, elements, q)``, and its derivatives by jets, if they were asked for."""

    site: Site
    values: Tensor
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Slab:
    """Fields in a slab of time as polynomials through stages.

    Attributes:
        problem: with its constants bound.
        mesh: of the space coordinate.
        stages: of the slab.
        begin: its first time.
        length: its length.
        orders: each field's order in time.
        starts: for each field its derivatives below that order at the start, ``(order, width)``.
        units: for each field what its rates are counted in, so that all are of order one.
    """

    problem: Problem
    mesh: PiecewiseBasis
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

    def evaluate(
        self, sites: Sequence[Site], rates: Tensor, at: Tensor | None = None, *, slopes: bool = False
    ) -> list[Evaluated]:
        """All residuals, with their derivatives by jets if ``slopes``.

        At the stages they are those of the method, whose derivatives each are what they are at the stages. At other times,
        given as shares of the slab, they are those of the function.
        """
        kept: dict[tuple[int, int], Tensor] = {}

        def local(field: int, in_time: int) -> Tensor:
            key = (field, in_time)
            if key not in kept:
                kept[key] = self.mesh.local(self.moved(rates, *key, at) + self.kept(*key, at))
            return kept[key]

        times = self.stages.nodes if at is None else at
        return [self._evaluated(site, local, times, slopes) for site in sites]

    def _evaluated(self, site: Site, local: _Local, at: Tensor, slopes: bool) -> Evaluated:
        names, time = self.problem.coordinates, str(self.problem.time)
        shape = (len(at), *site.traces[0].x.shape)
        when = (self.begin + self.length * at)[:, None, None].expand(shape).reshape(-1)
        points = []
        for trace in site.traces:
            where = trace.x.expand(shape).reshape(-1)
            points.append(torch.stack([when if name == time else where for name in names]).T)
        suppliers = [_TraceJets(self, local, trace) for trace in site.traces]
        normals = None
        if site.side:
            normals = torch.zeros(len(when), len(names), dtype=torch.float64)
            normals[:, [name != time for name in names].index(True)] = float(site.side)
        evaluation = Evaluation.of(self.problem, points, suppliers, normals)
        if not slopes:
            return Evaluated(site, site.factor * site.term.evaluate(evaluation).detach().reshape(shape))
        linear = linearize(site.term, evaluation)
        parts = tuple(
            Part(trace, *self.place(*key), site.factor * slope.reshape(shape))
            for trace, by_jet in zip(site.traces, linear.by_jet, strict=True)
            for key, slope in by_jet.items()
        )
        return Evaluated(site, site.factor * linear.values.detach().reshape(shape), parts)

    def place(self, field: str, index: MultiIndex) -> tuple[int, int, int]:
        """A jet as the number of its field and its derivatives in time and in space."""
        in_time = index.count(str(self.problem.time))
        return self.problem.fields.index(field), in_time, len(index) - in_time

    def product(self, evaluated: Sequence[Evaluated], rates: Tensor) -> list[Tensor]:
        """The derivative of every residual at the stages in the direction of some rates."""
        kept: dict[tuple[int, int], Tensor] = {}
        found = []
        for each in evaluated:
            total = torch.zeros_like(each.values)
            for part in each.parts:
                key = (part.field, part.in_time)
                if key not in kept:
                    kept[key] = self.mesh.local(self.moved(rates, *key, None))
                total.addcmul_(part.slopes, part.trace.jet(kept[key], part.in_space))
            found.append(total)
        return found


class _TraceJets:
    """Jets at all times and places of a trace, one after the other."""

    def __init__(self, slab: Slab, local: _Local, trace: Trace) -> None:
        self._slab, self._local, self._trace = slab, local, trace

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        """The derivative ``index`` of ``field``, ``(times * elements * q,)``."""
        number, in_time, in_space = self._slab.place(field, index)
        return self._trace.jet(self._local(number, in_time), in_space).reshape(-1)


def initial_values(problem: Problem, terms: Sequence[Term], begin: float, x: Tensor) -> dict[tuple[str, int], Tensor]:
    """What initial conditions prescribe at places ``(n,)``, by field and order of the time derivative."""
    found = {}
    for term in terms:
        points = torch.stack([torch.full_like(x, begin) if name == problem.time else x for name in problem.coordinates])
        assert term.prescription is not None
        key = (term.prescription.field, len(term.prescription.index))
        # The residual is the value less the prescribed one.
        found[key] = -term.evaluate(Evaluation.of(problem, [points.T], [RandomJets(len(x), kind=JetKind(0.0))])).detach()
    return found

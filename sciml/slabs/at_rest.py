"""Least squares at rest on cut tiles: equations, conditions and continuity of polynomials as rows, evaluated and linearised."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from sciml.geometry import Average
from sciml.jets import RandomJets
from sciml.jets.random import USUAL
from sciml.models import Scaled
from sciml.problem import Problem
from sciml.slabs.system import Evaluated, Site, evaluated
from sciml.slabs.tile_least_squares import CPU, REDUNDANT, TileLinearization, condense, condensed_pairs
from sciml.slabs.tile_nodes import Reach, TileNodes
from sciml.slabs.tile_space import CONTINUITY, NEAR, SIDES, TileSpace, TileTrace, is_gauge
from sciml.typing import MultiIndex

# Numbers in the rows that are made at once.
_CHUNK = 5e6
# What of the natural size of jets is added to those of a solution, where rows are weighted by these.
_ASIDE = 0.1


class TileRows:
    """All rows of a problem on tiles of all of its coordinates.

    Args:
        problem: with its unknowns and constants bound, but for those in ``raw``.
        space: the tiles.
        trial: centres and sizes of the fields, in which coefficients are counted.
        seed: of the points of conditions.
        raw: numbers of unknowns by which rows have slopes as well; levels of fields follow them, where a mean is no gauge.
        accelerator: where a large factor is made.
        about: coefficients ``(T, F, K)`` near which rows are weighted; without them by jets of natural size.
    """

    def __init__(
        self,
        problem: Problem,
        space: TileSpace,
        trial: Scaled,
        seed: Sequence[int],
        raw: Mapping[str, Tensor] | None = None,
        accelerator: torch.device = CPU,
        about: Tensor | None = None,
    ) -> None:
        self.problem, self._space, self._raw, self._accelerator = problem, space, dict(raw or {}), accelerator
        self.offset, self.scale = trial.offset.tolist(), trial.scale.tolist()
        most = _CHUNK / (len(problem.fields) * space.model.width)
        self._sites = list(space.sites(problem.terms(), lambda _: 1.0, seed, most))
        found = [self._weighted(site, about) for site in self._sites]
        self._weights = [weights for weights, _ in found]
        self._nodes = TileNodes(space, [reach for _, reach in found])
        tying = [term for term in problem.terms() if isinstance(term.place, Average) and not is_gauge(problem, term)]
        self._averages = {term.name: list(space.averaged(term, most)) for term in tying}
        self._means = [self._mean(name) for name in self._averages]
        self.levels = torch.zeros(len(self._means), dtype=torch.float64)

    def at(self, raw: Mapping[str, Tensor], levels: Tensor) -> TileRows:
        """The same rows at other raw numbers of the unknowns, and levels at which fields are held in place of their means."""
        found = copy.copy(self)
        found._raw, found.levels = dict(raw), levels
        if any(bool(row[1 : 1 + len(raw)].any()) for row, _ in self._means):
            found._means = [found._mean(name) for name in self._averages]
        return found

    def _weighted(self, site: Site, about: Tensor | None) -> tuple[Tensor, Reach]:
        """What a site's rows are multiplied by, for a whole iteration, from jets of natural size; and what they ask for.

        Where slopes are far larger in one place than in another, as of :math:`e^u` in a layer, rows of natural size would leave
        the rest of the domain to what tiles miss there: about a solution each tile has its own. A part of the natural size is
        added, for slopes may vanish with a field.
        """
        problem, count = self.problem, site.traces[0].columns[0].numel()
        sizes = zip(self.offset, self.scale, strict=True) if about is None else ((0.0, _ASIDE * each) for each in self.scale)
        fields, generator = dict(zip(problem.fields, sizes, strict=True)), torch.Generator().manual_seed(0)
        jets: list[RandomJets | _TileJets] = []
        for trace in site.traces:
            drawn = RandomJets(count, fields, problem.domain.half_widths, USUAL[0], generator=generator)
            jets.append(drawn if about is None else _TileJets(self, cast(TileTrace, trace), about, drawn))
        now = self._evaluated(site, jets, slopes=True)
        found = self._space.row_weights(now, lambda part: self.scale[part.field])
        for trace in site.traces:
            cast(TileTrace, trace).forget()
        return found, Reach(now)

    def _evaluated(self, site: Site, jets: Sequence[RandomJets | _TileJets], *, slopes: bool) -> Evaluated:
        points = [torch.stack([column.flatten() for column in trace.columns], dim=1) for trace in site.traces]
        shape = 1, *site.traces[0].columns[0].shape
        return evaluated(site, self.problem, points, jets, shape, self._place, slopes=slopes, raw=self._raw)

    def _place(self, field: str, index: MultiIndex) -> tuple[int, int, MultiIndex]:
        return self.problem.fields.index(field), 0, index

    def _rows(self, coefficients: Tensor, *, slopes: bool) -> Iterator[tuple[Site, Tensor, Tensor | None]]:
        """Every site's weighted values and slopes by unknowns, ``(E, q, 1 + u + l)``, and slopes, ``(E, q, 1 or 2, F K)``.

        Without ``slopes`` there are the values alone. A mean that ties tiles is held at a place, at a level that is unknown.
        """
        for site, weights in zip(self._sites, self._weights, strict=True):
            traces = [cast(TileTrace, trace) for trace in site.traces]
            jets = [_TileJets(self, trace, coefficients) for trace in traces]
            now = self._evaluated(site, jets, slopes=slopes)
            rows = self._space.rows(now, weights, lambda part: self.scale[part.field], now.values.dtype) if slopes else None
            found = torch.stack([each[0] * weights[:, None] for each in (now.values, *now.by_unknown)], dim=2)
            held = torch.tensor([float(name == site.term.name) for name in self._averages], dtype=found.dtype)
            found[..., 0] -= held @ self.levels.to(held)
            yield site, torch.cat([found, -held.expand(*found.shape[:2], -1)], dim=2) if slopes else found, rows
            for trace in traces:
                trace.forget()

    def values(self, coefficients: Tensor) -> list[Tensor]:
        """All rows at some coefficients ``(T, F, K)``."""
        means = [row[:1] for row, _ in self._tied(coefficients)]
        return [*(values.flatten() for _, values, _ in self._rows(coefficients, slopes=False)), *means]

    def held(self, coefficients: Tensor) -> Tensor:
        """The levels of coefficients ``(T, F, K)`` at the places where fields are held, ``(l,)``."""
        found = {site.term.name: values for site, values, _ in self._rows(coefficients, slopes=False)}
        return self.levels + torch.tensor([float(found[name]) for name in self._averages], dtype=torch.float64)

    def _mean(self, name: str) -> tuple[Tensor, Tensor]:
        """A mean's row where fields are zero, with slopes by unknowns, ``(1 + u + l,)``, and by coefficients, ``(T, F, K)``."""
        weight = next(weights[0] for site, weights in zip(self._sites, self._weights, strict=True) if site.term.name == name)
        slopes = torch.zeros(self._space.model.coefficients.shape[0], len(self.scale), self._space.model.width).double()
        row = slopes.new_zeros(1 + len(self._raw) + len(self._averages))
        for site in self._averages[name]:
            trace = cast(TileTrace, site.traces[0])
            now = self._evaluated(site, [_TileJets(self, trace, torch.zeros_like(slopes))], slopes=True)
            assert site.shares is not None
            row[: 1 + len(self._raw)] += torch.stack([each.squeeze() for each in (now.values, *now.by_unknown)])
            for part in now.parts:
                own = torch.einsum("eq,eqk->ek", part.slopes[0] * site.shares, trace.basis(part.in_space))
                slopes[:, part.field].index_add_(0, trace.tiles, self.scale[part.field] * own)
            trace.forget()
        # Without unknowns it is one row more than it takes: where others contradict it, they lead.
        weight = weight if self._raw else REDUNDANT * weight
        return weight * row, weight * slopes

    def _tied(self, coefficients: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The rows of means, which are affine in the fields, at some coefficients."""
        found = []
        for row, slopes in self._means:
            moved = row.clone()
            moved[0] += (slopes * coefficients).sum()
            found.append((moved, slopes))
        return found

    def jumps(self, coefficients: Tensor) -> float:
        """The largest root mean square of a jump of the fields between tiles, as a share of their size.

        A jump between small tiles is there on a small part of the domain: it counts by their length.
        """
        found = []
        for site, values, _ in self._rows(coefficients, slopes=False):
            if site.term.name.startswith(CONTINUITY):
                lengths = self._space.lengths[cast(TileTrace, site.traces[0]).tiles]
                # The size of such a row counts both members.
                found.append(float((values.square().sum((1, 2)) * lengths.square()).mean().sqrt()) * 2 / SIDES)
        return max(found, default=0.0)

    def by_tile(self, coefficients: Tensor) -> Tensor:
        """The sum of squares of the rows of each tile, those that join two counted for both, ``(T,)``."""
        found = coefficients.new_zeros(len(coefficients))
        for site, values, _ in self._rows(coefficients, slopes=False):
            for trace in site.traces:
                found.index_add_(0, cast(TileTrace, trace).tiles, values.square().sum((1, 2)))
        return found

    def hidden(self, coefficients: Tensor, sizes: Mapping[str, float]) -> float:
        """Mean absolute residual of equations near singular places, over the whole domain, in their natural sizes.

        On tiles far smaller than a layer is thin, rows weigh next to nothing: least squares may put there what
        contradicts conditions, and by its integral the equation moves the fields everywhere.
        """
        shares = self._space.model.halves.prod(1) / self._space.model.halves.prod(1).sum()
        shares = torch.where(self._space.levels >= NEAR, shares, 0.0)
        found = dict.fromkeys(self.problem.equations, 0.0)
        for (site, values, _), weights in zip(self._rows(coefficients, slopes=False), self._weights, strict=True):
            if site.term.name in found:
                left = (values[..., 0] / weights[:, None]).abs().mean(1).nan_to_num(0.0)
                found[site.term.name] += float(left @ shares[cast(TileTrace, site.traces[0]).tiles]) / sizes[site.term.name]
        return max(found.values())

    def linearised(self, coefficients: Tensor) -> TileLinearization:
        """The rows and their slopes at some coefficients, condensed."""
        of, unknowns = self._nodes, len(self._raw) + len(self._means)
        width = of.width + 1 + unknowns
        triangles, joined = coefficients.new_zeros(of.count, width, width), []
        for number, (_, values, slopes) in enumerate(self._rows(coefficients, slopes=True)):
            assert slopes is not None
            nodes, rows = of.nodes(number), of.rows(number, slopes)
            if nodes.dim() == 1:
                condense(triangles, nodes, torch.cat([rows, values], dim=2))
            else:
                joined.append(condensed_pairs(nodes, rows, values))
        means = self._tied(coefficients)
        return TileLinearization(triangles, joined, of.coefficients, unknowns, self._accelerator, means)


class _TileJets:
    """Jets at the places of a trace, of polynomials with known coefficients, and others ``beside`` that are added."""

    def __init__(self, rows: TileRows, trace: TileTrace, coefficients: Tensor, beside: RandomJets | None = None) -> None:
        self._rows, self._trace, self._coefficients, self._beside = rows, trace, coefficients, beside

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        """The derivative ``index`` of ``field`` at all places."""
        column = self._rows.problem.fields.index(field)
        values = self._trace.jet(self._coefficients[None, :, column], index).flatten() * self._rows.scale[column]
        values = values if index else values + self._rows.offset[column]
        return values if self._beside is None else values + self._beside.jet(field, index)

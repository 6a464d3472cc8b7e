"""The unknowns of least squares on tiles, in nodes: the coefficients on one tile of fields that equations couple.

Fields that no equation couples, as the temperatures of two materials, are nodes of their own, and only on tiles on which some
row asks for them. Rows are those of one node or join two: conditions at an interface join two nodes of the same tile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import torch
from torch import Tensor

from sciml.geometry import Interior, Within
from sciml.slabs.system import Evaluated
from sciml.slabs.tile_space import TileSpace, TileTrace


class Reach:
    """The tiles of a site's traces and the fields that it asks for there, but for those that are left out."""

    def __init__(self, evaluated: Evaluated, without: Collection[int] = ()) -> None:
        site, parts = evaluated.site, [part for part in evaluated.parts if part.field not in without]
        self.tiles = [cast(TileTrace, trace).tiles for trace in site.traces]
        self.fields = [{part.field for part in parts if part.trace is trace} for trace in site.traces]
        self.whole = len(site.traces) == 1 and isinstance(site.term.place, Interior | Within)


class TileNodes:
    """Which coefficients of tiles make up a node, and a site's rows by those of its one or two nodes.

    Args:
        space: the tiles.
        reaches: of all sites.
    """

    def __init__(self, space: TileSpace, reaches: Sequence[Reach]) -> None:
        self._shape = len(space.model.live), len(space.problem.fields), space.model.width
        self._groups = _groups(self._shape[1], reaches)
        self._group = {field: number for number, fields in enumerate(self._groups) for field in fields}
        used = torch.zeros(self._shape[0], len(self._groups), dtype=torch.bool)
        self._members = []
        for reach in reaches:
            asked = [(member, self._group[field]) for member, fields in enumerate(reach.fields) for field in fields]
            self._members.append([(member, group, reach.tiles[member]) for member, group in sorted(set(asked))])
            for _, group, tiles in self._members[-1]:
                used[tiles, group] = True
        self._used = torch.nonzero(used)
        self._number = torch.where(used, used.flatten().cumsum(0).view_as(used) - 1, -1)

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self._used)

    @property
    def width(self) -> int:
        """The most coefficients of a node."""
        return max(len(each) for each in self._groups) * self._shape[2]

    def nodes(self, site: int) -> Tensor:
        """The nodes of a site's rows, one ``(E,)`` or two ``(E, 2)`` for each of its tiles."""
        found = [self._number[tiles, group] for _, group, tiles in self._members[site]]
        return found[0] if len(found) == 1 else torch.stack(found, dim=1)

    def rows(self, site: int, slopes: Tensor) -> Tensor:
        """A site's rows ``(E, q, 1 or 2, F K)`` by the coefficients of its nodes, ``(E, q, w or 2 w)``."""
        by_field = slopes.unflatten(3, self._shape[1:])
        parts = [by_field[:, :, member, self._groups[group]].flatten(2) for member, group, _ in self._members[site]]
        return torch.cat([torch.nn.functional.pad(each, (0, self.width - each.shape[2])) for each in parts], dim=2)

    def coefficients(self, weights: Tensor) -> Tensor:
        """Weights of nodes ``(N, w)`` as coefficients of all tiles and fields, ``(T, F, K)``."""
        found = weights.new_zeros(self._shape)
        for group, fields in enumerate(self._groups):
            some = self._used[:, 1] == group
            own = weights[some, : len(fields) * self._shape[2]].unflatten(1, (len(fields), self._shape[2]))
            found[self._used[some, 0][:, None], fields] = own
        return found


def _groups(count: int, reaches: Sequence[Reach]) -> list[list[int]]:
    """The fields in groups such that every site's rows have one node or two, and equations one."""
    group = list(range(count))
    while True:
        before = list(group)
        for reach in reaches:
            asked = {group[field] for fields in reach.fields for field in fields}
            if len(asked) > 1 and (reach.whole or len(reach.tiles) > 1 or len(asked) > 2):
                group = [min(asked) if each in asked else each for each in group]
        if group == before:
            return [[field for field in range(count) if group[field] == each] for each in sorted(set(group))]

"""Polyhedra: the inside of closed surfaces of triangles, as STL files hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from sciml._text import extra
from sciml.errors import FileError, ProblemError
from sciml.geometry.domain import Domain, Piece, Placed, Side, checked_names, in_parts, segment_distance
from sciml.typing import Array

_CHUNK = 2**18
_FEW = 8


class Polyhedron(Domain):
    r"""The inside of a closed surface made of triangles.

    A point lies inside where the solid angle under which it sees the surface is 4π, and not 0. Every point is compared with
    every triangle: some thousands of triangles take little time, millions too much.

    Args:
        vertices: points ``(V, 3)``, in the coordinates' unit.
        triangles: the numbers of three vertices for each triangle, ``(T, 3)``, all run through in the same sense.
        names: of the coordinates, which have the same unit.
        pieces: names for parts of the surface: for each the numbers of its triangles, or a function of the coordinates of
            triangles' centres (arrays) that says which belong to it, ``{"inlet": lambda x, y, z: z < 1e-6}``. The rest is
            called ``surface``.

    Raises:
        ProblemError: arrays of other shapes, a surface that is not closed, or pieces that are empty or overlap.

    Example:
        >>> import sciml
        >>> corners = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
        >>> sides = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
        >>> wedge = sciml.Polyhedron(corners, sides, pieces={"floor": lambda x, y, z: z == 0})
        >>> wedge.pieces, round(wedge.measure, 6)
        (('floor', 'surface'), 0.166667)

    Reference: A. Van Oosterom and J. Strackee, The solid angle of a plane triangle, IEEE Transactions on Biomedical
    Engineering 30 (1983); C. Ericson, Real-Time Collision Detection, Morgan Kaufmann (2005), section 5.1.5.
    """

    def __init__(
        self,
        vertices: Any,
        triangles: Any,
        names: Sequence[str] = ("x", "y", "z"),
        *,
        pieces: Mapping[str, Callable[..., Any] | Iterable[int]] | None = None,
    ) -> None:
        names = checked_names("Polyhedron", names, 3)
        self.vertices, self.triangles = np.asarray(vertices, dtype=np.float64), np.asarray(triangles)
        for what, array in (("vertices", self.vertices), ("triangles", self.triangles)):
            if array.ndim != 2 or array.shape[1] != 3 or not np.isfinite(array).all():
                raise ProblemError(
                    f"Polyhedron: {what} must have three finite numbers each; given an array of shape {array.shape}"
                )
        numbers = self.triangles
        if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= len(self.vertices):
            raise ProblemError(f"Polyhedron: triangles must be numbers of vertices, from 0 to {len(self.vertices) - 1}")
        used = self.vertices[np.unique(self.triangles)]
        ends = zip(used.min(axis=0).tolist(), used.max(axis=0).tolist(), strict=True)
        self._bounds = dict(zip(names, ends, strict=True))
        self._check_closed()
        a, b, c = (self.vertices - self.vertices.mean(axis=0))[self.triangles].transpose(1, 0, 2)
        volume = float(np.einsum("ij,ij->", a, np.cross(b, c))) / 6
        self._measure = abs(volume)
        if volume < 0:
            # The normals of a surface that was run through in the other sense point inward.
            self.triangles = self.triangles[:, ::-1]
        self._corners = self.vertices[self.triangles]
        across = np.cross(self._corners[:, 1] - self._corners[:, 0], self._corners[:, 2] - self._corners[:, 0])
        lengths = np.linalg.norm(across, axis=1)
        if not (lengths > 0).all():
            raise ProblemError(f"Polyhedron: triangle {int(np.argmin(lengths))} has no area: take such triangles out")
        self._areas, self._normals = lengths / 2, across / lengths[:, None]
        self._sides = self._named(pieces or {})

    @classmethod
    def read(
        cls,
        path: str | Path,
        names: Sequence[str] = ("x", "y", "z"),
        *,
        pieces: Mapping[str, Callable[..., Any] | Iterable[int]] | None = None,
    ) -> Polyhedron:
        """The polyhedron in a file of STL, PLY, OBJ or another format that the library ``trimesh`` reads.

        Raises:
            MissingExtraError: ``trimesh`` is not installed.
            FileError: the file is missing or cannot be read.
            ProblemError: the surface is not closed.
        """
        with extra("geometry", "files of surfaces are read by trimesh"):
            import trimesh
        if not Path(path).is_file():
            raise FileError(f"{path}: there is no such file")
        try:
            mesh: Any = trimesh.load(path, force="mesh")
            vertices, triangles = np.asarray(mesh.vertices), np.asarray(mesh.faces)
        except Exception as error:
            raise FileError(f"{path} cannot be read as a surface: {type(error).__name__}: {error}") from error
        if triangles.ndim != 2 or not len(triangles):
            raise FileError(f"{path} holds no triangles")
        return cls(vertices, triangles, names, pieces=pieces)

    @property
    def config(self) -> dict[str, Any]:
        return {
            "kind": "Solid",
            "vertices": self.vertices.tolist(),
            "triangles": self.triangles.tolist(),
            "names": list(self.bounds),
            "pieces": {side.describe(self): numbers.tolist() for side, numbers in self._sides.items()},
        }

    def distance(self, points: Any) -> Array:
        at = self.points(points)
        nearest = in_parts(self._nearest, at, _CHUNK // len(self.triangles))
        return np.where(self._within(at), -nearest, nearest)

    def inside(self, unit: Array) -> tuple[Array, Array]:
        points = self._in_box(unit)
        return points, self._within(points)

    def freedom(self, side: Side) -> int:
        return 3

    def on_side(self, side: Side, unit: Array) -> Placed:
        numbers = self._sides[side]
        ends = self._areas[numbers].cumsum()
        chosen = numbers[np.minimum(np.searchsorted(ends, unit[:, 0] * ends[-1], side="right"), len(numbers) - 1)]
        # The root makes points of a triangle uniform: a strip at a share s of the way from a corner has a width of s.
        along, across = np.sqrt(unit[:, 1:2]), unit[:, 2:3]
        one, two, three = self._corners[chosen].transpose(1, 0, 2)
        points = (1 - along) * one + along * ((1 - across) * two + across * three)
        return points, self._normals[chosen], np.ones(len(unit), dtype=bool)

    def extent(self, side: Side) -> float:
        return float(self._areas[self._sides[side]].sum())

    def _within(self, at: Array) -> Array:
        """True for points from which the surface is seen under the solid angle of the whole sphere."""
        return in_parts(self._solid_angle, at, _CHUNK // len(self.triangles)) > 2 * np.pi

    def _solid_angle(self, at: Array) -> Array:
        a, b, c = self._corners.transpose(1, 0, 2)
        # The determinant of the corners seen from a point is linear in the point; scalar products follow from distances.
        slope, constant = np.cross(a, b) + np.cross(b, c) + np.cross(c, a), (a * np.cross(b, c)).sum(axis=1)
        ab, bc, ca = (((one - two) ** 2).sum(axis=1) for one, two in ((a, b), (b, c), (c, a)))
        away = scipy.spatial.distance.cdist(at, self.vertices)
        x, y, z = (away[:, self.triangles[:, k]] for k in range(3))
        xx, yy, zz = x * x, y * y, z * z
        below = x * y * z + 0.5 * (z * (xx + yy - ab) + x * (yy + zz - bc) + y * (zz + xx - ca))
        return 2 * np.arctan2(constant - at @ slope.T, below).sum(axis=1)

    def _nearest(self, at: Array) -> Array:
        """The distance from the nearest triangle, of some that are nearest when products of matrices do the comparing."""
        few = min(_FEW, len(self.triangles))
        center = self.vertices.mean(axis=0)
        near = self._apart(at - center, self._corners - center)
        chosen = np.argpartition(near, few - 1, axis=1)[:, :few]
        # Differences of large numbers lose half of their digits near the surface: there, point by point.
        gap = at[:, None, :] - self._corners[chosen, 0]
        high = (gap * self._normals[chosen]).sum(axis=2)
        above = np.ones(high.shape, dtype=bool)
        edges = np.full(high.shape, np.inf)
        for k in range(3):
            start, along = self._corners[chosen, k], (self._corners[:, (k + 1) % 3] - self._corners[:, k])[chosen]
            gap = at[:, None, :] - start
            edges = np.minimum(edges, segment_distance(gap, along))
            above &= (gap * np.cross(self._normals[chosen], along)).sum(axis=2) >= 0
        return np.where(above, np.abs(high), edges).min(axis=1)

    def _apart(self, at: Array, corners: Array) -> Array:
        """The squared distance of every point from every triangle, ``(n, T)``: from its plane above it, else from its edges."""
        normals, size = self._normals, (at**2).sum(axis=1)[:, None]
        high = at @ normals.T - (corners[:, 0] * normals).sum(axis=1)
        above = np.ones(high.shape, dtype=bool)
        edges = np.full(high.shape, np.inf)
        for k in range(3):
            start, along = corners[:, k], corners[:, (k + 1) % 3] - corners[:, k]
            inward, length = np.cross(normals, along), (along**2).sum(axis=1)
            reach = at @ along.T - (start * along).sum(axis=1)
            share = np.clip(reach / length, 0, 1)
            from_start = size - 2 * at @ start.T + (start**2).sum(axis=1)
            edges = np.minimum(edges, from_start + share * (share * length - 2 * reach))
            above &= at @ inward.T >= (start * inward).sum(axis=1)
        return np.where(above, high**2, edges)

    def _check_closed(self) -> None:
        """Refuse a surface with holes, or one whose triangles are not all run through in the same sense."""
        start, end = (ends.astype(np.int64).ravel() for ends in (self.triangles, np.roll(self.triangles, -1, axis=1)))
        forth, times = np.unique(start * len(self.vertices) + end, return_counts=True)
        alike = forth[times > 1]
        if len(alike):
            raise ProblemError(
                f"Polyhedron: triangles are run through in different senses, or meet in more than twos: {len(alike)} edges are "
                f"run through in the same sense by two triangles, the first {self._edge(alike[0])}; repair the surface, for "
                "example with trimesh.repair.fix_normals"
            )
        alone = np.setdiff1d(forth, end * len(self.vertices) + start)
        if len(alone):
            raise ProblemError(
                f"Polyhedron: the surface is not closed: {len(alone)} edges belong to one triangle alone, the first "
                f"{self._edge(alone[0])}; add the triangles that are missing, for example with trimesh.repair.fill_holes"
            )

    def _edge(self, key: int) -> str:
        one, two = (", ".join(f"{value:g}" for value in self.vertices[k]) for k in divmod(int(key), len(self.vertices)))
        return f"from ({one}) to ({two})"

    def _named(self, given: Mapping[str, Callable[..., Any] | Iterable[int]]) -> dict[Side, Array]:
        owner = np.full(len(self.triangles), -1)
        for number, (name, which) in enumerate(given.items()):
            chosen = np.zeros(len(owner), dtype=bool)
            if callable(which):
                chosen |= np.asarray(which(*self._corners.mean(axis=1).T), dtype=bool)
            else:
                chosen[list(which)] = True
            if not chosen.any() or (owner[chosen] >= 0).any():
                what = "is on two pieces" if chosen.any() else "has none"
                raise ProblemError(f"Polyhedron: every piece needs triangles of its own, and {name!r} {what}")
            owner[chosen] = number
        named: dict[Side, Array] = {Piece(str(name)): np.flatnonzero(owner == number) for number, name in enumerate(given)}
        rest = np.flatnonzero(owner < 0)
        if len(rest):
            named[Piece("surface")] = rest
        return named

    def __repr__(self) -> str:
        return f"Polyhedron({len(self.triangles)} triangles)"

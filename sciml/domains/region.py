"""Descriptions of parts of a boundary, resolved only against the domain of the problem that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sciml.errors import ProblemError, listed

if TYPE_CHECKING:
    from sciml.domains.box import Box

Side = Literal["lower", "upper"]


@dataclass(frozen=True)
class Face:
    """One face of a box: the points where ``coordinate`` has its lower or its upper bound."""

    coordinate: str
    side: Side

    def value(self, box: Box) -> float:
        """The value that the coordinate has on this face of ``box``."""
        return box.bounds[self.coordinate][0 if self.side == "lower" else 1]

    @property
    def sign(self) -> float:
        """The direction of the outward normal along the coordinate: -1 or +1."""
        return -1.0 if self.side == "lower" else 1.0

    def describe(self, box: Box) -> str:
        """The face as people write it: ``x=-1``."""
        return f"{self.coordinate}={self.value(box):g}"


@dataclass(frozen=True)
class Interior:
    """The inside of a domain, where equations hold."""


@dataclass(frozen=True)
class OnFaces:
    """Some faces of a box; each of them gets points of its own."""

    faces: tuple[Face, ...]


@dataclass(frozen=True)
class Opposite:
    """The two faces of one coordinate, visited in pairs of points that differ in that coordinate alone."""

    coordinate: str


Place = Interior | OnFaces | Opposite


@dataclass(frozen=True)
class Region:
    """A set of faces of a box; made by ``box.face(x=0)``, ``box.faces("x")`` and ``box.boundary``.

    It is a description: the same region serves a problem whose domain was replaced by another one with the same
    coordinates. ``boundary`` means every face except those of the time coordinate, besides the faces named.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(-1, 1), t=(0, 1))
        >>> [face.coordinate + " " + face.side for face in box.faces("x").resolve(box, time="t")]
        ['x lower', 'x upper']
    """

    faces: tuple[Face, ...] = ()
    boundary: bool = False

    def __or__(self, other: Region) -> Region:
        """The union of two regions."""
        extra = tuple(face for face in other.faces if face not in self.faces)
        return Region(self.faces + extra, self.boundary or other.boundary)

    def resolve(self, box: Box, time: str | None) -> tuple[Face, ...]:
        """The faces of ``box`` that this region means, given the name of the time coordinate (or None).

        Raises:
            ProblemError: the region names a coordinate that the box lacks, or it has no face at all.
        """
        around = (
            Face(name, side) for name in box.coordinates if name != time for side in ("lower", "upper") if self.boundary
        )
        faces = tuple(dict.fromkeys((*around, *self.faces)))
        for face in faces:
            if face.coordinate not in box.bounds:
                raise ProblemError(
                    f"a condition lies on a face of {face.coordinate!r}, but the domain has the coordinates "
                    f"{listed(box.coordinates)}: use domain.faces(...) of the problem's own domain"
                )
        if not faces:
            raise ProblemError(
                "a condition lies on an empty region: the domain has no boundary apart from its time faces; "
                "use sciml.Initial for the start, or domain.face(...) to name one face"
            )
        return faces

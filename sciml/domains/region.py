"""Descriptions of parts of a boundary, resolved only against the domain of the problem that uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from sciml.errors import ProblemError, listed

if TYPE_CHECKING:
    from sciml.domains.domain import Domain
    from sciml.domains.geometry import Geometry
    from sciml.domains.interface import Interface

End = Literal["lower", "upper"]


@dataclass(frozen=True)
class Face:
    """A flat side of a domain: the points where ``coordinate`` has its lower or its upper bound."""

    coordinate: str
    side: End

    def value(self, domain: Geometry) -> float:
        """The value that the coordinate has on this face of ``domain``."""
        return domain.bounds[self.coordinate][0 if self.side == "lower" else 1]

    @property
    def sign(self) -> float:
        """The direction of the outward normal along the coordinate: -1 or +1."""
        return -1.0 if self.side == "lower" else 1.0

    def describe(self, domain: Geometry) -> str:
        """The face as people write it: ``x=-1``."""
        return f"{self.coordinate}={self.value(domain):g}"


@dataclass(frozen=True)
class Piece:
    """A side of a domain that is no box: one of those that the name ``name`` stands for."""

    name: str
    number: int = 0

    @property
    def coordinate(self) -> None:
        """No coordinate is constant on it."""
        return None

    def describe(self, domain: Geometry) -> str:
        """The piece as people write it: its name."""
        return self.name


Side: TypeAlias = Face | Piece


@dataclass(frozen=True)
class Interior:
    """The inside of a domain, where equations hold."""


@dataclass(frozen=True)
class Within:
    """The inside of a part of a domain, where the equations of that part hold."""

    part: Domain


@dataclass(frozen=True)
class OnFaces:
    """Some sides of a domain; each of them gets points of its own."""

    faces: tuple[Side, ...]


@dataclass(frozen=True)
class Opposite:
    """The two faces of one coordinate, visited in pairs of points that differ in that coordinate alone."""

    coordinate: str


@dataclass(frozen=True)
class At:
    """One point, by its coordinates in the order of the domain's."""

    position: tuple[float, ...]


@dataclass(frozen=True)
class Average:
    """The mean over a place: its residual is one row."""

    over: Interior | OnFaces


Place: TypeAlias = "Interior | Within | OnFaces | Interface | Opposite | At | Average"


@dataclass(frozen=True)
class Region:
    """A set of sides; made by ``box.face(x=0)``, ``box.faces("x")``, ``domain.piece("inlet")`` and ``domain.boundary``.

    It is a description: the same region serves a problem whose domain was replaced by another one with the same
    coordinates. ``boundary`` means every side except the faces of the time coordinate, besides the sides named and without
    those in ``excluded``. Regions unite, ``a | b``, and named sides are taken off, ``domain.boundary - domain.piece("inlet")``.

    Example:
        >>> import sciml
        >>> box = sciml.Box(x=(-1, 1), t=(0, 1))
        >>> [face.coordinate + " " + face.side for face in box.faces("x").resolve(box, time="t")]
        ['x lower', 'x upper']
    """

    faces: tuple[Side, ...] = ()
    boundary: bool = False
    excluded: tuple[Side, ...] = ()

    def __or__(self, other: Region) -> Region:
        """The union of two regions."""
        extra = tuple(face for face in other.faces if face not in self.faces)
        # What one of them leaves out of the boundary is left out only if the other does not have it.
        around = [region for region in (self, other) if region.boundary]
        excluded = tuple(
            side for side in self.excluded + other.excluded if all(side in each.excluded for each in around)
        )
        return Region(self.faces + extra, bool(around), tuple(dict.fromkeys(excluded)))

    def __sub__(self, other: Region) -> Region:
        """The first region without the sides of the second.

        Raises:
            ProblemError: the second one is the whole boundary, which has no names.
        """
        if other.boundary:
            raise ProblemError("only named sides are taken off a region: domain.boundary - domain.piece('inlet')")
        kept = tuple(face for face in self.faces if face not in other.faces)
        return Region(kept, self.boundary, self.excluded + other.faces if self.boundary else ())

    def resolve(self, domain: Geometry, time: str | None, constants: Sequence[str] = ()) -> tuple[Side, ...]:
        """The sides of ``domain`` that this region means, given the name of the time coordinate (or None).

        No part of ``boundary`` are the faces of time and of ``constants``, coordinates that were constants of a problem.

        Raises:
            ProblemError: the region names a side that the domain lacks, or it has no side at all.
        """
        around = (
            side
            for side in domain.sides
            if self.boundary
            and side not in self.excluded
            and not (isinstance(side, Face) and side.coordinate in (time, *constants))
        )
        faces = tuple(dict.fromkeys((*around, *self.faces)))
        for face in (*faces, *self.excluded):
            if face not in domain.sides:
                raise ProblemError(_missing(face, domain))
        if not faces:
            raise ProblemError(
                "a condition lies on an empty region: the domain has no boundary apart from its time faces; "
                "use sciml.Initial for the start, or domain.face(...) to name one face"
            )
        return faces


def _missing(side: Side, domain: Geometry) -> str:
    """What to say when a region names a side that the domain does not have."""
    if isinstance(side, Piece):
        return (
            f"a condition lies on the piece {side.name!r}, but the pieces of {domain!r} are {listed(domain.pieces)}: use "
            "domain.piece(...) of the problem's own domain"
        )
    if side.coordinate not in domain.bounds:
        return (
            f"a condition lies on a face of {side.coordinate!r}, but the domain has the coordinates "
            f"{listed(domain.coordinates)}: use domain.faces(...) of the problem's own domain"
        )
    return (
        f"a condition lies on a face of {side.coordinate!r}, but {domain!r} has no such face; its pieces are "
        f"{listed(domain.pieces)}"
    )

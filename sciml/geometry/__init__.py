"""Where points live: domains, their boundaries and interfaces, and the points drawn in them."""

from sciml.geometry.ball import Ball, Disk
from sciml.geometry.box import Box, Interval
from sciml.geometry.chebyshev import Layout, clustered
from sciml.geometry.config import built
from sciml.geometry.domain import (
    At,
    Average,
    Combination,
    Domain,
    Face,
    Interface,
    Interior,
    OnFaces,
    Opposite,
    Piece,
    Place,
    Product,
    Region,
    Side,
    Within,
    clipped,
)
from sciml.geometry.polygon import Corner, Polygon
from sciml.geometry.polyhedron import Solid
from sciml.geometry.sampling import Sample, default_count, default_face_count, draw

__all__ = [
    "At",
    "Average",
    "Ball",
    "Box",
    "Combination",
    "Corner",
    "Disk",
    "Domain",
    "Face",
    "Interface",
    "Interior",
    "Interval",
    "Layout",
    "OnFaces",
    "Opposite",
    "Piece",
    "Place",
    "Polygon",
    "Product",
    "Region",
    "Sample",
    "Side",
    "Solid",
    "Within",
    "built",
    "clipped",
    "clustered",
    "default_count",
    "default_face_count",
    "draw",
]

"""Domains, their boundaries and interfaces, and the points sampled in them."""

from sciml.geometry.ball import Ball, Disk
from sciml.geometry.box import Box, Interval
from sciml.geometry.config import domain_from_config
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
    common_ends,
    common_surface,
)
from sciml.geometry.polygon import Corner, Polygon
from sciml.geometry.polyhedron import Polyhedron
from sciml.geometry.sampling import PointSet, SpectralPoints, clustered, default_count, default_face_count, draw

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
    "OnFaces",
    "Opposite",
    "Piece",
    "Place",
    "PointSet",
    "Polygon",
    "Polyhedron",
    "Product",
    "Region",
    "Side",
    "SpectralPoints",
    "Within",
    "clipped",
    "clustered",
    "common_ends",
    "common_surface",
    "default_count",
    "default_face_count",
    "domain_from_config",
    "draw",
]

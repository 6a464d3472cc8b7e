"""Where points live: domains with named coordinates, and descriptions of the sides of their boundaries."""

from sciml.domains.box import Box, Interval
from sciml.domains.built import built
from sciml.domains.domain import Combination, Domain, Product
from sciml.domains.interface import Interface, clipped
from sciml.domains.polygon import Corner, Polygon
from sciml.domains.region import At, Average, Face, Interior, OnFaces, Opposite, Piece, Place, Region, Side, Within
from sciml.domains.round import Ball, Disk
from sciml.domains.solid import Solid

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
    "Polygon",
    "Product",
    "Region",
    "Side",
    "Solid",
    "Within",
    "built",
    "clipped",
]

"""Where points live: boxes with named coordinates, and descriptions of their faces."""

from sciml.domains.box import Box, Interval
from sciml.domains.region import Face, Interior, OnFaces, Opposite, Place, Region

__all__ = ["Box", "Face", "Interior", "Interval", "OnFaces", "Opposite", "Place", "Region"]

"""Slabs of time: polynomials in time times piecewise polynomials in space, found by Newton's method."""

from sciml.slabs.mesh import Mesh, Trace, chebyshev_places, gauss
from sciml.slabs.newton import Solved, solve
from sciml.slabs.slab import Evaluated, Site, Slab, initial_values
from sciml.slabs.stages import Stages, start_polynomial

__all__ = [
    "Evaluated",
    "Mesh",
    "Site",
    "Slab",
    "Solved",
    "Stages",
    "Trace",
    "chebyshev_places",
    "gauss",
    "initial_values",
    "solve",
    "start_polynomial",
]

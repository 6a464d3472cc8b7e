"""Grids: trial functions given by values at nodes, whose derivatives are matrices."""

from sciml.grids.axes import Axis, Chebyshev, Differences, Fourier, Knots, Nodal
from sciml.grids.function import GridFunction
from sciml.grids.grid import Grid, GridJets, Linearised, Sites, evaluated, linearised

__all__ = [
    "Axis",
    "Chebyshev",
    "Differences",
    "Fourier",
    "Grid",
    "GridFunction",
    "GridJets",
    "Knots",
    "Linearised",
    "Nodal",
    "Sites",
    "evaluated",
    "linearised",
]

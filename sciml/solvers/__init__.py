"""Solvers: what makes the rows small. One algorithm, one file, one small interface."""

from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.first_order import Adam, FirstOrder
from sciml.solvers.gauss_newton import GaussNewton
from sciml.solvers.lbfgs import LBFGS
from sciml.solvers.least_squares import LeastSquares
from sciml.solvers.linear import LinearLeastSquares
from sciml.solvers.ssbroyden import SSBroyden

__all__ = [
    "LBFGS",
    "Adam",
    "FirstOrder",
    "GaussNewton",
    "LeastSquares",
    "LinearLeastSquares",
    "Run",
    "SSBroyden",
    "Solver",
    "Step",
]

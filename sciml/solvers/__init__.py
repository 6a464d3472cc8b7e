"""Solvers: what makes the rows small. One algorithm, one file, one small interface."""

from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.first_order import Adam, FirstOrder
from sciml.solvers.lbfgs import LBFGS

__all__ = ["LBFGS", "Adam", "FirstOrder", "Run", "Solver", "Step"]

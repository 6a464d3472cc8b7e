"""Conditions: what holds at the start, on the boundary, at points and on average."""

from sciml.problem.boundary_conditions import Dirichlet, Initial, Neumann, Outflow, Periodic, Robin
from sciml.problem.conditions import Condition, condition
from sciml.problem.integral_conditions import Integral, Mean, Point

__all__ = [
    "Condition",
    "Dirichlet",
    "Initial",
    "Integral",
    "Mean",
    "Neumann",
    "Outflow",
    "Periodic",
    "Point",
    "Robin",
    "condition",
]

"""Conditions: what holds at the start, on the boundary, at points and on average."""

from sciml.problem.boundary_conditions import Neumann, Robin
from sciml.problem.conditions import Condition, Dirichlet, Initial, Periodic, condition
from sciml.problem.integral_conditions import Integral, Mean, Point

__all__ = [
    "Condition",
    "Dirichlet",
    "Initial",
    "Integral",
    "Mean",
    "Neumann",
    "Periodic",
    "Point",
    "Robin",
    "condition",
]

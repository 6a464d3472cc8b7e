"""Problem statements: equations, conditions, unknowns, measurements and their noise, experiments."""

from sciml.problem.boundary_conditions import Dirichlet, Initial, Neumann, Outflow, Periodic, Robin
from sciml.problem.composite import composite
from sciml.problem.conditions import Condition, condition, equation
from sciml.problem.experiments import experiments
from sciml.problem.integral_conditions import Integral, Mean, Point
from sciml.problem.measurements import Measurements
from sciml.problem.noise import Huber, LogNormal, Noise, Normal, Poisson, StudentT
from sciml.problem.problem import Problem
from sciml.problem.unknowns import Unknown

__all__ = [
    "Condition",
    "Dirichlet",
    "Huber",
    "Initial",
    "Integral",
    "LogNormal",
    "Mean",
    "Measurements",
    "Neumann",
    "Noise",
    "Normal",
    "Outflow",
    "Periodic",
    "Point",
    "Poisson",
    "Problem",
    "Robin",
    "StudentT",
    "Unknown",
    "composite",
    "condition",
    "equation",
    "experiments",
]

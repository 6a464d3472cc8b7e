"""Problem statements: equations, conditions, unknowns, measurements and their noise, experiments."""

from sciml.problem.boundary_conditions import Dirichlet, Initial, Periodic
from sciml.problem.composite import composite
from sciml.problem.conditions import equation
from sciml.problem.experiments import experiments
from sciml.problem.measurements import Measurements
from sciml.problem.noise import Normal, Poisson
from sciml.problem.problem import Problem
from sciml.problem.unknowns import Unknown

__all__ = [
    "Dirichlet",
    "Initial",
    "Measurements",
    "Normal",
    "Periodic",
    "Poisson",
    "Problem",
    "Unknown",
    "composite",
    "equation",
    "experiments",
]

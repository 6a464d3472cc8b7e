"""The discrete problem (residuals, Jacobian, objective, scales), and the algorithms that make it small."""

from sciml.solvers.adaptive_sampling import Adaptive
from sciml.solvers.base import Run, Solver, Step
from sciml.solvers.callbacks import Callback, EarlyStopping, ProgressLine, Report
from sciml.solvers.discrete_problem import DiscreteProblem
from sciml.solvers.first_order import Adam, FirstOrder
from sciml.solvers.gauss_newton import GaussNewton, LinearLeastSquares
from sciml.solvers.hard_constraints import HardConstraints
from sciml.solvers.lbfgs import LBFGS
from sciml.solvers.levenberg_marquardt import LeastSquares
from sciml.solvers.objective import Objective
from sciml.solvers.residuals import ResidualSystem
from sciml.solvers.ssbroyden import SSBroyden
from sciml.solvers.weighting import Balanced, Causal, Weighting, Weightings

__all__ = [
    "LBFGS",
    "Adam",
    "Adaptive",
    "Balanced",
    "Callback",
    "Causal",
    "DiscreteProblem",
    "EarlyStopping",
    "FirstOrder",
    "GaussNewton",
    "HardConstraints",
    "LeastSquares",
    "LinearLeastSquares",
    "Objective",
    "ProgressLine",
    "Report",
    "ResidualSystem",
    "Run",
    "SSBroyden",
    "Solver",
    "Step",
    "Weighting",
    "Weightings",
]

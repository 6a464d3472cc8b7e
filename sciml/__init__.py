"""Differential equations, data and networks: state a problem as a class, fit it, trust the answer."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from sciml import gallery as gallery
from sciml.baselines import baseline
from sciml.callbacks import EarlyStopping, Look, Tracker
from sciml.checkpoint import Every
from sciml.checkup import Checkup
from sciml.comparison import Comparison, compare
from sciml.conditions import Dirichlet, Initial, Periodic, condition
from sciml.counting import ConditionWarning
from sciml.datasets import (
    LazyTable,
    Loading,
    Stream,
    read,
    read_csv,
    read_hdf5,
    read_mat,
    read_netcdf,
    read_parquet,
)
from sciml.definition import equation
from sciml.derivative import d
from sciml.distilling import distil
from sciml.doctor import doctor
from sciml.domains import Ball, Box, Disk, Domain, Interval, Polygon, Solid
from sciml.embedding import embed
from sciml.ensemble import Ensemble, ensemble
from sciml.evidence import criteria
from sciml.exact import Exact
from sciml.experiments import experiments
from sciml.findings import Finding
from sciml.fitting import fit
from sciml.loading import load
from sciml.measurements import Measurements
from sciml.models import (
    MLP,
    Concatenation,
    DeepFeatures,
    FourierFeatures,
    GatedBlock,
    PeriodicEmbedding,
    Product,
    RandomFeatures,
    ResidualBlock,
    Spectral,
    Transformed,
)
from sciml.noise import Huber, LogNormal, Normal, Poisson, StudentT
from sciml.normal import Neumann, Robin
from sciml.operators import curl, div, grad, laplacian
from sciml.pinned import Integral, Mean, Point
from sciml.polish import Polish
from sciml.preflight import preflight
from sciml.problem import Problem
from sciml.runs import runs
from sciml.sampling.adaptive import Adaptive
from sciml.solution import ExtrapolationWarning, Solution
from sciml.solvers import LBFGS, Adam, FirstOrder, GaussNewton, LeastSquares, LinearLeastSquares, SSBroyden
from sciml.stored import Stored
from sciml.table import Table
from sciml.unknowns import Unknown
from sciml.weighting import Balanced, Causal
from sciml.windows import Windows

if _TYPE_CHECKING:
    from sciml.transformer import Embedding as Embedding

__version__ = "0.1.0"

__all__ = [
    "LBFGS",
    "MLP",
    "Adam",
    "Adaptive",
    "Balanced",
    "Ball",
    "Box",
    "Causal",
    "Checkup",
    "Comparison",
    "Concatenation",
    "ConditionWarning",
    "DeepFeatures",
    "Dirichlet",
    "Disk",
    "Domain",
    "EarlyStopping",
    "Ensemble",
    "Every",
    "Exact",
    "ExtrapolationWarning",
    "Finding",
    "FirstOrder",
    "FourierFeatures",
    "GatedBlock",
    "GaussNewton",
    "Huber",
    "Initial",
    "Integral",
    "Interval",
    "LazyTable",
    "LeastSquares",
    "LinearLeastSquares",
    "Loading",
    "LogNormal",
    "Look",
    "Mean",
    "Measurements",
    "Neumann",
    "Normal",
    "Periodic",
    "PeriodicEmbedding",
    "Point",
    "Poisson",
    "Polish",
    "Polygon",
    "Problem",
    "Product",
    "RandomFeatures",
    "ResidualBlock",
    "Robin",
    "SSBroyden",
    "Solid",
    "Solution",
    "Spectral",
    "Stored",
    "Stream",
    "StudentT",
    "Table",
    "Tracker",
    "Transformed",
    "Unknown",
    "Windows",
    "baseline",
    "compare",
    "condition",
    "criteria",
    "curl",
    "d",
    "distil",
    "div",
    "doctor",
    "embed",
    "ensemble",
    "equation",
    "experiments",
    "fit",
    "grad",
    "laplacian",
    "load",
    "preflight",
    "read",
    "read_csv",
    "read_hdf5",
    "read_mat",
    "read_netcdf",
    "read_parquet",
    "runs",
]


def __getattr__(name: str) -> _Any:
    """``Embedding``, which needs scikit-learn: imported when it is asked for, and not listed in ``__all__``."""
    if name == "Embedding":
        from sciml.transformer import Embedding

        return Embedding
    raise AttributeError(f"module 'sciml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "Embedding"])

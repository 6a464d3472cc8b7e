"""Differential equations and data: state a problem as a class, fit it, trust the answer.

State it       ``Problem`` with ``equation``, ``condition`` and derivatives ``d``; ``Unknown`` constants; ``Initial``,
               ``Dirichlet``, ``Neumann``, ``Periodic`` on a ``Box`` or an ``Interval``; ``composite`` of parts. More:
               ``sciml.geometry``, ``sciml.conditions``, ``sciml.noise``.
Measure it     ``read``, ``read_csv``, ``read_hdf5`` into a ``Table``; ``experiments``. More: ``sciml.data``.
Solve it       ``fit``, by whatever trial function fits best or by an ``MLP`` or a network of your own; ``baseline``, by
               SciPy. More: ``sciml.models``, ``sciml.solvers``, ``sciml.strategies``.
Trust it       ``Solution``, ``preflight``, ``doctor``, ``compare``, ``criteria``. More: ``sciml.uncertainty``.
Use it         ``embed``, ``Embedding``, ``distil``, and the problems of ``sciml.gallery``.
Repeat it      ``ensemble``, ``sweep``, ``tune``, ``profile``: ``sciml.studies``.
Map it         ``sciml.operators``: surrogates of whole families of problems, corrected by their equation.
Keep it        ``load``. More: ``sciml.runs``; what may go wrong: ``sciml.errors``.

What a namespace lists is found here as well: ``sciml.Disk`` is ``sciml.geometry.Disk``.
"""

from typing import Any as _Any

from sciml import (
    conditions,
    data,
    errors,
    gallery,
    geometry,
    models,
    noise,
    operators,
    runs,
    solvers,
    strategies,
    studies,
    uncertainty,
)
from sciml import diagnostics as _diagnostics
from sciml import jets as _jets
from sciml import problem as _problem
from sciml.baselines import baseline
from sciml.comparison import Comparison as Comparison
from sciml.comparison import compare
from sciml.conditions import Dirichlet, Initial, Neumann, Periodic, condition
from sciml.data import Table, read, read_csv, read_hdf5
from sciml.diagnostics import preflight
from sciml.distillation import distil
from sciml.doctor import doctor
from sciml.embedding import embed
from sciml.fitting import fit
from sciml.geometry import Box, Interval
from sciml.jets import d
from sciml.models import MLP
from sciml.problem import Problem, Unknown, composite, equation, experiments
from sciml.runs import load
from sciml.solution import Solution
from sciml.studies import ensemble
from sciml.uncertainty import criteria

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Box",
    "Dirichlet",
    "Embedding",
    "Initial",
    "Interval",
    "Neumann",
    "Periodic",
    "Problem",
    "Solution",
    "Table",
    "Unknown",
    "baseline",
    "compare",
    "composite",
    "condition",
    "criteria",
    "d",
    "distil",
    "doctor",
    "embed",
    "ensemble",
    "equation",
    "experiments",
    "fit",
    "gallery",
    "load",
    "preflight",
    "read",
    "read_csv",
    "read_hdf5",
]

_NAMESPACES = {
    "conditions": conditions,
    "data": data,
    "errors": errors,
    "geometry": geometry,
    "models": models,
    "noise": noise,
    "operators": operators,
    "runs": runs,
    "solvers": solvers,
    "strategies": strategies,
    "studies": studies,
    "uncertainty": uncertainty,
}


def __getattr__(name: str) -> _Any:
    """What a namespace lists, under its own name; ``Embedding``, which needs scikit-learn, when it is asked for."""
    if name == "Embedding":
        from sciml.transformer import Embedding

        return Embedding
    for space in (models, *_NAMESPACES.values(), _diagnostics, _jets, _problem):
        if name in getattr(space, "__all__", ()):
            return getattr(space, name)
    raise AttributeError(f"module 'sciml' has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_NAMESPACES])

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
Hand it on     reports, programs, files, trackers, servers: ``sciml.deploy``.

What a namespace lists is found here as well: ``sciml.Disk`` is ``sciml.geometry.Disk``.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

if _TYPE_CHECKING:
    from sciml import (
        conditions as conditions,
        data as data,
        deploy as deploy,
        errors as errors,
        gallery,
        geometry as geometry,
        models as models,
        noise as noise,
        operators as operators,
        runs as runs,
        solvers as solvers,
        strategies as strategies,
        studies as studies,
        uncertainty as uncertainty,
    )
    from sciml.baselines import baseline
    from sciml.comparison import Comparison as Comparison, compare
    from sciml.conditions import Dirichlet, Initial, Neumann, Periodic, condition
    from sciml.data import Table, read, read_csv, read_hdf5
    from sciml.diagnostics import preflight
    from sciml.distillation import distil
    from sciml.embedding import embed
    from sciml.examination import doctor
    from sciml.fitting import fit
    from sciml.geometry import Box, Interval
    from sciml.jets import d
    from sciml.models import MLP
    from sciml.problem import Problem, Unknown, composite, equation, experiments
    from sciml.runs import load
    from sciml.solution import Solution
    from sciml.studies import ensemble
    from sciml.transformer import Embedding
    from sciml.uncertainty import criteria

__version__ = "0.2.0"

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

# Where each name comes from: it is loaded when it is asked for, so that ``import sciml`` takes no time (SPEC 1 of Scientific
# Python).
_HOMES = {
    name: home
    for home, names in {
        "baselines": "baseline",
        "comparison": "Comparison compare",
        "conditions": "Dirichlet Initial Neumann Periodic condition",
        "data": "Table read read_csv read_hdf5",
        "diagnostics": "preflight",
        "distillation": "distil",
        "embedding": "embed",
        "examination": "doctor",
        "fitting": "fit",
        "geometry": "Box Interval",
        "jets": "d",
        "models": "MLP",
        "problem": "Problem Unknown composite equation experiments",
        "runs": "load",
        "solution": "Solution",
        "studies": "ensemble",
        "transformer": "Embedding",
        "uncertainty": "criteria",
    }.items()
    for name in names.split()
}

_NAMESPACES = (
    "conditions",
    "data",
    "deploy",
    "errors",
    "geometry",
    "models",
    "noise",
    "operators",
    "runs",
    "solvers",
    "strategies",
    "studies",
    "uncertainty",
)


def __getattr__(name: str) -> _Any:
    """What a namespace lists, under its own name; everything is loaded when it is asked for."""
    if name.startswith("__"):
        raise AttributeError(f"module 'sciml' has no attribute {name!r}")
    if name in _NAMESPACES or name == "gallery":
        return _importlib.import_module(f"sciml.{name}")
    homes = [_HOMES[name]] if name in _HOMES else ["models", *_NAMESPACES, "diagnostics", "jets", "problem"]
    for home in homes:
        room = _importlib.import_module(f"sciml.{home}")
        if name in _HOMES or name in getattr(room, "__all__", ()):
            globals()[name] = getattr(room, name)
            return globals()[name]
    raise AttributeError(f"module 'sciml' has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_NAMESPACES])

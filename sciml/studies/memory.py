"""Memory that a fit will take, foretold from its rows, its parameters and its solvers, before it begins."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from sciml.data.memory import free_bytes, readable
from sciml.problem import Problem
from sciml.solvers import FirstOrder, GaussNewton, LeastSquares, SSBroyden
from sciml.solvers.lbfgs import LBFGS
from sciml.strategies.prepare import prepare
from sciml.strategies.training import stages_of, usual_stages


def memory(
    problem: Problem,
    model: Any,
    *,
    solver: Any = None,
    points: Any = None,
    data: Any = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "auto",
    seed: int = 0,
) -> pd.DataFrame:
    """Foretell the memory that the training of a model takes, part by part; nothing is trained.

    What a gradient keeps for its way back is measured with some points and multiplied; beyond two fifths of what is free a fit
    takes the points in parts. Matrices of solvers follow from the numbers of rows and parameters.

    Args:
        problem: the problem.
        model: as for ``fit``.
        solver: as for ``fit``; by default those that train such a model.
        points: as for ``fit``.
        data: as for ``fit``.
        dtype: as for ``fit``.
        device: as for ``fit``.
        seed: as for ``fit``.

    Returns:
        A DataFrame indexed by what takes it: ``bytes``, ``reading``, the same as a text, and ``fits``, whether that is less
        than half of what is free.

    Raises:
        SciMLError: what ``fit`` raises before its first step.

    Example:
        >>> import sciml
        >>> rod = sciml.gallery.problem("heat_rod")
        >>> found = sciml.memory(rod, sciml.MLP(20, 20), solver=sciml.LeastSquares(100))
        >>> list(found.index)
        ['graph of a gradient', 'LeastSquares: Jacobian and factors']
        >>> bool(found["fits"].all())
        True
    """
    setup = prepare(problem, model, data, points, None, dtype, device, seed)
    objective = setup.objective()
    rows, columns = objective.shape
    number = torch.empty(0, dtype=dtype).element_size()
    found: dict[str, float] = {"graph of a gradient": objective.foretold_bytes()}
    for stage in usual_stages(columns) if solver is None else stages_of(solver):
        name = type(stage).__name__
        if isinstance(stage, LeastSquares):
            found[f"{name}: Jacobian and factors"] = number * (4.0 * rows * columns + 6.0 * min(rows, columns) ** 2)
        elif isinstance(stage, GaussNewton):
            found[f"{name}: Jacobian and triangle"] = number * (3.0 * rows * columns + 2.0 * columns**2)
        elif isinstance(stage, SSBroyden):
            found[f"{name}: inverse Hessian"] = number * 2.0 * columns**2
        elif isinstance(stage, LBFGS):
            found[f"{name}: {stage.history} pairs of vectors"] = number * 2.0 * stage.history * columns
        elif isinstance(stage, FirstOrder):
            found[f"{stage.name}: parameters, gradient and moments"] = number * 4.0 * columns
    table = pd.DataFrame({"bytes": found})
    table["reading"] = table["bytes"].map(readable)
    table["fits"] = table["bytes"] < 0.5 * (free_bytes(setup.trial.offset.device) or float("inf"))
    return table

"""Learned embeddings: what a layer of a network says about points, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml.errors import ModelError, ProblemError, listed, nearest
from sciml.models import Windowed
from sciml.problem import points_from
from sciml.table import Table

_CHUNK = 65536


def embed(solution: Any, points: Any, layer: str | None = None) -> pd.DataFrame:
    r"""The activations of one layer at points: a learned embedding :math:`h(x) \in \mathbb{R}^k`.

    Args:
        solution: a solution with a network in it, or any ``torch.nn.Module`` that maps ``(n, D)`` to something.
        points: where. For a solution a ``Table``, a DataFrame or a dict that has its coordinates as columns (others are
            ignored), in the problem's units; for a module an array or tensor ``(n, D)``.
        layer: the name of a submodule (as in ``named_modules()``) whose output is taken; by default the last hidden
            layer, which is the input of the last linear layer. For a solution names count from ``solution.model``.

    Returns:
        A DataFrame with columns ``z0 ... z{k-1}`` in the network's own units, and the index of ``points`` if it has one.

    Raises:
        ModelError: no such layer, no linear layer to find the last hidden one by, or a solution without a network.
        ProblemError: the points lack a coordinate, or have the wrong shape.

    Example:
        >>> import torch, sciml
        >>> model = sciml.MLP(8, 5, inputs=1, outputs=1)
        >>> sciml.embed(model, torch.linspace(0, 1, 3)[:, None]).columns.tolist()
        ['z0', 'z1', 'z2', 'z3', 'z4']
    """
    index = points.index if isinstance(points, pd.DataFrame) else None
    if layer is not None and not isinstance(layer, str):
        raise ModelError(f"layer must be the name of a submodule; given: {layer!r}")
    if not isinstance(solution, nn.Module) and not hasattr(solution, "trial"):
        raise ModelError(f"embed needs a solution or a torch.nn.Module; given: {type(solution).__name__}")
    if isinstance(solution, nn.Module):
        module, run = solution, solution
        inputs = _plain_points(points)
    else:
        module, run = solution.model, solution.trial
        if not isinstance(module, nn.Module):
            raise ModelError(
                f"this solution comes from {solution.engine} and has no network, so there is nothing to embed with; give "
                "embed a solution of sciml.fit"
            )
        if isinstance(module, Windowed):
            raise ModelError(
                "this solution is made of windows of time, each with a model of its own, so there is no one layer to embed "
                "with; fit one network, sciml.fit(problem, sciml.MLP(20, 20), ...), and embed with that"
            )
        columns = _columns(points)
        missing = [name for name in solution.coordinates if name not in columns]
        if missing:
            raise ProblemError(f"the points lack the coordinate {listed(missing)}; given: {listed(columns)}")
        inputs, _ = points_from({name: columns[name] for name in solution.coordinates}, solution.coordinates)
    like = next(iter(module.parameters()), torch.empty(0))
    hooked, before = _layer(module, layer)
    modes = {part: part.training for part in run.modules()}
    caught: list[Tensor] = []

    def catch(_: nn.Module, given: tuple[Tensor, ...], output: Any = None) -> None:
        caught.append(given[0] if before else output)

    handle = hooked.register_forward_pre_hook(catch) if before else hooked.register_forward_hook(catch)
    found = []
    try:
        run.eval()
        with torch.no_grad():
            for chunk in inputs.to(like).split(_CHUNK):
                caught.clear()
                try:
                    run(chunk)
                except RuntimeError as error:
                    raise ProblemError(
                        f"the module does not accept points of shape {tuple(chunk.shape)}: {error}"
                    ) from error
                if len(caught) != 1 or not isinstance(caught[0], Tensor) or len(caught[0]) != len(chunk):
                    raise ModelError(
                        f"layer {layer!r} ran {len(caught)} times or gave something else than one row a point; choose "
                        "another layer"
                    )
                found.append(caught[0].flatten(1).double().cpu())
    finally:
        handle.remove()
        for part, mode in modes.items():
            part.training = mode
    values = torch.cat(found).numpy() if found else np.empty((0, 0))
    return pd.DataFrame(values, columns=[f"z{position}" for position in range(values.shape[1])], index=index)


def _layer(module: nn.Module, name: str | None) -> tuple[nn.Module, bool]:
    """The submodule to watch, and whether its input (rather than its output) is wanted."""
    named = dict(module.named_modules())
    if name is None:
        linear = [part for part in named.values() if isinstance(part, nn.Linear)]
        if not linear:
            raise ModelError(
                f"the model has no linear layer; name a layer, one of {listed(key for key in named if key)}"
            )
        return linear[-1], True
    if not name or name not in named:
        names = [key for key in named if key]
        raise ModelError(f"the model has no layer {name!r}; its layers are {listed(names)}.{nearest(name, names)}")
    return named[name], False


def _columns(points: Any) -> Mapping[str, Any]:
    if isinstance(points, Table):
        return points.as_mapping()
    if isinstance(points, pd.DataFrame):
        return {str(name): points[name].to_numpy() for name in points.columns}
    if isinstance(points, Mapping):
        return points
    raise ProblemError(
        f"points must be a Table, a DataFrame or a dict with the solution's coordinates; given: {type(points).__name__}"
    )


def _plain_points(points: Any) -> Tensor:
    values = torch.as_tensor(points.to_numpy() if isinstance(points, pd.DataFrame) else points)
    if values.ndim != 2:
        raise ProblemError(f"points for a module must have shape (n, D); given: {tuple(values.shape)}")
    return values

"""Learned embeddings: what a layer of a network says about points, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import pandas as pd
import torch
from torch import nn

from sciml import embedding_files
from sciml.batches import Batches
from sciml.errors import ModelError, ProblemError, listed, nearest
from sciml.meaning import columns_of, meaning_of, model_to_embed_with
from sciml.typing import MultiIndex
from sciml.watching import Watched

_BATCH = 65536
_BATCH_OF_JETS = 4096


@overload
def embed(
    solution: Any,
    points: Any,
    layer: str | nn.Module | None = None,
    *,
    jets: Sequence[str | Sequence[str]] = (),
    batch: int | None = None,
    out: None = None,
) -> pd.DataFrame: ...


@overload
def embed(
    solution: Any,
    points: Any,
    layer: str | nn.Module | None = None,
    *,
    jets: Sequence[str | Sequence[str]] = (),
    batch: int | None = None,
    out: str | Path,
) -> Path: ...


def embed(
    solution: Any,
    points: Any,
    layer: str | nn.Module | None = None,
    *,
    jets: Sequence[str | Sequence[str]] = (),
    batch: int | None = None,
    out: str | Path | None = None,
) -> pd.DataFrame | Path:
    r"""The activations of one layer at points: a learned embedding :math:`z(x) \in \mathbb{R}^k`, and its derivatives.

    What the coordinates of z are depends on the trial function (docs/embeddings.md): ``frame.attrs["meaning"]`` says it in
    a sentence. Solutions in several windows of time, on elements and on grids have no layer that sees every point; they
    are refused, and ``sciml.distil`` makes one network of them.

    Modules are run in evaluation mode, without a graph, batch by batch on their own device, and are afterwards as they
    were. A layer may give more than one number a point in any shape ``(n, ...)``, or several tensors: they are
    flattened, side by side. Of recurrent layers the outputs at every step are taken.

    Args:
        solution: a solution with a network in it, or any ``torch.nn.Module`` that maps ``(n, ...)`` to something.
        points: where. For a solution a ``Table``, a DataFrame or a dict that has its coordinates as columns (others are
            ignored), in the problem's units. For a module an array or tensor ``(n, D)`` or ``(n, ...)``, or one of these
            tables, whose columns it gets in their order. Memory maps and datasets of HDF5 files are read batch by batch.
        layer: the name of a submodule (as in ``named_modules()``), or the submodule, whose output is taken; the model itself
            for its outputs. By default the last hidden layer, which is the input of the last linear layer. For a
            solution names count from ``solution.model``.
        jets: derivatives of every coordinate of z, as ``("x", ("x", "x"))``, in the unit of 1/x, of 1/x². Those of a
            solution are by its coordinates; those of a module by the columns of its points, which are called ``x0``,
            ``x1``, ... where they have no names. They are exact: Taylor mode, or else nested differentiation; of layers
            with kinks, such as ReLU, those beside the kinks.
        batch: the number of points that are run together; by default 65,536, with jets 4,096.
        out: a file, ``.h5`` or ``.parquet``, to write to batch by batch, so that the embedding need not fit into memory.

    Returns:
        A DataFrame with columns ``z0 ... z{k-1}`` in the network's own units, then ``z0_x ...`` for each of ``jets``, and
        the index of ``points`` if it has one; or, with ``out``, the path of the file.

    Raises:
        ModelError: no such layer, no linear layer to find the last hidden one by, a solution without one network, or a layer
            that ran more than once.
        ProblemError: the points lack a coordinate, or have the wrong shape.
        FileError: ``out`` cannot be written, or has another ending.
        MissingExtraError: Parquet without ``pyarrow``.

    Example:
        >>> import torch, sciml
        >>> model = sciml.MLP(8, 2, inputs=1, outputs=1)
        >>> sciml.embed(model, torch.linspace(0, 1, 3)[:, None], jets=["x0"]).columns.tolist()
        ['z0', 'z1', 'z0_x0', 'z1_x0']
    """
    if not isinstance(solution, nn.Module) and not hasattr(solution, "trial"):
        raise ModelError(f"embed needs a solution or a torch.nn.Module; given: {type(solution).__name__}")
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ProblemError(f"batch must be a positive whole number of points; given: {batch!r}")
    if out is not None:
        embedding_files.kind_of(out)
    if isinstance(solution, nn.Module):
        module, run, coordinates = solution, solution, None
    else:
        module, run = model_to_embed_with(solution.trial, solution.engine), solution.trial
        coordinates = solution.coordinates
    watched = Watched(run, module, layer)
    batches = Batches.of(points, coordinates)
    plan = checked_jets(jets, batches.names)
    attributes = {"meaning": meaning_of(run, module, layer, watched.layer), "model": type(module).__name__}
    frames = _frames(watched, batches, plan, batch or (_BATCH_OF_JETS if plan else _BATCH), attributes)
    if out is not None:
        embedding_files.write(Path(out), frames, batches.count)
        return Path(out)
    found = list(frames)
    whole = pd.concat(found) if len(found) > 1 else found[0]
    whole.attrs.update(attributes)
    return whole


def _frames(
    watched: Watched, batches: Batches, plan: Sequence[MultiIndex], size: int, attributes: dict[str, str]
) -> Iterator[pd.DataFrame]:
    """The embedding of batch after batch."""
    with watched.still():
        for start, read in batches(size):
            given = watched.like(read)
            if plan:
                parts = watched.jets(given, batches.names, plan)
            else:
                with torch.no_grad():
                    parts = [watched.values(given)]
            values = torch.cat([each.detach().double().cpu() for each in parts], dim=1).numpy()
            stop = start + len(values)
            index = pd.RangeIndex(start, stop) if batches.index is None else batches.index[start:stop]
            frame = pd.DataFrame(values, columns=columns_of(parts[0].shape[1], plan), index=index)
            frame.attrs.update(attributes)
            yield frame


def checked_jets(jets: object, names: Sequence[str]) -> list[MultiIndex]:
    """The derivatives asked for, as tuples of coordinates, each once.

    Args:
        jets: a coordinate, or several coordinates and tuples of them.
        names: of the coordinates.

    Raises:
        ProblemError: something else was given.

    Example:
        >>> checked_jets(["x", ("x", "t")], ["x", "t"])
        [('x',), ('x', 't')]
    """
    given = [jets] if isinstance(jets, str) else list(jets) if isinstance(jets, Iterable) else [()]
    plan: list[tuple[Any, ...]] = []
    for each in given:
        plan.append(tuple(each) if isinstance(each, Iterable) and not isinstance(each, str) else (each,))
    for index in plan:
        strange = [name for name in index if name not in names]
        if strange or not index:
            hint = nearest(strange[0], names) if strange and isinstance(strange[0], str) else ""
            raise ProblemError(
                f"jets are coordinates or tuples of them, of {listed(names)}, as in jets=('x', ('x', 'x')); given: {jets!r}."
                f"{hint}"
            )
    return list(dict.fromkeys(plan))

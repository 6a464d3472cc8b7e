"""Learned embeddings: activations of a layer of a network at points, and their derivatives, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml._text import listed, nearest, whole
from sciml.data import write as embedding_files
from sciml.data.table import Table
from sciml.errors import ModelError, ProblemError
from sciml.geometry.coordinates import points_from
from sciml.models import (
    MLP,
    Constrained,
    CornerSingular,
    DeepFeatures,
    GridFunction,
    PeriodicInputs,
    PiecewisePolynomial,
    RandomFeatures,
    Spectral,
    Spline,
    Tiles,
    Windowed,
    model_of,
    scaled_of,
)
from sciml.models.layer_outputs import LayerOutput
from sciml.typing import MultiIndex


@dataclass(frozen=True)
class PointBatches:
    """Points in batches: count, column names, index or None, ``read(first, stop)`` to ``(m, ...)`` on the CPU."""

    count: int
    names: tuple[str, ...]
    index: pd.Index | None
    read: Callable[[int, int], Tensor]

    def __call__(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """The number of its first point and the points of batch after batch; one batch even if there is no point."""
        for start in range(0, max(self.count, 1), size):
            yield start, self.read(start, min(start + size, self.count))

    @classmethod
    def of(cls, points: Any, coordinates: Sequence[str] | None) -> PointBatches:
        """Points of a table (the columns ``coordinates`` if given), or of anything with a shape and slices."""
        columns = points
        if isinstance(points, Table):
            columns = points.as_mapping()
        elif isinstance(points, pd.DataFrame):
            columns = {str(name): points[name].to_numpy() for name in points.columns}
        if not isinstance(columns, Mapping):
            if coordinates is None:
                return cls._of_array(points)
            raise ProblemError(
                f"points must be a Table, a DataFrame or a dict with the solution's coordinates; given: {type(points).__name__}"
            )
        names = tuple(columns) if coordinates is None else tuple(coordinates)
        missing = [name for name in names if name not in columns]
        if missing:
            raise ProblemError(f"the points lack the coordinate {listed(missing)}; given: {listed(columns)}")
        if not names:
            raise ProblemError("the points have no column")
        chosen = {name: columns[name] for name in names}
        shapes = {tuple(getattr(values, "shape", ())) for values in chosen.values()}
        if len(shapes) > 1 or len(next(iter(shapes))) != 1:
            # Only columns of one length can be read where they lie.
            chosen = dict(zip(names, points_from(chosen, names)[0].T, strict=True))

        def read(start: int, stop: int) -> Tensor:
            return points_from({name: values[start:stop] for name, values in chosen.items()}, names)[0]

        index = points.index if isinstance(points, pd.DataFrame) else None
        return cls(len(chosen[names[0]]), names, index, read)

    @classmethod
    def _of_array(cls, points: Any) -> PointBatches:
        if not hasattr(points, "shape") or not hasattr(points, "__getitem__"):
            try:
                points = np.asarray(points, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ProblemError(f"points for a module must be an array of numbers (n, D): {error}") from error
        if len(points.shape) < 2:
            raise ProblemError(f"points for a module must have shape (n, D) or (n, ...); given: {tuple(points.shape)}")
        names = tuple(f"x{column}" for column in range(points.shape[1])) if len(points.shape) == 2 else ()

        def read(start: int, stop: int) -> Tensor:
            part = points[start:stop]
            return part.detach() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))

        return cls(int(points.shape[0]), names, None, read)


_REMEDY = (
    "distil it into one network, sciml.distil(solution, sciml.MLP(20, 20)), which says how far it is from this solution, and "
    "embed with that"
)


def model_to_embed_with(trial: nn.Module, engine: str) -> nn.Module:
    """The one model inside a solution's trial function; a ModelError with a remedy where ``engine`` has made none."""
    model = model_of(trial)
    if isinstance(model, Windowed) and len(model.windows) == 1:
        trial = model.windows[0]
        model = model_of(trial)
    inner = [model_of(each) for each in model.windows] if isinstance(model, Windowed) else [model]
    several = f"{len(inner)} windows of time"
    if any(isinstance(each, PiecewisePolynomial | Spline | Tiles) for each in inner):
        raise ModelError(
            f"this solution is made of {f'{several} on elements: ' if len(inner) > 1 else ''}piecewise polynomials, whose "
            f"coefficients belong to one piece each, so there are no coordinates that mean the same everywhere; {_REMEDY}"
        )
    if isinstance(model, Windowed):
        kinds = " and ".join(sorted({type(each).__name__ for each in inner}))
        raise ModelError(
            f"this solution is made of {several}, each with a model of its own ({kinds}), so there is no one layer to embed "
            f"with; {_REMEDY}"
        )
    if model is None:
        held = {
            GridFunction: "values at the nodes of a grid",
            PiecewisePolynomial: "values at times, joined by polynomials",
        }
        what = held.get(type(trial), f"a {type(trial).__name__}")
        raise ModelError(
            f"this solution comes from {engine} and has no network: it holds {what}, so nothing was learned that could be "
            f"embedded with; {_REMEDY}"
        )
    return model


def meaning_of(run: nn.Module, module: nn.Module, layer: str | nn.Module | None, watched: nn.Module) -> str:
    """One sentence on an embedding's coordinates: ``watched`` is what ``layer`` names, or the default for None."""
    kind = type(module).__name__
    if watched is module:
        said = f"the outputs of the {kind}"
    elif layer is not None:
        where = f"{layer!r} " if isinstance(layer, str) else ""
        said = f"the outputs of layer {where}({type(watched).__name__}) of the {kind}"
        if isinstance(watched, nn.RNNBase):
            said += ", step after step"
    else:
        said = _default(module)
    run = run.windows[0] if isinstance(run, Windowed) else run
    inner = scaled_of(run)
    if inner is not None:
        said += ", as functions of the coordinates scaled to [-1, 1]"
        said += ", periodic ones behind cosines and sines" if isinstance(inner.model, PeriodicInputs) else ""
    if isinstance(run, Constrained):
        said += (
            "; the solution is g + φ N with N affine in the model's last layer, and g and φ, which hold conditions exactly, "
            "are no part of the embedding"
        )
    return said


def _default(module: nn.Module) -> str:
    """What the last linear layer is given."""
    if isinstance(module, DeepFeatures):
        return (
            f"the first {module.features}: random sines of the trained network's last hidden layer; the rest: that layer "
            "itself; the fields are affine in them"
        )
    if isinstance(module, MLP):
        return f"the learned outputs of the last of {len(module.hidden)} hidden layers; the fields are affine in them"
    if isinstance(module, RandomFeatures):
        return "the random features sin(ω·x + b) themselves, which are drawn and not learned; the fields are linear in them"
    if isinstance(module, Spectral):
        return (
            "the products of Chebyshev polynomials (of waves along periodic coordinates) that model.basis.products lists, "
            "which are fixed and not learned; the fields are linear in them"
        )
    if isinstance(module, CornerSingular):
        return (
            f"the first {module.smooth_width}: smooth functions (random features or products of polynomials); the rest: "
            "functions that are singular at the corners; all are fixed and not learned, and the fields are linear in them"
        )
    return f"what the last linear layer of the {type(module).__name__} is given"


_BATCH, _BATCH_OF_JETS = 65536, 4096

Layer: TypeAlias = str | nn.Module | None
Jets: TypeAlias = Sequence[str | Sequence[str]]


@overload
def embed(
    solution: Any, points: Any, layer: Layer = None, *, jets: Jets = (), batch: int | None = None, out: None = None
) -> pd.DataFrame: ...


@overload
def embed(
    solution: Any, points: Any, layer: Layer = None, *, jets: Jets = (), batch: int | None = None, out: str | Path
) -> Path: ...


def embed(
    solution: Any,
    points: Any,
    layer: Layer = None,
    *,
    jets: Jets = (),
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
        solution: a solution with a network in it, or any ``torch.nn.Module`` that maps ``(n, ...)`` to something; or a
            surrogate of ``sciml.operators``, whose inputs are embedded (``Surrogate.embedded``).
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
    if hasattr(solution, "embedded"):
        return solution.embedded(points, out)
    if not isinstance(solution, nn.Module) and not hasattr(solution, "trial"):
        raise ModelError(f"embed needs a solution or a torch.nn.Module; given: {type(solution).__name__}")
    if batch is not None:
        whole("batch", batch, 1, ProblemError)
    if out is not None:
        embedding_files.kind_of(out)
    if isinstance(solution, nn.Module):
        module, run, coordinates = solution, solution, None
    else:
        module, run = model_to_embed_with(solution.trial, solution.engine), solution.trial
        coordinates = solution.coordinates
    watched = LayerOutput(run, module, layer)
    batches = PointBatches.of(points, coordinates)
    plan = checked_jets(jets, batches.names)
    attributes = {"meaning": meaning_of(run, module, layer, watched.layer), "model": type(module).__name__}
    frames = _frames(watched, batches, plan, batch or (_BATCH_OF_JETS if plan else _BATCH), attributes)
    if out is not None:
        embedding_files.write(Path(out), frames, batches.count)
        return Path(out)
    found = list(frames)
    joined = pd.concat(found) if len(found) > 1 else found[0]
    joined.attrs.update(attributes)
    return joined


def _frames(
    watched: LayerOutput, batches: PointBatches, plan: Sequence[MultiIndex], size: int, attributes: dict[str, str]
) -> Iterator[pd.DataFrame]:
    """The embedding of batch after batch."""
    suffixes = ["", *("_" + "_".join(index) for index in plan)]
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
            columns = [f"z{number}{suffix}" for suffix in suffixes for number in range(parts[0].shape[1])]
            frame = pd.DataFrame(values, columns=columns, index=index)
            frame.attrs.update(attributes)
            yield frame


def checked_jets(jets: object, names: Sequence[str]) -> list[MultiIndex]:
    """The derivatives asked for, as tuples of coordinates, each once."""
    given = [jets] if isinstance(jets, str) else list(jets) if isinstance(jets, Iterable) else [()]
    plan = [tuple(each) if isinstance(each, Iterable) and not isinstance(each, str) else (each,) for each in given]
    for index in plan:
        strange = [name for name in index if name not in names]
        if strange or not index:
            hint = nearest(strange[0], names) if strange and isinstance(strange[0], str) else ""
            raise ProblemError(
                f"jets are coordinates or tuples of them, of {listed(names)}, as in jets=('x', ('x', 'x')); given: {jets!r}."
                f"{hint}"
            )
    return list(dict.fromkeys(plan))

"""Readers of operator-learning data: pairs in HDF5, NetCDF, NumPy, torch and MATLAB files, and published collections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from sciml._text import listed, nearest
from sciml.data.arrays import checked_path
from sciml.data.hdf5_file import DatasetInfo, OpenFiles, locate, read_part
from sciml.data.hdf5_grid import ColumnRequest
from sciml.data.layouts import Layout, recognised
from sciml.data.mat import read_arrays
from sciml.data.memory import free_bytes
from sciml.data.sandbox import FOREIGN, refusals
from sciml.errors import DataError
from sciml.operators.family import Axes, Family
from sciml.operators.pairs import Pairs
from sciml.typing import Array

_SHARE = 0.25
Names = str | Sequence[str] | Mapping[str, str]


def read(
    path: str | Path,
    *,
    inputs: Names | None = None,
    outputs: Names | None = None,
    grid: Mapping[str, Any] | None = None,
    input_grid: Mapping[str, Mapping[str, Any]] | None = None,
    periodic: Sequence[str] = (),
    family: Family | None = None,
    lazy: bool | None = None,
) -> Pairs:
    """Read pairs of input and output functions: arrays ``(samples, points...)`` as others publish them.

    Files that ``Pairs.save`` wrote, and those of PDEBench and The Well, need no more than their path: of a simulation in time
    the fields at the first time are the inputs, of PDEBench's Darcy flow the coefficient ``nu``.

    Args:
        path: HDF5, NetCDF (4), ``.npz``, ``.pt`` (a dict of tensors) or ``.mat``.
        inputs: the arrays that are inputs: a name, several, or ``{our name: name in the file}``.
        outputs: those that are outputs.
        grid: the coordinates of the outputs in the order of their dimensions, each the name of an array, an array, or a pair
            ``(low, high)`` of evenly spaced nodes: ``{"x": "x"}``, ``{"x": (0, 1), "y": (0, 1)}``.
        input_grid: likewise for inputs that have other coordinates, by their names.
        periodic: the coordinates that are periodic.
        family: the problems that the pairs are from, for ``correct``.
        lazy: whether arrays stay in an HDF5 file and are read when they are used; by default those beyond a quarter of what is
            free.

    Raises:
        DataError: the file cannot be read, does not hold what was named, or shapes do not belong together.

    Example:
        >>> import pathlib, tempfile, numpy as np
        >>> from sciml import operators
        >>> path, x = pathlib.Path(tempfile.mkdtemp()) / "pairs.npz", np.linspace(0, 1, 16)
        >>> a = np.random.default_rng(0).normal(size=(20, 1))
        >>> np.savez(path, a=a * x, u=a * x**2, x=x)
        >>> operators.read(path, inputs="a", outputs="u", grid={"x": "x"})
        20 pairs: a to u on 16 (x)
    """
    path = checked_path(path, "operators.read")
    wanted = {"inputs": _names(inputs), "outputs": _names(outputs)}
    kind = path.suffix.lower()
    if kind == ".mat" or (kind in (".npz", ".pt") and not h5py.is_hdf5(path)):
        arrays = _arrays(path, kind)
        return _placed(path, arrays, wanted, grid, input_grid, periodic, family)
    with refusals(path, "an HDF5 file"):
        handles = OpenFiles()
        file = handles[path]
        if str(file.attrs.get("format", "")) == "sciml pairs":
            return _own(path, handles, family, lazy)
        request = ColumnRequest(handles, path, {}, {}, {})
        layout = recognised(request) if inputs is None and outputs is None else None
        if layout is not None:
            return _published(path, handles, layout, periodic, family, lazy)
        names = [each for part in wanted.values() for each in part.values()]
        names += [
            each for part in (grid or {}, *(input_grid or {}).values()) for each in part.values() if isinstance(each, str)
        ]
        held = {}
        for name in names:
            if name not in file:
                raise DataError(f"{path} has no array {name!r}; it has {listed(list(file))}.{nearest(name, list(file))}")
            functions = {*wanted["inputs"].values(), *wanted["outputs"].values()}
            held[name] = _stored(handles, path, name, lazy if name in functions else False)
        return _placed(path, held, wanted, grid, input_grid, periodic, family)


@dataclass(frozen=True)
class Stored:
    """An array in an HDF5 file: the samples are its first dimension, and only those asked for are read."""

    handles: OpenFiles
    info: DatasetInfo
    inner: tuple[Any, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, with what ``inner`` takes of a sample."""
        return np.broadcast_to(np.empty(()), self.info.shape)[(slice(None), *self.inner)].shape

    def __len__(self) -> int:
        return self.info.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        return read_part(self.handles, self.info, (rows, *self.inner))


def _stored(handles: OpenFiles, path: Path, name: str, lazy: bool | None) -> Any:
    """An array, in memory or in its file."""
    return _read({name: Stored(handles, locate(handles, path, name))}, lazy)[name]


def _own(path: Path, handles: OpenFiles, family: Family | None, lazy: bool | None) -> Pairs:
    file = handles[path]

    def texts(thing: Any, name: str) -> list[str]:
        return [each.decode() if isinstance(each, bytes) else str(each) for each in thing.attrs[name]]

    try:
        axes = {name: _stored(handles, path, f"axes/{name}", False) for name in texts(file["axes"], "order")}
        input_axes: dict[str, Axes] = {name: {} for name in texts(file, "names")}
        for name in file.get("input_axes", {}):
            order = texts(file[f"input_axes/{name}"], "order")
            input_axes[name] = {key: _stored(handles, path, f"input_axes/{name}/{key}", False) for key in order}
        return Pairs(
            {name: _stored(handles, path, f"inputs/{name}", lazy) for name in texts(file, "names")},
            {name: _stored(handles, path, f"outputs/{name}", lazy) for name in texts(file, "fields")},
            axes,
            input_axes,
            points=_stored(handles, path, "points", False) if "points" in file else None,
            periodic=tuple(texts(file, "periodic")),
            family=family,
        )
    except (*FOREIGN, KeyError) as error:
        raise DataError(f"{path} is no complete file of pairs: {type(error).__name__}: {error}") from error


def _published(
    path: Path, handles: OpenFiles, layout: Layout, periodic: Sequence[str], family: Family | None, lazy: bool | None
) -> Pairs:
    """Pairs of PDEBench or The Well: fields at the first time lead to those of all later ones."""
    variables = layout.variables
    if any("{sample}" in variables[name].dataset for name in layout.fields):
        raise DataError(f"{path} keeps every sample in a group of its own: copy them into arrays (samples, points...)")
    axes = {name: np.asarray(_stored(handles, path, variables[name].dataset, False), float) for name in layout.coordinates}
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    input_axes: dict[str, Axes] = {}
    space = {name: nodes for name, nodes in axes.items() if name != "t"}
    fields = list(layout.fields)
    if "t" not in axes and "nu" in fields:
        for name in fields:
            info = locate(handles, path, variables[name].dataset)
            inner = (0,) if "component" in variables[name].axes else ()
            (inputs if name == "nu" else outputs)[name] = Stored(handles, info, inner)
        input_axes["nu"] = space
        return Pairs(_read(inputs, lazy), _read(outputs, lazy), space, input_axes, periodic=tuple(periodic), family=family)
    for name in fields:
        variable = variables[name]
        info = locate(handles, path, variable.dataset)
        column = variable.axes.index("t") - 1
        steps = info.shape[column + 1]
        whole = tuple(slice(None) for _ in range(column))
        components = variable.components or ("",)
        if variable.axes[-1] == "component" and variable.components:
            for number, part in enumerate(components):
                own = f"{name}_{part}"
                rest = tuple(slice(None) for _ in variable.axes[column + 2 : -1])
                inputs[f"initial.{own}"] = Stored(handles, info, (*whole, 0, *rest, number))
                outputs[own] = Stored(handles, info, (*whole, slice(1, None), *rest, number))
        else:
            inputs[f"initial.{name}"] = Stored(handles, info, (*whole, 0))
            outputs[name] = Stored(handles, info, (*whole, slice(1, None)))
    times = np.asarray(axes["t"])[1:steps]
    axes = {name: times if name == "t" else nodes for name, nodes in axes.items()}
    input_axes = dict.fromkeys(inputs, space)
    return Pairs(_read(inputs, lazy), _read(outputs, lazy), axes, input_axes, periodic=tuple(periodic), family=family)


def _read(arrays: Mapping[str, Stored], lazy: bool | None) -> dict[str, Any]:
    """Arrays, in memory or in their file: there if all together are large, unless ``lazy`` says it."""
    free = _SHARE * (free_bytes() or 2**33)
    stay = lazy if lazy is not None else 8 * sum(math.prod(each.shape) for each in arrays.values()) > free
    return {name: each if stay else np.asarray(each[slice(None)]) for name, each in arrays.items()}


def _arrays(path: Path, kind: str) -> dict[str, Array]:
    """All arrays of a file that is no HDF5."""
    if kind == ".mat":
        return read_arrays(path)
    try:
        if kind == ".npz":
            with np.load(path, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
        content = torch.load(path, weights_only=True, map_location="cpu")
    except (*FOREIGN, RuntimeError, ValueError) as error:
        raise DataError(f"{path} cannot be read as arrays: {type(error).__name__}: {str(error)[:200]}") from error
    except Exception as error:  # pickles that ask for more than tensors
        raise DataError(f"{path} holds more than tensors and was refused: {str(error)[:200]}") from error
    if not isinstance(content, Mapping):
        raise DataError(f"{path} must hold a dict of tensors; it holds a {type(content).__name__}")
    return {str(name): each.numpy() for name, each in content.items() if isinstance(each, torch.Tensor)}


def _names(given: Names | None) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    return {name: name for name in ([given] if isinstance(given, str) else given)}


def _placed(
    path: Path,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, Mapping[str, str]],
    grid: Mapping[str, Any] | None,
    input_grid: Mapping[str, Mapping[str, Any]] | None,
    periodic: Sequence[str],
    family: Family | None,
) -> Pairs:
    """Pairs of arrays, with their grids."""
    for role, names in wanted.items():
        if not names:
            raise DataError(f"{path}: say which arrays are {role}, as in {role}='a'; it has {listed(arrays)}")
        for name in names.values():
            if name not in arrays:
                raise DataError(f"{path} has no array {name!r}; it has {listed(arrays)}.{nearest(name, arrays)}")
    outputs = {name: arrays[theirs] for name, theirs in wanted["outputs"].items()}
    inputs = {name: arrays[theirs] for name, theirs in wanted["inputs"].items()}
    shape = next(iter(outputs.values())).shape[1:]
    axes = _axes(path, arrays, grid, shape, "grid")
    input_axes = {}
    for name, values in inputs.items():
        own = (input_grid or {}).get(name)
        if own is None and values.shape[1:] == shape:
            input_axes[name] = axes
        elif own is None and len(values.shape) == 1:
            input_axes[name] = {}
        else:
            input_axes[name] = _axes(path, arrays, own, values.shape[1:], f"input_grid of {name!r}")
    return Pairs(inputs, outputs, axes, input_axes, periodic=tuple(periodic), family=family)


def _axes(path: Path, arrays: Mapping[str, Any], grid: Mapping[str, Any] | None, shape: Sequence[int], what: str) -> Axes:
    """The nodes of a grid, each given as the name of an array, an array, or a pair of ends."""
    if grid is None or len(grid) != len(shape):
        given = "nothing" if grid is None else listed(grid)
        raise DataError(f"{path}: {what} must name the {len(shape)} coordinates of arrays {tuple(shape)}; given: {given}")
    found = {}
    for (name, nodes), length in zip(grid.items(), shape, strict=True):
        if isinstance(nodes, str):
            if nodes not in arrays:
                raise DataError(f"{path} has no array {nodes!r} for {what}; it has {listed(arrays)}")
            nodes = np.asarray(arrays[nodes][:]).ravel()
        elif isinstance(nodes, tuple) and len(nodes) == 2:
            nodes = np.linspace(float(nodes[0]), float(nodes[1]), length)
        found[name] = np.asarray(nodes, dtype=float)
        if found[name].shape != (length,):
            raise DataError(f"{path}: {what} has {found[name].size} nodes of {name!r}, and the arrays {length} along it")
    return found

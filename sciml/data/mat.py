"""Reading MATLAB's .mat files of every version."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy

from sciml._text import sequences
from sciml.data.arrays import checked_path, finished, names_of, wanted_names
from sciml.data.hdf5_file import OpenFiles, find, locate, read_part, text
from sciml.data.hdf5_grid import as_columns
from sciml.data.memory import check_memory
from sciml.data.provenance import stamp
from sciml.data.sandbox import check_safe, refusals
from sciml.data.table import Table
from sciml.data.units import Units
from sciml.errors import DataError
from sciml.typing import Array

# Deflate packs a byte into no less than a thousandth.
_MOST_PACKED = 1100
# Classes of variables that are read; structures and cells may be large, and are no columns.
_NUMBERS = {"double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def read_mat(
    path: str | Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    axes: Mapping[str, Sequence[str]] | None = None,
    split: Mapping[str, Sequence[str]] | None = None,
    units: Units | None = None,
    missing: str = "error",
    memory: int | None = None,
) -> Table:
    """Read matrices of a MATLAB file, version 4 to 7.3, as columns of a table.

    Rows and columns of numbers are columns of the table. A matrix lies on the product of its axes' coordinates, its first
    index the first axis, as in MATLAB.

    Args:
        path: the file.
        columns: ``{name in the problem: variable}``, or names; by default every variable of numbers.
        axes: for each matrix the coordinates of its axes, in order: ``{"u": ("t", "x")}``.
        split: ``{"V": ("u", "v")}``: the columns that the last axis of a matrix becomes, or the real and imaginary part.
        units, missing, memory: as for ``read_csv``; what is missing is NaN.

    Returns:
        A table of float64 columns, coordinates first.

    Raises:
        DataError: no such file, damaged, another format; no such variable; texts, structures, cells, truth values; axes that
            do not fit; more than memory holds.
        MissingExtraError: units to convert without pint.

    Example:
        >>> import pathlib, tempfile, scipy.io, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "rod.mat"
        >>> scipy.io.savemat(file, {"t": [0.0, 1.0], "x": [0.0, 0.5, 1.0], "T": [[20, 30, 20], [20, 25, 20]]})
        >>> sciml.read_mat(file, axes={"T": ("t", "x")})["T"].tolist()
        [20.0, 30.0, 20.0, 20.0, 25.0, 20.0]
    """
    options = {name: value for name, value in locals().items() if name != "path"}
    path = checked_path(path, "read_mat")
    along, parts = sequences("axes", axes, "{'u': ('t', 'x')}"), sequences("split", split, "{'V': ('u', 'v')}")
    names = names_of(columns)
    asked = None if names is None else set(names.values())
    with refusals(path, "a .mat file", scipy.io.matlab.MatReadError):
        before = stamp(path)
        check_memory(path, 2 * before[0], memory, "save fewer variables in it")
        found = _new(path, asked, memory) if h5py.is_hdf5(path) else _old(path, asked, memory)
    reasons = {name: reason for name, value in found.items() if (reason := _unusable(value)) is not None}
    arrays = {}
    for ours, theirs in wanted_names(path, columns, list(found), [name for name in found if name not in reasons]).items():
        if theirs in reasons:
            raise DataError(f"{path}: {theirs!r} {reasons[theirs]}")
        components = ours in parts and found[theirs].dtype.kind != "c"
        arrays[ours] = _squeezed(found[theirs], len(along[ours]) + components if ours in along else None)
    values = as_columns(path, arrays, {}, along, parts, memory)
    return finished(path, "read_mat", values, {}, options, before, ["scipy", "h5py"])


def read_arrays(path: Path) -> dict[str, Any]:
    """All variables of numbers, as they lie in the file, by name."""
    with refusals(path, "a .mat file", scipy.io.matlab.MatReadError):
        check_memory(path, 2 * stamp(path)[0], None, "save fewer variables in it")
        found = _new(path, None, None) if h5py.is_hdf5(path) else _old(path, None, None)
    return {name: value for name, value in found.items() if _unusable(value) is None}


def _old(path: Path, asked: set[str] | None, memory: int | None) -> dict[str, Any]:
    """The variables of versions 4 to 7.2; those that are not asked for are named and not read."""
    check_safe(path, ())
    declared = scipy.io.whosmat(str(path), appendmat=False)
    shapes = {name: shape for name, shape, _ in declared}
    found = {name: "not read" if kind in _NUMBERS else f"of class {kind}" for name, _, kind in declared}
    names = [name for name, _, kind in declared if kind in _NUMBERS and (asked is None or name in asked)]
    packed = 1 if scipy.io.matlab.matfile_version(str(path), appendmat=False)[0] == 0 else _MOST_PACKED
    for name in names:
        # SciPy would read it from beyond the end of the file.
        if min(shapes[name], default=0) < 0 or math.prod(shapes[name]) > packed * path.stat().st_size:
            raise DataError(
                f"{path} is damaged: it declares {' x '.join(map(str, shapes[name]))} values of {name!r}, more than it can "
                "hold; get it again"
            )
    check_memory(path, 2 * 8 * sum(math.prod(shapes[name]) for name in names), memory, "name fewer columns")
    check_safe(path, names)
    content = scipy.io.loadmat(str(path), appendmat=False, variable_names=names)
    return found | {name: content[name] for name in names if name in content}


def _new(path: Path, asked: set[str] | None, memory: int | None) -> dict[str, Any]:
    """The variables of version 7.3, which is HDF5 with axes in the opposite order."""
    with OpenFiles() as handles:
        return {
            name: "not read" if asked is not None and name not in asked else _matrix(handles, path, name, memory)
            for name in handles[path]
            if not name.startswith("#")
        }


def _matrix(handles: OpenFiles, path: Path, name: str, memory: int | None) -> Any:
    """A variable of version 7.3, or what it is instead of numbers."""
    check_safe(path, (name,))
    if not isinstance(handles[path].get(name, getlink=True), h5py.HardLink) or isinstance(handles[path][name], h5py.Group):
        return "a structure, an object or a link"
    dataset = find(handles, path, name)
    kind = text(dataset.attrs.get("MATLAB_class", b"double"))
    if "MATLAB_empty" in dataset.attrs:
        return "empty"
    if kind in ("char", "cell", "logical", "function_handle"):
        return f"of class {kind}"
    if dataset.dtype.names == ("real", "imag"):
        return (dataset["real"] + 1j * dataset["imag"]).T
    located = locate(handles, path, name)
    check_memory(path, 2 * 8 * math.prod(located.shape), memory, "name fewer columns")
    return read_part(handles, located).T


def _unusable(value: Any) -> str | None:
    if isinstance(value, str):
        return f"is {value}, not numbers; store numbers"
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iufc":
        return f"holds {getattr(value, 'dtype', type(value).__name__)}, not numbers; store numbers"
    return "is empty; leave it out" if value.size == 0 else None


def _squeezed(array: Array, axes: int | None) -> Array:
    """Without the axes of length one that MATLAB adds, with those that it drops at the end; one axis at least is left."""
    if axes is not None and array.ndim <= axes:
        return array.reshape(*array.shape, *(1,) * (axes - array.ndim))
    squeezed = np.squeeze(array)
    return squeezed.reshape(-1) if squeezed.ndim == 0 else squeezed

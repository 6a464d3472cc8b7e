"""Reading files of any supported format, which their content decides."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py

from sciml._text import among, listed
from sciml.data.arrays import checked_path
from sciml.data.csv import read_csv
from sciml.data.hdf5 import read_hdf5
from sciml.data.lazy import LazyTable
from sciml.data.mat import read_mat
from sciml.data.netcdf import read_netcdf
from sciml.data.parquet import read_parquet
from sciml.data.table import Table
from sciml.errors import DataError

_READERS: dict[str, Callable[..., Table | LazyTable]] = {
    "CSV": read_csv,
    "HDF5": read_hdf5,
    "MATLAB": read_mat,
    "NetCDF": read_netcdf,
    "Parquet": read_parquet,
}
_SUFFIXES = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".txt", ".dat"), "CSV"),
    **dict.fromkeys((".h5", ".hdf5", ".hdf", ".he5"), "HDF5"),
    ".mat": "MATLAB",
    **dict.fromkeys((".nc", ".nc3", ".nc4", ".cdf"), "NetCDF"),
    **dict.fromkeys((".parquet", ".pq"), "Parquet"),
}
_SIGNATURES = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"CDF\x01": "NetCDF",
    b"CDF\x02": "NetCDF",
    b"CDF\x05": "NetCDF",
    b"PAR1": "Parquet",
    b"MATLAB ": "MATLAB",
    b"\x1f\x8b": "CSV",
}
_OTHERS = {
    b"PK\x03\x04": "a zip archive (or a spreadsheet); unpack it, or save it as CSV",
    b"BZh": "packed by bzip2; unpack it",
    b"\xfd7zXZ\x00": "packed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
    b"\x93NUMPY": "NumPy's format; load it with numpy.load and make a sciml.Table of it",
    b"SQLite format 3": "a database; read it with pandas and make a sciml.Table of it",
}
# The first page of a text; a NUL in it makes it binary, unless it is UTF-16.
_PAGE = 4096


def read(path: str | Path, **options: Any) -> Table | LazyTable:
    """Read a table from a file of any format that can be read: CSV (packed by gzip or not), HDF5, MATLAB, NetCDF, Parquet.

    Its content decides; the name only where the content leaves it open.

    Args:
        path: the file.
        options: what the format's own reader takes: ``read_csv``, ``read_hdf5``, ``read_mat``, ``read_netcdf``,
            ``read_parquet``.

    Returns:
        A table of float64 columns; of HDF5 a ``LazyTable``, if ``lazy`` asks for one.

    Raises:
        DataError: no such file; content of another format than the name says, or of none that can be read; an option that
            the format's reader does not have; and what that reader raises.

    Example:
        >>> import pathlib, tempfile, sciml
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> table = sciml.Table({"t": [0.0, 1.0], "u": [0.1, 0.2]})
        >>> for name in ("run.csv", "run.h5", "run.mat"):
        ...     table.save(folder / name)
        ...     print(sciml.read(folder / name)["u"].tolist())
        [0.1, 0.2]
        [0.1, 0.2]
        [0.1, 0.2]
    """
    path = checked_path(path, "read")
    name = next((kind for suffix, kind in _SUFFIXES.items() if path.name.lower().endswith(suffix)), None)
    content = _content(path)
    # NetCDF 4 and MATLAB 7.3 are HDF5 files.
    if content == "HDF5" and name in ("NetCDF", "MATLAB"):
        content = name
    # MATLAB's version 4 has no signature.
    if content is None and name == "MATLAB":
        content = name
    if content is None:
        raise DataError(
            f"{path} is in no format that can be read ({listed(_READERS)})"
            + (f", though its name says {name}: it is damaged, or misnamed" if name else "")
        )
    if name is not None and name != content:
        raise DataError(
            f"{path} is {content} by its content and {name} by its name; rename it, or call sciml.{_READERS[content].__name__}"
        )
    reader = _READERS[content]
    known = [each for each in inspect.signature(reader).parameters if each != "path"]
    for option in options:
        if option not in known:
            raise DataError(f"{path} is {content}: {reader.__name__} has no option {option!r}, but {among(option, known)}")
    return reader(path, **options)


def _content(path: Path) -> str | None:
    """The format that a file's first bytes tell; None if it is binary and unknown."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder; give the path of a file")
        with path.open("rb") as file:
            page = file.read(_PAGE)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not page:
        raise DataError(f"{path} is empty (0 bytes); get it again")
    for signature, what in _OTHERS.items():
        if page.startswith(signature):
            raise DataError(f"{path} is {what}")
    for signature, kind in _SIGNATURES.items():
        if page.startswith(signature):
            return kind
    # A block of the user's may stand before the signature.
    if h5py.is_hdf5(path):
        return "HDF5"
    return "CSV" if b"\0" not in page or page.startswith((b"\xff\xfe", b"\xfe\xff")) else None

"""Reading NetCDF files, with their fill values and scale factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sciml._text import sequences
from sciml.data.arrays import as_columns, wanted_names
from sciml.data.hdf5 import checked_path
from sciml.data.hdf5_file import OpenFiles, check_own
from sciml.data.memory import check_memory
from sciml.data.provenance import provenance, stamp
from sciml.data.sandbox import check_safe, refusals
from sciml.data.table import Table
from sciml.data.units import Units, check_units, conversions
from sciml.errors import DataError, MissingExtraError

_HDF5 = b"\x89HDF"

_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


def read_netcdf(
    path: str | Path,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    split: Mapping[str, Sequence[str]] | None = None,
    units: Units | None = None,
    missing: str = "error",
    memory: int | None = None,
) -> Table:
    """Read variables of a NetCDF file, version 3 or 4, as columns of a table.

    A variable of several dimensions lies on the product of its coordinates, which become columns beside it. Fill values are
    missing, scale factors and offsets are applied, as the conventions CF say. Times stay numbers in the file's unit.

    Args:
        path: the file.
        columns: ``{name in the problem: variable}``, or names; by default every variable of numbers.
        split: ``{"V": ("u", "v")}``: the columns that the last dimension of a variable becomes.
        units: ``{"x": "m"}`` converts from the file's unit, ``{"x": ("cm", "m")}`` from that given. Of a time in "days since
            2000-01-01" the days are the unit.
        missing: ``"error"`` refuses missing values; ``"mask"`` keeps them as NaN, and fits skip those entries.
        memory: the bytes that reading may take; by default half of what is free.

    Returns:
        A table of float64 columns, coordinates first.

    Raises:
        DataError: no such file, damaged, in use; no such variable; variables that do not belong together; more than memory
            holds; units that do not fit.
        MissingExtraError: xarray or h5netcdf is not installed.

    Example:
        >>> import pathlib, tempfile, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "rod.nc"
        >>> sciml.Table({"x": [0.0, 50.0], "T": [20.0, 30.0]}, units={"x": "cm"}).save(file)
        >>> sciml.read_netcdf(file, units={"x": "m"})["x"].tolist()
        [0.0, 0.5]
    """
    options = {name: value for name, value in locals().items() if name != "path"}
    path = checked_path(path, "read_netcdf")
    split = sequences("split", split, "{'V': ('u', 'v')}")
    try:
        import xarray

        # The conventions' fill values and scale factors are xarray's business; times must stay numbers.
        with path.open("rb") as file:
            engine = "h5netcdf" if file.read(4) == _HDF5 else "scipy"
        before = stamp(path)
        if engine == "h5netcdf":
            import h5netcdf  # noqa: F401

            with refusals(path, "a NetCDF file"), OpenFiles() as handles:
                file = handles[path]
                # xarray opens all that there is.
                check_safe(path)
                for name in file:
                    if handles[path].get(name, getclass=True) is not h5py.Group:
                        check_own(handles, path, name)
    except ImportError as error:
        raise MissingExtraError("reading NetCDF needs xarray and h5netcdf; pip install 'sciml[files]'") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    with refusals(path, "a NetCDF file"):
        plain: Any = {"decode_times": False, "decode_timedelta": False, "cache": False}
        with xarray.open_dataset(path, engine=engine, **plain) as dataset:
            there = [str(name) for name in dataset.variables]
            usable = [name for name in there if dataset[name].dtype.kind in "iufc" and dataset[name].ndim]
            wanted = wanted_names(path, columns, there, usable)
            # The coordinates of what is asked for come along.
            for theirs in list(wanted.values()):
                for dimension in map(str, dataset[theirs].dims):
                    if (
                        dimension in there
                        and dimension not in wanted.values()
                        and dimension not in _components(dataset, wanted, split)
                    ):
                        wanted[dimension] = dimension
            ours_of = {theirs: ours for ours, theirs in wanted.items()}
            needed = 2 * 8 * sum(dataset[theirs].size for theirs in wanted.values())
            check_memory(path, needed, memory, "name fewer columns")
            arrays = {ours: np.asarray(dataset[theirs].values) for ours, theirs in wanted.items()}
            dimensions = {
                ours: tuple(ours_of.get(str(each), str(each)) for each in dataset[theirs].dims)
                for ours, theirs in wanted.items()
            }
            told = {
                ours: str(dataset[theirs].attrs["units"])
                for ours, theirs in wanted.items()
                if "units" in dataset[theirs].attrs
            }
            calendars = {
                ours: str(dataset[theirs].attrs.get("calendar", "standard")).lower() for ours, theirs in wanted.items()
            }
    values = as_columns(path, arrays, dict(dimensions), None, split, memory)
    for name, (given, ours) in check_units(units, tuple(values)).items():
        since = ours.partition(" since ")[2]
        if since and since not in (given or told.get(name, "")) and calendars.get(name) not in _CALENDARS:
            raise DataError(
                f"{path}: {name!r} counts in the calendar {calendars.get(name)!r}, in which the time since {since!r} is not "
                "what it is in the usual one; leave the date out of the unit"
            )
    factors, after = conversions(
        str(path), units, tuple(values), {name: unit for name, unit in told.items() if name in values}
    )
    values |= {name: values[name] * factor + offset for name, (factor, offset) in factors.items()}
    rows = len(next(iter(values.values())))
    origin = provenance(path, "read_netcdf", rows, options, before, ["xarray", "h5netcdf", "scipy"])
    return Table(values, source=str(path), missing=missing, units=after, provenance=origin)


def _components(dataset: object, wanted: Mapping[str, str], split: Mapping[str, Sequence[str]] | None) -> set[str]:
    """Dimensions of components, whose numbers are no coordinates."""
    return {str(dataset[wanted[name]].dims[-1]) for name in dict(split or {}) if name in wanted}  # type: ignore[index]

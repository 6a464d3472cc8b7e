"""Reading NetCDF files, with their fill values and scale factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sciml._text import extra, sequences
from sciml.data.arrays import checked_path, finished, wanted_names
from sciml.data.hdf5_file import OpenFiles, check_own
from sciml.data.hdf5_grid import as_columns
from sciml.data.memory import check_memory
from sciml.data.provenance import stamp
from sciml.data.sandbox import check_safe, refusals
from sciml.data.table import Table
from sciml.data.units import Units, check_units
from sciml.errors import DataError

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
        missing, memory: as for ``read_csv``.

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
    parts = sequences("split", split, "{'V': ('u', 'v')}")
    needs = "files", "reading NetCDF needs xarray and h5netcdf"
    with extra(*needs):
        import xarray
    with refusals(path, "a NetCDF file"):
        # The conventions' fill values and scale factors are xarray's business; times must stay numbers.
        before, engine = stamp(path), "h5netcdf" if h5py.is_hdf5(path) else "scipy"
        if engine == "h5netcdf":
            with extra(*needs):
                import h5netcdf  # noqa: F401
            with OpenFiles() as handles:
                file = handles[path]
                # xarray opens all that there is.
                check_safe(path)
                for name in file:
                    if handles[path].get(name, getclass=True) is not h5py.Group:
                        check_own(handles, path, name)
        plain: Any = {"decode_times": False, "decode_timedelta": False, "cache": False}
        with xarray.open_dataset(path, engine=engine, **plain) as dataset:
            there = [str(name) for name in dataset.variables]
            usable = [name for name in there if dataset[name].dtype.kind in "iufc" and dataset[name].ndim]
            wanted = wanted_names(path, columns, there, usable)
            # The coordinates of what is asked for come along.
            components = {str(dataset[wanted[name]].dims[-1]) for name in parts if name in wanted}
            along = {str(each) for theirs in wanted.values() for each in dataset[theirs].dims} - components
            wanted |= {name: name for name in there if name in along and name not in wanted.values()}
            found = {ours: dataset[theirs] for ours, theirs in wanted.items()}
            needed = 2 * 8 * sum(each.size for each in found.values())
            check_memory(path, needed, memory, "name fewer columns")
            arrays = {ours: np.asarray(each.values) for ours, each in found.items()}
            ours_of = {theirs: ours for ours, theirs in wanted.items()}
            dimensions = {ours: tuple(ours_of.get(str(d), str(d)) for d in each.dims) for ours, each in found.items()}
            stated = {ours: str(each.attrs["units"]) for ours, each in found.items() if "units" in each.attrs}
            calendars = {ours: str(each.attrs.get("calendar", "standard")).lower() for ours, each in found.items()}
    values = as_columns(path, arrays, dimensions, {}, parts, memory)
    for name, (given, ours) in check_units(units, tuple(values)).items():
        since = ours.partition(" since ")[2]
        if since and since not in (given or stated.get(name, "")) and calendars.get(name) not in _CALENDARS:
            raise DataError(
                f"{path}: {name!r} counts in the calendar {calendars.get(name)!r}, in which the time since {since!r} is not "
                "what it is in the usual one; leave the date out of the unit"
            )
    return finished(path, "read_netcdf", values, stated, options, before, ["xarray", "h5netcdf", "scipy"])

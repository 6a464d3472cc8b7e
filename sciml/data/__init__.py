"""Tables and files of numbers: reading, units, writing, streaming."""

from sciml.data.csv import read_csv
from sciml.data.grid_field import GridField
from sciml.data.hdf5 import read_hdf5
from sciml.data.lazy import LazyTable, LoaderOptions
from sciml.data.mat import read_mat
from sciml.data.netcdf import read_netcdf
from sciml.data.parquet import read_parquet
from sciml.data.read import read
from sciml.data.reference import StoredReference
from sciml.data.streaming import Stream
from sciml.data.table import Table

__all__ = [
    "GridField",
    "LazyTable",
    "LoaderOptions",
    "StoredReference",
    "Stream",
    "Table",
    "read",
    "read_csv",
    "read_hdf5",
    "read_mat",
    "read_netcdf",
    "read_parquet",
]

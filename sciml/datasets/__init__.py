"""Adapters from files to tables."""

from sciml.datasets.csv import read_csv
from sciml.datasets.guess import read
from sciml.datasets.hdf5 import read_hdf5
from sciml.datasets.lazy import LazyTable, Loading
from sciml.datasets.mat import read_mat
from sciml.datasets.netcdf import read_netcdf
from sciml.datasets.parquet import read_parquet
from sciml.datasets.streaming import Stream

__all__ = [
    "LazyTable",
    "Loading",
    "Stream",
    "read",
    "read_csv",
    "read_hdf5",
    "read_mat",
    "read_netcdf",
    "read_parquet",
]

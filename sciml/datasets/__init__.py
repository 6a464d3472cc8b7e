"""Adapters from files to tables."""

from sciml.datasets.csv import read_csv
from sciml.datasets.hdf5 import read_hdf5
from sciml.datasets.lazy import LazyTable, Loading
from sciml.datasets.streaming import Stream

__all__ = ["LazyTable", "Loading", "Stream", "read_csv", "read_hdf5"]

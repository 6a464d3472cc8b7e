"""Adapters from files to tables."""

from sciml.datasets.csv import read_csv
from sciml.datasets.hdf5 import read_hdf5

__all__ = ["read_csv", "read_hdf5"]

"""Adapters from files to tables."""

from sciml.datasets.csv import read_csv

__all__ = ["read_csv"]

"""Deployment: programs and files for other tools, reports, servers, smaller copies."""

from sciml.deploy.compression import compress, prune
from sciml.deploy.datasets import to_vtk, to_xarray
from sciml.deploy.export import export
from sciml.deploy.report import report, report_of_run
from sciml.deploy.serve import app, serve
from sciml.deploy.tracking import Tracker

__all__ = ["Tracker", "app", "compress", "export", "prune", "report", "report_of_run", "serve", "to_vtk", "to_xarray"]

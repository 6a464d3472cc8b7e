"""What runs elsewhere: programs and files for other tools, reports, servers, smaller copies."""

from sciml.deploy.datasets import to_vtk, to_xarray
from sciml.deploy.export import export

__all__ = ["export", "to_vtk", "to_xarray"]

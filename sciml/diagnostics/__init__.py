"""Diagnostics: preflight checks, well-posedness, certificate, convergence, gradients."""

from sciml.diagnostics.checkup import Checkup
from sciml.diagnostics.findings import Finding
from sciml.diagnostics.preflight import preflight

__all__ = ["Checkup", "Finding", "preflight"]

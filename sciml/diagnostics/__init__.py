"""Diagnostics: preflight checks, well-posedness, certificate, convergence, gradients."""

from sciml.diagnostics.checkup import Checkup
from sciml.diagnostics.findings import Finding
from sciml.diagnostics.preflight import preflight
from sciml.errors import ConditionWarning

__all__ = ["Checkup", "ConditionWarning", "Finding", "preflight"]

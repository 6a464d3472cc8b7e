"""Covariance, profile likelihood, error bands, model selection."""

from sciml.uncertainty.covariance import Estimate, Inference
from sciml.uncertainty.model_selection import criteria

__all__ = ["Estimate", "Inference", "criteria"]

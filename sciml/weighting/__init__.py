"""Weights that change while a solver is at work: of terms, and of points."""

from sciml.weighting.balanced import Balanced
from sciml.weighting.base import Weighting
from sciml.weighting.causal import Causal
from sciml.weighting.together import Weightings, fixed

__all__ = ["Balanced", "Causal", "Weighting", "Weightings", "fixed"]

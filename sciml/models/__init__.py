"""Trial functions: plain ``torch.nn.Module`` objects that map points ``(n, D)`` to fields ``(n, F)``."""

from sciml.models.features import RandomFeatures
from sciml.models.mlp import MLP
from sciml.models.periodic import PeriodicInputs
from sciml.models.scaled import Scaled
from sciml.models.transformed import Transformed, model_of, scaled_of

__all__ = ["MLP", "PeriodicInputs", "RandomFeatures", "Scaled", "Transformed", "model_of", "scaled_of"]

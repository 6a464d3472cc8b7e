"""Trial functions: plain ``torch.nn.Module`` objects that map points ``(n, D)`` to fields ``(n, F)``."""

from sciml.models.features import RandomFeatures
from sciml.models.mlp import MLP
from sciml.models.scaled import Scaled

__all__ = ["MLP", "RandomFeatures", "Scaled"]

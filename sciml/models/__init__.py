"""Trial functions: plain ``torch.nn.Module`` objects that map points ``(n, D)`` to fields ``(n, F)``."""

from sciml.models.blocks import (
    Concatenation,
    FourierFeatures,
    GatedBlock,
    PeriodicEmbedding,
    Product,
    ResidualBlock,
)
from sciml.models.features import RandomFeatures
from sciml.models.mlp import MLP
from sciml.models.scaled import Scaled
from sciml.models.transformed import Transformed

__all__ = [
    "MLP",
    "Concatenation",
    "FourierFeatures",
    "GatedBlock",
    "PeriodicEmbedding",
    "Product",
    "RandomFeatures",
    "ResidualBlock",
    "Scaled",
    "Transformed",
]

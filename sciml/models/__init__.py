"""Trial functions: plain ``torch.nn.Module`` objects that map points ``(n, D)`` to fields ``(n, F)``."""

from sciml.models.blocks import (
    Concatenation,
    FourierFeatures,
    GatedBlock,
    PeriodicEmbedding,
    Product,
    ResidualBlock,
)
from sciml.models.deep import DeepFeatures
from sciml.models.features import RandomFeatures
from sciml.models.mlp import MLP
from sciml.models.periodic import PeriodicInputs
from sciml.models.scaled import Scaled
from sciml.models.singular import Cornered, CornerFunctions, Wedge
from sciml.models.sliced import Sliced, sliced
from sciml.models.spectral import Spectral
from sciml.models.transformed import Transformed, model_of, scaled_of, with_model
from sciml.models.windowed import Windowed

__all__ = [
    "MLP",
    "Concatenation",
    "CornerFunctions",
    "Cornered",
    "DeepFeatures",
    "FourierFeatures",
    "GatedBlock",
    "PeriodicEmbedding",
    "PeriodicInputs",
    "Product",
    "RandomFeatures",
    "ResidualBlock",
    "Scaled",
    "Sliced",
    "Spectral",
    "Transformed",
    "Wedge",
    "Windowed",
    "model_of",
    "scaled_of",
    "sliced",
    "with_model",
]

"""Trial functions: plain ``torch.nn.Module`` objects that map points ``(n, D)`` to fields ``(n, F)``."""

from sciml.models.bases import Basis1D, Chebyshev, FiniteDifferences, Fourier, Knots, Nodal
from sciml.models.blocks import (
    Concatenation,
    FourierFeatures,
    GatedBlock,
    PeriodicEmbedding,
    PeriodicInputs,
    Product,
    ResidualBlock,
)
from sciml.models.constrained import Constrained, model_of, scaled_of, with_model
from sciml.models.deep_features import DeepFeatures
from sciml.models.grid import Grid, GridFunction, GridJets
from sciml.models.mlp import MLP
from sciml.models.piecewise import Elements, PiecewisePolynomial
from sciml.models.random_features import RandomFeatures
from sciml.models.scaled import Scaled
from sciml.models.singular import CornerExponents, CornerFunctions, CornerSingular
from sciml.models.sliced import Sliced, sliced
from sciml.models.spectral import Spectral
from sciml.models.windowed import Windowed

__all__ = [
    "MLP",
    "Basis1D",
    "Chebyshev",
    "Concatenation",
    "Constrained",
    "CornerExponents",
    "CornerFunctions",
    "CornerSingular",
    "DeepFeatures",
    "Elements",
    "FiniteDifferences",
    "Fourier",
    "FourierFeatures",
    "GatedBlock",
    "Grid",
    "GridFunction",
    "GridJets",
    "Knots",
    "Nodal",
    "PeriodicEmbedding",
    "PeriodicInputs",
    "PiecewisePolynomial",
    "Product",
    "RandomFeatures",
    "ResidualBlock",
    "Scaled",
    "Sliced",
    "Spectral",
    "Windowed",
    "model_of",
    "scaled_of",
    "sliced",
    "with_model",
]

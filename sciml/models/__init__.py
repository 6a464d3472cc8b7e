"""Trial functions: plain ``torch.nn.Module`` objects that map points ``(n, D)`` to fields ``(n, F)``."""

from typing import Any as _Any

from sciml.models.bases import Basis1D, Chebyshev, FiniteDifferences, Fourier, Nodal, PiecewiseBasis
from sciml.models.blocks import (
    Concatenation,
    FourierFeatures,
    GatedBlock,
    PeriodicEmbedding,
    PeriodicInputs,
    Product,
    ResidualBlock,
)
from sciml.models.components import Components, side_by_side
from sciml.models.constrained import Constrained, model_of, scaled_of, with_model
from sciml.models.grid import Grid, GridFunction, GridJets
from sciml.models.mlp import MLP
from sciml.models.piecewise import PiecewisePolynomial, hermite
from sciml.models.random_features import DeepFeatures, RandomFeatures
from sciml.models.scaled import Scaled
from sciml.models.scattered import ScatteredNodes
from sciml.models.singular import CornerExponents, CornerFunctions, CornerSingular
from sciml.models.sliced import Sliced, sliced
from sciml.models.spectral import Spectral
from sciml.models.spline import Spline
from sciml.models.tiles import Tiles
from sciml.models.windowed import Windowed

__all__ = [
    "MLP",
    "Basis1D",
    "Chebyshev",
    "Components",
    "Concatenation",
    "Constrained",
    "CornerExponents",
    "CornerFunctions",
    "CornerSingular",
    "DeepFeatures",
    "FiniteDifferences",
    "Fourier",
    "FourierFeatures",
    "GatedBlock",
    "Grid",
    "GridFunction",
    "GridJets",
    "Nodal",
    "PeriodicEmbedding",
    "PeriodicInputs",
    "PiecewiseBasis",
    "PiecewisePolynomial",
    "Product",
    "RandomFeatures",
    "ResidualBlock",
    "Scaled",
    "ScatteredNodes",
    "Sliced",
    "Spectral",
    "Spline",
    "Tiles",
    "Windowed",
    "hermite",
    "model_of",
    "scaled_of",
    "side_by_side",
    "sliced",
    "with_model",
]

# The models that are rebuilt from their ``config``.
BUILT_IN: tuple[type[_Any], ...] = (
    MLP,
    RandomFeatures,
    DeepFeatures,
    Spectral,
    CornerSingular,
    PiecewisePolynomial,
    Spline,
    Tiles,
)

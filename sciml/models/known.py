"""TODO."""

from __future__ import annotations

from typing import Any

from sciml.models.deep_features import DeepFeatures
from sciml.models.mlp import MLP
from sciml.models.piecewise import Elements, PiecewisePolynomial
from sciml.models.random_features import RandomFeatures
from sciml.models.singular import CornerSingular
from sciml.models.spectral import Spectral

BUILT_IN: tuple[Any, ...] = (MLP, RandomFeatures, DeepFeatures, Spectral, CornerSingular, Elements, PiecewisePolynomial)

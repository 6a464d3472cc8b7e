"""Strategies: ways from a problem to a solved model, and which of them are tried.

``sciml.fit(problem, strategy=sciml.strategies.Spectral(20))`` takes one of them, or several in turn.
"""

from sciml.strategies.all_at_once import AllAtOnce
from sciml.strategies.classical import ClassicalGrids
from sciml.strategies.inverse_constants import NonlinearRegression
from sciml.strategies.inverse_fields import InverseFields
from sciml.strategies.network import SmallNetwork, Train
from sciml.strategies.polish import Polish
from sciml.strategies.random_features import RandomFeatures
from sciml.strategies.search import Candidate, Strategy, Workspace
from sciml.strategies.singular import CornerSingular
from sciml.strategies.spectral import Spectral
from sciml.strategies.tiles import Tiles
from sciml.strategies.time_marching import Windows
from sciml.strategies.window_solvers import TimeMarching

__all__ = [
    "AllAtOnce",
    "Candidate",
    "ClassicalGrids",
    "CornerSingular",
    "InverseFields",
    "NonlinearRegression",
    "Polish",
    "RandomFeatures",
    "SmallNetwork",
    "Spectral",
    "Strategy",
    "Tiles",
    "TimeMarching",
    "Train",
    "Windows",
    "Workspace",
]

"""Derivatives: total derivatives of expressions, and who supplies the derivatives of fields."""

from sciml.jets.autograd import AnalyticJets, AutogradJets, jets_of, knows_derivatives
from sciml.jets.calculus import JetSpace, Supplier, d
from sciml.jets.linear import LinearJets
from sciml.jets.operators import curl, div, grad, laplacian
from sciml.jets.random import RandomJets
from sciml.jets.taylor import TaylorJets

__all__ = [
    "AnalyticJets",
    "AutogradJets",
    "JetSpace",
    "LinearJets",
    "RandomJets",
    "Supplier",
    "TaylorJets",
    "curl",
    "d",
    "div",
    "grad",
    "jets_of",
    "knows_derivatives",
    "laplacian",
]

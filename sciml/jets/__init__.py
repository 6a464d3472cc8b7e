"""Suppliers of jets: who computes the derivatives that residuals ask for."""

from sciml.jets.autograd import AutogradJets
from sciml.jets.closed import ClosedJets, knows_derivatives
from sciml.jets.frozen import FrozenJets
from sciml.jets.recorder import Recorder, orders_asked
from sciml.jets.taylor import TaylorJets

__all__ = ["AutogradJets", "ClosedJets", "FrozenJets", "Recorder", "TaylorJets", "knows_derivatives", "orders_asked"]

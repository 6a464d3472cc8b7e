"""Suppliers of jets: who computes the derivatives that residuals ask for."""

from sciml.jets.autograd import AutogradJets
from sciml.jets.recorder import Recorder, orders_asked

__all__ = ["AutogradJets", "Recorder", "orders_asked"]

"""Operator learning: maps between functions, learned from solved samples, corrected by their equation.

- State it: a ``Family`` of problems, inputs drawn by ``GaussianField`` or a function of yours.
- Sample it: ``sample`` solves and keeps ``Pairs``; ``read`` takes those of others.
- Learn it: ``sciml.fit(pairs)``, or by name: ``Linear``, ``Kernel`` in closed form; ``DeepONet``, ``PODDeepONet``, ``FNO``,
  ``UNet``, ``Transformer``, ``Recurrent``. ``sciml.fit(family, DeepONet())`` needs no pairs.
- Use it: a ``Surrogate`` predicts, rolls out and saves; a ``Prediction`` corrects itself by the equation; ``identify`` finds an
  input from measured outputs. ``load`` reads a saved one.
"""

from sciml.operators.attention import Transformer
from sciml.operators.convolution import UNet
from sciml.operators.deeponet import DeepONet, PODDeepONet
from sciml.operators.family import Family
from sciml.operators.fourier import FNO
from sciml.operators.inverse import Identified, identify
from sciml.operators.pairs import Pairs
from sciml.operators.physics import trained_on_residuals
from sciml.operators.random_fields import GaussianField, RandomFunction
from sciml.operators.reading import read
from sciml.operators.recurrent import Recurrent
from sciml.operators.regression import Kernel, Linear
from sciml.operators.sampling import sample
from sciml.operators.selection import fitted_pairs
from sciml.operators.storage import load
from sciml.operators.surrogate import Prediction, Surrogate

__all__ = [
    "FNO",
    "DeepONet",
    "Family",
    "GaussianField",
    "Identified",
    "Kernel",
    "Linear",
    "PODDeepONet",
    "Pairs",
    "Prediction",
    "RandomFunction",
    "Recurrent",
    "Surrogate",
    "Transformer",
    "UNet",
    "fitted_pairs",
    "identify",
    "load",
    "read",
    "sample",
    "trained_on_residuals",
]

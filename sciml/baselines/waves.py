r"""Local wave numbers of linear problems in one coordinate, by the WKB approximation, and whether trial functions resolve them.

As a first-order system :math:`y' = A(x)\,y + b(x)` a problem has solutions that locally go as :math:`e^{\lambda x}` with the
eigenvalues of A. Where :math:`|\operatorname{Re} \lambda|` is small beside one over the length of the domain they are waves
that pass. A trial function that knows no wave as short leaves next to nothing of the equations with next to nothing there, and
layers where it ends: least squares and certificates call that solved.

Reference: C. M. Bender and S. A. Orszag, Advanced Mathematical Methods for Scientists and Engineers, Springer 1999, chapter 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import nn

from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.errors import BaselineError
from sciml.models import GridFunction, Spectral, model_of, scaled_of
from sciml.models.piecewise import Pieces
from sciml.problem import Problem
from sciml.typing import Array

# Places that are looked at; by how many powers of e waves that pass may decay in the length of the domain.
_PLACES, _PASSING = 513, 5.0
# The phase of waves, a half, that a trial function may miss.
_MISSED = math.pi


@dataclass(frozen=True)
class Waves:
    """The largest wave number ``(n,)`` of waves that pass at places ``(n,)`` evenly spread over a ``length``."""

    places: Array
    numbers: Array
    length: float

    @property
    def largest(self) -> float:
        """The largest wave number of all; 0 where no waves pass."""
        return float(self.numbers.max(initial=0.0))

    def unresolved(self, trial: nn.Module) -> str:
        """Why a trial function resolves no waves as short, or an empty string."""
        finest = _finest(trial, self.places) if self.largest else None
        if finest is None:
            return ""
        missed = self.numbers > finest
        if self.numbers[missed].sum() * self.length / len(self.places) < _MISSED:
            return ""
        worst = int(np.argmax(self.numbers / finest))
        return (
            f"its equations have waves as short as {2 * math.pi / self.numbers[worst]:.2g} near {self.places[worst]:.3g}, and "
            f"the trial function resolves none shorter than {2 * math.pi / finest[worst]:.2g} there: it may miss them; "
            "take more degrees or tiles, or give more seconds= and memory="
        )


def waves(problem: Problem) -> Waves:
    """The wave numbers of a linear problem in one coordinate; none where they are not known."""
    ((low, high),) = problem.domain.bounds.values()
    # Ends may be singular.
    places = low + (high - low) * (np.arange(_PLACES) + 0.5) / _PLACES
    found = Waves(places, np.zeros(_PLACES), high - low)
    try:
        system = FirstOrderSystem(problem)
        count = len(system.state)
        states = np.concatenate([np.zeros((count, 1)), np.eye(count)], axis=1)
        with np.errstate(all="ignore"):
            rates = system.rate(np.tile(places, count + 1), np.repeat(states, _PLACES, axis=1), {})
    except (BaselineError, np.linalg.LinAlgError):
        return found
    own = rates.reshape(count, count + 1, _PLACES)
    matrices = (own[:, 1:] - own[:, :1]).transpose(2, 0, 1)
    known = np.isfinite(matrices).all((1, 2))
    exponents = np.linalg.eigvals(matrices[known])
    passing = np.abs(exponents.real) * (high - low) <= _PASSING
    found.numbers[known] = np.where(passing, np.abs(exponents.imag), 0.0).max(axis=1)
    return found


def _finest(trial: nn.Module, places: Array) -> Array | None:
    """The largest wave number that a trial function in one coordinate resolves at places; None where it is not known."""
    scaled, model = scaled_of(trial), model_of(trial)
    if scaled is None:
        return None
    half = float(scaled.half_width)
    local = (places - float(scaled.center)) / half
    if isinstance(model, Spectral):
        # Polynomials know waves with pi degrees each at least.
        return np.full(len(places), float(model.degrees_of.max()) * (math.pi if model.periodic else 1.0) / half)
    if isinstance(model, Pieces):
        breaks, degree = model.breaks[0].cpu().numpy(), float(model.degrees[0])
    elif isinstance(model, GridFunction):
        # Two nodes a wave.
        breaks, degree = np.unique(model.axes[0].nodes), math.pi / 2
    else:
        return None
    piece = np.clip(np.searchsorted(breaks, local) - 1, 0, len(breaks) - 2)
    return np.asarray(2 * degree / (np.diff(breaks)[piece] * half))

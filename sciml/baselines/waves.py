r"""Wave numbers of linear problems in one coordinate, by the WKB approximation, and whether a trial function resolves them.

As a first-order system :math:`y' = A(x)\,y + b(x)` a problem has solutions that locally go as :math:`e^{\lambda x}` with the
eigenvalues of A. Where :math:`|\operatorname{Re} \lambda|` is small beside one over the length of the domain they are waves
that pass through all of it. A trial function that knows no wave as short leaves next to nothing of the equations with next to
nothing between the ends, and layers there: least squares and certificates call that solved.

Reference: C. M. Bender and S. A. Orszag, Advanced Mathematical Methods for Scientists and Engineers, Springer 1999, chapter 10.
"""

from __future__ import annotations

import math

import numpy as np
from torch import nn

from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.errors import BaselineError
from sciml.models import Spectral, model_of, scaled_of
from sciml.models.piecewise import Pieces
from sciml.problem import Problem

# Places that are looked at; by how many powers of e waves that pass may decay.
_PLACES, _PASSING = 513, 5.0


def wave_number(problem: Problem) -> float:
    """The largest wave number of waves that pass through the domain of a linear problem in one coordinate; 0 where none do."""
    try:
        system = FirstOrderSystem(problem)
    except BaselineError:
        return 0.0
    ((low, high),) = problem.domain.bounds.values()
    count = len(system.state)
    # Ends may be singular.
    places = low + (high - low) * (np.arange(_PLACES) + 0.5) / _PLACES
    states = np.concatenate([np.zeros((count, 1)), np.eye(count)], axis=1)
    with np.errstate(all="ignore"):
        try:
            rates = system.rate(np.tile(places, count + 1), np.repeat(states, _PLACES, axis=1), {})
        except np.linalg.LinAlgError:
            return 0.0
    own = rates.reshape(count, count + 1, _PLACES)
    matrices = (own[:, 1:] - own[:, :1]).transpose(2, 0, 1)
    exponents = np.linalg.eigvals(matrices[np.isfinite(matrices).all((1, 2))])
    passing = np.abs(exponents.real) * (high - low) <= _PASSING
    return float(np.abs(exponents.imag[passing]).max(initial=0.0))


def unresolved(number: float, trial: nn.Module) -> str:
    """Why a trial function in one coordinate resolves no wave of such a number, or an empty string."""
    scaled, model = scaled_of(trial), model_of(trial)
    if scaled is None or not number:
        return ""
    if isinstance(model, Spectral):
        finest = float(model.degrees_of.max()) * (math.pi if model.periodic else 1.0)
    elif isinstance(model, Pieces):
        # Polynomials know waves with pi degrees each at least.
        finest = 2 * model.degrees[0] / float(model.breaks[0].diff().max())
    else:
        return ""
    finest /= float(scaled.half_width)
    if number <= finest:
        return ""
    return (
        f"its equations have waves as short as {2 * math.pi / number:.2g}, which pass through the domain, and the trial "
        f"function resolves none shorter than {2 * math.pi / finest:.2g}: it may miss them altogether"
    )

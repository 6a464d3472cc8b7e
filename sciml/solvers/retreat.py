"""Steps of least-squares methods that lead to where a residual or its derivative is not finite, shortened."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sciml.objective import Objective

_HALVINGS = 12


class Retreat:
    """Linearises, and goes half of the way back to the last good place for as long as something is not finite there.

    A loss may be finite where its Jacobian is none, as at the end of a root, so that a step that was judged by the loss alone
    is found to be too long only when the next one begins.

    Example:
        >>> from sciml.solvers.retreat import Retreat
        >>> Retreat().good is None
        True
    """

    def __init__(self) -> None:
        self.good: Tensor | None = None

    def linearised(self, objective: Objective) -> tuple[Tensor, Tensor, bool, int]:
        """The rows ``(m,)``, their Jacobian ``(m, p)``, whether both are finite, and how often the last step was halved."""
        halvings = 0
        while True:
            rows, slopes = objective.linearised()
            if math.isfinite(float(rows @ rows)) and bool(torch.isfinite(slopes).all()):
                self.good = objective.vector()
                return rows, slopes, True, halvings
            here = objective.vector()
            if self.good is None or halvings >= _HALVINGS or torch.equal(self.good, here):
                return rows, slopes, False, halvings
            halvings += 1
            objective.assign((self.good + here) / 2)

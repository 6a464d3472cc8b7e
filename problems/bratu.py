r"""Bratu's problem: heat made by a reaction that heat makes faster.

.. math::
    u'' + \lambda e^u = 0, \qquad u(0) = u(1) = 0, \qquad \lambda = 1,

the lower of its two solutions.

Reference: G. Bratu, Bulletin de la Société Mathématique de France 42 (1914),

.. math::
    u = -2\ln\frac{\cosh((x - \tfrac12)\theta/2)}{\cosh(\theta/4)}, \qquad \theta = \sqrt{2\lambda}\cosh(\theta/4).
"""

import torch

import sciml
from sciml import d


class Bratu(sciml.Problem):
    """A nonlinear boundary-value problem in one coordinate."""

    domain = sciml.Box(x=(0, 1))
    fields = ["u"]
    rate = 1.0
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def balance(self, u, x):
        return d(u, x, x) + self.rate * torch.exp(u)

    def reference(self, x):
        factor = torch.sqrt(2 * torch.as_tensor(self.rate, dtype=x.dtype))
        angle = torch.zeros_like(factor)
        for _ in range(30):
            # From below Newton's steps end at the smaller solution.
            angle = angle + (factor * torch.cosh(angle / 4) - angle) / (1 - factor / 4 * torch.sinh(angle / 4))
        return -2 * torch.log(torch.cosh((x - 0.5) * angle / 2) / torch.cosh(angle / 4))

r"""Allen and Cahn's equation: phases separate behind thin walls.

.. math::
    u_t = \kappa\,u_{xx} + 5 u - 5 u^3, \qquad u(x, 0) = x^2 \cos \pi x, \qquad -1 \le x \le 1, \qquad 0 \le t \le 1,

periodic in x, with diffusivity :math:`\kappa = 10^{-4}` (M. Raissi, P. Perdikaris and G. E. Karniadakis, Journal of
Computational Physics 378, 2019). The periodic extension of the start has a kink at the ends, which spreads as a thin
layer. Nothing has a unit.

Reference: ``data/allen_cahn/reference.h5``, spectral elements that are smaller towards the ends, DOP853 in time;
3e-10 from coarser ones at its points. Between them its spline does not resolve the layer of the first times.
"""

from pathlib import Path

import torch

import sciml
from sciml import d


class AllenCahn(sciml.Problem):
    """Reaction and slow diffusion on a ring."""

    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u"]
    diffusivity = 1e-4
    conditions = [sciml.Initial(u=lambda x: x**2 * torch.cos(torch.pi * x)), sciml.Periodic("x")]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "allen_cahn" / "reference.h5")

    @sciml.equation
    def reaction(self, u, x, t):
        return d(u, t) - self.diffusivity * d(u, x, x) - 5 * u + 5 * u**3

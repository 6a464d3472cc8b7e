r"""The nonlinear Schrödinger equation: a pulse that focuses and comes back.

.. math::
    i h_t + \tfrac12 h_{xx} + |h|^2 h = 0, \qquad h(x, 0) = 2\,\mathrm{sech}\,x, \qquad 0 \le t \le \pi/2,

for :math:`h = u + iv`, periodic on [-5, 5] (M. Raissi, P. Perdikaris and G. E. Karniadakis, Journal of Computational
Physics 378, 2019). The periodic extension of the start has a kink, whose short waves run everywhere and never smooth
out. Nothing has a unit.

Reference: ``data/schroedinger/reference.h5``, 32,768 Fourier modes and splitting of fourth order in time; 5e-8 from
half of both at its points. Between them the short waves are lost.
"""

from pathlib import Path

import torch

import sciml
from sciml import d


class Schroedinger(sciml.Problem):
    """Two fields, the real and the imaginary part."""

    domain = sciml.Box(x=(-5, 5), t=(0, torch.pi / 2))
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=lambda x: 2 / torch.cosh(x), v=0.0), sciml.Periodic("x")]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "schroedinger" / "reference.h5")

    @sciml.equation
    def real(self, u, v, x, t):
        return -d(v, t) + d(u, x, x) / 2 + (u**2 + v**2) * u

    @sciml.equation
    def imaginary(self, u, v, x, t):
        return d(u, t) + d(v, x, x) / 2 + (u**2 + v**2) * v

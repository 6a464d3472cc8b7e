r"""Steady flow in a square whose lid slides.

.. math::
    \psi_y\,\Delta\psi_x - \psi_x\,\Delta\psi_y = \frac{1}{\mathrm{Re}}\,\Delta^2 \psi, \qquad u = \psi_y, \quad v = -\psi_x,

for the stream function :math:`\psi` on :math:`[0, 1]^2` with :math:`\psi = 0` on all walls, which are at rest but for
the lid y = 1: there :math:`u = 4x(1 - x)`, so that the velocity has no jump in the corners. Reynolds' number is 100;
lengths and velocities are those of the cavity and of the lid's middle.

Reference: ``data/lid_driven_cavity/reference.h5``, Chebyshev collocation of degree 72 and Newton's method; 6e-7 from
degree 56. The flow under a lid of constant speed, which jumps in the corners, is another problem; what U. Ghia, K. N. Ghia
and C. T. Shin (Journal of Computational Physics 48, 1982) tabulate for it is in ``data/lid_driven_cavity/ghia.csv``.
"""

from pathlib import Path

import sciml
from sciml import d


class LidDrivenCavity(sciml.Problem):
    """The Navier-Stokes equations by the stream function, of fourth order."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["s"]
    reynolds = 100.0
    conditions = [
        sciml.Dirichlet(s=0.0, on=domain.boundary, name="walls"),
        sciml.Neumann(s=0.0, on=domain.faces("x"), name="sides"),
        sciml.Neumann(s=0.0, on=domain.face(y=0), name="bottom"),
        sciml.Neumann(s=lambda x: 4 * x * (1 - x), on=domain.face(y=1), name="lid"),
    ]
    reference = sciml.StoredReference(
        Path(__file__).parent.parent / "data" / "lid_driven_cavity" / "reference.h5", fields=["s"]
    )

    @sciml.equation
    def vorticity(self, s, x, y):
        spin_x, spin_y = d(s, x, x, x) + d(s, x, y, y), d(s, x, x, y) + d(s, y, y, y)
        diffusion = d(s, x, x, x, x) + 2 * d(s, x, x, y, y) + d(s, y, y, y, y)
        return d(s, y) * spin_x - d(s, x) * spin_y - diffusion / self.reynolds

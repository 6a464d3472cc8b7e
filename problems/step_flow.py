r"""Steady flow past a step: the Navier-Stokes equations on a polygon with a re-entrant corner.

.. math::
    u\,u_x + v\,u_y + p_x = \frac{1}{\mathrm{Re}}\,\Delta u, \qquad
    u\,v_x + v\,v_y + p_y = \frac{1}{\mathrm{Re}}\,\Delta v, \qquad u_x + v_y = 0,

in a channel of height 1 that becomes twice as high at x = 2 and ends at x = 4. It enters with
:math:`u = 4y(1 - y)`, sticks to the walls, and leaves free of traction. Reynolds' number is 50; lengths and velocities are
those of the inlet. The pressure is singular at the step's corner (2, 1), and weakly at the ends of the outlet.

Reference: ``data/step_flow/reference.h5``, Taylor and Hood's finite elements of degrees 3 and 2 (scikit-fem) on triangles
halved towards the three corners, at points that are at least 0.05 away from these.
"""

from pathlib import Path

import sciml
from sciml import d

CHANNEL = sciml.Polygon([(0, 0), (4, 0), (4, 2), (2, 2), (2, 1), (0, 1)], edges={"outlet": 1, "inlet": 5})


class StepFlow(sciml.Problem):
    """The Navier-Stokes equations past a backward-facing step."""

    domain = CHANNEL
    fields = ["u", "v", "p"]
    reynolds = 50.0
    conditions = [
        sciml.Dirichlet(u=lambda y: 4 * y * (1 - y), v=0.0, on=CHANNEL.piece("inlet")),
        sciml.Dirichlet(u=0.0, v=0.0, on=CHANNEL.boundary - CHANNEL.piece("inlet", "outlet"), name="walls"),
        sciml.Outflow(["u", "v"], pressure="p", viscosity=lambda self: 1 / self.reynolds, on=CHANNEL.piece("outlet")),
    ]
    reference = sciml.StoredReference(Path(__file__).parent.parent / "data" / "step_flow" / "reference.h5")

    @sciml.equation
    def mass(self, u, v, x, y):
        return d(u, x) + d(v, y)

    @sciml.equation
    def momentum_x(self, u, v, p, x, y):
        return u * d(u, x) + v * d(u, y) + d(p, x) - sciml.laplacian(u, x, y) / self.reynolds

    @sciml.equation
    def momentum_y(self, u, v, p, x, y):
        return u * d(v, x) + v * d(v, y) + d(p, y) - sciml.laplacian(v, x, y) / self.reynolds

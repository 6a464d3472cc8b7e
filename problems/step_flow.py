r"""Flow out of a narrow channel past a step, whose corner no smooth function follows.

.. math::
    \nabla\cdot\mathbf u = 0, \qquad (\mathbf u\cdot\nabla)\,\mathbf u + \nabla p = \frac{1}{\mathrm{Re}}\,\Delta\mathbf u

on a channel of width 1 and length 2, which goes on 2 wide for as long. The flow enters at x = 0 with :math:`u = 4y(1 - y)`,
rests on the walls and leaves free of traction at x = 4; Reynolds' number is 50 by the narrow channel and its fastest flow. At
the corner (2, 1) the velocity behaves as :math:`r^{0.54}` and the pressure as :math:`r^{-0.46}`; the ends of the outlet are
weaker singularities.

Reference: ``data/step_flow/finite_elements.csv``, finite elements of degree 3 for the velocity and 2 for the pressure on triangles
refined 14 times at the three corners.
"""

import sciml
from sciml import d

CHANNEL = sciml.Polygon([(0, 0), (4, 0), (4, 2), (2, 2), (2, 1), (0, 1)], edges={"outlet": 1, "inlet": 5})


class StepFlow(sciml.Problem):
    """The steady Navier-Stokes equations on a polygon with a re-entrant corner."""

    domain = CHANNEL
    fields = ["u", "v", "p"]
    reynolds = 50.0
    conditions = [
        sciml.Dirichlet(u=lambda y: 4 * y * (1 - y), v=0.0, on=CHANNEL.piece("inlet")),
        sciml.Dirichlet(u=0.0, v=0.0, on=CHANNEL.boundary - CHANNEL.piece("inlet", "outlet"), name="walls"),
        sciml.Outflow(["u", "v"], pressure="p", viscosity=1 / 50, on=CHANNEL.piece("outlet")),
    ]

    @sciml.equation
    def mass(self, u, v, x, y):
        return d(u, x) + d(v, y)

    @sciml.equation
    def momentum_x(self, u, v, p, x, y):
        return u * d(u, x) + v * d(u, y) + d(p, x) - sciml.laplacian(u, x, y) / self.reynolds

    @sciml.equation
    def momentum_y(self, u, v, p, x, y):
        return u * d(v, x) + v * d(v, y) + d(p, y) - sciml.laplacian(v, x, y) / self.reynolds

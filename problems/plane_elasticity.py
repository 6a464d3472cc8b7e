r"""A square elastic plate under load: plane strain, with displacements, shear and tension on its edges.

.. math::
    \mathrm{div}\,\sigma + f = 0, \qquad \sigma = \lambda\,\mathrm{tr}\,\varepsilon\,I + 2\mu\,\varepsilon, \qquad
    \varepsilon = \tfrac12(\nabla w + \nabla w^T), \qquad w = (u, v),

on :math:`[0, 1]^2` with Lamé's constants :math:`\lambda = 1`, :math:`\mu = \tfrac12` and a force f for which the
solution is known. Below, both displacements are zero; above, u is zero and the plate is pulled by
:math:`\sigma_{yy}`; at the sides v is zero and :math:`\sigma_{xx} = 0`. Lengths are in units of the edge, stresses in
units of :math:`\lambda`.

Reference: :math:`u = \cos 2\pi x\,\sin \pi y`, :math:`v = \tfrac Q4 y^4 \sin \pi x`, Q = 4 (E. Haghighat and others,
Computer Methods in Applied Mechanics and Engineering 379, 2021).
"""

from torch import cos, pi, sin

import sciml
from sciml import d


class PlaneElasticity(sciml.Problem):
    """Two displacements, coupled by the equations and by conditions on stresses."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u", "v"]
    lame, shear, load = 1.0, 0.5, 4.0
    conditions = [
        sciml.Dirichlet(u=0.0, on=domain.faces("y"), name="held_u"),
        sciml.Dirichlet(v=0.0, on=domain.face(y=0), name="held_below"),
        sciml.Dirichlet(v=0.0, on=domain.faces("x"), name="held_v"),
    ]

    @sciml.condition(on=domain.faces("x"))
    def free(self, u, v, x, y):
        return (self.lame + 2 * self.shear) * d(u, x) + self.lame * d(v, y)

    @sciml.condition(on=domain.face(y=1))
    def pulled(self, u, v, x, y):
        stress = (self.lame + 2 * self.shear) * d(v, y) + self.lame * d(u, x)
        return stress - (self.lame + 2 * self.shear) * self.load * sin(pi * x)

    @sciml.equation
    def along(self, u, v, x, y):
        force = (4 * self.lame + 9 * self.shear) * pi**2 * cos(2 * pi * x) * sin(pi * y)
        force = force - (self.lame + self.shear) * pi * self.load * y**3 * cos(pi * x)
        stretch = (self.lame + 2 * self.shear) * d(u, x, x) + self.shear * d(u, y, y)
        return stretch + (self.lame + self.shear) * d(v, x, y) + force

    @sciml.equation
    def across(self, u, v, x, y):
        force = -3 * (self.lame + 2 * self.shear) * self.load * y**2 * sin(pi * x)
        force = force + self.shear * pi**2 * self.load / 4 * y**4 * sin(pi * x)
        force = force + 2 * (self.lame + self.shear) * pi**2 * sin(2 * pi * x) * cos(pi * y)
        stretch = (self.lame + 2 * self.shear) * d(v, y, y) + self.shear * d(v, x, x)
        return stretch + (self.lame + self.shear) * d(u, x, y) + force

    def reference(self, x, y):
        return {"u": cos(2 * pi * x) * sin(pi * y), "v": self.load / 4 * y**4 * sin(pi * x)}

r"""A beam, clamped at one end, that bends under its own weight.

.. math::
    w'''' = q, \qquad w(0) = w'(0) = 0, \qquad w''(1) = w'''(1) = 0,

in units of its length and stiffness, with the load q = 1.

Reference: :math:`w = q x^2 (x^2 - 4x + 6)/24` (S. P. Timoshenko, Strength of Materials, 1930).
"""

import sciml
from sciml import d


class Beam(sciml.Problem):
    """A cantilever: an ordinary differential equation of fourth order."""

    domain = sciml.Box(x=(0, 1))
    fields = ["w"]
    load = 1.0
    conditions = [sciml.Dirichlet(w=0.0, on=domain.face(x=0))]

    @sciml.equation
    def bending(self, w, x):
        return d(w, x, x, x, x) - self.load

    @sciml.condition(on=domain.face(x=0))
    def clamped(self, w, x):
        return d(w, x)

    @sciml.condition(on=domain.face(x=1))
    def moment(self, w, x):
        return d(w, x, x)

    @sciml.condition(on=domain.face(x=1))
    def shear(self, w, x):
        return d(w, x, x, x)

    def reference(self, x):
        return self.load * x**2 * (x**2 - 4 * x + 6) / 24

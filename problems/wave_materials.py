r"""Reflection and transmission of a wave where two materials meet: a pulse is thrown back in part, and goes on slower.

.. math::
    u_{tt} = c_1^2\,u_{xx} \ \text{for } -2 < x < 0, \qquad v_{tt} = c_2^2\,v_{xx} \ \text{for } 0 < x < 1, \qquad
    u = v, \quad c_1^2\,u_x = c_2^2\,v_x \ \text{at } x = 0,

with :math:`c_1 = 1` and :math:`c_2 = 1/2`: the displacement of an elastic rod of one density and two stiffnesses, or the height
of long waves on water of two depths. The pulse :math:`e^{-40 (x + 1 - t)^2}` comes from the left.

Reference: the exact solution (H. Lamb, Hydrodynamics, Cambridge 1932, section 176),

.. math::
    u = g(t - x) + R\,g(t + x), \quad v = (1 + R)\,g(t - x/c_2), \quad R = \frac{c_1 - c_2}{c_1 + c_2}, \quad
    g(s) = e^{-40 (s - 1)^2}.
"""

import torch

import sciml
from sciml import d

FAST, SLOW = 1.0, 0.5
THROWN_BACK = (FAST - SLOW) / (FAST + SLOW)
TIME = sciml.Interval(t=(0, 2))
STRING = sciml.Interval(x=(-2, 1))
LEFT, RIGHT = sciml.Interval(x=(-2, 0)), sciml.Interval(x=(0, 1))


def pulse(s):
    """What comes from the left, by the time at which it meets the border."""
    return torch.exp(-40 * (s - 1) ** 2)


def before(x, t):
    """What comes and what is thrown back."""
    return pulse(t - x / FAST) + THROWN_BACK * pulse(t + x / FAST)


def beyond(x, t):
    """What goes on."""
    return (1 + THROWN_BACK) * pulse(t - x / SLOW)


def rate(s):
    """The slope of the pulse in time."""
    return -80 * (s - 1) * pulse(s)


class WaveMaterials(sciml.Problem):
    """The wave equation with two speeds, a field for either material."""

    domain = STRING * TIME
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x: pulse(-x / FAST), u_t=lambda x: rate(-x / FAST), v=0.0, v_t=0.0),
        sciml.Dirichlet(u=before, on=domain.face(x=-2)),
        sciml.Dirichlet(v=beyond, on=domain.face(x=1)),
    ]

    @sciml.equation(on=LEFT * TIME)
    def in_fast(self, u, x, t):
        return d(u, t, t) - FAST**2 * d(u, x, x)

    @sciml.equation(on=RIGHT * TIME)
    def in_slow(self, v, x, t):
        return d(v, t, t) - SLOW**2 * d(v, x, x)

    @sciml.condition(on=(LEFT * TIME).interface(RIGHT * TIME))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=(LEFT * TIME).interface(RIGHT * TIME))
    def force(self, u, v, x):
        return FAST**2 * d(u, x) - SLOW**2 * d(v, x)

    def reference(self, x, t):
        return {"u": before(x, t), "v": beyond(x, t)}

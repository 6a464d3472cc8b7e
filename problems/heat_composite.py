r"""A copper core in a shell of steel cools in time: two materials, with a heat flux through their contact.

.. math::
    u_t = k\,\Delta u \ \text{for } r < 1, \qquad v_t = \Delta v \ \text{for } 1 < r < 1.6, \qquad 0 \le t \le \tfrac12,

with :math:`k = 4`. At the contact :math:`r = 1` the temperatures and the fluxes :math:`k\,u_r = v_r` are equal (the heat
capacities are the same); the rim :math:`r = 1.6` is kept at zero.

Reference: two modes of separated variables, one of which turns with the angle,

.. math::
    u = \sum_{n=0}^{1} e^{-\lambda_n t} \cos(n\varphi)\,J_n(r\sqrt{\lambda_n / k}), \qquad
    v = \sum_{n=0}^{1} e^{-\lambda_n t} \cos(n\varphi)\,(a_n J_n(r\sqrt{\lambda_n}) + b_n Y_n(r\sqrt{\lambda_n})),

where :math:`\lambda_n` is the smallest number with which contact and rim can be served (H. S. Carslaw and J. C. Jaeger,
Conduction of Heat in Solids, Oxford 1959, chapter 13).
"""

import math

import torch
from scipy.optimize import brentq
from scipy.special import jv, jvp, yv, yvp

import sciml
from sciml import d

CORE_CONDUCTS = 4.0
TIME = sciml.Interval(t=(0, 0.5))
ROD, CORE = sciml.Disk((0, 0), 1.6, piece="rim"), sciml.Disk((0, 0), 1)
SHELL = ROD - CORE


def shell_of(n, rate):
    """What J and Y count in the shell where temperature and flux go on from the core."""
    inner, outer = math.sqrt(rate / CORE_CONDUCTS), math.sqrt(rate)
    value, slope = jv(n, inner), CORE_CONDUCTS * inner * jvp(n, inner) / outer
    # Wronski's determinant of J and Y is 2 / (pi r).
    scale = math.pi * outer / 2
    return scale * (value * yvp(n, outer) - slope * yv(n, outer)), scale * (slope * jv(n, outer) - value * jvp(n, outer))


def at_rim(rate, n):
    """The temperature at the rim."""
    a, b = shell_of(n, rate)
    return a * jv(n, 1.6 * math.sqrt(rate)) + b * yv(n, 1.6 * math.sqrt(rate))


RATES = (brentq(at_rim, 2.5, 3.0, args=(0,), xtol=1e-15), brentq(at_rim, 11.0, 11.4, args=(1,), xtol=1e-15))
SHELLS = [shell_of(n, rate) for n, rate in enumerate(RATES)]
J, Y = (torch.special.bessel_j0, torch.special.bessel_j1), (torch.special.bessel_y0, torch.special.bessel_y1)


def core(x, y, t):
    """The temperature of the core."""
    r = torch.sqrt(x * x + y * y).clamp_min(1e-12)
    turns = (torch.ones_like(r), x / r)
    return sum(torch.exp(-rate * t) * turns[n] * J[n](r * math.sqrt(rate / CORE_CONDUCTS)) for n, rate in enumerate(RATES))


def shell(x, y, t):
    """The temperature of the shell."""
    r = torch.sqrt(x * x + y * y).clamp_min(1e-12)
    turns = (torch.ones_like(r), x / r)
    found = 0.0
    for n, (rate, (a, b)) in enumerate(zip(RATES, SHELLS, strict=True)):
        at = r * math.sqrt(rate)
        found = found + torch.exp(-rate * t) * turns[n] * (a * J[n](at) + b * Y[n](at))
    return found


class HeatComposite(sciml.Problem):
    """Heat conduction through two materials in time: a core and a shell."""

    domain = ROD * TIME
    fields = ["u", "v"]
    k = CORE_CONDUCTS
    conditions = [
        sciml.Initial(u=lambda x, y: core(x, y, 0 * x), v=lambda x, y: shell(x, y, 0 * x)),
        sciml.Dirichlet(v=0.0, on=domain.boundary),
    ]

    @sciml.equation(on=CORE * TIME)
    def in_core(self, u, x, y, t):
        return d(u, t) - self.k * sciml.laplacian(u, x, y)

    @sciml.equation(on=SHELL * TIME)
    def in_shell(self, v, x, y, t):
        return d(v, t) - sciml.laplacian(v, x, y)

    @sciml.condition(on=(CORE * TIME).interface(SHELL * TIME))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=(CORE * TIME).interface(SHELL * TIME))
    def flux(self, u, v, x, y, normal):
        (u_x, u_y), (v_x, v_y), (n_x, n_y) = sciml.grad(u, x, y), sciml.grad(v, x, y), normal[:2]
        return self.k * (n_x * u_x + n_y * u_y) - (n_x * v_x + n_y * v_y)

    def reference(self, x, y, t):
        return {"u": core(x, y, t), "v": shell(x, y, t)}

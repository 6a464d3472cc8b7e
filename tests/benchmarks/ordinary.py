"""Ordinary differential equations, one of them with unknown constants: rows 13 and 14."""

import sciml
from sciml import d

from . import stored
from .case import Case, Target, against, of_unknowns


class Lorenz(sciml.Problem):
    """Lorenz' three rates from 25 exact samples of all fields on [0, 3]; truth: 10, 15 and 8/3 (DeepXDE's example)."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["x", "y", "z"]
    sigma, rho, beta = sciml.Unknown(1.0), sciml.Unknown(1.0), sciml.Unknown(1.0)
    conditions = [sciml.Initial(x=-8.0, y=7.0, z=27.0)]

    @sciml.equation
    def convection(self, x, y, z, t):
        return d(x, t) - self.sigma * (y - x)

    @sciml.equation
    def across(self, x, y, z, t):
        return d(y, t) - x * (self.rho - z) + y

    @sciml.equation
    def upward(self, x, y, z, t):
        return d(z, t) - x * y + self.beta * z

    def measurements(self):
        truth = stored.load("lorenz")
        return sciml.Table({**truth.axes, **truth.fields}, source="lorenz/reference.npz")


class VanDerPol(sciml.Problem):
    """u_tt - μ(1 - u²)u_t + u = 0, μ = 100, over one period."""

    domain = sciml.Interval(t=(0, 163))
    fields = ["u"]
    mu = 100.0
    conditions = [sciml.Initial(u=2.0, u_t=0.0)]

    @sciml.equation
    def oscillation(self, u, t):
        return d(u, t, t) - self.mu * (1 - u**2) * d(u, t) + u


class Robertson(sciml.Problem):
    """Three reactions with rates 0.04, 10⁴ and 3·10⁷, to t = 10⁴."""

    domain = sciml.Interval(t=(0, 1e4))
    fields = ["a", "b", "c"]
    conditions = [sciml.Initial(a=1.0, b=0.0, c=0.0)]

    @sciml.equation
    def first(self, a, b, c, t):
        return d(a, t) + 0.04 * a - 1e4 * b * c

    @sciml.equation
    def second(self, a, b, c, t):
        return d(b, t) - 0.04 * a + 1e4 * b * c + 3e7 * b**2

    @sciml.equation
    def third(self, a, b, c, t):
        return d(c, t) - 3e7 * b**2


CASES = (
    Case(
        "lorenz",
        13,
        "Lorenz inverse, 25 exact samples, unknowns start at 1",
        (Target(1e-6, 3),),
        "DeepXDE f64 5.3e-6, 105 s; jinns SSBroyden 8.5e-7, 76 s with a loss weight changed by hand, 9e-1 with its tutorial's",
        Lorenz,
        of_unknowns(sigma=10.0, rho=15.0, beta=8 / 3),
    ),
    Case(
        "van_der_pol",
        14,
        "Van der Pol, μ = 100, one period",
        (Target(1e-5, 30),),
        "",
        VanDerPol,
        against("van_der_pol"),
    ),
    Case(
        "robertson",
        14,
        "Robertson to 10⁴, at times spaced by their logarithm",
        (Target(1e-5, 30),),
        "",
        Robertson,
        against("robertson"),
    ),
)

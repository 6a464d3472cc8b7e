"""Problems that several tests solve. Their constants and domains are given where a test needs others: ``Decay(rate=1.0)``."""

import math

import torch

import sciml
from sciml import d


class Decay(sciml.Problem):
    """Exponential decay."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    rate = 2.0
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.rate * u

    def reference(self, t):
        return torch.exp(-self.rate * t)


class Growth(sciml.Problem):
    """Exponential growth at a rate to be found from measurements."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["u"]
    rate = sciml.Unknown(0.5)
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def growth(self, u, t):
        return d(u, t) - self.rate * u


class Explosion(sciml.Problem):
    """1 / (1 - t), which has no value at t = 1."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def square(self, u, t):
        return d(u, t) - u**2


class LotkaVolterra(sciml.Problem):
    """Hares and lynxes, both initial values unknown."""

    domain = sciml.Interval(t=(0, 15))
    fields = ["hare", "lynx"]
    birth, predation = sciml.Unknown(0.4, lower=0), sciml.Unknown(0.02, lower=0)
    death, conversion = sciml.Unknown(1.0, lower=0), sciml.Unknown(0.03, lower=0)

    @sciml.equation
    def prey(self, hare, lynx, t):
        return d(hare, t) - (self.birth - self.predation * lynx) * hare

    @sciml.equation
    def predator(self, hare, lynx, t):
        return d(lynx, t) - (self.conversion * hare - self.death) * lynx


class Line(sciml.Problem):
    """A straight line, to be found from measurements."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["u"]

    @sciml.equation
    def straight(self, u, t):
        return d(u, t, t)


class Heat(sciml.Problem):
    """Heat conduction in a rod whose ends are cold."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = 1.0
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)

    def reference(self, x, t):
        return torch.exp(-self.k * torch.pi**2 * t) * torch.sin(torch.pi * x)


class Poisson(sciml.Problem):
    """Poisson's equation of a constant source on the unit square."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 1.0


class Harmonic(sciml.Problem):
    """Laplace's equation on the unit disk, without values at its edge."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y)


CORE = sciml.Disk((0, 0), 1)
SHELL = sciml.Disk((0, 0), 2, piece="rim") - CORE


class Rod(sciml.Problem):
    """A heated core that conducts well, in a shell that does not: the flux along the normal of a circle is one."""

    domain = sciml.Disk((0, 0), 2, piece="rim")
    fields = ["u", "v"]
    k = 5.0
    conditions = [sciml.Dirichlet(v=0.0, on=domain.boundary)]

    @sciml.equation(on=CORE)
    def heated(self, u, x, y):
        return self.k * sciml.laplacian(u, x, y) + 4.0

    @sciml.equation(on=SHELL)
    def around(self, v, x, y):
        return sciml.laplacian(v, x, y)

    @sciml.condition(on=CORE.interface(SHELL))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=CORE.interface(SHELL))
    def flux(self, u, v, x, y, normal):
        (ux, uy), (vx, vy), (nx, ny) = sciml.grad(u, x, y), sciml.grad(v, x, y), normal
        return self.k * (nx * ux + ny * uy) - (nx * vx + ny * vy)

    def reference(self, x, y):
        square = x * x + y * y
        return {"u": 2 * math.log(2) + (1 - square) / self.k, "v": math.log(4) - torch.log(square)}


class Robertson(sciml.Problem):
    """Robertson's reactions with the balance of mass in place of the third (E. Hairer and G. Wanner, 1996)."""

    domain = sciml.Interval(t=(0, 40))
    fields = ["a", "b", "c"]
    conditions = [sciml.Initial(a=1.0, b=0.0)]

    @sciml.equation
    def first(self, a, b, c, t):
        return d(a, t) + 0.04 * a - 1e4 * b * c

    @sciml.equation
    def second(self, a, b, c, t):
        return d(b, t) - 0.04 * a + 1e4 * b * c + 3e7 * b**2

    @sciml.equation
    def mass(self, a, b, c):
        return a + b + c - 1


def stresses(u, v, x, y, first=1.0, second=1.0):
    """Along x, of shear and along y, of plane elasticity with Lamé's two numbers."""
    shear, trace = d(u, y) + d(v, x), d(u, x) + d(v, y)
    return first * trace + 2 * second * d(u, x), second * shear, first * trace + 2 * second * d(v, y)

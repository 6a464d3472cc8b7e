"""Linear problems with exact solutions: rows 1 to 5, 16 and 17."""

import math

import torch

import sciml
from sciml import d

from .case import Case, Target, on_grid, on_sobol_points

PI = math.pi


class Poisson(sciml.Problem):
    """-Δu = 2π² sin πx sin πy on the unit square, zero on its boundary."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return -d(u, x, x) - d(u, y, y) - 2 * PI**2 * torch.sin(PI * x) * torch.sin(PI * y)

    def reference(self, x, y):
        return torch.sin(PI * x) * torch.sin(PI * y)


class Helmholtz(sciml.Problem):
    """-Δu - k²u = k² sin kx sin ky on the unit square, zero on its boundary, k = 4π."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    k = 4 * PI
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        source = self.k**2 * torch.sin(self.k * x) * torch.sin(self.k * y)
        return -d(u, x, x) - d(u, y, y) - self.k**2 * u - source

    def reference(self, x, y):
        return torch.sin(self.k * x) * torch.sin(self.k * y)


class Heat(sciml.Problem):
    """u_t = 0.4 u_xx, cooled at both ends, from sin πx."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    diffusivity = 0.4
    conditions = [sciml.Initial(u=lambda x: torch.sin(PI * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def conduction(self, u, x, t):
        return d(u, t) - self.diffusivity * d(u, x, x)

    def reference(self, x, t):
        return torch.exp(-self.diffusivity * PI**2 * t) * torch.sin(PI * x)


class Wave(sciml.Problem):
    """u_tt = c² u_xx, c = 2, clamped at both ends, at rest from sin πx + ½ sin 4πx."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    c = 2.0
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(PI * x) + torch.sin(4 * PI * x) / 2, u_t=0.0),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t, t) - self.c**2 * d(u, x, x)

    def reference(self, x, t):
        low = torch.sin(PI * x) * torch.cos(PI * self.c * t)
        return low + torch.sin(4 * PI * x) * torch.cos(4 * PI * self.c * t) / 2


class Advection(sciml.Problem):
    """u_t + βu_x = 0, periodic on [0, 2π], from sin x."""

    domain = sciml.Box(x=(0, 2 * PI), t=(0, 1))
    fields = ["u"]
    beta = 30.0
    conditions = [sciml.Initial(u=lambda x: torch.sin(x)), sciml.Periodic("x")]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + self.beta * d(u, x)

    def reference(self, x, t):
        return torch.sin(x - self.beta * t)


class Plate(sciml.Problem):
    """Δ²u = f on the unit square, clamped, with f such that u = sin² πx sin² πy."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Dirichlet(u=0.0, on=domain.boundary, name="held"),
        sciml.Neumann(u=0.0, on=domain.boundary, name="level"),
    ]

    @sciml.equation
    def bending(self, u, x, y):
        # sin² πx = (1 - cos 2πx)/2, with second derivative 2π² cos 2πx and fourth -8π⁴ cos 2πx.
        a, b = torch.cos(2 * PI * x), torch.cos(2 * PI * y)
        load = -4 * PI**4 * (a * (1 - b) + b * (1 - a)) + 8 * PI**4 * a * b
        return d(u, x, x, x, x) + 2 * d(u, x, x, y, y) + d(u, y, y, y, y) - load

    def reference(self, x, y):
        return torch.sin(PI * x) ** 2 * torch.sin(PI * y) ** 2


def _sum_and_square(coordinates):
    return sum(coordinates), sum(x * x for x in coordinates)


def _solution(*coordinates):
    total, square = _sum_and_square(coordinates)
    return torch.sin(total) + torch.cos(square / 2)


def _load(*coordinates):
    total, square = _sum_and_square(coordinates)
    count = len(coordinates)
    return count * torch.sin(total) + count * torch.sin(square / 2) + square * torch.cos(square / 2)


class Poisson5D(sciml.Problem):
    """-Δu = f on the unit cube in five dimensions with u = sin Σx + cos ½|x|², given on the boundary."""

    domain = sciml.Box(a=(0, 1), b=(0, 1), c=(0, 1), e=(0, 1), f=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda a, b, c, e, f: _solution(a, b, c, e, f), on=domain.boundary)]

    @sciml.equation
    def balance(self, u, a, b, c, e, f):
        return -sum(d(u, x, x) for x in (a, b, c, e, f)) - _load(a, b, c, e, f)

    def reference(self, a, b, c, e, f):
        return _solution(a, b, c, e, f)


class Poisson10D(sciml.Problem):
    """The same in ten dimensions."""

    domain = sciml.Box(**dict.fromkeys("abcefghijk", (0, 1)))
    fields = ["u"]
    conditions = [
        sciml.Dirichlet(
            u=lambda a, b, c, e, f, g, h, i, j, k: _solution(a, b, c, e, f, g, h, i, j, k), on=domain.boundary
        )
    ]

    @sciml.equation
    def balance(self, u, a, b, c, e, f, g, h, i, j, k):
        return -sum(d(u, x, x) for x in (a, b, c, e, f, g, h, i, j, k)) - _load(a, b, c, e, f, g, h, i, j, k)

    def reference(self, a, b, c, e, f, g, h, i, j, k):
        return _solution(a, b, c, e, f, g, h, i, j, k)


CASES = (
    Case(
        "poisson",
        1,
        "Poisson 2D, −Δu = 2π² sin πx sin πy, [0,1]², u = 0",
        (Target(1e-11, 1),),
        "DeepXDE f64 6e-4, 111 s; jinns natural gradient 3e-6, 60 s; jinns SSBroyden 2.4e-8, 43 s; DSGNAR 1e-6 at 160 s, "
        "1.5e-15 at 197 s",
        Poisson,
        on_grid(),
    ),
    Case(
        "helmholtz",
        2,
        "Helmholtz, −Δu − k²u = k² sin kx sin ky, k = 4π, [0,1]², u = 0",
        (Target(1e-10, 2),),
        "jinns natural gradient 2.2e-6, 61 s; DeepXDE f64 5.9e-4, 80 s",
        Helmholtz,
        on_grid(),
    ),
    Case("heat", 3, "heat, u_t = 0.4 u_xx, sin πx", (Target(1e-9, 1),), "", Heat, on_grid()),
    Case(
        "wave",
        4,
        "wave, c = 2, sin πx + ½ sin 4πx, at rest, t ≤ 1",
        (Target(1e-10, 2),),
        "FastLSQ 8e-11, 99 s (its own Wave1D); published 1e-2 (Adam, L-BFGS, NNCG)",
        Wave,
        on_grid(),
    ),
    Case(
        "advection_30",
        5,
        "advection, u_t + 30 u_x = 0, [0,2π]×[0,1], sin x",
        (Target(1e-9, 2),),
        "jinns SSBroyden 2.1e-6, 14 s; DeepXDE f64 0.57, 45 s",
        Advection,
        on_grid(),
    ),
    Case(
        "advection_50",
        5,
        "advection, u_t + 50 u_x = 0, [0,2π]×[0,1], sin x",
        (Target(1e-9, 2),),
        "published 2e-3 (β = 40)",
        lambda: Advection(beta=50.0),
        on_grid(),
    ),
    Case(
        "poisson_5d",
        16,
        "Poisson 5D, u = sin Σx + cos ½\\|x\\|², [0,1]⁵",
        (Target(1e-6, 20),),
        "FastLSQ 1.6e-7, 55 s (a separable solution)",
        Poisson5D,
        on_sobol_points(),
    ),
    Case(
        "poisson_10d",
        16,
        "Poisson 10D, u = sin Σx + cos ½\\|x\\|², [0,1]¹⁰",
        (Target(1e-3, 180), Target(1e-5)),
        "DSGNAR 3e-16, 407 s; 6e-12, 54 min (H100)",
        Poisson10D,
        on_sobol_points(),
    ),
    Case("plate", 17, "biharmonic plate, clamped, u = sin² πx sin² πy", (Target(1e-8, 20),), "", Plate, on_grid()),
)

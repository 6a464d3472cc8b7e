"""Linear problems with exact solutions: rows 1 to 5, 16 and 17."""

import torch

import sciml
from sciml import d

from .case import Case, Target, on_grid, on_sobol_points
from .stored import problem_class

Poisson = problem_class("poisson_square")
Helmholtz = problem_class("helmholtz")
Heat = problem_class("heat_rod")
Wave = problem_class("wave_string")
Advection = problem_class("advection")
Plate = problem_class("plate_biharmonic")
Poisson5D = problem_class("poisson_5d")


def _sum_and_square(coordinates):
    return sum(coordinates), sum(x * x for x in coordinates)


def _solution(*coordinates):
    total, square = _sum_and_square(coordinates)
    return torch.sin(total) + torch.cos(square / 2)


def _load(*coordinates):
    total, square = _sum_and_square(coordinates)
    count = len(coordinates)
    return count * torch.sin(total) + count * torch.sin(square / 2) + square * torch.cos(square / 2)


class Poisson10D(sciml.Problem):
    """The same in ten dimensions."""

    domain = sciml.Box(**dict.fromkeys("abcefghijk", (0, 1)))
    fields = ["u"]
    conditions = [
        sciml.Dirichlet(u=lambda a, b, c, e, f, g, h, i, j, k: _solution(a, b, c, e, f, g, h, i, j, k), on=domain.boundary)
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

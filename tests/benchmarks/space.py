"""Two and three coordinates, at rest and in time, on boxes and on domains that are no boxes: rows 21 to 26."""

import math

import numpy as np
import torch

import sciml
from sciml import d

from .case import Case, Target, on_grid, relative
from .stored import problem_class

PI = math.pi
CENTRES = [complex(x, y) for x in (-0.3, 0.3) for y in (-0.3, 0.3)]
PLATE = sciml.Box(x=(-0.5, 0.5), y=(-0.5, 0.5))
for centre in CENTRES:
    PLATE = PLATE - sciml.Disk((centre.real, centre.imag), 0.1)


class FourHoles(sciml.Problem):
    """Laplace's equation on a square with four round holes."""

    domain = PLATE
    fields = ["u"]
    conditions = [
        sciml.Dirichlet(u=0.0, on=domain.piece("circle")),
        sciml.Dirichlet(u=1.0, on=domain.boundary - domain.piece("circle")),
    ]

    @sciml.equation
    def laplace(self, u, x, y):
        return sciml.laplacian(u, x, y)


def _functions(z):
    """Harmonic polynomials, and round every hole a logarithm and multipoles, as columns."""
    powers = [(z / 0.75) ** n for n in range(81)]
    columns = [part for each in powers for part in (each.real, each.imag)]
    for hole in CENTRES:
        away = (z - hole) / 0.1
        columns.append(np.log(np.abs(away)))
        columns += [part for n in range(1, 31) for part in ((away**-n).real, (away**-n).imag)]
    return np.stack(columns, axis=1)


def four_holes_error(solution):
    """The error against a sum of multipoles, by least squares on the boundary; that is exact to 1e-10 there."""
    at = solution.grid(101)
    truth = _functions(at["x"] + 1j * at["y"]) @ _weights()
    return relative(solution(**at), {"u": truth})


def _weights():
    side = np.cos(np.linspace(0, PI, 400)) / 2
    sides = np.concatenate([side - 0.5j, side + 0.5j, -0.5 + 1j * side, 0.5 + 1j * side])
    holes = np.concatenate([hole + 0.1 * np.exp(2j * PI * np.arange(200) / 200) for hole in CENTRES])
    wanted = np.concatenate([np.ones(len(sides)), np.zeros(len(holes))])
    return np.linalg.lstsq(_functions(np.concatenate([sides, holes])), wanted, rcond=1e-14)[0]


class FineHeat(sciml.Problem):
    """Linear, smooth, and fine in one coordinate alone."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 5))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(20 * PI * x) * torch.sin(PI * y)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - d(u, x, x) / (500 * PI) ** 2 - d(u, y, y) / PI**2

    def reference(self, x, y, t):
        return torch.sin(20 * PI * x) * torch.sin(PI * y) * torch.exp(-(0.04**2 + 1) * t)


class Waves(sciml.Problem):
    """Two standing waves on a square membrane, with one speed along x and one along y."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 10))
    fields = ["u"]
    square = 1.0
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(PI * x) * torch.sin(PI * y) + _second(x, y), u_t=0.0),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def wave(self, u, x, y, t):
        return d(u, t, t) - d(u, x, x) - self.square * d(u, y, y)

    def reference(self, x, y, t):
        slow, fast = (PI * (k + j * self.square) ** 0.5 for k, j in ((1, 1), (4, 9)))
        return torch.sin(PI * x) * torch.sin(PI * y) * torch.cos(slow * t) + _second(x, y) * torch.cos(fast * t)


def _second(x, y):
    return torch.sin(2 * PI * x) * torch.sin(3 * PI * y) / 2


class LongWaves(Waves):
    """The same for ten times as long, with the speeds 1 and the root of 2."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 100))
    square = 2.0


def inside(points):
    """The error at the points of a grid that lie in the domain, each field where it lives."""
    return lambda solution: max(solution.error(resolution=points).values())


CASES = (
    Case("four_holes", 21, "Laplace, a square with four holes", (Target(1e-6, 10),), "", FourHoles, four_holes_error),
    Case(
        "heat_body",
        22,
        "Laplace, a cube without four balls",
        (Target(1e-4, 180),),
        "",
        problem_class("heat_body"),
        inside(41),
    ),
    Case(
        "fine_heat", 23, "u_t = u_xx/(500π)² + u_yy/π², sin 20πx sin πy, t ≤ 5", (Target(1e-9, 5),), "", FineHeat, on_grid(41)
    ),
    Case("waves_plane", 24, "waves on the square, t ≤ 10", (Target(1e-8, 20),), "", Waves, on_grid(41)),
    Case("waves_long", 25, "waves on the square, speeds 1 and √2, t ≤ 100", (Target(1e-6, 120),), "", LongWaves, on_grid(41)),
    Case(
        "taylor_green",
        26,
        "Taylor and Green's vortices, Re 100, t ≤ 1",
        (Target(1e-9, 20),),
        "",
        problem_class("taylor_green"),
        on_grid(31),
    ),
)

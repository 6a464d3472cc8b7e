"""Steady flow in two dimensions: rows 11 and 12."""

import math

import torch

import sciml
from sciml import d

from . import stored
from .case import Case, Target, on_grid, relative
from .stored import problem_class

PI = math.pi
REYNOLDS = 40.0
DECAY = REYNOLDS / 2 - math.sqrt(REYNOLDS**2 / 4 + 4 * PI**2)


def _u(x, y):
    return 1 - torch.exp(DECAY * x) * torch.cos(2 * PI * y)


def _v(x, y):
    return DECAY / (2 * PI) * torch.exp(DECAY * x) * torch.sin(2 * PI * y)


def _p(x, y):
    return (1 - torch.exp(2 * DECAY * x)) / 2 + 0 * y


class Kovasznay(sciml.Problem):
    """Flow behind a grid at Re = 40 on [-½, 1] × [-½, 1½]; velocities given all around, pressure at the outflow."""

    domain = sciml.Box(x=(-0.5, 1), y=(-0.5, 1.5))
    fields = ["u", "v", "p"]
    conditions = [
        sciml.Dirichlet(u=_u, v=_v, on=domain.boundary, name="velocity"),
        sciml.Dirichlet(p=_p, on=domain.face(x=1), name="outflow"),
    ]

    @sciml.equation
    def along(self, u, v, p, x, y):
        return u * d(u, x) + v * d(u, y) + d(p, x) - (d(u, x, x) + d(u, y, y)) / REYNOLDS

    @sciml.equation
    def across(self, u, v, p, x, y):
        return u * d(v, x) + v * d(v, y) + d(p, y) - (d(v, x, x) + d(v, y, y)) / REYNOLDS

    @sciml.equation
    def continuity(self, u, v, x, y):
        return d(u, x) + d(v, y)

    def reference(self, x, y):
        return {"u": _u(x, y), "v": _v(x, y), "p": _p(x, y)}


Cavity = problem_class("lid_driven_cavity")


def cavity_error(solution):
    """The larger of the two velocities' relative errors."""
    truth = stored.load("lid_driven_cavity")
    x, y = (torch.from_numpy(values).requires_grad_() for values in truth.grid().values())
    s = solution(x=x, y=y)["s"]
    by_x, by_y = torch.autograd.grad(s.sum(), (x, y))
    return relative({"u": by_y.numpy(), "v": -by_x.numpy()}, {name: truth.fields[name] for name in ("u", "v")})


CASES = (
    Case("kovasznay", 11, "Kovasznay flow, Re 40", (Target(1e-8, 10),), "published about 1e-7", Kovasznay, on_grid()),
    Case(
        "lid_driven_cavity",
        12,
        "lid-driven cavity, Re 100, lid 4x(1−x)",
        (Target(1e-4, 180),),
        "DSGNAR 6e-4, 80 s; 1.1e-4, 403 s (H100)",
        Cavity,
        cavity_error,
    ),
)

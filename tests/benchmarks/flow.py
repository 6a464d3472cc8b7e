"""Steady flow in two dimensions: rows 11 and 12."""

import torch

from . import stored
from .case import Case, Target, on_grid, relative
from .stored import problem_class

Kovasznay = problem_class("kovasznay")
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
        "velocities in a lid-driven cavity, Re 100, lid 4x(1−x), by its stream function",
        (Target(1e-4, 180),),
        "DSGNAR 6e-4, 80 s; 1.1e-4, 403 s (H100)",
        Cavity,
        cavity_error,
    ),
)

"""Fast diagonalisation: exact for what separates, enough for GMRES where it nearly does, and refused where it cannot serve."""

import math
from functools import partial

import pytest
import torch
from test_grid_slabs import Channel, Heat, Stokes, box, slab_of

import sciml
from sciml import d
from sciml.models import Chebyshev
from sciml.slabs.grids import GridSpace
from sciml.slabs.newton_krylov import solve
from sciml.slabs.row_layout import arranged
from sciml.slabs.separable import SeparablePreconditioner, separable

PI = math.pi
F64 = torch.float64
PLANE = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
CUBE = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1), t=(0, 1))


class Wind(Heat):
    """Drifts, conductivity of one coordinate each, and conditions of all three kinds."""

    conditions = [
        sciml.Initial(u=0.0),
        sciml.Dirichlet(u=lambda y, t: y * t, on=PLANE.face(x=0)),
        sciml.Neumann(u=1.0, on=PLANE.face(x=1)),
        sciml.Robin(u=lambda x: x, coefficient=2.0, on=PLANE.faces("y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) + 3 * d(u, x) - (1 + x) * d(u, x, x) - d(u, y, y) / (1 + y) + x * u + 1


class Cooled(sciml.Problem):
    """A cube in a wind, cooled on all sides."""

    domain = CUBE
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0), sciml.Robin(u=0.0, coefficient=2.0)]

    @sciml.equation
    def heat(self, u, x, y, z, t):
        return d(u, t) + 3 * d(u, x) + d(u, y) - d(u, x, x) - d(u, y, y) - 2 * d(u, z, z)


class Schroedinger(sciml.Problem):
    """Two fields with conditions of one kind, each in the other's equation."""

    domain = PLANE
    fields = ["a", "b"]
    complex_fields = {"p": ("a", "b")}
    conditions = [sciml.Initial(p=lambda x, y: torch.exp(2j * x)), sciml.Dirichlet(p=0.0)]

    @sciml.equation
    def motion(self, p, x, y, t):
        return 1j * d(p, t) + d(p, x, x) / 2 + d(p, y, y) - (x**2 + y**2) * p


class Plate(sciml.Problem):
    """Of second order in time, damped, with two conditions on each side."""

    domain = PLANE
    fields = ["w"]
    conditions = [
        sciml.Initial(w=0.0, w_t=1.0),
        sciml.Dirichlet(w=0.0),
        sciml.Neumann(w=0.0),
    ]

    @sciml.equation
    def motion(self, w, x, y, t):
        return d(w, t, t) + d(w, t) + d(w, x, x, x, x) + d(w, y, y, y, y)


def cube(*counts):
    return GridSpace({name: Chebyshev(0.0, 1.0, count) for name, count in zip("xyz", counts, strict=True)})


@pytest.mark.parametrize(
    ("problem", "space"),
    [
        (Wind(), box(False, False)),
        (Cooled(), cube(6, 7, 5)),
        (Schroedinger(), box(False, False)),
        (Plate(), box(False, False, (9, 8))),
    ],
    ids=["wind", "cube", "schroedinger", "plate"],
)
def test_the_inverse_is_exact_for_what_separates(problem, space):
    slab, sites, rows = slab_of(problem, space)
    evaluated = slab.evaluate(sites, slab.zero(), slopes=True)
    inverse = SeparablePreconditioner(rows, slab, evaluated)
    rates = torch.randn(slab.zero().shape, dtype=F64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(inverse(slab.product(evaluated, rates)), rates, atol=1e-7)


class Uneven(Wind):
    """A conductivity that varies threefold, across both coordinates."""

    @sciml.equation
    def heat(self, u, x, y, t):
        k = 2 + torch.sin(3 * x) * torch.cos(5 * y)
        return d(u, t) - d(k * d(u, x), x) - d(k * d(u, y), y) - 1


class Reaction(Heat):
    """Two fields, conditions of different kinds."""

    fields = ["u", "v"]
    conditions = [sciml.Initial(u=1.0, v=0.0), sciml.Dirichlet(u=0.0), sciml.Neumann(v=0.0)]

    @sciml.equation
    def heat(self, u, v, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y) + 5 * (u - v)

    @sciml.equation
    def product(self, u, v, x, y, t):
        return d(v, t) - d(v, x, x) - d(v, y, y) - 5 * (u - v)


@pytest.mark.parametrize(("problem", "most"), [(Uneven(), 20), (Reaction(), 8)], ids=["uneven", "reaction"])
def test_what_does_not_separate_is_left_to_few_products(problem, most):
    counts = []
    for count in (12, 20):
        slab, sites, rows = slab_of(problem, box(False, False, (count, count)))
        made = partial(SeparablePreconditioner, rows, slab)
        solved = solve(slab, sites, made, 1e-9)
        assert solved.converged
        counts.append(solved.products / max(1, solved.steps - 1))
    assert max(counts) <= most


def test_periodic_axes_are_taken_apart_by_waves():
    """A shear flow along x is not one of means: its mean is."""
    slab, sites, rows = slab_of(Channel(), box(True, False, (8, 11)))
    solved = solve(slab, sites, partial(SeparablePreconditioner, rows, slab), 1e-9)
    assert solved.converged
    assert solved.products < 12 * solved.steps


@pytest.mark.parametrize(
    ("problem", "space", "expected"), [(Stokes(), box(True, True), False), (Wind(), box(False, False), True)]
)
def test_what_has_no_derivative_of_its_own_does_not_separate(problem, space, expected):
    orders = {name: problem.order(name, "t") for name in problem.fields}
    rows = arranged(problem, space, orders, rates=False)
    assert separable(problem, rows, ["x", "y"]) == expected

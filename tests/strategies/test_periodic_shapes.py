"""Periodic conditions on the faces that holes leave of a box: a channel with an obstacle, a cell of a material."""

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.diagnostics.well_posedness import condition_warnings
from sciml.errors import ProblemError

HOLE = sciml.Disk((1.0, 0.3), 0.4, piece="hole")
CELL = sciml.Box(x=(0, 2), y=(-1, 1)) - HOLE


def exact(x, y):
    return torch.exp(torch.sin(torch.pi * x)) * torch.cos(y + 0.5)


def relative(solution, **more):
    places = np.random.default_rng(0).uniform((0, -1), (2, 1), (4000, 2))
    x, y = places[CELL.contains(places)].T if not more else places[((places - (1.0, 0.3)) ** 2).sum(1) > 0.16].T
    true = exact(torch.from_numpy(x), torch.from_numpy(y)).numpy() * np.exp(-more.get("t", 0.0))
    found = solution(x=x, y=y, **{name: np.full_like(x, value) for name, value in more.items()})["u"]
    return np.linalg.norm(found - true) / np.linalg.norm(true)


def transport(u, x, y):
    """A residual that the exact solution leaves zero."""
    true = exact(x, y)
    curved = (torch.pi**2 * (torch.cos(torch.pi * x) ** 2 - torch.sin(torch.pi * x)) - 1) * true
    along = (1 - y**2) * (d(u, x) - torch.pi * torch.cos(torch.pi * x) * true)
    return along - 0.05 * (sciml.laplacian(u, x, y) - curved) + u - true


def test_a_channel_with_a_hole_goes_round():
    class Channel(sciml.Problem):
        domain = CELL
        fields = ["u"]
        walls = domain.piece("y=-1", "y=1", "hole")
        conditions = [sciml.Periodic("x"), sciml.Dirichlet(u=exact, on=walls)]

        @sciml.equation
        def balance(self, u, x, y):
            return transport(u, x, y)

    solution = sciml.fit(Channel())
    assert solution.success, solution.message
    assert relative(solution) < 1e-6
    across = solution(x=np.array([0.0, 2.0]), y=np.array([0.4, 0.4]))["u"]
    assert abs(across[0] - across[1]) < 1e-6


def test_a_channel_that_is_not_closed_lacks_conditions():
    class Open(sciml.Problem):
        domain = CELL
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=exact, on=domain.piece("y=-1", "y=1", "hole"))]

        @sciml.equation
        def balance(self, u, x, y):
            return transport(u, x, y)

    class Closed(Open):
        conditions = [*Open.conditions, sciml.Periodic("x")]

    assert [each.split(",")[0] for each in condition_warnings(Open())] == ["no conditions on x=0", "no conditions on x=2"]
    assert condition_warnings(Closed()) == []


@pytest.mark.slow
def test_a_channel_with_a_hole_goes_round_in_time():
    moving = sciml.Box(x=(0, 2), y=(-1, 1)) - HOLE
    space = moving * sciml.Interval(t=(0, 0.2))

    class Warm(sciml.Problem):
        domain = space
        fields = ["u"]
        conditions = [
            sciml.Periodic("x"),
            sciml.Dirichlet(u=lambda x, y, t: exact(x, y) * torch.exp(-t), on=domain.piece("y=-1", "y=1", "hole")),
            sciml.Initial(u=exact),
        ]

        @sciml.equation
        def balance(self, u, x, y, t):
            true = exact(x, y) * torch.exp(-t)
            curved = (torch.pi**2 * (torch.cos(torch.pi * x) ** 2 - torch.sin(torch.pi * x)) - 1) * true
            return d(u, t) + true - 0.1 * (sciml.laplacian(u, x, y) - curved)

    solution = sciml.fit(Warm())
    assert solution.success, solution.message
    assert relative(solution, t=0.2) < 1e-5


def test_faces_that_differ_are_named():
    bitten = sciml.Box(x=(0, 2), y=(-1, 1)) - sciml.Disk((0.0, 0.0), 0.4, piece="bite")

    class Bitten(sciml.Problem):
        domain = bitten
        fields = ["u"]
        conditions = [sciml.Periodic("x"), sciml.Dirichlet(u=0.0, on=domain.piece("y=-1", "y=1", "bite"))]

        @sciml.equation
        def balance(self, u, x, y):
            return sciml.laplacian(u, x, y) + 1

    with pytest.raises(ProblemError, match=r"the faces of 'x' .* differ"):
        sciml.fit(Bitten())


@pytest.mark.slow
def test_grains_that_conduct_nothing_lower_the_conductivity_as_rayleigh_says():
    """W. T. Perrins, D. R. McKenzie and R. C. McPhedran, Proceedings of the Royal Society A 369 (1979), equation (14)."""

    class Cell(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.3, piece="grain")
        fields = ["w"]
        conditions = [sciml.Periodic("x"), sciml.Periodic("y"), sciml.Mean(w=0.0)]

        @sciml.equation
        def balance(self, w, x, y):
            return sciml.laplacian(w, x, y)

        @sciml.condition(on=domain.piece("grain"))
        def sealed(self, w, x, y, normal):
            nx, ny = normal
            return nx * (1 + d(w, x)) + ny * d(w, y)

    solution = sciml.fit(Cell())
    assert solution.success, solution.message
    places, weights = np.polynomial.legendre.leggauss(24)
    slopes = solution(x=np.zeros(24), y=(places + 1) / 2, derivatives=["w_x"])["w_x"]
    share = np.pi * 0.09
    known = 1 - 2 * share / (1 + share - 0.305827 * share**4 - 0.013362 * share**8)
    assert abs((1 + slopes) @ weights / 2 - known) < 1e-5

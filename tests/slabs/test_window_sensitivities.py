"""Sensitivities that windows of time carry, against differences of solutions."""

import math

import pytest
import torch

import sciml
from sciml import d
from sciml.models import RandomFeatures
from sciml.slabs.tile_space import TileSpace
from sciml.strategies import TimeMarching
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Log, Varied, Workspace, search
from sciml.strategies.tile_slabs import TileWindows

TIME = sciml.Interval(t=(0, 0.1))
ROD, SQUARE = sciml.Interval(x=(0, 1)), sciml.Box(x=(0, 1), y=(0, 1))


class Rod(sciml.Problem):
    """Heat whose conductivity and loss are unknown, insulated at its ends."""

    domain = ROD * TIME
    fields = ["u"]
    k = sciml.Unknown(0.3, lower=0)
    loss = sciml.Unknown(0.4)
    conditions = [sciml.Neumann(u=0.0, on=ROD.boundary), sciml.Initial(u=lambda x: 1 + torch.cos(math.pi * x))]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x) + self.loss * u**2


class Plate(Rod):
    domain = SQUARE * TIME
    conditions = [
        sciml.Neumann(u=0.0, on=SQUARE.boundary),
        sciml.Initial(u=lambda x, y: 1 + torch.cos(math.pi * x) * torch.cos(math.pi * y)),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - self.k * sciml.laplacian(u, x, y) + self.loss * u**2


class Holed(Plate):
    """With a wall that is cold at once: its tiles are refined from window to window."""

    domain = (SQUARE - sciml.Disk((0.5, 0.5), 0.2)) * TIME
    conditions = [sciml.Robin(u=1.0, coefficient=lambda self: self.loss, on=domain.boundary), sciml.Initial(u=1.0)]


def raw_of(problem):
    return {name: each.raw_of(torch.tensor(each.initial).double()) for name, each in problem.unknowns.items()}


def solved(problem, raw, varied):
    values = {name: float(each.value(raw[name])) for name, each in problem.unknowns.items()}
    work = Workspace(problem.bind(**values), varied=Varied(problem, raw) if varied else None)
    return search([TimeMarching()], work)


@pytest.mark.parametrize("problem", [Rod, Plate, pytest.param(Holed, marks=pytest.mark.slow)])
def test_windows_carry_their_derivatives_by_constants(problem):
    problem = problem()
    raw = raw_of(problem)
    found = solved(problem, raw, varied=True)
    assert len(found.slopes) == 2
    points = torch.rand(200, len(problem.coordinates), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points[:, -1] *= 0.1
    points = points[torch.from_numpy(problem.domain.contains(points.numpy()))]
    for name, slopes in zip(raw, found.slopes, strict=True):
        one, two = (solved(problem, {**raw, name: raw[name] + step}, varied=False) for step in (1e-2, -1e-2))
        assert one.slopes == ()
        by_differences = (one.discrete.trial(points) - two.discrete.trial(points)).detach() / 2e-2
        assert float((slopes(points) - by_differences).norm()) < 2e-3 * float(by_differences.norm())


def test_a_start_that_depends_on_a_constant_has_its_slopes_by_differences():
    class Hot(Rod):
        conditions = [
            sciml.Neumann(u=0.0, on=ROD.boundary),
            sciml.Initial(u=lambda self, x: 1 + self.loss * torch.cos(math.pi * x)),
        ]

    assert Varied(Hot(), raw_of(Hot())).starts
    assert not Varied(Rod(), raw_of(Rod())).starts
    assert solved(Hot(), raw_of(Hot()), varied=True).slopes == ()


def test_what_windows_carry_goes_on_to_finer_tiles():
    """Errors were lost where tiles are refined between two windows."""
    problem = Holed().bind(k=0.3, loss=0.4)
    setup = prepare(problem, RandomFeatures(), None, 400, None, torch.float64, "cpu", 0)
    attempt = TileWindows(setup, Log(), 1e-6, 1e-3)
    coarse = TileSpace.laid(problem, ("x", "y"), (4, 4), 5)
    fine = coarse.finer(torch.arange(len(coarse.model.live)) < 3)
    weights = coarse.interpolated("u", lambda columns: (columns[0] ** 3 * columns[1] ** 2)[None])
    (moved,) = attempt._onto(fine, coarse, (weights,))
    x, y = torch.tensor([0.1, 0.4, 0.9], dtype=torch.float64), torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    assert torch.allclose(fine.at_points(moved, (x, y))[0], x**3 * y**2, atol=1e-10)

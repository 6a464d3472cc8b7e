"""Boundary values that jump in time: what follows begins anew, as after a start that contradicts the conditions."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.strategies.time_marching import Marched

AT, OFF = 0.437, 0.7


def warmed(x, t):
    """The temperature of a rod, 0 before, whose end at 0 is 1 from a time 0 on, by its images at the ends."""
    wide, found = 2 * torch.sqrt(torch.clamp(t, min=1e-300)), torch.zeros_like(x)
    for number in range(6):
        found += torch.erfc((x + 2 * number) / wide) - torch.erfc((2 - x + 2 * number) / wide)
    return torch.where(t > 0, found, 0.0)


def switched(t):
    return torch.where((t > AT) & (t < OFF), 1.0, 0.0).to(t)


class Wall(sciml.Problem):
    """A rod whose left end is hot for a while."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=0.0),
        sciml.Dirichlet(u=switched, on=domain.face(x=0)),
        sciml.Dirichlet(u=0.0, on=domain.face(x=1)),
    ]

    def flux(self, u, x):
        return (-d(u, x),)

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) + d(self.flux(u, x)[0], x)

    def reference(self, x, t):
        return warmed(x, t - AT) - warmed(x, t - OFF)


class Plate(sciml.Problem):
    """The same in the plane, whose other edges are insulated."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=0.0),
        sciml.Dirichlet(u=lambda t: torch.where(t > AT, 1.0, 0.0).to(t), on=domain.face(x=0)),
        sciml.Dirichlet(u=0.0, on=domain.face(x=1)),
        sciml.Neumann(u=0.0, on=domain.faces("y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - sciml.laplacian(u, x, y)

    def reference(self, x, y, t):
        return warmed(x, t - AT)


def test_a_rod_whose_end_is_switched_on_and_off_is_solved():
    solution = sciml.fit(Wall())
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-8
    assert solution.error()["u"] < solution.estimated_error["u"] < 1e-4
    (told,) = [each for each in solution.choices if "begun anew" in each]
    assert "begun anew 2 time(s) where boundary values jump, first at t = 0.437" in told
    # Soon after it was switched on and off: the layers are there.
    t = np.array([AT, OFF]) + 1e-6
    found = solution(x=np.full(2, 1e-3), t=t)["u"]
    # Before it is switched off, the end has been hot for 0.263.
    before = float(warmed(torch.tensor([1e-3]).double(), torch.tensor([OFF - AT]).double()))
    layer = math.erfc(1e-3 / 2e-3)
    assert np.allclose(found, [layer, before - layer], rtol=0, atol=1e-4)


def test_a_plate_whose_edge_becomes_hot_is_solved_on_grids():
    solution = sciml.fit(Plate())
    assert solution.success, solution.message
    assert any("residuals are judged beyond the layer that it leaves, but for t = 0.437" in each for each in solution.choices)
    assert solution.error()["u"] < 1e-7


def test_a_rod_of_two_parts_is_solved_on_tiles():
    always = sciml.Interval(t=(0, 1))
    parts = {"a": sciml.Interval(x=(0, 0.4)) * always, "b": sciml.Interval(x=(0.4, 1)) * always}
    solution = sciml.fit(sciml.composite({"a": Wall(), "b": Wall()}, parts))
    assert solution.success, solution.message
    x, t = (torch.from_numpy(each.ravel()) for each in np.meshgrid(np.linspace(0.01, 0.99, 50), np.linspace(0.03, 0.99, 33)))
    found = solution(x=x.numpy(), t=t.numpy())
    found = np.where(x < 0.4, found["u_a"], found["u_b"])
    assert np.abs(found - Wall().reference(x, t).numpy()).max() < 1e-3


@pytest.mark.parametrize("when", [1, 3, 6, 10, 14])
def test_an_end_before_or_after_a_change_is_where_windows_end(when):
    seen = []
    solution = sciml.fit(Wall(), callbacks=[lambda report: seen.append(report) or len(seen) >= when])
    reached = float(solution.trial.edges[-1])
    assert not solution.success
    assert solution.bounds["t"] == (0.0, reached)
    assert reached <= AT
    assert f"it ended at t = {reached:.4g} of 1" in solution.message
    assert solution.residuals["relative"].max() < 0.05


def test_windows_of_two_marches_are_those_of_one():
    first = Marched(("one", "two"), (0.0, 0.1, 0.5), 1e-9, True, 1, (0.1,))
    both = first.then(Marched(("three",), (0.5 + 1e-15, 0.8), 1e-7, False, 2, (), True))
    assert both == Marched(("one", "two", "three"), (0.0, 0.1, 0.5 + 1e-15, 0.8), 1e-7, False, 3, (0.1,), True)

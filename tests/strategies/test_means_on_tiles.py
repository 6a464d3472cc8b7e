"""Means and integrals of fields on cut tiles: levels, and constants that they determine."""

import pytest
import torch
from candidates import workspace

import sciml
from sciml import d
from sciml.slabs.at_rest import TileRows
from sciml.slabs.tile_space import TileSpace


class Duct(sciml.Problem):
    """Flow through a duct whose section is a triangle with sides of 1, of mean velocity 1: the drop of pressure is 80."""

    domain = sciml.Polygon([(0, 0), (1, 0), (0.5, 3**0.5 / 2)])
    fields = ["w"]
    drop = sciml.Unknown(1.0)
    conditions = [sciml.Dirichlet(w=0.0, on=domain.boundary), sciml.Mean(w=1.0)]

    @sciml.equation
    def poiseuille(self, w, x, y):
        return d(w, x, x) + d(w, y, y) + self.drop


class Throughput(Duct):
    conditions = [sciml.Dirichlet(w=0.0, on=Duct.domain.boundary), sciml.Integral(w=3**0.5 / 4)]


@pytest.mark.parametrize("problem", [Duct, Throughput])
def test_a_mean_of_a_field_determines_a_constant(problem):
    solution = sciml.fit(problem(), strategy=sciml.strategies.Tiles())
    assert solution.success
    assert solution.unknowns.loc["drop", "estimate"] == pytest.approx(80, rel=1e-10)
    height = 3**0.5 / 2
    # The product of the distances from the sides.
    middle = 80 / (2 * height) * (height / 3) ** 3 * 2
    assert float(solution(x=0.5, y=height / 3)["w"]) == pytest.approx(middle, rel=1e-9)


@pytest.mark.parametrize("mean", [0.01, 1.5, 100.0])
def test_a_constant_far_from_its_first_value_is_found_where_everything_is_linear(mean):
    problem = type("Other", (Duct,), {"conditions": [Duct.conditions[0], sciml.Mean(w=mean)]})()
    solution = sciml.fit(problem, strategy=sciml.strategies.Tiles())
    assert solution.success, solution.message
    assert solution.unknowns.loc["drop", "estimate"] == pytest.approx(80 * mean, rel=1e-8)


@pytest.mark.parametrize("held", [sciml.Mean(w=1.0), sciml.Point(w=1.0, at={"x": 0.5, "y": 0.3})])
def test_constants_that_what_tiles_miss_alone_tells_apart_are_not_determined(held):
    """By symmetry a drop that grows along x is as good as its mean: tiles represent one of them exactly."""

    class Tilted(Duct):
        tilt = sciml.Unknown(0.0)
        conditions = [Duct.conditions[0], held]

        @sciml.equation
        def poiseuille(self, w, x, y):
            return d(w, x, x) + d(w, y, y) + self.drop + self.tilt * x

    solution = sciml.fit(Tilted(), strategy=sciml.strategies.Tiles())
    assert not solution.success
    assert "do not determine" in solution.message


@pytest.mark.parametrize("means", [[], [sciml.Mean(w=1.0)], [sciml.Mean(w=1.0), sciml.Mean(w=0.5, name="other")]])
def test_slopes_by_a_constant_do_not_follow_means_that_fields_cannot(means):
    """Boundary values determine the field: a mean beside them is one more row, and no slope is its."""

    class Held(Duct):
        conditions = [Duct.conditions[0], *means]

    work = workspace(Held())
    space = TileSpace.laid(work.problem.bind_initial(), work.problem.coordinates, (4, 4), 8, 1)
    trial, raw = work.discrete.with_model(space.model).trial, work.discrete.raw["drop"].detach().requires_grad_()
    value = work.problem.unknowns["drop"].value(raw)
    rows = TileRows(work.problem, space, trial, [0], {"drop": raw.detach()})
    (slope,) = rows.linearised(space.model.coefficients).sensitivities()
    space.model.coefficients.copy_(slope)
    found = float(trial(torch.tensor([[0.5, 0.3]], dtype=torch.float64)))
    # For a drop of 1 it is the product of the distances from the sides, by the height.
    height = 3**0.5 / 2
    wanted = 0.3 * ((height - 0.3) / 2) ** 2 / height * float(torch.autograd.grad(value, raw)[0])
    assert found == pytest.approx(wanted, rel=0.02)


def test_a_mean_over_the_boundary_determines_a_constant():
    class Cooled(sciml.Problem):
        domain = sciml.Disk((0, 0), 1)
        fields = ["u"]
        exchange = sciml.Unknown(1.0)
        conditions = [sciml.Mean(u=0.8, on=domain.boundary)]

        @sciml.equation
        def heated(self, u, x, y):
            return d(u, x, x) + d(u, y, y) + 1

        @sciml.condition(on=domain.boundary)
        def cooled(self, u, x, y, normal):
            nx, ny = normal
            return nx * d(u, x) + ny * d(u, y) + self.exchange * u

    solution = sciml.fit(Cooled(), strategy=sciml.strategies.Tiles())
    assert solution.success
    assert solution.unknowns.loc["exchange", "estimate"] == pytest.approx(0.625, rel=1e-9)


def test_of_a_function_the_mean_counts():
    class Loose(sciml.Problem):
        domain = sciml.Disk((0, 0), 1)
        fields = ["u"]
        conditions = [sciml.Neumann(u=lambda x: x, on=domain.boundary), sciml.Mean(u=lambda x: 3 * x**2)]

        @sciml.equation
        def laplace(self, u, x, y):
            return d(u, x, x) + d(u, y, y)

    solution = sciml.fit(Loose(), strategy=sciml.strategies.Tiles())
    assert solution.success
    assert float(solution(x=0.2, y=0.3)["u"]) == pytest.approx(0.95, rel=1e-9)


def test_the_level_of_a_field_around_a_hole():
    """Its mean is as accurate as the field: points of chance had left it off by 4e-5."""
    ring = sciml.Disk((0, 0), 1, piece="outer") - sciml.Disk((0, 0), 0.5, piece="inner")

    class Loose(sciml.Problem):
        domain = ring
        fields = ["u"]
        conditions = [
            sciml.Neumann(u=2.0, on=ring.piece("outer")),
            sciml.Neumann(u=-1.0, on=ring.piece("inner")),
            sciml.Mean(u=1.0),
        ]

        @sciml.equation
        def poisson(self, u, x, y):
            return d(u, x, x) + d(u, y, y) - 4

    # Of x**2 + y**2 the mean is the same as that of the squares of both radii.
    solution = sciml.fit(Loose(), strategy=sciml.strategies.Tiles())
    assert solution.success
    assert float(solution(x=0.6, y=0.3)["u"]) == pytest.approx(0.45 + 1 - 0.625, rel=1e-9)

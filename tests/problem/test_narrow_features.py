"""Sources, starts and coefficients that are narrower than the distance of points are seen, resolved or told."""

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ProblemError
from sciml.geometry import Interior, OnFaces
from sciml.problem.collocation import Collocation
from sciml.problem.narrow_features import narrow_features, with_features
from sciml.problem.problem import Problem
from sciml.slabs.tile_space import TileSpace

MIDDLE, WIDTH = 0.4321, 5e-4
SQUARE = sciml.Box(x=(0, 1), y=(0, 1))


class Pulse(sciml.Problem):
    """Heat from a start that is a narrow pulse beside a ramp."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: x + torch.exp(-(((x - MIDDLE) / WIDTH) ** 2) / 2) / (WIDTH * np.sqrt(2 * np.pi))),
        sciml.Dirichlet(u=lambda x: x, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.01 * d(u, x, x)

    def reference(self, x, t):
        square = WIDTH**2 + 0.02 * t
        images = [(sign, MIDDLE * sign + 2 * number) for sign in (1, -1) for number in (-1, 0, 1)]
        parts = [sign * torch.exp(-((x - at) ** 2) / (2 * square)) for sign, at in images]
        return {"u": x + sum(parts) / torch.sqrt(2 * torch.pi * square)}


class Heater(sciml.Problem):
    """A small heater in a plate, and a load everywhere."""

    domain = SQUARE
    fields = ["u"]
    size = 0.01
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, x, y):
        squares = (x - 0.6173) ** 2 + (y - 0.3719) ** 2
        return sciml.laplacian(u, x, y) + 1 + 1e3 * torch.exp(-squares / (2 * self.size**2))


class Flash(sciml.Problem):
    """A start in the plane that no grid that serves elsewhere sees."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.2))
    fields = ["u"]
    conditions = [
        sciml.Initial(
            u=lambda x, y: (
                torch.sin(np.pi * x) * torch.sin(np.pi * y) + 600 * torch.exp(-((x - MIDDLE) ** 2 + (y - MIDDLE) ** 2) / 5e-5)
            )
        ),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - 0.01 * sciml.laplacian(u, x, y)


class Waves(sciml.Problem):
    """What is as quick everywhere, or large near one side, is not narrow."""

    domain = SQUARE
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x: torch.exp(-x / 0.05), on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        return sciml.laplacian(u, x, y) - torch.sin(200 * x) * torch.cos(173 * y) / (0.1 + x)


def layered(inside):
    """A conductor with a thin or small part of another conductivity, as a switch in the equation."""

    class Layered(sciml.Problem):
        domain = SQUARE
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x: x, on=domain.faces("x")), sciml.Neumann(u=0.0, on=domain.faces("y"))]

        @sciml.equation
        def balance(self, u, x, y):
            k = torch.where(inside(x, y), 50.0, 1.0).to(x)
            return d(k * d(u, x), x) + d(k * d(u, y), y)

    return Layered()


def near(points, *middle):
    return (points - torch.tensor(middle, dtype=torch.float64)).norm(dim=1)


def test_narrow_features_are_found_where_they_are():
    (place,) = found = narrow_features(Pulse())
    assert isinstance(place, OnFaces)
    assert bool((near(found[place].points[0], MIDDLE, 0.0) < 4 * WIDTH).all())
    (place,) = found = narrow_features(Heater())
    assert isinstance(place, Interior)
    assert bool((near(found[place].points[0], 0.6173, 0.3719) < 4 * Heater.size).all())
    assert not narrow_features(Heater(size=0.2))
    assert not narrow_features(Waves())


def test_points_at_features_come_first_on_their_sides():
    class Lamp(Problem):
        domain = SQUARE
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp(-(((y - MIDDLE) / WIDTH) ** 2)) * x, on=domain.boundary)]

        @sciml.equation
        def laplace(self, u, x, y):
            return sciml.laplacian(u, x, y)

    problem = Lamp()
    features = narrow_features(problem)
    (term,) = [each for each in problem.terms() if each.name == "dirichlet"]
    plain = Collocation(sciml.geometry.draw(term.place, SQUARE, 10, np.random.default_rng(0)), (term,))
    (block,) = with_features([plain], features)
    counts, more = plain.sample.faces, block.sample.faces
    assert sum(more) == sum(counts) + len(features[term.place].points[0]) == len(block.sample.points[0])
    assert len(block.sample.normals) == sum(more)
    for before, after, here in zip(counts, more, block.sample.points[0].split(more), strict=True):
        added = here[: after - before]
        assert bool((added[:, 0] == 1).all())
        assert bool(((added[:, 1] - MIDDLE).abs() < 4 * WIDTH).all())


def test_a_narrow_start_is_resolved_by_elements():
    solution = sciml.fit(Pulse())
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-8


def test_a_start_that_the_grid_misses_is_no_success_and_its_place_is_told():
    solution = sciml.fit(Flash(), seconds=30)
    if solution.success:
        at = {"x": [MIDDLE], "y": [MIDDLE], "t": [0.0]}
        assert solution(**at)["u"][0] == pytest.approx(601, rel=1e-3)
    else:
        assert "what is given is narrow near x=0.4" in solution.message


def test_tiles_are_halved_where_a_source_is_small():
    problem = Heater(size=1e-3)
    (sample,) = narrow_features(problem).values()
    space = TileSpace.laid(problem, problem.coordinates, (3, 3), 6)
    around = space.around(sample.points[0])
    at = around.model.tile(around._scaled(torch.tensor([[0.6173, 0.3719]])))
    assert float(around.model.halves[at].max()) < 0.02
    assert space.around(sample.points[0][:0]) is space


@pytest.mark.parametrize(
    "inside",
    [lambda x, y: (x > 0.5371) & (x < 0.5377), lambda x, y: (x - 0.5371) ** 2 + (y - 0.4633) ** 2 < 0.02**2],
    ids=["layer", "inclusion"],
)
def test_thin_parts_of_another_conductivity_jump_too(inside):
    with pytest.raises(ProblemError, match="expression that jumps by 98%"):
        sciml.fit(layered(inside), seconds=20)

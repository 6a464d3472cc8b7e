"""Equations on parts of a domain, and conditions on the surfaces between them."""

import math

import numpy as np
import pytest
import torch

import sciml
from problems import CORE, SHELL, Rod
from sciml import d
from sciml.errors import ProblemError
from sciml.geometry import Within, draw

LEFT, RIGHT = sciml.Interval(x=(0, 0.4)), sciml.Interval(x=(0.4, 1))


class Wall(sciml.Problem):
    """Heat through two layers: a temperature for each, one heat flux through their contact."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u", "v"]
    brick, wool = 1.0, 0.1
    conditions = [sciml.Dirichlet(u=1.0, on=domain.face(x=0)), sciml.Dirichlet(v=0.0, on=domain.face(x=1))]

    @sciml.equation(on=LEFT)
    def in_brick(self, u, x):
        return d(self.brick * d(u, x), x)

    @sciml.equation(on=RIGHT)
    def in_wool(self, v, x):
        return d(self.wool * d(v, x), x)

    @sciml.condition(on=LEFT.interface(RIGHT))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=LEFT.interface(RIGHT))
    def flux(self, u, v, x):
        return self.brick * d(u, x) - self.wool * d(v, x)

    def reference(self, x):
        through = 1 / (0.4 / self.brick + 0.6 / self.wool)
        return {"u": 1 - through * x / self.brick, "v": through * (1 - x) / self.wool}


def test_two_layers():
    solution = sciml.fit(Wall())
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-10
    assert list(solution.residuals.index) == ["in_brick", "in_wool", "dirichlet", "dirichlet_2", "contact", "flux"]
    assert float(solution(x=0.4)["u"]) == pytest.approx(float(solution(x=0.4)["v"]), abs=1e-12)


def test_two_layers_of_a_union():
    class Joined(Wall):
        domain = LEFT | RIGHT
        conditions = [sciml.Dirichlet(u=1.0, on=domain.face(x=0)), sciml.Dirichlet(v=0.0, on=domain.face(x=1))]

    assert max(sciml.fit(Joined()).error().values()) < 1e-10


class Warming(sciml.Problem):
    """The same in time, each layer with a diffusivity of its own."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(x), v=lambda self, x: self.outside(x)),
        sciml.Dirichlet(u=0.0, on=domain.face(x=0)),
        sciml.Dirichlet(v=lambda self, x, t: torch.exp(-t) * self.outside(x), on=domain.face(x=1)),
    ]
    conductivity = 0.5

    def outside(self, x):
        slope = math.cos(0.4) / (2 * self.conductivity)
        return math.sin(0.4) * torch.cos(2 * (x - 0.4)) + slope * torch.sin(2 * (x - 0.4))

    @sciml.equation(on=sciml.Box(x=(0, 0.4), t=(0, 1)))
    def left(self, u, x, t):
        return d(u, t) - d(u, x, x)

    @sciml.equation(on=sciml.Box(x=(0.4, 1), t=(0, 1)))
    def right(self, v, x, t):
        return d(v, t) - d(v, x, x) / 4

    @sciml.condition(on=domain.inner(x=0.4))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=domain.inner(x=0.4))
    def flux(self, u, v, x):
        return d(u, x) - self.conductivity * d(v, x)

    def reference(self, x, t):
        return {"u": torch.exp(-t) * torch.sin(x), "v": torch.exp(-t) * self.outside(x)}


def test_two_layers_in_time():
    solution = sciml.fit(Warming())
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-8


def test_parts_and_surfaces_follow_a_window_of_time():
    window = Warming().on(sciml.Box(x=(0, 1), t=(0.5, 0.75)))
    places = {term.name: term.place for term in window.terms()}
    assert places["left"] == Within(sciml.Box(x=(0, 0.4), t=(0.5, 0.75)))
    points = draw(places["contact"], window.domain, 32, np.random.default_rng(0)).points[0].numpy()
    assert (points[:, 0] == 0.4).all()
    assert points[:, 1].min() >= 0.5
    assert points[:, 1].max() <= 0.75


@pytest.fixture(scope="module")
def rod():
    return sciml.fit(Rod(), sciml.RandomFeatures(800, 12.0), solver=sciml.LinearLeastSquares())


@pytest.mark.slow
def test_a_core_in_a_shell(rod):
    assert rod.success, rod.message
    assert max(rod.error().values()) < 1e-6


@pytest.mark.slow
def test_errors_and_pictures_leave_out_where_a_field_means_nothing(rod):
    at = {"x": np.array([0.0, 1.5]), "y": np.array([0.5, 0.0])}
    lives = rod.lives(at)
    assert lives["u"].tolist() == [True, False]
    assert lives["v"].tolist() == [False, True]
    maps = [axes for axes in rod.plot().axes if axes.get_xlabel() == "x"]
    shown = [np.ma.masked_invalid(axes.collections[0].get_array()) for axes in maps]
    assert shown[0].count() / shown[2].count() == pytest.approx(1 / 3, rel=0.02)
    table = sciml.compare(rod, rod).table
    assert table["v: relative L2"].iloc[0] == pytest.approx(rod.error()["v"])
    assert sciml.compare(rod, rod).plot().axes


def sample(interface, count=64):
    found = draw(interface, interface.first, count, np.random.default_rng(0))
    return found.points[0].numpy(), found.normals.numpy()


@pytest.mark.parametrize("length", [1e-6, 1.0, 1e7])
def test_layers_meet_however_large_the_numbers_of_time_are(length):
    time = sciml.Interval(t=(0, length))
    layers = [sciml.Interval(x=(0, 0.12)) * time, sciml.Interval(x=(0.12, 0.3)) * time]
    surface = layers[0].interface(layers[1])
    (side,) = surface.sides
    points, normals, kept = surface.on_side(side, np.random.default_rng(0).random((50, surface.freedom(side))))
    assert kept.all()
    assert np.allclose(points[:, 0], 0.12, rtol=0, atol=1e-12)
    assert np.allclose(normals, [1, 0])
    # What lies beside a layer is no part of it, however long a time is.
    assert layers[0].contains(np.array([[0.12, length / 2], [0.1201, length / 2]])).tolist() == [True, False]


def test_points_on_interfaces():
    points, normals = sample(LEFT.interface(RIGHT))
    assert points.tolist() == [[0.4]]
    assert normals.tolist() == [[1.0]]
    assert sample(RIGHT.interface(LEFT))[1].tolist() == [[-1.0]]
    points, normals = sample(CORE.interface(SHELL))
    assert np.linalg.norm(points, axis=1) == pytest.approx(1)
    assert normals == pytest.approx(points)
    points, normals = sample(SHELL.interface(CORE))
    assert normals == pytest.approx(-points)
    # Only the part that both have: a small box beside a large one.
    small, large = sciml.Box(x=(1, 2), y=(0.25, 0.5)), sciml.Box(x=(0, 1), y=(0, 1))
    points, normals = sample(large.interface(small))
    assert (points[:, 0] == 1).all()
    assert points[:, 1].min() >= 0.25
    assert points[:, 1].max() <= 0.5
    assert (normals == [1, 0]).all()
    points, normals = sample(sciml.Box(x=(0, 1), y=(0, 1), t=(0, 2)).inner(y=0.25))
    assert (points[:, 1] == 0.25).all()
    assert (normals == [0, 1, 0]).all()
    polygon = sciml.Polygon([(0, 0), (1, 0), (1, 1)]).interface(sciml.Polygon([(0, 0), (1, 1), (0, 1)]))
    points, normals = sample(polygon)
    assert points[:, 0] == pytest.approx(points[:, 1])
    assert normals == pytest.approx(np.tile([-(0.5**0.5), 0.5**0.5], (len(points), 1)))


def test_what_a_part_has_of_the_boundary_of_the_whole():
    whole, part = sciml.Box(x=(0, 1), y=(0, 1)), sciml.Box(x=(0, 0.4), y=(0, 1))
    outer = part.interface(whole)
    assert [side.describe(part) for side in outer.sides] == ["x=0", "y=0", "y=1"]
    points, normals = sample(outer.piece("y=1"))
    assert (points[:, 1] == 1).all()
    assert points[:, 0].max() <= 0.4
    assert (normals == [0, 1]).all()
    with pytest.raises(ProblemError, match="has no piece 'x=1'; its pieces are 'x=0', 'y=0', 'y=1'"):
        outer.piece("x=1")

    class Half(sciml.Problem):
        domain = whole
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=outer), sciml.Neumann(u=1.0, on=part.interface(whole - part))]

        @sciml.equation(on=part)
        def laplace(self, u, x, y):
            return sciml.laplacian(u, x, y)

    names = [term.name for term in Half().terms()]
    assert names == ["laplace", "dirichlet", "neumann"]
    solution = sciml.fit(Half(), sciml.RandomFeatures(300, 3.0), solver=sciml.LinearLeastSquares())
    assert 0 < float(solution(x=0.4, y=0.5)["u"]) < 0.4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LEFT.interface(sciml.Interval(x=(0.5, 1))), "a piece of their boundaries in common; do they overlap"),
        (lambda: LEFT.interface(sciml.Interval(y=(0.4, 1))), "must have the same coordinates"),
        (lambda: sciml.Interval(x=(0, 1)).inner(x=1), "x runs from 0 to 1; give a value between them"),
        (lambda: sciml.Interval(x=(0, 1)).inner(), "exactly one coordinate"),
        (lambda: sciml.Disk((0, 0), 1).inner(x=0), "no such face"),
        (lambda: sciml.equation(on=0.5), "on= must be a domain"),
        (lambda: sciml.condition(on=LEFT), "must be a region such as"),
    ],
)
def test_what_is_no_interface_is_refused(make, words):
    with pytest.raises(ProblemError, match=words):
        make()


def test_parts_lie_inside_the_domain():
    class Beyond(Wall):
        @sciml.equation(on=sciml.Interval(x=(0.4, 2)))
        def in_wool(self, v, x):
            return d(v, x, x)

    with pytest.raises(ProblemError, match="the part of equation 'in_wool' must lie inside the domain"):
        Beyond().terms()

    class Timeless(Warming):
        @sciml.equation(on=LEFT)
        def left(self, u, x, t):
            return d(u, t)

    with pytest.raises(ProblemError, match="and have its coordinates 'x', 't', time among them"):
        Timeless().terms()


def test_normals_are_given_to_conditions_that_ask_for_them():
    class Asked(sciml.Problem):
        domain = sciml.Disk((0, 0), 1)
        fields = ["u"]

        @sciml.equation
        def poisson(self, u, x, y):
            return sciml.laplacian(u, x, y) + 4.0

        @sciml.condition(on=domain.boundary)
        def slope(self, u, x, y, normal):
            return normal[0] * d(u, x) + normal[1] * d(u, y) + u + 2.0

        def reference(self, x, y):
            return 1 - x * x - y * y + 0 * x

    solution = sciml.fit(Asked())
    # u_n + u + 2 = -2 + 0 + 2 at the rim.
    assert solution.error()["u"] < 1e-9

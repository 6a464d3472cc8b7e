"""Baselines on domains that are no boxes: finite differences on scattered nodes against exact solutions."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d, laplacian
from sciml.errors import BaselineError
from sciml.gallery import problem_class
from sciml.geometry.nodes import scattered
from sciml.models import GridFunction, PiecewiseBasis
from sciml.models.scattered import ScatteredBasis, ScatteredNodes

PLATE = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.4, 0.5), 0.2)
DISK = sciml.Disk((0, 0), 1)


@pytest.mark.parametrize(
    "domain", [PLATE, sciml.Polygon([(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]), sciml.Ball((0, 0, 0), 1)], ids=repr
)
def test_nodes_are_evenly_spread(domain):
    spacing = 0.1
    points, sides = scattered(domain, spacing, domain.sides)
    boundary = np.concatenate([own.numbers for own in sides.values()])
    assert len(np.unique(boundary)) == len(boundary)
    distance = domain.distance(points)
    assert np.abs(distance[boundary]).max() < 1e-8
    assert np.delete(distance, boundary).max() < 0
    away = np.sqrt(np.square(points[:, None] - points[None]).sum(axis=2)) + 10 * np.eye(len(points))
    assert away.min() > 0.4 * spacing
    # Nowhere in the domain is a node farther than the lattice's holes are wide.
    probes, inside = domain.inside(np.random.default_rng(0).random((500, len(domain.bounds))))
    gaps = np.sqrt(np.square(probes[inside][:, None] - points[None]).sum(axis=2)).min(axis=1)
    assert gaps.max() < 1.2 * spacing
    for own in sides.values():
        assert np.allclose(np.linalg.norm(own.normals, axis=1), 1)
        assert domain.distance(points[own.numbers] - 1e-3 * own.normals).max() < 0


def test_nodes_are_denser_at_small_holes():
    domain = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.02)
    points, sides = scattered(domain, 0.05, domain.sides)
    hole = next(own for side, own in sides.items() if side.describe(domain) == "circle")
    assert hole.spacing == pytest.approx(0.05 * 0.02 / 0.125, rel=0.02)
    away = np.hypot(*(points - 0.5).T)
    gaps = np.sqrt(np.square(points[:, None] - points[None]).sum(axis=2)) + np.eye(len(points))
    nearest = gaps.min(axis=1)
    assert nearest[away < 0.03].max() < 0.013
    assert nearest[away > 0.35].min() > 0.02
    # Between them distances grow gradually: no neighbours of very different ones.
    near = np.argsort(gaps, axis=1)[:, :6]
    assert (nearest[near].max(axis=1) / nearest).max() < 3


@pytest.mark.parametrize(("dimension", "degree"), [(2, 4), (2, 6), (3, 4)])
def test_differences_are_exact_for_polynomials(dimension, degree):
    generator = np.random.default_rng(0)
    nodes = generator.random((400, dimension))
    basis = ScatteredBasis(nodes, degree)
    powers = [degree - 2, 2, 0][:dimension]

    def derivative(points, orders):
        found = np.ones(len(points))
        for column, (power, order) in enumerate(zip(powers, orders, strict=True)):
            found *= math.perm(power, order) * points[:, column] ** max(power - order, 0)
        return found

    orders = [(0, 0, 0), (1, 0, 0), (0, 2, 0), (1, 1, 0)]
    for order in (each[:dimension] for each in orders):
        places = 0.2 + 0.6 * generator.random((60, dimension))
        numbers, factors = basis.table(torch.from_numpy(places), order)
        found = (factors * torch.from_numpy(derivative(nodes, (0,) * dimension))[numbers]).sum(dim=1).numpy()
        assert np.allclose(found, derivative(places, order), atol=1e-7)
        if sum(order):
            matrix = basis.matrices()[order]
            assert np.allclose(matrix @ derivative(nodes, (0,) * dimension), derivative(nodes, order), atol=1e-5)


def test_a_function_of_scattered_nodes_and_time():
    nodes = ScatteredNodes(PLATE, 0.05, 6, PLATE.sides)
    times = np.linspace(0, 1, 3)
    x, y = nodes.points.T
    # u = t sin x e^y, value and slope at each knot.
    values = np.stack([np.sin(x) * np.exp(y) * (t if which == 0 else 1.0) for t in times for which in (0, 1)], axis=1)
    (basis,) = nodes.axes.values()
    u = GridFunction([basis, PiecewiseBasis(times, 3, 2, scaled=False)], torch.from_numpy(values[:, :, None]))
    at = torch.tensor([[0.1, 0.2, 0.3], [0.8, 0.7, 0.9]], dtype=torch.float64)
    exact = at[:, 2] * at[:, 0].sin() * at[:, 1].exp()
    assert torch.allclose(u(at)[:, 0], exact, atol=1e-8)
    assert torch.allclose(u.partial(at, (0, 2, 1))[:, 0], exact / at[:, 2], atol=1e-4)
    again = GridFunction.from_config(**u.config)
    again.load_state_dict(u.state_dict())
    assert torch.equal(again(at), u(at))


class Warm(sciml.Problem):
    """Heat on a plate with a hole, a value outside and air in the hole."""

    domain = PLATE * sciml.Interval(t=(0, 0.2))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(2 * x) * torch.cos(y)),
        sciml.Dirichlet(u=lambda self, x, y, t: self.exact(x, y, t), on=domain.boundary - domain.piece("circle")),
        sciml.Robin(u=lambda self, x, y, t: self.flux(x, y, t), coefficient=2.0, on=domain.piece("circle")),
    ]

    def exact(self, x, y, t):
        return torch.sin(2 * x) * torch.cos(y) * torch.exp(-5 * t)

    def flux(self, x, y, t):
        out = (0.4 - x) / 0.2, (0.5 - y) / 0.2
        slope = out[0] * 2 * torch.cos(2 * x) * torch.cos(y) - out[1] * torch.sin(2 * x) * torch.sin(y)
        return slope * torch.exp(-5 * t) + 2.0 * self.exact(x, y, t)

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - laplacian(u, x, y)

    def reference(self, x, y, t):
        return self.exact(x, y, t)


def test_heat_round_a_hole_is_stable_and_right(tmp_path):
    solution = sciml.baseline(Warm(), tolerance=1e-4, n=30)
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-5
    assert solution.solver.startswith("method of lines (scattered, ")
    solution.save(tmp_path / "warm.sciml")
    assert sciml.load(tmp_path / "warm.sciml")(x=0.1, y=0.1, t=0.1) == solution(x=0.1, y=0.1, t=0.1)


def test_nonlinear_problems_at_rest():
    class Bratu(sciml.Problem):
        """With the solution u = log(8 / (1 + x² + y²)²) of u_xx + u_yy + e^u = 0."""

        domain = DISK - sciml.Disk((0.2, 0.1), 0.3, piece="hole")
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda self, x, y: self.reference(x, y), on=domain.boundary)]

        @sciml.equation
        def balance(self, u, x, y):
            return laplacian(u, x, y) + torch.exp(u)

        def reference(self, x, y):
            return torch.log(8 / (1 + x**2 + y**2) ** 2)

    solution = sciml.baseline(Bratu())
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-6


def test_a_body_in_space():
    solution = sciml.baseline(problem_class("heat_body")(), tolerance=1e-4)
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-4


class Shape(sciml.Problem):
    domain = DISK
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=DISK.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return laplacian(u, x, y) + 1


class FirstOrder(Shape):
    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x) + u


class Level(Shape):
    conditions = [sciml.Neumann(u=-0.5, on=DISK.boundary), sciml.Mean(u=0.0)]


class Twice(Shape):
    conditions = [sciml.Dirichlet(u=0.0, on=DISK.boundary), sciml.Neumann(u=-0.5, on=DISK.boundary)]


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        (Shape, {"method": "chebyshev"}, "no tensor-product grid lies; use 'differences'"),
        (Shape, {"n": 4000}, "are too many; 400 are possible"),
        (FirstOrder, {}, "differentiated 1 time"),
        (Level, {}, "is a mean, which scattered nodes do not hold"),
        (Twice, {}, "too many conditions on circle"),
        (problem_class("heat_composite"), {}, "a grid of one piece cannot tell parts apart"),
        (problem_class("heat_ball_5d"), {}, "coordinates"),
    ],
)
def test_what_scattered_nodes_do_not_hold(problem, options, words):
    with pytest.raises(BaselineError, match=words):
        sciml.baseline(problem(), preflight="off", **options)


def test_nodes_on_a_line_are_refused_with_the_reason():
    nodes = np.stack([np.linspace(0, 1, 60), np.zeros(60)], axis=1)
    with pytest.raises(BaselineError, match="determine no polynomial of degree 4"):
        ScatteredBasis(nodes, 4).matrices()

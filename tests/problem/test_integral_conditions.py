"""Conditions that couple points: means and integrals, one row each."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ProblemError
from sciml.geometry import Average, Interior, OnFaces, draw
from sciml.solvers.jacobian import jacobian
from sciml.strategies.prepare import prepare
from sciml.strategies.time_marching import not_in_windows

ELL = [(0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1)]
FRAME = [(0, 0), (2, 0), (2, 2), (0, 2)]
CUT = sciml.Polygon(ELL) - sciml.Disk((-0.5, 0.5), 0.1)
HOLE = [(0.5, 0.5), (1.5, 0.5), (1.5, 1.0), (0.5, 1.0)]


class Free(sciml.Problem):
    """Poisson's equation with slopes given all around: the solution is given up to a constant."""

    domain = sciml.Box(x=(0, 1), y=(0, 2))
    fields = ["u"]
    conditions = [sciml.Neumann(u=0.0, on=domain.boundary), sciml.Mean(u=3.0)]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + torch.pi**2 * torch.cos(torch.pi * x)

    def reference(self, x, y):
        return 3 + torch.cos(torch.pi * x)


class Edge(Free):
    conditions = [sciml.Neumann(u=0.0, on=Free.domain.boundary), sciml.Mean(u=lambda x: x, on=Free.domain.face(x=1))]

    def reference(self, x, y):
        return 2 + torch.cos(torch.pi * x)


class Total(Free):
    conditions = [sciml.Neumann(u=0.0, on=Free.domain.boundary), sciml.Integral(u=6.0)]


class Circumference(Free):
    """On a disk, the integral along its edge."""

    domain = sciml.Disk((0, 0), 2)
    conditions = [sciml.Neumann(u=-1.0, on=domain.boundary), sciml.Integral(u=4 * math.pi, on=domain.piece("circle"))]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 1

    def reference(self, x, y):
        return 2 - (x * x + y * y) / 4


@pytest.mark.parametrize(("problem", "target"), [(Free, 1e-10), (Edge, 1e-10), (Total, 1e-10), (Circumference, 1e-10)])
def test_a_mean_determines_the_constant(problem, target):
    solution = sciml.fit(problem())
    assert solution.success
    assert solution.error()["u"] <= target
    assert solution.residuals["points"].iloc[-1] == 1


@pytest.mark.slow
def test_a_network_meets_a_mean_too():
    solution = sciml.fit(Free(), sciml.MLP(12, 12), solver=sciml.LeastSquares(60), points=200)
    assert solution.error()["u"] < 1e-3


def prepared(model=None):
    return prepare(Free(), model or sciml.MLP(6), None, 100, None, torch.float64, "cpu", 0)


def test_a_mean_is_one_row_however_points_are_parted():
    setup = prepared()
    parameters = list(setup.trial.parameters())
    factors = dict.fromkeys(setup.scales, 1.0)
    values, slopes = jacobian(setup.rows, setup.train, factors, parameters)
    again = jacobian(setup.rows, setup.train, factors, parameters, chunk=4096)
    block = setup.train[-1]
    assert (block.height, block.size) == (1, 100)
    assert len(values) == 100 + setup.train[1].size + 1
    assert torch.allclose(values, again[0], atol=1e-13)
    assert torch.allclose(slopes, again[1], atol=1e-13)
    (mean,) = setup.rows.residuals([block]).values()
    assert values[-1] == pytest.approx(float(mean.detach()), abs=1e-13)
    gradients = torch.autograd.grad(mean.sum(), parameters)
    assert torch.allclose(slopes[-1], torch.cat([each.reshape(-1) for each in gradients]), atol=1e-13)


@pytest.mark.parametrize(
    ("domain", "region", "integrand", "mean", "tolerance"),
    [
        (sciml.Box(x=(0, 1), y=(0, 2)), None, lambda x, y: np.exp(x) * y, math.e - 1, 1e-13),
        (sciml.Box(x=(0, 1), y=(0, 2)), "boundary", lambda x, y: y, 1.0, 1e-3),
        (sciml.Disk((0, 0), 1), None, lambda x, y: x * x + y * y + x * y, 0.5, 1e-13),
        (sciml.Disk((0, 0), 1), None, lambda x, y: np.exp(x), 2 * 0.5651591039924850, 1e-13),
        (sciml.Polygon([(0, 0), (3, 0), (0, 3)]), None, lambda x, y: x, 1.0, 1e-13),
        (sciml.Polygon(ELL), None, lambda x, y: x * y, 1 / 12, 1e-12),
        (
            sciml.Polygon(ELL[::-1], names=("y", "x")),
            None,
            lambda x, y: np.exp(x),
            (math.e - 2 / math.e + 1) / 3,
            1e-12,
        ),
        (sciml.Polygon(FRAME, holes=[HOLE]), None, lambda x, y: x * x * y, (16 / 3 - 13 / 32) / 3.5, 1e-12),
        (CUT, None, lambda x, y: x, (0.005 * math.pi - 0.5) / (3 - 0.01 * math.pi), 1e-10),
        (
            sciml.Polygon([(0, 0), (3, 0), (0, 4)]),
            "boundary",
            lambda x, y: x + 2 * y,
            (3 * 1.5 + 4 * 4 + 5 * 5.5) / 12,
            2e-3,
        ),
    ],
)
def test_quadrature(domain, region, integrand, mean, tolerance):
    over = Interior() if region is None else OnFaces(domain.boundary.resolve(domain, None))
    sample = draw(Average(over), domain, 1024, np.random.default_rng(0))
    assert float(sample.quadrature.sum()) == pytest.approx(1)
    found = float(sample.quadrature @ torch.from_numpy(integrand(*sample.points[0].numpy().T)))
    assert found == pytest.approx(mean, rel=tolerance)


def test_quadrature_in_three_coordinates():
    ball = sciml.Ball((1, 0, 0), 2)
    points, quadrature = ball.quadrature(4000)
    assert (quadrature > 0).all()
    assert quadrature @ (points[:, 0] ** 2 + points[:, 1] * points[:, 2]) == pytest.approx(1 + 4 / 5, rel=1e-13)
    cylinder = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 2))
    points, quadrature = cylinder.quadrature(4000)
    assert 2000 < len(points) < 8000
    assert cylinder.contains(points).all()
    assert quadrature @ (points[:, 0] ** 2 * points[:, 2] ** 3) == pytest.approx(0.25 * 2, rel=1e-13)
    assert (sciml.Ball((0, 0, 0), 1) - sciml.Ball((0, 0, 0), 0.5)).quadrature(100) is None


def test_means_are_refused_where_they_make_no_sense():
    with pytest.raises(ProblemError, match="Mean names 'v'"):
        type("Bad", (Free,), {"conditions": [sciml.Mean(v=0.0)]})
    with pytest.raises(ProblemError, match="on= must be a region"):
        sciml.Integral(u=0.0, on="edge")


def test_a_mean_over_time_is_not_cut_into_windows():
    class Rod(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=1.0), sciml.Neumann(u=0.0, on=domain.boundary), sciml.Mean(u=1.0, each_time=False)]

        @sciml.equation
        def conduction(self, u, x, t):
            return d(u, t) - d(u, x, x)

    assert not_in_windows(Rod(), False) == "the condition 'mean' is about other times than the start"


class Pressed(sciml.Problem):
    """A pressure whose gradient alone the equation gives, at each time."""

    domain = sciml.Box(x=(0, 2 * math.pi), t=(0, 1))
    fields = ["p"]
    conditions = [sciml.Periodic("x"), sciml.Mean(p=2.0)]

    @sciml.equation
    def gradient(self, p, x, t):
        return d(p, x) - torch.cos(x) * torch.exp(-t)

    def reference(self, x, t):
        return 2.0 + torch.sin(x) * torch.exp(-t)


@pytest.mark.parametrize(
    "level",
    [
        sciml.Mean(p=2.0),
        sciml.Integral(p=4 * math.pi),
        sciml.Point(p=2.0, at={"x": 0.0}),
        sciml.Point(p=lambda t: 2.0 + torch.exp(-t), at={"x": math.pi / 2}),
    ],
)
def test_a_level_holds_at_each_time(level):
    solution = sciml.fit(type("Levelled", (Pressed,), {"conditions": [sciml.Periodic("x"), level]})())
    assert solution.success
    assert solution.error()["p"] < 1e-9


@pytest.mark.parametrize(
    "levels",
    [[], [sciml.Mean(p=2.0, each_time=False)], [sciml.Point(p=2.0, at={"x": 0.0, "t": 0.5})]],
)
def test_what_is_free_at_each_time_is_no_success(levels):
    problem = type("Loose", (Pressed,), {"conditions": [sciml.Periodic("x"), *levels]})()
    with pytest.warns(sciml.ConditionWarning, match="up to a function of t"):
        solution = sciml.fit(problem)
    assert not solution.success
    assert "p is determined up to a function of t" in solution.message


def test_a_mean_at_each_time_where_no_rule_gives_it():
    """Over a part of the boundary, and on a domain with a hole, the same points at several times."""
    ring = (sciml.Disk((0, 0), 2) - sciml.Disk((0, 0), 1)) * sciml.Interval(t=(0, 3))
    for over in (Interior(), OnFaces(ring.boundary.resolve(ring, "t", ()))):
        sample = draw(Average(over, "t"), ring, 400, np.random.default_rng(0))
        (points,), rows = sample.points, sample.quadrature
        assert rows.shape[1] == len(points)
        assert torch.allclose(rows.sum(1), torch.ones(len(rows), dtype=torch.float64))
        times = rows @ points[:, 2]
        assert float(times.diff().min()) > 0
        assert bool(((rows > 0) * (points[:, 2] - times[:, None]).abs() < 1e-12).all())
        assert float((rows @ points[:, 0]).abs().max()) < 0.1


def test_a_level_at_each_time_with_an_unknown_constant():
    class Fading(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        rate = sciml.Unknown(2.0)
        conditions = [
            sciml.Point(u=lambda t: torch.exp(-t), at={"x": 0.0}),
            sciml.Initial(u=lambda x: torch.exp(0.7 * x)),
        ]

        @sciml.equation
        def fading(self, u, x, t):
            return d(u, t) + self.rate * u

    generator = np.random.default_rng(0)
    x, t = generator.uniform(size=(2, 200))
    u = np.exp(0.7 * x - t) + 1e-3 * generator.standard_normal(200)
    (estimate,) = sciml.fit(Fading(), data={"x": x, "t": t, "u": u}).unknowns.itertuples()
    assert abs(estimate.estimate - 1.0) < 4 * estimate.standard_error < 0.01

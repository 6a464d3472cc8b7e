"""Grids: differentiation matrices, functions between nodes, and Jacobians made of both."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime

import sciml
from sciml import d
from sciml.baselines.collocation import CollocationSystem
from sciml.baselines.integrate import Budget
from sciml.baselines.method_of_lines import MethodOfLines
from sciml.errors import ModelError
from sciml.models import Chebyshev, FiniteDifferences, Fourier, Grid, GridFunction, PiecewiseBasis
from sciml.models.bases import axis_from

PI = math.pi


def smooth(x, order=0):
    """exp(sin x) on [0, 2 pi], and its first derivatives."""
    value, slope = np.exp(np.sin(x)), np.cos(x)
    bend = -np.sin(x)
    return value * [1, slope, bend + slope**2, -slope + 3 * bend * slope + slope**3][order]


@pytest.mark.parametrize("axis", [Chebyshev(0, 2 * PI, 41), Fourier(0, 2 * PI, 41)], ids=["chebyshev", "fourier"])
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_spectral_axes_are_exact(axis, order):
    # Derivatives at the ends cost digits, n**2 of them each: that is rounding, and in the nature of these nodes.
    rounding = 1e-13 * (100 + len(axis) ** (2 * order))
    assert np.abs(axis.matrix(order) @ smooth(axis.nodes) - smooth(axis.nodes, order)).max() < rounding
    between = torch.linspace(0.1, 6.2, 57, dtype=torch.float64)
    _, table = axis.table(between, order)
    assert np.abs((table @ torch.from_numpy(smooth(axis.nodes))).numpy() - smooth(between.numpy(), order)).max() < rounding


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("theory", [2, 4, 6])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_differences_have_their_order(theory, order, periodic):
    def error(count):
        axis = FiniteDifferences(0, 2 * PI, count - periodic, theory, periodic=periodic)
        return np.abs(axis.matrix(order) @ smooth(axis.nodes) - smooth(axis.nodes, order)).max()

    observed = math.log2(error(129) / error(257))
    assert observed == pytest.approx(theory, abs=0.3) or observed > theory


def test_quadratures():
    for axis in (Chebyshev(0, 2, 12), FiniteDifferences(0, 2, 65)):
        assert axis.weights @ np.exp(axis.nodes) == pytest.approx(math.exp(2) - 1, rel=1e-6)
    assert Fourier(0, 2 * PI, 9).weights @ np.cos(2 * Fourier(0, 2 * PI, 9).nodes + 1) == pytest.approx(0, abs=1e-14)


def test_few_nodes_are_refused():
    with pytest.raises(ModelError, match="order 4 need at least 10 nodes; given: 5"):
        FiniteDifferences(0, 1, 5)


@pytest.mark.parametrize(
    "axes",
    [
        {"x": Chebyshev(0, 1, 12), "y": Chebyshev(-1, 1, 14)},
        {"x": Chebyshev(0, 1, 12), "y": FiniteDifferences(-1, 1, 81, 6)},
        {"x": FiniteDifferences(0, 1, 61, 6), "y": FiniteDifferences(-1, 1, 71, 6)},
    ],
    ids=["far", "mixed", "near"],
)
def test_functions_and_matrices_say_the_same(axes):
    grid = Grid(axes)
    x, y = grid.points.T
    values = np.stack([np.sin(x) * np.cos(y), np.exp(x * y)], axis=1)
    function = GridFunction(list(axes.values()), torch.from_numpy(values.reshape(*grid.shape, 2)))
    generator = np.random.default_rng(0)
    points = np.array([0.0, -1.0]) + generator.random((40, 2)) * np.array([1.0, 2.0])
    at = torch.from_numpy(points)
    for index, orders in (((), (0, 0)), (("x",), (1, 0)), (("x", "y"), (1, 1)), (("y", "y"), (0, 2))):
        by_matrix = grid.at_points(points).operator(index) @ values
        assert np.abs(function.partial(at, orders).numpy() - by_matrix).max() < 1e-10
    assert torch.allclose(function(at)[:, 0], torch.sin(at[:, 0]) * torch.cos(at[:, 1]), atol=1e-7)
    # Values differentiate by the points, as those of any trial function.
    at.requires_grad_()
    (slope,) = torch.autograd.grad(function(at)[:, 0].sum(), at)
    assert torch.allclose(slope[:, 0], function.partial(at.detach(), (1, 0))[:, 0], atol=1e-10)
    again = GridFunction.from_config(**function.config)
    again.load_state_dict(function.state_dict())
    assert torch.equal(again(at), function(at))


def test_knots_are_cubic_pieces():
    axis = axis_from(PiecewiseBasis(np.array([0.0, 0.3, 1.0]), 3, 2, scaled=False).config)
    jets = np.stack([axis.nodes**3 - axis.nodes, 3 * axis.nodes**2 - 1], axis=1).ravel()
    cubic = GridFunction([axis], torch.from_numpy(jets[:, None]))
    at = torch.linspace(0, 1, 23, dtype=torch.float64)[:, None]
    assert torch.allclose(cubic(at), at**3 - at, atol=1e-14)
    assert torch.allclose(cubic.partial(at, (2,)), 6 * at, atol=1e-12)
    assert repr(axis_from({"kind": "knots", "nodes": [0.0, 0.3, 1.0]})) == repr(axis)


def test_faces_and_layers():
    grid = Grid({"x": Chebyshev(0, 1, 5), "y": Chebyshev(0, 2, 7)})
    box = sciml.Box(x=(0, 1), y=(0, 2))
    (upper,) = box.face(x=1).resolve(box, None)
    assert (grid.points[grid.layer(upper), 0] == 1).all()
    assert np.allclose(grid.points[grid.layer(upper, 2), 0], grid.axes["x"].nodes[2])
    assert grid.face_weights(upper).sum() == pytest.approx(2.0)
    assert grid.weights @ (grid.points[:, 0] * grid.points[:, 1]) == pytest.approx(1.0)


class Steady(sciml.Problem):
    """Two coupled nonlinear equations with every kind of condition and an unknown constant."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u", "v"]
    k = sciml.Unknown(0.7, lower=0)
    conditions = [
        sciml.Dirichlet(u=lambda x: x, on=domain.faces("y")),
        sciml.Robin(u=1.0, coefficient=2.0, on=domain.faces("x")),
        sciml.Neumann(v=0.5, on=domain.boundary),
        sciml.Mean(v=0.3),
        sciml.Point(v=0.2, at={"x": 0.3, "y": 0.6}),
    ]

    @sciml.equation
    def one(self, u, v, x, y):
        return d((1 + u**2) * d(u, x), x) + self.k * d(u, y, y) + v * d(u, y)

    @sciml.equation
    def other(self, u, v, x, y):
        return d(v, x, x) + d(v, y, y) + torch.sin(u * v) - d(u, x, y)


def test_the_jacobian_of_a_steady_problem_is_exact():
    problem, grid = Steady(), Grid({"x": Chebyshev(0, 1, 5), "y": FiniteDifferences(0, 1, 10, 4)})
    rows = CollocationSystem(problem, grid, [], {}, np.ones(len(problem.fields)), Budget(60.0))
    start = np.random.default_rng(0).uniform(0.5, 1.5, 2 * grid.size + 1)
    start[-1] = 0.2

    def at(z):
        return rows.rows(z)[0]

    exact = rows.rows(start)[1].toarray()
    differences = approx_fprime(start, at, 1e-7)
    assert np.abs(exact - differences).max() < 1e-5 * np.abs(exact).max()


class Moving(sciml.Problem):
    """Second order in time beside first order, a mass that depends on the state, a mixed derivative, conditions in motion."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(PI * x), u_t=0.3, v=lambda x: 1 + x),
        sciml.Dirichlet(u=lambda t: torch.sin(t), on=domain.face(x=0)),
        sciml.Neumann(u=lambda t: t**2, on=domain.face(x=1)),
        sciml.Robin(v=1.0, coefficient=0.4, on=domain.faces("x")),
    ]

    @sciml.equation
    def wave(self, u, v, x, t):
        return (1 + v**2) * d(u, t, t) - d(u, x, x) + 0.1 * d(u, t) * u - 0.05 * d(u, x, x, t)

    @sciml.equation
    def heat(self, u, v, x, t):
        return d(v, t) + 0.3 * d(v, x, t) - d(v, x, x) + u * d(v, x)


@pytest.mark.parametrize("axis", [Chebyshev(0, 1, 9), FiniteDifferences(0, 1, 12, 4)], ids=["chebyshev", "differences"])
def test_the_jacobian_of_the_method_of_lines_is_exact(axis):
    lines = MethodOfLines(Moving(), Grid({"x": axis}), {})
    y = np.random.default_rng(0).uniform(0.5, 1.5, lines.size)
    exact = lines.jacobian(0.3, y)
    exact = exact if isinstance(exact, np.ndarray) else exact.toarray()
    differences = approx_fprime(y, lambda z: lines.rate(0.3, z), 1e-7)
    assert np.abs(exact - differences).max() < 1e-5 * np.abs(exact).max()


def test_the_start_agrees_with_the_conditions():
    """At the ends values are what the conditions say, whatever Initial says."""

    class Clash(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=0.0),
            sciml.Dirichlet(u=1.0, on=domain.face(x=0)),
            sciml.Neumann(u=2.0, on=domain.face(x=1)),
        ]

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x)

    lines = MethodOfLines(Clash(), Grid({"x": FiniteDifferences(0, 1, 21)}), {})
    start = lines.start()
    assert start[0] == 1.0
    assert (lines.grid.matrix(("x",)) @ start)[-1] == pytest.approx(2.0)
    assert (start[1:-1] == 0).all()

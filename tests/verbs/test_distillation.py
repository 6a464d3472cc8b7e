"""One network in the place of a solution in pieces, and how far it is from it."""

import numpy as np
import pytest
import torch
from conftest import problem_class

import sciml
from sciml import d
from sciml.errors import ModelError, ProblemError, SolverError


class Decay(sciml.Problem):
    domain = sciml.Interval(t=(0, 2))
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=1.0, v=1e3)]

    @sciml.equation
    def first(self, u, t):
        return d(u, t) + u

    @sciml.equation
    def second(self, v, t):
        return d(v, t) + 2 * v


@pytest.fixture(scope="module")
def burgers():
    return sciml.fit(problem_class("burgers")(nu=0.05))


def test_a_windowed_solution_becomes_one_encoder(burgers):
    points = {"x": [-0.5, 0.2], "t": [0.3, 0.6]}
    with pytest.raises(ModelError, match=r"sciml\.distil"):
        sciml.embed(burgers, points)
    network = sciml.distil(burgers, sciml.MLP(12, 12), points=500, solver=sciml.LeastSquares(60), tolerance=0.02)
    assert network.success
    row = network.residuals.loc["distance.u"]
    assert row["relative"] < 0.02
    # What is said of the distance is so on other points too, against the equations' own solution.
    assert network.error()["u"] == pytest.approx(row["relative"], rel=0.5)
    assert f"{row['relative']:.1e}" in network.message
    z = sciml.embed(network, points, jets=["x", "t"])
    assert z.shape == (2, 36)
    assert network.problem is burgers.problem
    assert "Burgers, Windowed" in network.choices[-1]


def test_a_network_that_is_too_small_is_no_success_and_says_by_how_much(burgers):
    network = sciml.distil(burgers, sciml.MLP(1), points=100, solver=sciml.LeastSquares(10), tolerance=1e-3)
    assert not network.success
    assert "more than 0.001: try a larger model" in network.message


@pytest.mark.slow
def test_a_grid_is_distilled_with_its_derivatives():
    grid = sciml.baseline(Decay())
    plain, sloped = (
        sciml.distil(grid, sciml.MLP(8), points=60, jets=jets, solver=sciml.LeastSquares(100))
        for jets in ((), ["t", ("t", "t")])
    )
    assert plain.success
    assert sloped.success
    assert sloped.residuals.index.tolist() == [
        "distance.u", "distance.u_t", "distance.u_t_t", "distance.v", "distance.v_t", "distance.v_t_t",
    ]  # fmt: skip
    t = torch.linspace(0, 2, 50, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(sloped(t=t)["v"].sum(), t)[0].numpy()
    exact = -2e3 * np.exp(-2 * t.detach().numpy())
    assert np.linalg.norm(slope - exact) / np.linalg.norm(exact) < 0.01


@pytest.mark.slow
def test_windows_of_features_are_distilled_with_their_slopes():
    growth = sciml.fit(problem_class("logistic_growth")())
    assert "Windowed" in growth.title
    network = sciml.distil(growth, sciml.MLP(10), points=80, jets=["t"], solver=sciml.LeastSquares(60))
    assert network.success
    assert len(network.residuals) == 2


def test_a_bad_solution_stays_one():
    bad = sciml.fit(Decay(), sciml.MLP(4), solver=sciml.Adam(2))
    assert not bad.success
    network = sciml.distil(bad, sciml.MLP(6), points=60, solver=sciml.LeastSquares(50))
    assert not network.success
    assert "that solution was no success itself" in network.message


def test_it_is_the_same_twice_and_can_be_kept(tmp_path):
    grid = sciml.baseline(Decay())
    first, second = (sciml.distil(grid, sciml.MLP(4), points=30, solver=sciml.LeastSquares(5)) for _ in range(2))
    assert np.array_equal(first(t=0.7)["u"], second(t=0.7)["u"])
    again = sciml.load(first.save(tmp_path / "network.pt"))
    assert sciml.embed(again, {"t": [0.7]}).equals(sciml.embed(first, {"t": [0.7]}))
    assert again.residuals.equals(first.residuals)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"points": 3}, ProblemError, "at least 8"),
        ({"jets": ["x"]}, ProblemError, "of 't'"),
        ({"jets": 3}, ProblemError, "given: 3"),
        ({"jets": [None]}, ProblemError, r"given: \[None\]"),
        ({"tolerance": 0.0}, SolverError, "must be a positive number"),
        ({"tolerance": "a"}, SolverError, "must be a positive number"),
        ({"seed": -1}, SolverError, "seed must be a whole number of at least 0; given: -1"),
        ({"seed": "a"}, SolverError, "seed must be a whole number"),
    ],
)
def test_misuse_is_told(options, error, words):
    with pytest.raises(error, match=words):
        sciml.distil(sciml.baseline(Decay()), **options)
    with pytest.raises(ProblemError, match="a solution of fit or baseline"):
        sciml.distil(sciml.MLP(3))

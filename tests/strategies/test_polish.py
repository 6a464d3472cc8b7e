"""Gauss-Newton on kept features, and deep polish: features of what a network has learned."""

from __future__ import annotations

import pytest
import torch
from candidates import workspace
from conftest import problem_class

import sciml
from problems import Rod
from sciml import d
from sciml.jets import LinearJets, TaylorJets
from sciml.jets.linear import output_layer
from sciml.models import DeepFeatures, RandomFeatures
from sciml.solvers import Objective
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Log
from sciml.strategies.training import held_out


class Bratu(sciml.Problem):
    """A nonlinear boundary-value problem in the plane, with a source that makes sin sin its solution."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ("u",)
    conditions = (sciml.Dirichlet(u=0.0, on=domain.boundary),)

    @sciml.equation
    def balance(self, u, x, y):
        wave = torch.sin(torch.pi * x) * torch.sin(torch.pi * y)
        return d(u, x, x) + d(u, y, y) + torch.exp(u) + 2 * torch.pi**2 * wave - torch.exp(wave)

    def reference(self, x, y):
        return torch.sin(torch.pi * x) * torch.sin(torch.pi * y)


class Front(sciml.Problem):
    """Burgers' equation whose solution is a travelling front, u = 1/2 - tanh((x - t/2)/(4 nu))/2."""

    domain = sciml.Box(x=(-1, 1), t=(0, 0.5))
    fields = ("u",)
    viscosity = 0.02

    @staticmethod
    def front(x, t):
        return 0.5 - 0.5 * torch.tanh((x - 0.5 * t) / 0.08)

    conditions = (
        sciml.Initial(u=lambda x: Front.front(x, 0.0)),
        sciml.Dirichlet(u=lambda x, t: Front.front(x, t), on=domain.faces("x")),
    )

    @sciml.equation
    def momentum(self, u, x, t):
        return d(u, t) + u * d(u, x) - self.viscosity * d(u, x, x)

    def reference(self, x, t):
        return self.front(x, t)


def _setup(model, points=120):
    return prepare(Front(), model, None, points, None, torch.float64, "cpu", 0)


def test_deep_features_begin_as_the_network():
    network = sciml.MLP(7, 5, inputs=2, outputs=2).double()
    deep = DeepFeatures(network, 40, scale=2.0)
    points = torch.randn(9, 2, dtype=torch.float64)
    assert torch.allclose(deep(points), network(points), rtol=1e-13, atol=1e-14)
    assert [tuple(p.shape) for p in deep.parameters() if p.requires_grad] == [(2, 45), (2,)]
    # The network that was given can go on being trained, or be polished again with another scale.
    assert all(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf")])
def test_deep_features_need_sense(scale):
    with pytest.raises(sciml.errors.ModelError, match="scale"):
        DeepFeatures(sciml.MLP(4, inputs=1, outputs=1), 10, scale)
    with pytest.raises(sciml.errors.ModelError, match="trained"):
        DeepFeatures(sciml.MLP(4), 10)


@pytest.mark.parametrize("kind", ["random", "deep"])
def test_kept_features_give_the_jets_of_a_pass_through_everything(kind):
    model = RandomFeatures(30, 2.0)
    setup = _setup(model)
    if kind == "deep":
        network = sciml.MLP(6, 6)
        setup = sciml.Polish(features=20).begin(_setup(network), 0.7, 0)
    last = output_layer(setup.trial)
    with torch.no_grad():
        last.weight.copy_(torch.randn(last.weight.shape, dtype=torch.float64))
    block = setup.train[0]
    plan = [(), ("t",), ("x",), ("x", "x")]
    points = block.sample.points[0]
    kept = setup.rows.supplier(points, plan)
    whole = TaylorJets(setup.trial, points, ("x", "t"), ("u",), plan)
    assert isinstance(kept, LinearJets)
    for index in plan:
        assert torch.allclose(kept.jet("u", index), whole.jet("u", index), rtol=1e-11, atol=1e-11)
    # A second request costs a product with the kept matrices, not another pass.
    assert setup.rows.supplier(points, plan).features is kept.features


def test_kept_features_are_forgotten_with_their_points():
    setup = _setup(RandomFeatures(10, 2.0))
    objective = Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)
    objective.value()
    known = len(setup.rows._kept)
    fresh = setup.draw(60, __import__("numpy").random.default_rng(5))
    objective.terms(fresh)
    assert len(setup.rows._kept) > known
    del fresh
    assert len(setup.rows._kept) == known


@pytest.mark.parametrize("weight", [8.0, 10.0, 11.64, 14.0])
def test_gauss_newton_solves_a_nonlinear_problem_to_rounding(weight):
    """Whatever a condition weighs: steps by an old triangle, whose rounding may lower the loss by chance, must contract."""
    model, solver = sciml.RandomFeatures(250, 3.0), sciml.GaussNewton(rank_tolerance=0.0)
    solution = sciml.fit(Bratu(), model, solver=solver, points=900, sampler=None, weights={"dirichlet": weight})
    assert solution.residuals["relative"].max() < 1e-8
    assert solution.status == "converged"
    assert solution.error()["u"] < 1e-9


def test_auto_chooses_features_and_gauss_newton_for_a_stationary_nonlinear_problem():
    solution = sciml.fit(Bratu())
    assert solution.success
    assert solution.solver == "GaussNewton"
    assert solution.residuals["relative"].max() < 1e-8


@pytest.mark.slow
def test_polish_gains_orders_on_a_network():
    network = sciml.fit(Front(), sciml.MLP(12, 12), solver=sciml.LeastSquares(60), points=800, sampler=None)
    polished = sciml.fit(
        Front(), sciml.MLP(12, 12), solver=[sciml.LeastSquares(60), sciml.Polish(300)], points=800, sampler=None
    )
    assert polished.error()["u"] < 1e-2 * network.error()["u"]
    assert polished.error()["u"] < 1e-6
    assert isinstance(polished.model, DeepFeatures)


def test_a_polished_solution_can_be_saved(tmp_path):
    solution = sciml.fit(Front(), sciml.MLP(6), solver=[sciml.Adam(5), sciml.Polish(30, steps=2)], points=100)
    solution.save(tmp_path / "deep.pt")
    assert sciml.load(tmp_path / "deep.pt")(x=0.1, t=0.2)["u"] == solution(x=0.1, t=0.2)["u"]


def test_polish_never_leaves_a_worse_state():
    setup = _setup(sciml.MLP(6))
    from sciml.strategies.training import Training

    training = Training(Log())
    # Far too few points for the features: the steps overfit, and the held-out loss says so.
    polished = training.run(setup, [sciml.Polish(200, points=0.2)], 0)
    assert held_out(polished) <= held_out(setup)


def test_polish_works_with_exact_conditions():
    solution = sciml.fit(
        Front(), sciml.MLP(10), solver=[sciml.LeastSquares(30), sciml.Polish(150)], points=500, exact=True, sampler=None
    )
    assert solution.residuals.loc["initial", "max"] < 1e-12
    assert solution.error()["u"] < 1e-3


class Own(torch.nn.Module):
    """A network of the user's own whose last layer is made first; jets pass it, unless it asks for something else."""

    def __init__(self, follow=True):
        super().__init__()
        self.head, self.first, self.second = (torch.nn.Linear(*sizes) for sizes in ((10, 1), (2, 10), (10, 10)))
        self.follow = follow

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = h + torch.tanh(self.second(h)) if self.follow else torch.stack([h, torch.tanh(self.second(h))]).sum(0)
        return self.head(h)


@pytest.mark.parametrize("follow", [True, False])
def test_any_network_that_ends_in_a_linear_layer_is_polished(follow, tmp_path):
    torch.manual_seed(0)
    network = Own(follow)
    first = sciml.fit(Front(), network, solver=sciml.LeastSquares(60), points=500, sampler=None)
    solution = sciml.fit(Front(), network, solver=[sciml.LeastSquares(60), sciml.Polish(200)], points=500, sampler=None)
    assert solution.engine == "Taylor mode"
    assert isinstance(solution.model, DeepFeatures)
    assert solution.error()["u"] < 0.1 * first.error()["u"]
    solution.save(tmp_path / "deep.pt")
    again = sciml.load(tmp_path / "deep.pt", model=network)
    assert again(x=0.1, t=0.2)["u"] == solution(x=0.1, t=0.2)["u"]
    with pytest.raises(sciml.errors.FileError, match=r"holds a model of class .*Own: pass an object of it"):
        sciml.load(tmp_path / "deep.pt")


def test_polish_works_for_a_system():
    kovasznay = problem_class("kovasznay")()
    first = sciml.fit(kovasznay, sciml.MLP(12, 12), solver=sciml.LeastSquares(40), points=400, sampler=None)
    second = sciml.fit(kovasznay, sciml.MLP(12, 12), solver=[sciml.LeastSquares(40), sciml.Polish()], points=400, sampler=None)
    assert max(second.error().values()) < 0.1 * max(first.error().values())


class Scaled(Own):
    """Does something after its last layer."""

    def forward(self, x):
        return 2 * super().forward(x)


class Tied(Own):
    """Uses the weights of its last layer elsewhere."""

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)) * self.head.weight)


@pytest.mark.parametrize("model", [sciml.RandomFeatures(20), Scaled()])
def test_polish_needs_a_hidden_layer(model):
    with pytest.raises(sciml.errors.SolverError, match=r"last hidden layer of a network, .* has none"):
        sciml.fit(Front(), model, solver=[sciml.Adam(2), sciml.Polish()], points=100)


def test_a_last_layer_that_is_used_twice_is_refused():
    with pytest.raises(sciml.errors.ModelError, match="does more with its last linear layer, head"):
        DeepFeatures(Tied(), 10)


@pytest.mark.parametrize("setting", [{"features": 0}, {"scales": ()}, {"scales": (-1.0,)}, {"points": 0}, {"steps": 0}])
def test_settings_of_polish_are_checked(setting):
    with pytest.raises(sciml.errors.SolverError, match="positive"):
        sciml.Polish(**setting)


def test_the_certificate_fails_when_points_are_too_few():
    few, many = (
        sciml.fit(Bratu(), sciml.RandomFeatures(300, 6.0), solver=sciml.GaussNewton(8), points=count, sampler=None)
        for count in (40, 900)
    )
    assert few.residuals["relative"].max() > 1e4 * many.residuals["relative"].max()
    assert not few.success
    assert many.success


def test_a_network_that_diverged_is_not_polished():
    model = sciml.MLP(8, inputs=2, outputs=1)
    setup = workspace(Rod()).discrete.with_model(model)
    assert sciml.Polish.serves(setup)
    with torch.no_grad():
        next(iter(setup.trial.parameters())).fill_(torch.nan)
    assert not sciml.Polish.serves(setup)

"""Products with a Jacobian that is never formed, steps by them, and steps by factors in float32."""

import pytest
import torch

import sciml
from sciml import d, solvers
from sciml.errors import SolverError
from sciml.solvers.gauss_newton import DampedSystem, conjugate_gradients
from sciml.solvers.matrix_free import MatrixFreeSystem
from sciml.strategies.prepare import prepare


class Heat(sciml.Problem):
    """A rod with an unknown conductivity, whose mean is given at the end."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = sciml.Unknown(0.5, lower=0)
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Dirichlet(u=0.0), sciml.Mean(u=0.4)]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


DATA = {"x": [0.2, 0.5, 0.7], "t": [0.1, 0.5, 0.9], "u": [0.5, 0.6, 0.3]}
MODELS = {
    "layers": sciml.MLP(12, 10),
    "features": sciml.models.RandomFeatures(30),
    "normalised": torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)),
    "attention": None,
}


class Odd(torch.nn.Module):
    """What no supplier but autograd follows."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 6)
        self.outer = torch.nn.Linear(6, 1)

    def forward(self, x):
        y = self.inner(x)
        return self.outer(torch.tanh(y) * torch.sigmoid(y.cumsum(1)))


def objective_of(model, points=300):
    setup = prepare(Heat(), Odd() if model is None else model, DATA, points, None, torch.float64, "cpu", 0)
    return setup.objective()


@pytest.mark.parametrize("memory", [1e9, 0.0])
@pytest.mark.parametrize("name", MODELS)
def test_products_are_those_with_the_dense_jacobian(name, memory):
    objective = objective_of(MODELS[name])
    rows, slopes = objective.linearised()
    products = MatrixFreeSystem(objective, memory)
    vector = torch.randn(slopes.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert products.value == pytest.approx(float(rows @ rows), rel=1e-12)
    assert torch.allclose(products.gradient, slopes.T @ rows, rtol=1e-10, atol=1e-12)
    assert torch.allclose(products.square(vector), slopes.T @ (slopes @ vector), rtol=1e-9, atol=1e-11)
    assert products.foretold(vector) == pytest.approx(float((rows + slopes @ vector).square().sum()), rel=1e-10)


def test_steps_are_those_of_the_dense_system():
    objective = objective_of(MODELS["layers"])
    rows, slopes = objective.linearised()
    scale = slopes.norm(dim=0).clamp(min=1e-8)
    dense = DampedSystem(rows, slopes, scale, "cholesky").step(1e-2)
    system = MatrixFreeSystem(objective, 1e9, tolerance=1e-10, most=500)
    assert torch.allclose(system.step(1e-2, scale), dense, rtol=1e-4, atol=1e-6)
    # From a sample of the rows.
    assert torch.allclose(system.norms, slopes.norm(dim=0), rtol=0.5, atol=1e-6)


def test_levenberg_marquardt_falls_without_a_jacobian():
    rod = sciml.gallery.problem("heat_rod")
    free, dense = (
        sciml.fit(rod, sciml.MLP(12, 10), solver=solvers.LeastSquares(30, factorisation=way), points=300)
        for way in ("cg", "cholesky")
    )
    # Steps that are solved for to a hundredth take some more of them.
    assert free.history["loss"].iloc[-1] < 50 * dense.history["loss"].iloc[-1]
    assert free.history["loss"].iloc[-1] < 0.05 * free.history["loss"].iloc[0]


def test_where_memory_does_not_hold_the_jacobian_it_is_not_formed():
    objective = objective_of(MODELS["layers"])
    assert solvers.LeastSquares(memory=1e5).start(objective)._free
    assert not solvers.LeastSquares(memory=1e9).start(objective)._free
    with pytest.raises(SolverError, match=r"use factorisation='cg'"):
        solvers.LeastSquares(memory=1e5, factorisation="cholesky").start(objective)


@pytest.mark.parametrize("damping", [1.0, 1e-4, 1e-8])
def test_mixed_precision_gives_the_steps_of_double_precision(damping):
    generator = torch.Generator().manual_seed(3)
    slopes = torch.randn(300, 60, dtype=torch.float64, generator=generator)
    slopes[:, 30:] = slopes[:, :30] + 1e-3 * slopes[:, 30:]
    rows, scale = torch.randn(300, dtype=torch.float64, generator=generator), slopes.norm(dim=0)
    double, mixed = (DampedSystem(rows, slopes, scale, way).step(damping) for way in ("qr", "mixed"))
    assert torch.allclose(mixed, double, rtol=1e-6, atol=1e-8)


def test_a_fit_in_mixed_precision_ends_where_double_precision_does():
    losses = [
        sciml.fit(Heat(), sciml.MLP(12, 10), data=DATA, solver=solvers.LeastSquares(25, factorisation=way), points=300)
        .history["loss"]
        .iloc[-1]
        for way in ("mixed", "cholesky")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)


def test_conjugate_gradients_say_when_they_do_not_arrive():
    matrix = torch.diag(torch.logspace(0, 12, 50, dtype=torch.float64))
    right = torch.ones(50, dtype=torch.float64)
    _, reached = conjugate_gradients(lambda v: matrix @ v, lambda v: v, right, 1e-12, 5)
    assert reached > 1e-12
    exact, reached = conjugate_gradients(lambda v: matrix @ v, lambda v: v / matrix.diagonal(), right, 1e-12, 5)
    assert torch.allclose(exact, right / matrix.diagonal())
    assert reached <= 1e-12


def test_gradients_keep_within_the_memory_that_is_there(monkeypatch):
    monkeypatch.setattr("sciml.solvers.objective._MANY", 100)
    objective = objective_of(MODELS["layers"], 2000)
    whole = objective.foretold_bytes()
    loss, gradient, _ = objective.evaluate()
    objective.limit(whole / 10)
    assert 64 <= objective.rows.portion.size < 2000 / 4
    assert "were taken at a time" in objective.rows.portion.said()[0]
    parts = objective.evaluate()
    assert torch.allclose(parts[0], loss, rtol=1e-12)
    assert torch.allclose(parts[1], gradient, rtol=1e-9, atol=1e-12)
    objective = objective_of(MODELS["layers"], 2000)
    objective.limit(2 * whole)
    assert objective.rows.portion.size is None


def test_products_stay_where_they_were_linearised():
    """A step looks at other parameters in between, and rows that are not kept are computed anew."""
    objective = objective_of(MODELS["layers"])
    products = MatrixFreeSystem(objective, 0.0)
    vector = torch.linspace(-1, 1, len(products.gradient), dtype=torch.float64)
    before = products.square(vector)
    elsewhere = objective.vector() + 0.5
    objective.assign(elsewhere)
    assert torch.allclose(products.square(vector), before, rtol=1e-12)
    assert torch.equal(objective.vector(), elsewhere)

"""The Jacobian of all rows: any model, in parts, without the matrix; what no row sees; steps hidden between points."""

import numpy as np
import pytest
import torch
from conftest import problem_class
from torch import nn

import sciml
from sciml import d
from sciml.diagnostics.certificate import hidden_step
from sciml.solvers import ResidualSystem, jacobian
from sciml.strategies.prepare import prepare


class Coupled(sciml.Problem):
    """Everything a row may hold: two fields, a face, paired points, unknowns, mixed and nested derivatives."""

    domain = sciml.Box(x=(0, 1), t=(0, 2))
    fields = ["u", "v"]
    rate = sciml.Unknown(0.7)
    conditions = [sciml.Initial(u=lambda x: x, v=0.0), sciml.Periodic("x")]

    @sciml.equation
    def first(self, u, v, x, t):
        return d(u, t) - self.rate * d(d(u, x) * v, x)

    @sciml.equation
    def second(self, u, v, x, t):
        return d(v, x, t) + u * v - d(v, x, x)


class Gated(nn.Module):
    """A model that is no stack of known layers."""

    def __init__(self):
        super().__init__()
        self.inner, self.gate, self.outer = nn.Linear(2, 7), nn.Linear(2, 7), nn.Linear(7, 2)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)) * torch.sin(self.gate(x)))


class Deciding(Gated):
    """One that decides by looking at numbers, which torch.func cannot follow."""

    def forward(self, x):
        return super().forward(x) if float(x.detach().sum()) < 1e9 else x


def ready(model, points=30):
    setup = prepare(Coupled(), model, None, points, None, torch.float64, "cpu", 0)
    factors = {term.name: 1.0 + 0.1 * number for number, term in enumerate(t for b in setup.train for t in b.terms)}
    return setup, factors, list(setup.trial.parameters())


@pytest.mark.parametrize("model", [Gated, lambda: sciml.MLP(6, 5)])
def test_any_model_has_the_jacobian_of_one_sweep_a_row(model, monkeypatch):
    setup, factors, parameters = ready(model())
    rows = ResidualSystem(setup.problem, setup.trial, setup.raw, taylor=False)
    followed = []
    per_sample = jacobian.per_sample
    monkeypatch.setattr(jacobian, "per_sample", lambda *given: followed.append(per_sample(*given)) or followed[-1])
    values, slopes = jacobian.jacobian(setup.rows, setup.train, factors, parameters)
    _, nested = jacobian.jacobian(rows, setup.train, factors, parameters)
    assert followed
    assert all(each is not None for each in followed)
    monkeypatch.setattr(jacobian, "per_sample", lambda *_: None)
    same, one_by_one = jacobian.jacobian(rows, setup.train, factors, parameters)
    size = float(one_by_one.abs().max())
    assert torch.allclose(values, same, rtol=0, atol=1e-12 * float(values.abs().max()))
    assert torch.allclose(slopes, one_by_one, rtol=0, atol=1e-12 * size)
    assert torch.allclose(nested, one_by_one, rtol=0, atol=1e-12 * size)


def test_models_that_torch_func_cannot_follow_are_done_row_by_row():
    torch.manual_seed(0)
    plain = Gated()
    deciding = Deciding()
    deciding.load_state_dict(plain.state_dict())
    (_, slopes), (_, expected) = (
        jacobian.jacobian(setup.rows, setup.train, factors, parameters)
        for setup, factors, parameters in (ready(deciding), ready(plain))
    )
    assert torch.allclose(slopes, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("model", [Gated, lambda: sciml.MLP(6, 5)])
def test_points_in_parts_give_the_same_matrix(model):
    setup, factors, parameters = ready(model())
    whole = jacobian.jacobian(setup.rows, setup.train, factors, parameters)
    parts = jacobian.jacobian(setup.rows, setup.train, factors, parameters, chunk=20_000)
    width = whole[1].shape[1]
    assert len(list(jacobian.pieces(setup.train[0], 8 * width, 20_000))) > 2
    for each, other in zip(whole, parts, strict=True):
        assert torch.allclose(each, other, rtol=0, atol=1e-12 * float(each.abs().max()))


def test_an_unknown_that_no_row_sees_is_named_with_its_singular_value():
    class Blind(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        seen, unseen = sciml.Unknown(1.0), sciml.Unknown(1.0)
        conditions = [sciml.Initial(u=1.0)]

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + self.seen * u + 1e-14 * self.unseen

    t = np.linspace(0, 1, 20)
    data = {"t": t, "u": np.exp(-2 * t) + 0.01 * np.random.default_rng(0).normal(size=20)}
    solution = sciml.fit(Blind(), sciml.MLP(8), data=data, solver=sciml.LeastSquares(40))
    assert "do not determine unseen (no row sees them: singular value" in solution.message
    assert np.isfinite(solution.unknowns.loc["seen", "standard_error"])


class WithStep(nn.Module):
    """cos t, and a change of slope within a width."""

    def __init__(self, size, width):
        super().__init__()
        self.size, self.width = nn.Parameter(torch.tensor(size)), width

    def forward(self, t):
        return torch.cos(t) + self.size * self.width * nn.functional.softplus((t - 9.1) / self.width)


@pytest.mark.parametrize(("size", "width", "found"), [(0.0, 1.0, False), (0.3, 0.1, False), (0.3, 1e-7, True)])
def test_a_step_between_points_is_found_and_a_layer_is_not_mistaken_for_one(size, width, found):
    problem = problem_class("harmonic_oscillator")()
    setup = prepare(problem, sciml.MLP(3), None, 20, None, torch.float64, "cpu", 0)
    rows = ResidualSystem(problem, WithStep(size, width).double(), {}, taylor=False)
    step = hidden_step(rows)
    assert (step is not None) == found
    if step is not None:
        assert step.startswith("u_t makes a step of ")
        assert float(step.rpartition(" near t = ")[2]) == pytest.approx(9.1, abs=0.02)
    assert hidden_step(setup.rows) is None

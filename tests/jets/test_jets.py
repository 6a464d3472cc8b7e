"""Taylor-mode jets and per-point Jacobians against nested autograd and row-by-row differentiation."""

import itertools

import pytest
import sympy
import torch
from conftest import problem_class
from torch import nn

import sciml
from problems import Decay
from sciml.jets import AutogradJets, TaylorJets
from sciml.jets.activations import Sin
from sciml.jets.propagation import layers_of
from sciml.jets.taylor import closed
from sciml.models import MLP, Scaled
from sciml.solvers import ResidualSystem
from sciml.solvers.jacobian import jacobian
from sciml.strategies.prepare import prepare


def test_a_plan_is_closed_under_differentiation():
    assert closed([("x", "x", "t")]) == ((), ("t",), ("x",), ("x", "t"), ("x", "x"), ("x", "x", "t"))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus", "silu", "gelu"])
def test_taylor_mode_agrees_with_nested_autograd_to_fourth_order(activation):
    generator = torch.Generator().manual_seed(0)
    model = MLP(9, 7, activation=activation)
    model.build(3, 2, generator)
    trial = Scaled(model, [0.0, -1.0, 0.0], [2.0, 1.0, 5.0], [0.3, -2.0], [2.0, 0.5])
    points = torch.rand(6, 3, dtype=torch.float64, generator=generator)
    names, fields = ("x", "y", "t"), ("u", "v")
    indices = [
        (),
        ("x",),
        ("y", "t"),
        ("x", "x", "t"),
        ("x", "y", "t"),
        ("x", "x", "y", "y"),
        ("t",) * 4,
        ("x", "x", "y", "t"),
    ]
    taylor = TaylorJets(trial, points, names, fields, indices)
    nested = AutogradJets(trial, points, names, fields)
    parameters = list(model.parameters())
    for index in indices:
        for field in fields:
            ours, theirs = taylor.jet(field, index), nested.jet(field, index)
            assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-13), (field, index)
            for a, b in zip(
                torch.autograd.grad(
                    ours.square().sum(), parameters, retain_graph=True, materialize_grads=True, allow_unused=True
                ),
                torch.autograd.grad(
                    theirs.square().sum(), parameters, retain_graph=True, materialize_grads=True, allow_unused=True
                ),
                strict=True,
            ):
                assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_jets_of_a_network_are_those_of_its_formula():
    """Against SymPy: every derivative to fourth order by three coordinates, with no differentiation of ours involved."""
    generator = torch.Generator().manual_seed(3)
    model = MLP(2, 2)
    model.build(3, 1, generator)
    model.layers[1] = Sin()
    names = ("x", "y", "z")
    symbols = sympy.symbols(names)
    values = list(symbols)
    for layer in model.layers:
        if isinstance(layer, nn.Linear):
            weight, bias = layer.weight.tolist(), layer.bias.tolist()
            values = [
                sum(factor * value for factor, value in zip(row, values, strict=True)) + shift
                for row, shift in zip(weight, bias, strict=True)
            ]
        else:
            values = [(sympy.sin if isinstance(layer, Sin) else sympy.tanh)(value) for value in values]
    points = torch.rand(4, 3, dtype=torch.float64, generator=generator)
    indices = [index for order in range(5) for index in itertools.combinations_with_replacement(names, order)]
    expressions = {(): values[0]}
    for index in indices[1:]:
        expressions[index] = sympy.diff(expressions[index[:-1]], sympy.Symbol(index[-1]))
    jets = TaylorJets(Scaled(model, [-1.0] * 3, [1.0] * 3, [0.0], [1.0]), points, names, ("u",), indices)
    expected = sympy.lambdify(symbols, [expressions[index] for index in indices], "numpy", cse=True)(*points.numpy().T)
    assert len(indices) == 35
    for index, values in zip(indices, expected, strict=True):
        assert torch.allclose(jets.jet("u", index), torch.as_tensor(values), rtol=1e-10, atol=1e-13), index


def test_a_request_outside_the_plan_is_answered_too():
    trial = Scaled(MLP(5, inputs=1, outputs=1), [0.0], [1.0], [0.0], [1.0]).double()
    points = torch.rand(4, 1, dtype=torch.float64)
    jets = TaylorJets(trial, points, ("x",), ("u",))
    nested = AutogradJets(trial, points, ("x",), ("u",))
    assert torch.allclose(jets.jet("u", ("x", "x")), nested.jet("u", ("x", "x")))


def test_only_models_of_known_layers_are_propagated():
    assert layers_of(nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Sequential(nn.Linear(2, 1), nn.SiLU())))
    for unknown in (nn.Sequential(nn.Linear(1, 2), nn.ReLU()), nn.GELU(approximate="tanh")):
        assert layers_of(unknown) is None

    class Mine(nn.Module):
        """Has layers, and does something else with them."""

        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(1, 1))

        def forward(self, points):
            return self.layers(points).abs()

    class Subclass(sciml.MLP):
        def forward(self, points):
            return 2 * super().forward(points)

    assert layers_of(Mine()) is None
    assert layers_of(Subclass(3, inputs=1, outputs=1)) is None


def test_the_engine_is_reported():
    own = nn.Sequential(nn.Linear(1, 4), nn.Softsign(), nn.Linear(4, 1))
    assert sciml.fit(Decay(), sciml.MLP(4), solver=sciml.Adam(1)).engine == "Taylor mode"
    assert sciml.fit(Decay(), own, solver=sciml.Adam(1)).engine == "nested autograd"


@pytest.mark.parametrize("name", ["burgers", "poisson_square", "lynx_hare", "boarding_school_flu"])
def test_per_point_jacobians_equal_those_row_by_row(name):
    problem = problem_class(name)()
    setup = prepare(problem, sciml.MLP(7, 6), None, 50, None, torch.float64, "cpu", 0)
    generator = torch.Generator().manual_seed(1)
    factors = {term.name: 1.0 + float(torch.rand((), generator=generator)) for block in setup.train for term in block.terms}
    parameters = list(setup.trial.parameters())
    rows, slopes = jacobian(setup.rows, setup.train, factors, parameters)
    other = ResidualSystem(problem, setup.trial, setup.raw, taylor=False)
    rows_too, slopes_too = jacobian(other, setup.train, factors, parameters)
    assert torch.allclose(rows, rows_too, rtol=1e-12, atol=1e-12)
    assert torch.allclose(slopes, slopes_too, rtol=1e-11, atol=1e-11 * float(slopes.abs().max()))
    # And the gradient of the loss is the transposed Jacobian applied to the rows, unknowns included.
    loss = sum(
        (setup.rows.residuals([block])[term.name] * factors[term.name]).square().sum()
        for block in setup.train
        for term in block.terms
    )
    gradient = torch.autograd.grad(loss, [*parameters, *setup.raw.values()], allow_unused=True, materialize_grads=True)
    flat = torch.cat([each.reshape(-1) for each in gradient])
    assert torch.allclose(2 * slopes.T @ rows, flat, rtol=1e-9, atol=1e-9 * float(flat.abs().max()))


def test_frozen_layers_have_no_columns():
    problem = problem_class("poisson_square")()
    setup = prepare(problem, sciml.RandomFeatures(12, 2.0), None, 30, None, torch.float64, "cpu", 0)
    factors = {term.name: 1.0 for block in setup.train for term in block.terms}
    _, slopes = jacobian(setup.rows, setup.train, factors, setup.parameters)
    assert slopes.shape[1] == 12

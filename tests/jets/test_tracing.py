"""Modules with a ``forward`` of their own: derivatives by Taylor mode where the module can be followed."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import sciml
from problems import Poisson
from sciml.jets import AutogradJets, TaylorJets
from sciml.jets.propagation import layers_of
from sciml.jets.taylor import supports
from sciml.solvers.jacobian import jacobian
from sciml.strategies.prepare import prepare


class Residual(nn.Module):
    """Layers that are added, normalised over features and activated by functions."""

    def __init__(self, affine=True):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.norm = nn.LayerNorm(8, elementwise_affine=affine)
        if affine:
            nn.init.normal_(self.norm.weight)
            nn.init.normal_(self.norm.bias)

    def forward(self, x):
        h = functional.silu(self.first(x))
        h = self.norm(h + torch.tanh(self.second(h)))
        return self.head(h)


class Fourier(nn.Module):
    """Fourier features by a matrix that is a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", 2 * torch.randn(2, 5))
        self.register_buffer("shift", torch.randn(5))
        self.layers = nn.Sequential(nn.Linear(10, 8), nn.GELU(), nn.Linear(8, 1))

    def forward(self, x):
        z = x @ (2.0 * self.frequencies.T).T + 0.5 * self.shift
        return self.layers(torch.cat([torch.sin(z), z.cos()], dim=-1))


class Odds(nn.Module):
    """Whatever else can be followed: slices, quotients, powers, parts, means, an inner module of the same kind."""

    def __init__(self):
        super().__init__()
        self.inner = Residual(affine=False)
        self.wide = nn.Linear(2, 6)

    def forward(self, x):
        left, right = self.wide(x).chunk(2, dim=-1)
        ratio = left / (2.0 + right**2)
        gate = torch.sigmoid(ratio.mean(dim=-1, keepdim=True)) * torch.exp(-x[:, :1].square())
        return 1 - 0.5 * self.inner(x) * gate + functional.softplus(x[..., 1:2]) / 3 - (-gate)


class Spreads(nn.Module):
    """One column becomes several by adding and multiplying rows of numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.randn(6))
        self.register_buffer("factor", torch.randn(1, 6))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(torch.tanh(x[:, :1] + self.shift) * torch.sin(self.factor * x[:, 1:]) + (x[:, :1] - x[:, 1:]) ** 3)


@pytest.mark.parametrize("kind", [Residual, Fourier, Odds, Spreads])
def test_derivatives_of_followed_modules_are_those_of_autograd(kind):
    torch.manual_seed(0)
    trial = sciml.models.Scaled(kind(), [0.0, -1.0], [2.0, 1.0], [0.5], [3.0]).double()
    points = torch.rand(7, 2, dtype=torch.float64)
    plan = [index for order in range(5) for index in itertools.combinations_with_replacement(("x", "t"), order)]
    taylor = TaylorJets(trial, points, ("x", "t"), ("u",), plan)
    nested = AutogradJets(trial, points, ("x", "t"), ("u",))
    for index in plan:
        expected = nested.jet("u", index)
        assert torch.allclose(taylor.jet("u", index), expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize("kind", [Residual, Fourier, Odds, Spreads])
def test_every_parameter_of_a_followed_module_has_its_column(kind):
    torch.manual_seed(0)
    setup = prepare(Poisson(), kind(), None, 40, None, torch.float64, "cpu", 0)
    assert setup.rows.engine == "Taylor mode"
    objective = setup.objective()
    by_layers, by_points = (
        jacobian(rows, setup.train, dict.fromkeys(setup.scales, 1.0), objective.parameters)
        for rows in (setup.rows, type(setup.rows)(setup.problem, setup.trial, {}, taylor=False))
    )
    for one, other in zip(by_layers, by_points, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9 * other.abs().max().item())


class Looks(nn.Module):
    """Looks at values: what a symbol would take is one of its ways only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


class Mixes(Looks):
    """Lets points know of each other."""

    def forward(self, x):
        return self.layer(x - x.mean(dim=0, keepdim=True))


class Counts(Looks):
    """Depends on the number of points."""

    def forward(self, x):
        return self.layer(x) / len(x)


class Own(Looks):
    """Has a parameter outside of any layer."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.layer(self.slope * x)


class Drops(Looks):
    """Is not the same twice."""

    def forward(self, x):
        return functional.dropout(self.layer(x), training=self.training)


class Bakes(Looks):
    """Computes with a tensor that it does not know as its own."""

    def forward(self, x):
        return self.layer(x * torch.tensor([1.0, 2.0], dtype=x.dtype)) + self.layer.in_features * torch.ones(1)


@pytest.mark.parametrize("kind", [Looks, Mixes, Counts, Drops, Bakes])
def test_what_cannot_be_followed_is_left_to_autograd(kind):
    model, state = kind(), torch.get_rng_state()
    names = set(vars(model))
    assert layers_of(model) is None
    assert set(vars(model)) == names
    assert torch.equal(state, torch.get_rng_state())


def test_parameters_outside_of_layers_are_left_to_autograd():
    assert not supports(Own(), 2)


class Scales(Looks):
    """Multiplies by a number of its own."""

    factor = 1.0

    def forward(self, x):
        return self.factor * self.layer(x)


def test_a_module_whose_settings_change_is_followed_anew():
    model, points = Scales().double(), torch.rand(3, 2, dtype=torch.float64)
    for model.factor in (1.0, 3.0):
        assert torch.equal(TaylorJets(model, points, ("x", "y"), ("u",)).stream(()), model(points))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_module_is_trained_as_the_one_inside():
    solution = sciml.fit(Poisson(), torch.compile(Fourier()), solver=sciml.Adam(3), points=40)
    assert type(solution.model) is Fourier
    assert solution.engine == "Taylor mode"
    assert any("handed to torch.compile" in choice for choice in solution.choices)


def test_a_followed_module_is_followed_anew_when_it_is_copied_or_moved():
    setup = prepare(Poisson(), Fourier(), None, 40, None, torch.float64, "cpu", 0)
    before = setup.trial.model.frequencies
    jets = TaylorJets(setup.trial, torch.rand(3, 2, dtype=torch.float64), ("x", "y"), ("u",))
    with torch.no_grad():
        before.mul_(0.0)
    still = jets.stream(())
    assert torch.allclose(still, still[:1].expand_as(still))

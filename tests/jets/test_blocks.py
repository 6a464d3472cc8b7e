"""Every block against nested autograd, and the Jacobians of models made of them against torch.func."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

import sciml
from problems import Decay
from sciml import d
from sciml.errors import ModelError
from sciml.geometry import PointSet
from sciml.jets import AutogradJets, TaylorJets
from sciml.jets.activations import Sin
from sciml.jets.propagation import layers_of
from sciml.jets.taylor import supports
from sciml.models import Scaled
from sciml.models.base import SequentialModel
from sciml.problem.collocation import Collocation
from sciml.solvers import ResidualSystem
from sciml.solvers.jacobian import jacobian


def layer(before, after, activation=None):
    return nn.Sequential(nn.Linear(before, after), *([] if activation is None else [activation]))


def modified():
    """Two branches that every hidden layer mixes anew."""
    first, second = layer(2, 4, nn.Tanh()), layer(2, 4, Sin())
    hidden = layer(2, 4, nn.Tanh())
    for _ in range(2):
        hidden = sciml.GatedBlock(nn.Sequential(hidden, layer(4, 4, nn.Sigmoid())), first, second)
    return nn.Sequential(hidden, nn.Linear(4, 1))


def shared():
    twice = nn.Linear(4, 4)
    return nn.Sequential(layer(2, 4, nn.Tanh()), twice, nn.Tanh(), sciml.ResidualBlock(twice), nn.SiLU(), nn.Linear(4, 1))


def transformed(model):
    return sciml.Constrained(
        model,
        g=lambda points: torch.sin(points[:, :1] * points[:, 1:]),
        phi=lambda points: points[:, :1] * torch.exp(-(points[:, 1:] ** 2)),
    )


def periodic():
    around = sciml.PeriodicEmbedding(("x", "t"), {"x": 2.0}, harmonics=2)
    return nn.Sequential(around, layer(around.width, 4, nn.Tanh()), nn.Linear(4, 1))


MODELS = {
    "plain": lambda: sciml.MLP(4, 3, inputs=2, outputs=1),
    "residual": lambda: nn.Sequential(sciml.ResidualBlock(layer(2, 2, nn.Tanh())), layer(2, 4, nn.GELU()), nn.Linear(4, 1)),
    "gated": lambda: nn.Sequential(sciml.GatedBlock(layer(2, 3, nn.Sigmoid()), layer(2, 3), layer(2, 3)), nn.Linear(3, 1)),
    "modified": modified,
    "product": lambda: sciml.Product(layer(2, 1, nn.Tanh()), nn.Sequential(layer(2, 4, Sin()), nn.Linear(4, 1))),
    "concatenation": lambda: nn.Sequential(
        sciml.Concatenation(nn.Linear(2, 2), nn.Tanh(), layer(2, 2, nn.Softplus())),
        layer(6, 3, nn.Tanh()),
        nn.Linear(3, 1),
    ),
    "fourier": lambda: nn.Sequential(sciml.FourierFeatures.random(2, 3), layer(6, 4, nn.Tanh()), nn.Linear(4, 1)),
    "periodic": periodic,
    "shared": shared,
    "transformed": lambda: transformed(nn.Sequential(layer(2, 4, nn.Tanh()), nn.Linear(4, 1))),
    "product of transformed": lambda: sciml.Product(transformed(sciml.MLP(3, inputs=2, outputs=1)), nn.Linear(2, 1)),
}


def trial_of(name, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[name]().double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-1.0, 1.0)
    return Scaled(model, [-1.0, 0.0], [1.0, 3.0], [0.3], [2.0])


@pytest.fixture(params=[*MODELS, "transformed around all"])
def trial(request):
    if request.param in MODELS:
        return trial_of(request.param)
    return transformed(trial_of("plain"))


def test_jets_of_every_block_to_fourth_order(trial):
    assert supports(trial, 4)
    points = torch.rand(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    indices = [index for order in range(5) for index in itertools.combinations_with_replacement(("x", "t"), order)]
    taylor = TaylorJets(trial, points, ("x", "t"), ("u",), indices)
    nested = AutogradJets(trial, points, ("x", "t"), ("u",))
    parameters = list(trial.parameters())
    for index in indices:
        ours, theirs = taylor.jet("u", index), nested.jet("u", index)
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-11), index
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        mine = torch.autograd.grad(ours.square().sum(), parameters, **options)
        other = torch.autograd.grad(theirs.square().sum(), parameters, **options)
        largest = max(float(each.abs().max()) for each in other)
        for a, b in zip(mine, other, strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-11 * largest), index


class Burgers(sciml.Problem):
    domain = sciml.Box(x=(-1, 1), t=(0, 3))
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0)]

    @sciml.equation
    def burgers(self, u, x, t):
        return d(u, t) + u * d(u, x) - 0.1 * d(u, x, x)


def test_jacobian_of_every_block_against_functional_differentiation(trial):
    problem = Burgers()
    points = torch.rand(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    block = Collocation(PointSet((points,)), tuple(term for term in problem.terms() if term.name == "burgers"))
    rows = ResidualSystem(problem, trial, {})
    assert rows.engine == "Taylor mode"
    parameters = dict(trial.named_parameters())
    residual, slopes = jacobian(rows, [block], {"burgers": 1.0}, list(parameters.values()))

    def at(values, point):
        def u(x, t):
            return functional_call(trial, values, (torch.stack([x, t])[None],))[0, 0]

        x, t = point
        u_x = grad(u, 0)
        return grad(u, 1)(x, t) + u(x, t) * u_x(x, t) - 0.1 * grad(u_x, 0)(x, t)

    expected = vmap(jacrev(at), (None, 0))({name: each.detach() for name, each in parameters.items()}, points)
    flat = torch.cat([expected[name].flatten(1) for name in parameters], dim=1)
    assert torch.allclose(residual, torch.stack([at(parameters, point) for point in points]), rtol=1e-12, atol=1e-12)
    assert float((slopes - flat).abs().max()) < 1e-12 * float(flat.abs().max())


def test_a_branch_met_twice_with_the_same_inputs_is_passed_once():
    trial = trial_of("modified")
    jets = TaylorJets(trial, torch.rand(3, 2, dtype=torch.float64), ("x", "t"), ("u",), [("x", "x")])
    jets.jet("u", ("x",))
    assert len(layers_of(trial)) == 8
    assert len(jets.layers) == 6
    assert len({id(each.module) for each in jets.layers}) == 6


def test_frozen_layers_leave_no_graph():
    saved = []
    for size in (4, 40):
        trial = Scaled(sciml.RandomFeatures(size, inputs=1, outputs=1), [0.0], [1.0], [0.0], [1.0]).double()
        jets = TaylorJets(trial, torch.rand(100, 1, dtype=torch.float64), ("x",), ("u",), [("x", "x")])
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda each, kept=kept: kept.append(each) or each, lambda each: each):
            output = jets.jet("u", ("x", "x"))
        inner, outer = jets.layers
        assert output.requires_grad
        assert outer.outputs.requires_grad
        assert not inner.outputs.requires_grad
        assert not outer.inputs.requires_grad
        saved.append(sum(each.nbytes for each in kept if each.shape[-1] == size))
    # What the last layer is given, value and first derivative (the second vanishes), and its own weights.
    assert saved == [8 * size * (2 * 100 + 1) for size in (4, 40)]


class Doubled(sciml.MLP):
    def forward(self, points):
        return 2 * super().forward(points)


class Renamed(sciml.MLP):
    """Changes nothing."""


class Squared(nn.Sequential):
    def forward(self, points):
        return super().forward(points) ** 2


class Shifted(nn.Linear):
    def forward(self, points):
        return super().forward(points) + 1


class Scale(nn.Module):
    """A block with a parameter of its own, which Jacobians would not see."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 1)
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, points):
        return self.factor * self.inner(points)

    def parts(self):
        return [self.inner]

    def jets(self, streams, propagation):
        return propagation.affine(propagation.through(self.inner, streams), self.factor, torch.zeros(1))


def hooked():
    model = nn.Linear(1, 1)
    model.register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def patched():
    model = nn.Linear(1, 1)
    model.forward = lambda points: points**2
    return model


NOT_PASSED = {
    "subclass with another forward": lambda: Doubled(3, inputs=1, outputs=1),
    "linear layer with another forward": lambda: Shifted(1, 1),
    "parametrised": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(1, 1)),
    "hook": hooked,
    "patched": patched,
    "parameter of its own": Scale,
    "unknown inside": lambda: sciml.ResidualBlock(nn.Sequential(nn.Linear(1, 1), nn.ReLU())),
    "transformed behind a layer": lambda: nn.Sequential(nn.Linear(1, 1), sciml.Constrained(nn.Linear(1, 1), abs, abs)),
    "transformed by a network": lambda: sciml.Constrained(nn.Linear(1, 1), nn.Linear(1, 1), abs),
}


@pytest.mark.parametrize("name", NOT_PASSED)
def test_anything_else_falls_back(name):
    assert not supports(Scaled(NOT_PASSED[name](), [0.0], [1.0], [0.0], [1.0]), 1)


def test_a_sequence_with_another_forward_is_followed():
    trial = Scaled(Squared(nn.Linear(1, 1)), [0.0], [1.0], [0.0], [1.0]).double()
    points = torch.rand(4, 1, dtype=torch.float64)
    taylor, nested = TaylorJets(trial, points, ("x",), ("u",)), AutogradJets(trial, points, ("x",), ("u",))
    assert torch.allclose(taylor.jet("u", ("x", "x")), nested.jet("u", ("x", "x")))


def test_what_changes_nothing_is_still_recognised():
    assert supports(Scaled(Renamed(3, inputs=1, outputs=1), [0.0], [1.0], [0.0], [1.0]), 4)
    assert not supports(Scaled(sciml.MLP(3, inputs=1, outputs=1), [0.0], [1.0], [0.0], [1.0]), 5)
    assert layers_of(SequentialModel()) == []


def test_a_model_of_blocks_is_trained_by_taylor_mode():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inner, last = layer(8, 8, nn.Tanh()), nn.Linear(8, 1)
    model = nn.Sequential(sciml.FourierFeatures.random(1, 4), sciml.ResidualBlock(inner), last)
    solution = sciml.fit(Decay(rate=1.0), model, solver=sciml.LeastSquares(30))
    assert solution.engine == "Taylor mode"
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    # 1e-6 to 4e-5 over eleven draws of the layers.
    assert float(abs(solution.trial(t[:, None])[:, 0] - torch.exp(-t)).max()) < 1e-4


def test_periods_are_exact_in_double_precision():
    around = sciml.PeriodicEmbedding(("t", "x"), {"x": 0.3}, harmonics=5)
    assert around.width == 11
    points = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = points + torch.tensor([0.0, 0.3], dtype=torch.float64)
    assert torch.allclose(around(points), around(moved), rtol=0, atol=1e-13)
    expected = torch.cos(2 * math.pi / 0.3 * 2 * points[:, 1])
    assert torch.allclose(around(points)[:, 1], expected, rtol=0, atol=1e-13)
    assert torch.equal(around(points)[:, 10], points[:, 0])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sciml.ResidualBlock(torch.tanh), "ResidualBlock is made of"),
        (lambda: sciml.Concatenation(), "at least one branch"),
        (lambda: sciml.FourierFeatures(torch.zeros(3)), "a matrix"),
        (lambda: sciml.FourierFeatures.random(2, 0), "must be positive"),
        (lambda: sciml.PeriodicEmbedding(("x", "t"), {"y": 1.0}), "'x', 't'"),
        (lambda: sciml.PeriodicEmbedding(("x",), {"x": 0.0}), "positive number"),
        (lambda: sciml.PeriodicEmbedding(("x",), {"x": 1.0}, harmonics=0), "harmonics"),
        (lambda: sciml.Constrained(nn.Linear(1, 1), 0.0, abs), "two functions"),
        (
            lambda: sciml.Constrained(nn.Linear(1, 1), lambda p: p[:, 0], abs)(torch.zeros(4, 1)),
            r"g must return .*\(4, 1\)",
        ),
    ],
)
def test_blocks_say_what_is_wrong(make, said):
    with pytest.raises(ModelError, match=said):
        make()

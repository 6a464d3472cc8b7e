"""Jets of frozen features: two matrices of sines and cosines hold every derivative of random features."""

import itertools

import pytest
import torch
from torch import nn

import sciml
from sciml.jets import LinearJets, TaylorJets
from sciml.jets.activations import Sin
from sciml.jets.linear import Features, SineFeatures, features_at
from sciml.jets.propagation import Layer
from sciml.models import Scaled

NAMES = ("x", "t")
PLAN = [index for order in range(1, 5) for index in itertools.combinations_with_replacement(NAMES, order)]


def features(outputs=2):
    generator = torch.Generator().manual_seed(0)
    model = sciml.RandomFeatures(7, (2.0, 3.0))
    model.build(2, outputs, generator)
    with torch.no_grad():
        model.layers[-1].weight.normal_(generator=generator)
    trial = Scaled(model, [0.0, -1.0], [2.0, 5.0], [0.3] * outputs, [1.7] * outputs)
    return trial, torch.rand(11, 2, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("index", [(), *PLAN], ids="".join)
def test_every_derivative_is_a_multiple_of_a_sine_or_cosine(index):
    trial, points = features()
    whole = TaylorJets(trial, points, NAMES, ("u", "v"), PLAN)
    for plan in ([index], [(), *PLAN]):
        waves = features_at(trial, points, NAMES, plan, ("u", "v"))
        assert isinstance(waves, SineFeatures)
        jets = LinearJets(trial, ("u", "v"), waves)
        for field in ("u", "v"):
            assert torch.allclose(jets.jet(field, index), whole.jet(field, index), rtol=1e-12, atol=1e-12)


def test_outer_products_are_those_of_the_streams_spread_out():
    trial, points = features()
    plan = [(), *PLAN]
    waves = features_at(trial, points, NAMES, plan, ("u", "v"))
    whole = TaylorJets(trial, points, NAMES, ("u", "v"), plan)
    whole.stream(())
    last = whole.layers[-1]
    places = [last.streams.indices.index(index) for index in waves.plan]
    back = torch.randn(len(waves.plan), len(points), 2, dtype=torch.float64)
    spread = back.new_zeros(len(last.streams.indices), *back.shape[1:])
    spread[places] = back
    assert torch.allclose(waves.passed().outer(back), Layer.outer(last, spread), rtol=1e-12, atol=1e-12)


def test_nothing_is_kept_that_no_derivative_needs():
    trial, points = features()
    even = features_at(trial, points, NAMES, [("x", "x"), ("t", "t")], ("u", "v"))
    odd = features_at(trial, points, NAMES, [("t",)], ("u", "v"))
    assert (even.cosines, odd.sines) == (None, None)
    assert even.sines.shape == odd.cosines.shape == (11, 7)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 6), Sin(), nn.Linear(6, 1)],
        [nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)],
    ],
)
def test_other_features_are_spread_out(layers):
    class Stack(sciml.RandomFeatures):
        def build(self, inputs, outputs, generator):
            self.layers.extend(layers)

    model = Stack()
    model.build(2, 1, torch.Generator())
    model.layers[:-1].requires_grad_(False)
    trial = Scaled(model, [0.0, 0.0], [1.0, 1.0], [0.0], [1.0]).double()
    points = torch.rand(4, 2, dtype=torch.float64)
    found = features_at(trial, points, NAMES, [("x", "x")], ("u",))
    assert isinstance(found, Features)
    whole = TaylorJets(trial, points, NAMES, ("u",), [("x", "x")])
    assert torch.allclose(LinearJets(trial, ("u",), found).jet("u", ("x", "x")), whole.jet("u", ("x", "x")))


def test_a_derivative_that_was_not_planned_is_refused_and_not_zero():
    trial, points = features()
    jets = LinearJets(trial, ("u", "v"), features_at(trial, points, NAMES, [("x",)], ("u", "v")))
    with pytest.raises(sciml.errors.ProblemError, match="did not ask for when"):
        jets.jet("u", ("t",))

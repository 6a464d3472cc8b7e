"""Streams through activations and linear layers: both operations against finite differences, twice."""

import itertools

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from sciml.jets import faa_di_bruno as composition
from sciml.jets.activations import Sin, cosine, derivatives_of
from sciml.jets.faa_di_bruno import compose, dense, partitions, rule_of
from sciml.jets.taylor import closed

ACTIVATIONS = [nn.Tanh(), nn.Sigmoid(), nn.Softplus(), nn.SiLU(), nn.GELU(), Sin()]
KNOWN = {type(layer).__name__: derivatives_of(layer) for layer in ACTIVATIONS} | {"Cos": cosine}
PLANS = {
    "values": [],
    "kdv": [("t",), ("x", "x", "x")],
    "navier_stokes": [("x", "x"), ("y", "y"), ("t",)],
    "biharmonic": [("x",) * 4, ("x", "x", "y", "y"), ("y",) * 4],
    "mixed": [("x", "y", "t", "t")],
}


def streams(present, width, seed=0, count=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(present), count, width, dtype=torch.float64, generator=generator).requires_grad_()


def first_order(plan):
    return tuple(index for index in plan if len(index) < 2)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of one point, so that a few points take as many steps as many."""
    monkeypatch.setattr(composition, "_TILE", 1)


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_derivatives_of_activations_to_fifth_order(known):
    z = torch.linspace(-6, 6, 41, dtype=torch.float64, requires_grad=True)
    found = known(z.detach(), 5)
    assert len(found) == 6
    value = known(z, 0)[0]
    for each in found:
        assert torch.allclose(each, value.detach(), rtol=1e-10, atol=1e-11)
        (value,) = torch.autograd.grad(value.sum(), z, create_graph=True)


def test_partitions_are_counted_by_bell_numbers():
    assert [len(partitions(count)) for count in range(5)] == [1, 1, 2, 5, 15]


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("wanted", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("sparse", [False, True], ids=["all streams", "first order only"])
def test_gradients_of_both_operations(wanted, sparse):
    plan = closed(wanted)
    present = first_order(plan) if sparse else plan
    rule, known = rule_of(present, plan), KNOWN["Tanh"]
    width = 2 if len(plan) < 8 else 1
    weight, bias = streams([(), ()], width, seed=1, count=2).detach()
    arguments = (streams(present, width, count=2), weight.requires_grad_(), bias[:, 0].clone().requires_grad_())
    for function, inputs in (
        (lambda values: compose(values, rule, known), arguments[:1]),
        (lambda *values: dense(*values), arguments),
        (lambda *values: dense(*values, rule, known), arguments),
        (lambda values, across: dense(values, across, None, rule, known), arguments[:2]),
    ):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_gradients_with_every_activation(known):
    plan = closed([("x",) * 4, ("x", "y")])
    rule, weight = rule_of(plan, plan), streams([()], 2, seed=1, count=1)[0].detach().requires_grad_()
    assert gradcheck(lambda values, across: dense(values, across, None, rule, known), (streams(plan, 2), weight))
    assert gradgradcheck(lambda values: compose(values, rule, known), (streams(plan, 1, count=1),))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("frozen", [*itertools.combinations(range(3), 1), *itertools.combinations(range(3), 2)])
def test_frozen_arguments_get_no_gradient_and_the_others_the_same(frozen):
    plan = closed(PLANS["kdv"])
    rule, known = rule_of(plan, plan), KNOWN["SiLU"]
    values, weight = streams(plan, 2), streams([()], 2, seed=1, count=5)[0]
    arguments = [values.detach(), weight.detach(), weight.detach()[:, 0].clone()]
    for free in ({0, 1, 2}, {0, 1, 2} - set(frozen)):
        given = [each.clone().requires_grad_(place in free) for place, each in enumerate(arguments)]
        loss = dense(*given, rule, known).square().sum()
        found = dict(zip(sorted(free), torch.autograd.grad(loss, [given[place] for place in sorted(free)]), strict=True))
        if len(free) == 3:
            expected = found
    assert all(torch.equal(found[place], expected[place]) for place in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiles_change_nothing(monkeypatch, dtype):
    plan = closed(PLANS["biharmonic"])
    rule, known = rule_of(plan, plan), KNOWN["GELU"]
    found = []
    for tile in (1 << 20, 40, 1):
        monkeypatch.setattr(composition, "_TILE", tile)
        values = streams(plan, 4, count=25).detach().to(dtype).requires_grad_()
        weight = torch.ones(3, 4, dtype=dtype, requires_grad=True)
        output = dense(values, weight, None, rule, known)
        found.append([output, *torch.autograd.grad(output.sin().sum(), [values, weight])])
    slack = 1e-12 if dtype == torch.float64 else 1e-3
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            assert mine.dtype == dtype
            assert torch.allclose(mine, theirs, rtol=slack, atol=slack * float(mine.detach().abs().max()))


def test_no_points_at_all():
    plan = closed(PLANS["kdv"])
    values, weight = streams(plan, 2, count=0), torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    output = dense(values, weight, None, rule_of(plan, plan), KNOWN["Tanh"])
    assert output.shape == (len(plan), 0, 3)
    assert not torch.autograd.grad(output.sum(), weight)[0].any()

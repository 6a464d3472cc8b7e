"""Every operation with a gradient of its own: against finite differences, twice, and against torch's own differentiation."""

import importlib
import math
import pkgutil

import pytest
import torch
from torch.autograd import Function, gradcheck, gradgradcheck

import sciml
from sciml.jets.activations import derivatives_of
from sciml.jets.faa_di_bruno import compose, dense, rule_of
from sciml.jets.taylor import closed
from sciml.models import piecewise

F64 = torch.float64
PLAN = closed([("x",) * 3])
RULE, TANH = rule_of(PLAN, PLAN), derivatives_of(torch.nn.Tanh())


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def nested(streams):
    """The tanh of the cubic with the derivatives ``streams`` at 0, and its derivatives there by nested reverse sweeps."""
    at = torch.zeros(streams.shape[1:], dtype=F64, requires_grad=True)
    found = [torch.tanh(sum(each * at**order / math.factorial(order) for order, each in enumerate(streams)))]
    for _ in range(3):
        found.append(torch.autograd.grad(found[-1].sum(), at, create_graph=True)[0])
    return torch.stack(found)


def linear(inputs, weight, bias):
    outputs = inputs @ weight.T
    return torch.cat([outputs[:1] + bias, outputs[1:]])


def cosines(scaled, count):
    return torch.cos(torch.arange(count, dtype=F64) * torch.arccos(scaled)[:, None])


def tiles():
    """Two elements along x, one along t: the library's model, and the same polynomials by arccosines."""
    model = piecewise.PiecewisePolynomial([[-1.0, 0.2, 1.0], [-1.0, 1.0]], degrees=[3, 2], outputs=2)
    model.coefficients.copy_(normal(*model.coefficients.shape))

    def plain(points):
        x, t = points.unbind(1)
        parts = []
        for own, low, high in zip(model.coefficients[:, 0], (-1.0, 0.2), (0.2, 1.0), strict=True):
            inside = 2 * (x - low) / (high - low) - 1
            parts.append(torch.einsum("fij,ni,nj->nf", own, cosines(inside.clamp(-0.999, 0.999), 4), cosines(t, 3)))
        return torch.where(x[:, None] < 0.2, *parts)

    return model, plain, (torch.tensor([[-0.7, 0.3], [0.1, -0.4], [0.5, 0.6]], dtype=F64),)


def cut_tiles():
    """One tile of two, and the same polynomials by arccosines."""
    model = sciml.models.Tiles([[-1.0, 0.2, 1.0], [-1.0, 1.0]], degrees=[3, 2], outputs=2, live=[1])
    model.coefficients.copy_(normal(*model.coefficients.shape))
    x_degrees, t_degrees = model.products.T

    def plain(points):
        x, t = points.unbind(1)
        table = cosines(2 * (x - 0.2) / 0.8 - 1, 4)[:, x_degrees] * cosines(t, 3)[:, t_degrees]
        return table @ model.coefficients[0].T

    return model, plain, (torch.tensor([[0.3, 0.3], [0.5, -0.4], [0.9, 0.6]], dtype=F64),)


CASES = {
    "_Dense": [
        lambda: (lambda values: compose(values, RULE, TANH), nested, (normal(4, 3, 2),)),
        lambda: (
            lambda values, weight, bias: dense(values, weight, bias, RULE, TANH),
            lambda values, weight, bias: linear(nested(values), weight, bias),
            (normal(4, 3, 2), normal(3, 2, seed=1), normal(3, seed=2)),
        ),
        lambda: (dense, linear, (normal(4, 3, 2), normal(3, 2, seed=1), normal(3, seed=2))),
    ],
    "_Derivative": [tiles, cut_tiles],
}


def operations():
    for module in pkgutil.walk_packages(sciml.__path__, "sciml."):
        importlib.import_module(module.name)
    return {kind.__name__ for kind in Function.__subclasses__() if kind.__module__.startswith("sciml.")}


def test_every_operation_has_a_case():
    assert operations() <= set(CASES)


@pytest.mark.parametrize("case", [case for name in sorted(operations()) for case in CASES.get(name, [])])
def test_gradients(case):
    operation, plain, inputs = case()
    inputs = tuple(each.requires_grad_() for each in inputs)
    assert gradcheck(operation, inputs)
    assert gradgradcheck(operation, inputs)
    found = []
    for function in (operation, plain):
        values = function(*inputs)
        slopes = torch.autograd.grad(values.sin().sum(), inputs, create_graph=True)
        bends = torch.autograd.grad(sum(each.square().sum() for each in slopes), inputs)
        found.append((values, *slopes, *bends))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-8)

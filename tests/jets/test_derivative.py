"""``d`` on jet space against SymPy, and its errors."""

import pytest
import sympy
import torch
from hypothesis import given, settings, strategies as st

from sciml import d
from sciml.errors import ProblemError
from sciml.jets import AutogradJets, JetSpace

X, T = sympy.symbols("x t")
U = sympy.exp(sympy.sin(X) / 2 + X * T / 3)
V = sympy.cos(X * T) + T**3 / 4


def fields(points):
    x, t = points.unbind(1)
    return torch.stack([torch.exp(torch.sin(x) / 2 + x * t / 3), torch.cos(x * t) + t**3 / 4], dim=1)


def space(count=5, seed=0):
    points = torch.rand(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.2
    supplier = AutogradJets(fields, points, ("x", "t"), ("u", "v"))
    return JetSpace({"x": points[:, 0], "t": points[:, 1]}, ("u", "v"), supplier), points


LEAVES = {"u": U, "v": V, "x": X, "t": T, "two": sympy.Integer(2)}
UNARY = {
    "sin": (sympy.sin, torch.sin),
    "gauss": (lambda e: sympy.exp(-(e**2) / 8), lambda e: torch.exp(-(e**2) / 8)),
    "ratio": (lambda e: 1 / (2 + sympy.cos(e)), lambda e: 1 / (2 + torch.cos(e))),
    "square": (lambda e: e**2 / 3, lambda e: e**2 / 3),
}


def trees():
    leaf = st.sampled_from(sorted(LEAVES))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(sorted(UNARY)), inner),
            st.tuples(st.sampled_from(["+", "*"]), inner, inner),
            st.tuples(st.sampled_from(["dx", "dt"]), inner),
        ),
        max_leaves=3,
    )


def depth(tree):
    """Derivatives along the deepest branch."""
    if isinstance(tree, str):
        return 0
    return (tree[0] in ("dx", "dt")) + max(depth(branch) for branch in tree[1:])


def symbolic(tree):
    if isinstance(tree, str):
        return LEAVES[tree]
    head, *rest = tree
    parts = [symbolic(each) for each in rest]
    if head in UNARY:
        return UNARY[head][0](parts[0])
    if head in ("dx", "dt"):
        return sympy.diff(parts[0], X if head == "dx" else T)
    return parts[0] + parts[1] if head == "+" else parts[0] * parts[1]


def numeric(tree, named):
    if isinstance(tree, str):
        return named.get(tree, torch.tensor(2.0, dtype=torch.float64).expand_as(named["x"]))
    head, *rest = tree
    parts = [numeric(each, named) for each in rest]
    if head in UNARY:
        return UNARY[head][1](parts[0])
    if head in ("dx", "dt"):
        return d(parts[0], named["x" if head == "dx" else "t"])
    return parts[0] + parts[1] if head == "+" else parts[0] * parts[1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tree=trees(), order=st.lists(st.sampled_from(["x", "t"]), min_size=1, max_size=4))
def test_d_agrees_with_sympy_to_fourth_order(tree, order):
    order = order[: max(1, 4 - depth(tree))]
    jets, points = space()
    named = jets.named(("u", "v", "x", "t"))
    found = d(numeric(tree, named), *(named[name] for name in order))
    exact = sympy.diff(symbolic(tree), *({"x": X, "t": T}[name] for name in order))
    evaluate = sympy.lambdify((X, T), exact, "mpmath")
    wanted = torch.tensor([float(evaluate(float(x), float(t))) for x, t in points], dtype=torch.float64)
    assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_d_of_several_coordinates_is_the_nested_one():
    jets, _ = space()
    n = jets.named(("u", "x", "t"))
    assert torch.equal(d(n["u"], n["x"], n["t"]), d(n["u"], n["t"], n["x"]))
    assert torch.allclose(d(n["u"] * n["x"], n["x"], n["t"]), d(d(n["u"] * n["x"], n["x"]), n["t"]))


def test_partial_derivatives_stop_at_the_jets():
    """Explicit dependence on a coordinate and dependence through the field are told apart."""
    jets, _ = space()
    n = jets.named(("u", "x"))
    expression = n["x"] ** 2 * n["u"]
    assert torch.allclose(d(expression, n["x"]), 2 * n["x"] * n["u"] + n["x"] ** 2 * d(n["u"], n["x"]))


def test_parameter_gradients_agree_with_direct_autograd():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()
    points = torch.rand(7, 2, dtype=torch.float64)
    jets = JetSpace({"x": points[:, 0], "t": points[:, 1]}, ("u",), AutogradJets(net, points, ("x", "t"), ("u",)))
    n = jets.named(("u", "x", "t"))
    residual = d(n["u"] * d(n["u"], n["x"]), n["x"]) + d(n["u"], n["t"])
    ours = torch.autograd.grad(residual.square().sum(), list(net.parameters()))
    at = points.clone().requires_grad_()
    u = net(at)[:, 0]
    (first,) = torch.autograd.grad(u.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad((u * first[:, 0]).sum(), at, create_graph=True)
    theirs = torch.autograd.grad((second[:, 0] + first[:, 1]).square().sum(), list(net.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(ours, theirs, strict=True))


def test_derivative_of_a_number_is_zero():
    jets, _ = space()
    x = jets.coordinates["x"]
    assert not d(3.0, x).any()
    assert torch.equal(d(x, x), torch.ones_like(x))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda n: d(n["u"]), "at least one coordinate"),
        (lambda n: d(n["u"], n["u"]), "must be a coordinate exactly as the residual received it"),
        (lambda n: d(n["u"], n["x"] * 1), "must be a coordinate"),
        (lambda n: d(n["u"], "x"), "must be a coordinate"),
        (lambda n: d(n["u"][:, None] * n["x"], n["x"]), "keep every operation pointwise"),
    ],
)
def test_misuse_is_told(call, words):
    jets, _ = space()
    with pytest.raises(ProblemError, match=words):
        call(jets.named(("u", "x")))


def test_coordinates_of_two_evaluations_do_not_mix():
    (a, _), (b, _) = space(), space()
    with pytest.raises(ProblemError, match="two different evaluations"):
        d(a.jet("u"), a.coordinates["x"], b.coordinates["t"])


def test_no_graph_outlives_its_jet_space():
    """A cycle through a coordinate would keep every graph until the collector runs."""
    import gc
    import weakref

    gc.disable()
    try:
        jets, _ = space()
        n = jets.named(("u", "x"))
        d(n["u"] ** 2, n["x"])
        ghost = weakref.ref(jets)
        del jets, n
        assert ghost() is None
    finally:
        gc.enable()

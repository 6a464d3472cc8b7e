"""Learned embeddings as tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import sciml
from problems import Decay
from sciml.errors import ModelError, ProblemError


@pytest.fixture(scope="module")
def solution():
    return sciml.fit(Decay(rate=1.0, domain=sciml.Interval(t=(0, 2))), sciml.MLP(7, 5), solver=sciml.Adam(20))


def test_the_last_hidden_layer_of_a_solution_by_default(solution):
    frame = pd.DataFrame({"t": [0.0, 1.0, 2.0], "other": 0.0}, index=["a", "b", "c"])
    z = sciml.embed(solution, frame)
    assert z.columns.tolist() == [f"z{k}" for k in range(5)]
    assert z.index.tolist() == ["a", "b", "c"]
    # The embedding and the output layer together are the solution.
    output = solution.model.layers[-1]
    values = torch.tensor(z.to_numpy(copy=True)) @ output.weight.T + output.bias
    fields = solution.trial.offset + solution.trial.scale * values
    assert np.allclose(fields[:, 0].numpy(), solution(t=frame["t"].to_numpy())["u"], rtol=1e-13)
    assert solution.embed({"t": frame["t"]}).equals(z.reset_index(drop=True))


def test_any_layer_by_name(solution):
    assert sciml.embed(solution, {"t": [0.0]}, layer="layers.0").shape == (1, 7)
    assert sciml.embed(solution, sciml.Table({"t": [0.0, 1.0]}), layer="layers.1").shape == (2, 7)


def test_any_module_leaves_no_trace():
    model = nn.Sequential(nn.Linear(2, 6), nn.Dropout(0.5), nn.Linear(6, 1)).train()
    model[1].eval()
    points = torch.rand(9, 2, requires_grad=True)
    first, second = sciml.embed(model, points), sciml.embed(model, points.detach().numpy())
    assert np.array_equal(first, second)
    assert model.training
    assert not model[1].training
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())
    assert points.grad is None


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda s: sciml.embed(s, {"t": [0.0]}, layer="layer.0"), ModelError, "no layer 'layer.0'.*Did you mean"),
        (lambda s: sciml.embed(s, {"x": [0.0]}), ProblemError, "lack the coordinate 't'; given: 'x'"),
        (lambda s: sciml.embed(s, [0.0]), ProblemError, "must be a Table"),
        (lambda s: sciml.embed(nn.Tanh(), torch.zeros(1, 1)), ModelError, "no linear layer"),
        (lambda s: sciml.embed(s.model, torch.zeros(3)), ProblemError, r"shape \(n, D\)"),
    ],
)
def test_misuse_is_told(solution, call, error, words):
    with pytest.raises(error, match=words):
        call(solution)


class Failing(nn.Module):
    """Raises what a module of somebody's may raise."""

    def __init__(self, kind):
        super().__init__()
        self.inner, self.kind = nn.Linear(1, 2), kind

    def forward(self, points):
        raise self.kind("of its own")


@pytest.mark.parametrize("jets", [(), ("x0",)])
@pytest.mark.parametrize("kind", [ValueError, AttributeError, TypeError, KeyError, IndexError, AssertionError])
def test_what_a_module_raises_is_told_as_ours(kind, jets):
    with pytest.raises(ProblemError, match=rf"points of shape \(\d, 1\): {kind.__name__}: .*of its own") as caught:
        sciml.embed(Failing(kind), np.zeros((3, 1)), jets=jets)
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("jets", [5, [5], [None], None, [["x0", 5]], [[["x0"]]], True])
def test_jets_that_are_none_are_refused(jets):
    model = sciml.MLP(3, inputs=1, outputs=1)
    with pytest.raises(ProblemError, match=r"jets are coordinates or tuples of them, of 'x0'"):
        sciml.embed(model, np.zeros((3, 1)), jets=jets)

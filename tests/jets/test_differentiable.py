"""Derivatives of every order through functions whose fused versions in torch have none or wrong ones."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import sciml
from problems import Poisson
from sciml.jets import AutogradJets


def by_hand(z, eps=1e-5):
    centred = z - z.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps)


@pytest.mark.parametrize(
    "norm",
    [
        nn.LayerNorm(6),
        nn.InstanceNorm1d(1, affine=True),
        nn.Sequential(nn.Unflatten(1, (1, 6)), nn.LayerNorm((1, 6)), nn.Flatten()),
        nn.Sequential(nn.Unflatten(1, (1, 6)), nn.InstanceNorm1d(1), nn.Flatten()),
    ],
)
def test_normalisations(norm):
    torch.manual_seed(0)
    weight, shift, sums = torch.randn(2, 6).double(), torch.randn(6).double(), torch.randn(6, 1).double()
    if isinstance(norm, nn.InstanceNorm1d):
        norm = nn.Sequential(nn.Unflatten(1, (1, 6)), norm, nn.Flatten())
    norm, points = norm.double(), torch.rand(5, 2).double()
    plan = [index for order in range(5) for index in itertools.combinations_with_replacement(("x", "y"), order)]
    found, expected = (
        AutogradJets(lambda x, each=each: each(x @ weight + shift) @ sums, points, ("x", "y"), ("u",))
        for each in (norm, by_hand)
    )
    for index in plan:
        assert torch.allclose(found.jet("u", index), expected.jet("u", index), rtol=1e-8, atol=1e-8)


class Attentive(nn.Module):
    """Attention between the features of one point, normalised."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 12), nn.Linear(12, 1)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        h = torch.tanh(self.first(x)).view(-1, 3, 4)
        return self.head(self.norm(h + self.attention(h, h, h, need_weights=False)[0]).flatten(1))


def test_a_loss_of_second_derivatives_has_the_slope_that_differences_have():
    from sciml.strategies.prepare import prepare

    torch.manual_seed(0)
    setup = prepare(Poisson(), Attentive(), None, 30, None, torch.float64, "cpu", 0)
    assert setup.rows.engine == "nested autograd"
    objective = setup.objective()
    here = objective.vector()
    _, slope, _ = objective.evaluate()
    way = torch.randn(here.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = []
    for step in (-1e-5, 1e-5):
        objective.assign(here + step * way)
        values.append(objective.evaluate()[0])
    assert float(slope @ way) == pytest.approx(float(values[1] - values[0]) / 2e-5, rel=1e-6)


def test_attention_over_the_features_of_a_point_is_trained_on_equations():
    torch.manual_seed(0)
    solution = sciml.fit(Poisson(), Attentive(), solver=sciml.LeastSquares(40), points=60)
    assert solution.history["loss"].iloc[-1] < 0.5 * solution.history["loss"].iloc[0]
    assert functional.layer_norm is nn.functional.layer_norm

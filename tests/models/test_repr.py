"""Every public model shows its arguments, and is rebuilt from its plain configuration where it has one."""

import math

import pytest
import torch
from torch import nn

import sciml
from sciml import models
from sciml.models import (
    BUILT_IN,
    Chebyshev,
    CornerExponents,
    CornerFunctions,
    CornerSingular,
    Fourier,
    GridFunction,
    PiecewiseBasis,
    PiecewisePolynomial,
    Scaled,
    Sliced,
    Tiles,
    Windowed,
)


def height(points):
    return points


WEDGE = CornerExponents((0.0, 0.0), 0.0, 1.5 * math.pi, 1.0)
INNER = sciml.MLP(3, inputs=1, outputs=1)
SCALED = [Scaled(INNER, [a], [a + 2.0], [0.5], [4.0]) for a in (0.0, 2.0)]
MODELS = [
    (sciml.MLP(3, 4, inputs=2, outputs=1), "hidden=(3, 4), activation='tanh'"),
    (sciml.RandomFeatures(5, 3.0, inputs=2, outputs=1), "features=5, scale=3"),
    (sciml.RandomFeatures(5, (3.0, 0.5), inputs=2, outputs=1), "features=5, scale=3 x 0.5"),
    (sciml.DeepFeatures(INNER, 6, 0.25), "features=6, scale=0.25"),
    (sciml.Spectral((4, 3), periodic=[0], inputs=2, outputs=1), "degree=4 x 3, periodic=[0]"),
    (
        CornerSingular(sciml.Spectral(3), [WEDGE], center=(0, 0), half_width=(1, 1)),
        "24 functions singular at 1 corner(s)",
    ),
    (PiecewisePolynomial([[-1.0, 0.0, 1.0], [-1.0, 1.0]], [3, 2], 1), "2 x 1 tiles of degree 3 x 2"),
    (Tiles([[-1.0, 0.0, 1.0], [-1.0, 1.0]], [3, 2], 1, live=[1]), "1 of 2 x 1 tiles of degree 3 x 2"),
    (GridFunction([Fourier(0, 2, 5)], torch.zeros(5, 1)), "Fourier(low=0.0, high=2.0, count=5)"),
    (CornerFunctions([WEDGE], (0.0, 0.5), (1.0, 2.0)), "center=0 x 0.5, half_width=1 x 2"),
    (SCALED[0], "center=[1], half_width=[1], offset=[0.5], scale=[4]"),
    (Windowed([0.0, 2.0, 4.0], SCALED, 0, 2), "edges=[0, 2, 4], column=0, order=2"),
    (Sliced(INNER, 1, 0.5), "column=1, value=[0.5]"),
    (sciml.Constrained(INNER, height, height), "g=height, phi=height"),
    (models.PeriodicInputs(INNER, [0], 2), "columns=(0,), harmonics=2"),
    (sciml.FourierFeatures(torch.ones(3, 2)), "waves=3, inputs=2"),
    (sciml.PeriodicEmbedding(("x", "t"), {"x": 2.0}, 3), "waves=3, inputs=2, plain=[1]"),
    (sciml.ResidualBlock(nn.Linear(2, 2)), "Linear(in_features=2"),
    (Chebyshev(0, 1, 4), "Chebyshev(low=0.0, high=1.0, count=4)"),
    (PiecewiseBasis([0.0, 1.0], 3, 2, scaled=False), "PiecewiseBasis(breaks=[0.0, 1.0], degree=3, smooth=2, scaled=False)"),
]


@pytest.mark.parametrize(("model", "shown"), MODELS, ids=[type(model).__name__ for model, _ in MODELS])
def test_arguments_are_shown_and_rebuild_the_model(model, shown):
    assert shown in repr(model)
    if type(model) in BUILT_IN:
        again = type(model).from_config(**model.config)
        assert repr(again) == repr(model)
        again.load_state_dict(model.state_dict())


def test_pieces_of_hermite_have_the_jets_of_their_fields():
    """Fields of different smoothness, between and outside the knots."""
    knots = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    jets = [torch.stack([knots**3, 3 * knots**2]), torch.stack([knots**5, 5 * knots**4, 20 * knots**3])]
    trial, at = models.hermite(knots, jets), torch.linspace(-0.2, 1.3, 20, dtype=torch.float64)[:, None]
    assert torch.allclose(trial(at), torch.cat([at**3, at**5], dim=1), atol=1e-12)
    assert torch.allclose(trial.partial(at, (1,)), torch.cat([3 * at**2, 5 * at**4], dim=1), atol=1e-11)
    with pytest.raises(sciml.errors.ModelError, match="increasing breaks"):
        models.hermite(knots.flip(0), jets)
    with pytest.raises(sciml.errors.ModelError, match=r"jets \(m \+ 1, k\)"):
        models.hermite(knots, [torch.zeros(2, 2)])

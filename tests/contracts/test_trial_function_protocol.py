"""The contract of a trial function: points (n, D) to fields (n, F), derivatives in closed form, states, and what it prints."""

import io
import math
import re
from itertools import product

import pytest
import torch
from torch import nn

import sciml
from sciml.models import (
    BUILT_IN,
    Chebyshev,
    Components,
    Concatenation,
    CornerExponents,
    CornerFunctions,
    CornerSingular,
    DeepFeatures,
    Fourier,
    FourierFeatures,
    GatedBlock,
    GridFunction,
    PeriodicEmbedding,
    PeriodicInputs,
    PiecewisePolynomial,
    Product,
    ResidualBlock,
    Scaled,
    Sliced,
    Spline,
    Tiles,
    Windowed,
)

WEDGE = CornerExponents((-1.2, -1.1), 0.3, 1.5 * math.pi, 1.0, degree=2, spread=0)


def network(inputs=2, outputs=3):
    return sciml.MLP(6, 5, inputs=inputs, outputs=outputs)


def filled(model, seed=0):
    """With other numbers in what is zero at first."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def filled_tiles(model):
    model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=torch.Generator().manual_seed(4)))
    return model


def on_a_grid():
    axes = [Chebyshev(-1.0, 1.0, 6), Fourier(-1.0, 1.0, 7)]
    values = torch.randn(6, 7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return GridFunction(axes, values)


def window(seed, low):
    pieces = filled(PiecewisePolynomial([[-1.0, 1.0]] * 2, degrees=[3, 2], outputs=3), seed)
    return Scaled(pieces, [-1.0, low], [1.0, low + 1.0], [0.0] * 3, [1.0] * 3)


# All from two coordinates but for one; with the numbers of fields.
COORDINATES = {"Spline": 1}
MODELS = {
    "MLP": (network, 3),
    "RandomFeatures": (lambda: sciml.RandomFeatures(20, 2.0, inputs=2, outputs=3), 3),
    "DeepFeatures": (lambda: DeepFeatures(network(), 20), 3),
    "Spectral": (lambda: sciml.Spectral((4, 3), periodic=[1], inputs=2, outputs=3), 3),
    "CornerSingular": (
        lambda: CornerSingular(
            sciml.RandomFeatures(20), [WEDGE], center=(0, 0), half_width=(1, 1), inputs=2, outputs=3, seed=0
        ),
        3,
    ),
    "CornerFunctions": (lambda: CornerFunctions([WEDGE], (0.0, 0.0), (1.0, 1.0)), 12),
    "PiecewisePolynomial": (lambda: PiecewisePolynomial([[-1.0, 0.1, 1.0], [-1.0, 1.0]], degrees=[4, 3], outputs=3), 3),
    "Tiles": (lambda: filled_tiles(Tiles([[-1.0, 0.1, 1.0], [-1.0, 1.0]], degrees=[4, 3], outputs=3, live=[0])), 3),
    "Spline": (lambda: Spline([-1.0, 0.1, 1.0], 6, 3, inputs=1, outputs=3), 3),
    "GridFunction": (on_a_grid, 3),
    "Scaled": (lambda: Scaled(network(), [-1.0, -1.0], [1.0, 3.0], [0.5, 0.0, 1.0], [2.0, 1.0, 1.0]), 3),
    "Constrained": (
        lambda: sciml.Constrained(network(), g=lambda x: x.sum(1, keepdim=True), phi=lambda x: x[:, :1] * x[:, 1:]),
        3,
    ),
    "Windowed": (lambda: Windowed([-1.0, 0.0, 1.0], [window(0, -1.0), window(1, 0.0)], column=1), 3),
    "Sliced": (lambda: Sliced(network(inputs=3), 1, 0.5), 3),
    "PeriodicInputs": (lambda: PeriodicInputs(network(inputs=3), [1], 1), 3),
    "PeriodicEmbedding": (lambda: PeriodicEmbedding(("x", "t"), {"x": 2.0}, harmonics=2), 5),
    "FourierFeatures": (lambda: FourierFeatures(torch.tensor([[math.pi, 0.0], [1.0, math.pi]])), 4),
    "ResidualBlock": (lambda: ResidualBlock(nn.Sequential(nn.Linear(2, 2), nn.Tanh())), 2),
    "GatedBlock": (lambda: GatedBlock(nn.Linear(2, 4), nn.Linear(2, 4), nn.Linear(2, 4)), 4),
    "Product": (lambda: Product(nn.Linear(2, 4), nn.Linear(2, 4)), 4),
    "Components": (lambda: Components([window(0, -1.0), window(1, -1.0)], [1, 5, 0, 3, 2, 4]), 6),
    "Concatenation": (lambda: Concatenation(nn.Linear(2, 4), nn.Linear(2, 1)), 5),
}


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def made(name):
    make, _ = MODELS[name]
    torch.manual_seed(0)
    return filled(make().double())


def points(name, count=9, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return 1.8 * torch.rand(count, COORDINATES.get(name, 2), generator=generator, dtype=torch.float64) - 0.9


def test_every_trial_function_is_held_by_this_contract():
    public = {name: getattr(sciml.models, name) for name in sciml.models.__all__}
    trial = {name for name, thing in public.items() if isinstance(thing, type) and issubclass(thing, nn.Module)}
    assert trial == set(MODELS)
    assert all(type(MODELS[each][0]()).__name__ == each for each in MODELS)


def test_points_become_fields_row_by_row(name):
    model, at = made(name), points(name)
    values = model(at)
    assert values.shape == (9, MODELS[name][1])
    assert values.dtype == torch.float64
    assert bool(values.isfinite().all())
    if name != "GridFunction":  # cannot tell the width of none
        assert model(at[:0]).shape == (0, MODELS[name][1])
    order = torch.arange(8, -1, -1)
    assert torch.allclose(model(at[order]), values[order], rtol=1e-12, atol=1e-13)
    assert torch.allclose(model(at[3:4]), values[3:4], rtol=1e-12, atol=1e-13)


def test_fields_can_be_differentiated_twice_by_the_points(name):
    model, at = made(name), points(name, 4).requires_grad_()
    assert torch.autograd.gradcheck(model, at)
    assert torch.autograd.gradgradcheck(model, at)


def test_derivatives_in_closed_form_are_those_of_autograd(name):
    model, at = made(name), points(name, 6).requires_grad_()
    if not hasattr(model, "partial") or (name == "Scaled" and not hasattr(model.model, "partial")):
        return
    for orders in product(range(3), repeat=2):
        expected = model(at)
        for column, order in enumerate(orders):
            for _ in range(order):
                slopes = [
                    torch.autograd.grad(expected[:, field].sum(), at, create_graph=True, allow_unused=True)[0]
                    for field in range(expected.shape[1])
                ]
                expected = torch.stack([torch.zeros(6) if each is None else each[:, column] for each in slopes], 1)
                expected = expected.double()
        assert torch.allclose(model.partial(at, list(orders)), expected, rtol=1e-7, atol=1e-7), orders


def test_a_state_makes_the_same_function_again(name):
    model, at = made(name), points(name)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    again = made(name)
    for parameter in again.parameters():
        parameter.data.zero_()
    again.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(again(at), model(at))


def test_plain_values_and_a_state_make_the_model_again(name):
    """Models that a saved solution holds are made from their ``config``."""
    model, at = made(name), points(name)
    if type(model) not in (*BUILT_IN, GridFunction):
        return
    again = type(model).from_config(**model.config).double()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(at), model(at))


def test_what_is_printed_names_the_class_and_its_arguments(name):
    shown = repr(made(name))
    assert shown.startswith(f"{name}(")
    assert not re.search(r" at 0x[0-9a-f]+", shown.replace("\n", "")) or name == "Constrained"

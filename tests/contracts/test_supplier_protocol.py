"""The contract of a supplier of jets: derivatives ``(n,)`` by field and multi-index, the same at every request."""

import pytest
import torch

import sciml
from sciml import jets
from sciml.jets.linear import features_at
from sciml.models import PiecewisePolynomial
from sciml.models.grid import Grid, GridJets

POINTS = torch.rand(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1
NAMES, FIELDS = ("x", "t"), ("u", "v")
INDICES = [(), ("x",), ("t",), ("x", "t"), ("x", "x"), ("x", "x", "t")]


def features():
    """Random features in units of their own, as a fit has them."""
    model = sciml.RandomFeatures(9, 2.0)
    model.build(2, 2, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return sciml.models.Scaled(model, [-1.0, -1.5], [1.0, 2.0], [0.3, 0.0], [2.0, 0.5])


def pieces():
    model = PiecewisePolynomial([[-1.0, 0.1, 1.0], [-1.0, 1.0]], [4, 3], 2)
    model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=torch.Generator().manual_seed(3)))
    return model


def grid_jets():
    axes = {name: sciml.models.Chebyshev(-1.0, 1.0, 6) for name in NAMES}
    grid = Grid(axes)
    values = {(field, 0): grid.points[:, 0] ** 3 * grid.points[:, 1] + number for number, field in enumerate(FIELDS)}
    return GridJets(values, grid.at_points(POINTS.numpy())), lambda points: torch.stack(
        [points[:, 0] ** 3 * points[:, 1] + number for number in range(2)], dim=1
    )


SUPPLIERS = {
    "AnalyticJets": lambda: (jets.AnalyticJets(pieces(), POINTS, NAMES, FIELDS), pieces()),
    "AutogradJets": lambda: (jets.AutogradJets(features(), POINTS, NAMES, FIELDS), features()),
    "LinearJets": lambda: (
        jets.LinearJets(features(), FIELDS, features_at(features(), POINTS, NAMES, tuple(INDICES), FIELDS)),
        features(),
    ),
    "TaylorJets": lambda: (jets.TaylorJets(features(), POINTS, NAMES, FIELDS, tuple(INDICES)), features()),
    "GridJets": grid_jets,
}


def test_every_supplier_is_held_by_this_contract():
    public = {name for name in jets.__all__ if name.endswith("Jets")}
    assert public == {*SUPPLIERS, "RandomJets"} - {"GridJets"}


@pytest.mark.parametrize("name", SUPPLIERS)
def test_jets_are_the_derivatives_of_the_function(name):
    supplier, function = SUPPLIERS[name]()
    truth = jets.AutogradJets(function, POINTS, NAMES, FIELDS)
    assert isinstance(supplier.name, str)
    for field in FIELDS:
        for index in INDICES:
            found = supplier.jet(field, index)
            assert found.shape == (len(POINTS),)
            assert torch.equal(found, supplier.jet(field, index)), "the same at every request"
            torch.testing.assert_close(found.detach(), truth.jet(field, index).detach(), rtol=1e-9, atol=1e-9)


def test_random_jets_are_the_same_at_every_request_and_differ_from_one_another():
    supplier = jets.RandomJets(len(POINTS))
    seen = [supplier.jet(field, index) for field in FIELDS for index in INDICES]
    assert all(each.shape == (len(POINTS),) for each in seen)
    assert all(torch.equal(supplier.jet(FIELDS[0], index), seen[place]) for place, index in enumerate(INDICES))
    assert len({float(each[0]) for each in seen}) == len(seen)

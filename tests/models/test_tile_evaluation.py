"""Cut tiles as a trial function: how many points are evaluated at once."""

import pytest
import torch

from sciml.models import Tiles


@pytest.mark.parametrize("orders", [(0, 0, 0), (2, 0, 0), (1, 0, 1), (0, 0, 2)])
@pytest.mark.parametrize("full", [(), (2,)])
def test_sums_are_factorised_for_many_points(orders, full, monkeypatch):
    """Points are evaluated with all products of a few, and coordinate by coordinate of many, tile by tile."""
    cuts = [-1.0, 0.1, 1.0]
    model = Tiles([cuts, cuts, [-1.0, 1.0]], [10, 9, 8], 2, None, full)
    model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=torch.Generator().manual_seed(0)).double())
    points = 2 * torch.rand(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 1
    taken = []
    whole = Tiles._factorised
    monkeypatch.setattr(Tiles, "_factorised", lambda self, *args: taken.append(1) or whole(self, *args))
    together = model._values(points, orders)
    assert len(taken) == 4
    one_by_one = torch.cat([model._values(each, orders) for each in points.split(10)])
    assert len(taken) == 4
    assert torch.allclose(together, one_by_one, rtol=1e-12, atol=1e-10 * float(one_by_one.abs().max()))


def test_many_fields_of_one_coordinate():
    model = Tiles([[-1.0, 0.2, 1.0]], [6], 20)
    model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=torch.Generator().manual_seed(0)))
    points = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    narrow = torch.cat([_alone(model, field)(points) for field in range(20)], dim=1)
    assert torch.allclose(model(points), narrow, rtol=1e-12, atol=1e-12)


def _alone(model, field):
    found = model.like(1)
    found.coefficients.copy_(model.coefficients[:, field : field + 1])
    return found


@pytest.mark.gpu
def test_what_was_evaluated_on_the_cpu_is_moved_to_a_gpu(gpu):
    model = Tiles([[-1.0, 0.0, 1.0]] * 3, [8, 8, 8], 1)
    points = torch.linspace(-0.9, 0.9, 300, dtype=torch.float64)[:, None] * torch.tensor([1.0, -0.7, 0.4])
    model.coefficients.copy_(torch.rand(model.coefficients.shape, generator=torch.Generator().manual_seed(0)))
    known = model(points)
    assert torch.allclose(model.to(gpu)(points.to(gpu)).cpu(), known, rtol=1e-12, atol=1e-12)

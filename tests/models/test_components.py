"""Trial functions of some of the fields each: their order, and several with one table each as one."""

import pytest
import torch

from sciml.errors import ModelError
from sciml.models import Chebyshev, Components, GridFunction, PiecewisePolynomial, Scaled, Windowed, side_by_side


def pieces(seed, outputs):
    model = PiecewisePolynomial([[-1.0, 0.2, 1.0], [-1.0, 1.0]], [3, 2], outputs)
    model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=torch.Generator().manual_seed(seed)))
    return Scaled(model, [0.0, 0.0], [2.0, 1.0], [0.0] * outputs, [2.0] * outputs)


def on_a_grid(seed):
    values = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return GridFunction([Chebyshev(-1.0, 1.0, 5), Chebyshev(-1.0, 1.0, 4)], values)


POINTS = torch.rand(20, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_columns_are_in_the_order_of_the_fields():
    both = Components([pieces(0, 2), pieces(1, 1)], [2, 0, 1])
    first, second = pieces(0, 2), pieces(1, 1)
    for orders in ([0, 0], [1, 2]):
        wanted = torch.cat(
            [first.partial(POINTS, orders)[:, [1]], second.partial(POINTS, orders), first.partial(POINTS, orders)[:, [0]]], 1
        )
        assert torch.equal(both.partial(POINTS, orders), wanted)
    with pytest.raises(ModelError, match="each number of a field once"):
        Components([pieces(0, 2)], [0, 2])


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: pieces(seed, 2),
        on_a_grid,
        lambda seed: Windowed([0.0, 0.5, 1.0], [pieces(seed, 2), pieces(seed + 7, 2)], 1),
    ],
)
def test_functions_of_one_kind_are_one_function_with_all_outputs(make):
    three = [make(seed) for seed in range(3)]
    together = side_by_side(three)
    assert type(together) is type(three[0])
    assert torch.allclose(together(POINTS), torch.cat([each(POINTS) for each in three], dim=1), rtol=1e-13, atol=1e-13)

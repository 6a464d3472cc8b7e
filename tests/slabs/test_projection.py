"""L2 projection of what a grid does not resolve: moments are right, polynomials stay, jumps anywhere are found."""

import math

import pytest
import torch

from sciml.models import Chebyshev, Fourier
from sciml.models.bases import gauss
from sciml.slabs.projection import projected


def total(axes, values):
    """The integral of nodal values."""
    for axis in axes:
        values = torch.tensordot(torch.from_numpy(axis.weights), values, ([0], [0]))
    return float(values)


PLANE = [Chebyshev(-1, 1, 30), Chebyshev(-1, 1, 27)]
SHAPES = {
    "disk": (lambda x, y: (x - 0.1) ** 2 + y**2 < 0.3, 0.3 * math.pi, 1e-6),
    "rectangle": (lambda x, y: (x.abs() < 0.4137) & ((y - 0.2).abs() < 0.513), 4 * 0.4137 * 0.513, 1e-7),
    "band": (lambda x, y: (x + 2 * y).abs() < 0.25, 0.5, 1e-6),
    "half": (lambda x, y: x < 0.5 + 0 * y, 3.0, 1e-7),
}


@pytest.mark.parametrize("name", SHAPES)
def test_integrals_of_what_jumps_are_right(name):
    inside, area, close = SHAPES[name]
    found = projected(PLANE, lambda columns: inside(*columns).double()[None])[0]
    assert total(PLANE, found) == pytest.approx(area, rel=close)


def test_moments_with_smooth_functions_are_those_of_what_jumps():
    # Interpolation at the nodes has them to a tenth of a per cent at best.
    found = projected(PLANE, lambda columns: (columns[0] < 0.3).double()[None])[0]
    at, weights = gauss(60)
    across, along = (axis.table(at, 0)[1] for axis in PLANE)
    moment = float((weights * torch.exp(at)) @ (across @ found @ along.T) @ (weights * torch.cos(at)))
    assert moment == pytest.approx((math.exp(0.3) - math.exp(-1)) * 2 * math.sin(1), rel=1e-7)


def test_functions_of_the_grid_stay_what_they_are_beside_one_that_jumps():
    axes = [Fourier(0.0, 2.0, 25), Chebyshev(-1, 1, 14)]
    smooth = lambda x, y: torch.sin(3 * math.pi * x) * y**5 + y  # noqa: E731
    both = lambda columns: torch.stack([smooth(*columns), (columns[0] < 0.7).double()])  # noqa: E731
    x, y = torch.meshgrid(*(torch.from_numpy(axis.nodes) for axis in axes), indexing="ij")
    assert torch.allclose(projected(axes, both)[0], smooth(x, y), atol=1e-6)


def test_kinks_and_flat_faces_in_space():
    cube = [Chebyshev(-1, 1, 10)] * 3
    tent = projected(PLANE, lambda columns: (1 - columns[0].abs() - columns[1].abs()).clamp_min(0)[None])[0]
    assert total(PLANE, tent) == pytest.approx(2 / 3, rel=1e-6)
    inside = lambda x, y, z: (x.abs() < 0.37) & (y < 0.2) & (z.abs() < 0.413)  # noqa: E731
    found = projected(cube, lambda columns: inside(*columns).double()[None])[0]
    assert total(cube, found) == pytest.approx(0.74 * 1.2 * 0.826, rel=1e-5)


def test_values_are_asked_for_within_bounds():
    # Nothing is smooth here: halving ends by itself.
    asked = []

    def rough(columns):
        asked.append(len(columns[0]))
        return torch.sin(1e6 * columns[0] * columns[1])[None]

    assert projected(PLANE, rough).isfinite().all()
    assert sum(asked) < 2**24


def test_cells_are_halved_as_far_as_memory_allows():
    asked = []

    def disk(columns):
        asked.append(len(columns[0]))
        return (columns[0].square() + columns[1].square() < 0.3).double()[None]

    for memory, close in ((2e7, 1e-4), (2e6, 1e-3)):
        asked.clear()
        assert total(PLANE, projected(PLANE, disk, memory)[0]) == pytest.approx(0.3 * math.pi, rel=close)
        assert 8 * sum(asked[1:]) < memory / 10

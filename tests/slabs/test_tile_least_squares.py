"""Least squares on tiles and pairs of them, against dense least squares of the same rows."""

import numpy as np
import pytest
import torch

from sciml.slabs.tile_least_squares import TileLeastSquares, combinations

COUNT, WIDTH = 5, 4


def dense(slopes, joined):
    rows = torch.zeros(0, COUNT * WIDTH, dtype=slopes.dtype)
    for tile, own in enumerate(slopes):
        placed = own.new_zeros(len(own), COUNT * WIDTH)
        placed[:, tile * WIDTH : (tile + 1) * WIDTH] = own
        rows = torch.cat([rows, placed])
    for tiles, each in joined:
        for pair, own in zip(tiles.tolist(), each, strict=True):
            placed = own.new_zeros(len(own), COUNT * WIDTH)
            for member, tile in enumerate(pair):
                placed[:, tile * WIDTH : (tile + 1) * WIDTH] += own[:, member * WIDTH : (member + 1) * WIDTH]
            rows = torch.cat([rows, placed])
    return rows


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("similar", [False, True])
@pytest.mark.parametrize("pairs", [[[0, 1], [1, 2], [2, 3], [3, 4]], [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [2, 2]]])
def test_it_is_what_dense_least_squares_finds(dtype, pairs, similar, columns):
    """Pairs of a tile with itself, columns that no row sees, combinations of similar rows are among them."""
    generator = torch.Generator().manual_seed(0)
    slopes = torch.randn(COUNT, 9, WIDTH, dtype=dtype, generator=generator)
    slopes[3, :, 2] = 0
    joined = [(torch.tensor(pairs), torch.randn(len(pairs), 3, 2 * WIDTH, dtype=dtype, generator=generator))]
    unseen = joined[0][1].unflatten(2, (2, WIDTH))
    unseen[(joined[0][0] == 3).nonzero().unbind(1)[0], :, :, 2] *= 0
    values = [
        torch.randn(COUNT, 9, columns, dtype=dtype, generator=generator),
        torch.randn(len(pairs), 3, columns, dtype=dtype, generator=generator),
    ]
    # As those of complex numbers that differ by a turn, of which the real and the imaginary parts count.
    turned = slopes * (0.8 + 0.6j), [(tiles, rows * (0.8 + 0.6j)) for tiles, rows in joined]
    solver = TileLeastSquares(slopes, joined, combinations(*turned) if similar else None)
    assert solver.dtype == dtype
    solver.factor()
    found = solver.solve(values).flatten(0, 1).numpy()
    matrix, right = dense(slopes, joined).numpy(), torch.cat([each.flatten(0, 1) for each in values]).numpy()
    wanted = np.linalg.lstsq(matrix, right, rcond=1e-12)[0]
    assert np.allclose(matrix @ found, matrix @ wanted, rtol=0, atol=1e-10)


def test_steps_go_on_while_they_gain_digits():
    """Rows of pairs a million times as large as others leave a factor hardly any digit of what these say."""
    generator, unit, strength = torch.Generator().manual_seed(0), torch.eye(WIDTH, dtype=torch.float64), 1e6
    slopes = torch.randn(COUNT, 9, WIDTH, dtype=torch.float64, generator=generator)
    pairs = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]])
    joined = [(pairs, strength * torch.cat([unit, -unit], dim=1).expand(len(pairs), -1, -1).contiguous())]
    values = [
        torch.randn(COUNT, 9, 1, dtype=torch.float64, generator=generator),
        strength * torch.randn(len(pairs), WIDTH, 1, dtype=torch.float64, generator=generator),
    ]
    solver = TileLeastSquares(slopes, joined)
    solver.factor()
    matrix, right = dense(slopes, joined).numpy(), torch.cat([each.flatten(0, 1) for each in values]).numpy()
    wanted = np.linalg.lstsq(matrix, right, rcond=1e-15)[0]
    for left, error in ((1e-8, 1e-6), (0.0, 1e-8)):
        found = solver.solve(values, left).flatten(0, 1).numpy()
        assert np.abs(found - wanted).max() < error * np.abs(wanted).max()

"""The block Cholesky factor by nested dissection: against dense matrices, what it costs, what is refused."""

import numpy as np
import pytest
import torch

from sciml.models import Tiles
from sciml.slabs.nested_dissection import BlockCholesky


def graph(*counts):
    """The pairs of neighbours on a grid."""
    model = Tiles([np.linspace(-1, 1, each + 1).tolist() for each in counts], [1] * len(counts), 1)
    return torch.cat([pairs for _, pairs in model.neighbours()])


def blocks(sizes, pairs, dtype, width, seed=0):
    """Random blocks, the diagonal ones dominant, and the dense matrix that they make."""
    generator = torch.Generator().manual_seed(seed)
    tiles, first = torch.arange(len(sizes)), np.cumsum([0, *sizes])
    own = torch.randn(len(sizes), width, width, dtype=dtype, generator=generator)
    own = own @ own.mH / width + 12 * torch.eye(width)
    beside = torch.randn(len(pairs), width, width, dtype=dtype, generator=generator) / width**0.5
    dense = np.zeros((first[-1], first[-1]), dtype=own.numpy().dtype)
    for one, two, block in [(k, k, own[k]) for k in range(len(sizes))] + [
        (int(a), int(b), each) for (a, b), each in zip(pairs, beside, strict=True)
    ]:
        placed = block.numpy()[: sizes[one], : sizes[two]]
        dense[first[one] : first[one + 1], first[two] : first[two + 1]] += placed
        if one != two:
            dense[first[two] : first[two + 1], first[one] : first[one + 1]] += placed.conj().T
    return [(tiles, tiles, own), (pairs[:, 0], pairs[:, 1], beside)], dense


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("counts", [(1,), (2,), (9,), (5, 4), (3, 3, 3)])
def test_it_solves_what_a_dense_matrix_does(dtype, counts):
    solves_what_a_dense_matrix_does(dtype, counts, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_it_solves_what_a_dense_matrix_does_on_a_gpu(dtype, gpu):
    solves_what_a_dense_matrix_does(dtype, (5, 4), gpu)


def solves_what_a_dense_matrix_does(dtype, counts, device):
    """Nodes of several sizes, one without unknowns, pairs named from either side and twice, and a cycle."""
    pairs = graph(*counts)
    pairs = torch.cat([pairs, pairs[::2].flip(1), torch.tensor([[0, np.prod(counts) - 1]])[: int(np.prod(counts) > 1)]])
    sizes = [1 + k % 4 for k in range(np.prod(counts))]
    sizes[len(sizes) // 2] = 0 if len(sizes) > 2 else 1
    parts, dense = blocks(sizes, pairs, dtype, 4)
    right = np.random.default_rng(1).normal(size=len(dense)) * (1 + 0.5j if dtype.is_complex else 1)
    matrix = BlockCholesky(sizes, pairs.numpy())
    matrix.factor([(rows, columns, each.to(device)) for rows, columns, each in parts], 0.5)
    wanted = np.linalg.solve(dense + 0.5 * np.eye(len(dense)), right)
    for times in ([1.0], [1.0, 2.0, -1.0]):
        found = matrix.solve(torch.from_numpy(np.outer(right, times)).to(device))
        assert found.device.type == device
        assert np.allclose(found.cpu().numpy(), np.outer(wanted, times), rtol=1e-11, atol=1e-13)


def test_nodes_that_hang_together_in_parts_or_not_at_all():
    pairs = torch.tensor([[0, 1], [3, 4]])
    parts, dense = blocks([2] * 5, pairs, torch.float64, 2)
    for given, own in ((pairs, parts), (pairs[:0], parts[:1])):
        matrix = BlockCholesky([2] * 5, given.numpy())
        matrix.factor(own, 0.0)
        wanted = dense if len(given) else dense * np.kron(np.eye(5), np.ones((2, 2)))
        right = np.arange(10.0)[:, None]
        assert np.allclose(wanted @ matrix.solve(torch.from_numpy(right)).numpy(), right)


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_what_is_not_positive_definite_is_refused(device, request):
    device = request.getfixturevalue("gpu") if device == "gpu" else device
    pairs = graph(3, 3)
    parts, _ = blocks([2] * 9, pairs, torch.float64, 2)
    parts = [(rows, columns, each.to(device)) for rows, columns, each in parts]
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        BlockCholesky([2] * 9, pairs.numpy()).factor(parts, -40.0)


def test_its_effort_grows_with_the_cube_of_the_side_in_the_plane():
    """A banded factor's grows with the fourth power; and what is foretold is what the factor holds."""
    small, large = (BlockCholesky([4] * side**2, graph(side, side).numpy()) for side in (12, 24))
    assert 6 < large.effort[0] / small.effort[0] < 11
    assert large.effort[0] < 0.35 * 4 * 24**2 * (4.0 * 25) ** 2
    parts, _ = blocks([4] * 144, graph(12, 12), torch.float64, 4)
    small.factor(parts, 0.0)
    held = sum(corner.size + below.size for _, _, corner, below in small._factors)
    assert held < small.effort[1] < 1.5 * held


def test_separators_are_small_where_tiles_differ_in_size():
    """Level sets of one distance alone take 2.5 times the multiplications of as many tiles that are alike, these 1.4 times."""
    model = Tiles([np.linspace(-1, 1, 13).tolist()] * 2, [1, 1], 1)
    for _ in range(3):
        near = (model.centers - torch.tensor([0.3, -0.2])).norm(dim=1) < 0.3 + model.halves[:, 0]
        breaks, live, spans = model.split(near[:, None].expand(-1, 2))
        model = Tiles(breaks, [1, 1], 1, live, (), spans)
    pairs = torch.cat([each for _, each in model.neighbours()]).numpy()
    graded = BlockCholesky([10] * len(model.live), pairs)
    side = round(len(model.live) ** 0.5)
    alike = BlockCholesky([10] * side**2, graph(side, side).numpy())
    assert graded.effort[0] < 1.8 * alike.effort[0]
    # A diagonal cut of a grid has twice the nodes of a straight one: a distance from a corner knows no other.
    assert BlockCholesky([45] * 486, graph(18, 27).numpy()).effort[0] < 6.5e9

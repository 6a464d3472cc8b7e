"""How often a step waits for a number: on a GPU each of these empties its queue."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import sciml
from sciml import solvers
from sciml.strategies.prepare import prepare


class Waits(TorchDispatchMode):
    """Counts tensors that become Python's numbers, and copies from one device to another."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, given=(), options=None):
        name = function.name()
        moved = name == "aten::_to_copy" and (options or {}).get("device", given[0].device) != given[0].device
        # Optimizers count their steps in float32, on the CPU wherever the parameters are.
        asked = name == "aten::_local_scalar_dense" and given[0].dtype == torch.float64
        self.count += asked or moved
        return function(*given, **(options or {}))


def waits_of(solver, points, steps):
    setup = prepare(sciml.gallery.problem("burgers"), sciml.MLP(8, 8), None, points, None, torch.float64, "cpu", 0)
    run = solver.start(setup.objective())
    run.step()
    with Waits() as waits:
        for _ in range(steps):
            run.step()
    return waits.count / steps


@pytest.mark.parametrize(
    ("solver", "most"),
    [
        (solvers.Adam(100), 1),
        (solvers.Adam(100, batch=64), 1),
        (solvers.SSBroyden(100), 16),
        (solvers.LeastSquares(100), 12),
    ],
    ids=["Adam", "mini-batches", "SSBroyden", "LeastSquares"],
)
def test_a_step_waits_for_few_numbers_whatever_the_points(solver, most):
    few, many = (waits_of(solver, points, 5) for points in (200, 2000))
    assert few <= most
    assert many <= 1.5 * few + 1

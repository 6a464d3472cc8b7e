"""What a training step costs by Taylor mode and by nested autograd: products of matrices, and what is kept for the gradient.

Run as a program, this file prints the ratio of times too: 10,000 points, tanh, four layers of 128, one thread.
"""

import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from sciml.jets import AutogradJets, TaylorJets
from sciml.models import MLP, Scaled


def kdv(u):
    return [u("t") + 6 * u() * u("x") + u("xxx")]


def kuramoto_sivashinsky(u):
    return [u("t") + u() * u("x") + u("xx") + u("xxxx")]


def navier_stokes(u, v, p):
    flow = [each("t") + u() * each("x") + v() * each("y") - 0.01 * (each("xx") + each("yy")) for each in (u, v)]
    return [flow[0] + p("x"), flow[1] + p("y"), u("x") + v("y")]


def biharmonic(u):
    return [u("xxxx") + 2 * u("xxyy") + u("yyyy")]


# Coordinates, fields, derivatives; then the ratios of Taylor mode to nested autograd that must not be exceeded.
PLANS = {
    kdv: ("xt", "u", ["t", "xxx"], 0.64, 0.25),
    kuramoto_sivashinsky: ("xt", "u", ["t", "xxxx"], 0.39, 0.13),
    navier_stokes: ("xyt", "uvp", ["t", "xx", "yy"], 0.52, 0.22),
    biharmonic: ("xy", "u", ["xxxx", "xxyy", "yyyy"], 0.35, 0.10),
}


class Counted(TorchDispatchMode):
    """Counts as ``torch.utils.flop_counter`` does, whose own mode cannot watch ``autograd.grad`` by a leaf."""

    def __init__(self):
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        count = flop_registry.get(function._overloadpacket)
        self.flops += 0 if count is None else count(*args, **(kwargs or {}), out_val=found)
        return found


def scene(equation, count, width):
    coordinates, fields = PLANS[equation][:2]
    generator = torch.Generator().manual_seed(0)
    model = MLP(*[width] * 4)
    model.build(len(coordinates), len(fields), generator)
    size = len(coordinates)
    trial = Scaled(model, [-1.0] * size, [1.0] * size, [0.0] * len(fields), [1.0] * len(fields))
    return trial, 2 * torch.rand(count, size, dtype=torch.float64, generator=generator) - 1


def step(supplier, equation, trial, points):
    coordinates, fields, plan = PLANS[equation][:3]
    options = {"plan": [tuple(index) for index in plan]} if supplier is TaylorJets else {}
    jets = supplier(trial, points, tuple(coordinates), tuple(fields), **options)
    rows = equation(*(lambda index="", field=field: jets.jet(field, tuple(index)) for field in fields))
    loss = sum(row.square().mean() for row in rows)
    return torch.autograd.grad(loss, list(trial.parameters()), allow_unused=True, materialize_grads=True)


def cost(supplier, equation, trial, points):
    """Floating-point operations in products, bytes kept for the gradient (each memory once), and the gradient."""
    kept = {}

    def keep(value):
        storage = value.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes(), value
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value), Counted() as counted:
        gradient = step(supplier, equation, trial, points)
    return counted.flops, sum(size for size, _ in kept.values()), gradient


@pytest.mark.parametrize("equation", PLANS, ids=lambda equation: equation.__name__)
def test_a_training_step_costs_what_it_should(equation):
    trial, points = scene(equation, 200, 64)
    flops, kept, gradient = cost(TaylorJets, equation, trial, points)
    nested_flops, nested_kept, nested_gradient = cost(AutogradJets, equation, trial, points)
    most_flops, most_kept = PLANS[equation][3:]
    assert flops / nested_flops < most_flops
    assert kept / nested_kept < most_kept
    for ours, theirs in zip(gradient, nested_gradient, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-11 * float(theirs.abs().max()))


def seconds(equation, trial, points, repeats=5):
    """The shortest processor time of each supplier, taken in turns so that a busy machine slows both."""
    found = {TaylorJets: [], AutogradJets: []}
    for _ in range(repeats):
        for supplier, times in found.items():
            start = time.process_time()
            step(supplier, equation, trial, points)
            times.append(time.process_time() - start)
    return [min(times) for times in found.values()]


def main():
    torch.set_num_threads(1)
    print("Taylor mode / nested autograd:     time, operations, bytes kept")
    for equation in PLANS:
        trial, points = scene(equation, 10_000, 128)
        ours, theirs = seconds(equation, trial, points)
        counts = [cost(supplier, equation, trial, points[:1000])[:2] for supplier in (TaylorJets, AutogradJets)]
        shares = [mine / other for mine, other in zip(*counts, strict=True)]
        print(f"{equation.__name__:24} {ours:.2f} s / {theirs:.2f} s = {ours / theirs:.2f}, {shares[0]:.2f}, {shares[1]:.2f}")


if __name__ == "__main__":
    main()

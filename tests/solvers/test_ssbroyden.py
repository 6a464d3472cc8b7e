"""The self-scaled Broyden update against the published formulas, and at work."""

import math

import numpy as np
import pytest
import torch
from conftest import problem_class
from test_linesearch import Plain, rosenbrock, run

import sciml
from sciml.solvers.ssbroyden import updated


def published(inverse, step, move, change, gradient):
    """Equations 13-23 of Urbán, Stefanou and Pons (2025), as they are printed, in NumPy."""
    n = len(move)
    rho = 1 / (change @ move)
    across = inverse @ change
    h = rho * (change @ across)
    b = -step * rho * (move @ gradient)
    a = b * h - 1
    c = np.sqrt(abs(a) / (1 + a))
    rho_minus = min(1, h * (1 - c))
    theta_minus, theta_plus = (rho_minus - 1) / a, 1 / rho_minus
    theta = max(theta_minus, min(theta_plus, (1 - b) / b))
    sigma = 1 + theta * a
    power = abs(sigma) ** (1 / (1 - n))
    tau = min(min(1, 1 / b) * power, sigma) if theta <= 0 else min(1, 1 / b) * min(power, 1 / theta)
    phi = (1 - theta) / (1 + a * theta)
    rest = rho * move - across / (change @ across)
    kept = inverse - np.outer(across, across) / (change @ across) + phi * (change @ across) * np.outer(rest, rest)
    return kept / tau + rho * np.outer(move, move)


def quadratic(x):
    return (torch.logspace(0, 3, len(x), dtype=torch.float64) * (x - x.roll(1)).square()).sum() + x.square().sum()


@pytest.mark.parametrize("function", [quadratic, rosenbrock])
def test_the_update_is_the_published_one(function):
    def at(x):
        leaf = torch.tensor(x, requires_grad=True)
        value = function(leaf)
        return float(value.detach()), torch.autograd.grad(value, leaf)[0].numpy()

    x, inverse = np.array([-1.2, 1.0, -0.5, 0.8, 1.5, 0.3]), np.eye(6)
    ours = torch.eye(6, dtype=torch.float64)
    compared = 0
    for _ in range(30):
        value, gradient = at(x)
        step = 1.0
        while not at(x - step * inverse @ gradient)[0] < value:
            step /= 2
        move = -step * inverse @ gradient
        change = at(x + move)[1] - gradient
        x = x + move
        if change @ move > 0:
            updated(ours, step, *(torch.tensor(each) for each in (move, change, gradient)))
            inverse = published(inverse, step, move, change, gradient)
            compared += 1
            assert np.allclose(ours.numpy(), inverse, rtol=1e-8, atol=1e-9 * abs(inverse).max())
            assert np.allclose(inverse @ change, move, rtol=1e-6, atol=1e-7 * abs(move).max())
    assert compared >= 15


def test_it_reaches_the_minimum_to_rounding():
    objective = Plain(rosenbrock, [-1.2, 1.0, -0.5, 0.8, 1.5])
    steps = run(sciml.SSBroyden(300, gradient_tolerance=1e-10), objective)
    assert steps[-1].done == "converged"
    assert torch.allclose(objective.vector(), torch.ones(5, dtype=torch.float64), atol=1e-9)


def test_one_parameter_is_enough():
    objective = Plain(lambda x: (x - 3).square().sum() + (x - 3).pow(4).sum(), [-1.0])
    run(sciml.SSBroyden(100), objective)
    assert math.isclose(float(objective.vector()), 3.0, rel_tol=1e-9)


def test_renewed_points_keep_a_good_matrix_and_reset_a_bad_one():
    objective = Plain(rosenbrock, [-1.2, 1.0, 0.3])
    work = sciml.SSBroyden(50).start(objective)
    for _ in range(5):
        work.step()
    good = work.state_dict()["inverse"]
    work.renewed()
    kept = work.state_dict()["inverse"]
    assert torch.equal(kept, kept.T)
    assert torch.allclose(kept, good)
    work.load_state_dict({**work.state_dict(), "inverse": -good})
    work.renewed()
    assert work.state_dict()["inverse"] is None
    before = objective.evaluate()[0]
    assert work.step().loss < before


@pytest.mark.slow
def test_it_beats_lbfgs_on_a_small_network():
    """At equal evaluations of the gradient, by orders of magnitude."""
    losses = {}
    for solver in (sciml.LBFGS(600), sciml.SSBroyden(300)):
        solution = sciml.fit(
            problem_class("harmonic_oscillator")(),
            sciml.MLP(16, 16),
            solver=[sciml.Adam(150), solver],
            points=128,
            early_stopping=None,
        )
        losses[solver.name] = (solution.history["loss"].iloc[-1], solution.nfev)
    assert losses["SSBroyden"][1] <= 1.1 * losses["LBFGS"][1]
    assert losses["SSBroyden"][0] < 0.1 * losses["LBFGS"][0]

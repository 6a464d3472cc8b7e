"""Line search and quasi-Newton method on functions whose minimum is known."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, rosen, rosen_der

from sciml.errors import SolverError
from sciml.solvers import LBFGS, Adam, FirstOrder
from sciml.solvers.linesearch import Trial, strong_wolfe


class Plain:
    """An objective made of one function of a vector."""

    feed = None

    def __init__(self, function, start):
        self.function = function
        self.parameters = [torch.tensor(start, dtype=torch.float64, requires_grad=True)]

    def evaluate(self):
        loss = self.function(self.parameters[0])
        (gradient,) = torch.autograd.grad(loss, self.parameters)
        return loss.detach(), gradient, {"f": loss.detach()}

    def vector(self):
        return self.parameters[0].detach().clone()

    def assign(self, vector):
        with torch.no_grad():
            self.parameters[0].copy_(vector)

    def set_gradient(self, vector):
        self.parameters[0].grad = vector


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def run(solver, objective):
    work = solver.start(objective)
    steps = []
    for _ in range(solver.steps):
        steps.append(work.step())
        if steps[-1].done:
            break
    return steps


def test_lbfgs_reaches_the_minimum_to_rounding_and_needs_no_more_than_scipy():
    start = [-1.2, 1.0, -0.5, 0.8, 1.5]
    objective = Plain(rosenbrock, start)
    steps = run(LBFGS(500, gradient_tolerance=1e-10), objective)
    assert steps[-1].done == "converged"
    assert torch.allclose(objective.vector(), torch.ones(5, dtype=torch.float64), atol=1e-9)
    theirs = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", options={"maxcor": 50, "gtol": 1e-10, "ftol": 0})
    assert sum(step.evaluations for step in steps) <= 1.5 * theirs.nfev


def test_lbfgs_never_raises_the_loss():
    steps = run(LBFGS(100), Plain(rosenbrock, [-1.2, 1.0]))
    losses = [float(step.loss) for step in steps]
    assert all(after <= before for before, after in itertools.pairwise(losses))


def test_lbfgs_goes_on_where_losses_are_tiny():
    """torch's own stops updating its history once y's < 1e-10."""
    scale = torch.logspace(0, 4, 20, dtype=torch.float64)
    objective = Plain(lambda x: 1e-14 * (scale * x.square()).sum(), np.ones(20))
    run(LBFGS(400, gradient_tolerance=1e-30), objective)
    assert float(objective.vector().abs().max()) < 1e-6


def test_lbfgs_steps_back_from_where_the_loss_is_not_finite():
    objective = Plain(lambda x: -torch.log(1 - x.square()).sum() + (x - 0.9).square().sum(), [0.0])
    steps = run(LBFGS(100), objective)
    assert all(math.isfinite(float(step.loss)) for step in steps)
    x = float(objective.vector())
    assert abs(2 * x / (1 - x**2) + 2 * (x - 0.9)) < 1e-8


def test_lbfgs_says_when_it_cannot_begin():
    step = run(LBFGS(3), Plain(lambda x: torch.log(x).sum(), [-1.0]))[0]
    assert step.done == "diverged"


def test_lbfgs_continues_from_a_saved_state():
    whole = Plain(rosenbrock, [-1.2, 1.0, 0.3])
    run(LBFGS(20), whole)
    parts = Plain(rosenbrock, [-1.2, 1.0, 0.3])
    first = LBFGS(20).start(parts)
    for _ in range(8):
        first.step()
    second = LBFGS(20).start(parts)
    second.load_state_dict(first.state_dict())
    for _ in range(12):
        second.step()
    assert torch.equal(whole.vector(), parts.vector())


@pytest.mark.parametrize("first", [1e-3, 1.0, 1e3])
def test_line_search_meets_the_strong_wolfe_conditions(first):
    def evaluate(step):
        loss = -step / (step**2 + 2)
        slope = (step**2 - 2) / (step**2 + 2) ** 2
        return Trial(step, loss, slope, torch.tensor([slope]))

    start = evaluate(0.0)
    taken, used = strong_wolfe(evaluate, start, first)
    assert used <= 25
    assert taken.loss <= start.loss + 1e-4 * taken.step * start.slope
    assert abs(taken.slope) <= 0.9 * abs(start.slope)


def test_first_order_states_are_complete():
    solver = FirstOrder(
        torch.optim.Adam,
        steps=10,
        lr=0.1,
        scheduler=torch.optim.lr_scheduler.StepLR,
        scheduler_options={"step_size": 3},
    )
    whole = Plain(rosenbrock, [-1.2, 1.0])
    run(solver, whole)
    parts = Plain(rosenbrock, [-1.2, 1.0])
    first = solver.start(parts)
    for _ in range(4):
        first.step()
    second = solver.start(parts)
    second.load_state_dict(first.state_dict())
    for _ in range(6):
        second.step()
    assert torch.equal(whole.vector(), parts.vector())


@pytest.mark.parametrize("make", [lambda: LBFGS(0), lambda: LBFGS(history=0), lambda: Adam(0)])
def test_settings_are_checked(make):
    with pytest.raises(SolverError, match="at least 1"):
        make()

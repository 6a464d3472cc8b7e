"""Every solver continues from its saved state as if it had never stopped; mini-batches; limits on time, loss and memory."""

import numpy as np
import pytest
import torch

import sciml
from problems import Growth
from sciml.errors import SolverError
from sciml.solvers import Objective
from sciml.strategies.prepare import prepare

TIMES = np.linspace(0, 2, 15)
DATA = {"t": TIMES, "u": np.exp(0.8 * TIMES)}


def objective(points=40, model=None):
    setup = prepare(Growth(), model or sciml.MLP(6, 6), DATA, points, None, torch.float64, "cpu", 0)
    return Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)


def stepped(run, count):
    for _ in range(count):
        run.step()


SOLVERS = {
    "Adam": sciml.Adam(50),
    "Adam with rates": sciml.Adam(50, rates={"layers.0": 1e-4, "unknowns": 1e-2}),
    "Adam on parts": sciml.Adam(50, batch=8, seed=3),
    "FirstOrder with a scheduler": sciml.FirstOrder(
        torch.optim.SGD,
        steps=50,
        lr=1e-3,
        momentum=0.9,
        scheduler=torch.optim.lr_scheduler.StepLR,
        scheduler_options={"step_size": 3},
    ),
    "NAdam": sciml.FirstOrder(torch.optim.NAdam, steps=50, lr=1e-3),
    "LBFGS": sciml.LBFGS(50),
    "SSBroyden": sciml.SSBroyden(50),
    "LeastSquares": sciml.LeastSquares(50),
    "LinearLeastSquares": sciml.LinearLeastSquares(50),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_continuing_equals_never_having_stopped(name):
    solver = SOLVERS[name]
    # Undamped steps converge where the model is linear in its parameters.
    model = sciml.RandomFeatures(12, 2.0) if name == "LinearLeastSquares" else None
    whole, before, after = (objective(model=model) for _ in range(3))
    stepped(solver.start(whole), 7)
    first = solver.start(before)
    stepped(first, 2)
    second = solver.start(after)
    after.assign(before.vector())
    second.load_state_dict(first.state_dict())
    stepped(second, 5)
    assert torch.equal(whole.vector(), after.vector())
    assert not torch.equal(whole.vector(), before.vector())


def tensors(state):
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for each in state.values() if isinstance(state, dict) else state:
            yield from tensors(each)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "FirstOrder with a scheduler", "Adam on parts"])
def test_later_steps_leave_a_saved_state_as_it_is(name):
    some = objective()
    run = SOLVERS[name].start(some)
    stepped(run, 3)
    state = run.state_dict()
    before = [each.clone() for each in tensors(state)]
    stepped(run, 3)
    assert all(torch.equal(*pair) for pair in zip(before, tensors(state), strict=True))
    run.load_state_dict(state)
    stepped(run, 3)
    assert all(torch.equal(*pair) for pair in zip(before, tensors(state), strict=True))


def test_one_lucky_part_does_not_make_every_other_place_look_bad(monkeypatch):
    some = objective()
    run, evaluate = sciml.Adam(50, batch=1).start(some), some.evaluate
    losses = iter([1.0, 3.0, 1e-9, *[1.0, 2.0, 0.5] * 9])

    def scattered(blocks):
        loss, gradient, terms = evaluate(blocks)
        return torch.full_like(loss, next(losses)), gradient, terms

    monkeypatch.setattr(some, "evaluate", scattered)
    for _ in range(30):
        here = some.vector()
        run.step()
        assert torch.equal(run.state_dict()["good"], here)


def test_a_part_takes_measurements_with_their_points():
    whole = objective()
    (data,) = (block for block in whole.blocks if block.terms[0].measured)
    chosen = torch.tensor([3, 0, 11])
    all_rows = whole.rows.residuals([data])["data.u"]
    assert torch.equal(whole.rows.residuals([data.part(chosen)])["data.u"], all_rows[chosen])


def test_mini_batches_see_every_point_and_train():
    plain, parts = objective(400), objective(400)
    solver = sciml.Adam(400, batch=32)
    run, seen = solver.start(parts), set()
    evaluate = parts.evaluate

    def watched(blocks):
        assert all(block.size <= 32 for block in blocks)
        seen.update(blocks[0].sample.points[0][:, 0].tolist())
        return evaluate(blocks)

    parts.evaluate = watched
    stepped(run, 400)
    stepped(sciml.Adam(400).start(plain), 400)
    assert len(seen) == 400
    assert parts.value() < 3 * plain.value() + 1e-3


def test_least_squares_stops_at_a_target_and_on_time():
    aimed = sciml.fit(Growth(), sciml.MLP(6, 6), data=DATA, solver=sciml.LeastSquares(200, target=1e-4))
    assert aimed.status == "converged"
    assert "below the target 0.0001" in aimed.message
    assert aimed.nit < 40
    hurried = sciml.fit(Growth(), sciml.MLP(6, 6), data=DATA, solver=sciml.LeastSquares(200, seconds=1e-9))
    assert (hurried.nit, hurried.status) == (1, "budget")
    assert "seconds" in hurried.message


def test_dense_methods_say_what_does_not_fit():
    """The numbers in the message are those of the matrices; who names no factorisation is given steps that form none."""
    some = objective()
    rows, columns = some.shape
    assert some.linearised()[1].shape == (rows, columns)
    for named in ("cholesky", "qr", "svd", "mixed"):
        with pytest.raises(SolverError, match=f"{rows} rows and {columns} parameters.*'cg'.*LBFGS.*fewer points"):
            sciml.LeastSquares(memory=8 * rows * columns, factorisation=named).start(some)
    before = some.value()
    assert sciml.LeastSquares(memory=8 * rows * columns).start(some).step().loss < before
    with pytest.raises(SolverError, match=f"{columns} parameters.*KiB.*LBFGS"):
        sciml.SSBroyden(memory=8 * columns**2).start(some)
    sciml.LeastSquares(memory=2**30).start(some)
    sciml.SSBroyden(memory=2**30).start(some)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: sciml.LeastSquares(seconds=0.0), "positive"),
        (lambda: sciml.LeastSquares(memory=0), "positive"),
        (lambda: sciml.LeastSquares(target=-1.0), "not be negative"),
        (lambda: sciml.LeastSquares(factorisation="lu"), "'auto', 'cholesky', 'qr', 'svd'"),
        (lambda: sciml.SSBroyden(0), "positive"),
        (lambda: sciml.Adam(5, batch=0), "at least 1"),
    ],
)
def test_settings_are_checked(make, what):
    with pytest.raises(SolverError, match=what):
        make()

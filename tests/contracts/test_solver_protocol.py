"""The contract of a solver: an immutable record that starts runs, whose steps are counted, finite and can be continued."""

import math

import pytest
import torch

import sciml
from problems import Growth
from sciml import solvers
from sciml.errors import SolverError
from sciml.solvers import Objective, Run, Solver, Step
from sciml.strategies.prepare import prepare

SOLVERS = {
    "Adam": sciml.Adam(30),
    "FirstOrder": sciml.FirstOrder(torch.optim.RMSprop, steps=30, lr=1e-3),
    "GaussNewton": sciml.GaussNewton(30),
    "LBFGS": sciml.LBFGS(30),
    "LeastSquares": sciml.LeastSquares(30),
    "LinearLeastSquares": sciml.LinearLeastSquares(30),
    "SSBroyden": sciml.SSBroyden(30),
}


NAMESPACE = {"torch": torch, **{name: getattr(solvers, name) for name in solvers.__all__}}

WRITTEN = {
    "Adam": [solvers.Adam(), solvers.Adam(100, lr=1e-2, batch=32, rates={"unknowns": 0.1})],
    "FirstOrder": [
        solvers.FirstOrder(torch.optim.SGD),
        solvers.FirstOrder(
            torch.optim.AdamW,
            500,
            scheduler=torch.optim.lr_scheduler.StepLR,
            scheduler_options={"step_size": 3},
            clip=1.0,
            lr=0.1,
        ),
    ],
    "GaussNewton": [solvers.GaussNewton(), solvers.GaussNewton(30, rank_tolerance=0.0)],
    "LBFGS": [solvers.LBFGS(), solvers.LBFGS(50, history=5)],
    "LeastSquares": [
        solvers.LeastSquares(),
        solvers.LeastSquares(20, seconds=math.inf, factorisation="svd", memory=1e9),
    ],
    "LinearLeastSquares": [solvers.LinearLeastSquares(), solvers.LinearLeastSquares(3, rank_tolerance=1e-12)],
    "SSBroyden": [solvers.SSBroyden(), solvers.SSBroyden(10, memory=2.0**30)],
}

RECORDS = [
    solvers.Adaptive(every=5),
    solvers.Balanced("ntk", smoothing=0.5),
    solvers.Causal(chunks=4),
    solvers.EarlyStopping(patience=3),
    solvers.HardConstraints(harmonics=2),
]

DATA = {"t": [0.0, 0.5, 1.0, 1.5, 2.0], "u": [math.exp(0.8 * t) for t in (0.0, 0.5, 1.0, 1.5, 2.0)]}


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


def objective():
    """Weights of random features, in which the rows are linear, and a rate beside them."""
    setup = prepare(Growth(), sciml.RandomFeatures(12, 2.0), DATA, 40, None, torch.float64, "cpu", 0)
    return Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)


def below(kind):
    return {kind, *(each for sub in kind.__subclasses__() for each in below(sub))}


def test_every_solver_is_held_by_this_contract():
    public = {getattr(sciml.solvers, name) for name in sciml.solvers.__all__} & below(Solver)
    assert {type(each) for each in SOLVERS.values()} == public - {Solver}
    assert set(WRITTEN) == set(SOLVERS)


def test_it_is_a_record_with_steps_and_a_name(solver):
    assert solver.steps == 30
    assert solver.look >= 1
    assert solver.name in {type(solver).__name__, "RMSprop"}
    assert vars(solver) == vars(type(solver)(**arguments(solver)))
    for wrong in (0, -3):
        with pytest.raises(SolverError):
            type(solver)(**{**arguments(solver), "steps": wrong})


def arguments(solver):
    """What the constructor takes, from the record's own attributes."""
    if isinstance(solver, sciml.Adam):
        return {"steps": solver.steps, "look": solver.look}
    if isinstance(solver, sciml.FirstOrder):
        return {"optimizer": solver.optimizer, "steps": solver.steps, "look": solver.look, **solver.options}
    return vars(solver)


def test_steps_are_told_and_lower_the_loss(solver):
    some = objective()
    before, names = some.value(), set(some.rows.residuals(some.blocks))
    run = solver.start(some)
    assert isinstance(run, Run)
    for _ in range(8):
        step = run.step()
        assert isinstance(step, Step)
        assert torch.isfinite(step.loss)
        # LeastSquares evaluates the terms after its last step only.
        assert set(step.terms) == names or (isinstance(solver, sciml.LeastSquares) and not (step.terms or step.done))
        assert step.evaluations >= 1
        assert step.done in {None, "converged", "diverged", "budget"}
        assert bool(step.message) == (step.done is not None)
        if step.done:
            break
    assert some.value() < before
    assert bool(torch.isfinite(some.vector()).all())


def test_a_run_continues_from_its_state_as_if_it_had_never_stopped(solver, tmp_path):
    """By way of a file that holds tensors and plain values alone."""
    whole, first, second = (objective() for _ in range(3))
    run = solver.start(whole)
    for _ in range(6):
        run.step()
    run = solver.start(first)
    for _ in range(3):
        run.step()
    torch.save(run.state_dict(), tmp_path / "state.pt")
    again = solver.start(second)
    second.assign(first.vector())
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for _ in range(3):
        again.step()
    assert torch.equal(whole.vector(), second.vector())


def test_runs_of_one_solver_do_not_know_of_each_other(solver):
    some, other = objective(), objective()
    one, two = solver.start(some), solver.start(other)
    for _ in range(3):
        one.step()
    for _ in range(3):
        two.step()
    assert torch.equal(some.vector(), other.vector())


def test_a_run_goes_on_after_its_points_have_changed(solver):
    some = objective()
    run = solver.start(some)
    run.step()
    some.blocks = [block.part(torch.arange(0, block.size, 2)) if block.size > 8 else block for block in some.blocks]
    run.renewed()
    before = some.value()
    for _ in range(4):
        assert torch.isfinite(run.step().loss)
    assert some.value() < 1.5 * before


@pytest.mark.parametrize("given", [*(each for both in WRITTEN.values() for each in both), *RECORDS], ids=repr)
def test_a_repr_is_the_call_that_makes_it(given):
    again = eval(repr(given), dict(NAMESPACE))
    assert type(again) is type(given)
    assert vars(again) == vars(given)
    assert repr(again) == repr(given)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("setting", ["steps", "look"])
def test_numbers_of_steps_are_checked(name, setting):
    first = (torch.optim.SGD,) if name == "FirstOrder" else ()
    for wrong in (0, -1, True):
        with pytest.raises(SolverError, match=f"{setting}.* must be positive whole numbers of at least 1"):
            getattr(solvers, name)(*first, **{setting: wrong})

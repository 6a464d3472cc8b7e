"""Every strategy: an obstacle in a sentence or candidates, a repr with its arguments, one record, one end."""

import inspect
import math

import numpy as np
import pytest
from candidates import candidate, workspace

import sciml
from problems import Decay, Growth, Heat, Poisson
from sciml import d, strategies
from sciml.strategies import Candidate, Strategy
from sciml.strategies.search import search
from sciml.strategies.select import KINDS

OWN = [
    pytest.param(kind, marks=pytest.mark.slow) if kind is strategies.SmallNetwork else kind
    for kind in KINDS
    if kind is not strategies.Train
]


PROBLEMS = [Decay(), Poisson(), Heat()]


class Source(sciml.Problem):
    """A source that is to be found from what it brings about."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u", "f"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, f, x):
        return d(u, x, x) + f


class Decline(sciml.Problem):
    """A law without derivatives."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["u"]
    rate = sciml.Unknown(0.5)

    @sciml.equation
    def law(self, u, t):
        return u * (self.rate * t).exp() - 1


def measured():
    """A problem with measurements for each strategy that needs them."""
    t = np.linspace(0, 2, 20)
    where = np.linspace(0, 1, 40)
    return {
        strategies.NonlinearRegression: (Decline(), {"t": t, "u": np.exp(-0.8 * t)}),
        strategies.AllAtOnce: (Growth(), {"t": t, "u": np.exp(0.8 * t)}),
        strategies.InverseFields: (Source(), {"x": where, "u": np.sin(np.pi * where)}),
    }


def test_the_list_of_strategies_is_complete():
    public = {getattr(strategies, name) for name in strategies.__all__}
    assert {each for each in public if inspect.isclass(each) and issubclass(each, Strategy)} == {Strategy, *KINDS}


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_a_strategy_says_why_it_cannot_serve_and_serves_what_it_is_for(kind):
    served = [measured()[kind]] if kind in measured() else []
    for problem in PROBLEMS:
        obstacle = kind().obstacle(workspace(problem))
        if obstacle is None:
            served.append((problem, None))
            continue
        assert obstacle[0].islower()
        assert not obstacle.endswith(".")
        with pytest.raises(sciml.errors.SolverError, match="cannot serve"):
            sciml.fit(problem, strategy=kind)
    problem, data = served[0]
    measurements = None if data is None else sciml.Measurements(data)
    work = workspace(problem, measurements=measurements, tolerance=1e-2)
    assert kind().obstacle(work) is None
    found = candidate(kind(), work)
    assert isinstance(found, Candidate)
    assert found.solved
    assert found.residual < 1e-2
    assert found.reason
    assert work.log.history
    assert math.isfinite(work.log.seconds)


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_a_strategy_has_a_repr_with_its_arguments(kind):
    way = kind()
    assert eval(repr(way), vars(strategies)) == way
    assert repr(strategies.Spectral((8, 9))) == "Spectral(degree=(8, 9))"


def test_a_strategy_may_be_named_in_three_ways_and_nothing_else_is_tried():
    for named in ("Spectral", strategies.Spectral, strategies.Spectral(12), [strategies.Spectral(12)]):
        solution = sciml.fit(Decay(), strategy=named)
        assert solution.success
        assert solution.solver == "LinearLeastSquares"
        assert [each for each in solution.choices if each.startswith("Spectral: residual")]
        assert not [each for each in solution.choices if each.startswith("RandomFeatures")]
    with pytest.raises(sciml.errors.SolverError, match="Did you mean 'Spectral'"):
        sciml.fit(Decay(), strategy="Spectrl")


def test_a_strategy_that_brings_its_own_function_does_not_take_a_model_beside_it():
    with pytest.raises(sciml.errors.SolverError, match="leave out model"):
        sciml.fit(Decay(), sciml.MLP(4), strategy="Spectral")
    quick = sciml.LBFGS(5)
    for train, width in (
        (strategies.Train, 4),
        (strategies.Train(sciml.MLP(5)), 5),
        (strategies.Train(solvers=(quick,)), 4),
    ):
        solution = sciml.fit(Decay(), sciml.MLP(4), strategy=train, solver=quick)
        assert isinstance(solution.model, sciml.MLP)
        assert solution.solver == "LBFGS"
        assert tuple(solution.model.hidden) == (width,)


def test_choices_say_what_was_tried_what_was_left_out_and_why():
    choices = sciml.fit(Poisson()).choices
    assert any(each.startswith("Spectral: residual") for each in choices)
    assert "TimeMarching: left out, it has no time coordinate" in choices


class Fixed(Strategy):
    """A strategy whose candidates are given."""

    def __init__(self, *found, raises=False):
        self.found, self.raises = found, raises

    def candidates(self, work, best):
        yield from self.found
        if self.raises:
            raise KeyboardInterrupt


def made(residual, **options):
    return Candidate(workspace(Decay()).discrete, residual, "none", **options)


def test_the_search_keeps_the_smallest_residual_and_ends_at_what_is_accepted():
    work = workspace(Decay())
    good, better, accepted = made(1e-3), made(1e-4), made(1e-2, accepted=True)
    assert search([Fixed(good), Fixed(better), Fixed(made(1e-1))], work) is better
    assert search([Fixed(good, made(1e-2))], work).residual == 1e-2, "a strategy's last word on itself counts"
    assert search([Fixed(better), Fixed(accepted), Fixed(made(1e-9))], work) is better
    assert search([Fixed()], work) is None


def test_ctrl_c_keeps_the_best_candidate():
    work = workspace(Decay())
    found = search([Fixed(made(1e-3)), Fixed(made(1e-2), raises=True), Fixed(made(1e-9))], work)
    assert (found.residual, found.status) == (1e-3, "interrupted")
    with pytest.raises(KeyboardInterrupt):
        search([Fixed(raises=True)], work)


def test_a_worse_candidate_that_diverged_does_not_speak_for_the_best():
    work = workspace(Decay())
    found = search([Fixed(made(1e-3)), Fixed(made(math.inf, status="diverged")), Fixed(made(1e-2))], work)
    assert (found.residual, found.status) == (1e-3, "converged")
    stopped = search([Fixed(made(1e-3)), Fixed(made(1e-2, status="stopped")), Fixed(made(1e-9))], work)
    assert (stopped.residual, stopped.status) == (1e-3, "stopped")


def test_a_strategy_of_last_resort_is_not_tried_where_something_sufficient_is_known():
    class Last(Fixed):
        last_resort = True

    work = workspace(Decay())
    assert search([Fixed(made(1e-5, sufficient=True)), Last(made(1e-9))], work).residual == 1e-5
    assert "Last: not tried, what was found is good enough" in work.choices
    assert search([Fixed(made(1e-5)), Last(made(1e-9))], work).residual == 1e-9

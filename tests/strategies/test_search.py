"""What a search, its windows and its repeated fits do when somebody wants the end, and what its tries leave to each other."""

import math

import numpy as np
import pytest
import torch
from candidates import candidate, workspace
from conftest import problem_class

import sciml
from problems import Decay, Heat, Line, Poisson
from sciml import d, strategies
from sciml.errors import SolverError
from sciml.problem import Measurements
from sciml.problem.measurements import data_blocks
from sciml.strategies import network, noise_scale, spectral
from sciml.strategies.inverse_constants import OutputError
from sciml.strategies.network import Train
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Budget, Candidate, Log, Strategy, search


class Fixed(Strategy):
    def candidates(self, work, best):
        yield Candidate(work.discrete, 1e-3, "none")


class Never(Strategy):
    def candidates(self, work, best):
        pytest.fail("the search went on")
        yield


@pytest.mark.parametrize("after", [2, 4])
def test_ctrl_c_between_windows_is_no_success(after, monkeypatch):
    """What is known of the first windows is kept, and said to be that; no phase of training sees the interruption."""
    begun, original = [], network.window

    def window(*arguments):
        begun.append(arguments)
        if len(begun) == after:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(network, "window", window)
    solution = sciml.fit(Decay(), sciml.MLP(6), solver=sciml.LBFGS(40), windows=4)
    assert solution.status == "interrupted"
    assert not solution.success
    assert len(solution.model.windows) == after - 1


def test_a_wish_for_the_end_outlives_a_strategy_that_has_nothing_to_add():
    class Silent(Strategy):
        def candidates(self, work, best):
            work.log.status = "stopped"
            yield from ()

    found = search([Fixed(), Silent(), Never()], workspace(Decay()))
    assert (found.residual, found.status) == (1e-3, "stopped")


def test_what_no_way_mends_is_doubted_whichever_came_closest():
    class Vain(Strategy):
        def candidates(self, work, best):
            yield Candidate(work.discrete, 2e-3, "none", doubt="nothing balances", accepted=True)

    found = search([Fixed(), Vain(), Never()], workspace(Decay()))
    assert (found.residual, found.doubt) == (1e-3, "nothing balances")


def test_no_strategy_begins_when_the_budget_is_spent():
    work = workspace(Decay())
    work.log.budget = Budget(seconds=0.0)
    found = search([Fixed(), Never()], work)
    assert (found.residual, found.status, work.log.spent) == (1e-3, "stopped", True)


@pytest.mark.parametrize(("whole", "kept"), [(0.5, 1e-3), (0.1, 0.1)])
def test_a_part_that_is_solved_is_kept_before_what_says_nothing_of_the_whole(whole, kept):
    class Part(Strategy):
        def candidates(self, work, best):
            yield Candidate(work.discrete, 1e-3, "none", solved=False)

    class Whole(Strategy):
        def candidates(self, work, best):
            yield Candidate(work.discrete, whole, "none")

    assert search([Part(), Whole()], workspace(Decay())).residual == kept
    assert search([Whole(), Part()], workspace(Decay())).residual == kept


@pytest.mark.parametrize(
    ("left", "ahead", "over"), [(100.0, 0.0, False), (100.0, 50.0, False), (100.0, 200.0, True), (0.0, 0.0, True)]
)
def test_what_would_not_end_within_the_budget_does_not_begin(left, ahead, over):
    assert Log(budget=Budget(seconds=left)).over(ahead) is over


def test_a_report_does_not_hide_that_the_budget_is_spent():
    log = Log(budget=Budget(seconds=100.0))
    assert log.over(ahead=200.0)
    log.solved("last", 1.0, 1.0, {}, best=1.0, most=1)
    assert log.spent


def test_ctrl_c_in_a_repeated_fit_keeps_the_one_before():
    """The size of the noise is found from a fit, and used in the next."""
    t = np.linspace(0, 3, 60)
    data = {"t": t, "u": 1 + t + 0.1 * np.random.default_rng(0).standard_normal(60)}
    measurements = Measurements(data, noise={"u": sciml.StudentT()})
    passes = []

    def solve(work):
        passes.append(work)
        if len(passes) == 2:
            raise KeyboardInterrupt
        return candidate(Train(sciml.MLP(4), (sciml.LBFGS(60),)), work)

    found, _ = noise_scale.iterate(solve, workspace(Line(), measurements=measurements))
    assert found.status == "interrupted"
    assert len(passes) == 2


class Rate(Decay):
    rate = sciml.Unknown(1.0)


@pytest.mark.parametrize(("noise", "doubted"), [(sciml.StudentT(), True), (sciml.Normal(), False)])
def test_robust_noise_that_the_time_left_no_fit_for_is_no_success(noise, doubted):
    """Constants of least squares, which outliers move, had been a success."""
    t = np.linspace(0, 1, 30)
    measurements = Measurements({"t": t, "u": np.exp(-2 * t)}, noise={"u": noise})

    def solve(work):
        work.log.budget = Budget(seconds=0.0)
        return candidate(spectral.Spectral(), work)

    found, _ = noise_scale.iterate(solve, workspace(Rate(), measurements=measurements))
    assert ("the noise that was stated of 'u' was not fitted yet" in found.doubt) == doubted


def test_a_repeated_fit_begins_from_the_constants_of_the_one_before(monkeypatch):
    t = np.linspace(0, 1, 30)
    measurements = Measurements({"t": t, "u": np.exp(-2 * t) + 0.01 * np.sin(40 * t)}, noise={"u": sciml.StudentT()})
    begun, reached = [], OutputError.reached

    def noted(self, raw):
        begun[-1].append(float(raw["rate"]))
        return reached(self, raw)

    def solve(work):
        begun.append([])
        return candidate(strategies.NonlinearRegression((strategies.Spectral(),)), work)

    monkeypatch.setattr(OutputError, "reached", noted)
    found, _ = noise_scale.iterate(solve, workspace(Rate(), measurements=measurements))
    assert begun[0][0] == 0.0
    assert begun[1][0] == pytest.approx(float(found.discrete.raw["rate"].detach()), rel=1e-2)
    assert len(begun[1]) < len(begun[0])


def test_tries_of_polynomials_have_unknowns_of_their_own():
    t = np.linspace(0, 1, 30)
    data = Measurements({"t": t, "u": np.exp(-2 * t)})
    work = workspace(Rate(), measurements=data)
    low = spectral._solved(work.discrete, spectral.Degrees((4,), ()), work, None)
    before = float(low.raw["rate"].detach())
    high = spectral._solved(work.discrete, spectral.Degrees((9,), ()), work, low)
    assert high.raw["rate"] is not low.raw["rate"]
    assert float(low.raw["rate"].detach()) == before


def test_what_is_curved_at_its_own_size_is_not_linear():
    class Logistic(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1))
        fields = ["p"]
        most = 8e9
        conditions = [sciml.Dirichlet(p=4e9, on=domain.boundary)]

        @sciml.equation
        def balance(self, p, x, y):
            return d(p, x, x) + d(p, y, y) + 5.0 * p * (1 - p / self.most)

    assert not workspace(Logistic()).linear
    assert not workspace(Logistic(most=8.0)).linear
    assert workspace(Poisson()).linear
    assert workspace(Heat()).linear


def test_parts_of_a_block_know_derivatives_that_their_own_normals_leave_out():
    """Where memory is short the first part of a boundary may lie on one face alone."""

    class Flux(Poisson):
        conditions = [sciml.Neumann(u=0.0, on=Poisson.domain.boundary), sciml.Point(u=1.0, at={"x": 0.5, "y": 0.5})]

    setup = prepare(Flux(), sciml.RandomFeatures(20, 2.0), None, 60, None, torch.float64, "cpu", 0)
    with torch.no_grad():
        for parameter in setup.trial.model.layers[-1].parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    (block,) = [each for each in setup.train if each.terms[0].name.startswith("neumann")]
    whole = prepare(Flux(), setup.trial.model, None, 60, None, torch.float64, "cpu", 0).rows.residuals([block])
    setup.rows.portion.size = 8
    parts = setup.rows.numbers([block])
    for name, values in whole.items():
        torch.testing.assert_close(parts[name], values.detach(), rtol=1e-10, atol=1e-10)


def test_a_model_of_the_callers_own_is_not_polished_into_another():
    model = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()
    ways = [strategies.Spectral(3), strategies.Train(model, sciml.LBFGS(10))]
    solution = sciml.fit(Poisson(), strategy=ways)
    assert [each for each in solution.choices if each.startswith("Train: residual")]


def test_a_named_training_is_checked_like_any_other():
    with pytest.raises(SolverError, match="no time coordinate"):
        sciml.fit(Poisson(), sciml.MLP(4), windows=3, strategy="Train")
    with pytest.raises(SolverError, match="a solver is"):
        strategies.Train(solvers=("Adam",))
    with pytest.raises(SolverError, match="start="):
        strategies.Train(begin=3)
    assert strategies.Train(solvers=sciml.LBFGS(3)).solvers == (sciml.LBFGS(3),)


def test_terms_are_made_once():
    problem = problem_class("burgers")()
    assert problem.terms() is problem.terms()
    assert problem.bind(nu=0.1).terms() is not problem.terms()
    for _ in range(3):
        for term in problem.terms():
            problem.system.slopes(term)
    assert len(problem.system._slopes) == len(problem.terms())


def test_measured_functions_are_asked_what_they_need():
    data = {"t": [0.0, 0.5, 1.0], "flux": [1.0, 0.5, 0.3]}
    measurements = Measurements(data, observe={"flux": lambda u, t: d(u, t) * u})
    (block,) = data_blocks(Decay(), measurements)
    (term,) = block.terms
    assert set(Decay().system.asked(term)) == {("u", ("t",)), ("u", ())}


def test_terms_and_constants_may_be_called_as_columns_of_the_history_are():
    class Decay(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        step = sciml.Unknown(0.5)

        @sciml.condition(on=domain.face(t=0))
        def phase(self, u, t):
            return u - 1.0

        @sciml.condition(on=domain.face(t=1))
        def loss(self, u, t):
            return u - 0.5

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + self.step * u

    solution = sciml.fit(Decay())
    assert abs(solution.unknowns.loc["step", "estimate"] - math.log(2)) < 1e-10
    assert solution.history["phase"].map(type).eq(str).all()
    assert {"problem.phase", "problem.loss", "decay"} <= set(solution.history.columns)

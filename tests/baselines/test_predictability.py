"""How far an initial-value problem can be foretold, and that both solvers say so."""

import math

import numpy as np
import pytest
import scipy
import torch

import sciml
from problems import Explosion
from sciml import d, fitting
from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.integrate import Budget
from sciml.baselines.predictability import Predictability, doubt, predictability
from sciml.diagnostics.estimated_error import ErrorEstimate


def path_of(problem):
    return predictability(FirstOrderSystem(problem), {}, Budget(60.0))


class Forced(sciml.Problem):
    """Duffing's double well, driven into chaos."""

    domain = sciml.Interval(t=(0, 120))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0, u_t=0.0)]

    @sciml.equation
    def spring(self, u, t):
        return d(u, t, t) + 0.3 * d(u, t) - u + u**3 - 0.5 * torch.cos(1.2 * t)


class Linear(sciml.Problem):
    """u' = rate u."""

    domain = sciml.Interval(t=(0, 20))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]
    rate = 1.0

    @sciml.equation
    def growth(self, u, t):
        return d(u, t) - self.rate * u


class Saddle(sciml.Problem):
    """exp(-t) between growing neighbours."""

    domain = sciml.Interval(t=(0, 12))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0, u_t=-1.0)]

    @sciml.equation
    def saddle(self, u, t):
        return d(u, t, t) - u


@pytest.mark.parametrize("rate", [1.0, -1.0])
def test_what_grows_or_decays_by_itself_is_no_chaos(rate):
    found = path_of(Linear(rate=rate))
    assert found.growth[-1] < 1e-3
    assert found.horizon(1e-9) == math.inf


def test_growth_of_errors_beside_a_decaying_solution():
    """An error of 1 in u + u' grows as exp(t)/2, and the solution was never larger than 1."""
    found = path_of(Saddle())
    assert abs(found.growth[-1] - 12.0) < 1.0
    # exp(t) = 1e7 at t = 16, beyond the end; 1e4 at t = 9.2
    assert found.horizon(1e-9) == math.inf
    assert abs(found.horizon(1e-6) - math.log(1e4)) < 1.0


class Hunted(sciml.Problem):
    """Lotka and Volterra's prey and predators, through some forty cycles."""

    domain = sciml.Interval(t=(0, 300))
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=0.2, v=0.2)]

    @sciml.equation
    def prey(self, u, v, t):
        return d(u, t) - u * (1 - v)

    @sciml.equation
    def predators(self, u, v, t):
        return d(v, t) - v * (u - 1)


def test_the_path_is_closer_than_what_doubts_it():
    found = path_of(Hunted())
    rates = lambda t, y: [y[0] * (1 - y[1]), y[1] * (y[0] - 1)]  # noqa: E731
    exact = scipy.integrate.solve_ivp(rates, (0, 300), [0.2, 0.2], method="DOP853", rtol=1e-11, atol=1e-11, dense_output=True)
    assert np.abs(found.states - exact.sol(found.times)).max() < 1e-3 * np.abs(exact.y).max()


def test_chaos_is_named_by_both_solvers():
    for solution in (sciml.baseline(Forced()), sciml.fit(Forced())):
        assert not solution.success
        assert "chaos" in solution.message
    short = Forced().on(sciml.Interval(t=(0, 30)))
    one, two = sciml.baseline(short), sciml.fit(short)
    assert one.success
    assert two.success
    t = torch.linspace(0, 30, 50).numpy()
    assert abs(one(t=t)["u"] - two(t=t)["u"]).max() < 1e-4


def test_blow_up_is_named_by_fit():
    solution = sciml.fit(Explosion())
    assert not solution.success
    assert "it blows up" in solution.message


def test_a_wrong_solution_is_doubted():
    right, wrong = sciml.fit(Linear(rate=-1.0)), sciml.fit(Linear(rate=-1.1))
    assert doubt(Linear(rate=-1.0), right.trial, 1e-9, 10.0).why is None
    assert "differs from t" in doubt(Linear(rate=-1.0), wrong.trial, 1e-9, 10.0).why


def test_where_nothing_else_tells_the_error_it_is_the_distance_from_scipys_path(monkeypatch):
    monkeypatch.setattr(fitting, "estimated_error", lambda *_: ErrorEstimate({}))
    solution = sciml.fit(Linear(rate=-1.0))
    assert solution.success
    # LSODA integrates to 1e-8.
    assert 1e-10 < max(solution.estimated_error.values()) < 1e-6


def test_a_solution_that_is_a_little_wrong_is_as_far_from_scipys_path():
    beside = doubt(Linear(rate=-1.0), sciml.fit(Linear(rate=-1.003)).trial, 1e-9, 10.0)
    assert beside.why is None
    assert 1e-4 < max(beside.apart.values()) < 1e-2


class Unstable(sciml.Problem):
    """Errors grow by e^12, the solution does not."""

    domain = sciml.Interval(t=(0, 12))
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0)]

    @sciml.equation
    def growth(self, u, t):
        return d(u, t) - (u - torch.sin(t)) - torch.cos(t)


def test_where_later_errors_grow_more_than_those_of_the_start_nothing_is_told():
    beside = doubt(Unstable(), sciml.fit(Unstable()).trial, 1e-9, 10.0)
    assert beside.why is None
    assert not beside.apart


class Lorenz(sciml.Problem):
    """Errors grow by e^0.9 in a unit of time once the path is on the attractor, and less before."""

    domain = sciml.Interval(t=(0, 30))
    fields = ["x", "y", "z"]
    conditions = [sciml.Initial(x=1.0, y=1.0, z=1.0)]

    @sciml.equation
    def convection(self, x, y, t):
        return d(x, t) - 10 * (y - x)

    @sciml.equation
    def across(self, x, y, z, t):
        return d(y, t) - x * (28 - z) + y

    @sciml.equation
    def along(self, x, y, z, t):
        return d(z, t) - x * y + 8 / 3 * z


def test_growth_goes_on_where_a_neighbour_is_lost():
    growth = path_of(Lorenz()).growth
    pace = (growth[-1] - growth[len(growth) // 2]) / 15
    assert 0.6 < pace < 1.2
    solution = sciml.fit(Lorenz().on(sciml.Interval(t=(0, 20))))
    rates = lambda t, u: [10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]]  # noqa: E731
    t = np.linspace(0, 20, 500)
    path = scipy.integrate.solve_ivp(rates, (0, 20), [1.0, 1.0, 1.0], method="DOP853", rtol=1e-13, atol=1e-13, t_eval=t)
    apart = np.linalg.norm(solution(t=t)["x"] - path.y[0]) / np.linalg.norm(path.y[0])
    assert solution.success
    assert apart < 10 * solution.estimated_error["x"] < 1e-2


class Loop(sciml.Problem):
    """A planet on a narrow ellipse: neighbours part near the sun, and come together again."""

    domain = sciml.Interval(t=(0, 4 * math.pi))
    fields = ["x", "y"]
    conditions = [sciml.Initial(x=0.1, y=0.0, x_t=0.0, y_t=math.sqrt(19.0))]

    @sciml.equation
    def across(self, x, y, t):
        return d(x, t, t) + x / (x**2 + y**2) ** 1.5

    @sciml.equation
    def along(self, x, y, t):
        return d(y, t, t) + y / (x**2 + y**2) ** 1.5


def test_errors_of_a_path_that_closes_are_told_and_are_no_chaos():
    solution = sciml.fit(Loop())
    assert solution.success, solution.message
    back = solution(t=[4 * math.pi])
    gap = math.hypot(back["x"][0] - 0.1, back["y"][0])
    assert gap < 10 * max(solution.estimated_error.values())


def test_nothing_is_said_of_other_problems():
    heat = sciml.gallery.problem("heat_rod")
    assert doubt(heat, sciml.fit(heat).trial, 1e-9, 10.0).why is None


class Delayed(sciml.Problem):
    """x decays to 1e-9 before it grows again: with an absolute tolerance it would do so too early."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["x"]
    conditions = [sciml.Initial(x=0.5)]

    @sciml.equation
    def balance(self, x, t):
        return d(x, t) - 40 * ((t - 1) * x - x**3)


def test_what_becomes_tiny_and_grows_again_is_doubted_only_where_it_is_wrong():
    solution = sciml.fit(Delayed())
    assert solution.success, solution.message
    # The reciprocal square obeys a linear equation; its integral by quadrature.
    inverse, _ = scipy.integrate.quad(lambda s: 80 * math.exp(-40 * ((2 - 1) ** 2 - (s - 1) ** 2)), 0, 2, epsrel=1e-12)
    exact = (4 * math.exp(-40 * ((2 - 1) ** 2 - 1)) + inverse) ** -0.5
    assert float(solution(t=2.0)["x"]) == pytest.approx(exact, rel=1e-6)
    # Errors may have grown by more than all digits; that two paths agree nevertheless tells how far off they are.
    (told,) = doubt(Delayed(), solution.trial, 1e-9, 10.0).apart.values()
    assert 1e-10 < told < 1e-4

    class Early(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.tensor(0.1, dtype=torch.float64))

        def forward(self, points):
            return solution.trial((points + self.shift).clamp(max=3.0))

    assert "differs from t" in doubt(Delayed(), Early(), 1e-9, 10.0).why


def test_rates_and_values_have_sizes_of_their_own():
    """Two bodies about each other in metres and seconds: a rate of zero is not as large as a thousandth of a distance."""
    pull, heavy, light, apart = 6.674e-11, 5.97e24, 7.35e22, 3.84e8
    pace = math.sqrt(pull * (heavy + light) / apart**3)
    near, far = apart * light / (heavy + light), apart * heavy / (heavy + light)

    class EarthAndMoon(sciml.Problem):
        domain = sciml.Interval(t=(0, 2 * math.pi / pace))
        fields = ["a", "b", "x", "y"]
        conditions = [sciml.Initial(a=-near, b=0.0, x=far, y=0.0, a_t=0.0, b_t=-near * pace, x_t=0.0, y_t=far * pace)]

        @sciml.equation
        def earth(self, a, b, x, y, t):
            return d(a, t, t) - pull * light * (x - a) / ((x - a) ** 2 + (y - b) ** 2) ** 1.5

        @sciml.equation
        def earth_across(self, a, b, x, y, t):
            return d(b, t, t) - pull * light * (y - b) / ((x - a) ** 2 + (y - b) ** 2) ** 1.5

        @sciml.equation
        def moon(self, a, b, x, y, t):
            return d(x, t, t) + pull * heavy * (x - a) / ((x - a) ** 2 + (y - b) ** 2) ** 1.5

        @sciml.equation
        def moon_across(self, a, b, x, y, t):
            return d(y, t, t) + pull * heavy * (y - b) / ((x - a) ** 2 + (y - b) ** 2) ** 1.5

    # Errors of a closed orbit grow with time, not exponentially.
    assert path_of(EarthAndMoon()).growth[-1] < math.log(1e3)
    solution = sciml.baseline(EarthAndMoon())
    assert solution.success, solution.message


class Grazing(Loop):
    """A comet: the growth of errors is largest near the sun, and there it is the same in each turn but for a factor."""

    domain = sciml.Interval(t=(0, 20))
    conditions = [sciml.Initial(x=0.03, y=0.0, x_t=0.0, y_t=math.sqrt(1.97 / 0.03))]


@pytest.mark.slow
def test_neighbours_that_part_and_come_together_in_each_turn_are_no_chaos():
    found = path_of(Grazing())
    turns = [float(found.growth[found.times.searchsorted(2 * math.pi * turn + 0.1)]) for turn in (1, 2, 3)]
    assert max(turns) - min(turns) == pytest.approx(math.log(3.0), abs=0.1)
    assert sciml.fit(Grazing()).success


def test_an_integration_tells_its_error():
    solution = sciml.baseline(Grazing())
    times = np.linspace(0.0, 20.0, 300)
    # Kepler's equation.
    anomaly = [scipy.optimize.brentq(lambda at, t=t: at - 0.97 * math.sin(at) - t, t - 1.0, t + 1.0, xtol=1e-15) for t in times]
    true = np.cos(anomaly) - 0.97
    apart = np.linalg.norm(solution(t=times)["x"] - true) / np.linalg.norm(true)
    assert apart < 10 * solution.estimated_error["x"] < 1e-2


class Ignited(sciml.Problem):
    """Autocatalysis from a trace: absolute errors of the start grow as the trace does, relative ones do not."""

    domain = sciml.Interval(t=(0, 40))
    fields = ["A", "X"]
    conditions = [sciml.Initial(A=1.0, X=1e-10)]

    @sciml.equation
    def burnt(self, A, X, t):
        return d(A, t) + A * X

    @sciml.equation
    def made(self, A, X, t):
        return d(X, t) - A * X


@pytest.mark.parametrize("solved", [sciml.fit, sciml.baseline])
def test_what_grows_from_a_trace_is_told_by_a_path_that_knows_it(solved):
    solution, t = solved(Ignited()), np.linspace(0, 40, 400)
    total = 1 + 1e-10
    true = total / (1 + 1e10 * np.exp(-total * t))
    apart = np.linalg.norm(solution(t=t)["X"] - true) / np.linalg.norm(true)
    assert solution.success, solution.message
    assert apart < 2 * solution.estimated_error["X"] < 1e-3


def test_errors_that_grow_in_a_leap_and_vanish_after_it_are_no_chaos():
    """A neighbour comes to the limit cycle of van der Pol's equation at another phase, which grows where the path leaps."""
    found = sciml.baseline(sciml.gallery.problem("van_der_pol"), tolerance=1e-2)
    assert found.success
    assert found.error()["u"] < 1e-3


@pytest.mark.parametrize(
    ("most", "left", "lost"), [(10.3, 0.0, False), (12.5, 0.0, True), (10.3, 10.3, True), (8.0, 8.0, False)]
)
def test_what_vanishes_again_is_lost_where_it_came_near_the_size_of_the_path(most, left, lost):
    times, grown = np.linspace(0, 10, 11), np.minimum(np.arange(11.0) * 3, most)
    found = Predictability(times, grown, np.ones((1, 11)), np.ones(1), grown, left)
    horizon = found.horizon(1e-6)
    # Where an error of a millionth is a hundredth, at exp(9.2).
    assert horizon == (4.0 if lost else math.inf)

"""The estimated error of solutions against their true one, and when there is none."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import problem_class

import sciml
from problems import Poisson
from sciml import d
from sciml.diagnostics.estimated_error import estimated_error, significant
from sciml.models import Windowed
from sciml.strategies.prepare import prepare


class Wave(sciml.Problem):
    """A nonlinear wave with a known solution."""

    domain = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: x, u_t=0.0),
        sciml.Dirichlet(u=lambda x, t: x * torch.cos(5 * math.pi * t) + (x * t) ** 3, on=domain.faces("x")),
    ]

    @sciml.equation
    def motion(self, u, x, t):
        u0 = x * torch.cos(5 * math.pi * t) + (x * t) ** 3
        force = -25 * math.pi**2 * x * torch.cos(5 * math.pi * t) + 6 * x**3 * t - 6 * x * t**3 + u0**3
        return d(u, t, t) - d(u, x, x) + u**3 - force

    def reference(self, x, t):
        return {"u": x * torch.cos(5 * math.pi * t) + (x * t) ** 3}


class Smooth(Poisson):
    """Poisson's equation whose solution is known."""

    conditions = [sciml.Dirichlet(u=0.0, on=Poisson.domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 2 * math.pi**2 * torch.sin(math.pi * x) * torch.sin(math.pi * y)

    def reference(self, x, y):
        return {"u": torch.sin(math.pi * x) * torch.sin(math.pi * y)}


class InDisk(sciml.Problem):
    """The same on a disk, where corrections are random features."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 4

    def reference(self, x, y):
        return {"u": 1 - x**2 - y**2}


@pytest.mark.parametrize(
    ("problem", "model", "steps"),
    [
        (Wave(), sciml.MLP(12, 12), 300),
        (Wave(), sciml.MLP(4), 60),
        (Smooth(), sciml.MLP(12, 12), 200),
        (InDisk(), sciml.MLP(8), 60),
        (problem_class("kovasznay")(), sciml.MLP(12, 12), 120),
        (problem_class("heat_rod")(), sciml.MLP(4), 40),
    ],
)
def test_networks_know_how_far_they_are_from_the_truth(problem, model, steps):
    solution = sciml.fit(problem, model, solver=[sciml.Adam(200), sciml.SSBroyden(steps)])
    true = solution.error()
    assert set(solution.estimated_error) == set(true)
    worst = max(true, key=true.get)
    assert 0.2 < solution.estimated_error[worst] / true[worst] < 5
    assert solution.success <= (true[worst] < 1e-2)
    if solution.estimated_error[worst] > 1e-3:
        assert not solution.success
        assert "the estimated relative error of" in solution.message


def test_small_residuals_are_not_taken_for_small_errors():
    # Its certificate holds: residuals are below a twentieth of their natural size, the error is not.
    solution = sciml.fit(Wave(), sciml.MLP(12, 12), solver=[sciml.Adam(300), sciml.SSBroyden(300)])
    assert (solution.residuals["relative"] < 0.05).all()
    assert solution.error()["u"] > 0.01
    assert not solution.success


def test_polynomials_are_estimated_down_to_rounding():
    solution = sciml.fit(Smooth())
    assert solution.success
    assert solution.error()["u"] < 1e-12
    assert solution.estimated_error["u"] < 1e-12


class Still(sciml.Problem):
    """A second field that is zero but for the rounding of the first."""

    domain = Poisson.domain
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=0.0, v=0.0, on=domain.boundary)]

    @sciml.equation
    def first(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 2 * math.pi**2 * torch.sin(math.pi * x) * torch.sin(math.pi * y)

    @sciml.equation
    def second(self, u, v, x, y):
        return d(v, x, x) + d(v, y, y) + u - torch.sin(math.pi * x) * torch.sin(math.pi * y)


@pytest.mark.parametrize("diffusivity", [0.08, 0.07, 0.06, 0.05, 0.03])
def test_fronts_that_hardly_anything_holds_in_place_are_no_successes(diffusivity):
    """The walls hold a front by exp(-1 / diffusivity): at 0.03 no digit of a double tells where it is."""

    class Front(sciml.Problem):
        domain = sciml.Interval(x=(-1, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x: -torch.sign(x) * math.tanh(0.5 / diffusivity), on=domain.boundary)]

        @sciml.equation
        def burgers(self, u, x):
            return diffusivity * d(u, x, x) - u * d(u, x)

    solution = sciml.fit(Front(), strategy="Spectral")
    x = np.linspace(-1, 1, 401)
    error = np.linalg.norm(solution(x=x)["u"] + np.tanh(0.5 * x / diffusivity)) / np.linalg.norm(np.tanh(0.5 * x / diffusivity))
    assert solution.estimated_error["u"] > 0.02 * error
    assert solution.success == (error < 1e-3)


def test_a_field_that_is_zero_to_rounding_is_measured_by_the_others():
    solution = sciml.fit(Still())
    assert 0 < abs(solution(x=0.4, y=0.3)["v"]).item() < 1e-13
    assert solution.success, solution.message
    assert solution.estimated_error["v"] < 1e-12


def test_nothing_is_said_where_corrections_do_not_resolve_the_error():
    layer = problem_class("burgers")()
    solution = sciml.fit(layer, sciml.MLP(10, 10), solver=sciml.Adam(200))
    assert solution.estimated_error == {} or 0.2 < solution.estimated_error["u"] / solution.error()["u"] < 5
    # Windows carry their error themselves.
    windows = sciml.fit(layer)
    assert windows.error()["u"] < windows.estimated_error["u"] < 1e-9


@pytest.mark.parametrize("name", ["pendulum", "lorenz"])
def test_errors_are_carried_from_window_to_window(name):
    solution = sciml.fit(problem_class(name)())
    assert isinstance(solution.trial, Windowed)
    for field, true in solution.error().items():
        assert 0.2 < solution.estimated_error[field] / true < 5


def test_a_window_that_is_wrong_spoils_all_later_ones():
    # What begins each window is what ended the one before: an error there is carried on, and damped or grown by the equations.
    problem = problem_class("pendulum")()
    setup = prepare(problem, sciml.MLP(16), None, None, None, torch.float64, "cpu", 0)
    good = sciml.fit(problem).trial
    wrong = copy.deepcopy(good)
    with torch.no_grad():
        for parameter in wrong.windows[2].parameters():
            parameter.mul_(1 + 1e-5)
    apart = setup.with_trial(wrong)
    points = torch.linspace(*problem.domain.bounds["t"], 500, dtype=torch.float64)[:, None]
    with torch.no_grad():
        true = float((wrong(points) - good(points)).norm() / good(points).norm())
    found = estimated_error(apart, 0).errors["theta"]
    assert 0.2 < found / true < 5


class Cooling(sciml.Problem):
    """A rate from noisy temperatures."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["u"]
    rate = sciml.Unknown(0.5, lower=0)
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def cooling(self, u, t):
        return d(u, t) + self.rate * u


def test_the_noise_of_measurements_is_an_estimated_error():
    ratios = []
    for seed in range(6):
        draw = np.random.default_rng(seed)
        t = 3 * draw.random(30)
        solution = sciml.fit(Cooling(), data={"t": t, "u": np.exp(-0.8 * t) + 0.05 * draw.normal(size=30)})
        assert solution.success, solution.message
        true = solution.error(lambda t: np.exp(-0.8 * t))["u"]
        assert solution.estimated_error["u"] > 1e-3
        assert solution.statistics["drift"] < 0.1
        ratios.append(true / solution.estimated_error["u"])
    # One constant: the ratio of error and standard error is that of a normal draw.
    assert 0.2 < np.sqrt(np.mean(np.square(ratios))) < 2.5


def test_a_network_that_learned_a_fit_to_measurements_has_the_error_of_both():
    problem = problem_class("darcy_inverse")()
    plain, learned = sciml.fit(problem), sciml.fit(problem, sciml.MLP(4))
    for name, error in plain.estimated_error.items():
        assert learned.estimated_error[name] > 0.9 * error
        assert 0.2 < learned.estimated_error[name] / learned.error()[name] < 5


def test_volts_beside_numbers_of_ions_are_not_zero():
    trial = SimpleNamespace(scale=torch.tensor([0.2, 3e22, 1.0], dtype=torch.float64))
    assert significant([0.05, 2e22, 1e-20], trial) == [0.05, 2e22, 2e22]
    # Where nothing is known of natural sizes, all fields may have one unit.
    assert significant([0.05, 2e22]) == [2e22, 2e22]

"""What fit chooses when nothing is named."""

import math
import re

import numpy as np
import pytest
import scipy
import torch
from candidates import candidate, workspace
from conftest import problem_class

import sciml
from sciml import d
from sciml.solvers.discrete_problem import with_features
from sciml.strategies import RandomFeatures, SmallNetwork, network, random_features as automatic, search as searching
from sciml.strategies.prepare import prepare
from sciml.strategies.random_features import _next_count, take_over
from sciml.strategies.search import Budget, most_points, search


def blocks_of(problem):
    return prepare(problem, sciml.MLP(4), None, 20, None, torch.float64, "cpu", 0).train


@pytest.mark.parametrize(
    ("name", "linear"),
    [
        ("heat_rod", True),
        ("poisson_square", True),
        ("harmonic_oscillator", True),
        ("burgers", False),
        ("logistic_growth", False),
    ],
)
def test_linearity_is_measured(name, linear):
    problem = problem_class(name)()
    assert problem.system.linear(blocks_of(problem)) is linear


def test_a_nonlinear_condition_counts():
    class Radiation(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=1.0, on=domain.face(x=0))]

        @sciml.equation
        def conduction(self, u, x):
            return d(u, x, x)

        @sciml.condition(on=domain.face(x=1))
        def loss(self, u, x):
            return d(u, x) + u**4

    problem = Radiation()
    assert not problem.system.linear(blocks_of(problem))
    solution = sciml.fit(problem)
    a = float(solution(x=1.0)["u"])
    assert abs((a - 1) + a**4) < 1e-8


def test_unknowns_make_a_problem_nonlinear():
    heat = problem_class("heat_rod")
    problem = heat(kappa=sciml.Unknown(0.4))
    assert not problem.system.linear(())


def advection():
    """Hard for networks: twenty periods pass every point."""
    return problem_class("advection")(beta=20.0)


class Plate(sciml.Problem):
    """A simply supported plate: fourth order, conditions of second order."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def bending(self, u, x, y):
        load = 4 * torch.pi**4 * torch.sin(torch.pi * x) * torch.sin(torch.pi * y)
        return d(u, x, x, x, x) + 2 * d(u, x, x, y, y) + d(u, y, y, y, y) - load

    @sciml.condition(on=domain.faces("x"))
    def moment_x(self, u, x, y):
        return d(u, x, x)

    @sciml.condition(on=domain.faces("y"))
    def moment_y(self, u, x, y):
        return d(u, y, y)

    def reference(self, x, y):
        return torch.sin(torch.pi * x) * torch.sin(torch.pi * y)


@pytest.mark.parametrize(("problem", "target"), [(advection, 1e-9), (Plate, 1e-8)])
def test_linear_problems_without_settings(problem, target):
    solution = sciml.fit(problem())
    assert solution.success
    assert solution.error()["u"] <= target
    assert isinstance(solution.model, sciml.Spectral)
    assert any("linear in its fields" in choice for choice in solution.choices)


def test_systems_of_linear_equations():
    class Rotation(sciml.Problem):
        domain = sciml.Interval(t=(0, 6))
        fields = ["p", "q"]
        conditions = [sciml.Initial(p=1.0, q=0.0)]

        @sciml.equation
        def first(self, q, p, t):
            return d(p, t) + q

        @sciml.equation
        def second(self, p, q, t):
            return d(q, t) - p

        def reference(self, t):
            return {"p": torch.cos(t), "q": torch.sin(t)}

    assert max(sciml.fit(Rotation()).error().values()) < 1e-9


def test_growth_over_many_e_foldings_is_followed():
    """Adam and L-BFGS fall to the zero solution here, as test_fit shows."""
    growth = problem_class("logistic_growth")
    problem = growth(start=0.05, domain=sciml.Interval(t=(0, 10)))
    solution = sciml.fit(problem)
    assert solution.success
    assert solution.error()["u"] < 1e-7


def test_the_same_call_gives_the_same_bits():
    first, second = (sciml.fit(problem_class("heat_rod")()) for _ in range(2))
    assert torch.equal(first.model.layers[-1].weight, second.model.layers[-1].weight)
    other = sciml.fit(problem_class("heat_rod")(), seed=1)
    assert not torch.equal(first.model.layers[-1].weight, other.model.layers[-1].weight)


def test_a_model_or_solver_that_is_named_is_used():
    problem = problem_class("heat_rod")()
    assert isinstance(sciml.fit(problem, sciml.MLP(4), solver=sciml.Adam(1)).model, sciml.MLP)
    assert isinstance(sciml.fit(problem, solver=sciml.Adam(1)).model, sciml.MLP)
    assert most_points(2) == 4800


def test_every_solve_is_seen_and_can_be_the_last():
    problem = problem_class("heat_rod")()
    solution = sciml.fit(problem)
    assert set(solution.history.columns) >= {"phase", "step", "loss", "held_out", "conduction", "initial", "dirichlet"}
    looks = []
    sciml.fit(problem, callbacks=[looks.append, lambda look: look.step == 2])
    assert [look.step for look in looks] == [1, 2]


def test_ctrl_c_ends_the_search_with_the_best_so_far():
    def interrupt(look):
        if look.step == 2:
            raise KeyboardInterrupt

    solution = sciml.fit(problem_class("heat_rod")(), callbacks=[interrupt])
    assert (solution.status, solution.success, solution.nit) == ("interrupted", False, 2)
    assert solution.error()["u"] < 1e-6


def searched(problem):
    """What the search of features finds, and the number of features of every solve."""
    work = workspace(problem)
    found = candidate(RandomFeatures(), work)
    return found, [int(each["phase"].split()[0]) for each in work.log.history]


@pytest.mark.parametrize(
    ("problem", "solves", "large", "most"),
    [
        (problem_class("heat_rod"), 6, 1, 480),
        (problem_class("helmholtz"), 20, 3, 700),
        (Plate, 8, 2, 480),
        (advection, 24, 4, 1000),
    ],
)
def test_few_solves_and_very_few_large_ones(problem, solves, large, most):
    """Scales are looked for among few features, where a solve costs next to nothing."""
    found, counts = searched(problem())
    assert len(counts) <= solves
    assert sum(count > counts[0] for count in counts) <= large
    assert max(counts) <= most
    assert found.residual < 1e-9


def test_a_coordinate_along_which_more_happens_has_a_larger_scale():
    found, _ = searched(advection())
    x, t = found.discrete.trial.model.scale
    assert t > 2 * x
    assert "x" in found.reason.partition("scale=")[2]


def test_residuals_foretell_the_number_of_features():
    assert _next_count([(200, 0.5)], 1e-10, 1600) == 400  # Nothing is resolved yet.
    assert _next_count([(200, 1e-9)], 1e-10, 1600) == 230
    near, far = (_next_count([(400, reached)], 1e-10, 1600) for reached in (1e-6, 1e-3))
    assert 400 < near < far <= 800
    # A fall that slows down asks for more than the first number alone.
    assert _next_count([(600, 1e-7), (800, 1e-8)], 1e-10, 1600) > _next_count([(800, 1e-8)], 1e-10, 1600)
    assert _next_count([(800, 1e-5), (1500, 1e-8)], 1e-10, 1600) == 1600


class Bratu(sciml.Problem):
    """Stationary and not linear, with a source that makes a known function its solution."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x, y: torch.sin(2 * x + 3 * y), on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        wave = torch.sin(2 * x + 3 * y)
        return d(u, x, x) + d(u, y, y) + torch.exp(u) + 13 * wave - torch.exp(wave)

    def reference(self, x, y):
        return torch.sin(2 * x + 3 * y)


def test_nonlinear_stationary_problems_take_few_solves():
    solution = sciml.fit(Bratu())
    assert solution.success
    assert solution.residuals["relative"].max() < 1e-8
    assert len(solution.history) <= 6


def test_other_features_begin_as_the_function_found_before():
    setup = prepare(Bratu(), sciml.RandomFeatures(), None, 600, None, torch.float64, "cpu", 0)
    one, two = with_features(setup, 60, 2.0, 0), with_features(setup, 150, (3.0, 2.5), 1)
    with torch.no_grad():
        one.trial.model.layers[-1].weight.normal_(generator=torch.Generator().manual_seed(0))
    take_over(two, one.trial)
    for block in setup.held:
        points = block.sample.points[0]
        wanted = one.trial(points)
        assert (two.trial(points) - wanted).abs().max() < 1e-4 * wanted.abs().max()


class Cube(sciml.Problem):
    """Four coordinates and no time."""

    domain = sciml.Box(a=(0, 1), b=(0, 1), c=(0, 1), e=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda a, b, c, e: torch.sin(a + b + c + e), on=domain.boundary)]

    @sciml.equation
    def balance(self, u, a, b, c, e):
        return sum(d(u, x, x) for x in (a, b, c, e)) + 4 * torch.sin(a + b + c + e)

    def reference(self, a, b, c, e):
        return torch.sin(a + b + c + e)


def test_four_coordinates_are_resolved_by_features(monkeypatch):
    monkeypatch.setattr(searching, "_COUNTS_BEYOND", (100, 600))
    solution = sciml.fit(Cube())
    assert isinstance(solution.model, sciml.RandomFeatures)
    assert solution.error(resolution=8)["u"] < 1e-5


def test_where_features_are_too_few_a_network_is_tried(monkeypatch):
    monkeypatch.setattr(searching, "_COUNTS_BEYOND", (20, 60))
    monkeypatch.setattr(network, "_STEPS", sciml.LeastSquares(40, look=10))
    solution = sciml.fit(Cube())
    assert isinstance(solution.model, sciml.MLP)
    assert solution.error(resolution=8)["u"] < 1e-2
    assert any("random features do not resolve" in choice for choice in solution.choices)
    # Features and network are in one record.
    assert {"20", "LeastSquares"} <= {phase.split()[0] for phase in solution.history["phase"]}
    assert solution.nit == 40 + sum("features" in phase for phase in solution.history["phase"])


def test_a_network_that_does_worse_is_not_taken(monkeypatch):
    monkeypatch.setattr(searching, "_COUNTS_BEYOND", (100, 110))
    monkeypatch.setattr(automatic, "_GOOD", 1e-12)
    monkeypatch.setattr(network, "_STEPS", sciml.LeastSquares(1))
    work = workspace(Cube(), tolerance=1e-3)
    found = search([RandomFeatures(), SmallNetwork()], work)
    assert isinstance(found.discrete.trial.model, sciml.RandomFeatures)
    assert work.log.history[-1]["phase"].startswith("LeastSquares")
    assert any(each.startswith("SmallNetwork: residual") for each in work.choices)


class Scattered(sciml.Problem):
    """Some sixty waves that pass through a medium whose index varies, as a complex field."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["a", "b"]
    complex_fields = {"u": ("a", "b")}
    number = 400.0

    @sciml.condition(on=domain.face(x=0))
    def arrives(self, u, x):
        return d(u, x) / self.number + 1j * u - 2j

    @sciml.condition(on=domain.face(x=1))
    def leaves(self, u, x):
        return d(u, x) / self.number - 1j * math.sqrt(1 + 0.5 * math.sin(3.0)) * u

    @sciml.equation
    def helmholtz(self, u, x):
        return d(u, x, x) / self.number**2 + (1 + 0.5 * torch.sin(3 * x)) * u


def test_many_waves_along_one_coordinate():
    """Below some hundreds of degrees none gains anything: grids were taken, 60 times as far off as they were said to be."""
    number = Scattered.number
    index = math.sqrt(1 + 0.5 * math.sin(3.0))
    rates = lambda x, z: [z[1], -(number**2) * (1 + 0.5 * np.sin(3 * x)) * z[0]]  # noqa: E731
    back = scipy.integrate.solve_ivp(
        rates, (1, 0), [1 + 0j, 1j * number * index], method="DOP853", rtol=1e-12, atol=1e-12, dense_output=True
    )
    value, slope = back.y[:, -1]
    x = np.linspace(0.0, 1.0, 2001)
    exact = 2j * number / (slope + 1j * number * value) * back.sol(x)[0]
    solution = sciml.fit(Scattered())
    assert solution.success
    apart = np.linalg.norm(solution(x=x)["u"] - exact) / np.linalg.norm(exact)
    # The integration backwards is right to some 1e-11.
    assert apart < 10 * max(*solution.estimated_error.values(), 1e-10) < 1e-7


class Radiated(Scattered):
    """Waves as short as that: their absence, with layers at the ends, was a success."""

    number = 1000.0

    @sciml.condition(on=Scattered.domain.face(x=1))
    def leaves(self, u, x):
        return d(u, x) / self.number - 1j * u

    @sciml.equation
    def helmholtz(self, u, x):
        return d(u, x, x) / self.number**2 + u


def test_what_resolves_no_wave_is_no_success():
    solution, x = sciml.fit(Radiated()), np.linspace(0.0, 1.0, 2001)
    assert solution.success
    assert np.abs(solution(x=x)["u"] - np.exp(1j * 1000 * x)).max() < 1e-7
    coarse = sciml.fit(Radiated(), strategy=sciml.strategies.Spectral(183))
    assert not coarse.success
    assert "waves as short as 0.0063 near" in coarse.message


class Forced(sciml.Problem):
    """A smooth solution beside waves that nothing excites."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    number = 1e4
    conditions = [sciml.Dirichlet(u=lambda x: torch.sin(3 * x))]

    @sciml.equation
    def helmholtz(self, u, x):
        return d(u, x, x) / self.number**2 + u - (1 - 9 / self.number**2) * torch.sin(3 * x)


def test_a_smooth_solution_beside_waves_is_one():
    for strategy in ("auto", "Spectral"):
        solution = sciml.fit(Forced(), strategy=strategy)
        assert solution.success
        assert abs(solution(x=0.4)["u"] - math.sin(1.2)) < 1e-10
    # So few of them that degrees grow as of anything else.
    few = sciml.fit(Forced(number=5.0))
    assert few.success
    assert abs(few(x=0.4)["u"] - math.sin(1.2)) < 1e-12


def test_waves_have_to_be_affordable():
    for number, seconds, more in ((1000.0, 10.0, True), (1000.0, 0.1, False), (4500.0, 600.0, False), (100.0, 10.0, False)):
        work = workspace(Radiated(number=number))
        work.log.budget = Budget(seconds=seconds)
        found = sciml.strategies.Spectral()._of_waves(work)
        assert (found is not None) == more
        assert found is None or 500 < found.weights < 700


def test_grids_tell_their_own_error():
    """Corrections by polynomials, which know as little of waves, told 60 times less than the sentence beside them."""
    # So much time that a slow processor leaves the finer grids as much as a fast one.
    solution = sciml.fit(Scattered(), strategy=sciml.strategies.ClassicalGrids(seconds=300.0))
    said = re.search(r"right to about ([0-9.e+-]+)", " ".join(solution.choices))
    assert said
    assert max(solution.estimated_error.values()) > 0.5 * float(said[1])


class Steered(sciml.Problem):
    """From rest to rest by the least thrust, which saturates: where fields are not small nothing was seen of ``p``."""

    domain = sciml.Interval(t=(0, 2.2))
    fields = ["x", "v", "q"]
    p = sciml.Unknown(-1.0)
    conditions = [
        sciml.Dirichlet(x=0.0, v=0.0, on=domain.face(t=0)),
        sciml.Dirichlet(x=1.0, v=0.0, on=domain.face(t=2.2)),
    ]

    @sciml.equation
    def motion(self, x, v, t):
        return d(x, t) - v

    @sciml.equation
    def thrust(self, v, q, t):
        return d(v, t) + torch.tanh(q / 0.02)

    @sciml.equation
    def costate(self, q, t):
        return d(q, t) + self.p


def test_constants_that_saturation_hides_are_determined():
    solution = sciml.fit(Steered())
    assert solution.success
    t = np.linspace(0, 2.2, 20_001)
    thrust = -np.tanh(-float(solution.unknowns.loc["p", "estimate"]) * (t - 1.1) / 0.02)
    way = scipy.integrate.cumulative_simpson(scipy.integrate.cumulative_simpson(thrust, x=t, initial=0), x=t, initial=0)
    assert way[-1] == pytest.approx(1.0, abs=1e-8)

"""What fit chooses when nothing is named."""

import math

import pytest
import torch
from conftest import problem_class

import sciml
from sciml import d
from sciml.automatic import is_linear, most_points
from sciml.setup import prepare


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
    assert is_linear(problem, blocks_of(problem)) is linear


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
    assert not is_linear(problem, blocks_of(problem))
    solution = sciml.fit(problem)
    a = float(solution(x=1.0)["u"])
    assert abs((a - 1) + a**4) < 1e-8


def test_unknowns_make_a_problem_nonlinear():
    heat = problem_class("heat_rod")
    problem = heat(kappa=sciml.Unknown(0.4))
    assert not is_linear(problem, ())


class Advection(sciml.Problem):
    """Hard for networks: twenty-odd periods pass every point."""

    domain = sciml.Box(x=(0, 2 * math.pi), t=(0, 1))
    fields = ["u"]
    beta = 20.0
    conditions = [sciml.Initial(u=lambda x: torch.sin(x)), sciml.Periodic("x")]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + self.beta * d(u, x)

    def reference(self, x, t):
        return torch.sin(x - self.beta * t)


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


@pytest.mark.parametrize(("problem", "target"), [(Advection, 1e-9), (Plate, 1e-8)])
def test_linear_problems_without_settings(problem, target):
    solution = sciml.fit(problem())
    assert solution.success
    assert solution.error()["u"] <= target
    assert isinstance(solution.model, sciml.RandomFeatures)
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
    assert not torch.equal(
        first.model.layers[0].weight, sciml.fit(problem_class("heat_rod")(), seed=1).model.layers[0].weight
    )


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

"""Unknown constants that equations and conditions determine without measurements, and those that nothing determines."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d


class String(sciml.Problem):
    """The lowest mode of a string, whose slope at one end is given."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    eigenvalue = sciml.Unknown(8.0)
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary), sciml.Neumann(u=-math.pi, on=domain.face(x=0))]

    @sciml.equation
    def mode(self, u, x):
        return d(u, x, x) + self.eigenvalue * u


class Drum(sciml.Problem):
    """The lowest mode of a square drum, one in its middle."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    eigenvalue = sciml.Unknown(18.0, lower=0)
    conditions = [sciml.Dirichlet(u=0.0), sciml.Point(u=1.0, at={"x": 0.5, "y": 0.5})]

    @sciml.equation
    def mode(self, u, x, y):
        return sciml.laplacian(u, x, y) + self.eigenvalue * u


class Rod(sciml.Problem):
    """A diffusivity from one temperature at one time, as a condition."""

    domain = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 1))
    fields = ["u"]
    k = sciml.Unknown(0.5)
    conditions = [
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
        sciml.Initial(u=lambda x: torch.sin(math.pi * x)),
        sciml.Point(u=0.1, at={"x": 0.5, "t": 1.0}),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


class Fading(sciml.Problem):
    """A rate from the value at the end of a decay that is unsteady thrice in every unit of time."""

    domain = sciml.Interval(t=(0, 20))
    fields = ["u"]
    k = sciml.Unknown(0.3)
    conditions = [sciml.Initial(u=1.0), sciml.Point(u=0.1, at={"t": 20.0})]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.k * u * (2 - torch.cos(3 * t))


@pytest.mark.parametrize(
    ("problem", "name", "true"),
    [
        (Fading(), "k", math.log(10) / (40 - math.sin(60) / 3)),
        (String(), "eigenvalue", math.pi**2),
        (Drum(), "eigenvalue", 2 * math.pi**2),
        (Rod(), "k", math.log(10) / math.pi**2),
    ],
)
def test_constants_that_equations_determine(problem, name, true):
    solution = sciml.fit(problem)
    assert solution.success, solution.message
    row = solution.unknowns.loc[name]
    assert row["estimate"] == pytest.approx(true, rel=1e-11)
    # Numerical, and no smaller than rounding.
    assert 0 < row["standard_error"] < 1e-10 * true
    assert 0 < solution.estimated_error["u"] < 1e-9


class Free(String):
    """Without the second end every eigenvalue will do."""

    conditions = [sciml.Dirichlet(u=0.0, on=String.domain.face(x=0)), String.conditions[1]]


class Product(String):
    """Two constants that occur as a product only."""

    factor = sciml.Unknown(1.0)

    @sciml.equation
    def mode(self, u, x):
        return d(u, x, x) + self.factor * self.eigenvalue * u


@pytest.mark.parametrize(("problem", "lost"), [(Free(), "eigenvalue"), (Product(), "eigenvalue, factor")])
@pytest.mark.parametrize("model", [None, sciml.MLP(8)])
def test_constants_that_nothing_determines_are_told_before_anything_is_fitted(problem, lost, model):
    steps = []
    with pytest.raises(sciml.errors.ProblemError, match=f"do not determine {lost}: pass data="):
        sciml.fit(problem, model, callbacks=[steps.append])
    assert not steps


class Logarithm(String):
    """Has no value at the functions that are tried first."""

    @sciml.equation
    def mode(self, u, x):
        return d(u, x, x) + self.eigenvalue * u + 0 * torch.log(u + 1e-3)


class Hidden(String):
    """One constant multiplies another, whose start is zero."""

    slope = sciml.Unknown(0.0)
    conditions = [*String.conditions, sciml.Neumann(u=-math.pi, on=String.domain.face(x=1), name="end")]

    @sciml.equation
    def mode(self, u, x):
        return d(u, x, x) + self.eigenvalue * (1 + self.slope * x) * u


def test_constants_that_are_determined_are_not_refused():
    found = sciml.fit(Hidden())
    assert found.success, found.message
    assert found.unknowns.loc["slope", "estimate"] == pytest.approx(0.0, abs=1e-9)
    assert "do not determine" not in sciml.fit(Logarithm(), seconds=5.0).message


class Still(Rod):
    """Without the temperature."""

    conditions = Rod.conditions[:-1]


def test_what_is_seen_late_is_no_success():
    solution = sciml.fit(Still())
    assert not solution.success
    assert "without measurements equations and conditions do not determine k" in solution.message
    assert math.isinf(solution.unknowns.loc["k", "standard_error"])


def test_a_network_learns_a_mode_and_has_its_eigenvalue():
    solution = sciml.fit(String(), sciml.MLP(8, 8))
    assert solution.success, solution.message
    assert solution.unknowns.loc["eigenvalue", "estimate"] == pytest.approx(math.pi**2, rel=1e-11)
    x = np.linspace(0, 1, 21)
    assert abs(solution(x=x)["u"] - np.sin(math.pi * x)).max() < 1e-4


@pytest.mark.parametrize("degree", [5, 6, 7, 24])
def test_intervals_of_numerical_errors_reach_the_eigenvalue(degree):
    found = sciml.fit(String(), strategy=sciml.strategies.Spectral(degree)).unknowns.loc["eigenvalue"]
    assert found["low"] <= math.pi**2 <= found["high"]
    # Twice as far as residuals at other points would move it, and not below the rounding of a row's terms.
    assert found["high"] - found["low"] == pytest.approx(4 * found["standard_error"], rel=1e-6)
    assert found["standard_error"] >= 30 * np.finfo(float).eps * math.pi**2

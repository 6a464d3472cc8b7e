"""Estimates of unknowns and their intervals, against truth, simulation and textbook formulas."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import solve_ivp

import sciml
from problems import LotkaVolterra
from sciml import d
from sciml.uncertainty.covariance import averaged, covariance

TRUTH = {"birth": 0.55, "predation": 0.028, "death": 0.80, "conversion": 0.024}


def synthetic(noise, seed, count=40):
    """Noisy measurements from a right-hand side written by hand."""
    b, p, m, c = TRUTH.values()
    t = np.linspace(0, 15, count)
    exact = solve_ivp(
        lambda _, y: [(b - p * y[1]) * y[0], (c * y[0] - m) * y[1]], (0, 15), [30, 6], t_eval=t, rtol=1e-10, atol=1e-10
    ).y
    sizes = noise * exact.std(axis=1, keepdims=True)
    noisy = exact + sizes * np.random.default_rng(seed).normal(size=exact.shape)
    return sciml.Table({"t": t, "hare": noisy[0], "lynx": noisy[1]})


@pytest.mark.slow
def test_true_rates_lie_inside_the_intervals_of_the_network():
    """Two per cent of noise, synthetic data: the measured recovery, for network and shooting alike."""
    data = synthetic(0.02, seed=1)
    solution, classical = sciml.fit(LotkaVolterra(), data=data), sciml.baseline(LotkaVolterra(), data)
    for name, truth in TRUTH.items():
        row, other = solution.unknowns.loc[name], classical.unknowns.loc[name]
        assert row["low"] < truth < row["high"], name
        assert row["estimate"] == pytest.approx(truth, rel=0.02)
        assert row["estimate"] == pytest.approx(other["estimate"], abs=0.5 * other["standard_error"])
        assert row["standard_error"] == pytest.approx(other["standard_error"], rel=0.1)
    assert np.isclose(solution.residuals.loc["data.hare", "relative"], 0.02, rtol=0.4)


@pytest.mark.slow
def test_shooting_intervals_hold_the_truth_about_as_often_as_they_say():
    held = [
        found.loc[name, "low"] < truth < found.loc[name, "high"]
        for seed in range(25)
        for found in [sciml.baseline(LotkaVolterra(), synthetic(0.05, seed), tolerance=1e-4).unknowns]
        for name, truth in TRUTH.items()
    ]
    # 100 correlated draws of probability 0.95: fewer than 86 happens less than once in ten thousand times.
    assert 0.86 <= np.mean(held) <= 1.0


def line(unknowns, x, y):
    """Least squares for y = a + b x by the textbook."""
    slopes = np.stack([np.ones_like(x), x], axis=1)
    found, *_ = np.linalg.lstsq(slopes, y, rcond=None)
    misfit = slopes @ found - y
    covariance = (misfit @ misfit) / (len(x) - 2) * np.linalg.inv(slopes.T @ slopes)
    return found, np.sqrt(np.diag(covariance)), slopes, misfit


def test_a_straight_line_has_the_textbook_errors():
    x = np.linspace(0, 1, 12)
    y = 2 + 3 * x + np.random.default_rng(0).normal(size=12)
    unknowns = {"a": sciml.Unknown(0.0), "b": sciml.Unknown(0.0)}
    found, errors, slopes, misfit = line(unknowns, x, y)
    ours = covariance(unknowns, found, np.zeros((12, 0)), slopes, misfit, np.ones(12, dtype=bool)).estimates
    for position, name in enumerate(unknowns):
        assert ours[name].value == pytest.approx(found[position])
        assert ours[name].standard_error == pytest.approx(errors[position])
        half = stats.t.ppf(0.975, 10) * errors[position]
        assert (ours[name].low, ours[name].high) == pytest.approx((found[position] - half, found[position] + half))


def test_eliminated_parameters_count_as_nuisance():
    """The slope's error is the same whether the intercept is an unknown or a parameter of the model."""
    x = np.linspace(0, 1, 12)
    y = 2 + 3 * x + np.random.default_rng(0).normal(size=12)
    unknowns = {"b": sciml.Unknown(0.0)}
    found, errors, slopes, misfit = line(unknowns, x, y)
    ours = covariance(unknowns, found[1:], slopes[:, :1], slopes[:, 1:], misfit, np.ones(12, dtype=bool)).estimates
    assert ours["b"].standard_error == pytest.approx(errors[1])


class Line(sciml.Problem):
    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    a, b = sciml.Unknown(1.0), sciml.Unknown(0.0)

    @sciml.equation
    def line(self, u, x):
        return u - self.a * x - self.b


def test_model_averaging_is_the_mixture_about_what_was_chosen():
    rng = np.random.default_rng(1)
    columns, misfit, raw = rng.normal(size=(30, 2)), rng.normal(size=30), np.array([1.0, 0.0])
    unknowns, measured = Line().unknowns, np.ones(30, dtype=bool)
    one, two = (covariance(unknowns, raw, np.zeros((30, 0)), size * columns, misfit, measured) for size in (1.0, 0.5))
    move = np.array([0.3, -0.2])
    found = averaged(Line(), raw, one, [(4.0, one, 0 * move), (4.0 + 2 * np.log(3), two, move), (np.inf, two, 1e9 * move)])
    expected = 0.75 * one.spread @ one.spread.T + 0.25 * (two.spread @ two.spread.T + np.outer(move, move))
    np.testing.assert_allclose(found.spread @ found.spread.T, expected, rtol=1e-12)
    np.testing.assert_allclose(found.estimates["b"].standard_error, expected[1, 1] ** 0.5, rtol=1e-12)
    assert found.estimates["b"].value == one.estimates["b"].value
    assert averaged(Line(), raw, one, [(np.inf, two, move)]) is one


@pytest.mark.parametrize(
    ("unknown", "value", "low", "high"),
    [
        # Well determined: symmetric in the logarithm of the distance from the bound, and its mirror image.
        (sciml.Unknown(1.0, lower=0.0), 10.0, 10 * math.exp(-0.0392), 10 * math.exp(0.0392)),
        (sciml.Unknown(-1.0, upper=0.0), -10.0, -10 * math.exp(0.0392), -10 * math.exp(-0.0392)),
        # So near the bound that this says nothing: symmetric in the value, and cut off.
        (sciml.Unknown(1.0, lower=0.0), 1e-4, 0.0, 0.3921),
        (sciml.Unknown(1.0, upper=2.0), 2 - 1e-4, 2 - 0.3921, 2.0),
        (sciml.Unknown(0.5, lower=0.0, upper=1.0), 1e-4, 0.0, 0.3921),
        (sciml.Unknown(0.5, lower=0.0, upper=1.0), 1 - 1e-4, 1 - 0.3921, 1.0),
        # In between both are held.
        (sciml.Unknown(1.0, lower=0.0), 0.3, 0.0, 0.3 * math.exp(1.3067)),
        (sciml.Unknown(1.0), 0.3, 0.3 - 0.392, 0.3 + 0.392),
    ],
)
def test_intervals_beside_a_bound(unknown, value, low, high):
    """A slope that is measured with a standard error of 0.2."""
    raw = unknown.raw(value).requires_grad_()
    (slope,) = torch.autograd.grad(unknown.value(raw), raw)
    found = covariance(
        {"a": unknown},
        np.array([float(raw.detach())]),
        np.zeros((1, 0)),
        np.array([[float(slope)]]),
        np.zeros(1),
        np.ones(1, dtype=bool),
        variance=0.04,
    ).estimates["a"]
    assert found.standard_error == pytest.approx(0.2, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-3)


def test_intervals_grow_steadily_with_the_error():
    unknown, ends = sciml.Unknown(1.0, lower=0.0), []
    for error in np.linspace(0.01, 5.0, 500):
        one = np.ones((1, 1))
        found = covariance({"a": unknown}, np.zeros(1), one[:, :0], one, np.zeros(1), one[0] > 0, variance=error**2)
        ends.append((found.estimates["a"].low, found.estimates["a"].high))
    low, high = np.array(ends).T
    assert (np.diff(low) <= 0).all()
    assert (np.diff(high) >= 0).all()
    assert np.abs(np.diff(ends, axis=0)).max() < 0.2


def test_a_damping_that_there_is_none_of():
    class Spring(sciml.Problem):
        domain = sciml.Interval(t=(0, 10))
        fields = ["x"]
        damping, stiffness = sciml.Unknown(0.1, lower=0), sciml.Unknown(3.0, lower=0)
        conditions = [sciml.Initial(x=1.0, x_t=0.0)]

        @sciml.equation
        def motion(self, x, t):
            return d(x, t, t) + self.damping * d(x, t) + self.stiffness * x

    t = np.linspace(0.2, 10, 50)

    def measured(seed):
        return {"t": t, "x": np.cos(2 * t) + 0.05 * np.random.default_rng(seed).normal(size=50)}

    # By chance noise puts it at 0.0008 with a standard error of 0.004.
    for solution in (sciml.fit(Spring(), data=measured(102)), sciml.baseline(Spring(), measured(102))):
        assert solution.success
        assert solution.unknowns.loc["damping", "low"] == 0.0
        assert solution.unknowns.loc["damping", "high"] == pytest.approx(0.0090, abs=2e-4)
    # Here beyond the bound.
    solution = sciml.fit(Spring(), data=measured(100))
    assert solution.unknowns.loc["damping", "low"] == 0.0
    assert solution.success or "went to a bound: either they lie there" in solution.message


def test_what_the_data_do_not_see_has_no_number():
    x = np.linspace(0, 1, 12)
    slopes = np.stack([np.ones_like(x), x, 2 * x], axis=1)
    unknowns = {name: sciml.Unknown(1.0, lower=0) for name in "abc"}
    misfit = 0.1 * np.random.default_rng(0).normal(size=12)
    ours = covariance(unknowns, np.zeros(3), np.zeros((12, 0)), slopes, misfit, np.ones(12, dtype=bool)).estimates
    assert np.isfinite(ours["a"].standard_error)
    assert np.isinf(ours["b"].standard_error)
    assert (ours["b"].low, ours["b"].high) == (0.0, np.inf)


def test_too_few_measurements_have_no_number():
    unknowns = {"a": sciml.Unknown(1.0)}
    ours = covariance(unknowns, np.zeros(1), np.zeros((1, 0)), np.ones((1, 1)), np.zeros(1), np.ones(1, dtype=bool)).estimates
    assert np.isinf(ours["a"].standard_error)


@pytest.mark.slow
def test_an_unknown_that_the_data_cannot_separate_is_named():
    """u_t = -(a + b) u: only the sum is seen."""

    class Twice(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        a, b = sciml.Unknown(1.0), sciml.Unknown(1.0)
        conditions = [sciml.Initial(u=1.0)]

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + (self.a + self.b) * u

    t = np.linspace(0, 1, 20)
    data = {"t": t, "u": np.exp(-2 * t) + 0.01 * np.random.default_rng(0).normal(size=20)}
    solution = sciml.fit(Twice(), sciml.MLP(8), data=data, solver=sciml.LBFGS(300))
    assert "do not determine a, b" in solution.message
    assert np.isinf(solution.unknowns["standard_error"]).all()
    shot = sciml.baseline(Twice(), data)
    assert np.isinf(shot.unknowns["standard_error"]).all()
    assert torch.isfinite(torch.tensor(shot.unknowns["estimate"].to_numpy())).all()

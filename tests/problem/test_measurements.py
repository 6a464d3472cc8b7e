"""What columns measure, how they scatter, and what follows for unknowns: the network's fit against SciPy's."""

from dataclasses import replace

import numpy as np
import pytest

import sciml
from sciml import d
from sciml.errors import BaselineError, DataError, ProblemError
from sciml.problem.measurements import data_blocks, resolve_data


class Cooling(sciml.Problem):
    """u' = -rate (u - surroundings)."""

    domain = sciml.Interval(t=(0, 4))
    fields = ["u"]
    rate = sciml.Unknown(0.5, lower=0)
    surroundings = 1.0
    conditions = [sciml.Initial(u=9.0)]

    @sciml.equation
    def cooling(self, u, t):
        return d(u, t) + self.rate * (u - self.surroundings)


T = np.linspace(0.1, 4, 40)
TRUE = 1 + 8 * np.exp(-0.8 * T)


def rng(seed=0):
    return np.random.default_rng(seed)


def holds(solution, **truth):
    """Whether estimates lie within three standard errors of the truth, which chance misses once in several hundred times."""
    return all(
        abs(solution.unknowns.loc[name, "estimate"] - value) < 3 * solution.unknowns.loc[name, "standard_error"]
        for name, value in truth.items()
    )


def both(problem, data, **how):
    """The network's estimates and SciPy's, which must agree."""
    ours, theirs = sciml.fit(problem, data=data, **how), sciml.baseline(problem, data, **how)
    for name in problem.unknowns:
        mine, other = ours.unknowns.loc[name], theirs.unknowns.loc[name]
        assert mine["estimate"] == pytest.approx(other["estimate"], abs=0.01 * other["standard_error"])
        assert mine["standard_error"] == pytest.approx(other["standard_error"], rel=0.02)
    return ours


def test_an_observed_function_may_hold_an_unknown():
    class Detected(Cooling):
        gain = sciml.Unknown(1.0, lower=0)

    noisy = 3 * TRUE + 0.05 * rng().normal(size=len(T))
    solution = both(Detected(), {"t": T, "volts": noisy}, observe={"volts": lambda self, u: self.gain * u})
    assert holds(solution, rate=0.8, gain=3.0)
    assert set(solution.residuals.index) == {"cooling", "initial", "data.volts"}


def test_derivatives_are_measured_by_name_and_by_function():
    slope = -0.8 * (TRUE - 1) + 0.01 * rng().normal(size=len(T))
    named = both(Cooling(), {"t": T, "u_t": slope})
    by_function = sciml.fit(Cooling(), data={"t": T, "flux": slope}, observe={"flux": lambda u, t: d(u, t)})
    assert holds(named, rate=0.8)
    assert by_function.unknowns.loc["rate", "estimate"] == pytest.approx(named.unknowns.loc["rate", "estimate"], rel=1e-6)


def test_outliers_are_told_from_noise():
    values = TRUE + 0.02 * rng().normal(size=len(T))
    values[::8] += 5.0
    plain = sciml.fit(Cooling(), data={"t": T, "u": values})
    for noise in (sciml.Huber(), sciml.StudentT(nu=2.0)):
        solution = sciml.fit(Cooling(), data={"t": T, "u": values}, noise=noise)
        error = abs(solution.unknowns.loc["rate", "estimate"] - 0.8)
        assert error < 0.1 * abs(plain.unknowns.loc["rate", "estimate"] - 0.8)
        assert error < 3 * solution.unknowns.loc["rate", "standard_error"]
        assert "size of the noise" in " ".join(solution.choices)
        assert 0.015 < solution.statistics["sigma.u"] < 0.08


def test_one_standard_deviation_a_row():
    sizes = np.where(T < 2, 0.01, 1.0)
    values = TRUE + sizes * rng().normal(size=len(T))
    data = {"t": T, "u": values, "error": sizes}
    weighted, equal = both(Cooling(), data, noise="error"), sciml.fit(Cooling(), data={"t": T, "u": values})
    assert weighted.unknowns.loc["rate", "standard_error"] < 0.1 * equal.unknowns.loc["rate", "standard_error"]
    assert holds(weighted, rate=0.8)
    assert weighted.success
    assert weighted.statistics["chi2"] == pytest.approx(40, rel=0.5)


def test_standard_deviations_that_the_data_contradict_are_told():
    values = TRUE + 0.5 * rng().normal(size=len(T))
    solution = sciml.fit(Cooling(), data={"t": T, "u": values}, noise=0.05)
    assert not solution.success
    assert "which chance does not explain" in solution.message


def test_columns_of_different_noise_weigh_by_it():
    """One exact column and one that is nearly all noise, neither size given."""

    class Two(Cooling):
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=9.0, v=9.0)]

        @sciml.equation
        def other(self, v, t):
            return d(v, t) + self.rate * (v - self.surroundings)

    data = {"t": T, "u": TRUE + 0.01 * rng(1).normal(size=40), "v": TRUE + 1.0 * rng(2).normal(size=40)}
    told, untold = (sciml.fit(Two(), data=data, noise=noise) for noise in (sciml.Normal(), None))
    ratio = told.unknowns.loc["rate", "standard_error"] / untold.unknowns.loc["rate", "standard_error"]
    assert ratio < 0.1
    assert told.statistics["sigma.u"] == pytest.approx(0.01, rel=0.4)
    assert told.statistics["sigma.v"] == pytest.approx(1.0, rel=0.4)
    assert told.statistics["AIC"] < untold.statistics["AIC"]


def test_counts():
    counts = rng().poisson(5 * TRUE)
    solution = both(
        Cooling(), {"t": T, "clicks": counts}, observe={"clicks": lambda u: 5 * u}, noise={"clicks": sciml.Poisson()}
    )
    assert holds(solution, rate=0.8)


def test_a_prior_informs_and_is_weighed_against_the_data():
    """Three bad measurements and a good guess: the estimate is that of Bayes' rule for normal densities."""
    t, sigma = np.array([0.5, 1.0, 2.0]), 0.8
    values = 1 + 8 * np.exp(-0.8 * t) + sigma * rng(3).normal(size=3)
    free = sciml.fit(Cooling(), data={"t": t, "u": values}, noise=sigma)
    value, error = free.unknowns.loc["rate", ["estimate", "standard_error"]]
    believed = both(Cooling(rate=sciml.Unknown(0.5, lower=0, prior=(0.7, 0.02))), {"t": t, "u": values}, noise=sigma)
    precision = 1 / error**2 + 1 / 0.02**2
    mean = (value / error**2 + 0.7 / 0.02**2) / precision
    assert believed.unknowns.loc["rate", "estimate"] == pytest.approx(mean, abs=0.003)
    assert believed.unknowns.loc["rate", "standard_error"] == pytest.approx(precision**-0.5, rel=0.05)
    assert believed.statistics["measurements"] == 3
    assert believed.residuals.loc["prior.rate", "points"] == 1


@pytest.mark.slow
def test_fields_have_intervals():
    """The exact solution lies inside the bands that noise of one per cent leaves, and they are as wide as simulation says."""
    found = []
    for seed in range(12):
        data = {"t": T, "u": TRUE + 0.05 * rng(seed).normal(size=len(T))}
        solution = sciml.fit(Cooling(), data=data)
        found.append(float(solution(t=2.0)["u"]))
    error = float(solution.standard_error(t=2.0)["u"])
    assert np.std(found, ddof=1) == pytest.approx(error, rel=0.6)
    low, high = solution.interval(t=T)["u"]
    assert (low < high).all()
    assert np.mean((low < TRUE) & (high > TRUE)) > 0.8


def test_what_is_saved_is_read_again(tmp_path):
    solution = sciml.fit(Cooling(), data={"t": T, "u": TRUE + 0.05 * rng().normal(size=len(T))})
    again = sciml.load(solution.save(tmp_path / "s.pt"), problem=Cooling())
    assert dict(again.statistics) == dict(solution.statistics)
    assert (again.standard_error(t=T)["u"] == solution.standard_error(t=T)["u"]).all()
    with pytest.raises(ProblemError, match="loaded without its problem"):
        sciml.load(tmp_path / "s.pt").standard_error(t=T)
    assert again.score({"t": T, "u": TRUE}).loc["u", "rms"] < 0.05


def test_no_standard_errors_without_data():
    with pytest.raises(ProblemError, match="from a fit without data"):
        sciml.fit(Cooling(rate=0.8)).standard_error(t=1.0)
    solution = sciml.fit(Cooling(), data={"t": T, "u": TRUE + 0.05 * rng().normal(size=len(T))})
    with pytest.raises(ProblemError, match="kept the scatter of its constants alone"):
        replace(solution, spread=None).standard_error(t=1.0)
    unfinished = replace(solution, spread=None, success=False, unknowns=solution.unknowns.iloc[:0])
    with pytest.raises(ProblemError, match="ended before it knew how its measurements scatter"):
        unfinished.interval(t=1.0)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"observe": {"v": lambda u: u}}, "observe names the column 'v'"),
        ({"noise": {"w": 0.1}}, "noise names the column 'w'"),
        ({"observe": {"u": 3}}, "observe must be functions by column"),
        ({"observe": {"u": lambda y: y}}, "'y'"),
        ({"noise": "errors"}, "no column 'errors'"),
        ({"noise": sciml.Normal}, "call it"),
    ],
)
def test_names_that_do_not_exist(how, words):
    with pytest.raises((ProblemError, DataError), match=words):
        sciml.fit(Cooling(), data={"t": T, "u": TRUE}, **how)


def test_standard_deviations_must_be_positive():
    with pytest.raises(DataError, match=r"1 standard deviation.*'e' are not positive numbers, the first in row 3"):
        sciml.fit(Cooling(), data={"t": T, "u": TRUE, "e": np.where(np.arange(40) == 3, 0.0, 1.0)}, noise="e")


def test_noise_without_data_is_refused():
    with pytest.raises(ProblemError, match="pass data="):
        sciml.fit(Cooling(), noise=0.1)


def test_problems_may_say_how_their_measurements_scatter():
    class Own(Cooling):
        def measurements(self):
            return sciml.Measurements({"t": T, "u": TRUE}, noise=0.1)

    found = resolve_data(Own(), None)
    (term,) = data_blocks(Own(), found)[0].terms
    assert float(term.evaluate.sigma) == 0.1


def test_an_unused_column_is_told_and_a_likely_typo_refused():
    solution = sciml.fit(Cooling(), data={"t": T, "u": TRUE, "remark": T})
    assert "columns not used: 'remark'" in solution.choices
    with pytest.raises(ProblemError, match="did you mean 'u'"):
        sciml.fit(Cooling(), data={"t": T, "U": TRUE, "u_t": TRUE})


@pytest.mark.parametrize("prior", [(0.5,), (0.5, -1), ("a", 1), (0.5, sciml.Normal()), (0.5, sciml.Poisson())])
def test_priors_that_cannot_be(prior):
    with pytest.raises(ProblemError):
        sciml.Unknown(0.5, prior=prior)


def test_pelts_with_errors_in_per_cent_give_the_published_rates():
    """Stan's published Bayesian fit has log-normal noise: 0.55 (0.06), 0.028 (0.004), 0.80 (0.09), 0.024 (0.004)."""
    unknowns = sciml.fit(sciml.gallery.problem("lynx_hare"), noise=sciml.LogNormal()).unknowns
    published = {
        "birth": (0.55, 0.06),
        "predation": (0.028, 0.004),
        "death": (0.80, 0.09),
        "conversion": (0.024, 0.004),
    }
    for name, (value, error) in published.items():
        row = unknowns.loc[name]
        assert row["low"] < value < row["high"]
        assert abs(row["estimate"] - value) < 0.3 * error
        assert row["standard_error"] == pytest.approx(error, rel=0.25)


@pytest.mark.slow
def test_pelts_give_the_rates_of_shooting():
    """Sharp peaks: polynomials that do not resolve them once left a rate half a standard error off."""
    problem = sciml.gallery.problem("lynx_hare")
    ours, theirs = sciml.fit(problem).unknowns, sciml.baseline(problem).unknowns
    assert (abs(ours["estimate"] - theirs["estimate"]) < 0.01 * theirs["standard_error"]).all()


def test_a_baseline_does_not_take_outliers_for_squares():
    values = TRUE + 0.02 * rng().normal(size=len(T))
    values[::8] += 5.0
    with pytest.raises(BaselineError, match="does not find the size of the noise, and 'u' needs one"):
        sciml.baseline(Cooling(), {"t": T, "u": values}, noise=sciml.Huber())
    believed = Cooling(rate=sciml.Unknown(0.5, lower=0, prior=(0.8, 0.1)))
    with pytest.raises(BaselineError, match="needs one"):
        sciml.baseline(believed, {"t": T, "u": values})
    both(Cooling(), {"t": T, "u": values}, noise=sciml.Huber(0.02))


def test_correlations_of_unknowns_are_those_of_a_straight_line(tmp_path):
    """Of an offset and a slope it is minus the mean of t over its root mean square, whatever the noise."""

    class Line(sciml.Problem):
        domain = sciml.Interval(t=(0, 4))
        fields = ["u"]
        offset, slope = sciml.Unknown(1.0), sciml.Unknown(1.0)

        @sciml.equation
        def line(self, u, t):
            return d(u, t) - self.slope

        @sciml.condition(on=domain.face(t=0))
        def start(self, u):
            return u - self.offset

    t = np.linspace(0, 4, 30)
    solution = sciml.fit(Line(), data={"t": t, "u": 2 + 3 * t + 0.1 * np.random.default_rng(0).normal(size=30)})
    expected = -t.mean() / np.sqrt((t**2).mean())
    assert solution.correlation.loc["offset", "slope"] == pytest.approx(expected, abs=1e-3)
    again = sciml.load(solution.save(tmp_path / "line.pt"))
    assert again.correlation.equals(solution.correlation)
    assert sciml.fit(sciml.gallery.problem("heat_rod")).correlation.empty


@pytest.mark.parametrize(("unit", "refused"), [("K", False), ("kelvin", False), ("mK", True), ("m", True), (None, False)])
def test_columns_in_other_units_than_the_problem_states_are_refused(unit, refused):
    """They were fitted a thousand times too large."""

    class Warm(Cooling):
        units = {"u": "K"}

    t = np.linspace(0, 1, 11)
    table = sciml.Table({"t": t, "u": 1 + 8 * np.exp(-2 * t)}, units={} if unit is None else {"u": unit})
    if refused:
        with pytest.raises(
            DataError, match=r"column 'u': 'm' cannot be converted|column 'u' is in 'mK', and Warm states it in 'K'"
        ):
            sciml.fit(Warm(), data=table)
    else:
        assert resolve_data(Warm(), table) is not None

"""Several experiments with one constant; ensembles, profile likelihood, criteria."""

import os

import numpy as np
import pytest
from scipy import stats

import sciml
from sciml import d
from sciml.errors import DataError, ProblemError, SolverError


class Cooling(sciml.Problem):
    domain = sciml.Interval(t=(0, 4))
    fields = ["u"]
    rate, room = sciml.Unknown(0.5, lower=0), sciml.Unknown(0.3)
    begin = 2.0
    conditions = [sciml.Initial(u=lambda self: self.begin)]

    @sciml.equation
    def cooling(self, u, t):
        return d(u, t) + self.rate * (u - self.room)


def cup(begin, room, seed, count=30, noise=0.05):
    t = np.sort(np.random.default_rng(seed).uniform(0, 4, count))
    u = room + (begin - room) * np.exp(-0.8 * t)
    return {"t": t, "u": u + noise * np.random.default_rng(seed + 100).normal(size=count)}


HOT, WARM = cup(9.0, 1.0, 0), cup(4.0, 0.5, 1, count=20)


def two(own=("room",)):
    return sciml.experiments({"hot": Cooling(begin=9.0), "warm": Cooling(begin=4.0)}, own=own)


@pytest.mark.slow
def test_two_experiments_with_one_constant():
    """The shared constant is known better than from either alone, and SciPy's shooting of both together says the same."""
    solution, classical = (
        sciml.fit(two(), data={"hot": HOT, "warm": WARM}),
        sciml.baseline(two(), {"hot": HOT, "warm": WARM}),
    )
    assert solution.success
    assert list(solution.unknowns.index) == ["rate", "room_hot", "room_warm"]
    for name, truth in {"rate": 0.8, "room_hot": 1.0, "room_warm": 0.5}.items():
        row, other = solution.unknowns.loc[name], classical.unknowns.loc[name]
        assert row["estimate"] == pytest.approx(other["estimate"], abs=0.02 * other["standard_error"])
        assert abs(row["estimate"] - truth) < 3 * row["standard_error"]
    alone = sciml.fit(Cooling(begin=9.0), data=HOT)
    assert solution.unknowns.loc["rate", "standard_error"] < alone.unknowns.loc["rate", "standard_error"]
    assert set(solution(t=1.0)) == {"u_hot", "u_warm"}


@pytest.mark.slow
def test_a_table_with_groups_is_taken_apart():
    columns = {name: np.concatenate([HOT[name], WARM[name]]) for name in ("t", "u")}
    grouped = sciml.Table({**columns, "cup": ["hot"] * 30 + ["warm"] * 20}, group="cup")
    by_group, by_name = sciml.fit(two(), data=grouped), sciml.fit(two(), data={"hot": HOT, "warm": WARM})
    assert (by_group.unknowns["estimate"] == by_name.unknowns["estimate"]).all()


@pytest.mark.slow
def test_observed_functions_and_noise_are_those_of_one_experiment():
    data = {"hot": {"t": HOT["t"], "twice": 2 * HOT["u"]}, "warm": {"t": WARM["t"], "twice": 2 * WARM["u"]}}
    solution = sciml.fit(two(), data=data, observe={"twice": lambda u: 2 * u}, noise={"twice": 0.1})
    plain = sciml.fit(two(), data={"hot": HOT, "warm": WARM}, noise=0.05)
    assert np.allclose(solution.unknowns["estimate"], plain.unknowns["estimate"], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sciml.experiments({"a": Cooling()}), "at least two"),
        (lambda: sciml.experiments({"a": Cooling(), "b": Cooling}), "must be a problem object"),
        (lambda: sciml.experiments({"a b": Cooling(), "c": Cooling()}), "part of names"),
        (lambda: sciml.experiments({"t": Cooling(), "c": Cooling()}), "called like a coordinate"),
        (lambda: two(own=["rates"]), "no unknown of Cooling.*Did you mean 'rate'"),
        (
            lambda: sciml.experiments({"a": Cooling(), "b": Cooling(rate=sciml.Unknown(5.0))}),
            "share 'rate' and say different things",
        ),
    ],
)
def test_what_cannot_be_joined(make, words):
    with pytest.raises(ProblemError, match=words):
        make()


def test_data_of_other_experiments():
    with pytest.raises(DataError, match="no experiment 'cold'"):
        sciml.fit(two(), data={"hot": HOT, "cold": WARM})
    with pytest.raises(DataError, match="'warm' has no data"):
        sciml.fit(two(), data={"hot": HOT})


def test_profile_likelihood_is_that_of_the_textbook():
    """y = begin exp(-rate t) with one unknown: the interval is where the sum of squares reaches its F quantile."""

    class Decay(Cooling):
        room, begin = 0.0, 5.0

    t = np.linspace(0.2, 4, 12)
    y = 5 * np.exp(-0.8 * t) + 0.5 * np.random.default_rng(0).normal(size=12)
    solution = sciml.fit(Decay(), data={"t": t, "u": y}, intervals="profile")
    rates = np.linspace(0.3, 2, 20001)
    squares = ((5 * np.exp(-np.outer(rates, t)) - y) ** 2).sum(axis=1)
    inside = rates[squares <= squares.min() * (1 + stats.f.ppf(0.95, 1, 11) / 11)]
    row = solution.unknowns.loc["rate"]
    assert row["low"] == pytest.approx(inside[0], rel=2e-3)
    assert row["high"] == pytest.approx(inside[-1], rel=2e-3)


@pytest.mark.slow
def test_where_the_data_determine_nothing_a_profile_is_open():
    """Measured long after the decay: any faster rate would do as well."""

    class Fast(Cooling):
        room, begin = 0.0, 5.0

    t = np.linspace(2.0, 4, 10)
    y = 5 * np.exp(-4.0 * t) + 0.02 * np.random.default_rng(0).normal(size=10)
    solution = sciml.fit(Fast(rate=sciml.Unknown(3.0, lower=0)), data={"t": t, "u": y}, intervals="profile")
    assert solution.unknowns.loc["rate", "high"] == np.inf
    assert 0 < solution.unknowns.loc["rate", "low"] < 4.0


@pytest.mark.slow
def test_an_ensemble_scatters_as_the_covariance_says():
    many = sciml.ensemble(Cooling(begin=9.0), data=HOT, members=16)
    expected = many.base.unknowns["standard_error"]
    assert ((many.unknowns["standard_error"] / expected).between(0.5, 1.7)).all()
    assert not many.failures
    low, high = many.interval(t=2.0)["u"]
    assert low < many(t=2.0)["u"] < high
    assert float(many.standard_error(t=2.0)["u"]) == pytest.approx(float(many.base.standard_error(t=2.0)["u"]), rel=0.8)
    assert "Ensemble of 16 fits" in repr(many)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_processes_give_the_same_members():
    one, other = (sciml.ensemble(Cooling(begin=9.0), data=HOT, members=2, workers=n) for n in (1, 2))
    assert np.allclose(one.unknowns["standard_error"], other.unknowns["standard_error"], rtol=1e-6)


@pytest.mark.slow
def test_priors_are_drawn_anew():
    believed = Cooling(begin=9.0, room=1.0, rate=sciml.Unknown(0.8, lower=0, prior=(0.8, 0.02)))
    data = {"t": HOT["t"][:4], "u": HOT["u"][:4] + np.array([0.3, -0.5, 0.4, -0.2])}
    many = sciml.ensemble(believed, data=data, noise=0.5, members=12)
    ratio = many.unknowns.loc["rate", "standard_error"] / many.base.unknowns.loc["rate", "standard_error"]
    assert 0.45 < ratio < 1.8


def test_ensembles_that_cannot_be():
    with pytest.raises(ProblemError, match="nothing to resample"):
        sciml.ensemble(Cooling(rate=1.0, room=1.0), members=2)
    with pytest.raises(SolverError, match="at least 2"):
        sciml.ensemble(Cooling(), data=HOT, members=1)
    with pytest.raises(SolverError, match="'residuals', 'rows' or None"):
        sciml.ensemble(Cooling(), data=HOT, resample="pairs")


@pytest.mark.slow
def test_criteria_tell_models_apart():
    free, fixed = sciml.fit(Cooling(begin=9.0), data=HOT), sciml.fit(Cooling(begin=9.0, room=0.0), data=HOT)
    table = sciml.criteria(fixed, free, held_out=cup(9.0, 1.0, 7))
    assert list(table.index) == ["Cooling_2", "Cooling"]
    assert table.loc["Cooling_2", "weight"] > 0.99
    assert table.loc["Cooling_2", "held_out"] < table.loc["Cooling", "held_out"]
    assert free.statistics["parameters"] == pytest.approx(3, abs=0.1)  # two constants and the noise
    with pytest.raises(ProblemError, match="numbers differ"):
        sciml.criteria(free, sciml.fit(Cooling(begin=4.0), data=WARM))


@pytest.mark.slow
def test_a_size_that_was_found_counts_as_a_parameter_and_leaves_intervals_of_student():
    few = {"t": HOT["t"][::5], "u": HOT["u"][::5]}
    named, silent = (sciml.fit(Cooling(begin=9.0), data=few, noise=noise) for noise in (sciml.Normal(), None))
    for column in ("low", "high"):
        assert np.allclose(named.unknowns[column], silent.unknowns[column], rtol=1e-3)
    assert named.statistics["parameters"] == pytest.approx(silent.statistics["parameters"], abs=0.01)


def test_outflow_of_each_experiment():
    channel = sciml.Box(x=(0, 2), y=(0, 1))

    class Channel(sciml.Problem):
        domain = channel
        fields = ["u", "v", "p"]
        nu = 0.1
        conditions = [
            sciml.Outflow(("u", "v"), "p", viscosity=lambda self: self.nu, on=channel.face(x=2)),
            sciml.Dirichlet(u=0.0, v=0.0, on=channel.faces("y")),
        ]

        @sciml.equation
        def along(self, u, p, x, y):
            return d(p, x) - self.nu * sciml.laplacian(u, x, y)

        @sciml.equation
        def across(self, v, p, x, y):
            return d(p, y) - self.nu * sciml.laplacian(v, x, y)

        @sciml.equation
        def continuity(self, u, v, x, y):
            return d(u, x) + d(v, y)

    both = sciml.experiments({"thin": Channel(nu=0.1), "thick": Channel(nu=1.0)})
    names = [term.name for term in both.terms()]
    assert names[6:10] == ["outflow_thin.u_thin", "outflow_thin.v_thin", "dirichlet_thin.u_thin", "dirichlet_thin.v_thin"]
    single, joint = (each.system.slopes(each.terms()[k]) for each, k in ((Channel(nu=1.0), 3), (both, 10)))
    assert {field for field, _ in joint} == {"u_thick", "p_thick"}
    assert float(single["u", ("x",)][0]) == float(joint["u_thick", ("x",)][0]) == 1.0

"""Unknown constants of partial differential equations from scattered samples, without settings."""

import math
import warnings

import numpy as np
import pytest
import scipy
import torch
from candidates import candidate, workspace
from conftest import problem_class

import sciml
from problems import Harmonic
from sciml import d
from sciml.diagnostics.certificate import Certificate
from sciml.models import PiecewisePolynomial
from sciml.models.bases import gauss
from sciml.strategies import AllAtOnce, all_at_once as recovery
from sciml.strategies.prepare import prepare

NOISE = 0.02


class Heat(sciml.Problem):
    """Neither start nor boundary is known."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.5))
    fields = ["u"]
    k = sciml.Unknown(1.0, lower=0)

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


class HeatKnown(Heat):
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x) + 0.5 * torch.sin(3 * torch.pi * x)),
        sciml.Dirichlet(u=0.0, on=Heat.domain.faces("x")),
    ]


def heat(x, t):
    slow, fast = (np.exp(-0.3 * (mode * np.pi) ** 2 * t) * np.sin(mode * np.pi * x) for mode in (1, 3))
    return {"u": slow + 0.5 * fast}


class Source(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    strength = sciml.Unknown(1.0)
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.2 * d(u, x, x) - self.strength * torch.sin(torch.pi * x)


def source(x, t):
    decay = 0.2 * np.pi**2
    return {"u": 3.0 / decay * (1 - np.exp(-decay * t)) * np.sin(np.pi * x)}


class Fisher(sciml.Problem):
    domain = sciml.Box(x=(-10, 10), t=(0, 4))
    fields = ["u"]
    rate, diffusivity = sciml.Unknown(0.5, lower=0), sciml.Unknown(0.5, lower=0)

    @sciml.equation
    def growth(self, u, x, t):
        return d(u, t) - self.diffusivity * d(u, x, x) - self.rate * u * (1 - u)


def fisher(x, t):
    return {"u": (1 + np.exp((x - 5 / np.sqrt(6) * t) / np.sqrt(6))) ** -2}


class Carried(sciml.Problem):
    domain = sciml.Box(x=(0, 2), t=(0, 1))
    fields = ["u"]
    speed, spreading = sciml.Unknown(0.5), sciml.Unknown(0.05, lower=0)

    @sciml.equation
    def balance(self, u, x, t):
        return d(u, t) + self.speed * d(u, x) - self.spreading * d(u, x, x)


def carried(x, t):
    wide = 0.01 + 0.02 * t
    return {"u": np.sqrt(0.01 / wide) * np.exp(-((x - 0.5 - 0.8 * t) ** 2) / (2 * wide))}


class String(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 2))
    fields = ["u"]
    square = sciml.Unknown(1.0, lower=0)
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t, t) - self.square * d(u, x, x)


def string(x, t):
    speed = np.pi * np.sqrt(1.7)
    return {"u": np.sin(np.pi * x) * np.cos(speed * t) + 0.3 * np.sin(2 * np.pi * x) * np.sin(2 * speed * t)}


class Rotation(sciml.Problem):
    """Two fields."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u", "v"]
    turn, spreading = sciml.Unknown(1.0), sciml.Unknown(0.1, lower=0)

    @sciml.equation
    def first(self, u, v, x, t):
        return d(u, t) - self.spreading * d(u, x, x) + self.turn * v

    @sciml.equation
    def second(self, u, v, x, t):
        return d(v, t) - self.spreading * d(v, x, x) - self.turn * u


def rotation(x, t):
    size = np.exp(-0.05 * np.pi**2 * t) * np.cos(np.pi * x)
    return {"u": size * np.cos(2 * t), "v": size * np.sin(2 * t)}


class Membrane(sciml.Problem):
    """At rest: two coordinates of space, values at the boundary unknown."""

    domain = sciml.Box(x=(-1, 1), y=(-1, 1))
    fields = ["u"]
    square = sciml.Unknown(1.0)

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + self.square * u


def membrane(x, y):
    return {"u": np.sin(3 * x) * np.cos(2 * y) + 0.5 * np.sin(2 * x + 3 * y)}


CASES = {
    "heat": (Heat, heat, 100, {"k": 0.3}),
    "heat, conditions known": (HeatKnown, heat, 100, {"k": 0.3}),
    "source": (Source, source, 100, {"strength": 3.0}),
    "Fisher": (Fisher, fisher, 400, {"rate": 1.0, "diffusivity": 1.0}),
    "advection and diffusion": (Carried, carried, 300, {"speed": 0.8, "spreading": 0.01}),
    "string": (String, string, 200, {"square": 1.7}),
    "two fields": (Rotation, rotation, 300, {"turn": 2.0, "spreading": 0.05}),
    "at rest": (Membrane, membrane, 200, {"square": 13.0}),
}


def samples(problem, exact, count, noise, seed):
    """Values at random points, with noise that is a share of their spread."""
    generator = np.random.default_rng(seed)
    at = {key: low + (high - low) * generator.random(count) for key, (low, high) in problem.domain.bounds.items()}
    fields = exact(**at)
    noisy = {name: each + noise * each.std() * generator.standard_normal(count) for name, each in fields.items()}
    return sciml.Table({**at, **noisy})


def fitted(kind, exact, count, noise, seed=1):
    return fitted_by(None, kind, exact, count, noise, seed)


def fitted_by(model, kind, exact, count, noise, seed=1):
    problem = kind()
    with warnings.catch_warnings():
        # No conditions: that is what they are about.
        warnings.simplefilter("ignore", sciml.ConditionWarning)
        return sciml.fit(problem, model, data=samples(problem, exact, count, noise, seed))


@pytest.mark.parametrize("name", CASES)
def test_constants_lie_within_their_intervals(name):
    kind, exact, count, truth = CASES[name]
    solution = fitted(kind, exact, count, NOISE)
    assert solution.success
    assert isinstance(solution.model, PiecewisePolynomial)
    for key, value in truth.items():
        row = solution.unknowns.loc[key]
        # 2.6 standard errors: one in a hundred would be further off.
        assert abs(row["estimate"] - value) < 2.6 * row["standard_error"]
        assert row["standard_error"] < 0.05 * abs(value)


@pytest.mark.parametrize("name", ["source", "Fisher", "two fields", "at rest"])
def test_constants_are_found_to_many_digits_from_exact_values(name):
    kind, exact, count, truth = CASES[name]
    solution = fitted(kind, exact, count, 0.0)
    assert solution.success
    for key, value in truth.items():
        row = solution.unknowns.loc[key]
        assert row["estimate"] == pytest.approx(value, rel=1e-6)
        assert row["low"] < value < row["high"]


@pytest.mark.parametrize("name", CASES)
def test_error_bands_hold_the_fields(name):
    kind, exact, count, truth = CASES[name]
    solution = fitted(kind, exact, count, NOISE, seed=2)
    generator = np.random.default_rng(0)
    at = {key: low + (high - low) * generator.random(1000) for key, (low, high) in kind.domain.bounds.items()}
    found, true, errors = solution(**at), exact(**at), solution.standard_error(**at)
    for field, values in true.items():
        misfit = found[field] - values
        # Errors of neighbours are alike: a band is right or wrong on large parts.
        assert np.mean(np.abs(misfit) < 3 * errors[field]) > 0.9
        share = np.linalg.norm(misfit) / np.linalg.norm(values)
        # Where one constant moves all of a field, its error may be small by chance.
        assert 0.02 * solution.estimated_error[field] < share < 3 * solution.estimated_error[field]
    if len(truth) > 1:
        one, two = truth
        assert -1 < solution.statistics[f"correlation.{one}.{two}"] < 1


def test_a_band_is_as_wide_as_the_interval_of_the_constant_that_the_field_is_proportional_to():
    solution = fitted(Source, source, 200, NOISE)
    # Near the walls and the start what equations leave free counts as well.
    at = {"x": np.linspace(0.35, 0.65, 5), "t": np.linspace(0.6, 1.0, 5)}
    (estimate,), (error,) = (solution.unknowns[column] for column in ("estimate", "standard_error"))
    expected = np.abs(solution(**at)["u"]) * error / estimate
    np.testing.assert_allclose(solution.standard_error(**at)["u"], expected, rtol=0.3)


def test_a_network_that_learned_has_the_bands_of_its_teacher():
    network = fitted_by(sciml.MLP(8), Source, source, 200, NOISE)
    teacher = fitted(Source, source, 200, NOISE)
    at = {"x": np.linspace(0.1, 0.9, 5), "t": np.linspace(0.1, 0.9, 5)}
    np.testing.assert_allclose(network.standard_error(**at)["u"], teacher.standard_error(**at)["u"], rtol=0.5)


def test_what_nothing_determines_has_no_correlation_and_no_band():
    class Sum(Source):
        more = sciml.Unknown(0.5)

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - 0.2 * d(u, x, x) - (self.strength + self.more) * torch.sin(torch.pi * x)

    solution = fitted(Sum, source, 200, NOISE)
    assert not solution.success
    assert np.isinf(solution.unknowns["standard_error"]).all()
    assert not any(name.startswith("correlation") for name in solution.statistics)
    assert solution.spread is None


def test_bands_are_the_same_from_a_file(tmp_path):
    solution = fitted(Source, source, 200, NOISE)
    again = sciml.load(solution.save(tmp_path / "s.pt"), problem=Source())
    at = {"x": np.linspace(0, 1, 7), "t": np.linspace(0, 1, 7)}
    np.testing.assert_array_equal(again.standard_error(**at)["u"], solution.standard_error(**at)["u"])


@pytest.mark.parametrize("begin", [1e-3, 30.0])
def test_linear_equations_find_constants_from_afar(begin):
    """Soft equations let noise into second derivatives, and so draw their factor to zero."""

    class Far(Heat):
        k = sciml.Unknown(begin, lower=0)
        conditions = [sciml.Dirichlet(u=0.0, on=Heat.domain.faces("x"))]

    solution = fitted(Far, heat, 300, NOISE, seed=3)
    estimate, error = solution.unknowns.loc["k", ["estimate", "standard_error"]]
    assert solution.success
    assert abs(estimate - 0.3) < 3 * error
    assert error < 0.01


def test_state_estimation_by_known_equations_without_a_start():
    class Known(Heat):
        k = 0.3
        conditions = [sciml.Dirichlet(u=0.0, on=Heat.domain.faces("x"))]

    solution = fitted(Known, heat, 300, NOISE)
    assert solution.success
    assert solution.solver == "GaussNewton"
    generator = np.random.default_rng(0)
    at = {"x": generator.random(1000), "t": 0.5 * generator.random(1000)}
    true = heat(**at)["u"]
    share = np.linalg.norm(solution(**at)["u"] - true) / np.linalg.norm(true)
    assert share < 0.02
    assert 0.3 * solution.estimated_error["u"] < share < 3 * solution.estimated_error["u"]


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = []
    for seed in range(12):
        row = fitted(Source, source, 60, 0.05, seed).unknowns.loc["strength"]
        held.append(row["low"] < 3.0 < row["high"])
    # With probability 0.95 each, fewer than 9 of 12 happen less than three times in a thousand.
    assert sum(held) >= 9


@pytest.mark.slow
def test_a_shock_is_resolved_and_its_viscosity_found_from_exact_values():
    problem = problem_class("burgers_inverse")()
    generator = np.random.default_rng(3)
    at = {"x": generator.uniform(-1, 1, 2000), "t": generator.uniform(0, 1, 2000)}
    solution = sciml.fit(problem, data=sciml.Table({**at, **problem.reference_values(at)}))
    assert solution.success
    assert solution.unknowns.loc["speed", "estimate"] == pytest.approx(1.0, rel=1e-3)
    assert solution.unknowns.loc["viscosity", "estimate"] == pytest.approx(0.01 / math.pi, rel=1e-3)
    assert solution.error()["u"] < 1e-4


@pytest.mark.slow
def test_what_no_row_sees_is_said():
    class Blind(Heat):
        lost = sciml.Unknown(1.0)

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - (self.k + self.lost) * d(u, x, x)

    solution = fitted(Blind, heat, 100, NOISE)
    assert not solution.success
    assert "do not determine" in solution.message


@pytest.mark.slow
def test_an_equation_that_the_data_contradict_is_no_success(monkeypatch):
    monkeypatch.setattr(recovery, "_EFFORT", {2: 1e7})

    class Wrong(HeatKnown):
        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) + self.k * d(u, x)

    problem = Wrong()
    setup = prepare(problem, None, samples(problem, heat, 60, 0.0, 1), None, None, torch.float64, "cpu", 0)
    found = candidate(AllAtOnce(), workspace(problem, discrete=setup, measurements=setup.measurements))
    # Equations may hold, for a solution that the measurements speak against.
    assert not found.accepted
    assert found.status == "converged"
    assert any("of 'u' deviate alike" in each for each in Certificate.issue(found.discrete, 0.05).reasons)


def test_a_solution_is_the_same_from_its_file(tmp_path):
    solution = fitted(HeatKnown, heat, 60, NOISE)
    solution.save(tmp_path / "heat.pt")
    again = sciml.load(tmp_path / "heat.pt", problem=HeatKnown())
    assert (again(x=0.3, t=0.2)["u"] == solution(x=0.3, t=0.2)["u"]).all()
    assert again.unknowns.equals(solution.unknowns)
    assert again.choices == solution.choices


def test_a_watcher_ends_the_search():
    data = samples(Heat(), heat, 100, NOISE, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sciml.ConditionWarning)
        solution = sciml.fit(Heat(), data=data, callbacks=[lambda look: look.step >= 3])
    assert solution.status == "stopped"
    assert len(solution.history) == 3
    assert solution.history["phase"].iloc[0] == "PiecewisePolynomial(4 x 2)"


def test_ctrl_c_leaves_the_best_so_far():
    def interrupt(look):
        if look.step == 4:
            raise KeyboardInterrupt

    data = samples(Heat(), heat, 100, NOISE, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sciml.ConditionWarning)
        solution = sciml.fit(Heat(), data=data, callbacks=[interrupt])
    assert solution.status == "interrupted"


def test_what_cannot_be_put_on_tiles_is_said():
    class Average(Heat):
        conditions = [sciml.Mean(u=0.0), sciml.Dirichlet(u=0.0, on=Heat.domain.face(x=0))]

    class Two(Heat):
        fields = ["u", "v"]

    def reason(problem):
        return AllAtOnce().obstacle(workspace(problem, measurements="some"))

    assert "no box" in reason(Harmonic())
    assert "more fields" in reason(Two())
    assert "without points" in reason(Average())
    assert reason(Heat()) is None
    assert "no measurements" in AllAtOnce().obstacle(workspace(Heat()))


class Decay(sciml.Problem):
    """Measured for some values of a constant that is known, with one that is not."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    load, rate = 1.0, sciml.Unknown(1.0, lower=0)
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.load * self.rate * u


@pytest.mark.parametrize("values", [2, 30])
def test_promoted_ordinary_differential_equations(values):
    """Equations have no derivative by a promoted constant: measurements must not pull ridges out of the solution."""
    generator = np.random.default_rng(0)
    load = np.tile(np.linspace(1.0, 2.0, values), 30 // values)
    t = generator.uniform(0.05, 1.0, 30)
    table = {"t": t, "load": load, "u": np.exp(-0.7 * load * t) + 0.01 * generator.normal(size=30)}
    solution = sciml.fit(Decay().promote(load=(0.5, 2.5)), data=table)
    assert solution.success
    assert "an ordinary differential equation for 'load' in a range" in solution.choices[1]
    row = solution.unknowns.loc["rate"]
    assert abs(row["estimate"] - 0.7) < 4 * row["standard_error"]
    # The standard error of least squares for one constant: noise by the root of the sum of squared sensitivities.
    ideal = 0.01 / np.sqrt(np.sum((load * t * np.exp(-0.7 * load * t)) ** 2))
    assert row["standard_error"] == pytest.approx(ideal, rel=0.5)
    at = np.linspace(0, 1, 9)
    # Within a tenth of the noise, beyond the values that were measured as well.
    for each in (0.5, 1.5, 2.5):
        assert np.abs(solution(t=at, load=each)["u"] - np.exp(-row["estimate"] * each * at)).max() < 1e-3


class HeatInThePlane(sciml.Problem):
    """Heat conduction in a square, from temperatures alone."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = ["u"]
    kappa = sciml.Unknown(initial=0.1)

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - self.kappa * (d(u, x, x) + d(u, y, y))


@pytest.mark.slow
def test_a_constant_from_measurements_in_the_plane_and_time():
    generator = np.random.default_rng(0)
    x, y, t = generator.random((3, 4000))
    slow, fast = (np.exp(-0.05 * k * np.pi**2 * t) for k in (2, 13))
    u = slow * np.cos(np.pi * x) * np.cos(np.pi * y) + 0.5 * fast * np.cos(2 * np.pi * x) * np.sin(3 * np.pi * y)
    noisy = u + 0.05 * generator.standard_normal(len(u))
    solution = sciml.fit(HeatInThePlane(), data={"x": x, "y": y, "t": t, "u": noisy})
    estimate, error = solution.unknowns.loc["kappa", ["estimate", "standard_error"]]
    assert solution.success
    assert abs(estimate - 0.05) < 3 * error
    assert error < 2e-3


class Cooled(sciml.Problem):
    """Heat that is lost to both sides of a plate, from an unknown start."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.5))
    fields = ["u"]
    k, loss = sciml.Unknown(0.3, lower=0), sciml.Unknown(-0.1)
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x", "y"))]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - self.k * sciml.laplacian(u, x, y) + self.loss * u


@pytest.mark.slow
def test_where_no_finer_tiles_can_be_had_equations_are_hardened():
    generator = np.random.default_rng(5)
    x, y, t = generator.random((3, 3000))
    slow, fast = (np.exp(-(0.1 * modes * np.pi**2 - 0.4) * 0.5 * t) for modes in (2, 5))
    u = slow * np.sin(np.pi * x) * np.sin(np.pi * y) + 0.3 * fast * np.sin(2 * np.pi * x) * np.sin(np.pi * y)
    noisy = u + 0.02 * generator.standard_normal(len(u))
    solution = sciml.fit(Cooled(), data={"x": x, "y": y, "t": 0.5 * t, "u": noisy})
    assert solution.success, solution.message
    for name, truth in {"k": 0.1, "loss": -0.4}.items():
        estimate, error = solution.unknowns.loc[name, ["estimate", "standard_error"]]
        assert abs(estimate - truth) < 3 * error
        assert error < 0.1


class Infusion(sciml.Problem):
    """A drug that is given for a while, and what becomes of it."""

    domain = sciml.Interval(t=(0, 12))
    fields = ["a", "b"]
    k, m = sciml.Unknown(0.4, lower=0), sciml.Unknown(0.6, lower=0)
    conditions = [sciml.Initial(a=1.0, b=0.0)]

    @sciml.equation
    def gut(self, a, t):
        return d(a, t) + self.k * a - torch.where((t > 3.217) & (t < 4.0), 2.0, 0.0)

    @sciml.equation
    def blood(self, a, b, t):
        return d(b, t) - self.k * a + self.m * b


def infused(t, k, m):
    """What is in the blood, each step of the integrator ending at the switches."""
    found, start = np.empty_like(t), [1.0, 0.0]
    for first, last, dose in ((0, 3.217, 0.0), (3.217, 4.0, 2.0), (4.0, 12.0, 0.0)):
        rate = lambda t, y, dose=dose: [-k * y[0] + dose, k * y[0] - m * y[1]]  # noqa: E731
        part = scipy.integrate.solve_ivp(rate, (first, last), start, rtol=1e-10, atol=1e-12, dense_output=True)
        own = (t >= first) & (t <= last)
        found[own], start = part.sol(t[own])[1], part.y[:, -1]
    return found


def test_intervals_beside_a_switch_are_those_of_least_squares():
    """Pieces were halved towards the switches to 1e-13, and a standard error was a hundredth of what it is."""
    t = np.linspace(0.2, 12, 50)
    b = infused(t, 0.8, 0.3) + 0.02 * np.random.default_rng(21).normal(size=50)
    solution = sciml.fit(Infusion(), data={"t": t, "b": b})
    best, spread = scipy.optimize.curve_fit(infused, t, b, (0.7, 0.4))
    assert solution.success, solution.message
    found = solution.unknowns
    for name, value, error in zip("km", best, np.sqrt(np.diag(spread)), strict=True):
        assert found.loc[name, "estimate"] == pytest.approx(value, abs=0.02 * error)
        assert found.loc[name, "standard_error"] == pytest.approx(error, rel=0.05)


class Driven(sciml.Problem):
    """A velocity that is measured and a pressure that is known up to its mean at each time."""

    domain = sciml.Box(x=(0, 3), t=(0, 1))
    fields = ["u", "p"]
    rate = sciml.Unknown(0.5)
    conditions = [sciml.Mean(p=lambda t: 1 + t)]

    @sciml.equation
    def slowed(self, u, x, t):
        return d(u, t) + self.rate * u

    @sciml.equation
    def driven(self, u, p, x, t):
        return d(p, x) - u


def test_a_mean_at_each_time_gives_a_field_that_nobody_measures_its_level():
    generator = np.random.default_rng(0)
    x, t = generator.uniform(0, 3, 300), generator.uniform(0, 1, 300)
    u = np.cos(x) * np.exp(-1.3 * t)
    solution = sciml.fit(
        Driven(),
        data={"x": x, "t": t, "u": u + 0.01 * generator.normal(size=300)},
        strategy=sciml.strategies.AllAtOnce(),
    )
    assert solution.success, solution.message
    low, high = solution.unknowns.loc["rate", ["low", "high"]]
    assert low < 1.3 < high
    level = (1 - math.cos(3)) / 3
    found = solution(x=np.array([0.2, 2.0, 2.9]), t=np.array([0.1, 0.5, 0.9]))["p"]
    wanted = [(math.sin(a) - level) * math.exp(-1.3 * b) + 1 + b for a, b in [(0.2, 0.1), (2.0, 0.5), (2.9, 0.9)]]
    assert found == pytest.approx(np.array(wanted), abs=0.01)


def test_levels_are_put_right_at_each_time():
    generator = torch.Generator().manual_seed(0)
    model = PiecewisePolynomial([[-1.0, 0.3, 1.0], [-1.0, -0.5, 0.1, 1.0]], [4, 3], 2)
    model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=generator, dtype=torch.float64))
    problem = Driven()
    (term,) = [each for each in problem.terms() if each.name == "mean"]
    times = torch.linspace(-0.95, 0.95, 7, dtype=torch.float64)
    middle = torch.stack([torch.zeros_like(times), times], dim=1)
    before, u = model(middle)[:, 1], model(middle)[:, 0]
    recovery._level(model, problem, term)
    places, weights = gauss(6)
    for number, time in enumerate(times):
        mean = 0.0
        for low, high in [(-1.0, 0.3), (0.3, 1.0)]:
            x = (low + high) / 2 + (high - low) / 2 * places
            mean += (high - low) / 4 * float(weights @ model(torch.stack([x, time.expand(6)], dim=1))[:, 1])
        assert mean == pytest.approx(float(before[number]), abs=1e-12)
    assert torch.equal(model(middle)[:, 0], u)

"""Unknown constants of equations on any domain: only the constants are varied, fields are solved for, against closed forms."""

import copy
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from candidates import workspace
from scipy.special import j0, jn_zeros

import sciml
from sciml import d
from sciml.models import PiecewisePolynomial, Scaled, Windowed
from sciml.strategies import Train
from sciml.strategies.inverse_constants import OutputError, TableTangent, _far, _spread
from sciml.strategies.select import select
from sciml.strategies.tiles import sensitivities
from sciml.uncertainty.covariance import Inference

DISK = sciml.Disk((0, 0), 1)
FIRST, SECOND = jn_zeros(0, 2)
TRUE = {"k": 0.3, "c": 2.0}


class Heated(sciml.Problem):
    r"""A heated disk: :math:`u = (1 - r^2)/(4k) + c\,x\,(1 - r^2)/(8k)`."""

    domain = DISK
    fields = ["u"]
    k = sciml.Unknown(1.0, lower=0)
    c = sciml.Unknown(0.0)
    conditions = [sciml.Dirichlet(u=0.0, on=DISK.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return self.k * sciml.laplacian(u, x, y) + 1 + self.c * x


class Cooling(sciml.Problem):
    """Heat that is conducted in a disk and lost by its faces, from two of its modes."""

    domain = DISK * sciml.Interval(t=(0, 0.5))
    fields = ["u"]
    a = sciml.Unknown(0.4, lower=0)
    c = sciml.Unknown(1.0)
    conditions = [
        sciml.Initial(u=lambda x, y: sum(torch.special.bessel_j0(root * torch.hypot(x, y)) for root in (FIRST, SECOND))),
        sciml.Dirichlet(u=0.0, on=DISK.boundary),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - self.a * sciml.laplacian(u, x, y) + self.c * u


def places(count, seed=0):
    found = np.random.default_rng(seed).uniform(-1, 1, (4 * count, 2))
    return found[(found**2).sum(1) < 1][:count].T


def heated(x, y, k, c):
    return (1 - x**2 - y**2) / (4 * k) * (1 + c * x / 2)


def sample(noise=0.0, count=200, seed=0):
    x, y = places(count, seed)
    return {"x": x, "y": y, "u": heated(x, y, **TRUE) + noise * np.random.default_rng([seed, 1]).normal(size=count)}


def test_exact_measurements_on_a_disk_give_constants_to_rounding():
    solution = sciml.fit(Heated(), data=sample())
    assert solution.success
    assert [each for each in solution.choices if each.startswith("NonlinearRegression: residual")]
    assert all(abs(solution.unknowns["estimate"][name] - true) < 1e-9 for name, true in TRUE.items())
    x, y = places(50, seed=7)
    assert np.abs(solution(x=x, y=y)["u"] - heated(x, y, **TRUE)).max() < 1e-9


def test_one_factor_gives_the_derivatives_by_all_constants():
    solved = sciml.fit(Heated(**TRUE), strategy=sciml.strategies.Tiles(3, 6)).trial
    raw = {"k": Heated.k.raw(TRUE["k"]), "c": Heated.c.raw(TRUE["c"])}
    tables = sensitivities(SimpleNamespace(trial=solved, problem=Heated()), raw, seed=0)
    assert tables.shape == (2, *solved.model.coefficients.shape)
    x, y = places(50)
    points, (k, c) = torch.from_numpy(np.stack([x, y], axis=1)), TRUE.values()
    for table, slope in zip(tables, (-heated(x, y, k, c), (1 - x**2 - y**2) * x / (8 * k)), strict=True):
        moved = copy.deepcopy(solved)
        moved.model.coefficients += table
        assert np.allclose((moved(points) - solved(points))[:, 0], slope, rtol=0, atol=1e-10)


def test_fields_that_follow_from_constants_have_bands():
    solution = sciml.fit(Heated(), data=sample(noise=0.01))
    x, y = places(300, seed=9)
    low, high = solution.interval(x=x, y=y)["u"]
    assert np.mean((low < heated(x, y, **TRUE)) & (heated(x, y, **TRUE) < high)) > 0.8
    assert np.mean(high - low) < 0.02


def test_measurements_of_the_class_are_made_for_the_data_alone():
    made = []

    class Brought(Heated):
        def measurements(self):
            made.append(1)
            return sample(noise=0.01)

    assert sciml.fit(Brought()).success
    # Where the problem is checked, and where its data are read.
    assert len(made) <= 4


def test_standard_errors_are_those_of_the_closed_form():
    data = sample(noise=0.01)
    solution = sciml.fit(Heated(), data=data)
    assert solution.success
    k, c = (float(solution.unknowns["estimate"][name]) for name in TRUE)
    x, y = data["x"], data["y"]
    slopes = np.stack([-heated(x, y, k, c) / k, (1 - x**2 - y**2) * x / (8 * k)], axis=1)
    # A tenth of the rows is held out.
    expected = 0.01 * np.sqrt(np.diag(np.linalg.inv(0.9 * slopes.T @ slopes)))
    assert np.allclose(solution.unknowns["standard_error"], expected, rtol=0.2)
    for (name, true), error in zip(TRUE.items(), expected, strict=True):
        assert abs(solution.unknowns["estimate"][name] - true) < 4 * error
    off = np.linalg.norm(heated(x, y, k, c) - heated(x, y, **TRUE)) / np.linalg.norm(heated(x, y, **TRUE))
    assert off < 4 * solution.estimated_error["u"] < 0.02


def test_intervals_cover():
    held = 0
    for seed in range(12):
        found = sciml.fit(Heated(), data=sample(noise=0.02, count=60, seed=seed)).unknowns
        held += sum(found["low"][name] <= true <= found["high"][name] for name, true in TRUE.items())
    # Of 24 intervals of 95 % fewer than 20 hold the truth once in 200 times.
    assert held >= 20


@pytest.mark.slow
def test_constants_on_a_disk_in_time():
    x, y = places(300)
    t = np.random.default_rng(3).uniform(0, 0.5, len(x))
    true = {"a": 0.2, "c": 1.5}
    modes = [j0(root * np.hypot(x, y)) * np.exp(-(true["a"] * root**2 + true["c"]) * t) for root in (FIRST, SECOND)]
    noise = 0.01 * np.random.default_rng(4).normal(size=len(x))
    found = sciml.fit(Cooling(), data={"x": x, "y": y, "t": t, "u": sum(modes) + noise})
    assert found.success
    slopes = -t[:, None] * np.stack([modes[0] * FIRST**2 + modes[1] * SECOND**2, sum(modes)], axis=1)
    # A tenth of the rows is held out.
    expected = 0.01 * np.sqrt(np.diag(np.linalg.inv(0.9 * slopes.T @ slopes)))
    assert np.allclose(found.unknowns["standard_error"], expected, rtol=0.2)
    for (name, each), error in zip(true.items(), expected, strict=True):
        assert abs(found.unknowns["estimate"][name] - each) < 4 * error


def test_what_is_known_before_and_derivatives_that_are_measured_count_as_well():
    class Known(Heated):
        k = sciml.Unknown(1.0, lower=0, prior=(0.3, 1e-4))

    x, y = places(30)
    data = {"x": x, "y": y, "u_y": -y / (2 * 0.3) * (1 + x) + 0.05 * np.random.default_rng(1).normal(size=len(x))}
    found = sciml.fit(Known(), data=data, noise=0.05).unknowns
    assert found["standard_error"]["k"] < 1.01e-4
    assert abs(found["estimate"]["c"] - 2.0) < 4 * found["standard_error"]["c"] < 0.5


COOL = {"x": [0.1, 0.3, 0.0], "y": [0.0] * 3, "t": [0.1, 0.2, 0.3], "u": [1.0, 0.6, 0.3]}


@pytest.mark.parametrize("how", [{"seconds": 1}, {"callbacks": [lambda report: True]}], ids=["budget", "callback"])
def test_an_end_before_any_step_is_no_success(how):
    solution = sciml.fit(Cooling(), data=COOL, **how)
    assert not solution.success
    assert "the constants are those that it began with" in solution.message
    assert np.isinf(solution.unknowns["standard_error"]).all()


@pytest.mark.parametrize("when", [2, 4, 6])
def test_who_ends_it_gets_what_there_is_and_may_go_on_to_the_same_bits(when, tmp_path):
    whole, seen = sciml.fit(Heated(), data=sample(noise=0.01)), []

    def end(report):
        seen.append(report)
        if len(seen) == when:
            raise KeyboardInterrupt

    how = {"data": sample(noise=0.01), "out": tmp_path / "run"}
    ended = sciml.fit(Heated(), callbacks=[end], **how)
    assert ended.status == "interrupted"
    assert not ended.success
    resumed = sciml.fit(Heated(), resume=True, **how)
    assert resumed.success
    assert resumed.unknowns.equals(whole.unknowns)
    assert torch.equal(resumed.trial.model.coefficients, whole.trial.model.coefficients)


def test_as_few_measurements_as_constants_have_no_intervals():
    found = sciml.fit(
        Heated(), data={"x": [0.1, 0.6], "y": [0.0, 0.2], "u": heated(np.array([0.1, 0.6]), np.array([0.0, 0.2]), **TRUE)}
    )
    assert all(abs(found.unknowns["estimate"][name] - true) < 1e-6 for name, true in TRUE.items())
    assert np.isinf(found.unknowns["standard_error"]).all()


def test_a_start_far_from_the_constants_arrives():
    class Far(Heated):
        k = sciml.Unknown(20.0, lower=0)
        c = sciml.Unknown(-30.0)

    found = sciml.fit(Far(), data=sample()).unknowns
    assert all(abs(found["estimate"][name] - true) < 1e-6 for name, true in TRUE.items())


class String(sciml.Problem):
    """A string that swings in one mode: its misfit has a minimum for every period that the speed is off by."""

    domain = sciml.Box(x=(0, 1), t=(0, 2))
    fields = ["u"]
    c = sciml.Unknown(1.0, lower=0)
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(2 * torch.pi * x), u_t=0.0),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def wave(self, u, x, t):
        return d(u, t, t) - self.c**2 * d(u, x, x)


class Damped(String):
    r = sciml.Unknown(0.0)

    @sciml.equation
    def wave(self, u, x, t):
        return d(u, t, t) + self.r * d(u, t) - self.c**2 * d(u, x, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "true"), [(String, {"c": 1.7}), (Damped, {"c": 1.7, "r": 0.5})], ids=["speed", "and damping"]
)
def test_a_wave_of_another_speed_is_found(stated, true):
    generator = np.random.default_rng(0)
    x, t = generator.uniform(0, 1, (2, 300)) * [[1], [2]]
    rate = true.get("r", 0.0) / 2
    swing = np.sqrt((2 * np.pi * true["c"]) ** 2 - rate**2)
    u = np.sin(2 * np.pi * x) * np.exp(-rate * t) * (np.cos(swing * t) + rate / swing * np.sin(swing * t))
    way = sciml.strategies.NonlinearRegression((sciml.strategies.TimeMarching(),))
    data = {"x": x, "t": t, "u": u + 0.01 * generator.normal(size=300)}
    solution = sciml.fit(stated(), data=data, strategy=way)
    assert solution.success
    found = solution.unknowns
    for name, value in true.items():
        assert abs(found["estimate"][name] - value) < 4 * found["standard_error"][name] < 0.05


def test_no_other_constants_are_looked_at_where_noise_alone_is_left(monkeypatch):
    solved, original = [], OutputError._solved
    monkeypatch.setattr(OutputError, "_solved", lambda own, raw: (solved.append(raw), original(own, raw))[1])
    solution = sciml.fit(Heated(), data=sample(noise=3.0))
    # More than a quarter of the squares is noise.
    assert solution.residuals.loc["data.u", "relative"] > 0.6
    assert 0 < len(solved) < 10


def test_points_of_constants_lie_within_their_bounds():
    one, low, both = (sciml.Unknown(0.1), sciml.Unknown(0.1, lower=0.0), sciml.Unknown(0.1, lower=0.0, upper=10.0))
    values = [[float(_far(each, share)) for share in (0.0, 0.5, 1.0)] for each in (one, low, both)]
    assert np.allclose(values, [[-0.1, 0.1, 0.3], [0.1 * np.exp(-2), 0.1, 0.1 * np.exp(2)], [0.0, 5.0, 10.0]])
    for count, points in ((1, 16), (2, 32), (3, 64), (7, 64)):
        found = _spread(count, 0)
        assert found.shape == (points, count)
        assert ((found > 0) & (found < 1)).all()


def test_fields_that_conditions_do_not_determine_are_left_to_others():
    class Bare(Heated):
        conditions = []

    work = workspace(Bare(), measurements=sciml.Measurements(sample()))
    assert [way.name for way in select(work, "auto", Train(), free=True)] == ["Train"]
    assert [each for each in work.choices if each.startswith("NonlinearRegression: left out, its conditions are too few")]
    way = sciml.strategies.NonlinearRegression((sciml.strategies.Tiles(3, 6),))
    with pytest.raises(sciml.errors.SolverError, match="its conditions are too few or too many"):
        sciml.fit(Bare(), data=sample(), strategy=way)
    # By its name alone it finds ways itself.
    named = sciml.fit(Heated(), data=sample(), strategy="NonlinearRegression")
    assert abs(named.unknowns["estimate"]["k"] - 0.3) < 1e-6
    assert abs(sciml.fit(Heated(), data=sample(), strategy=way).unknowns["estimate"]["k"] - 0.3) < 1e-6


def test_tiles_of_another_solution_are_taken_as_they_are():
    first = sciml.fit(Heated().bind(k=0.5, c=1.0))
    model = first.trial.model
    again = sciml.fit(Heated().bind(k=0.3, c=2.0), strategy=sciml.strategies.Tiles(on=model))
    assert again.trial.model.extra_repr() == model.extra_repr()
    x, y = places(50)
    assert np.abs(again(x=x, y=y)["u"] - heated(x, y, 0.3, 2.0)).max() < 1e-9
    assert np.abs(first(x=x, y=y)["u"] - heated(x, y, 0.5, 1.0)).max() < 1e-9


CHIMNEY = sciml.Box(x=(-1, 2), y=(-1, 1)) - sciml.Disk((0, 0), 0.2)


def plume(x, y):
    """Smoke of a chimney in a wind of 0.6, diffusivity 0.2."""
    return torch.exp(1.5 * x) * torch.special.modified_bessel_k0(1.5 * torch.hypot(x, y))


class Windy(sciml.Problem):
    domain = CHIMNEY
    fields = ["c"]
    wind = sciml.Unknown(0.2)
    conditions = [sciml.Dirichlet(c=plume, on=CHIMNEY.boundary)]

    @sciml.equation
    def transport(self, c, x, y):
        return self.wind * d(c, x) - 0.2 * sciml.laplacian(c, x, y)


def test_fields_are_right_however_the_constants_scatter():
    # What a field lacks beside noise moves no constant, and left its equation at 7 % of its size.
    rng = np.random.default_rng(0)
    x, y = rng.uniform([[-1], [-1]], [[2], [1]], (2, 200))
    outside = np.hypot(x, y) > 0.25
    x, y = x[outside], y[outside]
    values = plume(torch.from_numpy(x), torch.from_numpy(y)).numpy() + 0.1 * rng.normal(size=len(x))
    solution = sciml.fit(Windy(), data={"x": x, "y": y, "c": values})
    assert solution.success, solution.message
    assert abs(solution.unknowns["estimate"]["wind"] - 0.6) < 4 * solution.unknowns["standard_error"]["wind"]


def test_tables_of_other_windows_have_no_derivatives():
    def window(seed, begin, end, outputs):
        model = PiecewisePolynomial([[-1.0, 1.0]], [2], outputs)
        model.coefficients.copy_(torch.randn(model.coefficients.shape, generator=torch.Generator().manual_seed(seed)))
        return Scaled(model, [begin], [end], [0.0] * outputs, [2.0] * outputs)

    def windows(edges, outputs):
        return Windowed(edges, [window(number, *ends, outputs) for number, ends in enumerate(pairwise(edges))], 0)

    raw = {"a": torch.tensor(0.0), "b": torch.tensor(1.0)}
    tangent = TableTangent(windows([0.0, 0.5, 1.0], 1), windows([0.0, 0.5, 1.0], 2), raw)
    inference = Inference(spread=np.diag([0.1, 0.2]), quantile=2.0)
    spread = tangent.spread(inference)
    assert spread.names == ("windows.0.model.coefficients", "windows.1.model.coefficients")
    assert torch.equal(spread.directions[:3, 1], 0.2 * tangent.together.windows[0].model.coefficients[0, 1])
    assert tangent.foretold(raw) is None
    for edges in ([0.0, 0.4, 1.0], [0.0, 0.5, 0.7, 1.0]):
        assert tangent.about(windows(edges, 1), raw).spread(inference) is None


class Flash(sciml.Problem):
    """A laser heats one side of a plate; from the temperature of the other side its diffusivity, in SI units (Parker, 1961)."""

    domain = sciml.Box(x=(0, 0.003), t=(0, 0.4))
    fields = ["T"]
    diffusivity = sciml.Unknown(1e-5, lower=0)
    conditions = [
        sciml.Initial(T=lambda x: 60 / math.pi**0.5 * torch.exp(-((x / 1e-4) ** 2))),
        sciml.Neumann(T=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, T, x, t):
        return d(T, t) - self.diffusivity * d(T, x, x)


@pytest.mark.slow
def test_where_all_at_once_finds_a_wrong_minimum_constants_are_looked_for_by_solving():
    """Without any diffusion the equation holds as well: that the start and the measurements do not is left to others."""
    t, n = np.linspace(0.01, 0.4, 40), np.arange(1, 200)[:, None]
    rear = 1 + 2 * ((-1.0) ** n * np.exp(-((n * np.pi / 0.003) ** 2) * 2.3e-5 * t)).sum(0)
    data = {"t": t, "x": 0.003 + 0 * t, "T": rear + 0.01 * np.random.default_rng(3).normal(size=40)}
    solution = sciml.fit(Flash(), data=data)
    assert solution.success, solution.message
    low, high = solution.unknowns.loc["diffusivity", ["low", "high"]]
    assert low < 2.3e-5 < high


class Epidemic(sciml.Problem):
    domain = sciml.Interval(t=(0, 60))
    fields = ["s", "i"]
    rate, recovery = sciml.Unknown(0.3, lower=0), sciml.Unknown(0.1, lower=0)
    conditions = [sciml.Initial(s=0.99, i=0.01)]

    @sciml.equation
    def infected(self, s, i, t):
        return d(s, t) + self.rate * s * i

    @sciml.equation
    def recovered(self, s, i, t):
        return d(i, t) - self.rate * s * i + self.recovery * i


def test_an_initial_value_problem_is_solved_by_scipy_at_each_value_of_its_constants():
    exact = sciml.baseline(Epidemic().bind(rate=0.5, recovery=0.2))
    t = np.linspace(2, 58, 15)
    noise = 0.002 * np.random.default_rng(0).normal(size=15)
    data = {"t": t, "i": exact(t=t)["i"] + noise}
    solution = sciml.fit(Epidemic(), data=data, strategy="NonlinearRegression")
    assert solution.success, solution.message
    (how,) = [each for each in solution.choices if "nonlinear regression" in each]
    assert "solve_ivp" in how
    assert "nothing else" not in how
    for name, true in (("rate", 0.5), ("recovery", 0.2)):
        estimate, error = solution.unknowns.loc[name, ["estimate", "standard_error"]]
        assert abs(estimate - true) < 4 * error


def test_a_profile_of_fields_that_follow_from_constants_is_their_covariance_and_that_is_said():
    t = np.linspace(2, 58, 15)
    exact = sciml.baseline(Epidemic().bind(rate=0.5, recovery=0.2))
    data = {"t": t, "i": exact(t=t)["i"] + 0.002 * np.random.default_rng(0).normal(size=15)}
    solution = sciml.fit(Epidemic().bind(recovery=0.2), data=data, strategy="NonlinearRegression", intervals="profile")
    low, high = solution.unknowns.loc["rate", ["low", "high"]]
    assert low < solution.unknowns.loc["rate", "estimate"] < high
    assert [each for each in solution.choices if each.startswith("intervals: from the covariance")]

"""Baselines whose equations have no value, whose solutions blow up, and which would never end."""

import math
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import sciml
from sciml import cli, d
from sciml.baselines.integrate import BlowUpError, Budget, IntegrationError
from sciml.errors import BaselineError

ROD = sciml.Box(x=(0, 1), t=(0, 1))
SQUARE = sciml.Box(x=(0, 1), y=(0, 1))
ENDS = sciml.Dirichlet(u=0.0, on=ROD.faces("x"))
WARM = sciml.Initial(u=lambda x: torch.sin(math.pi * x))
METHODS = ["auto", "RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"]


def made(residual, domain, conditions, **members):
    own = {"domain": domain, "fields": ["u"], "conditions": conditions, "balance": sciml.equation(residual)}
    return type("Made", (sciml.Problem,), {**own, **members})()


def hole(where):
    """Not a number between 0.5 and 0.6, zero elsewhere."""
    return torch.where((where > 0.5) & (where < 0.6), torch.sqrt(-where.abs() - 1.0), torch.zeros_like(where))


def decay(residual, end=1.0, **members):
    return made(residual, sciml.Interval(t=(0, end)), [sciml.Initial(u=1.0)], **members)


@pytest.mark.parametrize("method", METHODS)
def test_fault_59_an_equation_without_a_value_is_named(method):
    """LSODA, left alone, calls this a success."""
    problem = decay(lambda self, u, t: d(u, t) + u + hole(t))
    with pytest.raises(BaselineError, match=r"the equation 'balance' is not finite at t = 0\.5\d+, where u = 0\.[56]") as found:
        sciml.baseline(problem, method=method, preflight="off")
    assert not isinstance(found.value, BlowUpError)


def measured():
    generator = np.random.default_rng(0)
    x, t = generator.random((2, 30))
    return {"x": x, "t": t, "u": np.exp(-t) * np.sin(math.pi * x)}


@pytest.mark.parametrize(
    ("problem", "data", "words"),
    [
        (lambda: made(lambda self, u, x, t: d(u, t) - d(u, x, x) + hole(t), ROD, [WARM, ENDS]), None, r"at t = 0\.5"),
        (lambda: made(lambda self, u, x, t: d(u, t) - d(u, x, x) + hole(x), ROD, [WARM, ENDS]), None, r"node x = 0\.5"),
        (
            lambda: made(
                lambda self, u, x, t: d(u, t) - self.k * d(u, x, x) + hole(t), ROD, [WARM, ENDS], k=sciml.Unknown(0.1)
            ),
            measured(),
            r"'balance' is not finite at t = 0\.5",
        ),
        (
            lambda: made(
                lambda self, u, x, y: d(u, x, x) + d(u, y, y) + hole(x),
                SQUARE,
                [sciml.Dirichlet(u=0.0, on=SQUARE.boundary)],
            ),
            None,
            "not finite at the starting values",
        ),
        (
            lambda: decay(lambda self, u, t: d(u, t) + self.k * u + hole(t), k=sciml.Unknown(0.5)),
            {"t": np.linspace(0, 1, 9), "u": np.exp(-np.linspace(0, 1, 9))},
            r"'balance' is not finite at t = 0\.5",
        ),
    ],
    ids=["lines in time", "lines in space", "lines with unknowns", "stationary", "shooting"],
)
def test_fault_59_every_kind_of_baseline_says_so(problem, data, words):
    with pytest.raises(BaselineError, match=words):
        sciml.baseline(problem(), data, time_limit=20, preflight="off")


def slow(seconds, value):
    time.sleep(seconds)
    return value


@pytest.mark.parametrize(
    "problem",
    [
        lambda: decay(lambda self, u, t: d(u, t) - torch.where(u > 0.5, -1e9, 1e9).to(u)),
        lambda: decay(lambda self, u, t: slow(0.02, d(u, t) + 1e3 * (u - torch.cos(300 * t)))),
        lambda: made(lambda self, u, x, t: slow(0.02, d(u, t) - d(u, x, x)), ROD, [WARM, ENDS]),
        lambda: made(
            lambda self, u, x, y: slow(0.1, d(u, x, x) + d(u, y, y) + torch.exp(u)),
            SQUARE,
            [sciml.Dirichlet(u=0.0, on=SQUARE.boundary)],
        ),
    ],
    ids=["chattering", "slow equation", "slow lines", "slow grid"],
)
@pytest.mark.parametrize("method", ["auto"])
def test_fault_59_time_is_bounded_for_every_kind(problem, method):
    with pytest.raises(BaselineError, match=r"time limit of 0\.3 s was reached"):
        sciml.baseline(problem(), method=method, time_limit=0.3)


def test_fault_59_a_crawling_explicit_method_is_stopped():
    problem = decay(lambda self, u, t: d(u, t) + 1e9 * (u - torch.cos(t)))
    with pytest.raises(BaselineError, match=r"time limit of 0\.3 s was reached at t = "):
        sciml.baseline(problem, method="RK45", time_limit=0.3)


def test_fault_59_an_answer_that_is_not_finite_is_no_answer(monkeypatch):
    """Whatever an integrator calls a success, its values are looked at."""
    from sciml.baselines import initial_value as initial

    class Hollow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("knots", torch.zeros(1, dtype=torch.float64))

        def forward(self, points):
            return torch.full_like(points, math.nan)

    monkeypatch.setattr(initial, "trial_from", lambda *_: Hollow())
    with pytest.raises(BaselineError, match="is not finite between its steps; it was thrown away"):
        sciml.baseline(decay(lambda self, u, t: d(u, t) + u))


@pytest.mark.parametrize("method", ["RK45", "BDF", "LSODA"])
def test_fault_60_blow_up_is_told_with_the_time_reached(method):
    with pytest.raises(BlowUpError, match=r"the solution grows to .* at t = (1|0\.999\d*|1\.00\d*): it blows up") as found:
        sciml.baseline(decay(lambda self, u, t: d(u, t) - u**2, end=2.0), method=method, time_limit=60)
    assert found.value.time == pytest.approx(1.0, abs=1e-4)


def test_fault_60_fast_growth_is_no_blow_up():
    grown = sciml.baseline(decay(lambda self, u, t: d(u, t) - 60 * u), tolerance=1e-6)
    assert grown.success
    assert float(grown(t=1.0)["u"]) == pytest.approx(math.exp(60), rel=1e-5)


def test_fault_60_growth_that_saturates_is_no_blow_up():
    """Thirteen orders of magnitude in a thousandth of the interval, at a relative rate that never rises."""
    problem = decay(lambda self, u, t: d(u, t) - 10.0 * u * (1 - u / 1e13), end=150.0)
    assert float(sciml.baseline(problem)(t=150.0)["u"]) == pytest.approx(1e13, rel=1e-6)


def test_fault_60_the_command_line_makes_no_comparison(tmp_path, monkeypatch):
    (tmp_path / "burst.py").write_text(
        "import sciml\n"
        "from sciml import d\n\n\n"
        "class Burst(sciml.Problem):\n"
        "    domain = sciml.Interval(t=(0, 2))\n"
        "    fields = ['u']\n"
        "    conditions = [sciml.Initial(u=1.0)]\n\n"
        "    @sciml.equation\n"
        "    def burst(self, u, t):\n"
        "        return d(u, t) - u**2\n"
    )
    file = str(tmp_path / "burst.py")
    alone = CliRunner().invoke(cli.app, ["baseline", file])
    assert isinstance(alone.exception, BlowUpError)
    solution = sciml.fit(cli.load_problem(file), sciml.MLP(4), solver=sciml.Adam(2))
    assert not solution.success
    monkeypatch.setattr(cli, "run_fit", lambda *given, **options: solution)
    with cli._console.capture() as said:
        CliRunner().invoke(cli.app, ["fit", file])
    told = " ".join(said.get().split())
    assert "no comparison made" in told
    assert "it blows up" in told


def test_a_step_is_not_begun_that_would_end_after_the_time():
    budget = Budget(60.0)
    budget.check(ahead=10.0)
    with pytest.raises(IntegrationError, match="the time limit of 60 s was reached"):
        budget.check(ahead=100.0)


def test_constants_that_data_do_not_tell_apart_are_no_success():
    class Decay(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["u"]
        k = sciml.Unknown(1.0, lower=0)
        q = sciml.Unknown(1.0, lower=0)
        conditions = [sciml.Initial(u=1.0)]

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + self.k * self.q * u

    t = np.linspace(0, 2, 30)
    found = sciml.baseline(Decay(), {"t": t, "u": np.exp(-0.7 * t) + 0.01 * np.random.default_rng(0).normal(size=30)})
    assert not found.success
    assert "the data do not determine k, q" in found.message

"""A forcing that lasts for a short while is seen, whatever the points of a method are."""

import math

import numpy as np
import pytest
import torch

import sciml
from problems import Heat
from sciml import d
from sciml.geometry import draw
from sciml.problem.pulses import pulses, sudden_changes, with_pulses

AT, DECAY = 7.31, 0.3


class Bolus(sciml.Problem):
    """A drug that is given all at once."""

    domain = sciml.Interval(t=(0, 20))
    fields = ["y"]
    width = 0.002
    conditions = [sciml.Initial(y=1.0)]

    @sciml.equation
    def decay(self, y, t):
        dose = torch.exp(-(((t - AT) / self.width) ** 2) / 2) / (self.width * math.sqrt(2 * math.pi))
        return d(y, t) + DECAY * y - dose

    def reference(self, t):
        late = torch.special.ndtr((t - AT) / self.width - DECAY * self.width)
        return torch.exp(-DECAY * t) + torch.exp(-DECAY * (t - AT) + (DECAY * self.width) ** 2 / 2) * late


class Forced(sciml.Problem):
    """Decay with a forcing of whatever shape."""

    domain = sciml.Interval(t=(0, 20))
    fields = ["y"]
    conditions = [sciml.Initial(y=1.0)]

    @sciml.equation
    def decay(self, y, t):
        return d(y, t) + y - self.forcing(t)


class Switched(Forced):
    """A forcing of one and minus one in turn."""

    domain = sciml.Interval(t=(0, 10))
    half = 0.46

    def forcing(self, t):
        return torch.sign(torch.sin(math.pi * t / self.half))

    def reference(self, t):
        number, found, start = torch.floor(t / self.half), torch.zeros_like(t), 1.0
        for each in range(int(number.max()) + 1):
            sign, own = (-1.0) ** each, number == each
            found[own] = sign + (start - sign) * torch.exp(-(t[own] - each * self.half))
            start = sign + (start - sign) * math.exp(-self.half)
        return found


def forced(function):
    return type("Made", (Forced,), {"forcing": staticmethod(function)})()


@pytest.mark.parametrize("width", [0.0004, 0.002, 0.01])
def test_a_pulse_is_seen_and_solved_for(width):
    problem = Bolus(width=width)
    assert np.allclose(pulses(problem)[0], [[AT]], atol=2e-3)
    solution = sciml.fit(problem)
    assert solution.success, solution.message
    assert solution.error()["y"] < 1e-8


@pytest.mark.parametrize("method", ["DOP853", "LSODA", "Radau"])
def test_scipy_does_not_step_over_it(method):
    late = {"late": lambda t: t - 10.0, "half": lambda y: y - 0.5}
    solution = sciml.baseline(Bolus(), method=method, events=late)
    assert solution.error()["y"] < 1e-6
    # It decays to a half, is given the dose, decays to a half again.
    assert list(solution.events["event"]) == ["half", "half", "half", "late"]


def test_short_doses_are_pulses_and_waves_are_none():
    middles, stops = pulses(forced(lambda t: torch.where((t > 5) & (t < 5.02), 100.0, 0.0).to(t)))
    assert len(middles) == 1
    assert stops == [pytest.approx(5, abs=1e-12), middles[0, 0], pytest.approx(5.02, abs=1e-12)]
    assert len(pulses(forced(lambda t: sum(torch.exp(-(((t - 3.1 * k) / 0.01) ** 2)) for k in range(1, 6))))[0]) == 5
    for smooth in (
        lambda t: torch.sin(3 * t),
        lambda t: 0 * t,
        lambda t: torch.cos(10 * t),
        lambda t: torch.sin(300 * t),
        lambda t: torch.tanh((t - 7) / 0.05),
        lambda t: abs(t - 7),
    ):
        middles, stops = pulses(forced(smooth))
        assert len(middles) == len(stops) == 0


def test_steps_end_at_jumps():
    middles, stops = pulses(Switched())
    assert len(middles) == 0
    assert np.allclose(stops, np.arange(1, 22) * Switched.half, rtol=0, atol=1e-12)


def test_a_forcing_that_is_switched_is_solved_to_rounding():
    for solution, most in ((sciml.fit(Switched()), 1e-12), (sciml.baseline(Switched()), 1e-7)):
        assert solution.success, solution.message
        assert solution.error()["y"] < most


class Flash(sciml.Problem):
    """A rod without losses: what heats it is ``heat`` within, and ``flux`` through its left end."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=1.0),
        sciml.Neumann(u=lambda self, t: self.flux(t), on=domain.face(x=0)),
        sciml.Neumann(u=0.0, on=domain.face(x=1)),
    ]

    @sciml.equation
    def balance(self, u, x, t):
        return d(u, t) - d(u, x, x) - self.heat(x, t)

    def heat(self, x, t):
        return 0 * x

    def flux(self, t):
        return 0 * t


def bell(x, width):
    """The density of a normal distribution."""
    return torch.exp(-((x / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))


def flashing(**functions):
    return type("Made", (Flash,), {name: staticmethod(each) for name, each in functions.items()})()


def at_the_wall(width=2e-4):
    return flashing(flux=lambda t: bell(t - 0.37, width))


FLASHES = {
    "everywhere": flashing(heat=lambda x, t: (1 + x) * bell(t - 0.37, 1e-3)),
    "small": flashing(heat=lambda x, t: bell(x - 0.637, 0.004) * bell(t - 0.37, 0.0004)),
    "switched": flashing(heat=lambda x, t: torch.where((abs(x - 0.7) < 0.05) & (abs(t - 0.37) < 0.002), 500.0, 0.0).to(t)),
    "wall": at_the_wall(),
}


@pytest.mark.parametrize("name", FLASHES)
def test_what_flashes_in_time_is_seen(name):
    (middle,) = pulses(FLASHES[name])[0].tolist()
    assert abs(middle[1] - 0.37) < 2e-3
    if name in ("small", "switched"):
        assert abs(middle[0] - {"small": 0.637, "switched": 0.7}[name]) < 0.05


def test_what_does_not_flash_is_none():
    assert pulses(Heat())[0].shape == (0, 2)
    for quiet in (
        flashing(heat=lambda x, t: torch.sin(40 * t) * x),
        flashing(heat=lambda x, t: torch.where(x < t, 1.0, 0.0).to(t)),
        flashing(heat=lambda x, t: bell(x - 0.5 - 0.1 * torch.sin(t), 0.05)),
    ):
        middles, stops = pulses(quiet)
        assert len(middles) == len(stops) == 0
    assert pulses(flashing(flux=lambda t: torch.where(t <= 0.5, 1.0, 0.0).to(t)))[1] == [0.5]


def switched(condition, **changes):
    """A rod whose left end has a condition that changes at 0.437."""
    return type("Made", (Flash,), {"conditions": [sciml.Initial(u=0.0), condition, *Flash.conditions[2:]], **changes})()


def late(t, at=0.437):
    return torch.where(t > at, 1.0, 0.0).to(t)


def test_sudden_changes_are_jumps_of_prescribed_values():
    left = Flash.domain.face(x=0)
    twice = switched(sciml.Dirichlet(u=lambda t: late(t) - late(t, 0.6), on=left))
    found = sudden_changes(twice, pulses(twice)[1])
    assert np.allclose(found, [[0.437] * 2, [0.6] * 2], rtol=0, atol=1e-12)
    # Before and after lie on either side.
    assert all(before <= at < after for (before, after), at in zip(found, (0.437, 0.6), strict=True))
    # A clock that has run for long: the next number is far away.
    domain = sciml.Box(x=(0, 1), t=(2000, 2001))
    hot = sciml.Dirichlet(u=lambda t: late(t, 2000.437), on=domain.face(x=0))
    years = switched(hot, domain=domain)
    ((before, after),) = sudden_changes(years, pulses(years)[1])
    assert before <= 2000.437 < after < 2000.437 + 1e-10
    flux = switched(sciml.Neumann(u=late, on=left))
    slow = switched(sciml.Dirichlet(u=lambda t: torch.tanh((t - 0.437) / 0.01), on=left))
    for quiet in (flux, slow):
        assert not sudden_changes(quiet, [0.437, *pulses(quiet)[1]])


def test_what_does_not_spread_carries_a_jump_on():
    @sciml.equation
    def wave(self, u, x, t):
        return d(u, t, t) - d(u, x, x)

    string = switched(sciml.Dirichlet(u=late, on=Flash.domain.face(x=0)), balance=wave)
    stops = pulses(string)[1]
    assert len(stops) == 1
    assert not sudden_changes(string, stops)


def mean(solution, time):
    x = np.linspace(0, 1, 2001)
    return np.trapezoid(solution(x=x, t=np.full_like(x, time))["u"], x)


@pytest.mark.parametrize("name", ["everywhere", "small", "wall"])
def test_the_heat_of_a_flash_is_kept(name):
    solution = sciml.fit(FLASHES[name])
    heat = {"everywhere": 1.5, "small": 1.0, "wall": 1.0}[name]
    assert solution.success, solution.message
    assert abs(mean(solution, 0.3) - 1) < 1e-6
    assert abs(mean(solution, 0.9) - 1 - heat) < 1e-5


def test_grids_do_not_step_over_a_flash():
    assert abs(mean(sciml.baseline(at_the_wall()), 0.9) - 2) < 1e-4


def test_each_side_has_points_at_a_flash():
    problem = at_the_wall()
    (wall,) = [term.place for term in problem.terms() if term.name == "neumann"]
    sample = draw(wall, problem.domain, 32, np.random.default_rng(0))
    more = with_pulses(problem, wall, sample, pulses(problem)[0])
    assert sum(more.faces) == len(more.points[0]) == len(more.normals) == len(sample.points[0]) + 16
    assert abs(more.points[0][:16, 1] - 0.37).max() < 2e-3
    assert bool((more.normals[:16] == sample.normals[:1]).all())

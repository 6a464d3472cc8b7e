"""A forcing that lasts for a short while is seen, whatever the points of a method are."""

import math

import numpy as np
import pytest
import torch

import sciml
from problems import Heat
from sciml import d
from sciml.problem.pulses import pulses

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


def forced(function):
    return type("Made", (Forced,), {"forcing": staticmethod(function)})()


@pytest.mark.parametrize("width", [0.0004, 0.002, 0.01])
def test_a_pulse_is_seen_and_solved_for(width):
    problem = Bolus(width=width)
    assert np.allclose(pulses(problem), [[AT]], atol=2e-3)
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


def test_short_doses_are_pulses_and_steps_and_waves_are_none():
    assert len(pulses(forced(lambda t: torch.where((t > 5) & (t < 5.02), 100.0, 0.0).to(t)))) == 1
    assert len(pulses(forced(lambda t: sum(torch.exp(-(((t - 3.1 * k) / 0.01) ** 2)) for k in range(1, 6))))) == 5
    for smooth in (
        lambda t: torch.where(t > 5, 1.0, 0.0).to(t),
        lambda t: torch.sin(3 * t),
        lambda t: 0 * t,
        lambda t: torch.cos(10 * t),
    ):
        assert len(pulses(forced(smooth))) == 0


def test_problems_of_several_coordinates_have_none():
    assert pulses(Heat()).shape == (0, 2)

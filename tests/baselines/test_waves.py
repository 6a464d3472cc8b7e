"""Wave numbers of linear problems in one coordinate, and trial functions that resolve them."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.baselines.waves import Waves, waves
from sciml.models import GridFunction, PiecewisePolynomial, Scaled
from sciml.models.bases import Chebyshev


class Oscillating(sciml.Problem):
    """Airy's equation, turned so that waves pass through all of it."""

    domain = sciml.Interval(x=(0, 5))
    fields = ["y"]
    small, damping = 1e-4, 0.0
    conditions = [sciml.Dirichlet(y=1.0, on=domain.face(x=0)), sciml.Dirichlet(y=0.5, on=domain.face(x=5))]

    @sciml.equation
    def airy(self, y, x):
        return self.small * d(y, x, x) + self.damping * d(y, x) + (1 + x * x) * y


class Layers(Oscillating):
    """Exponentials, and no waves."""

    @sciml.equation
    def airy(self, y, x):
        return self.small * d(y, x, x) - y


class Coupled(sciml.Problem):
    """The same waves as a system of the first order."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["p", "q"]
    conditions = [sciml.Dirichlet(p=1.0, on=domain.face(x=0)), sciml.Dirichlet(p=0.3, on=domain.face(x=1))]

    @sciml.equation
    def pressure(self, p, q, x):
        return d(p, x) - 70 * q

    @sciml.equation
    def flux(self, p, q, x):
        return d(q, x) + 70 * p


class Algebraic(sciml.Problem):
    """It has no derivative of one of its fields, and no wave number that is known."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.face(x=0))]

    @sciml.equation
    def slope(self, u, v, x):
        return d(u, x) - v

    @sciml.equation
    def law(self, u, v, x):
        return v + u - 1


@pytest.mark.parametrize(
    ("problem", "number"),
    [
        (Oscillating(), 100 * math.sqrt(26)),
        (Oscillating(small=1.0), math.sqrt(26)),
        # It is gone long before the end.
        (Oscillating(damping=0.01), 0.0),
        (Layers(), 0.0),
        (Coupled(), 70.0),
        (Algebraic(), 0.0),
    ],
)
def test_the_shortest_waves_that_pass(problem, number):
    assert waves(problem).largest == pytest.approx(number, rel=1e-2)


def told(number, model, scaled=True):
    """What is said of a model of [0, 4] beside waves of a number everywhere."""
    found = Waves(np.linspace(0.005, 3.995, 400), np.full(400, float(number)), 4.0)
    return found.unresolved(Scaled(model, [0.0], [4.0], [0.0], [1.0]).double() if scaled else model)


def test_what_resolves_waves():
    built = sciml.Spectral(40, inputs=1, outputs=1)
    assert not told(20.0, built)
    assert "waves as short as 0.3 near" in told(21.0, built)
    periodic = sciml.Spectral(20, periodic=[0], inputs=1, outputs=1)
    assert not told(10 * math.pi, periodic)
    assert told(10.1 * math.pi, periodic)
    # Two units, as long as the domain's half, is the widest of the pieces.
    pieces = PiecewisePolynomial([[-1.0, 0.0, 0.5, 0.9, 1.0]], [12], 1)
    assert not told(12.0, pieces)
    assert "near 0.005, and the trial function resolves none shorter than 0.52 there" in told(12.1, pieces)
    nodes = GridFunction([Chebyshev(-1.0, 1.0, 41)], torch.zeros(41, 1, dtype=torch.float64))
    assert not told(19.0, nodes)
    assert told(40.0, nodes)
    assert not told(0.0, built)
    assert not told(1e9, torch.nn.Linear(1, 1), scaled=False)


def test_waves_of_a_part_are_resolved_there():
    pieces = Scaled(PiecewisePolynomial([[-1.0, 0.0, 0.5, 0.9, 1.0]], [12], 1), [0.0], [4.0], [0.0], [1.0]).double()
    places = np.linspace(0.005, 3.995, 400)
    for begin, resolved in ((3.85, True), (2.5, False)):
        numbers = np.where((places > begin) & (places < begin + 0.1), 100.0, 0.0)
        assert (not Waves(places, numbers, 4.0).unresolved(pieces)) == resolved
    # Less than half a wave is no wave.
    assert not Waves(places, np.where(places < 0.01, 100.0, 0.0), 4.0).unresolved(pieces)

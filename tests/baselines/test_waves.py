"""Wave numbers of linear problems in one coordinate, and trial functions that resolve them."""

import math

import pytest
import torch

import sciml
from sciml import d
from sciml.baselines.waves import unresolved, wave_number
from sciml.models import PiecewisePolynomial, Scaled


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
    assert wave_number(problem) == pytest.approx(number, rel=1e-2)


def test_what_resolves_waves():
    wide = lambda model: Scaled(model, [0.0], [4.0], [0.0], [1.0]).double()  # noqa: E731
    built = sciml.Spectral(40, inputs=1, outputs=1)
    assert not unresolved(20.0, wide(built))
    assert "waves as short as 0.3" in unresolved(21.0, wide(built))
    periodic = sciml.Spectral(20, periodic=[0], inputs=1, outputs=1)
    assert not unresolved(10 * math.pi, wide(periodic))
    assert unresolved(10.1 * math.pi, wide(periodic))
    # The widest of the pieces counts: two units, as long as the domain's half.
    pieces = PiecewisePolynomial([[-1.0, 0.0, 0.5, 0.9, 1.0]], [12], 1)
    assert not unresolved(12.0, wide(pieces))
    assert unresolved(12.1, wide(pieces))
    assert not unresolved(0.0, wide(built))
    assert not unresolved(1e9, torch.nn.Linear(1, 1))

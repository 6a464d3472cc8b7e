"""Differential-algebraic equations: errors of fields that depend on rates of what an equation misses."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import sciml
from sciml import d
from sciml.diagnostics.differentiation_index import differentiations


class Forced(sciml.Problem):
    """A mass that is led along a path: the velocity, and the force that this takes."""

    size, rate = 0.0, 100.0
    domain = sciml.Interval(t=(0, 3))
    fields = ["x", "v", "force"]

    @sciml.equation
    def path(self, x, t):
        return x - torch.sin(t) - self.size * torch.sin(self.rate * t)

    @sciml.equation
    def velocity(self, x, v, t):
        return d(x, t) - v

    @sciml.equation
    def newton(self, v, force, t):
        return d(v, t) - force


def led(size, rate=100.0):
    conditions = [sciml.Initial(x=0.0, v=1.0 + size * rate)]
    return type("Led", (Forced,), {"size": size, "rate": rate, "conditions": conditions})()


class Pendulum(sciml.Problem):
    """A mass on a rod of length one, the force in the rod among its fields."""

    domain = sciml.Interval(t=(0, 3))
    fields = ["x", "y", "force"]
    begin = (float(np.sin(1.0)), -float(np.cos(1.0)))
    conditions = [sciml.Initial(x=begin[0], y=begin[1], x_t=0.0, y_t=0.0)]

    @sciml.equation
    def along(self, x, force, t):
        return d(x, t, t) + force * x

    @sciml.equation
    def up(self, y, force, t):
        return d(y, t, t) + force * y + 9.81

    @sciml.equation
    def rod(self, x, y, t):
        return x**2 + y**2 - 1


class Resistor(sciml.Problem):
    """A field without a rate that an equation gives at once, and one that is given twice over its rate."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u", "i"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def charge(self, u, i, t):
        return d(u, t) + i

    @sciml.equation
    def ohm(self, u, i, t):
        return u - 2 * i


def test_how_often_equations_are_differentiated():
    assert differentiations(led(0.0)).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    assert differentiations(Pendulum()).tolist() == [[-2, -2, 0], [-2, -2, 0], [0, 0, 2]]
    assert differentiations(Resistor()).max() == 0


@pytest.mark.parametrize(("size", "rate"), [(1e-6, 100.0), (1e-7, 300.0)])
def test_what_is_small_in_a_position_and_large_in_a_force_is_told(size, rate):
    problem = led(size, rate)
    found = sciml.fit(problem, strategy=sciml.strategies.Spectral(24))
    t = np.linspace(0, 3, 3001)
    exact = -np.sin(t) - size * rate**2 * np.sin(rate * t)
    error = np.linalg.norm(found(t=t)["force"] - exact) / np.linalg.norm(exact)
    assert error > 5e-3
    assert not found.success
    assert error / 3 < found.estimated_error["force"] < 3 * error
    assert "the estimated relative error of 'force' is" in found.message


def test_what_is_led_smoothly_is_a_success_and_its_error_is_told():
    found = sciml.fit(led(0.0))
    assert found.success
    assert found.estimated_error["force"] < 1e-9


def test_the_force_in_a_rod_has_an_error():
    found = sciml.fit(Pendulum())
    path = solve_ivp(lambda t, y: [y[1], -9.81 * np.sin(y[0])], (0, 3), [1.0, 0.0], rtol=1e-12, atol=1e-13, dense_output=True)
    t = np.linspace(0, 3, 2001)
    angle, rate = path.sol(t)
    exact = rate**2 + 9.81 * np.cos(angle)
    error = np.linalg.norm(found(t=t)["force"] - exact) / np.linalg.norm(exact)
    assert found.success
    assert error / 10 < found.estimated_error["force"] < 30 * error


def test_a_mass_at_rest_is_no_rounding():
    class Resting(Pendulum):
        conditions = [sciml.Initial(x=0.0, y=-1.0, x_t=0.0, y_t=0.0)]

    found = sciml.fit(Resting())
    assert found.success
    assert found.estimated_error.get("force", 0.0) < 1e-6
    assert float(found(t=2.0)["force"]) == pytest.approx(9.81, rel=1e-6)


def test_rates_that_are_rounding_are_told_as_that():
    class FirstOrder(sciml.Problem):
        """The same pendulum with its velocities, which what is missing of the rod's length leaves at rounding."""

        domain = sciml.Interval(t=(0, 2))
        fields = ["x", "y", "u", "v", "force"]
        conditions = [sciml.Initial(x=1.0, y=0.0, u=0.0, v=0.0)]

        @sciml.equation
        def right(self, x, u, t):
            return d(x, t) - u

        @sciml.equation
        def up(self, y, v, t):
            return d(y, t) - v

        @sciml.equation
        def along(self, x, u, force, t):
            return d(u, t) + force * x

        @sciml.equation
        def against(self, y, v, force, t):
            return d(v, t) + force * y + 1

        @sciml.equation
        def rod(self, x, y, t):
            return x**2 + y**2 - 1

    found = sciml.fit(FirstOrder())
    path = solve_ivp(lambda t, y: [y[1], -np.cos(y[0])], (0, 2), [0.0, 0.0], rtol=1e-13, atol=1e-14, dense_output=True)
    t = np.linspace(0, 2, 501)
    angle, rate = path.sol(t)
    exact = {"u": -np.sin(angle) * rate, "v": np.cos(angle) * rate, "force": rate**2 - np.sin(angle)}
    assert found.success
    for name, values in exact.items():
        error = np.linalg.norm(found(t=t)[name] - values) / np.linalg.norm(values)
        assert max(error / 10, 1e-14) < found.estimated_error[name] < 1e-6

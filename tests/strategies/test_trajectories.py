"""Unknown constants of ordinary differential equations, against the fit by shooting from the truth."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import sciml
from sciml import d
from sciml.errors import ModelError
from sciml.models import Spline


class FitzHughNagumo(sciml.Problem):
    """Neither start is known."""

    domain = sciml.Interval(t=(0, 20))
    fields = ["v", "r"]
    a = sciml.Unknown(0.5)
    b = sciml.Unknown(0.5)
    c = sciml.Unknown(2.0, lower=0)

    @sciml.equation
    def voltage(self, v, r, t):
        return d(v, t) - self.c * (v - v**3 / 3 + r)

    @sciml.equation
    def recovery(self, v, r, t):
        return d(r, t) + (v - self.a + self.b * r) / self.c


def nagumo(a, b, c, start, t):
    rate = lambda _, y: [c * (y[0] - y[0] ** 3 / 3 + y[1]), -(y[0] - a + b * y[1]) / c]  # noqa: E731
    return solve_ivp(rate, (0, 20), start, rtol=1e-9, atol=1e-11, t_eval=t).y


@pytest.mark.parametrize("both", [True, False], ids=["both", "voltage alone"])
def test_spikes_of_a_neuron_give_the_constants_of_shooting_from_the_truth(both):
    """Its likelihood has many maxima (Ramsay and others 2007): shooting from other constants ends in one of them."""
    t, generator = np.linspace(0, 20, 201), np.random.default_rng(1)
    noisy = nagumo(0.2, 0.2, 3.0, (-1, 1), t) + 0.1 * generator.normal(size=(2, 201))
    count = 2 if both else 1
    shot = least_squares(
        lambda p: (nagumo(*p[:3], p[3:], t) - noisy)[:count].ravel(), [0.2, 0.2, 3.0, -1.0, 1.0], x_scale="jac"
    )
    error = 0.1 * np.sqrt(np.diag(np.linalg.inv(shot.jac.T @ shot.jac)))
    data = {"t": t, "v": noisy[0]} | ({"r": noisy[1]} if both else {})
    solution = sciml.fit(FitzHughNagumo(), data=data, noise=0.1)
    assert solution.success, solution.message
    # A tenth of the measurements is held out, which alone moves a constant by a third of its standard error.
    assert (abs(solution.unknowns["estimate"] - shot.x[:3]) < 0.7 * error[:3]).all()
    assert np.allclose(solution.unknowns["standard_error"], error[:3], rtol=0.15)
    assert isinstance(solution.model, Spline)
    assert (solution.standard_error(t=t)["v"] < 0.1).all()


def test_sixty_periods_are_followed_from_a_poor_guess():
    class Oscillator(sciml.Problem):
        domain = sciml.Interval(t=(0, 150))
        fields = ["u"]
        w = sciml.Unknown(1.0, lower=0)
        c = sciml.Unknown(0.0)

        @sciml.equation
        def motion(self, u, t):
            return d(u, t, t) + self.c * d(u, t) + self.w**2 * u

    generator = np.random.default_rng(2)
    t = np.sort(generator.uniform(0, 150, 600))
    u = np.exp(-0.005 * t) * np.cos(np.sqrt(2.5**2 - 0.005**2) * t) + 0.05 * generator.normal(size=600)
    solution = sciml.fit(Oscillator(), data={"t": t, "u": u})
    assert solution.success, solution.message
    found, error = solution.unknowns["estimate"], solution.unknowns["standard_error"]
    assert (abs(found - [2.5, 0.01]) < 4 * error).all()
    assert (error < [3e-4, 6e-4]).all()


def test_equations_of_parts_have_constants_of_their_own():
    class Two(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["u"]
        k = sciml.Unknown(0.5, lower=0)
        m = sciml.Unknown(0.5, lower=0)
        conditions = [sciml.Initial(u=1.0)]

        @sciml.equation(on=sciml.Interval(t=(0, 0.9)))
        def early(self, u, t):
            return d(u, t) + self.k * u

        @sciml.equation(on=sciml.Interval(t=(0.9, 2)))
        def late(self, u, t):
            return d(u, t) + self.m * u

    t = np.linspace(0, 2, 60)
    u = np.where(t < 0.9, np.exp(-2 * t), np.exp(-1.8 - 0.3 * (t - 0.9))) + 0.005 * np.random.default_rng(2).normal(size=60)
    solution = sciml.fit(Two(), data={"t": t, "u": u})
    assert solution.success, solution.message
    assert (abs(solution.unknowns["estimate"] - [2.0, 0.3]) < 4 * solution.unknowns["standard_error"]).all()
    assert (solution.unknowns["standard_error"] < 0.02).all()


def test_a_constant_beside_an_integral_is_found_by_solving():
    class Whole(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["u"]
        k = sciml.Unknown(0.5, lower=0)
        conditions = [sciml.Integral(u=(1 - np.exp(-3.0)) / 1.5)]

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + self.k * u

    t = np.linspace(0, 2, 30)
    data = {"t": t, "u": np.exp(-1.5 * t) + 0.01 * np.random.default_rng(2).normal(size=30)}
    solution = sciml.fit(Whole(), data=data)
    assert solution.success, solution.message
    k = solution.unknowns.loc["k"]
    assert abs(k["estimate"] - 1.5) < 4 * k["standard_error"] < 0.1


def test_a_spline_is_what_its_basis_is_and_knows_its_derivatives():
    model = Spline([-1.0, -0.2, 1.0], degree=5, smooth=2, inputs=1, outputs=1).double()
    model.weight.data.copy_(torch.linspace(-1, 1, model.weight.numel(), dtype=torch.float64)[None])
    points = torch.tensor([[-0.6], [-0.2 - 1e-9], [-0.2 + 1e-9], [0.5]], dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(model(points).sum(), points)[0]
    step = 1e-6
    apart = (model(points + step) - model(points - step)) / (2 * step)
    assert torch.allclose(slope, apart, atol=1e-4)
    assert abs(float(slope[1] - slope[2])) < 1e-6
    again = Spline.from_config(**model.config)
    assert again.weight.shape == model.weight.shape
    for wrong in (([0.0], 5, 2), ([1.0, 0.0], 5, 2), ([0.0, 1.0], 2, 2)):
        with pytest.raises(ModelError, match="increasing breaks"):
            Spline(*wrong)
    with pytest.raises(ModelError, match="one coordinate"):
        Spline([0.0, 1.0], 3, 1, inputs=2, outputs=1)


def test_errors_in_per_cent_of_large_numbers():
    """The activity of nuclei that decay to others which decay, in becquerels: noise without a unit knows nothing of these."""
    first, second, count = 1e-6, 4e-6, 3e20

    class Chain(sciml.Problem):
        domain = sciml.Interval(t=(0, 3e6))
        fields = ["N", "M"]
        k, q = sciml.Unknown(5e-7, lower=0), sciml.Unknown(1e-5, lower=0)
        begun = sciml.Unknown(1e20, lower=0)
        conditions = [sciml.Initial(N=lambda self: self.begun, M=0.0)]

        @sciml.equation
        def parents(self, N, t):
            return d(N, t) + self.k * N

        @sciml.equation
        def children(self, N, M, t):
            return d(M, t) - self.k * N + self.q * M

    t = np.linspace(0, 3e6, 60)
    parents = count * np.exp(-first * t)
    children = count * first / (second - first) * (np.exp(-first * t) - np.exp(-second * t))
    activity = (first * parents + second * children) * np.exp(0.02 * np.random.default_rng(1).normal(size=60))
    for noise in (sciml.LogNormal(), sciml.LogNormal(0.02)):
        solution = sciml.fit(
            Chain(), data={"t": t, "A": activity}, observe={"A": lambda self, N, M: self.k * N + self.q * M}, noise=noise
        )
        found = solution.unknowns
        assert solution.success, solution.message
        truth = np.array([first, second, count])
        assert (np.abs(found["estimate"] - truth) < 4 * found["standard_error"]).all()
        assert (found["standard_error"] < 0.2 * truth).all()

"""Programs of NumPy calls in place of functions of tensors: the same values, or none where a trace is not the function."""

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.baselines import first_order_system
from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.numpy_program import numpy_program

GENERATOR = np.random.default_rng(5)
COLUMNS = [GENERATOR.uniform(0.2, 0.9, 4) for _ in range(3)]
OTHERS = [[GENERATOR.uniform(0.2, 0.9, 7) for _ in range(3)] for _ in range(3)]


def program_of(function):
    return numpy_program(lambda columns: [function(*columns)], COLUMNS, OTHERS)


ELEMENTWISE = [
    lambda x, y, z: x + 2 * y - z / 3 + (1 - x) * y**2 / (2 + z) - 2**x + x**-1.5 + (x + y) ** z - -x,
    lambda x, y, z: torch.add(x, y, alpha=2) + torch.sub(x, z, alpha=3) + torch.rsub(x, y),
    lambda x, y, z: torch.sin(x) * torch.cos(y) + torch.tan(z) + torch.exp(-x) + torch.expm1(y) + torch.log(z) + torch.log1p(x),
    lambda x, y, z: torch.tanh(x) + torch.sinh(y) * torch.cosh(z) + torch.sqrt(x) + x.square() + x.reciprocal() + abs(y - z),
    lambda x, y, z: torch.asin(x) + torch.acos(y) + torch.atan(z) + torch.atan2(x, y) + torch.asinh(x) + torch.atanh(y),
    lambda x, y, z: torch.where(x < y, z, 0.5) + torch.where((x > 0.5) & (y < 0.6), 1.0, x) + (x >= z).to(x) + (x < z) * y,
    lambda x, y, z: torch.clamp(x, 0.3, 0.6) + y.clamp(min=0.5) + z.clamp(max=0.4) + torch.relu(x - y) + torch.floor(5 * x) % 2,
    lambda x, y, z: torch.maximum(x, y) + torch.minimum(y, z) + torch.sign(x - z) + torch.heaviside(x - y, x.new_tensor(0.5)),
    lambda x, y, z: torch.sigmoid(x) + torch.erf(y) + torch.sinc(z) + torch.hypot(x, y),
    lambda x, y, z: torch.zeros_like(x) + torch.ones_like(y) * z + torch.full_like(x, 3.0) * torch.tensor(2.0) + x.detach(),
    lambda x, y, z: torch.full((len(x),), 0.25, dtype=x.dtype),
    lambda x, y, z: ((x > 0.3) + (y > 0.3)).to(x) + ((x > 0.3) * (z > 0.5)).double() + (~(y < 0.5)).to(x),
    lambda x, y, z: y,
]


@pytest.mark.parametrize("function", ELEMENTWISE, ids=range(len(ELEMENTWISE)))
def test_elementwise_operations_are_repeated_on_arrays_of_any_length(function):
    program = program_of(function)
    assert program is not None
    columns = [np.random.default_rng(8).uniform(0.2, 0.9, 11) for _ in range(3)]
    # Beyond what they are made for, too: an integrator may leave it, and what is infinite or not a number stays so.
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 30.0])
    for each in [columns, [odd, odd[::-1].copy(), np.roll(odd, 2)]]:
        wanted = function(*map(torch.from_numpy, each))
        np.testing.assert_allclose(program(each)[0], wanted.numpy(), rtol=1e-13)


def from_a_table(x, y, z):
    """A function that PyTorch lacks, as messages tell to call it: a trace would keep the values of its own points."""
    return y + torch.from_numpy(np.interp(x.detach().numpy(), [0.0, 1.0], [2.0, 5.0]))


def in_place(x, y, z):
    values = y.clone()
    values[x > 0.5] = 0.0
    return values


REFUSED = {
    "columns made elsewhere": from_a_table,
    "a decision on values": lambda x, y, z: y if float(x[0]) > 0.5 else z,
    "values that leave as a list": lambda x, y, z: y * x.tolist()[0],
    "in place": in_place,
    "added in place": lambda x, y, z: y.clone().add_(x),
    "a mean": lambda x, y, z: y - x.mean(),
    "single precision": lambda x, y, z: (y.float() * x.float()).to(y),
    "rounded division": lambda x, y, z: torch.div(y, x, rounding_mode="floor"),
    "an operation that is not known": lambda x, y, z: torch.special.bessel_j0(y),
    "other numbers of the same bits": lambda x, y, z: y + (x.view(torch.int64) % 2).to(x),
    "an order of points": lambda x, y, z: y.flip(0),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_what_is_not_elementwise_is_no_program(function):
    assert program_of(function) is None


class Spring(sciml.Problem):
    """Two fields, one of second order in conservation form, driven by a forcing that jumps."""

    domain = sciml.Interval(t=(0.0, 3.0))
    fields = ["u", "w"]
    conditions = [sciml.Initial(u=1.0, u_t=0.0, w=0.5)]
    stiffness = 4.0

    @sciml.equation
    def motion(self, u, w, t):
        return d(d(u, t), t) + self.stiffness * torch.sin(u) - torch.where(t < 1.0, w, 0.0)

    @sciml.equation
    def decay(self, u, w, t):
        return (1 + u**2) * d(w, t) + torch.exp(-u) * w


class Driven(sciml.Problem):
    """A forcing that is no function of PyTorch's."""

    domain = sciml.Interval(t=(0.0, 3.0))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + u - torch.from_numpy(np.interp(t.detach().numpy(), [0.0, 1.5, 3.0], [0.0, 1.0, 0.0]))


@pytest.mark.parametrize(("problem", "traced"), [(Spring, True), (Driven, False)])
def test_rates_stay_the_same_once_they_are_asked_for_often(problem, traced, monkeypatch):
    monkeypatch.setattr(first_order_system, "_TRACED", 4)
    system = FirstOrderSystem(problem())
    t, y = np.linspace(0.1, 2.9, 6), np.random.default_rng(1).uniform(0.5, 1.5, (len(system.state), 6))
    before = system.rate(t, y, {})
    for _ in range(4):
        after = system.rate(t, y, {})
    assert (system._programs[()] is not None) == traced
    np.testing.assert_allclose(after, before, rtol=1e-13)
    np.testing.assert_allclose(system.rate(t[:1], y[:, :1], {}), before[:, :1], rtol=1e-13)


def test_constants_are_arguments_of_a_program(monkeypatch):
    class Unknown(Spring):
        stiffness = sciml.Unknown(4.0)

    monkeypatch.setattr(first_order_system, "_TRACED", 3)
    system = FirstOrderSystem(Unknown())
    t, y = np.array([0.5]), np.array([[1.0], [0.2], [0.3]])
    for stiffness in (4.0, 4.0, 4.0, 5.0, 6.0):
        rate = system.rate(t, y, {"stiffness": torch.tensor(stiffness, dtype=torch.float64)})
        np.testing.assert_allclose(rate[1], -stiffness * np.sin(1.0) + 0.3, rtol=1e-14)
    assert system._programs["stiffness",] is not None
    # A column of them, as where states with different constants are integrated at once.
    several = system.rate(t.repeat(2), y.repeat(2, axis=1), {"stiffness": torch.tensor([1.0, 2.0], dtype=torch.float64)})
    np.testing.assert_allclose(several[1], -np.array([1.0, 2.0]) * np.sin(1.0) + 0.3, rtol=1e-14)

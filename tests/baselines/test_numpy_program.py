"""Programs of NumPy calls in place of functions of tensors: the same values, or none where a trace is not the function."""

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.baselines import first_order_system, numpy_program as programs
from sciml.baselines.first_order_system import FirstOrderSystem
from sciml.baselines.numpy_program import numpy_program

GENERATOR = np.random.default_rng(5)
COLUMNS = [GENERATOR.uniform(0.2, 0.9, 4) for _ in range(3)]


def program_of(function, columns=COLUMNS):
    return numpy_program(lambda columns: [function(*columns)], columns)


ELEMENTWISE = [
    lambda x, y, z: x + 2 * y - z / 3 + (1 - x) * y**2 / (2 + z) - 2**x + x**-1.5 + (x + y) ** z - -x,
    lambda x, y, z: torch.add(x, y, alpha=2) + torch.sub(x, z, alpha=3) + torch.rsub(x, y),
    lambda x, y, z: torch.where(x < y, z, 0.5) + torch.where((x > 0.5) & (y < 0.6), 1.0, x) + (x >= z).to(x) + (x < z) * y,
    lambda x, y, z: torch.where(x < y, 1.0, 0.1) * z + (x > 0.5).float() * y + torch.where(y > 0.4, x.new_tensor(0.7), 2.0),
    lambda x, y, z: torch.clamp(x, 0.3, 0.6) + y.clamp(min=0.5) + z.clamp(max=0.4) + x.clamp(y, z) + x.clamp(0.6, 0.3),
    lambda x, y, z: torch.zeros_like(x) + torch.ones_like(y) * z + torch.full_like(x, 3.0) * torch.tensor(2.0) + x.detach(),
    lambda x, y, z: torch.full((len(x),), 0.25, dtype=x.dtype),
    lambda x, y, z: ((x > 0.3) + (y > 0.3)).to(x) + ((x > 0.3) * (z > 0.5)).double() + (~(y < 0.5)).to(x),
    lambda x, y, z: (torch.zeros_like(x, dtype=torch.bool) | (y > 0.3) | torch.tensor(False)).to(x) * z,
    lambda x, y, z: (torch.ones_like(x, dtype=torch.bool) + (y > 0.3) + (z > 0.3)).to(x),
    lambda x, y, z: y,
]


@pytest.mark.parametrize("function", ELEMENTWISE, ids=range(len(ELEMENTWISE)))
def test_elementwise_operations_are_repeated_on_arrays_of_any_length(function):
    program = program_of(function)
    assert program is not None
    columns = [np.random.default_rng(8).uniform(0.2, 0.9, 11) for _ in range(3)]
    np.testing.assert_allclose(program(columns)[0], function(*map(torch.from_numpy, columns)).numpy(), rtol=1e-13)


ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0, -2.5, 0.5, 1.5, 2.5, 30.0, 1e200])
OF_BOOLS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}


@pytest.mark.parametrize("name", sorted(set(programs._OPERATIONS) - {"_to_copy", "where", "clamp", "rsub"}))
def test_every_operation_is_pytorchs_alone_with_values_that_no_state_should_have(name):
    operation = getattr(torch, name)

    def function(x, y):
        some = (x > 0, y > 0) if name in OF_BOOLS else (x, y)
        try:
            found = operation(*some)
        except TypeError:
            found = operation(some[0])
        return found.to(x)

    left, right = (each.flatten() for each in np.meshgrid(ODD, ODD))
    program = program_of(function, [left[:4], right[:4]])
    assert program is not None
    with np.errstate(all="ignore"):
        found, wanted = program([left, right])[0], function(torch.from_numpy(left), torch.from_numpy(right)).numpy()
    # What is lost where arguments are as large as that is not told by either.
    usual = np.abs(left) < 1e100 if name == "remainder" else np.full(len(left), True)
    np.testing.assert_allclose(found[usual], wanted[usual], rtol=1e-13)


def from_a_table(x, y, z):
    """A function that PyTorch lacks, as messages tell to call it: a trace would keep the values of its own points."""
    return y + torch.from_numpy(np.interp(x.detach().numpy(), [0.0, 1.0], [2.0, 5.0]))


def written_into(x, y, z):
    values = torch.zeros_like(y)
    values.numpy()[:] = np.where(x.detach().numpy() > 2.0, 1.0, 0.0)
    return y + values


def decided_by_a_list(x, y, z):
    return y + 1.0 if any(each > 2.0 for each in x.tolist()) else y


def in_place(x, y, z):
    values = y.clone()
    values[x > 0.5] = 0.0
    return values


REFUSED = {
    "columns made elsewhere": from_a_table,
    "values written by NumPy": written_into,
    "a decision on values": lambda x, y, z: y if float(x[0]) > 0.5 else z,
    "a decision on a list": decided_by_a_list,
    "values that leave as a list": lambda x, y, z: y * x.tolist()[0],
    "in place": in_place,
    "added in place": lambda x, y, z: y.clone().add_(x),
    "a mean": lambda x, y, z: y - x.mean(),
    "single precision": lambda x, y, z: (y.float() * x.float()).to(y),
    "a cast to bool": lambda x, y, z: torch.relu(x - 2.0).bool().to(y),
    "a complex number": lambda x, y, z: torch.tensor(3 + 4j).abs() * y,
    "rounded division": lambda x, y, z: torch.div(y, x, rounding_mode="floor"),
    "an operation that is not known": lambda x, y, z: torch.special.bessel_j0(y),
    "other numbers of the same bits": lambda x, y, z: y + (x.view(torch.int64) % 2).to(x),
    "an order of points": lambda x, y, z: y.flip(0),
    "an operation that cannot be traced": lambda x, y, z: torch.cond(torch.tensor(True), torch.sin, torch.cos, (y,)),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_what_is_not_elementwise_is_no_program(function):
    assert program_of(function) is None


def test_a_number_that_leaves_as_an_array_is_no_argument():
    constant = [*COLUMNS, np.array(1.0)]
    assert program_of(lambda x, y, z, k: float(max(np.asarray(k), 3.0)) * y, constant) is None
    assert program_of(lambda x, y, z, k: (1 + float(k.numpy())) * y, constant) is None
    assert program_of(lambda x, y, z, k: k * y, constant) is not None


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
    assert system.confirmed(t, y, {})
    assert (system._programs[()] is not None) == traced


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


class Kicked(sciml.Problem):
    """A force for some of the time."""

    domain = sciml.Interval(t=(0.0, 3.0))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + u - torch.where((t > 1.5) & (t < 2.0), 5.0, 0.0)


def test_a_program_that_is_not_the_equations_is_given_up_after_an_integration(monkeypatch):
    made = []

    def without_the_force(function, columns):
        made.append(numpy_program(lambda given: [given[2] + given[1]], columns))
        return made[-1]

    right = sciml.baseline(Kicked())
    monkeypatch.setattr(first_order_system, "numpy_program", without_the_force)
    found = sciml.baseline(Kicked())
    assert made[0] is not None
    t = torch.linspace(0.0, 3.0, 50)
    np.testing.assert_allclose(found(t=t)["u"], right(t=t)["u"], atol=1e-5)

"""Windows whose lengths, ways of solving and degrees are chosen by residuals."""

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import sciml
from sciml import d
from sciml.baselines.integrate import BlowUpError
from sciml.models import Windowed
from sciml.strategies.grid_slabs import GridWindows
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Budget, Log, most_points
from sciml.strategies.time_marching import WindowMethod, blow_up_time, joined, march
from sciml.strategies.window_solvers import _Pace


@dataclass
class Solved:
    """What an attempt returns, as far as a march looks at it."""

    train: tuple = ("points",)
    held: tuple = ()
    fresh: tuple = ()
    problem: object = None


class Clock:
    """An attempt that reaches what a function of begin and end says, and remembers what it was asked."""

    def __init__(self, reached):
        self.reached, self.asked = reached, []

    def __call__(self, begin, end, before):
        self.asked.append((round(begin, 6), round(end, 6)))
        return Solved(), self.reached(begin, end)


def marched(*methods, target=1e-6, stops=()):
    problem = SimpleNamespace(time="t", domain=SimpleNamespace(bounds={"t": (0.0, 1.0)}))
    return march(SimpleNamespace(problem=problem, stops=stops), methods, target=target, ended=lambda at: False)


@pytest.mark.parametrize(
    ("places", "seconds", "share", "over"),
    [
        # At its pace it arrives with the budget; it would take ten times as long; it would, and nobody else is asked.
        ((0.0, 0.2, 0.4, 0.6), 20.0, 0.5, False),
        ((0.0, 0.02, 0.04, 0.06), 20.0, 0.5, True),
        ((0.0, 0.02, 0.04, 0.06), 20.0, 1.0, False),
        # Windows that grow leave a layer, few may; by a little they do not.
        ((0.0, 1e-6, 2e-6, 4e-6), 20.0, 0.5, False),
        ((0.0, 1e-6, 2e-6), 25.0, 0.5, False),
        ((0.0, 0.01, 0.0202, 0.0306), 20.0, 0.5, True),
        # It is not late yet, or has not ended a window.
        ((0.0, 0.01, 0.02), 10.0, 0.5, False),
        ((0.0, 0.0, 0.0, 0.0), 20.0, 0.5, True),
    ],
)
def test_windows_that_would_not_arrive_leave_time_to_others(places, seconds, share, over):
    """All of the budget went to a quarter of the time, and classical grids that solve all of it were not asked."""
    log = SimpleNamespace(stopped=False, seconds=0.0, budget=Budget(seconds=100.0))
    pace = _Pace(log, 1.0, share, patient=True)
    for at in places:
        log.seconds += seconds
        last = pace(at)
    assert last == over
    assert bool(pace.said) == over


def test_windows_end_in_pulses_as_at_the_end():
    # The first one lies a rounding error beyond the end of the first window.
    first = 0.3 + 1e-15
    found = marched(WindowMethod(Clock(lambda begin, end: 0.0), 0.3, 1e-3), stops=[first, 0.5])
    assert found.edges[:3] == (0.0, first, 0.5)
    assert found.edges[-1] == 1.0


def test_a_first_window_that_is_not_solved_when_time_is_over_ends_where_it_does():
    """A method may begin with a shorter window than it was asked for."""
    begun = SimpleNamespace(domain=SimpleNamespace(bounds={"t": (0.0, 0.01)}))
    whole = SimpleNamespace(time="t", domain=SimpleNamespace(bounds={"t": (0.0, 1.0)}))
    method = WindowMethod(lambda begin, end, before: (Solved(problem=begun), np.inf), 0.5, 0.01)
    found = march(SimpleNamespace(problem=whole, stops=[]), [method], target=1e-6, ended=lambda at: True)
    assert found.edges == (0.0, 0.01)
    assert not found.complete


def test_windows_are_halved_until_the_wish_is_met():
    clock = Clock(lambda begin, end: 1e-8 if end - begin < 0.15 else 1e-3)
    found = marched(WindowMethod(clock, 0.5, 0.01))
    assert found.complete
    assert found.worst == 1e-8
    assert np.diff(found.edges).max() < 0.15
    # A length that was too long is not tried again at once.
    assert len(clock.asked) < 2 * len(found.setups)


def test_a_level_at_its_shortest_gives_way_to_the_next_some_windows_back():
    first = Clock(lambda begin, end: 1e-8 if end < 0.5 else 1e-3)
    second = Clock(lambda begin, end: 1e-7)
    found = marched(WindowMethod(first, 0.05, 0.025, 0.05), WindowMethod(second, 0.25, 0.05))
    assert found.complete
    (escalated,) = found.escalated
    assert 0.3 < escalated <= 0.4  # a tenth of the time before the first method failed
    assert second.asked[0] == (round(escalated, 6), round(escalated + 0.25, 6))
    assert escalated in found.edges


def test_the_next_takes_over_at_once_where_shorter_windows_are_in_vain():
    first, second = Clock(lambda begin, end: 2e-2), Clock(lambda begin, end: 1e-7)
    vain = WindowMethod(first, 0.4, 1e-6, accepted=1e-3, in_vain=lambda: len(first.asked) > 1)
    found = marched(vain, WindowMethod(second, 0.25, 0.05))
    assert first.asked == [(0.0, 0.4), (0.0, 0.2)]
    assert found.complete
    assert found.escalated == (0.0,)
    # The last one has no other to give way to.
    assert len(marched(vain).setups) == 1


def test_a_residual_that_is_accepted_at_the_shortest_length_is_no_reason_to_climb():
    first, second = Clock(lambda begin, end: 5e-6), Clock(lambda begin, end: 1e-9)
    found = marched(WindowMethod(first, 0.1, 0.05, accepted=1e-5), WindowMethod(second, 0.1, 0.05))
    assert not second.asked
    assert found.failed == len(found.setups)


def test_a_level_that_misses_by_more_than_the_one_below_gives_the_march_back():
    first, second = Clock(lambda begin, end: 1e-4 * (end - begin)), Clock(lambda begin, end: 1e-2)
    found = marched(WindowMethod(first, 0.2, 0.05), WindowMethod(second, 0.2, 0.1))
    assert found.complete
    assert found.escalated == ()
    assert len(second.asked) == 2
    assert found.worst < 2e-5  # three times what it missed by at its shortest


def test_a_march_ends_where_shorter_windows_are_in_vain():
    clock = Clock(lambda begin, end: 1e-9 if begin < 0.5 else np.inf)
    found = marched(WindowMethod(clock, 0.25, 1e-3, longest=0.25, in_vain=lambda: len(clock.asked) > 4))
    assert not found.complete
    # Two windows, and three tries of the next one.
    assert len(clock.asked) == 5


def test_the_wish_of_a_level_may_change_on_the_way():
    wishes = iter([1e-9] * 3 + [1e-2] * 100)
    clock = Clock(lambda begin, end: 1e-4)
    found = marched(WindowMethod(clock, 0.4, 0.01, target=lambda: next(wishes)))
    assert clock.asked[:4] == [(0, 0.4), (0, 0.2), (0, 0.1), (0, 0.05)]
    assert found.complete


class Solitons(sciml.Problem):
    """u_t + u u_x + 0.05² u_xxx = 0 on a ring: waves steepen and break up."""

    domain = sciml.Box(x=(-1, 1), t=(0, 0.4))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.cos(math.pi * x)), sciml.Periodic("x")]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + u * d(u, x) + 0.05**2 * d(u, x, x, x)


def fourier(problem, modes, time, steps):
    """The same by Fourier modes and the classical Runge-Kutta method with an integrating factor, at the mesh's points."""
    x = -1 + 2 * np.arange(modes) / modes
    k = math.pi * np.fft.fftfreq(modes, 1 / modes)
    h = time / steps
    v = np.fft.fft(np.cos(math.pi * x))
    turn = np.exp(1j * 0.05**2 * k**3 * h / 2)

    def rate(v):
        return -0.5j * k * np.fft.fft(np.fft.ifft(v).real ** 2)

    for _ in range(steps):
        a = h * rate(v)
        b = h * rate(turn * (v + a / 2))
        c = h * rate(turn * v + b / 2)
        e = h * rate(turn**2 * v + turn * c)
        v = turn**2 * v + (turn**2 * a + 2 * turn * (b + c) + e) / 6
    return x, np.fft.ifft(v).real


@pytest.mark.slow
def test_waves_on_a_grid_follow_solitons_to_many_digits():
    """`fit` solves this on elements; grids are for two coordinates beside time, and this shows that they resolve what moves."""
    problem = Solitons()
    setup = prepare(problem, sciml.RandomFeatures(), None, most_points(2), None, torch.float64, "cpu", 0)
    grids = GridWindows(setup, Log(), 1e-9, 1e-3)
    method = WindowMethod(grids, 0.05, 1e-7, target=lambda: grids.target, accepted=1e-3, longer=lambda: grids.longer)
    found = march(setup, [method], target=1e-9, ended=lambda at: False)
    models = [each.trial.model for each in found.setups]
    assert found.complete
    assert all(type(model.axes[0]).__name__ == "Fourier" for model in models)
    assert len(models[-1].axes[0]) > len(models[0].axes[0])  # raised as the waves steepen
    x, truth = fourier(problem, 128, 0.4, 4000)
    points = torch.stack([torch.from_numpy(x), torch.full((len(x),), 0.4, dtype=torch.float64)], dim=1)
    with torch.no_grad():
        ours = joined(setup, found, None, 0).trial(points)[:, 0].numpy()
    assert np.linalg.norm(ours - truth) < 1e-7 * np.linalg.norm(truth)


def test_polynomials_follow_a_corner_layer_at_the_start():
    """A boundary value that the start does not have: windows become short at first."""

    class Switched(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 0.2))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: x**2),
            sciml.Dirichlet(u=0.0, on=domain.face(x=0)),
            sciml.Dirichlet(u=1.0, on=domain.face(x=1)),
        ]

        @sciml.equation
        def reaction(self, u, x, t):
            return d(u, t) - 0.05 * d(u, x, x) - u + u**3

    solution = sciml.fit(Switched())
    n = 200
    mesh = np.linspace(0, 1, n + 1)

    def rate(_, u):
        found = np.zeros_like(u)
        found[1:-1] = 0.05 * n**2 * (u[2:] - 2 * u[1:-1] + u[:-2]) + u[1:-1] - u[1:-1] ** 3
        return found

    truth = solve_ivp(rate, (0, 0.2), mesh**2, method="BDF", rtol=1e-8, atol=1e-10).y[:, -1]
    ours = solution(x=mesh, t=0.2)["u"]
    assert np.abs(ours - truth).max() < 5e-5  # the mesh's own error
    assert solution.success


@pytest.mark.parametrize("seed", [0, 1])
def test_the_choice_does_not_hang_on_a_seed(seed):
    class Reaction(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 0.5))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: 1 / (1 + torch.exp(x))),
            sciml.Dirichlet(u=lambda x, t: 1 / (1 + torch.exp(x - 2.5 * t)), on=domain.faces("x")),
        ]

        @sciml.equation
        def fisher(self, u, x, t):
            return d(u, t) - d(u, x, x) - u * (1 - u) * self.factor(u)

        def factor(self, u):
            # Makes a front of speed 5/2 an exact solution, whatever the equation's usual one is.
            return (2.5 - 1 + 2 * u) / 1.0

        def reference(self, x, t):
            return 1 / (1 + torch.exp(x - 2.5 * t))

    assert sciml.fit(Reaction(), seed=seed).error()["u"] < 1e-8


def test_solved_windows_keep_no_points():
    clock = Clock(lambda begin, end: 1e-8)
    found = marched(WindowMethod(clock, 0.25, 0.1))
    assert all(each.train == () for each in found.setups)


def test_windows_that_are_given_back_do_not_count():
    first = Clock(lambda begin, end: 5e-6 if end < 0.5 else 1e-3)
    second = Clock(lambda begin, end: 1e-8)
    found = marched(WindowMethod(first, 0.05, 0.025, 0.05, target=lambda: 1e-5), WindowMethod(second, 0.25, 0.05))
    (escalated,) = found.escalated
    assert found.failed == sum(edge <= escalated for edge in found.edges[1:])


class Given(torch.nn.Module):
    """The fields of a window as functions of x and t."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, points):
        return torch.stack([each(*points.unbind(1)) for each in self.functions], dim=1)


def growth(end, *functions):
    """About when fields that follow functions up to an end become infinite."""
    edges = (1 - np.geomspace(1, 1 - end, 61)).tolist()
    trial = Windowed(edges, [Given(functions) for _ in edges[1:]], column=1)
    return blow_up_time(sciml.gallery.problem("heat_rod"), trial)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_growth_by_any_power_of_the_time_that_is_left_ends(power):
    found = growth(1 - 0.02 ** (1 / power), lambda x, t: (1 + x) * (1 - t) ** -power)
    assert found == pytest.approx(1.0, abs=0.05 * 0.02 ** (1 / power))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, t: (1 + x) * torch.exp(9 * t),
        lambda x, t: 1 / (0.01 + torch.exp(-9 * t)),
        lambda x, t: torch.sin(40 * t) * torch.exp(9 * t),
        lambda x, t: 1 / (1 + t),
        lambda x, t: t**6,
        lambda x, t: 0 * x,
        lambda x, t: x / 0,
    ],
    ids=["exponential", "logistic", "swinging", "falling", "power", "zero", "not a number"],
)
def test_growth_that_does_not_end_is_none(function):
    assert growth(0.99, function) is None


@pytest.mark.parametrize(
    "beside", [lambda x, t: 0 * x, lambda x, t: torch.exp(200 * t), lambda x, t: 5 + 0 * x], ids=["zero", "faster", "still"]
)
def test_fields_beside_one_that_blows_up_do_not_hide_it(beside):
    assert growth(0.98, beside, lambda x, t: (1 + x) / (1 - t)) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_a_blow_up_in_the_plane_is_named():
    class Flame(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.2))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x, y: 60 * torch.sin(math.pi * x) * torch.sin(math.pi * y)),
            sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
        ]

        @sciml.equation
        def flame(self, u, x, y, t):
            return d(u, t) - sciml.laplacian(u, x, y) - u**2

    solution = sciml.fit(Flame(), seconds=60)
    assert not solution.success
    assert re.search(r"as solutions do that are infinite at about t = 0\.02[34]", solution.message)
    with pytest.raises(BlowUpError):
        sciml.baseline(Flame(), time_limit=300)

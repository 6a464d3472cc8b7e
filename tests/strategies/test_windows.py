"""Windows of time: joined without a jump, their lengths chosen, every refusal with its reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import sciml
from problems import Robertson
from sciml import d
from sciml.models import MLP, Scaled, Windowed
from sciml.strategies.prepare import prepare
from sciml.strategies.time_marching import WindowMethod, continued, march, not_in_windows, window


class VanDerPol(sciml.Problem):
    domain = sciml.Interval(t=(0, 12))
    fields = ("u",)
    stiffness = 5.0
    conditions = (sciml.Initial(u=2.0, u_t=0.0),)

    @sciml.equation
    def oscillation(self, u, t):
        return d(u, t, t) - self.stiffness * (1 - u**2) * d(u, t) + u


class Predators(sciml.Problem):
    domain = sciml.Interval(t=(0, 20))
    fields = ("hare", "lynx")
    conditions = (sciml.Initial(hare=30.0, lynx=4.0),)

    @sciml.equation
    def prey(self, hare, lynx, t):
        return d(hare, t) - 0.5 * hare + 0.02 * hare * lynx

    @sciml.equation
    def hunters(self, hare, lynx, t):
        return d(lynx, t) + 0.9 * lynx - 0.03 * hare * lynx


class Fisher(sciml.Problem):
    """A nonlinear equation in two coordinates."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.5))
    fields = ("u",)
    conditions = (
        sciml.Initial(u=lambda x: 0.5 + 0.3 * torch.cos(torch.pi * x)),
        sciml.Neumann(u=0.0, on=domain.faces("x")),
    )

    @sciml.equation
    def growth(self, u, x, t):
        return d(u, t) - 0.1 * d(u, x, x) - u * (1 - u)


def _pieces(order: int) -> Windowed:
    trials = []
    for number, (low, high) in enumerate(((0.0, 1.0), (1.0, 3.0), (3.0, 4.0))):
        model = MLP(6, inputs=2, outputs=2, seed=number)
        trials.append(Scaled(model, [-1.0, low], [1.0, high], [0.0, 1.0], [1.0, 2.0]).double())
    return Windowed([0.0, 1.0, 3.0, 4.0], trials, column=1, order=order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("edge", [1.0, 3.0])
def test_windows_join_to_rounding(order, edge):
    joined = _pieces(order)
    x = torch.linspace(-1, 1, 7, dtype=torch.float64)

    def value_and_slope(shift):
        t = torch.full_like(x, edge + shift).requires_grad_()
        values = joined(torch.stack([x, t], dim=1))
        slopes = [torch.autograd.grad(column.sum(), t, retain_graph=True)[0] for column in values.unbind(1)]
        return values.detach(), torch.stack(slopes, dim=1)

    before, after = value_and_slope(-1e-13), value_and_slope(0.0)
    assert torch.allclose(before[0], after[0], rtol=0, atol=1e-11)
    assert torch.allclose(before[1], after[1], rtol=0, atol=1e-10) == (order == 2)


def test_a_window_is_its_own_function_at_its_end():
    joined = _pieces(1)
    at = torch.tensor([[0.3, 3.0 - 1e-12]], dtype=torch.float64)
    assert torch.allclose(joined(at), joined.windows[1](at), rtol=0, atol=1e-10)
    assert joined(torch.empty(0, 2, dtype=torch.float64)).shape == (0, 2)


def test_windows_need_as_many_edges():
    trials = list(_pieces(1).windows)
    with pytest.raises(sciml.errors.ModelError, match="increasing edges"):
        Windowed([0.0, 1.0], trials, column=1)
    with pytest.raises(sciml.errors.ModelError, match="increasing edges"):
        Windowed([0.0, 1.0, 1.0, 2.0], trials, column=1)


def test_sharp_turns_are_followed_by_windows_of_many_lengths():
    solution = sciml.fit(VanDerPol())
    t = np.linspace(0, 12, 500)
    right = lambda _, y: [y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]]  # noqa: E731
    truth = solve_ivp(right, (0, 12), [2, 0], method="DOP853", rtol=1e-12, atol=1e-12, t_eval=t).y[0]
    assert solution.success, solution.message
    assert np.linalg.norm(solution(t=t)["u"] - truth) < 1e-7 * np.linalg.norm(truth)
    lengths = np.diff(solution.trial.edges.numpy())
    assert lengths.max() > 3 * lengths.min()
    assert "windows of time" in " ".join(solution.choices)


class Stiff(VanDerPol):
    domain = sciml.Interval(t=(0, 100))
    stiffness = 60.0


@pytest.mark.slow
def test_transients_far_shorter_than_the_time_are_resolved_and_not_doubted():
    solution = sciml.fit(Stiff())
    assert solution.success, solution.message
    lengths = np.diff(solution.trial.edges.numpy())
    assert lengths.max() > 100 * lengths.min()
    right = lambda _, y: [y[1], 60 * (1 - y[0] ** 2) * y[1] - y[0]]  # noqa: E731
    t = np.linspace(0, 100, 301)
    truth = solve_ivp(right, (0, 100), [2, 0], method="Radau", rtol=1e-10, atol=1e-12, t_eval=t).y[0]
    assert np.linalg.norm(solution(t=t)["u"] - truth) < 1e-5 * np.linalg.norm(truth)


def test_a_system_over_two_cycles():
    solution = sciml.fit(Predators())
    t = np.linspace(0, 20, 400)
    right = lambda _, y: [0.5 * y[0] - 0.02 * y[0] * y[1], -0.9 * y[1] + 0.03 * y[0] * y[1]]  # noqa: E731
    truth = solve_ivp(right, (0, 20), [30, 4], method="DOP853", rtol=1e-12, atol=1e-12, t_eval=t).y
    for name, values in zip(("hare", "lynx"), truth, strict=True):
        assert np.linalg.norm(solution(t=t)[name] - values) < 1e-8 * np.linalg.norm(values)


def test_a_nonlinear_equation_in_space_and_time_by_features_in_windows(tmp_path):
    solution = sciml.fit(Fisher())
    assert solution.success
    assert solution.residuals["relative"].max() < 1e-6
    solution.save(tmp_path / "windows.pt")
    again = sciml.load(tmp_path / "windows.pt")
    x, t = np.linspace(0, 1, 5), np.linspace(0, 0.5, 5)
    assert np.array_equal(again(x=x, t=t)["u"], solution(x=x, t=t)["u"])
    with pytest.raises(sciml.errors.ModelError, match="windows of time"):
        sciml.embed(solution, {"x": x, "t": t})


def test_windows_of_a_network_of_ones_own():
    solution = sciml.fit(Fisher(), sciml.MLP(10, 10), solver=sciml.LeastSquares(40), windows=3, points=300, sampler=None)
    assert len(solution.trial.windows) == 3
    assert solution.residuals["relative"].max() < 1e-2
    assert solution.history["phase"].nunique() == 3
    assert solution.nit <= 3 * 40  # Every window is solved once.


def test_one_window_and_three_find_the_same():
    settings = {"model": sciml.RandomFeatures(80, 3.0), "solver": sciml.GaussNewton(), "points": 500}
    one, three = (sciml.fit(Fisher(), windows=count, sampler=None, **settings) for count in (1, 3))
    x, t = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 0.5, 9))
    assert np.allclose(one(x=x, t=t)["u"], three(x=x, t=t)["u"], atol=1e-5)


def test_a_network_is_continued_as_the_same_function():
    problem = Fisher()
    setup = prepare(problem, sciml.MLP(8, 8), None, 50, None, torch.float64, "cpu", 0)
    networks = [sciml.MLP(8, 8, inputs=2, outputs=1, seed=seed) for seed in (0, 1)]
    first = window(setup, networks[0], 0.0, 0.1, None, 50, 0)
    second = window(setup, networks[1], 0.1, 0.4, first, 50, 0)
    continued(first.trial, second.trial)
    points = torch.rand(20, 2, dtype=torch.float64)
    assert torch.allclose(first.trial(points), second.trial(points), rtol=1e-10, atol=1e-12)


class Terminal(VanDerPol):
    conditions = (sciml.Initial(u=2.0), sciml.Dirichlet(u=0.0, on=VanDerPol.domain.face(t=12)))


class Ring(Fisher):
    conditions = (sciml.Periodic("t"),)


class Rate(VanDerPol):
    stiffness = sciml.Unknown(1.0)


class Half(VanDerPol):
    conditions = (sciml.Initial(u=2.0),)


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Terminal(), "ties the end of time"),
        (Ring(), "ties the end of time"),
        (Rate(), "unknowns"),
        (Half(), "not given for every field"),
    ],
)
def test_what_cannot_be_solved_in_windows_is_told_why(problem, reason):
    assert reason in not_in_windows(problem, measured=False)
    with pytest.raises(sciml.errors.SciMLError, match=reason):
        sciml.fit(problem, sciml.MLP(4), solver=sciml.Adam(1), windows=2)


@pytest.mark.parametrize("count", [0, -1, 1.5, "many", True])
def test_a_number_of_windows_is_a_positive_whole_number(count):
    with pytest.raises(sciml.errors.SolverError, match="number of windows"):
        sciml.fit(VanDerPol(), sciml.MLP(4), windows=count)


def test_exact_conditions_and_windows_exclude_each_other():
    with pytest.raises(sciml.errors.SolverError, match="exact"):
        sciml.fit(Fisher(), sciml.MLP(4), solver=sciml.Adam(1), windows=2, exact=True)


def test_a_callback_ends_the_march_with_what_there_is():
    solution = sciml.fit(VanDerPol(), callbacks=[lambda look: look.step > 20])
    assert solution.status == "stopped"
    assert not solution.success


@pytest.mark.parametrize("where", ["in a window", "between windows"])
def test_ctrl_c_keeps_the_windows_that_were_solved(where, monkeypatch):
    import sciml.strategies.window_solvers as marching

    calls = []

    def interrupt(*given):
        calls.append(given)
        if len(calls) > 20:
            raise KeyboardInterrupt
        return

    still = marching.stand_still
    if where == "in a window":
        solution = sciml.fit(VanDerPol(), callbacks=[interrupt])
    else:
        monkeypatch.setattr(marching, "stand_still", lambda setup: (interrupt(), still(setup)))
        solution = sciml.fit(VanDerPol())
    assert solution.status == "interrupted"
    assert not solution.success
    end = float(solution.trial.edges[-1])
    assert 0 < end < 12
    # It is judged where it is known; beyond, windows only continue.
    assert solution.bounds["t"] == (0.0, end)
    assert solution.residuals["relative"].max() < 1e-6
    assert f"it ended at t = {end:.4g} of 12" in " ".join(solution.choices)
    monkeypatch.undo()
    full = sciml.fit(VanDerPol())
    t = np.linspace(0, float(solution.trial.edges[1]), 20)
    assert np.allclose(solution(t=t)["u"], full(t=t)["u"], atol=1e-6)


@pytest.mark.parametrize(("radius", "pull"), [(1.0, 1.0), (7e6, 3.986e14), (1.496e11, 1.327e20)], ids=["one", "Earth", "Sun"])
def test_an_orbit_in_any_unit(radius, pull):
    """The size of what starts at zero was sought by a step that led beyond where gravity sees it: 150 % off in metres."""
    speed = math.sqrt(pull / radius)

    class Orbit(sciml.Problem):
        domain = sciml.Interval(t=(0, 2 * math.pi * radius / speed))
        fields = ["x", "y"]
        conditions = [sciml.Initial(x=radius, y=0.0, x_t=0.0, y_t=speed)]

        @sciml.equation
        def along(self, x, y, t):
            return d(x, t, t) + pull * x / (x * x + y * y) ** 1.5

        @sciml.equation
        def across(self, x, y, t):
            return d(y, t, t) + pull * y / (x * x + y * y) ** 1.5

        def reference(self, t):
            turned = speed / radius * t
            return {"x": radius * torch.cos(turned), "y": radius * torch.sin(turned)}

    solution = sciml.fit(Orbit())
    assert solution.success
    assert max(solution.error().values()) < 1e-7


def test_windows_that_are_too_short_leave_time_for_classical_solvers():
    """By random features hundreds of windows lead to a thousandth of the time."""
    solution = sciml.fit(Robertson(), strategy=[sciml.strategies.TimeMarching(share=0.02), "ClassicalGrids"], seconds=100)
    assert solution.success, solution.message
    found = solution(t=40.0)
    assert found["a"] == pytest.approx(0.7158270688, rel=1e-5)
    assert found["b"] == pytest.approx(0.9185534765e-5, rel=1e-4)


@pytest.mark.parametrize("share", [0.0, 1.5, True, "half"])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(sciml.SolverError, match="share must be a number above 0 and at most 1"):
        sciml.strategies.TimeMarching(share=share)


def _paced(setup, length, reached):
    """An attempt that reaches the target in windows of a length at most, and in longer ones misses it by far."""

    def attempt(begin, end, before):
        return setup, reached if end - begin <= length else 1.0

    return attempt


def test_windows_that_would_not_arrive_give_way_to_the_next_method():
    setup = prepare(Fisher(), None, None, None, None, torch.float64, "cpu", 0)
    fast = WindowMethod(_paced(setup, 1.0, 1e-9), 0.1, 1e-7, name="fast")
    slow = WindowMethod(_paced(setup, 1e-5, 1e-5), 0.1, 1e-7, accepted=1e-3, name="slow", target=lambda: 1e-4)
    marched = march(setup, [slow, fast], target=1e-7, ended=lambda at: False)
    assert marched.complete
    assert marched.escalated
    assert len(marched.setups) < 100


def test_windows_that_would_not_arrive_end_where_nothing_takes_over():
    setup = prepare(Fisher(), None, None, None, None, torch.float64, "cpu", 0)
    slow = WindowMethod(_paced(setup, 1e-5, 1e-5), 0.1, 1e-7, accepted=1e-3, name="slow", target=lambda: 1e-4)
    marched = march(setup, [slow], target=1e-7, ended=lambda at: False)
    assert not marched.complete
    assert len(marched.setups) < 100


class Quick(sciml.Problem):
    """A field that is gone after a hundred thousandth of the time."""

    domain = sciml.Interval(t=(0, 1))
    fields = ("u",)
    conditions = (sciml.Initial(u=1.0),)

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + 1e6 * u


@pytest.mark.slow
def test_windows_in_a_layer_go_on_and_what_is_nothing_after_it_is_no_failure():
    solution = sciml.fit(Quick())
    assert solution.success, solution.message
    t = np.linspace(0, 1e-5, 101)
    assert np.abs(solution(t=t)["u"] - np.exp(-1e6 * t)).max() < 1e-9


class Plate(sciml.Problem):
    """A simply supported square plate that vibrates in two modes."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.2))
    fields = ("w",)
    conditions = (
        sciml.Initial(
            w=lambda x, y: torch.sin(torch.pi * y) * (torch.sin(torch.pi * x) + 0.3 * torch.sin(2 * torch.pi * x)), w_t=0.0
        ),
        sciml.Dirichlet(w=0.0, on=domain.faces("x", "y")),
    )

    @sciml.condition(on=domain.faces("x"))
    def no_moment(self, w, x):
        return d(w, x, x)

    @sciml.condition(on=domain.faces("y"))
    def none_beside(self, w, y):
        return d(w, y, y)

    @sciml.equation
    def motion(self, w, x, y, t):
        return d(w, t, t) + d(w, x, x, x, x) + 2 * d(w, x, x, y, y) + d(w, y, y, y, y)


@pytest.mark.slow
def test_grids_that_do_not_arrive_give_way_to_tiles():
    solution = sciml.fit(Plate(), seconds=120)
    assert solution.success, solution.message
    x, y, t = np.random.default_rng(0).random((3, 500)) * np.array([[1], [1], [0.2]])
    first = np.sin(np.pi * x) * np.cos(2 * np.pi**2 * t)
    exact = np.sin(np.pi * y) * (first + 0.3 * np.sin(2 * np.pi * x) * np.cos(5 * np.pi**2 * t))
    assert np.abs(solution(x=x, y=y, t=t)["w"] - exact).max() < 1e-3

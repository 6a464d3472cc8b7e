"""Networks that learn from the best solution that other strategies find, and how far they are from the truth."""

import numpy as np
import pytest
import torch
from conftest import problem_class
from torch import nn

import sciml
from problems import Decay, Growth
from sciml import d
from sciml.errors import ProblemError, SolverError
from sciml.problem.collocation import Collocation
from sciml.solvers.variable_projection import ProjectedObjective, output_of, projected
from sciml.strategies.search import Workspace
from sciml.strategies.teaching import lesson


class Residual(nn.Module):
    """A network of the user's own: what comes after a first layer is added to it, and normalised."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.norm = nn.Linear(2, 16), nn.Linear(16, 16), nn.LayerNorm(16)
        self.last = nn.Linear(16, 1)

    def forward(self, points):
        inner = nn.functional.silu(self.first(points))
        return self.last(self.norm(inner + torch.tanh(self.second(inner))))


@pytest.fixture(scope="module")
def burgers():
    return problem_class("burgers")(nu=0.05)


@pytest.fixture(scope="module")
def taught(burgers):
    return sciml.fit(burgers, sciml.MLP(10, 10))


def test_a_network_learns_from_the_best_solution_and_knows_its_error(taught):
    error, estimate = taught.error()["u"], taught.estimated_error["u"]
    assert taught.success
    assert error < 5e-4
    assert 0.2 < estimate / error < 5
    assert isinstance(taught.model, sciml.MLP)
    assert taught.model.hidden == (10, 10)
    assert taught.choices[0].startswith("taught: learned the solution of windows")
    assert taught.solver == "Adam, SSBroyden"
    # Steps of the search for a teacher and of the lessons are in one history.
    assert {"Adam, taught", "SSBroyden, taught"} < set(taught.history["phase"])


def test_the_estimated_error_is_kept_with_the_solution(taught, tmp_path):
    assert sciml.load(taught.save(tmp_path / "taught.pt")).estimated_error == taught.estimated_error


def test_a_module_of_ones_own_learns_as_well_and_is_left_alone(burgers):
    own = Residual()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    solution = sciml.fit(burgers, own)
    assert solution.success
    assert solution.error()["u"] < 5e-4
    assert type(solution.model) is Residual
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())


def test_a_network_that_is_too_small_is_no_success(burgers):
    solution = sciml.fit(burgers, sciml.MLP(2))
    assert not solution.success
    assert solution.estimated_error["u"] > 1e-3
    assert "the estimated relative error of 'u' is" in solution.message
    assert 0.2 < solution.estimated_error["u"] / solution.error()["u"] < 5


def test_unknown_constants_and_their_intervals_are_those_of_the_teacher():
    t = np.linspace(0.0, 2.0, 40)
    u = np.exp(0.8 * t) + 0.05 * np.random.default_rng(0).standard_normal(len(t))
    data = {"t": t, "u": u}
    alone, network = sciml.fit(Growth(), data=data), sciml.fit(Growth(), sciml.MLP(8), data=data)
    assert network.success
    assert np.allclose(network.unknowns, alone.unknowns, rtol=1e-6)
    assert isinstance(network.model, sciml.MLP)
    # The bands of the fields are carried over into the network's parameters.
    at = np.linspace(0.2, 1.9, 20)
    assert np.allclose(network.standard_error(t=at)["u"], alone.standard_error(t=at)["u"], rtol=0.05)


def test_a_solution_can_be_the_teacher_and_none_trains_on_the_equations():
    exact = sciml.baseline(Decay())
    network = sciml.fit(Decay(), sciml.MLP(6), teacher=exact)
    assert network.success
    assert network.error(exact)["u"] == pytest.approx(network.estimated_error["u"], rel=3)
    alone = sciml.fit(Decay(), sciml.MLP(6), teacher=None)
    assert not any("taught" in each for each in alone.choices)
    assert alone.error()["u"] < 1e-4
    assert 0.2 < alone.estimated_error["u"] / alone.error()["u"] < 5


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"teacher": 3}, SolverError, "teacher must be a solution, 'auto' or None; given: 3"),
        ({"teacher": "best"}, SolverError, "teacher must be a solution"),
        ({"teacher": Decay, "solver": sciml.Adam(5)}, SolverError, "leave out solver"),
    ],
)
def test_misuse_is_told(options, error, words):
    if options["teacher"] is Decay:
        options = options | {"teacher": sciml.baseline(Decay())}
    with pytest.raises(error, match=words):
        sciml.fit(Decay(), sciml.MLP(4), **options)
    with pytest.raises(ProblemError, match="teacher: the solution of Decay has the coordinates"):
        sciml.fit(problem_class("burgers")(), sciml.MLP(4), teacher=sciml.baseline(Decay()))


class Layers(sciml.Problem):
    """Heat through two materials, each with a temperature of its own."""

    domain = sciml.Interval(x=(0, 1))
    left, right = sciml.Interval(x=(0, 0.5)), sciml.Interval(x=(0.5, 1))
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.face(x=0)), sciml.Dirichlet(v=1.0, on=domain.face(x=1))]

    @sciml.equation(on=left)
    def first(self, u, x):
        return d(u, x, x)

    @sciml.equation(on=right)
    def second(self, v, x):
        return 5 * d(v, x, x)

    @sciml.condition(on=left.interface(right))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=left.interface(right))
    def flux(self, u, v, x):
        return d(u, x) - 5 * d(v, x)


def test_fields_are_learned_where_they_live():
    solution = sciml.fit(Layers(), sciml.MLP(6))
    assert solution.success
    x = np.array([0.1, 0.4, 0.6, 0.9])
    exact = np.where(x < 0.5, 5 / 3 * x, 5 / 6 + (x - 0.5) / 3)
    values = solution(x=x)
    assert np.allclose(np.where(x < 0.5, values["u"], values["v"]), exact, atol=1e-5)


@pytest.fixture
def objective(burgers):
    def function(points):
        return torch.sin(3 * points[:, :1]) * torch.exp(-points[:, 1:])

    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("one", torch.ones(1, dtype=torch.float64))

        forward = staticmethod(function)

    work = Workspace(burgers)
    setup = lesson(work.prepared(sciml.MLP(6, 5), None, exact=False), Teacher(), 200, 0)
    return projected(setup.objective())


def test_output_weights_follow_from_the_others(objective):
    assert isinstance(objective, ProjectedObjective)
    position = objective.vector()
    assert len(position) == (2 * 6 + 6) + (6 * 5 + 5)
    objective.assign(position)
    reached = objective.value()
    loss, gradient, _ = objective.evaluate()
    assert float(loss) == pytest.approx(reached, rel=1e-12)
    # No other output weights are better.
    with torch.no_grad():
        for parameter in objective.output.parameters():
            for entry in range(parameter.numel()):
                for shift in (1e-3, -1e-3):
                    parameter.view(-1)[entry] += shift
                    assert objective.value() > reached
                    parameter.view(-1)[entry] -= shift
    # The gradient is that of the reduced function.
    direction = torch.randn(len(position), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ends = []
    for shift in (1e-5, -1e-5):
        objective.assign(position + shift * direction)
        ends.append(objective.value())
    assert float(gradient @ direction) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_what_is_not_affine_in_the_last_layer_is_not_projected(burgers):
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(2, 1, dtype=torch.float64)

        def forward(self, points):
            return self.last(points).square()

    work = Workspace(burgers)
    assert output_of(work.prepared(Squared(), None, exact=False).trial) is None
    setup = work.prepared(sciml.MLP(4), None, exact=False)
    assert output_of(setup.trial) is setup.trial.model.layers[-1]
    # Rows of equations are no values of fields.
    objective = setup.objective()
    assert projected(objective) is objective
    assert all(isinstance(block, Collocation) for block in objective.blocks)


@pytest.mark.parametrize("phase", ["SSBroyden, taught", "Adam, taught", ""])
def test_ctrl_c_returns_the_network_as_it_is(burgers, phase):
    def press(report):
        if report.phase.startswith(phase):
            raise KeyboardInterrupt

    solution = sciml.fit(burgers, sciml.MLP(6, 6), callbacks=[press])
    assert solution.status == "interrupted"
    assert not solution.success
    assert isinstance(solution.model, sciml.MLP)
    assert np.isfinite(solution(x=0.1, t=0.5)["u"])


def test_a_search_for_a_teacher_that_takes_its_share_of_time_leaves_the_rest_to_training(burgers, monkeypatch):
    monkeypatch.setattr("sciml.strategies.teaching._SHARE", 1e-6)
    seen = []
    solution = sciml.fit(
        burgers, sciml.MLP(4), seconds=120.0, callbacks=[lambda report: seen.append(report.phase) or len(seen) > 12]
    )
    assert "nothing could be found to learn from: trained on the equations" in solution.choices
    assert {"Adam"} <= set(seen)
    assert solution.status == "stopped"


class Rest(sciml.Problem):
    """A second field that nothing moves; what polynomials leave of it is rounding of the first."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=lambda x, y: x * (1 - y), v=0.0, on=domain.boundary)]

    @sciml.equation
    def first(self, u, v, x, y):
        return sciml.laplacian(u, x, y) + v

    @sciml.equation
    def second(self, u, v, x, y):
        return sciml.laplacian(v, x, y) + u - x * (1 - y)


def test_the_rounding_of_a_field_that_is_zero_is_not_learned():
    solution = sciml.fit(Rest(), sciml.MLP(8))
    assert solution.estimated_error["u"] < 1e-3
    assert abs(solution(x=0.4, y=0.3)["v"]).item() < 1e-6
    assert solution.success, solution.message

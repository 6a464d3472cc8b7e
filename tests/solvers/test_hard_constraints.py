"""Conditions that hold whatever the parameters are."""

import copy

import numpy as np
import pytest
import torch
from conftest import problem_class
from torch import nn

import sciml
from sciml import d
from sciml.errors import FileError, ProblemError
from sciml.jets import AutogradJets
from sciml.models import Constrained, PeriodicInputs
from sciml.solvers.hard_constraints import Conditions
from sciml.strategies.prepare import prepare


class Box3(sciml.Problem):
    """Every kind of prescription at once: value and velocity at the start, four different walls, a free second field."""

    domain = sciml.Box(x=(-1, 2), y=(0.5, 1.5), t=(1, 3))
    fields = ["u", "v"]

    @staticmethod
    def exact(x, y, t):
        return torch.sin(x * y) + t * t * torch.cos(x - y)

    conditions = [
        sciml.Initial(
            u=lambda x, y: Box3.exact(x, y, torch.ones_like(x)),
            u_t=lambda x, y: 2 * torch.cos(x - y),
        ),
        sciml.Dirichlet(u=lambda y, t: Box3.exact(-torch.ones_like(y), y, t), on=domain.face(x=-1), name="west"),
        sciml.Dirichlet(u=lambda y, t: Box3.exact(2 * torch.ones_like(y), y, t), on=domain.face(x=2), name="east"),
        sciml.Dirichlet(u=lambda x, y, t: Box3.exact(x, y, t), on=domain.face(y=1.5), name="north"),
        sciml.Neumann(v=0.0, on=domain.faces("y"), name="slope"),
    ]

    @sciml.equation
    def first(self, u, v, x, y, t):
        return d(u, t, t) - d(u, x, x) - d(u, y, y) + v

    @sciml.equation
    def second(self, u, v, x, t):
        return d(v, t) - d(v, x, x) + u


class Ring(sciml.Problem):
    """Advection on a ring."""

    domain = sciml.Box(x=(0, 2), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Periodic("x")]

    @sciml.equation
    def advection(self, u, x, t):
        return d(u, t) + d(u, x)

    def reference(self, x, t):
        return torch.sin(torch.pi * (x - t))


class Oscillator(sciml.Problem):
    domain = sciml.Interval(t=(0, 2))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0, u_t=-0.5)]

    @sciml.equation
    def newton(self, u, t):
        return d(u, t, t) + u


class Hypercube(sciml.Problem):
    """Seven dimensions with the same constant all around."""

    domain = sciml.Box(**dict.fromkeys("abcdefg", (0, 1)))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=2.0, on=domain.boundary)]

    @sciml.equation
    def equation(self, u, a):
        return d(u, a, a) - 1.0


def shaken(setup, size=3.0):
    """The trial function with parameters that have nothing to do with any training."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in setup.trial.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return setup


def ready(problem, model=None, exact=True, points=64):
    return prepare(problem, model or sciml.MLP(6), None, points, None, torch.float64, "cpu", 0, exact)


@pytest.mark.parametrize(
    ("problem", "held"),
    [
        (Box3, {"initial.u", "initial.u_t", "west", "east", "north"}),
        (Oscillator, {"initial.u", "initial.u_t"}),
        (Hypercube, {"dirichlet"}),
        (problem_class("burgers"), {"initial", "dirichlet"}),
        (problem_class("poisson_square"), {"dirichlet"}),
        (Ring, {"initial", "periodic"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_residuals_vanish_to_rounding_whatever_the_parameters_are(problem, held):
    setup = shaken(ready(problem()))
    residuals = setup.rows.residuals(setup.fresh)
    for name in held:
        assert float(residuals[name].detach().abs().max()) < 1e-12, name
    trained = {term.name for block in (*setup.train, *setup.held) for term in block.terms}
    assert trained == set(residuals) - held
    assert all(float(residuals[name].detach().abs().max()) > 1e-3 for name in trained)


def test_corners_edges_and_velocity_of_the_lift_agree_with_every_face():
    """The lift alone, on edges and corners, where a sum of one interpolation a face would count values twice."""
    problem = Box3()
    lift = Conditions(problem).lift
    ends = torch.tensor([[-1.0, 1.5, 1.0], [2.0, 1.5, 1.0], [2.0, 1.5, 2.2], [-1.0, 0.7, 1.0]], dtype=torch.float64)
    expected = Box3.exact(*ends.unbind(1))
    assert torch.allclose(lift(ends)[:, 0], expected, atol=1e-13, rtol=0)
    assert not bool(lift(ends)[:, 1].any())  # nothing is prescribed for v
    points = torch.rand(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = torch.tensor([-1, 0.5, 1]) + points * torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64)
    speed = AutogradJets(lift, points, problem.coordinates, problem.fields).jet("u", ("t",))
    assert torch.allclose(speed, 2 * torch.cos(points[:, 0] - points[:, 1]), atol=1e-12, rtol=0)


def test_the_lift_reproduces_every_bilinear_function():
    class Plate(sciml.Problem):
        domain = sciml.Box(x=(0, 2), y=(-1, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x, y: 1 + 2 * x - y + 3 * x * y, on=domain.boundary)]

        @sciml.equation
        def laplace(self, u, x, y):
            return d(u, x, x) + d(u, y, y)

    points = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, y = points.unbind(1)
    assert torch.allclose(Conditions(Plate()).lift(points)[:, 0], 1 + 2 * x - y + 3 * x * y, atol=1e-14, rtol=0)


def test_every_function_that_satisfies_the_conditions_can_be_reached():
    """The distance function vanishes on the prescribed faces only, and no faster than it must."""
    problem = Box3()
    inside = problem.domain
    generator = torch.Generator().manual_seed(1)
    unit = 0.02 + 0.96 * torch.rand(500, 3, dtype=torch.float64, generator=generator)
    lower, upper = torch.tensor(inside.lower), torch.tensor(inside.upper)
    distance = Conditions(problem).distance(lower + (upper - lower) * unit)
    assert float(distance[:, 0].min()) > 0
    assert float(distance[:, 0].max()) <= 1
    assert bool((distance[:, 1] == 1).all())
    free = torch.tensor([[0.3, 0.5, 2.0]], dtype=torch.float64)  # the south wall has no condition
    assert float(Conditions(problem).distance(free)[0, 0]) > 0.1
    near = torch.tensor([[0.3, 1.0, 1.0 + 1e-4], [0.3, 1.5 - 1e-4, 2.0]], dtype=torch.float64)
    slow, fast = Conditions(problem).distance(near)[:, 0].tolist()
    assert slow < 1e-8 < 1e-5 < fast  # doubly zero at the start, simply at a wall


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fit_with_exact_conditions_is_more_accurate(seed):
    problem = problem_class("heat_rod")()
    options = {"solver": [sciml.Adam(30), sciml.LBFGS(60)], "points": 200, "seed": seed}
    exact = sciml.fit(problem, sciml.MLP(10), exact=True, **options)
    rows = sciml.fit(problem, sciml.MLP(10), **options)
    assert exact.error()["u"] < 0.2 * rows.error()["u"]
    assert exact.residuals.loc[["initial", "dirichlet"], "max"].max() < 1e-14
    assert set(exact.points) == {"conduction"}
    assert any("held exactly: 'dirichlet', 'initial'" in line for line in exact.choices)
    assert "initial" not in exact.history


def test_a_linear_problem_stays_linear():
    """Affine in the weights of random features still: one solve is enough, and reaches rounding of the residual."""
    problem = problem_class("poisson_square")()
    solution = sciml.fit(
        problem,
        sciml.RandomFeatures(120, 2.0),
        exact=True,
        solver=sciml.LinearLeastSquares(1),
        points=400,
        sampler=None,
    )
    assert solution.error()["u"] < 1e-8


def test_a_model_of_ones_own_may_stand_inside():
    own = nn.Sequential(nn.Linear(2, 8), nn.Softsign(), nn.Linear(8, 1)).double()
    before = copy.deepcopy(own.state_dict())
    solution = sciml.fit(problem_class("heat_rod")(), own, exact=True, solver=sciml.Adam(5), points=50)
    assert type(solution.model) is nn.Sequential
    assert solution.parameters == 33
    assert solution.residuals.loc["initial", "max"] < 1e-14
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())
    assert sciml.embed(solution, {"x": [0.1], "t": [0.2]}).shape == (1, 8)


def test_relu_is_still_refused():
    """The distance function has second derivatives; that must not hide that the model has none."""
    with pytest.raises(sciml.errors.ModelError, match="ReLU"):
        sciml.fit(problem_class("heat_rod")(), sciml.MLP(8, activation="relu"), exact=True, solver=sciml.Adam(1))


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_contradictions_at_a_corner_are_refused_and_named():
    class Rod(problem_class("heat_rod")):
        conditions = [
            sciml.Initial(u=lambda x: torch.sin(torch.pi * x) + 1.0),
            sciml.Dirichlet(u=0.0, on=problem_class("heat_rod").domain.faces("x")),
        ]

    with pytest.raises(ProblemError, match=r"'initial' and 'dirichlet' contradict.* at x=[01], t=0 .* u = 1 and 0"):
        ready(Rod())
    rows = sciml.fit(Rod(), sciml.MLP(4), solver=sciml.Adam(1), points=20)
    assert any("'initial' and 'dirichlet' contradict" in line for line in rows.choices)


def test_contradictions_on_an_edge_in_part_only_are_found():
    class Lid(sciml.Problem):
        """The walls agree in most of the edge."""

        domain = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1))
        fields = ["u"]
        conditions = [
            sciml.Dirichlet(u=lambda y: torch.relu(y - 0.6), on=domain.face(x=0), name="side"),
            sciml.Dirichlet(u=0.0, on=domain.face(z=1), name="lid"),
        ]

        @sciml.equation
        def laplace(self, u, x, y, z):
            return d(u, x, x) + d(u, y, y) + d(u, z, z)

    with pytest.raises(ProblemError, match=r"'side' and 'lid'.* at x=0, y=1, z=1 they prescribe u = 0.4 and 0"):
        ready(Lid())


def test_a_velocity_that_contradicts_a_moving_wall_is_found():
    class Moving(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=0.0, u_t=0.0),
            sciml.Dirichlet(u=lambda t: torch.sin(3 * t), on=domain.face(x=0), name="shaker"),
        ]

        @sciml.equation
        def wave(self, u, x, t):
            return d(u, t, t) - d(u, x, x)

    with pytest.raises(ProblemError, match=r"'initial.u_t' and 'shaker'.*u_t = 0 and 3"):
        ready(Moving())


@pytest.mark.parametrize(
    "name", ["burgers", "heat_rod", "poisson_square", "harmonic_oscillator", "lynx_hare", "logistic_growth"]
)
def test_no_contradiction_is_seen_where_there_is_none(name):
    from sciml.problem.compatibility import contradictions

    assert contradictions(problem_class(name)()) == []
    assert contradictions(Box3()) == []


def test_what_depends_on_an_unknown_stays_rows():
    class Start(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        begin = sciml.Unknown(0.5)
        conditions = [sciml.Initial(u=lambda self: self.begin)]

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + u

    times = np.linspace(0, 1, 12)
    data = {"t": times, "u": 2.0 * np.exp(-times)}
    solution = sciml.fit(Start(), sciml.MLP(8), data=data, exact=True, solver=sciml.LeastSquares(40))
    assert "initial" in solution.points
    assert abs(solution.unknowns.loc["begin", "estimate"] - 2.0) < 1e-3
    assert any("no value is prescribed that could be held" in line for line in solution.choices)


def test_too_many_coordinates_are_refused_unless_one_constant_holds_everywhere():
    class Varied(Hypercube):
        conditions = [sciml.Dirichlet(u=lambda a, b: a + b, on=Hypercube.domain.boundary)]

    with pytest.raises(ProblemError, match="along 7 coordinates"):
        ready(Varied())
    setup = ready(Hypercube())
    points = torch.rand(5, 7, dtype=torch.float64)
    assert bool((Conditions(Hypercube()).lift(points) == 2.0).all())
    assert isinstance(setup.trial, Constrained)


# Periodic coordinates


def test_the_model_sees_cosines_and_sines():
    setup = ready(Ring(), exact=sciml.HardConstraints(harmonics=3))
    wrapped = setup.trial.model.model
    assert isinstance(wrapped, PeriodicInputs)
    assert wrapped.model.layers[0].in_features == 7  # three pairs and time
    shaken(setup)
    left, right = (torch.tensor([[x, 0.4]], dtype=torch.float64) for x in (0.0, 2.0))
    jets = [AutogradJets(setup.trial, at, ("x", "t"), ("u",)) for at in (left, right)]
    for order in range(4):
        low, high = (float(each.jet("u", ("x",) * order).detach()) for each in jets)
        assert abs(low) > 1e-3
        assert low == pytest.approx(high, rel=1e-9)
    # Without this, a periodic function of half the period would pass, too.
    middle = AutogradJets(setup.trial, torch.tensor([[1.0, 0.4]], dtype=torch.float64), ("x", "t"), ("u",))
    assert abs(float(middle.jet("u", ()).detach()) - float(jets[0].jet("u", ()).detach())) > 1e-3


def test_periodic_alone_leaves_the_initial_values_to_be_trained():
    solution = sciml.fit(Ring(), sciml.MLP(10), exact=sciml.HardConstraints(values=False), solver=sciml.Adam(5), points=50)
    assert "initial" in solution.points
    assert "periodic" not in solution.points
    assert solution.residuals.loc["initial", "max"] > 1e-3
    assert solution.residuals.loc["periodic", "max"] < 1e-14


def test_random_features_of_cosines_and_sines():
    solution = sciml.fit(
        Ring(), sciml.RandomFeatures(250, 2.0), exact=True, solver=sciml.LinearLeastSquares(1), points=500, sampler=None
    )
    assert solution.error()["u"] < 1e-8


def test_a_model_made_for_the_coordinates_keeps_periodic_rows():
    own = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    setup = ready(Ring(), own)
    assert "periodic" in {term.name for block in setup.train for term in block.terms}
    assert any("periodic in 'x' by rows: the model given does not take 3 inputs" in line for line in setup.choices)
    wider = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    setup = ready(Ring(), wider)
    assert "periodic" not in {term.name for block in setup.train for term in block.terms}


def test_a_kink_across_the_seam_keeps_periodic_rows():
    """Allen and Cahn's x**2 cos(pi x) is periodic and its slope is not: a smooth periodic model could not follow it."""

    class Kink(sciml.Problem):
        domain = sciml.Box(x=(-1, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=lambda x: x * x * torch.cos(torch.pi * x)), sciml.Periodic("x")]

        @sciml.equation
        def allen_cahn(self, u, x, t):
            return d(u, t) - 1e-4 * d(u, x, x) + 5 * u**3 - 5 * u

    setup = ready(Kink())
    assert any("does not continue smoothly" in line for line in setup.choices)
    assert {"periodic.u", "periodic.u_x"} <= {term.name for block in setup.train for term in block.terms}


def test_values_that_are_not_periodic_contradict_a_periodic_condition():
    class Jump(Ring):
        conditions = [sciml.Initial(u=lambda x: x), sciml.Periodic("x")]

    with pytest.raises(ProblemError, match=r"'initial' .*'periodic' contradict.* at x=0, t=0 they prescribe u = 0 and 2"):
        ready(Jump())


def test_a_coordinate_periodic_in_one_field_only_keeps_its_rows():
    class Half(Ring):
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=0.0, v=0.0), sciml.Periodic("x", "u")]
        reference = None

        @sciml.equation
        def other(self, v, t):
            return d(v, t)

    assert any("'v' is not periodic" in line for line in ready(Half()).choices)


# Keeping


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
@pytest.mark.parametrize("problem", [Ring, Box3, Oscillator])
def test_a_saved_solution_is_the_same_with_the_problem_and_refused_without(tmp_path, problem):
    solution = sciml.fit(problem(), sciml.MLP(5), exact=True, solver=sciml.Adam(2), points=30)
    path = solution.save(tmp_path / "solution.pt")
    again = sciml.load(path, problem())
    at = {name: np.linspace(*ends, 7) for name, ends in problem.domain.bounds.items()}
    for field in problem.fields:
        assert np.array_equal(again(**at)[field], solution(**at)[field])
    with pytest.raises(FileError, match=r"pass the problem, sciml\.load\(path, problem\)"):
        sciml.load(path)


def test_a_saved_solution_refuses_another_problem(tmp_path):
    class Slower(Oscillator):
        conditions = [sciml.Initial(u=1.0, u_t=-0.4)]

    path = sciml.fit(Oscillator(), sciml.MLP(5), exact=True, solver=sciml.Adam(2)).save(tmp_path / "solution.pt")
    with pytest.raises(FileError, match="holds the solution of another problem"):
        sciml.load(path, Slower())


def test_periodic_inputs_alone_are_loaded_without_the_problem(tmp_path):
    solution = sciml.fit(Ring(), sciml.MLP(5), exact=sciml.HardConstraints(values=False), solver=sciml.Adam(2), points=30)
    again = sciml.load(solution.save(tmp_path / "solution.pt"))
    assert again(x=0.3, t=0.4)["u"] == solution(x=0.3, t=0.4)["u"]


def test_float32_holds_conditions_to_its_rounding():
    solution = sciml.fit(
        problem_class("heat_rod")(), sciml.MLP(6), exact=True, solver=sciml.Adam(3), points=50, dtype=torch.float32
    )
    assert solution.residuals.loc[["initial", "dirichlet"], "max"].max() < 1e-6


@pytest.mark.parametrize("given", ["yes", 1, None])
def test_exact_is_a_truth_value_or_a_record(given):
    with pytest.raises(ProblemError, match=r"exact must be True, False or sciml\.HardConstraints"):
        ready(Ring(), exact=given)
    with pytest.raises(ProblemError, match="harmonics must be"):
        sciml.HardConstraints(harmonics=0)

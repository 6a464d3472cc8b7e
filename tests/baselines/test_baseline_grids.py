"""Classical solvers on grids, from the same residuals that a network is trained on."""

import math

import numpy as np
import pytest
import torch
from conftest import problem_class

import sciml
from problems import Robertson
from sciml import d
from sciml.baselines.collocation import CollocationSystem
from sciml.baselines.integrate import BlowUpError, Budget, IntegrationError
from sciml.baselines.method_of_lines import MethodOfLines
from sciml.baselines.refinement import _same_blow_up, grids, refine
from sciml.baselines.task import Solved, Task
from sciml.errors import BaselineError, ProblemError
from sciml.models import Chebyshev, FiniteDifferences, Fourier, Grid

PI = math.pi


class Rod(sciml.Problem):
    """Heat conduction with a flux at one end and convection at the other."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = 0.1
    conditions = [
        sciml.Initial(u=lambda x: torch.cos(PI * x) + x),
        sciml.Neumann(u=-1.0, on=domain.face(x=0)),
        sciml.Robin(u=lambda self, t: 2 - torch.exp(-(PI**2) * self.k * t), coefficient=1.0, on=domain.face(x=1)),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)

    def reference(self, x, t):
        return torch.exp(-self.k * PI**2 * t) * torch.cos(PI * x) + x


class Source(sciml.Problem):
    """Poisson's equation, without a level of its own."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Neumann(u=0.0, on=domain.boundary), sciml.Mean(u=0.0)]

    @sciml.equation
    def poisson(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 5 * PI**2 * torch.cos(PI * x) * torch.cos(2 * PI * y)

    def reference(self, x, y):
        return torch.cos(PI * x) * torch.cos(2 * PI * y)


SOLVED = (
    "advection",
    "beam",
    "bratu",
    "fisher_kpp",
    "heat_plate",
    "heat_rod",
    "helmholtz",
    "plate_biharmonic",
    "poisson_square",
)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        *((name, 1e-6) for name in SOLVED if name != "heat_plate"),
        pytest.param("heat_plate", 1e-6, marks=pytest.mark.slow),
        *((name, 1e-4) for name in ("advection", "beam", "fisher_kpp", "helmholtz")),
    ],
)
def test_within_the_tolerance_of_the_reference(name, tolerance):
    solution = sciml.baseline(problem_class(name)(), tolerance=tolerance)
    assert solution.success
    assert max(solution.error().values()) <= tolerance
    assert "nodes differ by" in solution.message
    # The difference is the error of the grid before.
    assert solution.history["difference"].iloc[-1] <= 100 * tolerance


@pytest.mark.parametrize(
    ("problem", "sizes"),
    [
        (problem_class("bratu")(), (129, 257)),
        (problem_class("poisson_square")(), (65, 129)),
        pytest.param(problem_class("helmholtz")(), (129, 257), marks=pytest.mark.slow),
        (problem_class("burgers")(nu=0.05), (129, 257)),
        (problem_class("advection")(beta=1.0), (65, 129)),
        pytest.param(problem_class("heat_plate")(), (31, 61), marks=pytest.mark.slow),
    ],
    ids=["boundary values", "plane", "waves in the plane", "lines, nonlinear", "ring", "lines in the plane"],
)
def test_differences_converge_at_their_order(problem, sizes):
    """Fourth order in the distance of nodes, by the reference."""
    errors = [
        sciml.baseline(problem, method="differences", n=size, tolerance=1e-7).error()[problem.fields[0]] for size in sizes
    ]
    # Round a ring the distance is 1 / n, on an interval 1 / (n - 1).
    steps = [size - 1 for size in sizes]
    observed = math.log(errors[0] / errors[1]) / math.log(steps[1] / steps[0])
    assert observed == pytest.approx(4.0, abs=0.3)


@pytest.mark.slow
def test_the_observed_order_is_told():
    solution = sciml.baseline(problem_class("helmholtz")(), method="differences", tolerance=1e-4)
    assert "observed order 3.8, differences of order 4" in solution.message


@pytest.mark.parametrize("method", ["chebyshev", "differences"])
def test_fluxes_and_convection(method):
    solution = sciml.baseline(Rod(), method=method)
    assert solution.success
    assert solution.error()["u"] < 1e-6


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("Radau", Rod()),
        ("BDF", Rod()),
        ("DOP853", problem_class("advection")()),
        ("RK45", problem_class("advection")()),
    ],
)
def test_an_integrator_can_be_named(method, problem):
    solution = sciml.baseline(problem, method=method, tolerance=1e-4)
    assert solution.success
    assert method in solution.solver
    assert solution.error()["u"] < 1e-4


def test_the_speed_of_waves_and_of_heat_is_known():
    """The largest eigenvalue of the Jacobian: pi n c round a ring of length 2 pi and n odd nodes, and 4 k / h**2 on a rod."""
    ring = MethodOfLines(problem_class("advection")(beta=3.0), Grid({"x": Fourier(0, 2 * PI, 65)}), {})
    assert ring.fastest(ring.start()) == pytest.approx(3 * 32, rel=0.5)
    rod = MethodOfLines(problem_class("heat_rod")(), Grid({"x": FiniteDifferences(0, 1, 65, 2)}), {})
    assert rod.fastest(rod.start()) == pytest.approx(4 * rod.problem.kappa * 64**2, rel=0.5)


@pytest.mark.parametrize("method", ["chebyshev", "differences"])
def test_a_level_given_by_a_mean(method):
    solution = sciml.baseline(Source(), method=method, tolerance=1e-4)
    assert solution.success
    assert solution.error()["u"] < 1e-4


def test_velocities_and_a_pressure():
    solution = sciml.baseline(problem_class("kovasznay")())
    assert solution.success
    assert max(solution.error().values()) < 1e-6


def test_three_coordinates():
    class Cube(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def poisson(self, u, x, y, z):
            wave = torch.sin(PI * x) * torch.sin(PI * y) * torch.sin(PI * z)
            return d(u, x, x) + d(u, y, y) + d(u, z, z) + 3 * PI**2 * wave

        def reference(self, x, y, z):
            return torch.sin(PI * x) * torch.sin(PI * y) * torch.sin(PI * z)

    assert sciml.baseline(Cube(), tolerance=1e-4).error()["u"] < 1e-4


def test_third_order_in_space_with_two_conditions_at_one_end():
    class Linear(sciml.Problem):
        """u_t + u_xxx = 0, on both sides of which the exact solution holds."""

        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: torch.sin(2 * x)),
            sciml.Dirichlet(u=lambda x, t: torch.sin(2 * x + 8 * t), on=domain.faces("x")),
            sciml.Neumann(u=lambda t: 2 * torch.cos(2 + 8 * t), on=domain.face(x=1)),
        ]

        @sciml.equation
        def dispersion(self, u, x, t):
            return d(u, t) + d(u, x, x, x)

        def reference(self, x, t):
            return torch.sin(2 * x + 8 * t)

    solution = sciml.baseline(Linear())
    assert solution.success
    assert solution.error()["u"] < 1e-6


@pytest.mark.slow
def test_waves_as_two_equations_of_first_order():
    """Nothing grows, however fine the grid: energy is kept."""

    class Waves(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 8))
        fields = ["u", "v"]
        conditions = [
            sciml.Initial(u=lambda x: torch.sin(PI * x / 2), v=0.0),
            sciml.Dirichlet(u=0.0, on=domain.face(x=0)),
            sciml.Dirichlet(v=0.0, on=domain.face(x=1)),
        ]

        @sciml.equation
        def one(self, u, v, x, t):
            return d(u, t) - d(v, x)

        @sciml.equation
        def other(self, u, v, x, t):
            return d(v, t) - d(u, x)

        def reference(self, x, t):
            return {
                "u": torch.sin(PI * x / 2) * torch.cos(PI * t / 2),
                "v": torch.cos(PI * x / 2) * torch.sin(PI * t / 2),
            }

    for count in (12, 30, 68):
        lines = MethodOfLines(Waves(), Grid({"x": Chebyshev(0, 1, count)}), {})
        jacobian = lines.jacobian(0.0, lines.start())
        full = jacobian if isinstance(jacobian, np.ndarray) else jacobian.toarray()
        assert np.linalg.eigvals(full).real.max() < 1e-10
    solution = sciml.baseline(Waves())
    assert solution.success
    assert max(solution.error().values()) < 1e-6


def test_time_derivatives_that_are_differentiated_in_space():
    """Benjamin, Bona and Mahony's solitary wave: the mass is an operator."""

    class BBM(sciml.Problem):
        domain = sciml.Box(x=(-20, 30), t=(0, 5))
        fields = ["u"]
        conditions = [sciml.Initial(u=lambda x: 1.5 / torch.cosh(x / math.sqrt(12)) ** 2), sciml.Periodic("x")]

        @sciml.equation
        def wave(self, u, x, t):
            return d(u, t) + d(u, x) + u * d(u, x) - d(u, x, x, t)

        def reference(self, x, t):
            return 1.5 / torch.cosh((x - 1.5 * t) / math.sqrt(12)) ** 2

    # Its tails are cut off at 1e-4.
    assert sciml.baseline(BBM(), tolerance=1e-3).error()["u"] < 1e-3


def test_a_field_without_a_time_derivative():
    """Cahn and Hilliard's equation as two of second order is the one of fourth order."""

    class Two(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 0.5))
        fields = ["u", "m"]
        conditions = [
            sciml.Initial(u=lambda x: 0.3 * torch.cos(2 * PI * x)),
            sciml.Neumann(u=0.0, m=0.0, on=domain.faces("x")),
        ]

        @sciml.equation
        def balance(self, u, m, x, t):
            return d(u, t) - 0.02 * d(m, x, x)

        @sciml.equation
        def potential(self, u, m, x, t):
            return m - (u**3 - u) + 0.01 * d(u, x, x)

    class One(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 0.5))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: 0.3 * torch.cos(2 * PI * x)),
            sciml.Neumann(u=0.0, on=domain.faces("x")),
        ]

        @sciml.equation
        def balance(self, u, x, t):
            return d(u, t) - 0.02 * d(u**3 - u - 0.01 * d(u, x, x), x, x)

        @sciml.condition(on=domain.faces("x"))
        def no_flux(self, u, x):
            return d(u, x, x, x)

    two, one = (sciml.baseline(problem(), tolerance=1e-5) for problem in (Two, One))
    x = np.linspace(0, 1, 21)
    assert np.abs(two(x=x, t=0.5)["u"] - one(x=x, t=0.5)["u"]).max() < 1e-5


def test_complex_fields():
    class Soliton(sciml.Problem):
        domain = sciml.Box(x=(-12, 12), t=(0, 1))
        fields = ["u", "v"]
        complex_fields = {"h": ("u", "v")}
        conditions = [sciml.Initial(h=lambda x: torch.exp(0.5j * x) / torch.cosh(x)), sciml.Periodic("x", "h")]

        @sciml.equation
        def schroedinger(self, h, x, t):
            return 1j * d(h, t) + d(h, x, x) / 2 + abs(h) ** 2 * h

        def reference(self, x, t):
            return {"h": torch.exp(1j * (0.5 * x + 0.375 * t)) / torch.cosh(x - 0.5 * t)}

    assert max(sciml.baseline(Soliton(), tolerance=1e-4).error().values()) < 1e-3


def test_algebraic_equations_beside_differential_ones():
    """Values of Hairer and Wanner."""
    found = sciml.baseline(Robertson())(t=40.0)
    assert float(found["a"]) == pytest.approx(0.7158270688, rel=1e-6)
    assert float(found["b"]) == pytest.approx(0.9185534765e-5, rel=1e-5)
    assert float(found["c"]) == pytest.approx(0.2841637457, rel=1e-6)


def test_events():
    class Stone(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["h"]
        conditions = [sciml.Initial(h=10.0, h_t=3.0)]

        @sciml.equation
        def fall(self, h, t):
            return d(h, t, t) + 9.81

    solution = sciml.baseline(Stone(), events={"landing": lambda h: h, "top": lambda h, t: d(h, t)})
    assert list(solution.events["event"]) == ["top", "landing"]
    landing = (3 + math.sqrt(9 + 2 * 9.81 * 10)) / 9.81
    assert solution.events["t"].to_numpy() == pytest.approx([3 / 9.81, landing], abs=1e-8)
    assert solution.events["h"].iloc[0] == pytest.approx(10 + 4.5 / 9.81)
    with pytest.raises(ProblemError, match="event 'x' asks for 'height'"):
        sciml.baseline(Stone(), events={"x": lambda height: height})
    with pytest.raises(BaselineError, match="events are looked for in ordinary differential equations"):
        sciml.baseline(Rod(), events={"x": lambda u: u})


def noisy(count, noise, seed=0):
    generator = np.random.default_rng(seed)
    x, t = generator.random((2, count))
    exact = np.exp(-0.1 * PI**2 * t) * np.sin(PI * x)
    return {"x": x, "t": t, "u": exact + noise * generator.standard_normal(count)}


class Conductivity(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = sciml.Unknown(0.3, lower=0)
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(PI * x)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


@pytest.mark.slow
def test_an_unknown_of_a_partial_differential_equation():
    solution = sciml.baseline(Conductivity(), data=noisy(60, 0.01), tolerance=1e-4)
    row = solution.unknowns.loc["k"]
    assert solution.success
    assert row["low"] < 0.1 < row["high"]
    assert row["standard_error"] < 2e-3
    exact = sciml.baseline(Conductivity(), data=noisy(60, 0.0), tolerance=1e-6)
    assert exact.unknowns.loc["k", "estimate"] == pytest.approx(0.1, rel=1e-6)


def test_an_unknown_of_a_boundary_value_problem():
    class String(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["w"]
        tension = sciml.Unknown(1.0, lower=0)
        conditions = [sciml.Dirichlet(w=0.0, on=domain.faces("x"))]

        @sciml.equation
        def balance(self, w, x):
            return self.tension * d(w, x, x) + 1.0

    generator = np.random.default_rng(0)
    x = generator.random(60)
    w = x * (1 - x) / 2 / 2.5 + 1e-3 * generator.standard_normal(60)
    row = sciml.baseline(String(), data={"x": x, "w": w}).unknowns.loc["tension"]
    assert row["low"] < 2.5 < row["high"]
    # The slope of the estimate by the tension is w / T, so linear least squares give the error.
    by_hand = 2.5 * 1e-3 / np.linalg.norm(x * (1 - x) / 2 / 2.5)
    assert row["standard_error"] == pytest.approx(by_hand, rel=0.3)


def box_problem(conditions, equation=lambda self, u, x, t: d(u, t) - d(u, x, x), **members):
    return type(
        "Made",
        (sciml.Problem,),
        {
            "domain": sciml.Box(x=(0, 1), t=(0, 1)),
            "fields": ["u"],
            "conditions": list(conditions),
            "balance": sciml.equation(equation),
            **members,
        },
    )()


BOX = sciml.Box(x=(0, 1), t=(0, 1))
ENDS = sciml.Dirichlet(u=0.0, on=BOX.faces("x"))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (lambda: problem_class("poisson_5d")(), "has the 5 coordinates"),
        (
            lambda: box_problem([sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=BOX.face(x=0))]),
            r"too few conditions on the faces of 'x' \(u: 1 for 2 derivative",
        ),
        (
            lambda: box_problem([sciml.Initial(u=0.0), ENDS, sciml.Neumann(u=0.0, on=BOX.face(x=0))]),
            r"too many conditions on the faces of 'x' \(u: 3 for 2 derivative",
        ),
        (
            lambda: box_problem([sciml.Initial(u=0.0), ENDS], lambda self, u, x, t: d(u, t) ** 2 - d(u, x, x)),
            "not affine in its highest time derivative",
        ),
        (
            lambda: box_problem([sciml.Initial(u=0.0), ENDS], lambda self, u, x, t: d(u, t, t) - d(u, x, x)),
            "no initial value for 'u_t': add sciml.Initial",
        ),
        (
            lambda: box_problem([sciml.Initial(u=0.0), ENDS], other=sciml.equation(lambda self, u: u)),
            r"2 equation\(s\) for 1 field",
        ),
        (lambda: type("Free", (Source,), {"conditions": Source.conditions[:1]})(), "u is determined up to a constant"),
        (
            lambda: box_problem([sciml.Initial(u=0.0), ENDS, sciml.Mean(u=0.0)]),
            "the method of lines cannot hold it",
        ),
    ],
)
def test_what_it_cannot_do_is_named(problem, words):
    with pytest.raises(BaselineError, match=words):
        sciml.baseline(problem())


def test_the_pressure_of_an_unsteady_flow_is_refused():
    class Flow(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
        fields = ["u", "v", "p"]
        conditions = [sciml.Initial(u=0.0, v=0.0), sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("x", "y"))]

        @sciml.equation
        def along(self, u, v, p, x, y, t):
            return d(u, t) + d(p, x) - d(u, x, x) - d(u, y, y)

        @sciml.equation
        def across(self, u, v, p, x, y, t):
            return d(v, t) + d(p, y) - d(v, x, x) - d(v, y, y)

        @sciml.equation
        def mass(self, u, v, x, y, t):
            return d(u, x) + d(v, y)

    with pytest.raises(BaselineError, match="'mass' give no field its rate of change"):
        sciml.baseline(Flow())


def test_parts_of_a_domain_are_refused():
    class Layers(sciml.Problem):
        domain = sciml.Box(x=(0, 2), y=(0, 1))
        left, right = sciml.Box(x=(0, 1), y=(0, 1)), sciml.Box(x=(1, 2), y=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation(on=left)
        def here(self, u, x, y):
            return d(u, x, x) + d(u, y, y)

        @sciml.equation(on=right)
        def there(self, u, x, y):
            return d(u, x, x) + 2 * d(u, y, y)

    with pytest.raises(BaselineError, match="'here', 'there' hold"):
        sciml.baseline(Layers())


def test_fault_60_blow_up_in_finite_time_is_told():
    """A grid solution that blows up is told as a failure."""
    hot = box_problem(
        [sciml.Initial(u=lambda x: 20 * torch.sin(PI * x)), ENDS], lambda self, u, x, t: d(u, t) - d(u, x, x) - u**2
    )
    with pytest.raises(BaselineError, match=r"t = 0\.082.*blows up"):
        sciml.baseline(hot)


def test_a_jump_at_the_start_is_not_hidden():
    """Hot ends on a cold rod: differences agree only slowly, and the tolerance is not claimed."""
    jump = box_problem([sciml.Initial(u=0.0), sciml.Dirichlet(u=1.0, on=BOX.faces("x"))])
    solution = sciml.baseline(jump, n=129, method="differences", tolerance=1e-8)
    assert not solution.success
    assert "do not agree to the tolerance" in solution.message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 5}, "n must be a whole number of nodes, 24 or more; given: 5"),
        ({"time_limit": 0}, "time_limit must be a positive"),
        ({"time_limit": True}, "time_limit must be a positive"),
        ({"method": "galerkin"}, "method must be one of"),
    ],
)
def test_options_are_checked(options, words):
    with pytest.raises(BaselineError, match=words):
        sciml.baseline(Rod(), **options)


def test_steady_problems_have_no_integrator_and_odes_no_grid():
    with pytest.raises(BaselineError, match="does not start in time"):
        sciml.baseline(Source(), method="Radau")
    with pytest.raises(BaselineError, match="without a grid"):
        sciml.baseline(problem_class("pendulum")(), n=50)


def test_time_is_bounded():
    with pytest.raises(BaselineError, match=r"time limit of 0\.05 s was reached"):
        sciml.baseline(problem_class("burgers")(), time_limit=0.05)


def test_it_is_saved_and_loaded(tmp_path):
    solution = sciml.baseline(Rod(), tolerance=1e-4)
    loaded = sciml.load(solution.save(tmp_path / "rod.pt"))
    at = {"x": np.linspace(0, 1, 11), "t": 0.5}
    assert np.array_equal(loaded(**at)["u"], solution(**at)["u"])
    assert loaded.history["nodes"].tolist() == solution.history["nodes"].tolist()
    assert solution.model is None
    assert "SciPy" in solution.title


def test_values_differentiate_by_the_coordinates():
    solution = sciml.baseline(Rod(), tolerance=1e-6)
    x = torch.linspace(0.1, 0.9, 7, dtype=torch.float64, requires_grad=True)
    u = solution(x=x, t=torch.full((7,), 0.5, dtype=torch.float64))["u"]
    (slope,) = torch.autograd.grad(u.sum(), x)
    exact = 1 - PI * torch.exp(torch.tensor(-0.1 * PI**2 * 0.5)) * torch.sin(PI * x)
    assert torch.allclose(slope, exact, atol=1e-5)


def interval_problem(conditions, equation, bounds=(0, 1), **members):
    return type(
        "Made",
        (sciml.Problem,),
        {
            "domain": sciml.Interval(x=bounds),
            "fields": ["u"],
            "conditions": list(conditions),
            "balance": sciml.equation(equation),
            **members,
        },
    )()


LINE = sciml.Interval(x=(0, 1))


@pytest.mark.parametrize(
    ("equation", "conditions"),
    [
        (lambda self, u, x: d(u, x, x) - 4 * u, [sciml.Dirichlet(u=1.0, on=LINE.face(x=1))]),
        (lambda self, u, x: d(u, x, x) + 25 * u, [sciml.Dirichlet(u=1.0, on=LINE.face(x=1))]),
        (lambda self, u, x: d(u, x, x) - 4 * u, [sciml.Integral(u=1.0)]),
        (
            lambda self, u, x: d(u, x, x) + PI**2 * u - torch.sin(2 * PI * x),
            [sciml.Dirichlet(u=0.0, on=LINE.faces("x"))],
        ),
    ],
    ids=["growing", "waving", "only an integral", "resonance"],
)
def test_a_missing_condition_is_no_success(equation, conditions):
    """Least squares would choose one of many solutions, the same one on every grid."""
    with pytest.raises(BaselineError, match=r"too few conditions|do not determine 'u'"):
        sciml.baseline(interval_problem(conditions, equation))


def test_a_missing_face_is_no_success():
    class Open(Source):
        conditions = [sciml.Dirichlet(u=0.0, on=Source.domain.faces("x") | Source.domain.face(y=0))]

    with pytest.raises(BaselineError, match=r"no conditions on y=1, where the equations of 'u', of order 2 in y, take 1"):
        sciml.baseline(Open())


@pytest.mark.parametrize("modulus", [1e-9, 1.0, 2.1e11])
@pytest.mark.parametrize("length", [1e-5, 1.0, 1e4])
def test_units_do_not_matter(modulus, length):
    line = sciml.Interval(x=(0, length))
    bar = interval_problem(
        [sciml.Dirichlet(u=0.0, on=line.faces("x"))],
        lambda self, u, x: modulus * d(u, x, x) + modulus / length**2,
        bounds=(0, length),
        reference=lambda self, x: x / length * (1 - x / length) / 2,
    )
    solution = sciml.baseline(bar)
    assert solution.success
    assert solution.error()["u"] < 1e-9


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_mass_that_depends_on_time(share):
    swelling = box_problem(
        [sciml.Initial(u=lambda x: torch.sin(PI * x)), ENDS],
        lambda self, u, x, t: (1 + share * torch.sin(2 * PI * t)) * d(u, t) - 0.1 * d(u, x, x),
    )
    from scipy.integrate import quad

    passed = quad(lambda t: 1 / (1 + share * math.sin(2 * PI * t)), 0, 1)[0]
    solution = sciml.baseline(swelling)
    assert float(solution(x=0.5, t=1.0)["u"]) == pytest.approx(math.exp(-0.1 * PI**2 * passed), rel=1e-6)


def test_a_ring_in_time_has_no_start():
    with pytest.raises(BaselineError, match="the method of lines cannot hold it"):
        sciml.baseline(box_problem([sciml.Initial(u=0.0), ENDS, sciml.Periodic("t")]))


@pytest.mark.parametrize(
    ("equation", "end"),
    [
        (lambda self, u, x, t: d(u, t) - d(u, x, x) - 1e9, None),
        (lambda self, u, x, t: d(u, t) - d(u, x, x) - (20 + PI**2) * u, math.exp(20.0)),
    ],
)
def test_growth_is_no_blow_up(equation, end):
    start = 0.0 if end is None else lambda x: torch.sin(PI * x)
    solution = sciml.baseline(box_problem([sciml.Initial(u=start), ENDS], equation))
    assert solution.success
    if end is not None:
        assert float(solution(x=0.5, t=1.0)["u"]) == pytest.approx(end, rel=1e-4)


def test_equations_that_know_no_large_or_negative_values():
    class Arc(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=0.0)]

        @sciml.equation
        def slope(self, u, t):
            return d(u, t) - torch.sqrt(1 - u**2)

    assert float(sciml.baseline(Arc())(t=1.0)["u"]) == pytest.approx(math.sin(1), rel=1e-6)
    quotient = interval_problem([sciml.Dirichlet(u=1.0, on=LINE.faces("x"))], lambda self, u, x: d(u, x, x) - 1 / u)
    found = sciml.baseline(quotient)
    assert found.success
    # First integral: u'**2 / 2 = log(u / m) with the least value m in the middle.
    least = float(found(x=0.5)["u"])
    x = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    u = found(x=x)["u"]
    (slope,) = torch.autograd.grad(u, x)
    assert float(slope) ** 2 / 2 == pytest.approx(math.log(float(u.detach()) / least), rel=1e-6)


def test_both_values_at_the_start_of_a_coordinate_that_is_no_time():
    shot = interval_problem(
        [sciml.Dirichlet(u=1.0, on=LINE.face(x=0)), sciml.Neumann(u=0.0, on=LINE.face(x=0))],
        lambda self, u, x: d(u, x, x) + u,
        reference=lambda self, x: torch.cos(x),
    )
    assert sciml.baseline(shot).error()["u"] < 1e-8


def test_unknowns_of_conditions():
    unknown = interval_problem(
        [
            sciml.Dirichlet(u=lambda self: self.g, on=LINE.face(x=0)),
            sciml.Robin(u=1.0, coefficient=lambda self: self.h, on=LINE.face(x=1)),
        ],
        lambda self, u, x: d(u, x, x),
        g=sciml.Unknown(1.0),
        h=sciml.Unknown(1.0, lower=0),
    )
    # u = 2 - x, so that g = 2 and u' + h u = -1 + h = 1 at the end.
    x = np.linspace(0, 1, 21)
    found = sciml.baseline(unknown, data={"x": x, "u": 2 - x}).unknowns["estimate"]
    assert found["g"] == pytest.approx(2, rel=1e-6)
    assert found["h"] == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("turned", [False, True])
def test_conditions_go_to_the_fields_they_bind(turned):
    """Two bars that exchange nothing but at one end; the order of the conditions changes nothing."""
    first, second = (
        sciml.Robin(v=lambda t: -PI * torch.exp(-0.1 * PI**2 * t), coefficient=0.0, on=BOX.face(x=0), name="v"),
        sciml.Neumann(u=0.0, on=BOX.face(x=0)),
    )

    class Bars(sciml.Problem):
        domain = BOX
        fields = ["u", "v"]
        conditions = [
            sciml.Initial(u=lambda x: torch.cos(PI * x), v=lambda x: torch.sin(PI * x)),
            *((second, first) if turned else (first, second)),
            sciml.Neumann(u=0.0, on=BOX.face(x=1)),
            sciml.Dirichlet(v=0.0, on=BOX.face(x=1)),
        ]

        @sciml.equation
        def one(self, u, v, x, t):
            return d(u, t) - 0.1 * d(u, x, x)

        @sciml.equation
        def other(self, u, v, x, t):
            return d(v, t) - 0.1 * d(v, x, x)

        def reference(self, x, t):
            fade = torch.exp(-0.1 * PI**2 * t)
            return {"u": fade * torch.cos(PI * x), "v": fade * torch.sin(PI * x)}

    assert max(sciml.baseline(Bars()).error().values()) < 1e-6


def test_a_face_of_a_ring_is_where_it_closes():
    ring = interval_problem(
        [sciml.Periodic("x"), sciml.Dirichlet(u=0.0, on=LINE.face(x=1))],
        lambda self, u, x: d(u, x, x) + 4 * PI**2 * torch.sin(2 * PI * x),
        reference=lambda self, x: torch.sin(2 * PI * x),
    )
    assert sciml.baseline(ring).error()["u"] < 1e-9


def test_grids_that_no_memory_holds_are_refused():
    with pytest.raises(BaselineError, match="n = 2000 nodes along each of 2"):
        sciml.baseline(Source(), n=2000)
    assert "differences" in sciml.baseline(problem_class("bratu")(), n=2001).solver


def test_two_grids_that_blow_up_alike_are_not_enough():
    assert not _same_blow_up([0.2534, 0.2530])
    assert not _same_blow_up([0.2, 0.2534, 0.2530])
    assert _same_blow_up([0.2, 0.0825, 0.0824, 0.0824])
    # Each is near to the next one, and they come closer.
    assert _same_blow_up([0.024577, 0.024248, 0.024088])


def test_when_the_time_is_over_what_a_coarser_grid_found_is_told():
    def solve(grid, before):
        if grid.resolution < 20:
            raise BlowUpError("the solution grows to 1e+09 at t = 0.5: it blows up", 0.5)
        task.budget.start -= 20.0
        raise IntegrationError("the time limit of 10 s was reached at t = 0.1; raise time_limit")

    task = Task(Source(), [], {}, np.zeros(1), np.ones(1), 1e-6, Budget(10.0))
    with pytest.raises(IntegrationError, match=r"at t = 0\.1.*; on a coarser grid the solution grows to 1e\+09 at t = 0\.5"):
        refine(task, grids(Source(), ["x"], "differences", [17, 33]), 3, solve)


@pytest.mark.parametrize(("steps", "tried"), [(40, 2), (6, 1)])
def test_a_finer_grid_is_foretold_from_the_steps_that_it_takes(steps, tried):
    asked = []

    def solve(grid, before):
        asked.append(grid)
        task.budget.start -= 4.0
        return Solved(lambda points: torch.zeros(len(points), 1), {}, steps, "collocation (differences, 17 nodes), Newton")

    task = Task(Source(), [], {}, np.zeros(1), np.ones(1), 1e-6, Budget(10.0))
    refine(task, grids(Source(), ["x"], "differences", [17, 33]), 3, solve)
    assert len(asked) == tried


class Kink(sciml.Problem):
    """Allen and Cahn's equation at rest: from zero Newton's method meets one of many solutions that are unstable, or none."""

    domain = sciml.Box(x=(-1, 1), y=(-1, 1))
    fields = ["u"]
    width = 0.12
    conditions = [sciml.Dirichlet(u=lambda self, x, y: self.exact(x, y), on=domain.boundary)]

    def exact(self, x, y):
        return torch.tanh((0.6 * x + 0.8 * y - 0.1) / (2**0.5 * self.width))

    @sciml.equation
    def balance(self, u, x, y):
        return self.width**2 * sciml.laplacian(u, x, y) + u - u**3


@pytest.mark.parametrize("sign", [1, -1])
def test_where_newtons_method_fails_a_flow_comes_to_rest(sign):
    class Signed(Kink):
        @sciml.equation
        def balance(self, u, x, y):
            return sign * (self.width**2 * sciml.laplacian(u, x, y) + u - u**3)

    found = sciml.baseline(Signed(), n=32)
    x, y = np.random.default_rng(0).uniform(-0.7, 0.7, (2, 200))
    truth = Kink().exact(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    assert np.abs(found(x=x, y=y)["u"] - truth).max() < 1e-3


@pytest.mark.parametrize("rate", [5.0, 50.0])
def test_where_there_is_no_solution_a_flow_finds_none(rate):
    class Bratu(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0)]

        @sciml.equation
        def balance(self, u, x):
            return d(u, x, x) + rate * torch.exp(u)

    with pytest.raises(BaselineError, match="Newton's method stalls"):
        sciml.baseline(Bratu())


def test_constants_of_a_law_without_a_value_at_zero():
    class Law(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["T"]
        k = sciml.Unknown(1.0)
        conditions = [sciml.Dirichlet(T=2.0, on=domain.face(x=0)), sciml.Dirichlet(T=3.0, on=domain.face(x=1))]

        @sciml.equation
        def balance(self, T, x):
            return d(T, x, x) - self.k * torch.log(T)

    x = np.linspace(0.05, 0.95, 30)
    truth = sciml.baseline(type("Known", (Law,), {"k": 1.7})())
    noise = 1e-4 * np.random.default_rng(0).normal(size=30)
    found = sciml.baseline(Law(), {"x": x, "T": truth(x=x)["T"] + noise}).unknowns.loc["k"]
    assert abs(found["estimate"] - 1.7) < 4 * found["standard_error"] < 1e-2


class Beside(sciml.Problem):
    """Two fields that diffuse, of which one starts from a narrow pulse."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ("u", "v")
    conditions = (
        sciml.Initial(
            u=lambda x: torch.sin(torch.pi * x),
            v=lambda x: torch.sin(torch.pi * x) + 1e3 * torch.exp(-(((x - 0.4321) / 4e-4) ** 2)),
        ),
        sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("x")),
    )

    @sciml.equation
    def first(self, u, v, x, t):
        return d(u, t) - 0.1 * d(u, x, x) - 0.1 * v

    @sciml.equation
    def second(self, v, x, t):
        return d(v, t) - 0.1 * d(v, x, x)


@pytest.mark.slow
def test_what_no_node_sees_of_a_start_is_no_success_and_no_truth():
    missed = sciml.baseline(Beside())
    assert not missed.success
    assert "narrow near x=0.43" in missed.message
    assert missed.estimated_error == {}
    right = sciml.fit(Beside())
    assert right.success, right.message
    assert sciml.compare(right, missed).table["remark"].iloc[0] == "taken as the truth"


TWO = sciml.Interval(t=(0, 2))


@pytest.mark.parametrize("start", [sciml.Dirichlet(x=1.0, on=TWO.face(t=0)), sciml.Initial(x=1.0)])
def test_what_is_prescribed_at_both_ends_of_time_is_a_boundary_value_problem(start):
    """Optimal control of an oscillator by Pontryagin's principle: at the end the costate vanishes."""

    class Steered(sciml.Problem):
        domain = TWO
        fields = ["x", "p"]
        conditions = [start, sciml.Dirichlet(p=0.0, on=TWO.face(t=2))]

        @sciml.equation
        def state(self, x, p, t):
            return d(x, t) - x + p

        @sciml.equation
        def costate(self, x, p, t):
            return d(p, t) + x + p

    found = sciml.baseline(Steered())
    t = np.linspace(0, 2, 9)
    # The Riccati equation of the gain: q' = q^2 - 2 q - 1, q(2) = 0.
    root = math.sqrt(2.0)
    gain = np.tanh(root * (2 - t)) / (root - np.tanh(root * (2 - t)))
    assert found.success
    assert np.allclose(found(t=t)["p"], gain * found(t=t)["x"], atol=1e-7)


def test_without_a_start_what_is_prescribed_at_the_end_is_none():
    class Backwards(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [
            sciml.Dirichlet(u=lambda x, t: torch.sin(torch.pi * x), on=domain.face(t=1)),
            sciml.Dirichlet(u=0.0, on=domain.faces("x")),
        ]

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - 0.1 * d(u, x, x)

    with pytest.raises(sciml.errors.BaselineError, match="no initial value"):
        sciml.baseline(Backwards())


@pytest.mark.parametrize("tolerance", [1e-3, 1e-4])
def test_a_kink_and_a_loose_tolerance_make_no_contradiction(tolerance):
    class Rod(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Neumann(u=0.0), sciml.Mean(u=0.0)]

        @sciml.equation
        def heat(self, u, x):
            return d(u, x, x) + torch.abs(x - 0.37) - (0.37**2 + 0.63**2) / 2

    assert sciml.baseline(Rod(), tolerance=tolerance).success


class Junction(sciml.Problem):
    """A p-n junction under a reverse voltage: steps of Newton's method are halved many times."""

    domain = sciml.Interval(x=(-1, 1))
    fields = ["psi", "n", "p"]
    many, few = 1.0001, 1e-4
    conditions = [
        sciml.Dirichlet(psi=math.log(1e2), n=many, p=few, on=domain.face(x=1)),
        sciml.Dirichlet(psi=5.0 - math.log(1e2), n=few, p=many, on=domain.face(x=-1)),
    ]

    @sciml.equation
    def charge(self, psi, n, p, x):
        return 1e-3 * d(psi, x, x) - n + p + torch.tanh(x / 0.05)

    @sciml.equation
    def electrons(self, psi, n, x):
        return d(d(n, x) - n * d(psi, x), x)

    @sciml.equation
    def holes(self, psi, p, x):
        return d(d(p, x) + p * d(psi, x), x)


def test_slopes_are_those_of_steps_that_are_taken(monkeypatch):
    calls = {"linearized": 0, "_residual": 0}

    def counted(name):
        usual = getattr(CollocationSystem, name)

        def called(*args):
            calls[name] += 1
            return usual(*args)

        return called

    for name in calls:
        monkeypatch.setattr(CollocationSystem, name, counted(name))
    found = sciml.baseline(Junction(), n=65, method="differences")
    assert abs(float(found(x=1.0)["n"]) - 1.0001) < 1e-6
    assert calls["_residual"] > 2 * calls["linearized"]

"""Problems on domains beyond boxes: conditions on curved boundaries, products with time, what a solution knows of them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import j0, j1

import sciml
from sciml import d
from sciml.diagnostics.certificate import hidden_step
from sciml.errors import DataError, ProblemError, SolverError
from sciml.geometry import Interior, OnFaces, draw
from sciml.models import Scaled
from sciml.solvers import ResidualSystem
from sciml.strategies.prepare import prepare
from sciml.strategies.random_features import part_of

ZERO = 2.404825557695773
DISK = sciml.Disk((0.3, -0.2), 1.5)


def squared(x, y):
    return (x - 0.3) ** 2 + (y + 0.2) ** 2


class Membrane(sciml.Problem):
    """A disk that is held at its edge: u = (R² - r²)/4."""

    domain = DISK
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 1

    def reference(self, x, y):
        return (1.5**2 - squared(x, y)) / 4


class Cooled(Membrane):
    """The same with u' = -a u at the edge: u is larger by R/(2a)."""

    a = 2.0
    conditions = [sciml.Robin(u=0.0, coefficient=lambda self, x: self.a + 0 * x, on=DISK.boundary)]

    def reference(self, x, y):
        return (1.5**2 - squared(x, y)) / 4 + 1.5 / (2 * self.a)


class Pinned(Membrane):
    """The same with the slope -R/2 at the edge, which leaves a constant open; a point gives it."""

    conditions = [sciml.Neumann(u=-0.75, on=DISK.boundary), sciml.Point(u=2.0, at={"x": 0.3, "y": -0.2})]

    def reference(self, x, y):
        return 2 - squared(x, y) / 4


class Ring(Membrane):
    """Between two circles, with a slope given at the inner one: u = log r."""

    domain = sciml.Disk((0, 0), 2, piece="outer") - sciml.Disk((0, 0), 1, piece="inner")
    conditions = [
        sciml.Dirichlet(u=math.log(2), on=domain.piece("outer")),
        sciml.Neumann(u=-1.0, on=domain.piece("inner")),
    ]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y)

    def reference(self, x, y):
        return 0.5 * torch.log(x * x + y * y)


class Triangle(Membrane):
    """Saint-Venant's torsion of an equilateral triangle: a polynomial of third degree."""

    domain = sciml.Polygon([(-1, -(3**0.5)), (2, 0), (-1, 3**0.5)])
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    def reference(self, x, y):
        # The product of the distances from the sides has the Laplacian -12 here.
        s = 3**0.5
        return (x + 1) * (2 - x - s * y) * (2 - x + s * y) / 12


class Sphere(sciml.Problem):
    domain = sciml.Ball((0, 0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Robin(u=lambda x, y, z: 2 * x * y * z + 2 * x * y * z, coefficient=1.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y, z):
        return d(u, x, x) + d(u, y, y) + d(u, z, z)

    def reference(self, x, y, z):
        return x * y * z


class Cooling(sciml.Problem):
    """Heat leaves a disk through its edge: the slowest mode."""

    domain = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 0.2))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.special.bessel_j0(ZERO * torch.sqrt(x * x + y * y))),
        sciml.Dirichlet(u=0.0, on=domain.boundary),
    ]

    @sciml.equation
    def conduction(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y)

    def reference(self, x, y, t):
        return torch.special.bessel_j0(ZERO * torch.sqrt(x * x + y * y)) * torch.exp(-(ZERO**2) * t)


@pytest.mark.parametrize(
    ("problem", "target"),
    [
        (Membrane, 1e-11),
        (Cooled, 1e-11),
        (Pinned, 1e-11),
        pytest.param(Ring, 1e-8, marks=pytest.mark.slow),
        (Triangle, 1e-11),
        (Sphere, 1e-9),
    ],
)
def test_linear_problems_without_settings(problem, target):
    solution = sciml.fit(problem())
    assert solution.success
    assert solution.error()["u"] <= target


def test_heat_on_a_disk_times_time():
    solution = sciml.fit(Cooling())
    assert solution.success
    assert solution.error()["u"] <= 1e-9


def test_windows_of_time_on_a_product():
    solution = sciml.fit(Cooling(), sciml.RandomFeatures(300, 2.0), solver=sciml.GaussNewton(3), points=900, windows=2)
    assert solution.error(resolution=15)["u"] < 1e-3
    assert type(solution.trial).__name__ == "Windowed"


def prepared(problem, points=400):
    return prepare(problem, sciml.MLP(4), None, points, None, torch.float64, "cpu", 0)


def test_all_points_of_a_fit_lie_where_they_should():
    class Plate(Membrane):
        domain = sciml.Box(x=(-1, 1), y=(-1, 1)) - sciml.Disk((0, 0), 0.5)
        conditions = [sciml.Dirichlet(u=0.0, on=domain.piece("circle")), sciml.Neumann(u=0.0, on=domain.face(x=1))]

    setup = prepared(Plate())
    for blocks in (setup.train, setup.held, setup.fresh):
        inside, circle, face = (block.sample.points[0].numpy() for block in blocks)
        assert (Plate.domain.distance(inside) < 0).all()
        assert np.hypot(*circle.T) == pytest.approx(0.5)
        assert (face[:, 0] == 1).all()
    generator = np.random.default_rng(1)
    redrawn = sciml.Adaptive(candidates=4).renewed(setup.objective(), generator)
    fresh = redrawn[0].sample.points[0].numpy()
    assert len(fresh) == 400
    assert not np.array_equal(fresh, setup.train[0].sample.points[0].numpy())
    assert (Plate.domain.distance(fresh) < 0).all()


def test_a_part_of_the_points_has_some_on_every_piece():
    block = next(block for block in prepared(Triangle(), 3000).train if isinstance(block.terms[0].place, OnFaces))
    part = part_of(block, 1e-4, 2)
    assert part.sample.faces == (4, 4, 4)
    start = 0
    for count, before in zip(part.sample.faces, np.cumsum([0, *block.sample.faces[:-1]]), strict=True):
        taken = slice(start, start + count)
        assert torch.equal(part.sample.points[0][taken], block.sample.points[0][before : before + count])
        assert torch.equal(part.sample.normals[taken], block.sample.normals[before : before + count])
        start += count


def test_numbers_of_points_can_be_named():
    class Half(Triangle):
        conditions = [
            sciml.Dirichlet(u=0.0, on=Triangle.domain.edge(0)),
            sciml.Neumann(u=0.0, on=Triangle.domain.edge(1, 2)),
        ]

    sizes = [
        block.size for block in prepare(Half(), sciml.MLP(4), None, {"dirichlet": 100}, None, torch.float64, "cpu", 0).train
    ]
    share = Triangle.domain.relative_size(Triangle.domain.edge(0).faces[0])
    assert sizes[1] == round(100 * share)


def test_a_solution_knows_its_domain(tmp_path):
    solution = sciml.fit(Ring(), sciml.RandomFeatures(400, 2.0), solver=sciml.LinearLeastSquares())
    with pytest.warns(sciml.ExtrapolationWarning, match=r"1 of 2 points lie outside the domain Disk"):
        solution(x=[0.0, 1.5], y=0.0)
    again = sciml.load(solution.save(tmp_path / "ring.pt"))
    assert again.domain == Ring.domain
    with pytest.warns(sciml.ExtrapolationWarning, match="outside the domain Disk"):
        again(x=torch.tensor([0.1]), y=0.0)
    assert again(x=1.5, y=0.0)["u"] == solution(x=1.5, y=0.0)["u"]
    # The reference need not exist outside: log r is infinite at the centre.
    assert again.error(lambda x, y: 0.5 * np.log(x * x + y * y))["u"] < 1e-3


def test_pictures_leave_out_what_is_outside():
    solution = sciml.fit(Ring(), sciml.RandomFeatures(400, 2.0), solver=sciml.LinearLeastSquares())
    figure = solution.plot()
    values = np.ma.filled(figure.axes[0].collections[0].get_array(), np.nan).reshape(401, 401)
    assert np.isnan(values[200, 200])
    assert np.isnan(values[0, 0])
    assert np.isfinite(values).mean() == pytest.approx(3 * math.pi / 16, abs=0.01)
    assert np.nanmax(values) == pytest.approx(math.log(2), abs=1e-3)


def test_data_outside_the_domain_are_refused():
    with pytest.raises(DataError, match=r"1 of 2 rows lie outside the domain Disk.*first in row 1 with x = 1\.7, y = 1\.2"):
        sciml.fit(Membrane(), data={"x": [0.0, 1.7], "y": [0.0, 1.2], "u": [0.0, 0.0]})


def test_steps_are_looked_for_inside_alone():
    class Wild(torch.nn.Module):
        """Harmless in the ring, with a step in the hole."""

        def forward(self, points):
            inner = torch.relu(0.5 - points.square().sum(1).sqrt())
            return 1.0 + points[:, :1] + torch.sign(inner).unsqueeze(1)

    anchor = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    trial = Wild()
    trial.register_parameter("anchor", anchor)
    assert hidden_step(ResidualSystem(Ring(), trial, {})) is None


def bad(conditions, domain=DISK):
    return type("Bad", (Membrane,), {"conditions": conditions, "domain": domain})


@pytest.mark.parametrize(
    ("problem", "options", "error", "words"),
    [
        (
            Membrane,
            {"exact": True},
            ProblemError,
            r"faces of a box, and Membrane has the domain Disk\(\(0\.3, -0\.2\), 1\.5\)",
        ),
        (lambda: bad([sciml.Periodic("x")])(), {}, ProblemError, r"Periodic\('x'\) needs two opposite faces, and Disk"),
        (Membrane, {"windows": 2}, SolverError, "no time coordinate"),
        (
            lambda: bad([sciml.Point(u=0.0, at={"x": 5, "y": 0})])(),
            {},
            ProblemError,
            r"Point: at=\{'x': 5\.0, 'y': 0\.0\} lies outside the domain Disk",
        ),
        (lambda: bad([sciml.Point(u=0.0, at={"x": 5})]), {}, ProblemError, "at= must name 'x', 'y'; given: 'x'"),
        (lambda: sciml.Point(u=0.0, at=[0, 0]), {}, ProblemError, "a number for every coordinate"),
        (lambda: bad([sciml.Robin(v=0.0, coefficient=1.0, on=DISK.boundary)]), {}, ProblemError, "Robin names 'v'"),
        (
            lambda: bad([sciml.Robin(u=0.0, coefficient=lambda z: z, on=DISK.boundary)]),
            {},
            ProblemError,
            "Robin.coefficient=.*'z'",
        ),
        (lambda: Membrane(domain=sciml.Interval(x=(0, 1))), {}, ProblemError, "domain with the coordinates 'x', 'y'"),
    ],
)
def test_what_makes_no_sense_is_refused(problem, options, error, words):
    with pytest.raises(error, match=words):
        sciml.fit(problem(), **options)


def test_time_needs_a_start():
    class Wedge(sciml.Problem):
        domain = sciml.Polygon([(0, 0), (1, 0), (2, 1), (0, 1)], names=("x", "t"))
        fields = ["u"]
        conditions = [sciml.Initial(u=0.0)]

        @sciml.equation
        def transport(self, u, x, t):
            return d(u, t) - d(u, x)

    with pytest.raises(ProblemError, match="Initial needs a domain with a start of time"):
        sciml.fit(Wedge())


def test_contradictions_at_the_start_of_time_are_reported():
    class Clash(Cooling):
        conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=Cooling.domain.piece("circle"))]

    notes = prepared(Clash()).choices
    assert any("'initial' and 'dirichlet' contradict each other" in note for note in notes)
    assert not any("contradict" in note for note in prepared(Cooling()).choices)


def test_a_problem_moves_to_another_domain():
    solution = sciml.fit(Membrane(domain=sciml.Disk((0.3, -0.2), 0.5)))
    assert float(solution(x=0.3, y=-0.2)["u"]) == pytest.approx(0.25 / 4)
    points = draw(Interior(), solution.domain, 10, np.random.default_rng(0)).points[0]
    assert len(points) == 10


def test_solutions_on_a_shape_are_compared_inside_it():
    problem = Ring()
    one, two = (
        sciml.fit(problem, sciml.RandomFeatures(200, 1.0), solver=sciml.LinearLeastSquares(), seed=seed) for seed in (0, 1)
    )
    table = sciml.compare(one, two).table
    assert (table["u: relative L2"] < 0.1).all()
    grid = one.grid(50)
    assert Ring.domain.contains(np.stack([grid["x"], grid["y"]], axis=1)).all()
    assert len(grid["x"]) / 2500 == pytest.approx(3 * math.pi / 16, abs=0.03)


def test_a_nonlinear_problem_without_settings():
    class Bratu(sciml.Problem):
        """Δu + e^u = 0 on the unit disk: u = log(8b/(1 + b r²)²) with 8b = (1 + b)², the smaller root."""

        domain = sciml.Disk((0, 0), 1)
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]
        b = 3 - 8**0.5

        @sciml.equation
        def balance(self, u, x, y):
            return d(u, x, x) + d(u, y, y) + torch.exp(u)

        def reference(self, x, y):
            return torch.log(8 * self.b / (1 + self.b * (x * x + y * y)) ** 2)

    solution = sciml.fit(Bratu())
    assert solution.success
    assert solution.error()["u"] < 1e-9


COOLED = sciml.Disk((0.0, 0.0), 1.0) * sciml.Interval(t=(0, 0.3))


class Cooled(sciml.Problem):
    """A disk of temperature one is put into cold air: start and Robin's condition contradict each other."""

    domain = COOLED
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0), sciml.Robin(u=0.0, coefficient=2.0, on=COOLED.boundary)]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y)


def cooled(r, t):
    """The series of Bessel's functions, H. S. Carslaw and J. C. Jaeger, Conduction of Heat in Solids, 1959, section 7.7."""
    characteristic = lambda a: a * j1(a) - 2 * j0(a)  # noqa: E731
    at = np.linspace(1e-6, 150, 15_000)
    signs = characteristic(at)
    roots = [brentq(characteristic, at[k], at[k + 1]) for k in np.flatnonzero(signs[:-1] * signs[1:] < 0)]
    return sum(2 * j1(a) / (a * (j0(a) ** 2 + j1(a) ** 2)) * j0(a * r) * np.exp(-a * a * t) for a in roots)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_a_start_that_contradicts_the_conditions_costs_digits_in_a_layer_alone():
    solution = sciml.fit(Cooled(), strategy="TimeMarching")
    r = np.linspace(0, 1, 40)
    for t, tolerance in ((0.01, 1e-2), (0.05, 1e-4), (0.3, 1e-5)):
        found = solution(x=r * np.cos(0.7), y=r * np.sin(0.7), t=t)["u"]
        assert np.abs(found - cooled(r, t)).max() < tolerance
    assert solution.success
    assert any("judged beyond the layer" in each for each in solution.choices)
    times = (np.arange(40) + 0.5) / 40 * 0.3
    exact = np.stack([cooled(np.sqrt((r + 1e-3) / 1.001), t) for t in times])
    found = np.stack([solution(x=np.sqrt((r + 1e-3) / 1.001), y=0 * r, t=t)["u"] for t in times])
    assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < solution.estimated_error["u"] < 1e-3


def test_a_derivative_that_is_nothing_beside_its_field_makes_no_step():
    class Slight(torch.nn.Module):
        """Its derivative by y is one of rounding on tiles, or of their error, and jumps there."""

        def __init__(self, size):
            super().__init__()
            self.size = torch.nn.Parameter(torch.tensor(size, dtype=torch.float64))

        def forward(self, points):
            return points[:, :1] + self.size * torch.relu(points[:, 1:2] - 0.111)

    def step(size, width=1.0):
        class Small(Ring):
            domain = sciml.Disk((0, 0), width) - sciml.Disk((0, 0), 0.5 * width)

        trial = Scaled(Slight(size), Small.domain.lower, Small.domain.upper, [0.0], [1.0])
        return hidden_step(ResidualSystem(Small(), trial, {}, taylor=False))

    assert step(1e-9) is None
    assert step(1e-5) is None
    assert step(1e-2) is not None
    assert step(1e-2, 1e-6) is not None


def test_an_equation_that_overflows_on_coarse_tiles_is_no_error_of_linear_algebra():
    ring = sciml.Disk((0, 0), 1, piece="outer") - sciml.Disk((0, 0), 0.3, piece="inner")

    class Steep(sciml.Problem):
        domain = ring
        fields = ["u"]
        conditions = [
            sciml.Dirichlet(u=40.0, on=domain.piece("inner")),
            sciml.Dirichlet(u=0.0, on=domain.piece("outer")),
        ]

        @sciml.equation
        def charge(self, u, x, y):
            return 4e-4 * sciml.laplacian(u, x, y) - torch.sinh(20 * u)

    solution = sciml.fit(Steep(), strategy=sciml.strategies.Tiles(4, 6))
    assert not solution.success
    assert "not finite" in solution.message

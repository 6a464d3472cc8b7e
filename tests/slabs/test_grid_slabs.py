"""Slabs of time on grids: the approximate inverse, what it leaves free, and problems that `fit` solves by them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
import torch
from candidates import workspace
from conftest import problem_class

import sciml
from sciml import d
from sciml.models import Chebyshev, Fourier, RandomFeatures
from sciml.models.radau import RadauIIA
from sciml.problem.compatibility import contradictions
from sciml.slabs.grids import GridPreconditioner, GridSpace
from sciml.slabs.row_layout import arranged
from sciml.slabs.system import Site, Slab
from sciml.strategies import TimeMarching
from sciml.strategies.grid_slabs import GridWindows, not_on_grid
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Budget, Log

PI = math.pi
F64 = torch.float64
PLANE = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))


class Heat(sciml.Problem):
    domain = PLANE
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(PI * x) * torch.cos(PI * y)),
        sciml.Dirichlet(u=0.0, on=PLANE.faces("x")),
        sciml.Neumann(u=0.0, on=PLANE.faces("y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - (1 + x * y) * (d(u, x, x) + d(u, y, y))


class Stokes(sciml.Problem):
    """Unsteady, periodic: its pressure has no rate and is given up to a number."""

    domain = PLANE
    fields = ["u", "v", "p"]
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: torch.sin(2 * PI * y), v=lambda x, y: torch.sin(2 * PI * x)),
    ]

    @sciml.equation
    def along(self, u, v, p, x, y, t):
        return d(u, t) + d(p, x) - d(u, x, x) - d(u, y, y) - torch.cos(2 * PI * x)

    @sciml.equation
    def across(self, u, v, p, x, y, t):
        return d(v, t) + d(p, y) - d(v, x, x) - d(v, y, y)

    @sciml.equation
    def continuity(self, u, v, x, y):
        return d(u, x) + d(v, y)


class Channel(Heat):
    """Periodic along x, walls along y."""

    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(2 * PI * x) * y),
        sciml.Periodic("x"),
        sciml.Dirichlet(u=0.0, on=PLANE.faces("y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) + y * d(u, x) - d(u, x, x) - d(u, y, y) * (1 + y)


def slab_of(problem, space, *, length=0.1, stages=4):
    fields = problem.fields
    orders = tuple(problem.order(name, "t") for name in fields)
    sites, rows = [], []
    for row in arranged(problem, space, dict(zip(fields, orders, strict=True)), rates=False):
        sites.append(Site(row.term, (space.nodes(row.at),), 1.0, row.normals))
        rows.append(torch.from_numpy(fields.index(row.field) * space.size + row.numbers))
    starts = tuple(torch.zeros(order, space.size, dtype=F64) for order in orders)
    return Slab(problem, space, RadauIIA(stages), 0.0, length, orders, starts, (1.0,) * len(fields)), sites, rows


class Decay(Heat):
    """No derivative in space: every row has one unknown."""

    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) + (1 + x * y) * u


class Walls(Heat):
    """All unknowns at the ends are given."""

    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=lambda x, y, t: x * t, on=PLANE.faces("x", "y"))]


def box(x, y, counts=(7, 9)):
    kinds = {True: Fourier, False: Chebyshev}
    return GridSpace({"x": kinds[x](0.0, 1.0, counts[0]), "y": kinds[y](0.0, 1.0, counts[1])})


@pytest.mark.parametrize("counts", [(7, 9), (8, 11), (5, 67)], ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize(
    ("problem", "periodic"),
    [(Heat(), (False, False)), (Walls(), (False, False)), (Decay(), (False, False)), (Channel(), (True, False))],
    ids=lambda each: type(each).__name__,
)
def test_the_inverse_is_exact_where_nothing_changes_along_waves_or_in_time(problem, periodic, counts):
    """With explicit inverses and with factors, in which rows of a single unknown have no part."""
    slab, sites, rows = slab_of(problem, box(*periodic, counts))
    evaluated = slab.evaluate(sites, slab.zero(), slopes=True)
    inverse = GridPreconditioner(rows, slab, evaluated)
    rates = torch.randn(slab.zero().shape, dtype=F64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(inverse(slab.product(evaluated, rates)), rates, atol=1e-9)


def test_what_nothing_determines_stays_zero():
    slab, sites, rows = slab_of(Stokes(), box(True, True))
    evaluated = slab.evaluate(sites, slab.zero(), slopes=True)
    inverse = GridPreconditioner(rows, slab, evaluated)
    rates = inverse([each.values for each in evaluated])
    assert float(rates[:, 2].mean(1).abs().max()) < 1e-13
    assert float(rates[:, 2].abs().max()) > 0.1
    left = [one + two.values for one, two in zip(slab.product(evaluated, -rates), evaluated, strict=True)]
    assert max(float(each.abs().max()) for each in left) < 1e-12


def test_derivatives_at_nodes_and_between_them():
    space = box(True, False)
    x, y = (torch.from_numpy(each) for each in space.points.T)
    values = space.local((torch.sin(2 * PI * x) * y**3)[None])
    for trace in (space.nodes(), space.nodes(np.arange(5, 20)), space.between()):
        px, py = (each[0] for each in trace.columns)
        exact = 2 * PI * torch.cos(2 * PI * px) * 3 * py**2
        assert torch.allclose(trace.jet(values, ("y", "x"))[0, 0], exact, atol=1e-11)


def relative(solution, exact, count=2000):
    generator = np.random.default_rng(0)
    at = {name: generator.uniform(low, high, count) for name, (low, high) in solution.domain.bounds.items()}
    truth = exact(**at)
    found = solution(**at)
    return {name: float(np.linalg.norm(found[name] - each) / np.linalg.norm(each)) for name, each in truth.items()}


def test_waves_run_for_long():
    """Two standing waves with speeds 1 and √2 along the coordinates, through 14 periods of the faster one."""

    class Membrane(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 8))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x, y: torch.sin(PI * x) * torch.sin(2 * PI * y), u_t=0.0),
            sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
        ]

        @sciml.equation
        def motion(self, u, x, y, t):
            return d(u, t, t) - d(u, x, x) - 2 * d(u, y, y)

    solution = sciml.fit(Membrane())
    assert solution.success
    exact = lambda x, y, t: {"u": np.sin(PI * x) * np.sin(2 * PI * y) * np.cos(3 * PI * t)}  # noqa: E731
    assert relative(solution, exact)["u"] < 1e-8


@pytest.mark.parametrize(
    ("level", "more"),
    [
        (sciml.Mean(p=2.0), lambda t: 2.0 + 0 * t),
        (
            sciml.Point(p=1.0, at={"x": 0.3, "y": 2.0}),
            lambda t: 1.0 + (math.cos(0.6) + math.cos(4.0)) / 4 * torch.exp(-0.04 * t),
        ),
    ],
)
def test_a_level_holds_at_each_time(level, more):
    class Vortices(problem_class("taylor_green")):
        conditions = [*problem_class("taylor_green").conditions[:-1], level]

        def reference(self, x, y, t):
            found = super().reference(x, y, t)
            return {**found, "p": found["p"] + more(t)}

    solution = sciml.fit(Vortices())
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-9
    assert any("spectral collocation on grids" in each for each in solution.choices)


def test_a_nonlinear_system_is_refined_where_it_steepens():
    """Cahn and Hilliard's equation, of fourth order: the mean stays, the energy falls."""

    class Separation(sciml.Problem):
        domain = sciml.Box(x=(0, 2 * PI), y=(0, 2 * PI), t=(0, 1))
        fields = ["c", "mu"]
        conditions = [
            sciml.Periodic("x"),
            sciml.Periodic("y"),
            sciml.Initial(c=lambda x, y: 0.1 + 0.05 * torch.cos(3 * x) * torch.cos(4 * y) + 0.05 * torch.sin(x + 2 * y)),
        ]

        @sciml.equation
        def motion(self, c, mu, x, y, t):
            return d(c, t) - d(mu, x, x) - d(mu, y, y)

        @sciml.equation
        def potential(self, c, mu, x, y):
            return mu - c**3 + c + 0.1 * (d(c, x, x) + d(c, y, y))

    solution = sciml.fit(Separation())
    assert solution.success
    x, y = (each.ravel() for each in np.meshgrid(*[np.arange(32) * PI / 16] * 2))
    means, energies = [], []
    for t in (0.0, 0.5, 1.0):
        c = solution(x=x, y=y, t=t)["c"].reshape(32, 32)
        waves = 1j * np.fft.fftfreq(32, 1 / 32)
        slopes = [np.fft.ifft2(np.fft.fft2(c) * each).real for each in (waves[:, None], waves)]
        means.append(c.mean())
        energies.append(((c**2 - 1) ** 2 / 4 + 0.05 * sum(each**2 for each in slopes)).mean())
    assert np.allclose(means, 0.1, atol=1e-9)
    assert energies[0] > energies[1] > energies[2]


def test_what_grids_do_not_serve_is_said():
    class Over(Heat):
        conditions = [*Heat.conditions, sciml.Dirichlet(u=1.0, on=PLANE.faces("y"))]

    assert "too many conditions" in not_on_grid(Over())
    # Least squares take them.
    assert TimeMarching().unless_in_slabs(workspace(Over())) is None


class Heated(sciml.Problem):
    """A cold square heated all over at once: its walls, which stay cold, contradict the rate at which it begins."""

    domain = sciml.Box(x=(0, 1), y=(0, 1)) * sciml.Interval(t=(0, 0.1))
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x", "y"))]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - sciml.laplacian(u, x, y) - 1


def test_a_rough_start_is_judged_by_its_error():
    """Its walls contradict the rate at which it begins, and its corners do so at all times."""
    solution = sciml.fit(Heated())
    assert solution.success, solution.message
    assert "spectral collocation on grids; the start is rough" in solution.choices[0]
    x, y, t = np.random.default_rng(0).uniform([[0.0]] * 3, [[1.0], [1.0], [0.1]], (3, 300))
    m = np.arange(1, 400, 2)[:, None, None] * np.pi
    n = m.reshape(1, -1, 1)
    rates = m**2 + n**2
    exact = (16 / (m * n) * np.sin(m * x) * np.sin(n * y) * -np.expm1(-rates * t) / rates).sum((0, 1))
    assert np.linalg.norm(solution(x=x, y=y, t=t)["u"] - exact) < 3e-6 * np.linalg.norm(exact)
    assert solution.estimated_error["u"] < 1e-5


class Chilled(sciml.Problem):
    """A hot square whose walls are cold at once: a layer that is known."""

    domain = sciml.Box(x=(-1, 1), y=(-1, 1), t=(0, 0.5))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - sciml.laplacian(u, x, y)


def cooled(x, t):
    """The temperature of a plate that is one thick, as a sum of waves."""
    numbers = (np.arange(20_000)[:, None] + 0.5) * np.pi
    signs = 1 - 2 * (np.arange(len(numbers))[:, None] % 2)
    return (2 * signs / numbers * np.cos(numbers * x) * np.exp(-(numbers**2) * t)).sum(0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_the_error_of_a_sudden_start_is_estimated_over_all_times():
    solution = sciml.fit(Chilled())
    assert solution.success, solution.message
    # When the layer has grown, fewer nodes resolve it.
    counts = [window.model.values.shape[0] for window in solution.trial.windows]
    assert counts[-1] < max(counts) / 2
    generator, error, size = np.random.default_rng(0), 0.0, 0.0
    for low, high in itertools.pairwise([0.0, *0.5 * 10.0 ** np.arange(-6, 0.5)]):
        # Near the walls there are as many as the layer is thin.
        angles = generator.uniform(0, PI, (2, 200))
        (x, y), t = np.cos(angles), generator.uniform(low, high, 200)
        exact, shares = cooled(x, t) * cooled(y, t), np.sin(angles).prod(0)
        error += (high - low) * (shares * (solution(x=x, y=y, t=t)["u"] - exact) ** 2).mean()
        size += (high - low) * (shares * exact**2).mean()
    assert math.sqrt(error / size) < 1e-4
    assert math.sqrt(error / size) < 3 * solution.estimated_error["u"]


class Plucked(sciml.Problem):
    """A membrane that begins with a rate of its rate that its frame does not have: nothing smooths it."""

    domain = PLANE
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x, y: x * (1 - x) * y * (1 - y), u_t=0.0), sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def motion(self, u, x, y, t):
        return d(u, t, t) - sciml.laplacian(u, x, y)


class Stamped(Chilled):
    """A start that jumps inside, along a rectangle."""

    domain = sciml.Box(x=(-1, 1), y=(-1, 1), t=(0, 0.1))
    conditions = [
        sciml.Initial(u=lambda x, y: ((x.abs() < 0.5) & ((y - 0.1).abs() < 0.3)).to(x.dtype)),
        sciml.Dirichlet(u=0.0),
    ]


def spread(x, t, low, high):
    """The temperature between cold walls at -1 and 1 that was one from low to high, as a sum of waves."""
    numbers = np.arange(1, 3000)[:, None] * PI / 2
    weights = (np.cos(numbers * (low + 1)) - np.cos(numbers * (high + 1))) / numbers
    return (weights * np.sin(numbers * (x + 1)) * np.exp(-(numbers**2) * t)).sum(0)


def test_a_start_that_jumps_inside_is_right_soon_after(monkeypatch):
    monkeypatch.setattr("sciml.strategies.grid_slabs._EFFORT", 5e9)
    solution = sciml.fit(Stamped())
    assert "spectral collocation on grids; the start is rough" in solution.choices[0]
    generator, error, size = np.random.default_rng(0), 0.0, 0.0
    for low, high in itertools.pairwise([0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1]):
        (x, y), t = generator.uniform(-1, 1, (2, 2000)), generator.uniform(low, high, 2000)
        exact = spread(x, t, -0.5, 0.5) * spread(y, t, -0.2, 0.4)
        gap = solution(x=x, y=y, t=t)["u"] - exact
        error += (high - low) * (gap**2).mean()
        size += (high - low) * (exact**2).mean()
    # Nothing of what the grid could not hold is left in the end.
    assert np.linalg.norm(gap) < 1e-5 * np.linalg.norm(exact)
    assert math.sqrt(error / size) < 1e-2
    assert math.sqrt(error / size) / 2 < solution.estimated_error["u"] < 10 * math.sqrt(error / size)


class Beside(sciml.Problem):
    """A field that jumps, and two that do not: one at rest and one that the grid resolves."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.1))
    fields = ["u", "v", "w"]
    conditions = [
        sciml.Initial(u=lambda x, y: (x + y < 0.7).to(x.dtype), v=0.37, w=lambda x, y: torch.cos(2 * PI * x)),
        sciml.Neumann(u=0.0, v=0.0, w=0.0),
    ]

    @sciml.equation
    def first(self, u, v, w, x, y, t):
        return d(u, t) - sciml.laplacian(u, x, y)

    @sciml.equation
    def second(self, u, v, w, x, y, t):
        return d(v, t) - sciml.laplacian(v, x, y)

    @sciml.equation
    def third(self, u, v, w, x, y, t):
        return d(w, t) - sciml.laplacian(w, x, y)


def test_fields_beside_one_that_jumps_are_as_exact_as_without(monkeypatch):
    monkeypatch.setattr("sciml.strategies.grid_slabs._EFFORT", 5e9)
    solution = sciml.fit(Beside())
    assert solution.estimated_error["v"] < 1e-6
    x, y = np.random.default_rng(0).uniform(0, 1, (2, 200))
    late = solution(x=x, y=y, t=np.full(200, 0.1))
    assert np.abs(late["v"] - 0.37).max() < 1e-8
    assert np.abs(late["w"] - np.cos(2 * PI * x) * math.exp(-0.4 * PI**2)).max() < 1e-5
    places = (np.arange(40) + 0.5) / 40
    x, y = (each.ravel() for each in np.meshgrid(places, places))
    assert solution(x=x, y=y, t=np.full(1600, 0.1))["u"].mean() == pytest.approx(0.245, rel=1e-5)


def test_finer_grids_in_vain_end_the_search_for_a_first_window(monkeypatch):
    work = workspace(Stamped())
    grid = GridWindows(work.discrete, work.log, 1e-9, 1e-3)
    tried, counts = grid._tried, []

    def useless(space, *rest):
        counts.append(space.size)
        found = tried(space, *rest)
        return found if len(counts) == 1 else replace(found, part=math.inf, solved=False)

    monkeypatch.setattr(grid, "_tried", useless)
    grid._projects = grid._start_is_rough = True
    assert grid._smallest_part(0.0, 0.005) is not None
    assert len(counts) < 6


class Inked(sciml.Problem):
    """A drop in a wind that goes round: what there is stays."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: ((x - 0.3) ** 2 + (y - 0.5) ** 2 < 0.04).to(x.dtype)),
    ]

    @sciml.equation
    def spreads(self, u, x, y, t):
        return d(u, t) + 0.5 * d(u, x) - 0.02 * sciml.laplacian(u, x, y)


@pytest.mark.parametrize(("memory", "fewest", "most"), [(1e7, 0, 1e6), (2e8, 1e6, 2e7)])
def test_a_projection_takes_the_memory_that_a_fit_allows(monkeypatch, memory, fewest, most):
    work, counts = workspace(Inked()), []
    grid = GridWindows(work.discrete, Log(budget=Budget(memory=memory)), 1e-9, 1e-3)
    started = grid._start_values
    monkeypatch.setattr(grid, "_start_values", lambda at, *rest: counts.append(len(at[0])) or started(at, *rest))
    grid._projects = True
    grid._starts(grid._grid, 0.0, None)
    assert fewest < 8 * sum(counts) < most


def test_a_drop_in_a_periodic_wind_stays_as_much_as_it_was(monkeypatch):
    monkeypatch.setattr("sciml.strategies.grid_slabs._OF_A_JUMP", 1.0)
    solution = sciml.fit(Inked())
    places = (np.arange(64) + 0.5) / 64
    x, y = (each.ravel() for each in np.meshgrid(places, places))
    values = solution(x=x, y=y, t=np.ones_like(x))["u"]
    assert values.mean() == pytest.approx(0.04 * PI, rel=1e-6)
    # The first wave along the wind has gone half way round, and diffused.
    wave, moment = np.exp(-2j * PI * x), 0.2 * float(scipy.special.j1(0.4 * PI))
    assert (values * wave).mean() == pytest.approx(moment * np.exp(-2j * PI * 0.3 - 1j * PI - 0.02 * 4 * PI**2), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_starts_that_are_too_rough_for_grids_are_left_to_tiles():
    problem = Plucked()
    setup = prepare(problem, RandomFeatures(), None, 400, None, torch.float64, "cpu", 0)
    grid = GridWindows(setup, Log(), 1e-9, 1e-3)
    grid.alone = False
    lengths = iter((0.05, 0.025, 0.0125))
    while not grid.gives_up:
        assert grid(0.0, next(lengths), None)[1] > grid.target


def test_between_the_nodes_is_between_them_along_diagonals_too():
    """Half way along both coordinates a function of their sum is at the nodes again, where its residual vanishes."""
    space = GridSpace({"x": Fourier(0.0, 1.0, 15), "y": Fourier(0.0, 1.0, 15)})
    x, y = (column.flatten() for column in space.between().columns)
    for sums in (x + y, x - y, 2 * x + y, x + 2 * y):
        apart = (15 * sums) % 1
        assert float(torch.minimum(apart, 1 - apart).min()) > 0.05


def test_a_front_along_the_diagonal_is_seen():
    class Front(sciml.Problem):
        domain = sciml.Box(x=(0, 2), y=(0, 2), t=(0, 0.5))
        fields = ["u"]
        conditions = [
            sciml.Periodic("x"),
            sciml.Periodic("y"),
            sciml.Initial(u=lambda x, y: -torch.sin(PI * (x + y))),
        ]

        @sciml.equation
        def momentum(self, u, x, y, t):
            return d(u, t) + u * (d(u, x) + d(u, y)) / 2 - 0.1 * (d(u, x, x) + d(u, y, y))

    class Line(sciml.Problem):
        domain = sciml.Box(s=(0, 2), t=(0, 0.5))
        fields = ["u"]
        conditions = [sciml.Periodic("s"), sciml.Initial(u=lambda s: -torch.sin(PI * s))]

        @sciml.equation
        def momentum(self, u, s, t):
            return d(u, t) + u * d(u, s) - 0.2 * d(u, s, s)

    plane, line = sciml.fit(Front()), sciml.fit(Line())
    x, y = np.random.default_rng(0).uniform(0, 2, (2, 500))
    assert np.allclose(plane(x=x, y=y, t=0.5)["u"], line(s=(x + y) % 2, t=0.5)["u"], rtol=0, atol=1e-9)


def started(monkeypatch, start, most):
    """How grids begin on a periodic square, none of them with more nodes than so many."""

    class Begun(sciml.Problem):
        domain = sciml.Box(x=(-1, 1), y=(-1, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Periodic("x"), sciml.Periodic("y"), sciml.Initial(u=start)]

        @sciml.equation
        def heat(self, u, x, y, t):
            return d(u, t) - 0.01 * sciml.laplacian(u, x, y)

    tails = GridSpace.tails

    def bounded(space, values):
        assert space.size <= most
        return tails(space, values)

    monkeypatch.setattr(GridSpace, "tails", bounded)
    work = workspace(Begun())
    grid = GridWindows(work.discrete, work.log, 1e-9, 1e-3)
    return grid, grid._resolving_start(0.0)


@pytest.mark.parametrize(
    "inside",
    [lambda x, y: (x - 0.1) ** 2 + y**2 < 0.2, lambda x, y: (x - 0.1).abs() < 0.3],
    ids=["disk", "stripe"],
)
def test_a_periodic_start_that_jumps_is_known_before_memory_ends(monkeypatch, inside):
    grid, _ = started(monkeypatch, lambda x, y: inside(x, y).to(x.dtype), 1e5)
    assert grid._projects


@pytest.mark.parametrize(
    "rough",
    [lambda x, y: torch.cos(PI * x).abs() + torch.cos(PI * y).abs(), lambda x, y: 0.01 * (x**2 + y**2 < 0.2)],
    ids=["kink", "step"],
)
def test_algebraic_tails_ask_for_no_dear_grid(monkeypatch, rough):
    grid, found = started(monkeypatch, lambda x, y: rough(x, y) + torch.cos(PI * (x + y)), 1e5)
    assert not grid._projects
    assert min(found.shape) > 100


def test_a_periodic_start_that_jumps_in_space_is_known_though_its_tails_are_uneven():
    class Begun(sciml.Problem):
        domain = sciml.Box(x=(-1, 1), y=(-1, 1), z=(-1, 1), t=(0, 1))
        fields = ["u"]
        conditions = [
            *map(sciml.Periodic, "xyz"),
            sciml.Initial(u=lambda x, y, z: ((x - 0.1) ** 2 + (y + 0.05) ** 2 + (z - 0.03) ** 2 < 0.25).to(x.dtype)),
        ]

        @sciml.equation
        def heat(self, u, x, y, z, t):
            return d(u, t) - sciml.laplacian(u, x, y, z)

    work = workspace(Begun())
    grid = GridWindows(work.discrete, work.log, 1e-9, 1e-3)
    grid._resolving_start(0.0)
    assert grid._projects


def test_a_steep_layer_is_resolved_on_a_dear_grid(monkeypatch):
    radius = lambda x, y: torch.sqrt((x - 0.1) ** 2 + y**2)  # noqa: E731
    start = lambda x, y: torch.tanh((0.4 - radius(x, y)) / 0.02)  # noqa: E731
    grid, found = started(monkeypatch, start, 1e6)
    assert not grid._projects
    values = start(*(torch.from_numpy(each) for each in found.points.T))
    assert float(found.tails(values[None]).max()) < 1e-7


class FaintKink(sciml.Problem):
    """A Gaussian on a periodic square: at its sides the slope jumps by 1e-8 of its size."""

    domain = sciml.Box(x=(-1, 1), y=(-1, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: torch.exp(-20 * ((x + 0.05) ** 2 + y**2))),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - 1e-3 * (d(u, x, x) + d(u, y, y)) + u**3


def test_a_faint_kink_in_the_start_asks_for_no_endless_grid():
    work = workspace(FaintKink())
    grid = GridWindows(work.discrete, work.log, 1e-9, 1e-3)._resolving_start(0.0)
    assert 20 <= max(grid.shape) < 120


class Useless:
    """In the place of fast diagonalisation: nothing that GMRES could build on."""

    def __init__(self, rows, slab, evaluated):
        self._zero, self._generator = slab.zero(), torch.Generator().manual_seed(0)

    def __call__(self, values):
        return torch.randn(self._zero.shape, dtype=F64, generator=self._generator)


def test_full_factors_serve_where_gmres_does_not_arrive(monkeypatch):
    monkeypatch.setattr("sciml.strategies.grid_slabs.SeparablePreconditioner", Useless)
    work = workspace(Heat())
    grid = GridWindows(work.discrete, work.log, 1e-9, 1e-3)
    found, reached = grid(0.0, 0.05, None)
    assert reached < 1e-2
    assert float(found.trial(torch.tensor([[0.5, 0.0, 0.0]], dtype=F64))) == pytest.approx(1.0, abs=1e-8)


def test_a_larger_grid_is_tried_where_the_budget_of_time_allows_it():
    counts = []
    for seconds in (0.5, math.inf):
        work = workspace(Heated())
        grid = GridWindows(work.discrete, Log(budget=Budget(seconds)), 1e-9, 1e-3)
        grid(0.0, 0.005, None)
        counts.append(max(grid._grid.shape))
    assert counts[0] < 30 < counts[1]


@pytest.mark.parametrize(("gap", "expected"), [(1e-5, 0), (1e-3, 1)])
def test_slight_contradictions_are_no_jumps(gap, expected):
    class Slight(Heat):
        conditions = [
            sciml.Initial(u=lambda x, y: x),
            sciml.Dirichlet(u=0.0, on=PLANE.face(x=0)),
            sciml.Dirichlet(u=1.0, on=PLANE.face(x=1)),
            sciml.Dirichlet(u=lambda x, t: x + gap, on=PLANE.faces("y")),
        ]

    found = contradictions(Slight(), 1e-4, beside_start=True)
    assert bool(found) == bool(expected)
    assert not any("initial" in each for each in found)
    assert any("initial" in each for each in contradictions(Slight()))

"""Slabs of time on cut tiles: their functions, the approximate inverse, and problems that `fit` solves by them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
import torch
from candidates import workspace

import sciml
from sciml import d
from sciml.models import RandomFeatures
from sciml.models.radau import RadauIIA
from sciml.slabs.newton_krylov import SlabRates, moves, solve
from sciml.slabs.system import Slab
from sciml.slabs.tile_space import TileSpace
from sciml.slabs.tiles import TilePreconditioner
from sciml.strategies import slabs, tile_slabs, window_solvers
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Budget, Log
from sciml.strategies.tile_slabs import TileWindows
from sciml.strategies.time_marching import Marched, WindowMethod

F64 = torch.float64
HOLED = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.2)
DOMAIN = HOLED * sciml.Interval(t=(0, 0.5))
SQUARE = DOMAIN.piece("x=0", "x=1", "y=0", "y=1")


def exact(x, y, t):
    return torch.sin(2 * x) * torch.cos(y) * torch.exp(-5 * t)


class Cooling(sciml.Problem):
    domain = DOMAIN
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(2 * x) * torch.cos(y)),
        sciml.Dirichlet(u=exact, on=DOMAIN.boundary),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y)


class Reacting(Cooling):
    """Nonlinear, insulated round the hole in the sense of its exact flux."""

    conditions = [
        Cooling.conditions[0],
        sciml.Dirichlet(u=exact, on=SQUARE),
        sciml.Neumann(
            u=lambda x, y, t: (
                (2 * torch.cos(2 * x) * torch.cos(y) * (0.5 - x) - torch.sin(2 * x) * torch.sin(y) * (0.5 - y))
                / 0.2
                * torch.exp(-5 * t)
            ),
            on=DOMAIN.piece("circle"),
        ),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y) + u**3 - exact(x, y, t) ** 3


def space_of(problem, count=3, degree=6):
    return TileSpace.laid(problem, ("x", "y"), (count, count), degree)


def test_points_of_cut_tiles_lie_inside_and_are_many():
    space = space_of(Cooling(), count=2)
    ((trace, inside),) = space.inside()
    x, y = (column[inside] for column in trace.columns)
    assert bool((torch.hypot(x - 0.5, y - 0.5) >= 0.2 - 1e-12).all())
    assert bool((inside.sum(1) == inside.shape[1]).all())


def test_an_initial_value_goes_on_smoothly_where_a_small_part_of_a_tile_lies_inside():
    space = space_of(Cooling(), count=6)
    found = space.interpolated("u", lambda columns: torch.sin(columns[0] * columns[1])[None])
    corner = torch.tensor([[0.3340, 0.6650], [0.36, 0.65]], dtype=F64)
    scaled = 2 * corner - 1
    tile = space.model.tile(scaled)
    values = (space.local(found)[0, tile] * space.model.functions(space.model.local(scaled, tile), (0, 0))).sum(1)
    assert torch.allclose(values, torch.sin(corner.prod(1)), atol=1e-6)


def test_a_layer_that_a_cut_tile_does_not_resolve_stays_bounded_beyond_the_domain():
    """A polynomial that followed it within a small cut had coefficients of 1e6, in which rounding drowned the next window."""
    space = space_of(Cooling(), count=6, degree=8)

    def layer(columns):
        away = torch.hypot(columns[0] - 0.5, columns[1] - 0.5) - 0.2
        return torch.where(away < -1e-9, math.nan, torch.erfc(away / 0.01))[None]

    found = space.interpolated("u", layer)
    assert float(found.abs().max()) < 1e3
    trace, shares = space.shares[-1]
    inside = shares[0] > 0
    missed = (trace.jet(space.local(found), ())[0] - layer(trace.columns)[0])[inside].square().mean().sqrt()
    assert float(missed) < 0.05


def test_small_cuts_are_what_their_neighbours_are():
    """One with eight places inside kept what it was at the start of a layer, window after window: half of the size of all."""
    holed = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.225)

    class Around(Cooling):
        domain = holed * sciml.Interval(t=(0, 0.5))
        conditions = [Cooling.conditions[0], sciml.Dirichlet(u=exact, on=domain.boundary)]

    space = space_of(Around(), count=6, degree=8)
    right = space.interpolated("u", lambda columns: exact(columns[0], columns[1], torch.zeros(()))[None])
    # Of this tile 0.4 % lies outside the hole.
    corner = torch.tensor([[0.3365, 0.6635]], dtype=F64)
    tile = space.model.tile(2 * corner - 1)
    assert bool(((2 * corner - 1 - space.model.centers[tile]).abs() < space.model.halves[tile]).all())
    wrong = right.clone()
    space.local(wrong)[0, tile] += torch.randn(1, space.model.width, generator=torch.Generator().manual_seed(0), dtype=F64)
    ends = []
    for start in (right, wrong):
        for _ in range(6):
            slab, sites, evaluated = slab_of(Around(), space, 3, 0.01, start)
            inverse = TilePreconditioner(slab, evaluated)
            start = slab.end(solve(slab, sites, lambda _, inverse=inverse: inverse, 1e-9).rates, 0)
        ends.append(space.local(start)[0, tile])
    assert torch.allclose(*ends, atol=1e-2)


def test_conditions_have_as_many_points_on_tiles_that_are_thin():
    """Of a wall that thin tiles meet with their short sides many had none: they were counted by their long sides."""
    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))

    class Insulated(Cooling):
        conditions = [
            sciml.Initial(u=0.0),
            sciml.Dirichlet(u=1.0, on=domain.face(x=0)),
            sciml.Neumann(u=0.0, on=domain.faces("y")),
        ]

    Insulated.domain = domain
    space = space_of(Insulated(), count=4, degree=5)
    for _ in range(5):
        first = space.model.centers[:, 0] - space.model.halves[:, 0] < -1 + 1e-9
        space = space.finer(first[:, None] & torch.tensor([True, False]))
    assert len(space.model.live) == 4 * (4 + 5)
    for name, across in (("neumann", 1), ("dirichlet", 0)):
        (term,) = [each for each in space.problem.terms() if each.name == name]
        site = next(space.sites([term], lambda name: 1.0, [0]))
        counts = torch.zeros(len(space.model.live)).index_add_(0, site.traces[0].tiles, site.counted.sum(1).float())
        lowest = space.model.centers[:, across] - space.model.halves[:, across] < -1 + 1e-9
        assert int(counts[lowest].min()) > 5, name
        assert int(counts[lowest].max()) < 40, name


def slab_of(problem, space, stages, length, start):
    """A slab, where its rows are taken, and these with their slopes."""
    terms = [term for term in problem.terms() if not term.name.startswith("initial")]
    sites = list(space.sites(terms, lambda name: 1.0, [0]))
    slab = Slab(problem, space, RadauIIA(stages), 0.0, length, (1,), (start,), (1.0,))
    return slab, sites, slab.evaluate(sites, slab.zero(), slopes=True)


@pytest.mark.parametrize("stages", [1, 3, 4])
def test_the_inverse_makes_rates_that_polynomials_can_have(stages):
    """An odd number of stages has a real eigenvalue, and a real factor."""
    space = space_of(Cooling())
    slab, _, evaluated = slab_of(Cooling(), space, stages, 0.1, torch.zeros(1, space.width, dtype=F64))
    powers = range(stages)
    smooth = space.interpolated("u", lambda columns: torch.stack([columns[0] ** k * columns[1] for k in powers]))[:, None]
    found = TilePreconditioner(slab, evaluated)(slab.product(evaluated, smooth))
    assert float(space.sizes(found - smooth).max()) < 1e-7


def test_residuals_of_a_slab_are_those_of_the_rates_that_were_found():
    """After one step they were those of the start, which drove an estimate of the error twenty times too large."""
    space = space_of(Cooling())
    start = space.interpolated("u", lambda columns: exact(columns[0], columns[1], torch.zeros(()))[None])
    slab, sites, _ = slab_of(Cooling(), space, 3, 0.01, start)
    found = solve(slab, sites, lambda evaluated: TilePreconditioner(slab, evaluated), 1e3)
    assert found.converged
    assert found.steps == 1
    for kept, fresh in zip(found.evaluated, slab.evaluate(sites, found.rates), strict=True):
        assert torch.allclose(kept.values, fresh.values, rtol=1e-9, atol=1e-12)


class Diffusing(sciml.Problem):
    """Heat that flows out through all walls."""

    domain = (sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.15)) * sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - 0.01 * sciml.laplacian(u, x, y)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize(("length", "stages"), [(0.015, 6), (0.003, 6), (0.0003, 8)])
def test_no_start_grows_however_the_domain_cuts_the_tiles(length, stages, halved):
    """With few places on cut sides, or few that differ on sides of halved tiles, it grew twentyfold in every window."""
    space = space_of(Diffusing(), count=8)
    if halved:
        # At a corner of the square, where conditions hold on two sides.
        space = space_of(Diffusing(), count=6, degree=8)
        space = space.finer((space.model.centers - torch.tensor([0.833, -0.833], dtype=F64)).norm(dim=1) < 0.1)
    start = torch.randn(1, space.width, generator=torch.Generator().manual_seed(0), dtype=F64)
    sizes = [float(space.sizes(start[None]).max())]
    for _ in range(6):
        slab, sites, evaluated = slab_of(Diffusing(), space, stages, length, start)
        inverse = TilePreconditioner(slab, evaluated)
        rates = solve(slab, sites, lambda _, inverse=inverse: inverse, 1e-9 * sizes[-1]).rates
        start = slab.end(rates, 0)
        sizes.append(float(space.sizes(start[None]).max()))
    assert sizes[-1] < sizes[1] < sizes[0]


def circling(x, y, t):
    """A pulse that moves around the hole."""
    angle = torch.pi * t
    return torch.exp(-((x - 0.5 - 0.3 * torch.cos(angle)) ** 2 + (y - 0.5 - 0.3 * torch.sin(angle)) ** 2) / 0.02)


class Circling(Diffusing):
    domain = (sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.15)) * sciml.Interval(t=(0, 0.3))
    conditions = [
        sciml.Initial(u=lambda x, y: circling(x, y, torch.zeros_like(x))),
        sciml.Dirichlet(u=circling, on=domain.boundary),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        angle = torch.pi * t
        a, b = x - 0.5 - 0.3 * torch.cos(angle), y - 0.5 - 0.3 * torch.sin(angle)
        exact, square = circling(x, y, t), (a**2 + b**2) / 0.02
        rate = exact * (0.6 * torch.pi / 0.02) * (b * torch.cos(angle) - a * torch.sin(angle))
        return d(u, t) - 0.01 * sciml.laplacian(u, x, y) - rate + 0.01 * exact * (4 * square - 4) / 0.02

    def reference(self, x, y, t):
        return circling(x, y, t)


@pytest.mark.slow
def test_tiles_follow_what_moves():
    """They were refined where the pulse was at first, and it was lost as soon as it had left."""
    solution = sciml.fit(Circling())
    assert solution.success
    error = solution.error()["u"]
    assert error < min(1e-5, solution.estimated_error["u"])
    assert solution.estimated_error["u"] < 100 * error
    tiles = [len(each.model.live) for each in solution.trial.windows]
    assert tiles[-1] > tiles[0]


def deviations(solution, problem):
    """Of the field from the truth, and the truth, at scattered points."""
    points = np.random.default_rng(0).uniform([0, 0, 0], [1, 1, 0.5], (6000, 3))
    points = points[problem.domain.contains(points)]
    x, y, t = points.T
    truth = exact(*torch.from_numpy(points).unbind(1)).numpy()
    return solution(x=x, y=y, t=t)["u"] - truth, truth


def worst(solution, problem):
    return float(np.abs(deviations(solution, problem)[0]).max())


@pytest.mark.parametrize(("problem", "strategy"), [(Cooling(), "TimeMarching"), (Reacting(), "auto")])
def test_holes_in_time_are_served(problem, strategy):
    solution = sciml.fit(problem, strategy=strategy)
    assert solution.success
    assert any("polynomials on cut tiles" in each for each in solution.choices)
    # In the norm of the estimate: the largest deviation may exceed it.
    error, truth = deviations(solution, problem)
    assert np.linalg.norm(error) < solution.estimated_error["u"] * np.linalg.norm(truth)
    assert max(solution.estimated_error["u"], np.abs(error).max()) < 1e-6


GRAIN, SHORT = sciml.Disk((0.1, -0.05), 0.4), sciml.Interval(t=(0, 0.1))
SLAB = sciml.Box(x=(-1, 1), y=(-1, 1))
BORDER = (GRAIN * SHORT).interface((SLAB - GRAIN) * SHORT)


def within(x, y, t):
    return torch.sin(x + y) * torch.exp(-t)


def around(x, y, t):
    return torch.cos(x * y) * torch.exp(-2 * t) + x


class Grained(sciml.Problem):
    """A grain in a plate, a field for either, with what their own solutions leave at the border."""

    domain = SLAB * SHORT
    fields = ["u", "v"]
    k = 5.0
    conditions = [
        sciml.Initial(u=lambda x, y: within(x, y, 0 * x), v=lambda x, y: around(x, y, 0 * x)),
        sciml.Dirichlet(v=around, on=domain.boundary),
    ]

    @sciml.equation(on=GRAIN * SHORT)
    def inside(self, u, x, y, t):
        w = within(x, y, t)
        return d(u, t) - self.k * sciml.laplacian(u, x, y) - (d(w, t) - self.k * sciml.laplacian(w, x, y))

    @sciml.equation(on=(SLAB - GRAIN) * SHORT)
    def outside(self, v, x, y, t):
        w = around(x, y, t)
        return d(v, t) - sciml.laplacian(v, x, y) - (d(w, t) - sciml.laplacian(w, x, y))

    @sciml.condition(on=BORDER)
    def contact(self, u, v, x, y, t):
        return u - v - (within(x, y, t) - around(x, y, t))

    @sciml.condition(on=BORDER)
    def flux(self, u, v, x, y, t, normal):
        def along(w):
            return normal[0] * d(w, x) + normal[1] * d(w, y)

        return self.k * along(u - within(x, y, t)) - along(v - around(x, y, t))

    def reference(self, x, y, t):
        return {"u": within(x, y, t), "v": around(x, y, t)}


def test_two_materials_in_time_are_solved_where_their_border_cuts_the_tiles():
    solution = sciml.fit(Grained())
    assert solution.success, solution.message
    assert any("polynomials on cut tiles" in each for each in solution.choices)
    assert max(solution.error(resolution=21).values()) < 1e-7
    assert solution.lives({"x": np.array([0.1, 0.9]), "y": np.zeros(2), "t": np.zeros(2)})["u"].tolist() == [True, False]


def test_sizes_are_taken_where_a_field_lives():
    """Where a field has no equation its polynomials may be anything."""
    space = TileSpace.laid(Grained(), ("x", "y"), (6, 6), 4)
    weights = torch.zeros(1, 2, space.width, dtype=F64)
    away = space.model.tile(torch.tensor([[0.9, 0.9]], dtype=F64))
    space.local(weights[0])[0, away, 0] = 1e6
    assert float(space.sizes(weights).max()) == 0
    space.local(weights[0])[1, away, 0] = 1.0
    assert float(space.sizes(weights)[0, 1]) > 0.1


def test_a_solution_on_cut_tiles_is_saved_and_read(tmp_path):
    solution = sciml.fit(Cooling(), strategy="TimeMarching")
    again = sciml.load(solution.save(tmp_path / "cooling.pt"))
    at = {"x": np.array([0.1, 0.9, 0.5]), "y": np.array([0.2, 0.5, 0.95]), "t": np.array([0.0, 0.2, 0.5])}
    assert np.array_equal(solution(**at)["u"], again(**at)["u"])


def test_tiles_are_refined_where_the_second_step_of_newtons_method_hardly_helps():
    """It was taken for divergence: tiles were then refined as long as there was memory."""
    setup = prepare(sciml.gallery.problem("nagumo_disk"), RandomFeatures(), None, 400, None, F64, "cpu", 0)
    attempt = TileWindows(setup, Log(), 1e-6, 1e-3)
    found, reached = attempt(0.0, 0.5, None)
    assert reached < 1e-5
    assert len(found.trial.model.live) < 100


class Waning(sciml.Problem):
    """A pressure that all else gives up to a function of time, beside a temperature that reacts."""

    domain = DOMAIN
    fields = ["u", "p"]
    conditions = [
        *Reacting.conditions,
        sciml.Neumann(
            p=lambda x, y, t: (x**2 / 2 * (y - 0.5) + x * y * (x - 0.5)) / -0.2 * torch.exp(-t), on=DOMAIN.piece("circle")
        ),
        sciml.Neumann(p=lambda x, y, t: x * y * torch.exp(-t), on=DOMAIN.piece("x=1")),
        sciml.Neumann(p=0.0, on=DOMAIN.piece("x=0")),
        sciml.Neumann(p=lambda x, y, t: x**2 / 2 * torch.exp(-t), on=DOMAIN.piece("y=1")),
        sciml.Neumann(p=lambda x, y, t: -(x**2) / 2 * torch.exp(-t), on=DOMAIN.piece("y=0")),
        sciml.Mean(p=2.0),
    ]

    heat = Reacting.heat

    @sciml.equation
    def poisson(self, p, x, y, t):
        return d(p, x, x) + d(p, y, y) - y * torch.exp(-t)


def test_a_mean_gives_a_field_its_level_at_each_time():
    solution = sciml.fit(Waning(), strategy="TimeMarching")
    assert solution.success, solution.message
    # The mean of x^2 y / 2: of the square less the disk.
    disk = math.pi * 0.2**2
    mean = (1 / 12 - 0.25 * disk * (0.25 + 0.2**2 / 4)) / (1 - disk)
    x, y, t = np.array([0.1, 0.9, 0.2]), np.array([0.2, 0.1, 0.8]), np.array([0.0, 0.2, 0.5])
    truth = 2.0 + (x**2 * y / 2 - mean) * np.exp(-t)
    assert np.abs(solution(x=x, y=y, t=t)["p"] - truth).max() < 1e-5


def test_windows_of_other_jacobians_take_the_inverse_of_an_earlier_one(monkeypatch):
    made = []

    class Counted(TilePreconditioner):
        def __init__(self, *given, **named):
            made.append(1)
            super().__init__(*given, **named)

    monkeypatch.setattr("sciml.strategies.tile_slabs.TilePreconditioner", Counted)
    # Lengths follow from errors in time, which inverses of other Jacobians know less well: here all are the same.
    monkeypatch.setattr("sciml.strategies.tile_slabs._LONGEST", 1.0)
    found, counts = [], []
    for dear in (20, 0):
        monkeypatch.setattr(TileWindows, "dear", dear)
        made.clear()
        found.append(sciml.fit(Reacting(), strategy="TimeMarching"))
        counts.append(len(made))
    assert len(found[0].trial.windows) == len(found[1].trial.windows) >= 10
    assert counts[0] < 0.5 * counts[1]
    errors = [worst(each, Reacting()) for each in found]
    assert max(errors) < 1e-8


def test_a_field_without_a_start_contradicts_nothing():
    """A potential of one on the walls, of which there is no start, was taken for a layer."""

    class Charged(sciml.Problem):
        domain = DOMAIN
        fields = ["u", "phi"]
        conditions = [
            sciml.Initial(u=0.0),
            sciml.Dirichlet(u=0.0, on=DOMAIN.boundary),
            sciml.Dirichlet(phi=1.0, on=SQUARE),
            sciml.Neumann(phi=1.0, on=DOMAIN.piece("circle")),
        ]

        @sciml.equation
        def heat(self, u, phi, x, y, t):
            return d(u, t) - sciml.laplacian(u, x, y) - (phi - 1)

        @sciml.equation
        def poisson(self, u, phi, x, y, t):
            return sciml.laplacian(phi, x, y) + 1 + u

    attempt = TileWindows(prepare(Charged(), RandomFeatures(), None, 400, None, F64, "cpu", 0), Log(), 1e-6, 1e-3)
    _, reached = attempt(0.0, 0.02, None)
    assert reached < 1e-3
    assert "contradicts" not in attempt.verdict([0.0, 0.02]).said

    # After a jump what has no rate is as large as the window is short: it is judged beyond the layer, if there is more.
    assert attempt._judged.tolist() == [True, True]
    attempt._jumps = True
    assert attempt._judged.tolist() == [True, False]
    wrong, right = torch.tensor([[1e-8, 1e8], [1.0, 1e4]]).double(), torch.tensor([[1e-8, 1e-8], [1.0, 1.0]]).double()
    attempt._squares, attempt._over = {0.0: wrong, 0.01: right}, 0.01
    said = attempt.verdict([0.0, 0.01, 0.02])
    assert said.at_most == pytest.approx({"u": 1e-4, "phi": 1e-4})
    assert "fields without a rate, are judged beyond the layer that it leaves, from t = 0.01 on" in said.said
    assert attempt.verdict([0.0, 0.01]).at_most["phi"] > 1


def test_an_inverse_that_is_no_help_is_made_anew():
    setup = prepare(Reacting(), RandomFeatures(), None, 400, None, F64, "cpu", 0)
    attempt = TileWindows(setup, Log(), 1e-6, 1e-3)
    window, _ = attempt(0.0, 0.025, None)
    kept = attempt._kept
    assert kept is not None
    others = [each + 1 for each in kept.made()[0]]
    kept.made = lambda: (others, lambda values: torch.full_like(kept.slab.zero(), float("nan")))
    _, reached = attempt(0.025, 0.05, window)
    assert reached < 1e-6


class Channel(sciml.Problem):
    """Womersley's flow between two plates: an inlet that oscillates, and a pressure that nothing prescribes at walls."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.2))
    fields = ["u", "v", "p"]
    viscosity, rate = 0.1, 2 * math.pi

    @staticmethod
    def profile(y, t):
        wave = complex(0.0, Channel.rate / Channel.viscosity) ** 0.5
        shape = 1 - torch.cosh(wave * (y - 0.5)) / torch.cosh(torch.tensor(wave / 2))
        return (shape / (1j * Channel.rate) * torch.exp(1j * Channel.rate * t)).real

    conditions = [
        sciml.Initial(u=lambda y: Channel.profile(y, torch.zeros_like(y)), v=0.0),
        sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("y")),
        sciml.Dirichlet(u=lambda y, t: Channel.profile(y, t), v=0.0, on=domain.face(x=0)),
        sciml.Outflow(["u", "v"], pressure="p", viscosity=viscosity, on=domain.face(x=1)),
    ]

    @sciml.equation
    def mass(self, u, v, x, y, t):
        return d(u, x) + d(v, y)

    @sciml.equation
    def momentum_x(self, u, v, p, x, y, t):
        return d(u, t) + u * d(u, x) + v * d(u, y) + d(p, x) - self.viscosity * sciml.laplacian(u, x, y)

    @sciml.equation
    def momentum_y(self, u, v, p, x, y, t):
        return d(v, t) + u * d(v, x) + v * d(v, y) + d(p, y) - self.viscosity * sciml.laplacian(v, x, y)


@pytest.mark.slow
def test_a_flow_on_a_box_without_pressures_at_walls_is_served_by_tiles():
    """It had no way: a grid's rows need as many conditions as derivatives."""
    solution = sciml.fit(Channel(), strategy="TimeMarching")
    assert "cut tiles" in " ".join(solution.choices)
    x, y, t = np.random.default_rng(0).uniform([0, 0, 0], [1, 1, 0.2], (500, 3)).T
    found = solution(x=x, y=y, t=t)
    truth = Channel.profile(torch.from_numpy(y), torch.from_numpy(t)).numpy()
    assert np.abs(found["u"] - truth).max() < 1e-6
    assert np.abs(found["v"]).max() < 1e-6
    assert np.abs(found["p"] - (1 - x) * np.cos(2 * np.pi * t)).max() < 1e-5


class Carried(sciml.Problem):
    """A pulse that turns round the middle of a disk; coarse tiles miss its start by 1e-5."""

    domain = sciml.Disk((0, 0), 1.0) * sciml.Interval(t=(0, 0.2))
    fields = ["u"]
    diffusivity = 1e-3

    def reference(self, x, y, t):
        width = 0.01 + 2 * self.diffusivity * t
        away = (x - 0.4 * torch.cos(2 * math.pi * t)) ** 2 + (y - 0.4 * torch.sin(2 * math.pi * t)) ** 2
        return 0.01 / width * torch.exp(-away / (2 * width))

    conditions = [
        sciml.Initial(u=lambda x, y: torch.exp(-((x - 0.4) ** 2 + y**2) / 0.02)),
        sciml.Dirichlet(u=0.0, on=domain.piece("circle")),
    ]

    @sciml.equation
    def transport(self, u, x, y, t):
        turning = x * d(u, y) - y * d(u, x)
        return d(u, t) + 2 * math.pi * turning - self.diffusivity * (d(u, x, x) + d(u, y, y))


@pytest.mark.slow
def test_what_tiles_miss_of_a_start_is_no_reason_for_short_windows():
    """No length made it any smaller: they became 1e-7 of the whole time, and the fit never came to its end."""
    solution = sciml.fit(Carried(), strategy="TimeMarching")
    assert solution.success, solution.message
    assert len(solution.trial.windows) < 60
    assert solution.error()["u"] < min(1e-3, 2 * solution.estimated_error["u"])


class Drum(sciml.Problem):
    r"""A standing wave :math:`J_0(k r) \cos kt` on a disk that is free at its rim: k is a zero of the slope."""

    domain = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 3))
    fields = ["u"]
    k = 7.0155866698156188
    conditions = [
        sciml.Initial(u=lambda self, x, y: torch.special.bessel_j0(self.k * torch.hypot(x, y)), u_t=0.0),
        sciml.Neumann(u=0.0, on=domain.piece("circle")),
    ]

    @sciml.equation
    def wave(self, u, x, y, t):
        return d(u, t, t) - d(u, x, x) - d(u, y, y)

    def reference(self, x, y, t):
        return torch.special.bessel_j0(self.k * torch.hypot(x, y)) * torch.cos(self.k * t)


class Clamped(Drum):
    """The same with its rim held, where the third zero of the function itself lies."""

    k = 8.653727912911013
    conditions = [Drum.conditions[0], sciml.Dirichlet(u=0.0, on=Drum.domain.piece("circle"))]


class Turning(Drum):
    r"""Standing waves :math:`J_2(k r) \cos 2\varphi \cos kt`, which small cuts at the corners of tiles see."""

    k = 6.706133194158459
    conditions = [
        sciml.Initial(u=lambda self, x, y: self.reference(x, y, torch.zeros_like(x)), u_t=0.0),
        sciml.Neumann(u=0.0, on=Drum.domain.piece("circle")),
    ]

    def reference(self, x, y, t):
        r = torch.hypot(x, y).clamp_min(1e-9)
        radial = 2 * torch.special.bessel_j1(self.k * r) / (self.k * r) - torch.special.bessel_j0(self.k * r)
        return radial * (x**2 - y**2) / r**2 * torch.cos(self.k * t)


class TurningAndHeld(Turning):
    """The same with its rim held."""

    k = 8.417244140399866
    conditions = [Turning.conditions[0], sciml.Dirichlet(u=0.0, on=Drum.domain.piece("circle"))]


@pytest.mark.parametrize(
    "problem", [*(pytest.param(each, marks=pytest.mark.slow) for each in (Drum, Turning, TurningAndHeld)), Clamped]
)
def test_waves_on_a_disk_do_not_grow(problem):
    solution = sciml.fit(problem())
    assert solution.success
    assert solution.error()["u"] < 1e-5
    assert solution.error()["u"] < solution.estimated_error["u"] < 1e-4


class Struck(Drum):
    """A damped membrane from rest, narrow in the middle: with nine stages its waves grew, with six they did not."""

    domain = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 1))
    conditions = [
        sciml.Initial(u=lambda x, y: (1 - x**2 - y**2) ** 5 * torch.exp(x), u_t=0.0),
        sciml.Dirichlet(u=0.0, on=domain.piece("circle")),
    ]

    @sciml.equation
    def wave(self, u, x, y, t):
        return d(u, t, t) + d(u, t) - d(u, x, x) - d(u, y, y)


@pytest.mark.slow
def test_a_struck_membrane():
    solution = sciml.fit(Struck(), strategy=sciml.strategies.TimeMarching())
    assert solution.success, solution.message
    assert solution.estimated_error["u"] < 1e-4


@pytest.mark.parametrize(
    ("edges", "worst", "interrupt", "kept"),
    [
        ([0.4, 1.0], [math.inf, 1e-6], None, 1),
        # A march that was ended came farther than one whose last window is none, and the farthest of these counts.
        ([0.4, 0.3], [math.inf, 1e-6], None, 1),
        ([0.4, 0.3, 0.2], [math.inf] * 3, None, 0),
        # Ctrl-C in a later turn loses nothing of the one before.
        ([0.4], [math.inf], 1, 0),
    ],
)
def test_of_marches_in_turns_that_which_came_farthest_is_kept(monkeypatch, edges, worst, interrupt, kept):
    work = workspace(Clamped())

    def march(part, methods, **_):
        turn = methods[0].attempt
        if turn == interrupt:
            raise KeyboardInterrupt
        return Marched((), (0.0, edges[turn]), worst[turn], edges[turn] == 1.0)

    def methods(turn):
        return [WindowMethod(turn, 0.05, 1e-3, again=lambda: worst[turn] == math.inf and (interrupt or len(edges) - 1) > turn)]

    monkeypatch.setattr(window_solvers, "march", march)
    marched, by = sciml.strategies.TimeMarching()._in_turns(work, work.discrete, 1e-6, methods)
    assert (marched.edges[-1], by[0].attempt) == (edges[kept], kept)
    assert marched.interrupted == (interrupt is not None)
    told = sum("begun anew" in each for each in work.choices)
    assert told == (1 if interrupt else len(edges) - 1)


@pytest.mark.parametrize(("problem", "again"), [(Clamped, True), (Cooling, False)])
def test_where_rounding_stops_steps_what_is_hardly_seen_is_left_out(monkeypatch, problem, again):
    """Of waves alone, which nothing damps, and from that window on."""
    unseen, real = [], TilePreconditioner.__init__

    def made(self, *args, **kwargs):
        unseen.append(kwargs.get("unseen"))
        real(self, *args, **kwargs)

    def stalled(*args):
        found = solve(*args)
        return replace(found, converged=len(unseen) > 1, left=1e-6)

    monkeypatch.setattr(TilePreconditioner, "__init__", made)
    monkeypatch.setattr(slabs, "solve", stalled)
    attempt = TileWindows(prepare(problem(), RandomFeatures(), None, 400, None, F64, "cpu", 0), Log(), 1e-6, 1e-3)
    assert attempt._tried(attempt._at(0), 0.0, 0.05, None).solved == again
    assert unseen == ([None, 1e-8] if again else [None])
    if again:
        attempt._tried(attempt._at(0), 0.0, 0.1, None)
        assert unseen[2:] == [1e-8]


def test_what_steps_left_is_kept_in_a_journal():
    found = SlabRates(torch.zeros(1), False, 3, 4, left=1e-5)
    assert SlabRates(**found.state).left == 1e-5


class Species(sciml.Problem):
    """Two species that turn into each other, and diffuse; the faster they do, the larger ``rate``."""

    domain = DOMAIN
    fields = ["a", "b"]
    rate = 1.0
    conditions = [
        sciml.Initial(a=lambda x, y: torch.sin(2 * x), b=lambda x, y: torch.cos(y)),
        sciml.Dirichlet(a=lambda x, y: torch.sin(2 * x), b=lambda x, y: torch.cos(y), on=DOMAIN.boundary),
    ]

    @sciml.equation
    def first(self, a, b, x, y, t):
        return d(a, t) - sciml.laplacian(a, x, y) + self.rate * (a - b)

    @sciml.equation
    def second(self, a, b, x, y, t):
        return d(b, t) - sciml.laplacian(b, x, y) + self.rate * (b - a)


@pytest.mark.parametrize(("rate", "length", "apart"), [(1.0, 0.1, True), (1000.0, 0.1, False), (1000.0, 1e-4, True)])
def test_fields_that_equations_couple_weakly_have_factors_of_their_own(monkeypatch, rate, length, apart):
    problem = Species(rate=rate)
    space = TileSpace.laid(problem, ("x", "y"), (3, 3), 6, 2)
    terms = [term for term in problem.terms() if not term.name.startswith("initial")]
    sites = list(space.sites(terms, lambda name: 1.0, [0]))
    waves = {"a": lambda columns: torch.sin(2 * columns[0])[None], "b": lambda columns: torch.cos(columns[1])[None]}
    starts = tuple(space.interpolated(name, wave) for name, wave in waves.items())
    slab = Slab(problem, space, RadauIIA(3), 0.0, length, (1, 1), starts, (1.0, 1.0))
    found, nodes = [], []
    for weak in (1.0, 0.0):
        monkeypatch.setattr("sciml.slabs.tiles._WEAK", weak)
        inverse = TilePreconditioner(slab, slab.evaluate(sites, slab.zero(), slopes=True))
        nodes.append(inverse._of.count // len(space.model.live))
        found.append(solve(slab, sites, lambda _, inverse=inverse: inverse, 1e-8))
    assert nodes == [2 if apart else 1, 1]
    one, other = (moves(slab, each.rates) for each in found)
    # As nearly as polynomials on these tiles can tell.
    assert float(space.sizes(one - other).max()) < 1e-3
    assert found[0].products <= 20


class Tide(sciml.Problem):
    """What comes and goes sixteen thousand times."""

    domain = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 1e5))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: 1 - x**2 - y**2),
        sciml.Dirichlet(u=0.0, on=domain.boundary),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y) + torch.sin(t) * (1 - x**2 - y**2) - 4 * torch.cos(t)


@pytest.mark.parametrize(("seconds", "late"), [(math.inf, False), (600.0, True)])
def test_digits_in_time_are_given_up_where_time_is_short(seconds, late):
    # Forecast from counts: 140,000 windows do not fit into ten minutes.
    setup = prepare(Tide(), RandomFeatures(), None, 400, None, F64, "cpu", 0)
    attempt = TileWindows(setup, Log(budget=Budget(seconds)), 1e-6, 1e-3)
    _, reached = attempt(0.0, 0.7, None)
    assert reached < 1e-7
    assert (attempt.longer >= 2.0) == late


def test_a_window_that_misses_by_little_keeps_its_inverse():
    setup = prepare(Tide(), RandomFeatures(), None, 400, None, F64, "cpu", 0)
    attempt = TileWindows(setup, Log(), 1e-6, 1e-3)
    first, _ = attempt(0.0, 1.0, None)
    second, _ = attempt(1.0, 2.0, first)
    attempt.target = 0.5 * attempt(2.0, 3.0, second)[1]
    meant = attempt.target
    third, reached = attempt(2.0, 3.0, second)
    assert meant < reached <= attempt.target
    attempt(3.0, 3.7, third)
    assert attempt.target == meant


def test_tiles_that_one_window_of_takes_too_long_are_not_taken():
    # Forecast from counts, as the number of windows is.
    setup = prepare(Tide(), RandomFeatures(), None, 400, None, F64, "cpu", 0)
    taken = [TileWindows(setup, Log(budget=Budget(seconds)), 1e-6, 1e-3)._at(1) for seconds in (math.inf, 600.0, 0.1)]
    assert [each is None for each in taken] == [False, False, True]


class Spring(Tide):
    """What is heated in one place, and not before some time."""

    @sciml.equation
    def heat(self, u, x, y, t):
        spot = torch.exp(-400 * ((x - 0.3) ** 2 + y**2)) * torch.exp(-(((t - 40) / 5) ** 2))
        return d(u, t) - d(u, x, x) - d(u, y, y) - 4 - torch.cos(9 * x) * torch.exp(y) - 100 * spot


@pytest.mark.parametrize(("most", "finer"), [(0.01, False), (math.inf, True)])
def test_a_window_that_is_too_long_is_halved_before_tiles_are(monkeypatch, most, finer):
    monkeypatch.setattr("sciml.strategies.tile_slabs._TOO_LONG", most)
    setup = prepare(Spring(), RandomFeatures(), None, 400, None, F64, "cpu", 0)
    attempt = TileWindows(setup, Log(), 1e-6, 1e-3)
    first, _ = attempt(0.0, 20.0, None)
    level = attempt._level
    _, reached = attempt(20.0, 60.0, first)
    assert reached > 1e-3
    assert (attempt._level > level) == finer


LINE, WHILE = sciml.Interval(x=(0, 1)), sciml.Interval(t=(0, 1))


class Layer(sciml.Problem):
    """Heat in a rod, of which others make two layers."""

    domain = LINE * WHILE
    fields = ["u"]
    k = 0.2
    conditions = [sciml.Initial(u=lambda x: torch.sin(math.pi * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    def flux(self, u, x):
        return (-self.k * d(u, x),)

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) + d(self.flux(u, x)[0], x)


def layered(t, count=2000, border=0.4):
    """Temperatures of two layers by finite volumes, of which none lies in both."""
    x = (np.arange(count) + 0.5) / count
    k = np.where(x < border, 0.05, 0.5)
    between = 2 * k[1:] * k[:-1] / (k[1:] + k[:-1])
    main = -(np.append(2 * k[0], between) + np.append(between, 2 * k[-1]))
    rate = scipy.sparse.diags([between, main, between], [-1, 0, 1]).tocsc() * count**2
    solved = scipy.integrate.solve_ivp(lambda t, u: rate @ u, (0, t), np.sin(np.pi * x), "BDF", jac=rate, rtol=1e-8, atol=1e-11)
    return x, solved.y[:, -1]


def test_two_layers_in_time_whose_start_the_flux_contradicts():
    """The slope of the start is the same on both sides, and its flux is not: random features grew to 1e9 here."""
    parts = {"a": sciml.Interval(x=(0, 0.4)) * WHILE, "b": sciml.Interval(x=(0.4, 1)) * WHILE}
    solution = sciml.fit(sciml.composite({"a": Layer(k=0.05), "b": Layer(k=0.5)}, parts))
    assert solution.success, solution.message
    for t in (0.3, 1.0):
        x, truth = layered(t)
        found = np.where(x < 0.4, solution(x=x, t=t)["u_a"], solution(x=x, t=t)["u_b"])
        assert np.abs(found - truth).max() < 1e-4 * np.abs(truth).max()


CORE = sciml.Disk((0, 0), 1)
SHELL = sciml.Disk((0, 0), 2) - CORE


class Contact(sciml.Problem):
    """A hot cylinder in a cold pipe, with a thin gap between them."""

    domain = sciml.Disk((0, 0), 2) * WHILE
    fields = ["u", "v"]
    gap = (CORE * WHILE).interface(SHELL * WHILE)
    conditions = [sciml.Initial(u=1.0, v=0.0), sciml.Neumann(v=0.0, on=domain.boundary)]

    @sciml.equation(on=CORE * WHILE)
    def inside(self, u, x, y, t):
        return d(u, t) - 0.5 * sciml.laplacian(u, x, y)

    @sciml.equation(on=SHELL * WHILE)
    def outside(self, v, x, y, t):
        return d(v, t) - sciml.laplacian(v, x, y)

    @sciml.condition(on=gap)
    def flux(self, u, v, x, y, normal):
        return 0.5 * (normal[0] * d(u, x) + normal[1] * d(u, y)) - normal[0] * d(v, x) - normal[1] * d(v, y)

    @sciml.condition(on=gap)
    def exchange(self, u, v, x, y, normal):
        return normal[0] * d(v, x) + normal[1] * d(v, y) - 2 * (v - u)


def in_contact(times, count=1500):
    """Radii, and temperatures at these by finite volumes, of which none lies in both."""
    edges = np.linspace(0, 2, 2 * count + 1)
    r, width = (edges[1:] + edges[:-1]) / 2, 1 / count
    k = np.where(r < 1, 0.5, 1.0)
    resistance = width / 2 / k[1:] + width / 2 / k[:-1]
    resistance[count - 1] += 0.5
    flow, volume = edges[1:-1] / resistance, r * width
    main = -(np.append(0, flow) + np.append(flow, 0)) / volume
    rate = scipy.sparse.diags([flow / volume[1:], main, flow / volume[:-1]], [-1, 0, 1]).tocsc()
    solved = scipy.integrate.solve_ivp(
        lambda t, u: rate @ u, (0, times[-1]), (r < 1) * 1.0, "BDF", t_eval=times, jac=rate, rtol=1e-8, atol=1e-11
    )
    return r, solved.y.T


def test_a_start_in_one_part_knows_nothing_of_the_other():
    """Of tiles that the border cuts, points of the part are as many as of whole ones; the start has a kink there."""

    def start(columns):
        x, y = columns
        inside, outside = torch.exp(x + y / 2), (x + y / 2).exp() + 3 * (x**2 + y**2 - 1)
        return torch.where(x**2 + y**2 < 1, inside, outside)[None]

    space = TileSpace.laid(Contact(), ["x", "y"], [6, 6], 8)
    for name in ("u", "v"):
        found = space.projected(name, start)
        assert float(space.missed(name, found, start)[0].max()) < 1e-5
        # Between tiles a start is as smooth as it is on each of them.
        assert float(space.torn(name, found).max()) < 1e-5


class Strip(Cooling):
    """Seven times as long as wide."""

    domain = (sciml.Box(x=(0, 7), y=(0, 1)) - sciml.Disk((3, 0.5), 0.2)) * sciml.Interval(t=(0, 0.1))
    conditions = [Cooling.conditions[0], sciml.Dirichlet(u=exact, on=domain.boundary)]


def test_tiles_in_one_row_have_neighbours_along_it_alone():
    space = TileSpace.laid(Strip(), ("x", "y"), (6, 1), 8)
    found = space.projected("u", lambda columns: (torch.sin(2 * columns[0]) * torch.cos(columns[1]))[None])
    torn = space.torn("u", found)
    assert torn.shape == (len(space.halves), 2)
    assert float(torn.max()) < 1e-3


@pytest.mark.slow
def test_two_bodies_in_contact_begin_at_temperatures_of_their_own():
    solution = sciml.fit(Contact(), strategy=sciml.strategies.TimeMarching(), seconds=200)
    assert solution.success, solution.message
    times = 0.1, 1.0
    r, truths = in_contact(times)
    for t, truth in zip(times, truths, strict=True):
        found = np.where(r < 1, solution(x=r, y=0.0, t=t)["u"], solution(x=r, y=0.0, t=t)["v"])
        assert np.abs(found - truth).max() < 1e-3


class RotatingHill(sciml.Problem):
    """Transport by a rigid rotation, with the solution prescribed on all faces: on half of them nothing enters."""

    domain = sciml.Box(x=(-1, 1), y=(-1, 1), t=(0, 0.2))
    fields = ["u"]

    def reference(self, x, y, t):
        return torch.exp(-((x - 0.4 * torch.cos(t)) ** 2 + (y - 0.4 * torch.sin(t)) ** 2) / 0.18)

    conditions = [
        sciml.Initial(u=lambda x, y: torch.exp(-((x - 0.4) ** 2 + y**2) / 0.18)),
        sciml.Dirichlet(
            u=lambda x, y, t: torch.exp(-((x - 0.4 * torch.cos(t)) ** 2 + (y - 0.4 * torch.sin(t)) ** 2) / 0.18),
            on=domain.faces("x", "y"),
        ),
    ]

    @sciml.equation
    def transport(self, u, x, y, t):
        return d(u, t) - y * d(u, x) + x * d(u, y)


@pytest.mark.slow
def test_least_squares_take_more_conditions_than_transport_needs():
    with pytest.warns(sciml.ConditionWarning, match="too many conditions"):
        solution = sciml.fit(RotatingHill())
    assert solution.success, solution.message
    assert "polynomials on cut tiles" in solution.choices[0]
    assert solution.error()["u"] < 1e-5


def test_first_tiles_without_finer_ones_are_judged_by_a_lower_degree(monkeypatch):
    """Heat in a cylinder came to a thousandth of the time: of its tiles, the finest that could be had, no error was known."""
    monkeypatch.setitem(tile_slabs._LEVELS, 2, ((3, 8),))
    monkeypatch.setattr(TileWindows, "_next", lambda self, found: False)
    solution = sciml.fit(Cooling(), strategy="TimeMarching")
    assert solution.success
    assert worst(solution, Cooling()) < 10 * solution.estimated_error["u"] < 1e-4

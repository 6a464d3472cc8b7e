"""Starts that jump inside a body: what tiles hold of them, and problems that begin with them."""

import numpy as np
import pytest
import torch
from candidates import workspace
from scipy.special import j0, j1, jn_zeros

import sciml
from sciml import d
from sciml.models.bases import gauss
from sciml.slabs.tile_space import TileSpace
from sciml.strategies.search import Budget
from sciml.strategies.tile_slabs import TileWindows

DISK = sciml.Disk((0, 0), 1)
RADIUS = 0.4


class Spot(sciml.Problem):
    """Heat in an insulated disk from a round spot."""

    domain = DISK * sciml.Interval(t=(0, 0.2))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: (x**2 + y**2 < RADIUS**2).to(x)),
        sciml.Neumann(u=0.0, on=DISK.boundary),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - sciml.laplacian(u, x, y)


class Halves(Spot):
    """From a half that is hot: the jump lies along sides of tiles, and ends at the rim."""

    conditions = [sciml.Initial(u=lambda x, y: (x > 0).to(x)), Spot.conditions[1]]


# A wave that fades towards the rim, which it does not contradict.
FINE = sciml.Initial(u=lambda x, y: torch.sin(75 * x) * torch.cos(67.5 * y) * (1 - x**2 - y**2) ** 4)


def series(r, t):
    zeros = jn_zeros(1, 400)
    parts = 2 * RADIUS * j1(RADIUS * zeros) / (zeros * j0(zeros) ** 2)
    return RADIUS**2 + (parts * j0(np.outer(r, zeros)) * np.exp(-np.outer(t, zeros**2))).sum(1)


def places(count):
    generator = np.random.default_rng(0)
    r, angle = np.sqrt(generator.uniform(0, 0.998, count)), generator.uniform(0, 2 * np.pi, count)
    return r, {"x": r * np.cos(angle), "y": r * np.sin(angle)}


def on_tiles(count=6, degree=8):
    return TileSpace.laid(Spot(), ("x", "y"), (count, count), degree)


def spot(columns):
    return (columns[0] ** 2 + columns[1] ** 2 < RADIUS**2).double()[None]


def moment(space, weights, power):
    """The integral of a function times a power of x; it vanishes but on whole tiles."""
    at, shares = gauss(12)
    local = torch.cartesian_prod(at, at)
    values = torch.einsum("tk,qk->tq", space.local(weights)[0], space.model.functions(local, [0, 0]))
    x = space.points(torch.arange(len(values)), local.expand(len(values), -1, -1))[:, :, 0]
    return float((values * x**power * torch.outer(shares, shares).flatten()).sum(1) @ space.halves.prod(1))


@pytest.mark.parametrize(("power", "wanted"), [(0, np.pi * RADIUS**2), (2, np.pi * RADIUS**4 / 4)])
def test_moments_of_what_jumps_are_right(power, wanted):
    # Interpolation in the places of tiles has them to some thousandths.
    space = on_tiles()
    assert moment(space, space.projected("u", spot), power) == pytest.approx(wanted, rel=1e-5)
    assert abs(moment(space, space.interpolated("u", spot), power) / wanted - 1) > 1e-4


def test_what_polynomials_resolve_is_interpolated():
    space = on_tiles()
    smooth = lambda columns: torch.sin(2 * columns[0] + columns[1])[None]  # noqa: E731
    assert torch.equal(space.projected("u", smooth), space.interpolated("u", smooth))


def test_what_is_missed_is_where_the_start_jumps():
    space = on_tiles()
    missed, sizes = space.missed("u", space.projected("u", spot), spot)
    assert float(sizes[0]) == 1.0
    away = space.model.centers.norm(dim=1)
    assert float(missed[0].max()) > 0.05
    assert float(missed[0, (away > RADIUS + 0.25) | (away < RADIUS - 0.25)].max()) < 1e-10


def test_jumps_along_sides_of_tiles_are_seen():
    space = on_tiles()
    half = space.interpolated("u", lambda columns: (columns[0] > 0).double()[None])
    torn, beside = space.torn("u", half), (space.model.centers[:, 0].abs() < 0.2)
    assert torch.allclose(torn[beside, 0], torch.ones(int(beside.sum()), dtype=torch.float64), atol=1e-8)
    assert float(torn[:, 1].max()) < 1e-8
    assert float(torn[~beside].max()) < 1e-8


def test_what_stands_for_what_is_missed_is_as_large_and_rough():
    space = on_tiles()
    own = space.projected("u", spot)
    missed, _ = space.missed("u", own, spot)
    found = space.as_rough(own, missed)
    at, shares = gauss(space.side)
    grid, weights = torch.cartesian_prod(at, at), torch.outer(shares, shares).flatten() / 4
    values = torch.einsum("tk,qk->tq", space.local(found)[0], space.model.functions(grid, [0, 0]))
    rough = missed[0] > 0.01
    assert torch.allclose((values.square() @ weights).sqrt()[rough], missed[0, rough], rtol=1e-10)
    # Of five sixths of degree eight, in the plane.
    for one, two in [(0, 0), (1, 0), (2, 3), (0, 6)]:
        assert float((values * grid[:, 0] ** one * grid[:, 1] ** two @ weights).abs().max()) < 1e-10


@pytest.mark.parametrize(("start", "jumps"), [(Spot.conditions[0], True), (Halves.conditions[0], True), (FINE, False)])
def test_fine_starts_are_no_jumps(start, jumps):
    """Both are missed by as much on coarse tiles and on those after them; a jump by few of them."""

    class Begun(Spot):
        conditions = [start, Spot.conditions[1]]

    work = workspace(Begun())
    windows = TileWindows(work.discrete, work.log, 1e-6, 1e-3)
    level = windows._resolving_start(0.0, 0.01)
    assert windows._jumps == jumps
    assert (level > 1) != jumps


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_heat_in_a_disk_from_a_spot():
    solution = sciml.fit(Spot())
    assert solution.success, solution.message
    r, at = places(3000)
    for low, high in [(1e-3, 1e-2), (1e-2, 0.2)]:
        t = np.random.default_rng(1).uniform(low, high, len(r))
        assert np.sqrt(np.mean((solution(**at, t=t)["u"] - series(r, t)) ** 2)) < 3e-4
    t = 0.2 * np.random.default_rng(2).uniform(size=len(r)) ** 3
    wrong, true = solution(**at, t=t)["u"] - series(r, t), series(r, t)
    error = np.sqrt(np.average(wrong**2, weights=t ** (2 / 3)) / np.average(true**2, weights=t ** (2 / 3)))
    assert error / 2 < solution.estimated_error["u"] < 10 * error


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_heat_in_a_disk_from_one_half():
    solution = sciml.fit(Halves())
    assert solution.success, solution.message
    _, at = places(2000)
    t = np.random.default_rng(1).uniform(1e-3, 0.2, len(at["x"]))
    both = solution(**at, t=t)["u"] + solution(x=-at["x"], y=at["y"], t=t)["u"]
    assert np.abs(both - 1).max() < 3e-3
    assert np.sqrt(np.mean((both - 1) ** 2)) < 3e-4


class Quenched(sciml.Problem):
    """A ball of temperature one in cold water: the layer is thinner than the tiles of a body."""

    domain = sciml.Ball((0, 0, 0), 1) * sciml.Interval(t=(0, 0.1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, x, y, z, t):
        return d(u, t) - sciml.laplacian(u, x, y, z)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::sciml.errors.ConditionWarning")
def test_a_hot_ball_in_cold_water_is_as_far_off_as_is_told():
    solution = sciml.fit(Quenched(), seconds=100)
    generator = np.random.default_rng(0)
    t, ways = generator.uniform(0, 0.1, 4000), generator.normal(size=(3, 4000))
    r = generator.uniform(size=4000) ** (1 / 3)
    k = np.pi * np.arange(1, 1500)[:, None]
    exact = (-2 * np.cos(k) * np.sin(k * r) / (k * r) * np.exp(-(k**2) * t)).sum(axis=0)
    wrong = solution(**dict(zip("xyz", r * ways / np.linalg.norm(ways, axis=0), strict=True)), t=t)["u"] - exact
    error = np.linalg.norm(wrong) / np.linalg.norm(exact)
    assert error < 3e-2
    assert error / 3 < solution.estimated_error["u"] < 3 * error
    # What is missed of the layer decays.
    late = t > 0.03
    assert np.linalg.norm(wrong[late]) < 5e-3 * np.linalg.norm(exact[late])


@pytest.mark.filterwarnings("ignore::sciml.errors.ConditionWarning")
def test_as_many_levels_across_a_layer_as_the_budget_pays_for():
    class Cold(Spot):
        conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=DISK.boundary)]

    levels = []
    for seconds in (20.0, 600.0):
        work = workspace(Cold())
        work.log.budget = Budget(seconds=seconds)
        windows = TileWindows(work.discrete, work.log, 1e-6, 1e-3)
        windows._first_window(0.0, 0.01)
        levels.append(windows._graded)
    assert 0 < levels[0] < levels[1]


def test_a_field_that_lives_on_a_part_does_not_jump_at_its_border():
    core = sciml.Disk((0, 0), 0.5)

    class Parts(sciml.Problem):
        domain = DISK * sciml.Interval(t=(0, 1))
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=1.0, v=2.0)]

        @sciml.equation(on=core * sciml.Interval(t=(0, 1)))
        def inner(self, u, x, y, t):
            return d(u, t) - sciml.laplacian(u, x, y)

        @sciml.equation(on=(DISK - core) * sciml.Interval(t=(0, 1)))
        def outer(self, v, x, y, t):
            return d(v, t) - sciml.laplacian(v, x, y)

    space = TileSpace.laid(Parts(), ("x", "y"), (6, 6), 6, 2)
    for name in ("u", "v"):
        one = space.interpolated(name, lambda columns: torch.ones_like(columns[0])[None])
        assert float(space.torn(name, one).max()) < 1e-8

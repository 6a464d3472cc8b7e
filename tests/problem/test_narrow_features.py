"""Sources, starts and coefficients that are narrower than the distance of points are seen, resolved or told."""

import numpy as np
import pytest
import torch
from candidates import workspace

import sciml
from sciml import d
from sciml.diagnostics.smoothness import jumps_differentiated
from sciml.errors import ProblemError
from sciml.geometry import Interior, OnFaces, draw
from sciml.problem.collocation import Collocation
from sciml.problem.narrow_features import narrow_features, with_features
from sciml.problem.problem import Problem
from sciml.slabs.tile_space import TileSpace
from sciml.strategies import tiles
from sciml.strategies.prepare import prepare

MIDDLE, WIDTH = 0.4321, 2e-4
SQUARE = sciml.Box(x=(0, 1), y=(0, 1))


class Pulse(sciml.Problem):
    """Heat from a start that is a narrow pulse beside a ramp."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: x + torch.exp(-(((x - MIDDLE) / WIDTH) ** 2) / 2) / (WIDTH * np.sqrt(2 * np.pi))),
        sciml.Dirichlet(u=lambda x: x, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.01 * d(u, x, x)

    def reference(self, x, t):
        square = WIDTH**2 + 0.02 * t
        images = [(sign, MIDDLE * sign + 2 * number) for sign in (1, -1) for number in (-1, 0, 1)]
        parts = [sign * torch.exp(-((x - at) ** 2) / (2 * square)) for sign, at in images]
        return {"u": x + sum(parts) / torch.sqrt(2 * torch.pi * square)}


class Heater(sciml.Problem):
    """A small heater in a plate, and a load everywhere."""

    domain = SQUARE
    fields = ["u"]
    size = 0.01
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, x, y):
        squares = (x - 0.6173) ** 2 + (y - 0.3719) ** 2
        return sciml.laplacian(u, x, y) + 1 + 1e3 * torch.exp(-squares / (2 * self.size**2))


class Flash(sciml.Problem):
    """A start in the plane that no grid that serves elsewhere sees."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.2))
    fields = ["u"]
    height = 600.0
    conditions = [
        sciml.Initial(
            u=lambda self, x, y: (
                torch.sin(np.pi * x) * torch.sin(np.pi * y)
                + self.height * torch.exp(-((x - MIDDLE) ** 2 + (y - MIDDLE) ** 2) / 5e-5)
            )
        ),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - 0.01 * sciml.laplacian(u, x, y)


class Waves(sciml.Problem):
    """What is as quick everywhere, or large near one side, is not narrow."""

    domain = SQUARE
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x: torch.exp(-x / 0.05), on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        return sciml.laplacian(u, x, y) - torch.sin(200 * x) * torch.cos(173 * y) / (0.1 + x)


class Hills(sciml.Problem):
    """A smooth source has maxima, near which it is above both sides."""

    domain = SQUARE
    fields = ["u"]
    waves = 1
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x, y):
        return sciml.laplacian(u, x, y) - torch.sin(self.waves * np.pi * x) * torch.sin(self.waves * np.pi * y)


def layered(inside):
    """A conductor with a thin or small part of another conductivity, as a switch in the equation."""

    class Layered(sciml.Problem):
        domain = SQUARE
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x: x, on=domain.faces("x")), sciml.Neumann(u=0.0, on=domain.faces("y"))]

        @sciml.equation
        def balance(self, u, x, y):
            k = torch.where(inside(x, y), 50.0, 1.0).to(x)
            return d(k * d(u, x), x) + d(k * d(u, y), y)

    return Layered()


def near(points, *middle):
    return (points - torch.tensor(middle, dtype=torch.float64)).norm(dim=1)


def test_narrow_features_are_found_where_they_are():
    (place,) = found = narrow_features(Pulse())
    assert isinstance(place, OnFaces)
    assert bool((near(found[place].points[0], MIDDLE, 0.0) < 4 * WIDTH).all())
    (place,) = found = narrow_features(Heater())
    assert isinstance(place, Interior)
    assert bool((near(found[place].points[0], 0.6173, 0.3719) < 4 * Heater.size).all())
    assert not narrow_features(Heater(size=0.2))
    assert not narrow_features(Waves())
    for waves in (1, 3, 20):
        assert not narrow_features(Hills(waves=waves))


def test_points_at_features_come_first_on_their_sides():
    class Lamp(Problem):
        domain = SQUARE
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp(-(((y - MIDDLE) / WIDTH) ** 2)) * x, on=domain.boundary)]

        @sciml.equation
        def laplace(self, u, x, y):
            return sciml.laplacian(u, x, y)

    problem = Lamp()
    features = narrow_features(problem)
    (term,) = [each for each in problem.terms() if each.name == "dirichlet"]
    plain = Collocation(sciml.geometry.draw(term.place, SQUARE, 100, np.random.default_rng(0)), (term,))
    taken = []
    for which in range(3):
        (block,) = with_features([plain], features, which, 3)
        counts, more = plain.sample.faces, block.sample.faces
        assert len(block.sample.normals) == len(block.sample.points[0]) == sum(more) == sum(counts) + 10
        for before, after, here in zip(counts, more, block.sample.points[0].split(more), strict=True):
            added = here[: after - before]
            assert bool((added[:, 0] == 1).all())
            assert bool(((added[:, 1] - MIDDLE).abs() < 5 * WIDTH).all())
            taken += added[:, 1].tolist()
    # Each set has points of its own.
    assert len(set(taken)) == len(taken) == 30


def test_measurements_and_sizes_stay_what_they_are():
    class Measured(Heater):
        k = sciml.Unknown(1.5, lower=0)

        @sciml.equation
        def heat(self, u, x, y):
            squares = (x - 0.6173) ** 2 + (y - 0.3719) ** 2
            return self.k * sciml.laplacian(u, x, y) + 1 + 1e3 * torch.exp(-squares / (2 * self.size**2))

    generator = np.random.default_rng(0)
    data = {"x": generator.random(200), "y": generator.random(200), "u": generator.random(200)}
    table = sciml.Table(data)
    narrow, wide = (prepare(Measured(size=size), None, table, None, None, torch.float64, "cpu", 0) for size in (0.01, 0.2))
    assert narrow.narrow
    assert not wide.narrow
    for purpose in ("train", "held", "fresh"):
        sizes = [{term.name: each.size for each in getattr(one, purpose) for term in each.terms} for one in (narrow, wide)]
        assert sizes[0]["data.u"] == sizes[1]["data.u"]
        assert sizes[0]["heat"] > sizes[1]["heat"]
    few = prepare(Heater(), None, None, 40, None, torch.float64, "cpu", 0)
    assert few.natural["heat"] == pytest.approx(few.scales["heat"], rel=1.0)


def test_a_narrow_start_is_resolved_by_elements():
    solution = sciml.fit(Pulse())
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-8


@pytest.mark.parametrize("height", [600.0, 0.1])
def test_a_small_start_is_seen_far_above_what_is_around_it_and_on_a_hill(height):
    (found,) = narrow_features(Flash(height=height)).values()
    assert (abs(found.points[0][:, :2] - MIDDLE) < 0.02).all()


def test_a_start_that_a_grid_misses_is_no_success_and_its_place_is_told():
    missed = sciml.baseline(Flash(), n=24, time_limit=20)
    assert not missed.success
    assert "what 'initial' holds is narrow near x=0.4" in missed.message


@pytest.mark.slow
def test_a_small_start_is_resolved_by_tiles():
    solution = sciml.fit(Flash(height=0.1), seconds=300)
    assert solution.success, solution.message
    # The bump alone spreads as in the plane, far from the walls.
    wide = 5e-5 + 4 * 0.01 * 0.2
    exact = np.exp(-2 * np.pi**2 * 0.01 * 0.2) * np.sin(np.pi * MIDDLE) ** 2 + 0.1 * 5e-5 / wide
    assert solution(x=MIDDLE, y=MIDDLE, t=0.2)["u"] == pytest.approx(exact, abs=1e-6)


@pytest.mark.slow
def test_a_small_heater_is_resolved_and_judged_as_a_share_of_itself():
    solution = sciml.fit(Heater(size=0.005))
    assert solution.success, solution.message
    modes = np.arange(1, 500)
    power = 1e3 * 2 * np.pi * 0.005**2
    along = [2 * np.sin(modes * np.pi * at) * np.exp(-((modes * np.pi * 0.005) ** 2) / 2) for at in (0.6173, 0.3719)]
    load = np.where(modes % 2 == 1, 4 / (modes * np.pi), 0.0)
    weights = power * np.outer(*along) + np.outer(load, load)
    weights /= np.pi**2 * (modes[:, None] ** 2 + modes**2)
    x, y = np.array([0.6173, 0.63, 0.2]), np.array([0.3719, 0.36, 0.7])
    exact = [np.sin(np.pi * modes * a) @ weights @ np.sin(np.pi * modes * b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(solution(x=x, y=y)["u"], exact, atol=1e-6)


def test_tiles_are_halved_where_a_source_is_small():
    problem = Heater(size=1e-3)
    (sample,) = narrow_features(problem).values()
    space = TileSpace.laid(problem, problem.coordinates, (3, 3), 6)
    around = space.around([sample])
    at = around.model.tile(around._scaled(torch.tensor([[0.6173, 0.3719]])))
    assert float(around.model.halves[at].max()) < 0.02
    assert space.around([]) is space
    laid = tiles._space(workspace(problem), (3, 3), 6)
    assert float(laid.model.halves.min()) < 0.02


@pytest.mark.parametrize(
    "inside",
    [lambda x, y: (x > 0.5371) & (x < 0.5377), lambda x, y: (x - 0.5371) ** 2 + (y - 0.4633) ** 2 < 0.02**2],
    ids=["layer", "inclusion"],
)
def test_thin_parts_of_another_conductivity_jump_too(inside):
    with pytest.raises(ProblemError, match="expression that jumps by 98%"):
        sciml.fit(layered(inside))


def test_the_tip_of_a_curve_along_which_a_start_jumps_is_not_narrow():
    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    drop = sciml.Initial(u=lambda x, y: ((x - 0.3) ** 2 + (y - 0.5) ** 2 < 0.04).to(x.dtype))
    heat = sciml.equation(lambda self, u, x, y, t: d(u, t) - sciml.laplacian(u, x, y))
    settings = {"domain": domain, "fields": ["u"], "conditions": [drop, sciml.Periodic("x"), sciml.Periodic("y")]}
    assert narrow_features(type("Drop", (sciml.Problem,), {**settings, "heat": heat})()) == {}


@pytest.mark.parametrize("within", [False, True])
def test_what_is_differentiated_is_not_looked_at_inside_a_small_hole(within):
    hole = sciml.Disk((0.37, 0.61), 0.005)
    square = SQUARE if within else SQUARE - hole

    class Well(sciml.Problem):
        domain = square
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=square.boundary)]

        @sciml.equation
        def flow(self, u, x, y):
            core = torch.hypot(x - 0.37, y - 0.61) < 0.004
            return d(torch.where(core, 9.0, 1.0) * d(u, x), x) + d(d(u, y), y) + 1

    assert bool(list(jumps_differentiated(Well()))) is within


def test_in_a_domain_that_hardly_fills_its_box_fewer_points_are_looked_at(monkeypatch):
    ring = sciml.Disk((0, 0), 1) - sciml.Disk((0, 0), 0.9995)
    asked = []

    class Ring(sciml.Problem):
        domain = ring
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=ring.boundary)]

        @sciml.equation
        def poisson(self, u, x, y):
            return sciml.laplacian(u, x, y) + torch.exp(-((x - 0.9) ** 2) * 1e6)

    def counted(place, domain, count, generator):
        asked.append(count)
        return draw(place, domain, count, generator)

    monkeypatch.setattr("sciml.problem.narrow_features.draw", counted)
    assert list(narrow_features(Ring())) == [Interior()]
    assert asked == [pytest.approx(50_000 * 100 * ring.filling, rel=0.01), 50_000]

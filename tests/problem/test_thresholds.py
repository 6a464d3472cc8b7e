"""Thresholds: what residuals compare coordinates with is found, however small what it switches on is."""

import numpy as np
import pytest
import torch
from candidates import workspace
from conftest import problem_class

import sciml
from sciml import d
from sciml.geometry import Interior, OnFaces, draw
from sciml.problem.narrow_features import narrow_features
from sciml.problem.thresholds import at_same_jets, switched, with_thresholds
from sciml.slabs.tile_space import TileSpace
from sciml.strategies import Spectral
from sciml.strategies.search import search

SQUARE = sciml.Box(x=(0, 1), y=(0, 1))


class Heated(sciml.Problem):
    """A plate with a heater of some width, as a square or a disk, beside a smooth source."""

    domain = SQUARE
    fields = ("u",)
    conditions = (sciml.Dirichlet(u=0.0, on=SQUARE.boundary),)
    width, round = 1e-3, False

    @sciml.equation
    def balance(self, u, x, y):
        east, north = x - 0.3718, y - 0.6123
        if self.round:
            on = east**2 + north**2 < self.width**2
        else:
            on = (east > 0) & (east < self.width) & (north > 0) & (north < self.width)
        return sciml.laplacian(u, x, y) + 1 + torch.where(on, self.width**-2, 0.0).to(x)


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("width", [1e-2, 1e-3, 1e-5])
def test_a_heater_between_fifty_thousand_points_is_seen(width, disk):
    points = narrow_features(type("Small", (Heated,), {"width": width, "round": disk})())[Interior()].points[0]
    assert len(points)
    assert (points - torch.tensor([0.3718, 0.6123])).abs().max() < width


class Strip(sciml.Problem):
    """A flux through a small part of two walls."""

    domain = SQUARE
    fields = ("u",)
    conditions = (
        sciml.Dirichlet(u=0.0, on=SQUARE.faces("x")),
        sciml.Neumann(u=lambda x: torch.where((x > 0.4321) & (x < 0.43215), 1e4, 0.0).to(x), on=SQUARE.faces("y")),
    )

    @sciml.equation
    def balance(self, u, x, y):
        return sciml.laplacian(u, x, y) + 1


def test_what_is_switched_on_a_small_part_of_a_wall_is_seen_there():
    found = narrow_features(Strip())[OnFaces(tuple(SQUARE.sides[2:]))]
    (points,), (lower, upper) = found.points, found.faces
    assert lower
    assert upper
    assert ((points[:, 0] > 0.4321) & (points[:, 0] < 0.43215)).all()
    assert points[:lower, 1].eq(0).all()
    assert points[lower:, 1].eq(1).all()
    assert found.normals is not None
    assert len(found.normals) == len(points)


def test_the_places_of_comparisons_are_exact_and_those_that_move_are_none():
    assert switched(Heated(), "x") == pytest.approx([0.3718, 0.3728], abs=1e-12)
    assert switched(Heated(), "y") == pytest.approx([0.6123, 0.6133], abs=1e-12)
    assert switched(type("Round", (Heated,), {"round": True})(), "x") == []


class Smooth(sciml.Problem):
    domain = SQUARE
    fields = ("u",)
    conditions = (sciml.Dirichlet(u=0.0, on=SQUARE.boundary),)

    @sciml.equation
    def balance(self, u, x, y):
        # What compares fields says nothing of places.
        return sciml.laplacian(u, x, y) + torch.where(u > 0, u, 0.0) + torch.sin(x)


@pytest.mark.parametrize("made", [Smooth, problem_class("darcy_field")], ids=["smooth", "a table"])
def test_a_residual_that_compares_no_coordinates_has_the_points_that_it_had(made):
    problem, looked = made(), []
    term = next(each for each in problem.terms() if each.name == "balance")
    sample, seen = draw(term.place, problem.domain, 100, np.random.default_rng(0)), at_same_jets(problem, term)

    def counted(points, normals):
        looked.append(len(points))
        return seen(points, normals)

    assert torch.equal(with_thresholds(problem, term.place, sample, counted).points[0], sample.points[0])
    # That a table covers the domain is asked by its ends, which is no comparison that is followed in hundreds of steps.
    assert len(looked) < 10
    assert switched(problem, "x") == []


def test_tiles_end_where_an_equation_jumps_and_count_halvings_from_there():
    space = TileSpace.laid(type("Wide", (Heated,), {"width": 0.1})(), ("x", "y"), (4, 4), 4)
    (east, north) = ((each + 1) / 2 for each in space.model.breaks)
    assert all(any(abs(east - place) < 1e-12) for place in (0.3718, 0.4718))
    assert all(any(abs(north - place) < 1e-12) for place in (0.6123, 0.7123))
    assert not space.halvings.any()
    marked = torch.zeros(len(space.model.live), dtype=torch.bool)
    marked[0] = True
    assert space.finer(marked).halvings.max() == 1


class Wire(sciml.Problem):
    """A thin wire that heats a rod until nothing changes any more."""

    domain = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 2))
    fields = ("u",)
    conditions = (sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x")))
    begin, end = 0.3718, 0.3719

    @sciml.equation
    def balance(self, u, x, t):
        on = (x > self.begin) & (x < self.end)
        return d(u, t) - d(u, x, x) - torch.where(on, 1 / (self.end - self.begin), 0.0).to(x)


def _compared(residual, **settings):
    """A problem in a square whose source compares what it may."""
    equation = sciml.equation(lambda self, u, x, y: sciml.laplacian(u, x, y) + residual(x, y))
    return type("Compared", (Smooth,), {"balance": equation, **settings})()


@pytest.mark.parametrize(
    ("residual", "places"),
    [
        (lambda x, y: torch.where(torch.gt(x, other=0.3), 1.0, 0.0).to(x), [0.3]),
        (lambda x, y: torch.sign(input=x - 0.3), [0.3]),
        (lambda x, y: torch.where((x > 0.3) & (10 * x > 3), 1.0, 0.0).to(x), [0.3]),
        (lambda x, y: torch.where((x - 0.5) ** 2 < 0.01, 1.0, 0.0).to(x), [0.4, 0.6]),
        (lambda x, y: torch.where((x > 0.3) == (y > 2), 1.0, 0.0).to(x), [0.3]),
        (lambda x, y: torch.where(x <= 1.0, 1.0, 0.0).to(x), []),
        (lambda x, y: torch.where(x > 0.3 * y, 1.0, 0.0).to(x), []),
        (lambda x, y: torch.where(x > 0.3, 1.0, 0.0).to(x) if bool(y.max() > 0.9) else 0.0 * x, []),
        (lambda x, y: sum(torch.where(x > k / 40, 1.0, 0.0).to(x) for k in range(1, 40)), []),
    ],
)
def test_the_places_of_whatever_is_compared(residual, places):
    assert switched(_compared(residual), "x") == pytest.approx(places, abs=1e-12)


def test_an_equation_that_asks_some_points_alone_is_no_error():
    def residual(x, y):
        rare = torch.where(x**2 + y**2 < -1e-9, 1.0, 0.0).to(x)
        return torch.where(x > -5, 1.0, 0.0).to(x) + rare if len(x) > 1000 else rare

    assert narrow_features(_compared(residual)) == {}


def test_constants_that_are_looked_for_are_no_places():
    moved = sciml.equation(lambda self, u, x, y: sciml.laplacian(u, x, y) + torch.where(x > self.a, 1.0, 0.0).to(x))
    assert switched(type("Moved", (Smooth,), {"balance": moved, "a": sciml.Unknown(0.3)})(), "x") == []


def test_what_is_seen_of_a_start_lies_in_the_domain():
    disk = sciml.Disk((0, 0), 1)
    domain = disk * sciml.Interval(t=(0, 0.1))

    def start(corner):
        inside = lambda z: (z > corner) & (z < corner + 3e-3)  # noqa: E731
        value = lambda x, y: 1 - x**2 - y**2 + torch.where(inside(x) & inside(y), 5.0, 0.0).to(x)  # noqa: E731
        conditions = [sciml.Initial(u=value), sciml.Dirichlet(u=0.0, on=domain.boundary)]
        heat = sciml.equation(lambda self, u, x, y, t: d(u, t) - 0.1 * sciml.laplacian(u, x, y))
        return type("Start", (sciml.Problem,), {"domain": domain, "fields": ["u"], "conditions": conditions, "heat": heat})()

    assert narrow_features(start(0.9)) == {}
    (found,) = narrow_features(start(0.3)).values()
    assert (found.points[0][:, :2] > 0.3).all()


def test_all_heaters_and_fields_have_their_share_of_points():
    places = torch.arange(1, 14, dtype=torch.float64) / 14

    def heaters(x, y):
        on = [(x > p) & (x < p + 1e-3) & (y > p) & (y < p + 1e-3) for p in places.tolist()]
        return torch.where(torch.stack(on).any(0), 1e6, 0.0).to(x)

    points = narrow_features(_compared(heaters))[Interior()].points[0]
    assert all(bool((abs(points[:, 0] - place) < 2e-3).any()) for place in places)


def test_tiles_do_not_end_at_what_is_far_thinner():
    assert len(TileSpace.laid(Heated(), ("x", "y"), (3, 3), 4).model.live) == 9


def test_tiles_of_a_model_know_where_equations_jump():
    heated = type("Wide", (Heated,), {"width": 0.1})()
    space = TileSpace.laid(heated, ("x", "y"), (3, 3), 4)
    again = TileSpace(heated, space.model, ("x", "y"))
    assert not again.halvings.any()
    assert not again.singular


@pytest.mark.slow
def test_a_wire_that_heats_a_rod_is_solved():
    solution = sciml.fit(Wire())
    assert solution.success, solution.message
    x = np.linspace(0, 1, 201)
    middle = (Wire.begin + Wire.end) / 2
    steady = np.minimum(x * (1 - middle), middle * (1 - x))
    apart = np.abs(x - middle) > 1e-3
    assert np.abs(solution(x=x, t=2.0)["u"] - steady)[apart].max() < 1e-8


class Switched(sciml.Problem):
    """A heater of a part of a plate, from zero on."""

    domain = SQUARE * sciml.Interval(t=(0, 0.5))
    fields = ("u",)
    conditions = (sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")))
    begin, end = 0.2718, 0.5718

    @sciml.equation
    def balance(self, u, x, y, t):
        on = (x > self.begin) & (x < self.end) & (y > self.begin) & (y < self.end)
        return d(u, t) - 0.1 * sciml.laplacian(u, x, y) - torch.where(on, 1.0, 0.0).to(x)

    def exact(self, x, y, t):
        """By the eigenfunctions of the square."""
        n = np.arange(1, 400) * np.pi
        shares = 2 * (np.cos(n * self.begin) - np.cos(n * self.end)) / n
        rates = 0.1 * (n[:, None] ** 2 + n**2)
        weights = np.outer(shares, shares) * -np.expm1(-rates * t) / rates
        return np.einsum("pi,ij,pj->p", np.sin(np.outer(x, n)), weights, np.sin(np.outer(y, n)))


@pytest.mark.slow
def test_a_heater_of_a_part_of_a_plate_is_solved_on_tiles_that_end_there():
    solution = sciml.fit(Switched())
    assert solution.success, solution.message
    assert "polynomials on cut tiles" in " ".join(solution.choices)
    x, y = np.random.default_rng(0).random((2, 300))
    for t in (0.1, 0.5):
        exact = Switched().exact(x, y, t)
        assert np.linalg.norm(solution(x=x, y=y, t=t)["u"] - exact) < 1e-4 * np.linalg.norm(exact)


def test_a_candidate_that_misses_narrow_data_does_not_solve_the_problem():
    work = workspace(Heated())
    found = search([Spectral((12, 12))], work)
    assert found is not None
    assert not found.solved
    assert not found.accepted
    assert "narrow near x=0.37" in work.choices[-1]

"""What is no solution, or one of many, is no success: free directions, equations that contradict each other, none at all."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import scipy
import torch
from candidates import candidate, workspace
from scipy.integrate import solve_bvp

import sciml
from problems import stresses
from sciml import d
from sciml.diagnostics.estimated_error import ErrorEstimate
from sciml.diagnostics.null_space import free_directions
from sciml.strategies import network
from sciml.strategies.search import Options
from sciml.strategies.tiles import _Refinements

SQUARE = sciml.Box(x=(0, 1), y=(0, 1))
CIRCLE = sciml.Interval(x=(0, 2 * math.pi))


class Free(sciml.Problem):
    """A square that is stretched along x, without supports: it may turn."""

    domain = SQUARE
    fields = ["u", "v"]
    conditions = [sciml.Mean(u=0.0), sciml.Mean(v=0.0)]

    @sciml.condition(on=domain.faces("x"))
    def pull(self, u, v, x, y):
        return stresses(u, v, x, y)[0] - 1.0

    @sciml.condition(on=domain.faces("y"))
    def none(self, u, v, x, y):
        return stresses(u, v, x, y)[2]

    @sciml.condition(on=domain.faces("x"))
    def shear_x(self, u, v, x, y):
        return stresses(u, v, x, y)[1]

    @sciml.condition(on=domain.faces("y"))
    def shear_y(self, u, v, x, y):
        return stresses(u, v, x, y)[1]

    @sciml.equation
    def along(self, u, v, x, y):
        across, shear, _ = stresses(u, v, x, y)
        return d(across, x) + d(shear, y)

    @sciml.equation
    def upwards(self, u, v, x, y):
        _, shear, across = stresses(u, v, x, y)
        return d(shear, x) + d(across, y)


class Ring(sciml.Problem):
    """A mode of a ring: a cosine and a sine have the same eigenvalue, and their sum is held at one point only."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    eigenvalue = sciml.Unknown(39.0)
    conditions = [sciml.Periodic("x"), sciml.Point(u=1.0, at={"x": 0.3})]

    @sciml.equation
    def mode(self, u, x):
        return d(u, x, x) + self.eigenvalue * u


class Wells(sciml.Problem):
    """A state in two wells: the even and the odd one have the same energy to twelve digits."""

    domain = sciml.Interval(x=(-2.5, 2.5))
    fields = ["u"]
    energy = sciml.Unknown(0.1)
    conditions = [sciml.Dirichlet(u=0.0), sciml.Point(u=1.0, at={"x": 1.0})]

    @sciml.equation
    def mode(self, u, x):
        return ((x**2 - 1) ** 2 - self.energy) * u - 0.0025 * d(u, x, x)


class Drum(sciml.Problem):
    """The second mode of a drum, which may be turned, unless its sides are pulled differently."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    eigenvalue = sciml.Unknown(14.7)
    across = 1.0
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary), sciml.Point(u=1.0, at={"x": 0.4, "y": 0.2})]

    @sciml.equation
    def mode(self, u, x, y):
        return d(u, x, x) + self.across * d(u, y, y) + self.eigenvalue * u


class PulledDrum(Drum):
    across = 1.05


class Held(Free):
    """The same, of which one corner does not move up or down beside the other."""

    conditions = [*Free.conditions, sciml.Point(v=0.0, at={"x": 0.0, "y": 0.5}), sciml.Point(v=0.0, at={"x": 1.0, "y": 0.5})]


def test_a_body_without_supports_may_turn():
    solution = sciml.fit(Free(), strategy=sciml.strategies.Spectral(4))
    assert not solution.success
    assert "'u', 'v' can be moved along polynomials" in solution.message
    assert solution.estimated_error == {"u": 1.0, "v": 1.0}
    found = candidate(sciml.strategies.Spectral(4), workspace(Free()))
    assert set(free_directions(found.discrete)) == {"u", "v"}


def test_one_that_is_held_may_not():
    solution = sciml.fit(Held(), strategy=sciml.strategies.Spectral(4))
    assert solution.success
    assert free_directions(candidate(sciml.strategies.Spectral(4), workspace(Held())).discrete) == {}


class Drawn(sciml.Problem):
    """A periodic boundary value problem at resonance: there is no solution."""

    domain = CIRCLE
    fields = ["u"]
    conditions = [sciml.Periodic("x")]

    @sciml.equation
    def forced(self, u, x):
        return d(u, x, x) + u - 0.05 * torch.cos(x) - torch.sin(2 * x)


class BeyondTheFold(sciml.Problem):
    """Gelfand's problem on a square beyond its fold, at 6.808: there is no solution."""

    domain = SQUARE
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def burning(self, u, x, y):
        return sciml.laplacian(u, x, y) + 6.9 * torch.exp(u)


class NearTheFold(sciml.Problem):
    """Gelfand's problem on a disk, so near its fold that small residuals move the solution a long way."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    strength = 2 - 1e-7
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def burning(self, u, x, y):
        return sciml.laplacian(u, x, y) + self.strength * torch.exp(u)

    def reference(self, x, y):
        """The smaller one: u = 2 log((1 + b)/(1 + b r²)) with 8 b/(1 + b)² the strength."""
        half = 4 / self.strength - 1
        b = half - math.sqrt(half**2 - 1)
        return 2 * torch.log((1 + b) / (1 + b * (x**2 + y**2)))


class Column(sciml.Problem):
    """A column that a small load bends: so near its resonance that it is nonlinear where the load looks linear."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def balance(self, u, x):
        return d(u, x, x) + 1.001 * math.pi**2 * torch.sin(u) - 8e-5


class Insulated(sciml.Problem):
    """An insulated rod of which the mean is known: its right-hand side has a kink."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Neumann(u=0.0, on=domain.faces("x")), sciml.Mean(u=0.0)]

    @sciml.equation
    def heated(self, u, x):
        return d(u, x, x) - torch.abs(x - 0.5) + 0.25


def test_a_field_that_hardly_lives_anywhere_is_not_looked_at():
    corner = sciml.Box(x=(0, 0.01), y=(0, 0.01))

    class Two(sciml.Problem):
        domain = SQUARE
        fields = ["u", "v"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary), sciml.Dirichlet(v=0.0, on=domain.boundary)]

        @sciml.equation
        def whole(self, u, x, y):
            return sciml.laplacian(u, x, y) + 1.0

        @sciml.equation(on=corner)
        def part(self, v, x, y):
            return sciml.laplacian(v, x, y) + 1.0

    assert free_directions(workspace(Two()).discrete) == {}


@pytest.mark.parametrize("problem", [BeyondTheFold, Drawn])
def test_where_there_is_no_solution_refinements_agree_and_residuals_stay(problem):
    last = candidate(sciml.strategies.Tiles(), workspace(problem()))
    assert not last.accepted
    assert last.doubt or last.residual > 1e-3


def test_residuals_that_stay_are_told():
    refined, exactly = _Refinements(), {"rounding": lambda: 0.0}
    for change, residual in ((math.inf, 3e-3), (1e-1, 4e-3), (2e-2, 3.1e-3)):
        refined.change = change
        assert refined.stalled(residual, singular=False, **exactly) == ""
    refined.change = 1e-4
    assert "no solution" in refined.stalled(3e-3, singular=True, **exactly)
    refined.change = 1e-5
    assert refined.stalled(1e-4, singular=False, **exactly) == ""
    refined.change = 1e-6
    assert "no solution" in refined.stalled(1e-4, singular=False, **exactly)
    # What rounding may leave says nothing.
    assert refined.stalled(1e-4, singular=False, rounding=lambda: 2e-4) == ""
    assert "no solution" in refined.stalled(1e-4, singular=False, **exactly)
    assert refined.stalled(1e-4, singular=True, **exactly) == ""
    # Beside corners that bound no second derivatives residuals fall slowly.
    slow = _Refinements()
    for change, residual in ((math.inf, 1.5e-3), (1.6e-4, 1.06e-4), (2.8e-7, 9.1e-5)):
        slow.change = change
        assert slow.stalled(residual, singular=False, **exactly) == ""
    # Where the equations held before they have a solution.
    refined.change = 1e-7
    assert refined.stalled(0.1, singular=False, **exactly) == ""


@pytest.mark.parametrize(("residual", "left", "told"), [(1e-4, 1e-20, False), (1e-4, 1e-16, True), (2e-3, 1e-20, True)])
def test_small_residuals_where_rows_hold_are_noise(residual, left, told):
    refined = _Refinements()
    for change in (math.inf, 1e-3, 1e-6):
        refined.change, refined.left = change, left
        last = refined.stalled(residual, singular=False, rounding=lambda: 0.0)
    assert ("no solution" in last) == told


@pytest.mark.parametrize(("falls", "weight", "told"), [(0.01, 1.0, False), (0.3, 1.0, True), (0.1, 0.1, True)])
def test_where_rows_converge_nothing_contradicts(falls, weight, told):
    refined, last = _Refinements(), ""
    for number in range(4):
        left, own = falls**number, weight**number
        refined.at_most({"u": 10.0 ** (-2 * number)}, left, alike=False, hidden=0.0, smallest=0.0, weight=own)
        last = refined.stalled(5e-3, singular=True, rounding=lambda: 0.0)
    assert ("contradict" in last) == told


def test_changes_that_fall_slowly_count_all_that_come():
    refined = _Refinements()
    for change, factor in ((1e-2, 1.0), (8e-3, 4.0), (1e-3, 1.0), (1e-3, 9.0)):
        refined.at_most({"u": change}, 1.0, alike=True, hidden=0.0, smallest=0.0)
        assert refined.to_come == pytest.approx(factor)


@pytest.mark.parametrize(
    ("residuals", "told"),
    [
        ((0.75, 0.76, 0.9, 2.1), True),
        ((0.0174, 0.0176, 0.0203, 0.0505), True),
        ((math.inf, 5.0, 0.76, 0.75, 0.74, 0.73), True),
        ((0.75, 0.76, 0.9), False),
        ((1.0, 0.85, 0.7, 0.56), False),
        ((0.75, 0.76, 0.9, 0.05), False),
    ],
)
def test_residuals_that_no_tiles_make_smaller_are_told(residuals, told):
    refined, last = _Refinements(), ""
    for number, residual in enumerate(residuals):
        refined.change = 1.5 - 0.1 * number
        last = refined.stalled(residual, singular=False, rounding=lambda: 0.0)
    words = f"stay at {residuals[-1]:.1e} of their natural size whatever the tiles: equations and conditions contradict"
    assert (words in last) == told


@pytest.mark.parametrize(
    ("changes", "residuals", "told"),
    [
        ((6.1e-4, 3.3e-4, 6.5e-4), (7.5e-3, 7.6e-3, 8.7e-3, 2.2e-2), True),
        ((6.1e-4, 3.3e-4), (7.5e-3, 7.6e-3, 8.7e-3), False),
        ((6.1e-4, 3.3e-4, 6.5e-4), (7.5e-3, 5.6e-3, 8.7e-3, 2.2e-2), False),
        ((6.1e-4, 3.3e-4, 1.5e-4), (7.5e-3, 7.6e-3, 8.7e-3, 2.2e-2), False),
        ((6.1e-4, 1.0e-5, 6.5e-4), (7.5e-3, 7.6e-3, 8.7e-3, 2.2e-2), False),
        ((6.1e-2, 3.3e-2, 6.5e-2), (7.5e-3, 7.6e-3, 8.7e-3, 2.2e-2), False),
    ],
)
def test_where_neither_residuals_nor_changes_ever_fell_nothing_is_solved(changes, residuals, told):
    refined = _Refinements(residuals=[*zip((math.inf, *changes), residuals, strict=True)], change=changes[-1])
    assert ("contradict" in refined.never_solved(singular=False)) == told
    assert refined.never_solved(singular=True) == ""
    refined.falling = True
    assert refined.never_solved(singular=False) == ""


@pytest.mark.parametrize(
    ("changes", "residuals", "idle", "told"),
    [
        ((2.7e-2, 2.3e-3, 3.3e-3), (0.146, 0.037, 0.045, 0.104), 1, True),
        # They still fall.
        ((2.7e-2, 3.3e-3, 2.3e-3), (0.146, 0.037, 0.045, 0.104), 0, False),
        # They are no smaller than residuals, or as small as a solution's.
        ((2.7e-2, 2.3e-3, 4.3e-3), (0.146, 0.037, 0.045, 0.104), 1, False),
        ((2.7e-2, 2.3e-4, 3.3e-4), (0.146, 0.037, 0.045, 0.104), 1, False),
    ],
)
def test_changes_that_rest_far_below_residuals_are_no_solution(changes, residuals, idle, told):
    """Fluxes of a ring that differ by three hundredths were a solution that is a little too far off."""
    refined = _Refinements(residuals=[*zip((math.inf, *changes), residuals, strict=True)], change=changes[-1], idle=idle)
    assert ("contradict" in refined.never_solved(singular=False)) == told


def test_sources_and_fluxes_that_differ_by_a_hundredth_are_told():
    class Heated(sciml.Problem):
        domain = sciml.Disk((0, 0), 1)
        fields = ["u"]
        conditions = [sciml.Neumann(u=-0.5 * 0.99, on=domain.boundary), sciml.Mean(u=0.0)]

        @sciml.equation
        def heat(self, u, x, y):
            return sciml.laplacian(u, x, y) + 1 + x

    class Rod(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Neumann(u=-0.5 * 0.98), sciml.Mean(u=0.0)]

        @sciml.equation
        def heat(self, u, x):
            return d(u, x, x) + 1

    for problem in (Heated(), Rod()):
        solution = sciml.fit(problem)
        assert not solution.success
        assert "equations and conditions contradict each other" in solution.message
        assert not solution.estimated_error
    with pytest.raises(sciml.errors.BaselineError, match=r"least squares leave 1\.4e-02 of the natural size"):
        sciml.baseline(Rod())


class Leaking(sciml.Problem):
    """Stokes flow through a channel out of which a hundredth more flows than into it."""

    domain = sciml.Box(x=(0, 2), y=(0, 1))
    fields = ["u", "v", "p"]
    leak = 1e-2
    conditions = [
        sciml.Dirichlet(u=lambda y: 4 * y * (1 - y), v=0.0, on=domain.face(x=0)),
        sciml.Dirichlet(u=lambda self, y: (1 + self.leak) * 4 * y * (1 - y), v=0.0, on=domain.face(x=2)),
        sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("y")),
        sciml.Mean(p=0.0),
    ]

    @sciml.equation
    def along(self, u, p, x, y):
        return sciml.laplacian(u, x, y) - d(p, x)

    @sciml.equation
    def across(self, v, p, x, y):
        return sciml.laplacian(v, x, y) - d(p, y)

    @sciml.equation
    def volume(self, u, v, x, y):
        return d(u, x) + d(v, y)


@pytest.mark.slow
def test_a_flow_that_leaks_is_told_by_its_equation_and_by_whichever_came_closest():
    """Polynomials of the whole box are as close as tiles: refinements of tiles alone tell that nothing is."""
    solution = sciml.fit(Leaking(), seconds=60)
    assert not solution.success
    assert "the equation 'volume' misses by the same nearly everywhere" in solution.message
    assert "whether sources balance what flows" in solution.message
    assert sciml.fit(Leaking(leak=0.0), seconds=60).success


@pytest.mark.parametrize(
    ("residuals", "even", "told"),
    [
        ((3.0e-3, 3.02e-3, 3.05e-3), "volume", True),
        ((3.0e-3, 3.02e-3, 3.05e-3), "", False),
        ((3.0e-3, 3.02e-3, 2.4e-3), "volume", False),
        ((3.0e-3, 3.02e-3), "volume", False),
        ((3.0e-5, 3.02e-5, 3.05e-5), "volume", False),
        # Nothing is resolved yet.
        ((0.69, 0.69, 0.69), "volume", False),
    ],
)
def test_what_is_the_same_everywhere_on_all_tiles_is_not_balanced(residuals, even, told):
    refined, last = _Refinements(), ""
    for number, residual in enumerate(residuals):
        refined.change = 0.2 - 0.05 * number
        last = refined.stalled(residual, singular=False, rounding=lambda: 0.0, even=lambda: even)
    assert ("the equation 'volume' misses" in last) == told == refined.unbalanced


class Resonant(sciml.Problem):
    """Forced waves in a disk whose wave number is a thousandth from that of its lowest mode."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    square = 2.404825557695773**2 * (1 + 1e-3)
    conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp(x) * torch.cos(2 * y))]

    @sciml.equation
    def helmholtz(self, u, x, y):
        return sciml.laplacian(u, x, y) + self.square * u - (self.square - 3) * torch.exp(x) * torch.cos(2 * y)

    def reference(self, x, y):
        return torch.exp(x) * torch.cos(2 * y)


def test_a_mode_whose_eigenvalue_is_near_is_none_that_nothing_sees():
    solution = sciml.fit(Resonant())
    assert solution.success, solution.message
    assert solution.error()["u"] < 10 * solution.estimated_error["u"] < 1e-3


@pytest.mark.parametrize(
    ("seen", "adrift"),
    [
        ((4e-2, 8e-3, 1.6e-3, 1.1e-3, 1.2e-3), (False, False, True, True, False)),
        ((4e-2, 8e-3, 1.6e-3, 1.1e-3, 5e-4), (False, False, True, True, True)),
        ((4e-2, 8e-3, 1.2e-3, 8e-6, 1e-5), (False, False, True, True, True)),
    ],
)
def test_what_residuals_see_of_a_direction_rests_or_falls(seen, adrift):
    refined = _Refinements()
    assert tuple(refined.adrift(each, 1e-9, linear=True) for each in seen) == adrift


def test_what_the_smallest_tiles_at_jumps_miss_shows_where_they_are_halved():
    refined, told = _Refinements(), []
    for change, smallest in ((1e-4, 2.0**-20), (1e-6, 2.0**-22), (1e-9, 2.0**-22), (1e-8, 2.0**-24)):
        told.append(refined.at_most({"u": change}, 1.0, alike=True, hidden=0.0, smallest=smallest)["u"])
    assert told == [1e-4, 1e-6, 1e-6, 1e-8]


def test_near_a_fold_the_estimate_is_that_of_corrections_that_agree():
    solution = sciml.fit(NearTheFold(), strategy=sciml.strategies.Tiles())
    assert solution.success, solution.message
    assert solution.error()["u"] < 3 * solution.estimated_error["u"]
    # As the small steps before, whose factor knows hardly any digit, did not on every processor.
    assert solution.error()["u"] < 1e-6


@pytest.mark.parametrize(("problem", "strategy"), [(Ring(), "auto"), (Drum(), sciml.strategies.Tiles(5, 8))])
def test_a_mode_beside_another_with_the_same_eigenvalue_is_no_success(problem, strategy):
    solution = sciml.fit(problem, strategy=strategy)
    assert not solution.success
    assert "another solution lies beside this one" in solution.message
    assert solution.estimated_error == {"u": 1.0}
    # Of the eigenvalue nothing is wrong.
    right = (2 * math.pi) ** 2 if isinstance(problem, Ring) else 3.8317059702**2
    assert abs(solution.unknowns.loc["eigenvalue", "estimate"] - right) < 1e-4


def test_a_mode_alone_is_one():
    solution = sciml.fit(PulledDrum(), strategy=sciml.strategies.Tiles(5, 8))
    assert solution.success, solution.message
    assert 0 < solution.estimated_error["u"] < 1e-3


def test_of_two_modes_with_nearly_the_same_eigenvalue_the_error_is_told():
    solution = sciml.fit(Wells())
    left, right = solution(x=np.array([-1.0, 1.0]))["u"]
    assert not solution.success
    assert abs(abs(left) - abs(right)) < 10 * solution.estimated_error["u"]


def test_what_looks_linear_at_the_size_of_the_data_is_asked_again_at_larger_ones():
    load = 1.001 * math.pi**2
    solution = sciml.fit(Column())
    start = solution.grid(101)["x"]
    exact = solve_bvp(
        lambda x, y: np.stack([y[1], 8e-5 - load * np.sin(y[0])]),
        lambda a, b: np.array([a[0], b[0]]),
        start,
        np.stack([solution(x=start)["u"], np.gradient(solution(x=start)["u"], start)]),
        tol=1e-10,
    )
    assert np.abs(solution(x=start)["u"] - exact.sol(start)[0]).max() < 1e-5 * np.abs(exact.sol(start)[0]).max()


def test_a_mean_over_an_interval_takes_no_matrix_of_its_points():
    solution = sciml.fit(Insulated(), strategy=sciml.strategies.Tiles(4, 8))
    x = np.linspace(0, 1, 101)
    part = np.abs(x - 0.5) ** 3 / 6 - x**2 / 8 + x / 8
    assert np.abs(solution(x=x)["u"] - part + np.trapezoid(part, x)).max() < 1e-4


def test_given_functions_without_an_estimate_are_believed_for_small_residuals_alone(monkeypatch):
    monkeypatch.setattr(network, "estimated_error", lambda *_: ErrorEstimate({}))
    found = candidate(sciml.strategies.Spectral(4), workspace(Held()))
    assert network._estimated(found.discrete, 1e-4, Options(), given=True) == ({}, "")
    assert "cannot be estimated" in network._estimated(found.discrete, 4e-2, Options(), given=True)[1]
    # Those that a network was polished to were not given.
    assert "cannot be estimated" in network._estimated(found.discrete, 1e-4, Options(), given=False)[1]


HOLED = SQUARE - sciml.Disk((0.5, 0.5), 0.2)
CORE = sciml.Disk((0.5, 0.5), 0.2)


class Sum(sciml.Problem):
    """Two equations that know the sum of two fields alone."""

    domain = SQUARE
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=0.0, v=0.0)]

    @sciml.equation
    def one(self, u, v, x, y):
        return sciml.laplacian(u + v, x, y) + 1

    @sciml.equation
    def two(self, u, v, x, y):
        return sciml.laplacian(u + v, x, y) + 1


class Short(sciml.Problem):
    """One equation for two fields."""

    domain = HOLED
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def one(self, u, v, x, y):
        return sciml.laplacian(u, x, y) + v - 1


class Wake(sciml.Problem):
    """What is carried along x comes from nowhere behind a hole."""

    domain = HOLED
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda y: torch.sin(3 * y), on=domain.face(x=0))]

    @sciml.equation
    def carried(self, u, x, y):
        return d(u, x)


class NoFlux(sciml.Problem):
    """Two materials whose temperatures are the same at their interface; nothing is said of the flux."""

    domain = SQUARE
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation(on=CORE)
    def inside(self, v, x, y):
        return sciml.laplacian(v, x, y) + 1

    @sciml.equation(on=SQUARE - CORE)
    def outside(self, u, x, y):
        return sciml.laplacian(u, x, y) + 1

    @sciml.condition(on=CORE.interface(SQUARE - CORE))
    def contact(self, u, v):
        return u - v


class Contrast(sciml.Problem):
    """A field that a core of a hundred times the conductivity makes small, and that is held nevertheless."""

    domain = sciml.Disk((0, 0), 1)
    core = sciml.Disk((0, 0), 0.25)
    fields = ["u", "v"]
    conditions = [sciml.Dirichlet(u=lambda x, y: x, on=domain.boundary)]

    @sciml.equation(on=domain - core)
    def outside(self, u, x, y):
        return sciml.laplacian(u, x, y)

    @sciml.equation(on=core)
    def inside(self, v, x, y):
        return 100 * sciml.laplacian(v, x, y)

    @sciml.condition(on=core.interface(domain - core))
    def contact(self, u, v):
        return u - v

    @sciml.condition(on=core.interface(domain - core))
    def flux(self, u, v, x, y):
        return x * (d(u, x) - 100 * d(v, x)) + y * (d(u, y) - 100 * d(v, y))

    def reference(self, x, y):
        ratio = (1 - 100) / (1 + 100) / 16
        squares = (x**2 + y**2).clamp_min(1e-300)
        return {"u": x * (1 + ratio / squares) / (1 + ratio), "v": 2 * x / (101 * (1 + ratio))}


class Resonance(sciml.Problem):
    """Laplace's equation in a disk under a condition that r³ cos 3φ satisfies; one solution is x."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Robin(u=lambda x: -2 * x, coefficient=-3.0, on=domain.boundary)]

    @sciml.equation
    def laplace(self, u, x, y):
        return sciml.laplacian(u, x, y)


class NearResonance(sciml.Problem):
    """The equation of Helmholtz in a disk, 1e-6 from an eigenvalue."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    square = scipy.special.jn_zeros(0, 1)[0] ** 2 + 1e-6
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def helmholtz(self, u, x, y):
        inside = 1 - x**2 - y**2
        source = (inside * self.square - 4) + (inside - 4 * x)
        return sciml.laplacian(u, x, y) + self.square * u - source * torch.exp(x)


@pytest.mark.parametrize(
    ("problem", "warned"),
    [
        (Sum(), "are determined up to a function of 'x', 'y'"),
        (Short(), None),
        (Wake(), None),
        (NoFlux(), "1 condition on Disk.* take 2, such as that fields are equal, and fluxes"),
        (Resonance(), None),
        (NearResonance(), None),
    ],
    ids=["Sum", "Short", "Wake", "NoFlux", "Resonance", "NearResonance"],
)
def test_what_equations_and_conditions_hardly_see_is_no_success(problem, warned):
    with pytest.warns(sciml.ConditionWarning, match=warned) if warned else nullcontext():
        solution = sciml.fit(problem)
    assert not solution.success
    assert "a condition is missing, or another solution lies beside this one" in solution.message
    assert set(solution.estimated_error.values()) == {1.0}


@pytest.mark.slow
def test_what_is_small_beside_what_holds_it_is_held():
    solution = sciml.fit(Contrast())
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-4


def test_tiles_look_whether_a_direction_fades():
    """What tiles see of a direction stays where it is seen, and falls with what they miss of it where it is not."""
    refined = _Refinements()
    assert not any(refined.adrift(each, 1e-2, linear=True) for each in (0.5, 0.06, 0.02))
    seen = (8e-3, 7e-3, 3e-4, 4e-4, 4e-4, 5e-7)
    refined = _Refinements()
    assert [refined.adrift(each, 1e-2, linear=True) for each in seen] == [True, False, True, True, True, True]
    # What coarse tiles saw was about another solution.
    refined = _Refinements()
    assert [refined.adrift(each, 1e-2, linear=False) for each in seen] == [True, False, True, True, False, True]
    assert refined.blind
    # Tiles that resolve nothing see nothing.
    refined = _Refinements()
    assert [refined.adrift(*each, linear=True) for each in ((0.9, 1.0), (2e-3, 1e-2), (2e-3, 1e-3))] == [False, True, False]


@pytest.mark.parametrize("tiles", [(2, 6), (3, 6), (4, 8)])
def test_of_what_nothing_determines_the_smallest_solution_is_returned(tiles):
    """Two equations for a sum: rounding had made its terms as large as 1e10."""

    class Sum(sciml.Problem):
        domain = SQUARE
        fields = ["u", "v"]
        conditions = [sciml.Dirichlet(u=0.0, v=0.0, on=domain.boundary)]

        @sciml.equation
        def once(self, u, v, x, y):
            return sciml.laplacian(u + v, x, y) + 1.0

        @sciml.equation
        def twice(self, u, v, x, y):
            return 2 * sciml.laplacian(u + v, x, y) + 2.0

    with pytest.warns(sciml.errors.ConditionWarning, match="up to a function"):
        solution = sciml.fit(Sum(), strategy=sciml.strategies.Tiles(*tiles))
    assert not solution.success
    assert "can be moved by the solution's own size" in solution.message
    middle = solution(x=0.5, y=0.5)
    assert middle["u"] + middle["v"] == pytest.approx(0.07367, rel=0.02)
    assert max(abs(middle["u"]), abs(middle["v"])) < 0.1


def test_that_all_fields_are_zero_is_said():
    class Cycle(sciml.Problem):
        """Van der Pol's oscillator, whose period is unknown: being at rest solves it as well."""

        domain = sciml.Interval(s=(0, 1))
        fields = ["u"]
        period = sciml.Unknown(7.0, lower=0)
        conditions = [sciml.Periodic("s"), sciml.Neumann(u=0.0, on=domain.face(s=0))]

        @sciml.equation
        def cycle(self, u, s):
            return d(u, s, s) - 2 * self.period * (1 - u**2) * d(u, s) + self.period**2 * u

    solution = sciml.fit(Cycle())
    assert not solution.success
    assert "do not determine period: all fields are zero" in solution.message


class Constrained(sciml.Problem):
    """Index two: the rate of x is y, and x is the cosine, so that y begins at zero."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["x", "y"]
    conditions = [sciml.Initial(x=1.0, y=0.0)]

    @sciml.equation
    def rate(self, x, y, t):
        return d(x, t) - y

    @sciml.equation
    def law(self, x, t):
        return x - torch.cos(t)


class Contradicted(Constrained):
    conditions = [sciml.Initial(x=1.0, y=1.0)]


@pytest.mark.slow
def test_an_initial_value_that_equations_determine_otherwise_is_told():
    """The field leapt within a millionth of the time, and was a success."""
    assert sciml.fit(Constrained()).success
    solution = sciml.fit(Contradicted())
    assert not solution.success
    assert "'y' leaps from its initial value at once, while fields with a rate do not" in solution.message


class Discharged(sciml.Problem):
    """A current that follows the charge, and falls with it in a thousandth of the time."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["q", "i"]
    conditions = [sciml.Initial(q=1.0, i=-1000.0)]

    @sciml.equation
    def charge(self, q, i, t):
        return d(q, t) - i

    @sciml.equation
    def law(self, q, i, t):
        return i + 1000 * q


class Swinging(sciml.Problem):
    """A field without a rate that is fast by itself: it swings, or falls, while the one with a rate hardly moves."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["x", "z"]
    law = staticmethod(lambda t: torch.cos(300 * t))
    conditions = [sciml.Initial(x=1.0, z=1.0)]

    @sciml.equation
    def rate(self, x, t):
        return d(x, t) + x

    @sciml.equation
    def followed(self, z, t):
        return z - self.law(t)


class Falling(Swinging):
    law = staticmethod(lambda t: torch.exp(-2000 * t))


@pytest.mark.parametrize("problem", [Discharged(), Swinging(), Falling()])
def test_a_layer_or_a_swing_is_no_leap(problem):
    solution = sciml.fit(problem)
    assert solution.success, solution.message

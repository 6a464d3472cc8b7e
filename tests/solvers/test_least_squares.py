"""Least-squares solvers: classic test problems, linear problems to rounding, certificates that can fail."""

import itertools
import math

import numpy as np
import pytest
import torch
from conftest import problem_class
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import sciml
from sciml import d
from sciml.errors import SolverError
from sciml.solvers.gauss_newton import DampedGaussNewton, factorised, lower_square


class Residuals:
    """An objective made of a vector of residuals; its Jacobian by autograd."""

    def __init__(self, function, start):
        self.function = function
        self.parameters = [torch.tensor(start, dtype=torch.float64, requires_grad=True)]
        self.shape = (len(function(self.vector())), len(start))

    def linearised(self):
        x = self.vector()
        return self.function(x), torch.func.jacrev(self.function)(x)

    def value(self):
        return float(self.function(self.vector()).square().sum())

    def means(self):
        return {"f": torch.tensor(self.value())}

    def total(self, terms):
        return terms["f"]

    def vector(self):
        return self.parameters[0].detach().clone()

    def assign(self, vector):
        with torch.no_grad():
            self.parameters[0].copy_(vector)


def stack(*parts):
    return torch.stack(parts)


def wood(x):
    return stack(
        10 * (x[1] - x[0] ** 2),
        1 - x[0],
        90**0.5 * (x[3] - x[2] ** 2),
        1 - x[2],
        10**0.5 * (x[1] + x[3] - 2),
        (x[1] - x[3]) / 10**0.5,
    )


WOOD = (wood, [-3.0, -1.0, -3.0, -1.0])


def test_steps_never_raise_the_loss():
    objective = Residuals(*WOOD)
    run = sciml.LeastSquares(50).start(objective)
    values = [objective.value()]
    for _ in range(50):
        run.step()
        values.append(objective.value())
    assert all(after <= before for before, after in itertools.pairwise(values))


def test_fewer_rows_than_parameters_are_solved_in_row_space():
    matrix = torch.randn(5, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    objective = Residuals(lambda x: torch.tanh(matrix @ x) - 0.3, np.zeros(40))
    run = sciml.LeastSquares(50).start(objective)
    for _ in range(50):
        if run.step().done:
            break
    assert objective.value() < 1e-24


def test_trial_steps_that_are_not_finite_are_refused_not_fatal():
    objective = Residuals(lambda x: torch.log(x) - stack(torch.tensor(-3.0)), [5.0])
    run = sciml.LeastSquares(60).start(objective)
    steps = [run.step() for _ in range(30)]
    assert all(step.done != "diverged" for step in steps)
    assert float(objective.vector()) == pytest.approx(np.exp(-3.0))


def test_a_rank_deficient_system_has_its_smallest_solution():
    generator = torch.Generator().manual_seed(0)
    narrow = torch.randn(30, 4, dtype=torch.float64, generator=generator)
    slopes = torch.cat([narrow, narrow], dim=1)
    rows = torch.randn(30, dtype=torch.float64, generator=generator)
    move = factorised(rows, slopes)[0](1e-12)
    assert torch.allclose(slopes @ move, -narrow @ torch.linalg.lstsq(narrow, rows[:, None]).solution[:, 0])
    assert torch.allclose(move[:4], move[4:])


def test_states_are_complete():
    whole, parts = Residuals(*WOOD), Residuals(*WOOD)
    run = sciml.LeastSquares(20).start(whole)
    for _ in range(12):
        run.step()
    first = sciml.LeastSquares(20).start(parts)
    for _ in range(5):
        first.step()
    second = sciml.LeastSquares(20).start(parts)
    second.load_state_dict(first.state_dict())
    for _ in range(7):
        second.step()
    assert torch.equal(whole.vector(), parts.vector())


def by_features(problem, count, scale, **options):
    options = {"points": 3 * count, **options}
    return sciml.fit(problem, sciml.RandomFeatures(count, scale), solver=sciml.LinearLeastSquares(), sampler=None, **options)


@pytest.mark.parametrize(
    ("problem", "scale", "target"),
    [
        (lambda: problem_class("poisson_square")(), 8.0, 1e-11),
        (lambda: problem_class("heat_rod")(), 8.0, 1e-9),
        (problem_class("helmholtz"), 8.0, 1e-10),
    ],
)
def test_linear_problems_to_rounding(problem, scale, target):
    solution = by_features(problem(), 800, scale)
    assert solution.success
    assert solution.error()["u"] <= target


def test_the_error_falls_with_the_number_of_features_and_the_certificate_with_it():
    problem = problem_class("poisson_square")()
    solutions = [by_features(problem, count, 4.0) for count in (50, 100, 200)]
    errors = [solution.error()["u"] for solution in solutions]
    certificates = [solution.residuals["relative"].max() for solution in solutions]
    assert errors[1] < 1e-2 * errors[0]
    assert errors[2] < 1e-2 * errors[1]
    assert certificates == sorted(certificates, reverse=True)


def test_the_certificate_fails_when_points_are_too_few():
    """Fewer rows than features: the training rows vanish, the rows between them do not."""
    solution = by_features(problem_class("poisson_square")(), 600, 12.0, points={"interior": 60, "dirichlet": 5})
    assert solution.history["loss"].iloc[-1] < 1e-10
    assert solution.history["held_out"].iloc[-1] > 1e3 * solution.history["loss"].iloc[-1]
    assert not solution.success


def test_a_solution_that_holds_only_at_its_points_is_no_success():
    """Twelve points are far too few for two periods: a residual that vanishes there, and mostly wrong."""
    problem = problem_class("harmonic_oscillator")()
    solution = sciml.fit(problem, sciml.MLP(16, 16), solver=sciml.LeastSquares(100), points=12)
    assert solution.error()["u"] > 0.1
    assert solution.history["loss"].iloc[-1] < 1e-4
    assert not solution.success
    assert "between them" in solution.message


@pytest.mark.slow
def test_levenberg_marquardt_solves_two_periods_from_a_random_start():
    problem = problem_class("harmonic_oscillator")()
    solution = sciml.fit(problem, sciml.MLP(16, 16), solver=sciml.LeastSquares(300))
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-4


class Lorenz(sciml.Problem):
    domain = sciml.Interval(t=(0, 3))
    fields = ["x", "y", "z"]
    sigma, rho, beta = sciml.Unknown(1.0), sciml.Unknown(1.0), sciml.Unknown(1.0)
    conditions = [sciml.Initial(x=-8.0, y=7.0, z=27.0)]

    @sciml.equation
    def first(self, x, y, t):
        return d(x, t) - self.sigma * (y - x)

    @sciml.equation
    def second(self, x, y, z, t):
        return d(y, t) - x * (self.rho - z) + y

    @sciml.equation
    def third(self, x, y, z, t):
        return d(z, t) - x * y + self.beta * z


@pytest.mark.parametrize("seed", [0, 1])
def test_the_three_constants_of_lorenz_from_25_samples(seed):
    """All start at 1; the floor of the narrow valley is below the rounding of normal equations."""
    t = np.linspace(0, 3, 25)
    exact = solve_ivp(
        lambda t, u: [10 * (u[1] - u[0]), u[0] * (15 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]],
        (0, 3),
        [-8.0, 7.0, 27.0],
        t_eval=t,
        method="DOP853",
        rtol=1e-12,
        atol=1e-12,
    ).y
    solution = sciml.fit(
        Lorenz(),
        sciml.RandomFeatures(120, 32.0),
        data={"t": t, **dict(zip("xyz", exact, strict=True))},
        solver=sciml.LeastSquares(300),
        seed=seed,
    )
    assert solution.nit < 120
    assert solution.unknowns["estimate"].to_numpy() == pytest.approx([10.0, 15.0, 8 / 3], rel=1e-6)


class TwoCompartments(sciml.Problem):
    domain = sciml.Interval(t=(0, 10))
    fields = ["u", "v"]
    k1, k2, k3 = sciml.Unknown(0.5), sciml.Unknown(0.5), sciml.Unknown(0.5)
    conditions = [sciml.Initial(u=1.0, v=0.0)]

    @sciml.equation
    def first(self, u, v, t):
        return d(u, t) + (self.k1 + self.k2) * u - self.k3 * v

    @sciml.equation
    def second(self, u, v, t):
        return d(v, t) - self.k2 * u + self.k3 * v


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_rates_of_two_compartments_are_those_of_shooting(seed):
    """Only v is measured, and v stays the same when k1 and k3 change places, so they are compared in order of size."""
    t = np.linspace(0.5, 10, 20)

    def shot(k):
        rates = [[-(k[0] + k[1]), k[2]], [k[1], -k[2]]]
        return solve_ivp(lambda t, u: rates @ u, (0, 10), [1.0, 0.0], t_eval=t, rtol=1e-9, atol=1e-11).y[1]

    v = shot([0.8, 0.3, 0.4]) * (1 + 0.02 * np.random.default_rng(seed).standard_normal(20))
    theirs = least_squares(lambda k: shot(k) - v, [0.9, 0.3, 0.3], xtol=1e-12, ftol=1e-12).x
    solution = sciml.fit(
        TwoCompartments(),
        sciml.RandomFeatures(60, 4.0),
        data={"t": t, "v": v},
        solver=sciml.LeastSquares(300),
        weights={"data": 1e-4},
        seed=seed,
    )
    k1, k2, k3 = solution.unknowns["estimate"]
    assert solution.nit < 100
    assert [k2, *sorted([k1, k3])] == pytest.approx([theirs[1], *sorted(theirs[[0, 2]])], rel=2e-3)


@pytest.mark.slow
def test_least_squares_trains_networks():
    solution = sciml.fit(problem_class("poisson_square")(), sciml.MLP(14, 14), solver=sciml.LeastSquares(60))
    assert solution.error()["u"] < 2e-3
    pelts = sciml.fit(problem_class("lynx_hare")(), sciml.MLP(20, 20), solver=sciml.LeastSquares(200))
    assert pelts.success, pelts.message
    assert pelts.unknowns.loc["birth", "estimate"] == pytest.approx(0.481, rel=0.1)


def test_random_features_save_load_and_embed(tmp_path):
    solution = by_features(problem_class("poisson_square")(), 60, 3.0)
    loaded = sciml.load(solution.save(tmp_path / "features.pt"))
    assert loaded(x=0.3, y=0.4)["u"] == solution(x=0.3, y=0.4)["u"]
    assert sciml.embed(solution, {"x": [0.1, 0.2], "y": [0.1, 0.2]}).shape == (2, 60)


@pytest.mark.parametrize(
    "make",
    [lambda: sciml.LeastSquares(0), lambda: sciml.LeastSquares(damping=0.0), lambda: sciml.LinearLeastSquares(0)],
)
def test_settings_are_checked(make):
    with pytest.raises(SolverError, match="positive"):
        make()


@pytest.mark.parametrize("make", [lambda: sciml.RandomFeatures(0), lambda: sciml.RandomFeatures(5, scale=0.0)])
def test_feature_settings_are_checked(make):
    with pytest.raises(sciml.errors.ModelError, match="positive"):
        make()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [(40, 15), (15, 40), (1, 3), (3, 0)])
def test_the_symmetric_product_has_the_lower_triangle_of_the_square(shape, dtype):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    kept = matrix.clone()
    for wide, expected in ((False, matrix.T @ matrix), (True, matrix @ matrix.T)):
        found = lower_square(matrix, wide=wide)
        assert found.dtype == dtype
        assert torch.allclose(found.tril(), expected.tril(), rtol=1e-5, atol=1e-5)
    assert torch.equal(matrix, kept)


@pytest.mark.parametrize(("same", "dampings"), [(1e-6, [1, 1]), (1e-12, [22])])
def test_a_merit_that_rises_by_rounding_is_not_searched_with_every_damping(same, dampings):
    """Each evaluation is a little larger than the one before: of what is left only rounding changes."""
    looks, made = itertools.count(), []

    def linearise(position):
        made.append(0)

        def step(damping):
            made[-1] += 1
            return torch.full_like(position, 1e-9)

        return step

    method = DampedGaussNewton(1e-16, 0.1, 1e-16, 1e-16, tolerance=0.1, patience=2, same=same)
    method.minimise(linearise, lambda position: 1.0 + 1e-9 * next(looks), torch.zeros(3), 30)
    assert made == dampings


def test_a_step_that_overflows_is_shortened_before_it_is_damped():
    dampings = []

    def linearise(position):
        def step(damping):
            dampings.append(damping)
            return 100.0 - position

        return step

    method = DampedGaussNewton(1e-16, 0.1, 1e-16, 1e-16, tolerance=0.1)
    found, _, steps = method.minimise(
        linearise, lambda position: float((position - 100.0).square()) if position < 10 else math.inf, torch.zeros(()), 1
    )
    # One step, to a twenty-fifth of the way.
    assert (float(found), steps, dampings) == (pytest.approx(4.0), 1, [1e-16])

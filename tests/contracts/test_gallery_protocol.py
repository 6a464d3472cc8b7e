"""A contract for every problem of the gallery, and how well each is solved by default on one thread."""

import ast
import hashlib
import inspect
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import samples
from conftest import ROOT, problem_class
from numpy.polynomial import chebyshev
from scipy.integrate import solve_ivp

import sciml
from sciml import d
from sciml.errors import BaselineError
from sciml.geometry import Average, draw
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.solvers import ResidualSystem

NAMES = sorted(path.stem for path in (ROOT / "problems").glob("*.py"))
WITH_REFERENCE = [name for name in NAMES if hasattr(problem_class(name), "reference")]
STORED = [name for name in WITH_REFERENCE if isinstance(problem_class(name).reference, sciml.StoredReference)]
# On domains that are no boxes references are linear between their points, which leaves no second derivatives. They are held
# against a coarser mesh in ``tests/house/test_benchmarks.py``.
SMOOTH = [name for name in STORED if isinstance(problem_class(name).domain, sciml.Box)]
EXACT = sorted(set(WITH_REFERENCE) - set(STORED))
# Inverse problems are what their references solve when the unknown constants have these values.
TRUTH = {
    "burgers_inverse": {"speed": 1.0, "viscosity": 0.01 / math.pi},
    "lorenz_inverse": {"sigma": 10.0, "rho": 15.0, "beta": 8 / 3},
}
# Each derivative of a spline is less accurate than the spline; the largest of all problems loses two digits.
LOST = 200
# The periodic extension of the start has a kink: slopes at the ends have no values to compare.
KINKED = {"allen_cahn", "schroedinger"}


def test_all_are_there():
    assert {
        "advection",
        "allen_cahn",
        "beam",
        "boarding_school_flu",
        "bratu",
        "burgers",
        "burgers_inverse",
        "burgers_plane",
        "darcy_inverse",
        "fisher_kpp",
        "gray_scott",
        "harmonic_oscillator",
        "heat_holed",
        "heat_layers",
        "heat_plate",
        "heat_rod",
        "helmholtz",
        "kdv_soliton",
        "kovasznay",
        "kuramoto_sivashinsky",
        "lid_driven_cavity",
        "logistic_growth",
        "lorenz",
        "lorenz_inverse",
        "lynx_hare",
        "membrane",
        "pendulum",
        "plane_elasticity",
        "plate_biharmonic",
        "poisson_5d",
        "poisson_disk_robin",
        "poisson_l_shape",
        "poisson_square",
        "robertson",
        "schroedinger",
        "step_flow",
        "taylor_green",
        "thurber",
        "van_der_pol",
        "wave_materials",
        "wave_string",
    } <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_short_and_say_what_they_solve(name):
    text = (ROOT / "problems" / f"{name}.py").read_text()
    assert len(text.splitlines()) < 80
    doc = ast.get_docstring(ast.parse(text))
    assert ".. math::" in doc
    assert "Reference: " in doc or "no reference" in " ".join(doc.split())
    assert inspect.getdoc(problem_class(name))


def inside(problem, count=64):
    generator = np.random.default_rng(0)
    return {
        key: low + (high - low) * (0.02 + 0.96 * generator.random(count)) for key, (low, high) in problem.domain.bounds.items()
    }


@pytest.mark.parametrize("name", EXACT)
def test_exact_solutions_satisfy_the_equations_to_rounding(name):
    problem = problem_class(name)(**TRUTH.get(name, {}))
    at = inside(problem)
    within = problem.domain.contains(np.stack(list(at.values()), axis=1))
    for key, values in problem.residuals(problem.reference, **{key: values[within] for key, values in at.items()}).items():
        # Burgers' reference is a quadrature over steep exponentials: its second derivatives carry more rounding.
        assert np.abs(values).max() < (1e-9 if name.startswith("burgers") else 1e-12), key


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        (name, constant)
        for name in EXACT
        for constant, value in problem_class(name)().constants.items()
        # A mean level is one for all values together: no problem to promote.
        if isinstance(value, float) and name != "taylor_green"
    ],
)
def test_exact_solutions_hold_where_a_constant_is_a_coordinate(name, constant):
    problem = problem_class(name)()
    values = problem.constants[constant] * np.linspace(0.8, 1.1, 5)
    at, wide = inside(problem, 5), problem.promote(**{constant: (values[0], values[-1])})
    found = wide.reference_values(at | {constant: values})
    for number, value in enumerate(values):
        one = problem.bind(**{constant: value}).reference_values({key: each[number] for key, each in at.items()})
        for field in problem.fields:
            assert found[field][number] == pytest.approx(one[field], rel=1e-12, abs=1e-13)


def accuracy(problem):
    """What a stored reference claims, between its points."""
    found = problem.reference.attributes
    return max(found["converged_to"], found["interpolated_to"])


@pytest.mark.parametrize("name", SMOOTH)
def test_stored_references_satisfy_the_equations_to_their_accuracy(name):
    """Against the natural size of an equation: the root mean square of the sum of its terms' magnitudes."""
    problem = problem_class(name)(**TRUTH.get(name, {}))
    points, _ = problem.points(inside(problem, 200))
    space = problem.space(points, exact(problem))
    evaluation = Evaluation(problem, (space,))
    for term in problem.terms()[: len(problem.equations)]:
        residual = term.evaluate(evaluation)
        jets = list(space.jets.values())
        partials = torch.autograd.grad(residual.sum(), jets, allow_unused=True, retain_graph=True)
        terms = [(jet * partial).abs() for jet, partial in zip(jets, partials, strict=True) if partial is not None]
        size = sum(terms).square().mean().sqrt()
        assert float((residual.abs().max() / size).detach()) < LOST * accuracy(problem), term.name


def exact(problem):
    """A problem's reference as a function of points ``(n, D)``."""
    return lambda points: problem.composites.stacked(
        problem.reference(**dict(zip(problem.coordinates, points.unbind(1), strict=True))), problem.fields, points
    )


def missed(problem):
    """By how much a problem's reference misses each of its conditions."""

    class Exact(torch.nn.Module):
        def forward(self, points):
            return exact(problem)(points)

    generator = np.random.default_rng(0)
    terms = [term for term in problem.terms() if term.name not in problem.equations]
    # Means take as many points as it takes for their quadrature to be exact.
    counts = [4096 if isinstance(term.place, Average) else 32 for term in terms]
    blocks = [
        Collocation(draw(term.place, problem.domain, count, generator), (term,))
        for term, count in zip(terms, counts, strict=True)
    ]
    found = ResidualSystem(problem, Exact(), {}).residuals(blocks) if blocks else {}
    return {key: float(values.detach().abs().max()) for key, values in found.items()}


@pytest.mark.parametrize("name", EXACT)
def test_exact_solutions_satisfy_the_conditions(name):
    for key, worst in missed(problem_class(name)(**TRUTH.get(name, {}))).items():
        assert worst < 1e-12, key


@pytest.mark.parametrize("name", SMOOTH)
def test_stored_references_satisfy_the_conditions_to_their_accuracy(name):
    problem = problem_class(name)(**TRUTH.get(name, {}))
    for key, worst in missed(problem).items():
        if not (name in KINKED and key in {f"periodic.{field}_x" for field in problem.fields}):
            assert worst < LOST * accuracy(problem), key


@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_references_have_values_on_the_grid_of_the_error(name):
    """On the ends of the domain too, where formulas tend to divide by zero."""
    problem = problem_class(name)()
    ends = {key: np.array([low, (low + high) / 2, high]) for key, (low, high) in problem.domain.bounds.items()}
    grid = dict(zip(ends, np.meshgrid(*ends.values(), indexing="ij"), strict=True))
    if name in set(STORED) - set(SMOOTH):
        grid = problem.reference.grid()
    for field, values in problem.reference_values(grid).items():
        assert field in problem.fields
        assert np.isfinite(values)[problem.lives(field, grid)].all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_classical_solver_accepts_a_problem_or_says_why_not(name):
    problem = problem_class(name)()
    why = ""
    try:
        solution = sciml.baseline(problem, time_limit=3)
    except BaselineError as error:
        why = str(error)
    if why:
        assert len(why.split()) > 5
    elif solution.success and problem.has_reference:
        # Two grids agree to 1e-6.
        assert max(solution.error().values()) < 1e-5


def test_samples_are_those_that_the_script_makes():
    for name in samples.SAMPLES:
        assert samples.path_of(name).read_text() == samples.text(name)


def test_exact_samples_lie_on_their_reference():
    problem = problem_class("lorenz_inverse")()
    table = problem.measurements()
    for field, values in problem.reference(t=table["t"]).items():
        assert np.abs(values.numpy() - table[field]).max() < 1e-11 * np.abs(table[field]).max()


def test_the_table_of_data_has_every_file_and_its_checksum():
    text = (ROOT / "data" / "README.md").read_text()
    listed = dict(re.findall(r"^\| \[[^]]+\]\(([^)]+)\).*`([0-9a-f]{64})` \|$", text, re.M))
    files = {str(path.relative_to(ROOT / "data")): path for path in (ROOT / "data").glob("*/*") if path.is_file()}
    assert set(listed) == set(files)
    for file, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[file], file
        assert path.stat().st_size < 1e6, file


def flipped_lorenz(self, x, y, z, t):
    return d(y, t) - x * (self.rho - z) - y


def flipped_oscillation(self, u, t):
    return d(u, t, t) - self.mu * (1 - u**2) * d(u, t) - u


def flipped_pendulum(self, theta, t):
    return d(theta, t, t) - torch.sin(theta)


@pytest.mark.parametrize(
    ("name", "equation", "flipped", "start", "method"),
    [
        ("lorenz", "across", flipped_lorenz, [-8.0, 7.0, 27.0], "auto"),
        ("van_der_pol", "oscillation", flipped_oscillation, [2.0, 0.0], "LSODA"),
        ("pendulum", "motion", flipped_pendulum, [2.5, 0.0], "auto"),
    ],
)
def test_a_sign_error_is_caught_by_comparing_with_a_right_hand_side_written_by_hand(name, equation, flipped, start, method):
    problem = problem_class(name)()
    wrong = type("Wrong", (type(problem),), {equation: flipped})()
    path = solve_ivp(problem.rate, problem.domain.bounds["t"], start, "LSODA", dense_output=True, rtol=1e-10, atol=1e-12)

    def truth(t):
        return dict(zip(problem.fields, path.sol(t), strict=False))

    solutions = [sciml.baseline(each, method=method, tolerance=1e-6) for each in (problem, wrong)]
    table = sciml.compare(*solutions, truth=truth).table
    assert all(solution.success for solution in solutions)
    for field in problem.fields:
        right, flipped_error = table[f"{field}: relative L2"]
        assert right < 1e-3
        assert flipped_error > 0.1


HAND_WRITTEN = {
    "lynx_hare": (
        lambda _, y: [(0.5 - 0.02 * y[1]) * y[0], (0.02 * y[0] - 0.8) * y[1]],
        [30.0, 4.0],
    ),
    "boarding_school_flu": (
        lambda _, y: [-y[0] * y[1] / 763, y[0] * y[1] / 763 - 0.5 * y[1]],
        [760.0, 3.0],
    ),
}


@pytest.mark.parametrize("name", sorted(HAND_WRITTEN))
def test_solutions_of_hand_written_equations_satisfy_the_residuals(name):
    """Where there is no closed solution: an integrated one, interpolated by Chebyshev polynomials."""
    problem = problem_class(name)()
    rate, start = HAND_WRITTEN[name]
    (low, high) = problem.domain.bounds["t"]
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(160) + 0.5) / 160)[::-1]
    path = solve_ivp(rate, (low, high), start, t_eval=nodes, method="DOP853", rtol=1e-13, atol=1e-11)
    unit = (nodes - (low + high) / 2) / ((high - low) / 2)
    coefficients = torch.from_numpy(chebyshev.chebfit(unit, path.y.T, 140))

    def fields(t):
        angle = torch.arccos((t - (low + high) / 2) / ((high - low) / 2))
        values = torch.cos(torch.arange(141) * angle[:, None]) @ coefficients
        return dict(zip(problem.fields, values.unbind(1), strict=True))

    for key, values in problem.residuals(fields, **inside(problem)).items():
        assert np.abs(values).max() < 1e-6, key


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("harmonic_oscillator", 1e-10),
        ("poisson_square", 1e-11),
        ("burgers", 1e-9),
        ("heat_rod", 1e-9),
        ("logistic_growth", 1e-8),
        ("advection", 1e-9),
        ("beam", 1e-10),
        ("bratu", 1e-10),
        ("fisher_kpp", 1e-9),
        ("helmholtz", 1e-10),
        ("kdv_soliton", 1e-8),
        ("kovasznay", 1e-8),
        ("pendulum", 1e-9),
        ("plate_biharmonic", 1e-8),
        ("poisson_disk_robin", 1e-10),
        ("wave_string", 1e-10),
        pytest.param("allen_cahn", 1e-7, marks=pytest.mark.slow),
        pytest.param("gray_scott", 1e-8, marks=pytest.mark.slow),
        ("lorenz", 1e-9),
        ("heat_holed", 1e-6),
        ("heat_layers", 1e-9),
        ("membrane", 1e-8),
        ("taylor_green", 1e-9),
        pytest.param("burgers_plane", 1e-6, marks=pytest.mark.slow),
        ("plane_elasticity", 1e-11),
        ("poisson_l_shape", 1e-7),
        pytest.param("van_der_pol", 1e-6, marks=pytest.mark.slow),
    ],
)
def test_fit_without_settings_reaches_its_target(name, target):
    solution = sciml.fit(problem_class(name)())
    assert max(solution.error().values()) <= target
    assert solution.success


def test_a_wave_carried_round_nearly_eight_times():
    solution = sciml.fit(problem_class("advection")(beta=50.0))
    assert solution.success
    assert solution.error()["u"] <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "solver"),
    [
        ("harmonic_oscillator", 1e-4, [sciml.Adam(1000), sciml.LBFGS(3000)]),
        # A quarter of these steps is enough.
        ("poisson_square", 2e-3, [sciml.Adam(500), sciml.LBFGS(400)]),
    ],
)
def test_networks_trained_by_adam_and_lbfgs_reach_theirs(name, target, solver):
    widths = (32, 32) if name == "harmonic_oscillator" else (20, 20, 20, 20)
    solution = sciml.fit(problem_class(name)(), sciml.MLP(*widths), solver=solver)
    assert solution.solver == "Adam, LBFGS"
    assert solution.error()["u"] <= target
    assert solution.success


def test_three_constants_are_found_from_exact_samples():
    solution = sciml.fit(problem_class("lorenz_inverse")())
    assert solution.success
    assert max(solution.error().values()) < 1e-6
    for key, value in TRUTH["lorenz_inverse"].items():
        assert solution.unknowns["estimate"][key] == pytest.approx(value, rel=1e-6)


@pytest.mark.slow
def test_a_conductivity_is_found_where_only_the_pressure_was_measured():
    solution = sciml.fit(problem_class("darcy_inverse")())
    assert solution.success
    assert solution.error()["a"] < 0.05
    assert solution.error()["p"] < 1e-3


def test_the_constants_of_a_rational_law_are_those_that_nist_certifies():
    solution = sciml.fit(problem_class("thurber")())
    assert solution.success
    certified = pd.read_csv(ROOT / "data" / "nist" / "certified.csv").query("dataset == 'Thurber'").set_index("parameter")
    for column, name in (("estimate", "estimate"), ("standard_error", "standard_deviation")):
        assert np.allclose(solution.unknowns[column], certified.loc[solution.unknowns.index, name], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("name", "shooting"),
    [
        ("lynx_hare", {"birth": 0.481, "predation": 0.0248, "death": 0.926, "conversion": 0.0275}),
        ("boarding_school_flu", {"infection": 1.788, "recovery": 0.456}),
    ],
)
def test_measured_data_give_the_rates_of_independent_shooting_fits(name, shooting):
    solution = sciml.fit(problem_class(name)())
    assert solution.success
    for key, value in shooting.items():
        row = solution.unknowns.loc[key]
        assert row["estimate"] == pytest.approx(value, rel=0.1)
        assert row["low"] < value < row["high"]

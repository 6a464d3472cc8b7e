"""A contract for every problem of the gallery, and how well each is solved by default on one thread."""

import ast
import inspect

import numpy as np
import pytest
import torch
from conftest import ROOT, problem_class
from numpy.polynomial import chebyshev
from scipy.integrate import solve_ivp

import sciml

NAMES = sorted(path.stem for path in (ROOT / "problems").glob("*.py"))
WITH_REFERENCE = [name for name in NAMES if hasattr(problem_class(name), "reference")]
STORED = [name for name in WITH_REFERENCE if isinstance(problem_class(name).reference, sciml.Stored)]
EXACT = sorted(set(WITH_REFERENCE) - set(STORED))


def test_all_are_there():
    assert {
        "advection",
        "allen_cahn",
        "beam",
        "boarding_school_flu",
        "bratu",
        "burgers",
        "fisher_kpp",
        "gray_scott",
        "harmonic_oscillator",
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
        "pendulum",
        "plate_biharmonic",
        "poisson_5d",
        "poisson_disk_robin",
        "poisson_l_shape",
        "poisson_square",
        "robertson",
        "schroedinger",
        "van_der_pol",
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
        key: low + (high - low) * (0.02 + 0.96 * generator.random(count))
        for key, (low, high) in problem.domain.bounds.items()
    }


@pytest.mark.parametrize("name", EXACT)
def test_exact_solutions_satisfy_the_equations_to_rounding(name):
    problem = problem_class(name)()
    at = inside(problem)
    for key, values in problem.residuals(problem.reference, **at).items():
        # Burgers' reference is a quadrature over steep exponentials: its second derivatives carry more rounding.
        assert np.abs(values).max() < (1e-9 if name == "burgers" else 1e-12), key


@pytest.mark.parametrize("name", EXACT)
def test_exact_solutions_satisfy_the_conditions(name):
    from sciml.rows import Block, Rows
    from sciml.sampling import draw

    problem = problem_class(name)()

    class Exact(torch.nn.Module):
        def forward(self, points):
            columns = dict(zip(problem.coordinates, points.unbind(1), strict=True))
            exact = problem.reference(**columns)
            return torch.stack([exact[name] for name in problem.fields] if isinstance(exact, dict) else [exact], dim=1)

    generator = np.random.default_rng(0)
    terms = [term for term in problem.terms() if term.name not in problem.equations]
    blocks = [Block(draw(term.place, problem.domain, 32, generator), (term,)) for term in terms]
    for key, values in Rows(problem, Exact(), {}).residuals(blocks).items():
        assert float(values.detach().abs().max()) < 1e-12, key


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
    ],
)
def test_fit_without_settings_reaches_its_target(name, target):
    solution = sciml.fit(problem_class(name)())
    assert max(solution.error().values()) <= target
    assert solution.success


@pytest.mark.parametrize(("name", "target"), [("harmonic_oscillator", 1e-4), ("poisson_square", 2e-3)])
def test_networks_trained_by_adam_and_lbfgs_reach_theirs(name, target):
    widths = (32, 32) if name == "harmonic_oscillator" else (20, 20, 20, 20)
    solution = sciml.fit(problem_class(name)(), sciml.MLP(*widths))
    assert solution.solver == "Adam, LBFGS"
    assert solution.error()["u"] <= target
    assert solution.success


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

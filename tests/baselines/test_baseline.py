"""SciPy's answers from the same residuals."""

import math

import numpy as np
import pytest
import torch
from conftest import problem_class
from scipy.integrate import solve_ivp

import sciml
from sciml import d
from sciml.errors import BaselineError, ModelError, ProblemError


def make(equations, fields=("u",), end=1.0, conditions=(), **members):
    members |= {name: sciml.equation(function) for name, function in equations.items()}
    return type(
        "Made",
        (sciml.Problem,),
        {"domain": sciml.Interval(t=(0, end)), "fields": list(fields), "conditions": list(conditions), **members},
    )()


@pytest.mark.parametrize("name", ["harmonic_oscillator", "logistic_growth"])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8])
def test_within_its_tolerance_of_the_reference(name, tolerance):
    solution = sciml.baseline(problem_class(name)(), tolerance=tolerance)
    assert solution.success
    assert max(solution.error().values()) <= tolerance


@pytest.mark.slow
def test_lynx_and_hare_agree_with_an_independent_shooting_fit():
    """Measured elsewhere by SciPy with a hand-written right-hand side: 0.481, 0.0248, 0.926, 0.0275."""
    found = sciml.baseline(problem_class("lynx_hare")()).unknowns["estimate"]
    assert found.to_dict() == pytest.approx(
        {"birth": 0.481, "predation": 0.0248, "death": 0.926, "conversion": 0.0275}, rel=0.02
    )


def test_school_flu_agrees_with_published_estimates_and_errors():
    """Independent fit: infection 1.788 (0.106), recovery 0.456 (0.019), I(1) 2.09 (0.88)."""
    found = sciml.baseline(problem_class("boarding_school_flu")()).unknowns
    assert found["estimate"].to_dict() == pytest.approx({"infection": 1.788, "recovery": 0.456, "first": 2.09}, rel=5e-3)
    assert found["standard_error"].to_dict() == pytest.approx({"infection": 0.106, "recovery": 0.019, "first": 0.88}, rel=0.02)


def test_a_mass_matrix_and_second_order_are_solved_for():
    """Two equations that mix the highest derivatives, against a right-hand side solved by hand."""
    problem = make(
        {
            "first": lambda self, u, v, t: 2 * d(u, t, t) + d(v, t) + u,
            "second": lambda self, u, v, t: d(u, t, t) - d(v, t) + v - torch.cos(t),
        },
        fields=("u", "v"),
        end=3.0,
        conditions=[sciml.Initial(u=1.0, u_t=0.5, v=-1.0)],
    )

    def rate(t, y):
        u, slope, v = y
        # 2a + b = -u, a - b = cos t - v
        a = (-u + math.cos(t) - v) / 3
        return [slope, a, a - math.cos(t) + v]

    theirs = solve_ivp(rate, (0, 3), [1.0, 0.5, -1.0], rtol=1e-11, atol=1e-12).y[:, -1]
    ours = sciml.baseline(problem)(t=3.0)
    assert float(ours["u"]) == pytest.approx(theirs[0], rel=1e-6)
    assert float(ours["v"]) == pytest.approx(theirs[2], rel=1e-6)


def test_stiff_problems_are_noticed():
    problem = make(
        {"stiff": lambda self, u, t: d(u, t) + 1e5 * (u - torch.cos(t))}, end=20.0, conditions=[sciml.Initial(u=0.0)]
    )
    solution = sciml.baseline(problem)
    assert "Radau" in solution.solver
    assert float(solution(t=20.0)["u"]) == pytest.approx(math.cos(20.0), abs=1e-4)


def test_fault_59_and_60_blow_up_is_told_not_returned():
    """A solution that blows up is told as a failure."""
    problem = make({"grow": lambda self, u, t: d(u, t) - u**2}, end=2.0, conditions=[sciml.Initial(u=1.0)])
    with pytest.raises(BaselineError, match=r"t = (0\.99|1)|stopped at t"):
        sciml.baseline(problem, time_limit=60)


def test_fault_59_not_a_number_at_the_start():
    """A rate that is no number is refused at the start."""
    problem = make({"log": lambda self, u, t: d(u, t) - torch.log(u)}, conditions=[sciml.Initial(u=-1.0)])
    with pytest.raises(BaselineError, match="not finite at t = 0"):
        sciml.baseline(problem)


def test_fault_59_time_is_bounded():
    """A baseline that would not end stops at its time limit."""
    problem = make({"fast": lambda self, u, t: d(u, t, t) + 1e12 * u}, conditions=[sciml.Initial(u=1.0, u_t=0.0)])
    with pytest.raises(BaselineError, match=r"time limit of 0\.5 s"):
        sciml.baseline(problem, time_limit=0.5)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (lambda: make({"decay": lambda self, u, t: d(u, t) + u}), r"no initial value for 'u', and no data"),
        (
            lambda: make({"square": lambda self, u, t: d(u, t) ** 2 - u}, conditions=[sciml.Initial(u=1.0)]),
            "not affine",
        ),
        (lambda: make({"none": lambda self, u, t: u - t}, conditions=[sciml.Initial(u=1.0)]), "no derivative of 'u'"),
        (lambda: make({}, conditions=[sciml.Initial(u=1.0)]), "no derivative of 'u'"),
        (
            lambda: make(
                {"a": lambda self, u, t: d(u, t), "b": lambda self, u, t: d(u, t) + u},
                conditions=[sciml.Initial(u=1.0)],
            ),
            r"2 equation\(s\) for 1 field",
        ),
    ],
)
def test_what_it_cannot_do_is_named(problem, words):
    with pytest.raises(BaselineError, match=words):
        sciml.baseline(problem())


@pytest.mark.parametrize("options", [{"method": "Euler"}, {"tolerance": 0.0}])
def test_options_are_checked(options):
    with pytest.raises(BaselineError, match="must"):
        sciml.baseline(problem_class("logistic_growth")(), **options)


def test_a_baseline_is_a_solution_like_any_other(tmp_path):
    solution = sciml.baseline(problem_class("logistic_growth")())
    loaded = sciml.load(solution.save(tmp_path / "scipy.pt"))
    t = np.linspace(0, 6, 40)
    assert np.array_equal(loaded(t=t)["u"], solution(t=t)["u"])
    assert solution.model is None
    assert solution.plot().axes
    with pytest.raises(ModelError, match="has no network"):
        solution.embed({"t": t})


def test_compare_puts_solutions_side_by_side():
    problem = problem_class("logistic_growth")()
    loose, tight = sciml.baseline(problem, tolerance=1e-4), sciml.baseline(problem, tolerance=1e-8)
    table = sciml.compare(loose, tight)
    assert table.against == "the reference"
    assert list(table.table.index) == ["SciPy", "SciPy #2"]
    assert table.table["u: relative L2"].is_monotonic_decreasing
    assert (table.table["u: largest"] > 0).all()
    assert "errors against the reference" in repr(table)
    assert "<table" in table._repr_html_()
    assert table.plot().axes
    given = sciml.compare(loose, tight, truth=lambda t: 1 / (1 + 9 * np.exp(-t)))
    assert given.table["u: relative L2"].to_numpy() == pytest.approx(table.table["u: relative L2"].to_numpy(), rel=1e-3)


def test_compare_refuses_what_cannot_be_compared():
    first = sciml.baseline(problem_class("logistic_growth")())
    other = sciml.baseline(problem_class("harmonic_oscillator")())
    with pytest.raises(ProblemError, match="at least two"):
        sciml.compare(first)
    with pytest.raises(ProblemError, match="solutions of one problem"):
        sciml.compare(first, other)


def test_a_fourth_order_equation_has_a_certificate_that_holds():
    problem = make(
        {"beam": lambda self, u, t: d(u, t, t, t, t) - u},
        conditions=[type("Start", (sciml.Initial,), {})(u=1.0, u_t=1.0, u_tt=1.0, u_ttt=1.0)],
    )
    solution = sciml.baseline(problem)
    assert solution.success, solution.message
    assert float(solution(t=1.0)["u"]) == pytest.approx(math.e, rel=1e-7)
    assert solution.residuals.loc["beam", "relative"] < 1e-4


def test_free_initial_values_without_unknowns():
    problem = make({"decay": lambda self, u, t: d(u, t) + u})
    t = np.linspace(0, 1, 9)
    solution = sciml.baseline(problem, {"t": t, "u": 3 * np.exp(-t)})
    assert float(solution(t=0.0)["u"]) == pytest.approx(3.0, rel=1e-6)
    assert len(solution.unknowns) == 0

"""Fields that depend on fewer coordinates than the domain has."""

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ProblemError

BOX = sciml.Box(x=(0, 1), t=(0, 0.5))


class Ground(sciml.Problem):
    """Heat in a rod whose conductivity solves an equation of its own, a'' = a."""

    domain = BOX
    fields = {"u": ("x", "t"), "a": ("x",)}
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x) ** 5),
        sciml.Dirichlet(u=0.0, on=BOX.faces("x")),
        sciml.Dirichlet(a=lambda x: torch.cosh(x), on=BOX.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, a, x, t):
        return d(u, t) - 0.1 * d(a * d(u, x), x)

    @sciml.equation
    def ground(self, a, x, t):
        return d(a, x, x) - a


class Sought(sciml.Problem):
    """The same with a conductivity that is to be found."""

    domain = BOX
    fields = {"u": ("x", "t"), "a": ("x",)}
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x) + x),
        sciml.Dirichlet(u=lambda x, t: x * (1 + t), on=BOX.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, a, x, t):
        return d(u, t) - d(a * d(u, x), x)


def test_names_and_terms():
    assert Ground.fields == ["u", "a"]
    assert Ground().constant_along == {"a": ("t",)}
    # Two equations are enough for two fields: that a does not change follows, and is looked at in the end.
    assert [term.name for term in Ground().terms()][:2] == ["heat", "ground"]
    assert "a_t" not in [term.name for term in Ground().terms()]
    assert [term.name for term in Ground().implied_terms()] == ["a_t"]
    assert "a_t" in [term.name for term in Sought().terms()]
    assert not Sought().implied_terms()
    assert not sciml.preflight(Ground())

    class Other(Sought):
        fields = ["u", "a"]

    assert Other().constant_along == {}


@pytest.mark.parametrize("spans", [{"u": ("x", "t"), "a": ("y",)}, {"u": ("x", "t"), "a": ()}, {"u": "x", "a": ("x",)}])
def test_coordinates_that_a_field_cannot_have(spans):
    with pytest.raises(ProblemError, match=r"must name the coordinates on which '[ua]' depends"):
        type("Wrong", (Sought,), {"fields": spans})


def test_a_complex_field_is_stated_by_its_parts():
    with pytest.raises(ProblemError, match=r"complex_fields = \{'u': \('re', 'im'\)\}"):
        type("Wrong", (Sought,), {"fields": {"u": complex, "a": ("x",)}})


def test_a_field_with_an_equation_of_its_own():
    solution = sciml.fit(Ground(), seconds=60)
    assert solution.success
    assert solution.residuals["relative"]["a_t"] < 1e-10
    x = np.linspace(0, 1, 21)
    assert np.allclose(solution(x=x, t=0.3)["a"], np.cosh(x), atol=1e-8)
    classical = sciml.baseline(Ground())
    assert classical.success
    assert np.allclose(classical(x=x, t=0.3)["u"], solution(x=x, t=0.3)["u"], atol=1e-6)


def test_a_field_that_changes_after_all_is_no_success():
    class Changing(Ground):
        conditions = [
            *Ground.conditions[:2],
            sciml.Dirichlet(a=lambda x, t: torch.cosh(x) * (1 + t), on=BOX.faces("x")),
        ]

    solution = sciml.fit(Changing(), strategy="TimeMarching")
    assert not solution.success
    assert "'a_t'" in solution.message


def test_a_conductivity_that_does_not_change_is_found_where_nothing_else_tells():
    def truth(x):
        return 0.5 + 0.3 * torch.sin(3 * x)

    class Known(sciml.Problem):
        domain = BOX
        fields = ["u"]
        conditions = Sought.conditions

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(truth(x) * d(u, x), x)

    generator = np.random.default_rng(0)
    at = {"x": generator.random(400), "t": 0.5 * generator.random(400)}
    u = sciml.fit(Known())(**at)["u"] + 0.01 * generator.standard_normal(400)
    solution = sciml.fit(Sought(), data={**at, "u": u}, noise=0.01)
    assert solution.success, solution.message
    x = np.linspace(0, 1, 41)
    for t in (0.0, 0.25, 0.5):
        assert np.abs(solution(x=x, t=t)["a"] - truth(torch.from_numpy(x)).numpy()).max() < 0.1

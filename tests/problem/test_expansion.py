"""Unknown fields as Chebyshev series: their values, and problems that are given them."""

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

import sciml
from sciml import d
from sciml.problem.expansion import Series, expanded, reduced

SQUARE = sciml.Box(x=(0, 2), y=(-1, 1))
SERIES = Series("a", ((0, 0), (1, 0), (0, 2)), SQUARE.bounds, offset=0.5, scale=2.0)


class Flow(sciml.Problem):
    domain = SQUARE
    fields = {"u": ("x", "y"), "a": ("x", "y")}
    k = 3.0
    conditions = [sciml.Dirichlet(u=1.0, on=SQUARE.face(x=0))]

    @sciml.equation
    def balance(self, u, a):
        return self.k * a * u - 1

    @sciml.equation(on=SQUARE & sciml.Box(x=(0, 1), y=(-1, 1)))
    def alone(self, u, x):
        return d(u, x)

    @sciml.condition(on=SQUARE.face(x=2))
    def outflow(self, u, a, x):
        return a * d(u, x)


def test_values_are_those_of_a_chebyshev_series():
    problem = expanded(Flow(), [SERIES])
    assert list(problem.unknowns) == list(SERIES.names)
    bound = problem.bind(**dict(zip(SERIES.names, (1.0, 0.25, -0.5), strict=True)))
    x, y = torch.rand(2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = SERIES.values(bound, {"x": x, "y": y})
    coefficients = np.array([[1.0, 0, -0.5], [0.25, 0, 0]])
    assert np.allclose(found, 0.5 + 2 * chebyshev.chebval2d(x.numpy() - 1, y.numpy(), coefficients), rtol=0, atol=1e-14)


def test_a_series_differentiates_as_the_function_that_it_is():
    bound = expanded(Flow(), [SERIES]).bind(**dict(zip(SERIES.names, (1.0, 0.25, -0.5), strict=True)))
    x, y = torch.rand(2, 9, dtype=torch.float64).requires_grad_().unbind(0)
    (slope,) = torch.autograd.grad(SERIES.values(bound, {"x": x, "y": y}).sum(), y)
    assert torch.allclose(slope, 2 * -0.5 * 4 * y)


def test_the_reduced_problem_is_the_whole_one_with_the_field_given():
    whole = expanded(Flow(k=5.0), [SERIES])
    made = reduced(whole, [SERIES])
    assert made.fields == ("u",)
    assert made.k == 5.0
    assert whole.fields == ("u", "a")
    places = {term.name: term.place for term in whole.terms()}
    assert {term.name: term.place for term in made.terms()} == places
    assert len(made.terms()) == len(places)
    assert not made.has_reference
    assert list(made.unknowns) == list(SERIES.names)
    x, y = np.linspace(0, 2, 7), np.linspace(-1, 1, 7)
    # At the start the field is its natural size.
    left = made.residuals(lambda x, y: {"u": x + y}, x=x, y=y)
    right = whole.residuals(lambda x, y: {"u": x + y, "a": 2.5 + 0 * x}, x=x, y=y)
    assert left.keys() == right.keys()
    assert all(np.allclose(left[name], values) for name, values in right.items())


def test_conditions_on_the_field_itself_are_refused():
    class Held(Flow):
        conditions = [sciml.Dirichlet(u=1.0, a=2.0, on=SQUARE.face(x=0))]

    with pytest.raises(sciml.errors.ProblemError, match="'a'"):
        reduced(expanded(Held(), [SERIES]), [SERIES])

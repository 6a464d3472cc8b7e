"""The contract of a condition: names are checked when the class is defined, terms vanish where it holds and nowhere else."""

import numpy as np
import pytest
import torch

import sciml
from problems import Poisson
from sciml import conditions, d
from sciml.errors import ProblemError
from sciml.problem.conditions import Condition, Evaluation
from sciml.solvers.discrete_problem import blocks_of

SQUARE = sciml.Box(x=(0, 1), t=(0, 2))
# u = x t + 1 for every one of them: its values, its slopes, its means.
CONDITIONS = {
    "Dirichlet": (sciml.Dirichlet(u=lambda t: t + 1, on=SQUARE.face(x=1)), 1),
    "Initial": (sciml.Initial(u=1.0), 1),
    "Integral": (sciml.Integral(u=lambda t: t / 2 + 1), 1),
    "Mean": (sciml.Mean(u=lambda t: t / 2 + 1), 1),
    "Neumann": (sciml.Neumann(u=lambda t: t, on=SQUARE.face(x=1)), 1),
    "Outflow": (sciml.Outflow(["u"], "w", viscosity=1.0, on=SQUARE.face(x=1)), 1),
    "Periodic": (sciml.Periodic("x", "w"), 1),
    "Point": (sciml.Point(u=1.5, at={"x": 0.5, "t": 1.0}), 1),
    "Robin": (sciml.Robin(u=lambda t: t + 2 * (t + 1), coefficient=2.0, on=SQUARE.face(x=1)), 1),
}


def below(kind):
    return {kind, *(each for sub in kind.__subclasses__() for each in below(sub))}


def problem_with(condition, unknown="u"):
    class Stated(sciml.Problem):
        domain = SQUARE
        fields = [unknown, "w"]
        conditions = [condition]

        @sciml.equation
        def mixed(self, w, x, t):
            return d(w, x)

    return Stated()


def test_every_condition_is_held_by_this_contract():
    public = {name for name in conditions.__all__ if isinstance(getattr(conditions, name), type)}
    known = {each.__name__ for each in below(Condition) if each.__module__.startswith("sciml.")}
    assert set(CONDITIONS) == (public & known) - {"Condition"}


@pytest.fixture(params=CONDITIONS)
def condition(request):
    return CONDITIONS[request.param][0]


def residuals(problem, fields):
    """Those of the conditions, at their own points."""

    def trial(points):
        return torch.stack(fields(*points.unbind(1)), dim=1)

    generator = np.random.default_rng(0)
    terms = [term for term in problem.terms() if term.name not in problem.equations]
    found = {}
    for block in blocks_of(problem, terms, 64, generator):
        spaces = tuple(problem.space(points, trial) for points in block.sample.points)
        at = Evaluation(problem, spaces, block.sample.normals)
        for term in block.terms:
            values, weights = term.evaluate(at).detach(), block.sample.quadrature
            found[term.name] = values if weights is None else (weights @ values).reshape(-1)
    return found


def test_its_residual_vanishes_where_it_holds_and_not_elsewhere(condition):
    problem = problem_with(condition)
    right = residuals(problem, lambda x, t: (x * t + 1, 0 * x + t))
    wrong = residuals(problem, lambda x, t: (1.5 * x * t + 1.7, x * t))
    assert right
    for name, values in right.items():
        assert values.ndim == 1
        assert float(values.abs().max()) < 1e-12
        assert float(wrong[name].abs().max()) > 1e-3


def test_it_has_terms_with_names_of_their_own(condition):
    problem = problem_with(condition)
    names = [term.name for term in problem.terms()]
    assert len(set(names)) == len(names)
    assert any(name.split(".")[0] == condition.name for name in names)


def test_names_that_the_problem_lacks_are_refused_when_the_class_is_defined(condition):
    others = {"Periodic": "u"}
    if type(condition).__name__ in others:
        with pytest.raises(ProblemError, match=r"\bw\b"):
            problem_without_w(condition)
    else:
        with pytest.raises(ProblemError, match=r"\bu\b"):
            problem_with(condition, unknown="velocity")


def problem_without_w(condition):
    class Stated(sciml.Problem):
        domain = SQUARE
        fields = ["u"]
        conditions = [condition]

        @sciml.equation
        def mixed(self, u, x, t):
            return d(u, x)

    return Stated()


def test_a_condition_of_the_users_own_holds_like_the_others():
    class Own(Poisson):
        @sciml.condition(on=Poisson.domain.face(x=0))
        def slope(self, u, x, y):
            return d(u, x) - 3.0 * y

    (term,) = [term for term in Own().terms() if term.name == "slope"]
    assert [index for _, index in Own().system.depends(term)] == [("x",)]


@pytest.mark.parametrize("kind", [sciml.Dirichlet, sciml.Neumann, lambda **given: sciml.Robin(coefficient=1.0, **given)])
def test_conditions_of_walls_hold_on_all_of_them_unless_told_otherwise(kind):
    problem = problem_with(kind(u=0.0))
    (term,) = [each for each in problem.terms() if each.name not in problem.equations]
    (block,) = blocks_of(problem, [term], 64, np.random.default_rng(0))
    (points,) = block.sample.points
    assert set(points[:, 0].tolist()) == {0.0, 1.0}

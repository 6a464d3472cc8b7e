"""Classical grids as one of the ways of `fit`."""

import re

import numpy as np
import pytest

import sciml
from problems import Decay, Explosion, Heat
from sciml import d
from sciml.strategies import ClassicalGrids


@pytest.mark.parametrize("problem", [Decay(), Heat()])
def test_they_serve_what_a_baseline_serves(problem):
    solution = sciml.fit(problem, strategy=ClassicalGrids())
    reference = sciml.baseline(problem)
    assert solution.success
    at = {name: np.linspace(low, high, 9) for name, (low, high) in solution.domain.bounds.items()}
    for name, values in reference(**at).items():
        assert np.allclose(solution(**at)[name], values, rtol=1e-9, atol=1e-12)


def test_they_say_why_they_add_nothing():
    solution = sciml.fit(Explosion(), strategy=["ClassicalGrids", "RandomFeatures"])
    assert not solution.success
    assert any(each.startswith("ClassicalGrids: ") and "blows up" in each for each in solution.choices)


@pytest.mark.parametrize("seconds", [0, -1.0, True, "all"])
def test_seconds_are_a_positive_number(seconds):
    with pytest.raises(sciml.SolverError, match="positive number"):
        ClassicalGrids(seconds)


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_without_a_start_nothing_is_a_success():
    class Unbegun(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x)

    solution = sciml.fit(Unbegun())
    assert not solution.success
    assert "initial" in solution.message.lower() or "t = 0" in solution.message


def test_grids_that_differ_tell_their_error():
    class Rod(sciml.Problem):
        """Heat through a rod whose conductivity a table with a jump gives."""

        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        k = sciml.data.GridField({"x": np.linspace(0, 1, 101)}, np.where(np.arange(101) < 37, 1.0, 8.0), order=1)
        conditions = [sciml.Dirichlet(u=0.0, on=domain.face(x=0)), sciml.Dirichlet(u=1.0, on=domain.face(x=1))]

        @sciml.equation
        def balance(self, u, x):
            return d(self.k(x) * d(u, x), x) + 1

    solution = sciml.fit(Rod(), strategy=ClassicalGrids())
    # How fine the grids are depends on the time that there was; of coarse ones corrections find more.
    told = re.search(r"differ by ([0-9.e+-]+)", " ".join(solution.choices))
    assert told
    assert solution.estimated_error["u"] >= 0.95 * float(told[1])
    assert not solution.success

"""Coefficients given on grids and in files: what they are between the nodes, and what is refused."""

import numpy as np
import pytest
import torch
from conftest import problem_class
from scipy.interpolate import RectBivariateSpline

import sciml
from sciml import d
from sciml.data import GridField
from sciml.errors import DataError

X, Y = np.linspace(0, 1, 17), np.linspace(-1, 2, 23) ** 3
VALUES = np.sin(X[:, None]) * np.exp(Y / 9)


def table(x=X, y=Y, values=VALUES):
    columns = np.meshgrid(x, y, indexing="ij")
    return {"x": columns[0].ravel(), "y": columns[1].ravel(), "k": values.ravel()}


@pytest.mark.parametrize(("order", "degree"), [(1, 1), (3, 3), (5, 5)])
def test_it_is_the_spline_that_scipy_makes(order, degree):
    field = GridField({"x": X, "y": Y}, VALUES, order)
    generator = np.random.default_rng(0)
    x, y = generator.uniform(0, 1, 200), generator.uniform(Y[0], Y[-1], 200)
    peer = RectBivariateSpline(X, Y, VALUES, kx=degree, ky=degree)
    found = field(torch.from_numpy(x), torch.from_numpy(y))
    assert np.allclose(found.numpy(), peer(x, y, grid=False), rtol=0, atol=1e-12)
    ends = field(torch.tensor([0.0, 1.0]), torch.tensor([Y[0], Y[-1]]))
    assert np.allclose(ends.numpy(), [VALUES[0, 0], VALUES[-1, -1]], rtol=0, atol=1e-12)


def test_equations_may_differentiate_it():
    field = GridField({"x": X, "y": Y}, VALUES)
    x = torch.linspace(0.05, 0.95, 9, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(field(x, 0.5).sum(), x)
    assert np.allclose(slope.numpy(), np.cos(x.detach().numpy()) * np.exp(0.5 / 9), rtol=0, atol=1e-4)


def test_the_estimated_error_is_near_the_true_one():
    for count in (9, 17, 33):
        x = np.linspace(0, 3, count)
        field = GridField({"x": x}, np.sin(2 * x))
        at = torch.linspace(0, 3, 1001, dtype=torch.float64)
        true = float((field(at) - torch.sin(2 * at)).norm() / torch.sin(2 * at).norm())
        assert true / 10 < field.error < 10 * true


@pytest.mark.parametrize("suffix", ["csv", "h5", "mat"])
def test_files_of_every_kind_are_read(tmp_path, suffix):
    sciml.Table(table()).save(tmp_path / f"k.{suffix}")
    field = GridField.read(tmp_path / f"k.{suffix}", "k", ("x", "y"))
    assert torch.allclose(field(0.3, 0.2), GridField({"x": X, "y": Y}, VALUES)(0.3, 0.2), rtol=1e-9)


def test_what_a_file_lacks_is_named(tmp_path):
    path = tmp_path / "k.csv"
    whole = table()
    sciml.Table({name: np.delete(column, 5) for name, column in whole.items()}).save(path)
    with pytest.raises(DataError, match=r"no full grid of 'x', 'y': the node x = 0, y = .* is missing"):
        GridField.read(path, "k", ("x", "y"))
    sciml.Table({name: np.append(column, column[0]) for name, column in whole.items()}).save(path)
    with pytest.raises(DataError, match="is given more than once"):
        GridField.read(path, "k", ("x", "y"))
    with pytest.raises(DataError, match="no column 'a'"):
        GridField.read(path, "a", ("x", "y"))


def test_what_is_no_field_is_refused():
    broken = VALUES.copy()
    broken[3, 4] = np.nan
    for axes, values, order, words in (
        ({"x": X, "y": Y}, broken, 3, f"nan at x = {X[3]:g}, y = {Y[4]:g}"),
        ({"x": X[::-1], "y": Y}, VALUES, 3, "must be finite and increase"),
        ({"x": X, "y": Y}, VALUES[1:], 3, "17 x 23 values"),
        ({"x": X[:3], "y": Y}, VALUES[:3], 3, "order 3 needs 4 nodes of x"),
        ({"x": X, "y": Y}, VALUES, 2, "order must be 1, 3 or 5"),
    ):
        with pytest.raises(DataError, match=words):
            GridField(axes, values, order)
    with pytest.raises(DataError, match="beyond must be 'error' or 'nearest'; given: 'spline'"):
        GridField({"x": X, "y": Y}, VALUES, beyond="spline")
    with pytest.raises(DataError, match="takes 'x', 'y'; given: 1"):
        GridField({"x": X, "y": Y}, VALUES)(0.5)


def test_a_grid_that_does_not_cover_the_domain_is_told_before_anything_is_solved():
    class Wide(problem_class("darcy_field")):
        domain = sciml.Box(x=(0, 1.5), y=(0, 1))
        conditions = [sciml.Dirichlet(p=0.0, on=domain.boundary)]

    with pytest.raises(DataError, match="the part above 1 is missing"):
        sciml.fit(Wide())


def test_a_table_of_a_law_is_called_with_fields(tmp_path):
    temperature = np.linspace(250, 1300, 43)
    path = tmp_path / "k.csv"
    sciml.Table({"T": temperature, "k": 20 + 0.02 * temperature}).save(path)

    class Rod(sciml.Problem):
        domain = sciml.Interval(x=(0, 0.1))
        fields = ["T"]
        conditions = [sciml.Dirichlet(T=300.0, on=domain.face(x=0)), sciml.Dirichlet(T=1200.0, on=domain.face(x=0.1))]
        k = GridField.read(path, "k", ("T",), beyond="nearest")

        @sciml.equation
        def conduction(self, T, x):
            return d(self.k(T) * d(T, x), x)

    solution = sciml.fit(Rod())
    assert solution.success
    # The integral of k is a straight line between those at the ends.
    x, ends = np.linspace(0, 0.1, 11), np.array([20 * t + 0.01 * t**2 for t in (300, 1200)])
    truth = -1000 + np.sqrt(1e6 + 100 * (ends[0] + (ends[1] - ends[0]) * x / 0.1))
    assert np.allclose(solution(x=x)["T"], truth, rtol=1e-8)
    assert float(Rod.k(100.0)) == float(Rod.k(250.0))
    with pytest.raises(DataError, match="extend the grid, cut the domain, or, for the table of a law"):
        GridField.read(path, "k", ("T",))(100.0)


def test_a_solution_and_its_baseline_use_the_file(tmp_path):
    class Flow(problem_class("darcy_field")):
        conditions = [sciml.Dirichlet(p=0.0, on=problem_class("darcy_field").domain.boundary)]

        @sciml.equation
        def balance(self, p, x, y):
            return d(self.k(x, y) * d(p, x), x) + d(self.k(x, y) * d(p, y), y) + 1

    solution, baseline = sciml.fit(Flow()), sciml.baseline(Flow())
    assert solution.success
    at = {"x": np.array([0.2, 0.5, 0.9]), "y": np.array([0.3, 0.6, 0.1])}
    assert np.allclose(solution(**at)["p"], baseline(**at)["p"], rtol=1e-4)
    again = sciml.load(solution.save(tmp_path / "flow.pt"))
    assert np.array_equal(again(**at)["p"], solution(**at)["p"])

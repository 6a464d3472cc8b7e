"""Solutions side by side: the table, where errors are measured, what is refused, and the pictures."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ProblemError


class Decay(sciml.Problem):
    """A problem with two fields and no reference."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=1.0, v=0.0)]

    @sciml.equation
    def fall(self, u, t):
        return d(u, t) + u

    @sciml.equation
    def rise(self, u, v, t):
        return d(v, t) - u


class Rod(sciml.Problem):
    """A problem with an exact solution."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - d(u, x, x)

    def reference(self, x, t):
        return torch.exp(-(torch.pi**2) * t) * torch.sin(torch.pi * x)


def features(problem, count, scale=2.0):
    return sciml.fit(problem, sciml.RandomFeatures(count, scale), solver=sciml.LinearLeastSquares())


@pytest.fixture(scope="module")
def rods():
    return features(Rod(), 100), features(Rod(), 30)


@pytest.fixture(scope="module")
def decays():
    return sciml.baseline(Decay(), tolerance=1e-3), sciml.baseline(Decay(), tolerance=1e-6), features(Decay(), 60)


def broken(solution):
    """The solution with a value that is not a number."""

    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = solution.trial

        def forward(self, points):
            return torch.where(points[:, :1] > 0.5, torch.nan, self.inner(points))

    return dataclasses.replace(solution, trial=Broken(), success=False, status="diverged")


def test_the_columns_are_those_of_the_docstring(rods):
    found = sciml.compare(*rods)
    assert list(found.table.columns) == [
        "u: relative L2",
        "u: largest",
        "estimated error",
        "seconds",
        "degrees of freedom",
        "points/s",
        "success",
        "remark",
    ]
    assert list(found.table.index) == ["RandomFeatures", "RandomFeatures #2"]
    assert found.table["degrees of freedom"].tolist() == [each.parameters for each in rods]
    assert (found.table["points/s"] > 0).all()
    for name in found.table.columns[:4]:
        assert name.removeprefix("u: ") in sciml.Comparison.__doc__
        assert name in repr(found)
        assert name in found._repr_html_()


def test_errors_are_measured_where_it_is_asked_for(rods):
    x, t = np.linspace(0, 1, 7)[:, None], np.array([0.02, 0.05])
    exact = np.exp(-(math.pi**2) * t) * np.sin(math.pi * x)
    gap = rods[0](x=x, t=t)["u"] - exact
    found = sciml.compare(*rods, on={"x": x, "t": t})
    row = found.table.iloc[0]
    assert row["u: relative L2"] == pytest.approx(np.linalg.norm(gap) / np.linalg.norm(exact), rel=1e-6)
    assert row["u: largest"] == pytest.approx(np.abs(gap).max(), rel=1e-6)
    assert found.points["x"].shape == (7, 2)
    flat = {name: values.ravel() for name, values in found.points.items()}
    for same in (sciml.Table(flat), pd.DataFrame({**flat, "other": 1.0})):
        assert sciml.compare(*rods, on=same).table.iloc[0]["u: largest"] == pytest.approx(row["u: largest"], rel=1e-9)


def test_without_points_the_grid_of_solution_error_is_used(rods):
    table = sciml.compare(*rods).table
    for name, solution in zip(table.index, rods, strict=True):
        assert table.loc[name, "u: relative L2"] == pytest.approx(solution.error()["u"], rel=1e-9)


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ({"x": [0.1]}, "expected the coordinates 'x', 't'; given: 'x'"),
        (pd.DataFrame({"x": [0.1], "s": [0.1]}), "lacks 't' and has 'x', 's'"),
        ([0.1, 0.2], "a dict of coordinates, a Table or a DataFrame; given: list"),
        ({"x": [], "t": []}, "no points"),
    ],
)
def test_points_that_cannot_be_used(rods, on, words):
    with pytest.raises(ProblemError, match=words):
        sciml.compare(*rods, on=on)


def test_a_solution_that_stands_for_the_truth_says_so(decays):
    found = sciml.compare(*decays)
    assert found.against == "SciPy's solution, for want of a reference"
    assert found.table["remark"].tolist() == ["", "taken as the truth", ""]
    assert found.table.iloc[1]["u: largest"] == 0
    assert found.table.iloc[2]["v: relative L2"] < 1e-4


@pytest.mark.parametrize("name", ["harmonic_oscillator", "lynx_hare"])
def test_relative_means_one_thing(name):
    """Residuals of both methods are relative to the same natural sizes: at one point, inside, and of measurements."""
    stated = sciml.gallery.problem(name)
    fitted, classical = (
        found.residuals["rms"] / found.residuals["relative"]
        for found in (sciml.fit(stated), sciml.baseline(stated, time_limit=200))
    )
    sizes = pd.DataFrame({"fitted": fitted[classical.index], "classical": classical})
    # A start that is met to the last bit tells no size.
    known = sizes.dropna()
    assert len(known) >= len(sizes) - 1
    assert np.allclose(known["fitted"], known["classical"], rtol=0.25)


def test_problems_of_another_name_with_the_same_fields_and_domain_compare(rods):
    class Other(Rod):
        pass

    same = features(Other(), 30)
    assert len(sciml.compare(rods[0], same).table) == 2

    class Elsewhere(Rod):
        domain = sciml.Box(x=(0, 1), t=(0, 0.2))

    with pytest.raises(ProblemError, match="solutions of one problem"):
        sciml.compare(rods[0], features(Elsewhere(), 30))


def test_what_blew_up_is_named_and_not_compared(rods):
    found = sciml.compare(rods[0], broken(rods[1]))
    name = found.table.index[1]
    assert found.table.loc[name, "remark"] == "blow-up: no comparison made"
    assert np.isnan(found.table.loc[name, "u: relative L2"])
    assert np.isfinite(found.table.iloc[0]["u: relative L2"])
    assert not found.table.loc[name, "success"]
    titles = [axes.get_title() for axes in found.plot().axes]
    assert any("blow-up: no comparison made" in title for title in titles)
    assert any(text.get_text() == "blow-up:\nno comparison made" for axes in found.plot().axes for text in axes.texts)
    with pytest.raises(ProblemError, match=r"is not finite at .* of the points: no comparison made"):
        sciml.compare(*rods, truth=lambda x, t: np.where(x > 0.5, np.nan, x))


def test_without_a_reference_the_truth_is_a_solution_that_did_not_blow_up(decays):
    loose, tight, other = decays
    found = sciml.compare(loose, other, broken(tight))
    assert found.table["remark"].tolist() == ["taken as the truth", "", "blow-up: no comparison made"]
    with pytest.raises(ProblemError, match="no solution has finite values"):
        sciml.compare(broken(loose), broken(tight))


def test_what_is_no_success_is_marked(rods):
    failed = dataclasses.replace(rods[1], success=False, status="budget")
    found = sciml.compare(rods[0], failed)
    assert found.table["remark"].tolist() == ["", "not a success: budget"]
    assert any("RandomFeatures #2 (not a success)" in axes.get_title() for axes in found.plot().axes)


def test_pictures_of_one_coordinate_have_all_curves_and_their_differences(decays):
    figure = sciml.compare(*decays).plot()
    panels = [axes for axes in figure.axes if axes.lines]
    assert len(panels) == 4
    assert [len(axes.lines) for axes in panels] == [3, 2, 3, 2]
    assert [axes.get_yscale() for axes in panels] == ["linear", "log"] * 2


def test_pictures_of_two_coordinates_have_two_rows(rods):
    figure = sciml.compare(*rods, rods[0]).plot()
    maps = [axes for axes in figure.axes if axes.get_xlabel() == "t"]
    assert len(maps) == 6
    limits = [axes.collections[0].get_clim() for axes in maps]
    # One scale for all solutions, for each difference one of its own.
    assert limits[0] == limits[1] == limits[2]
    assert limits[3] != limits[4]


@pytest.mark.parametrize(
    ("domain", "title"),
    [
        (sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1)), "t = 1"),
        (sciml.Ball((0, 0, 0), 1), "z = 0"),
        (sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 1)), "t = 1"),
    ],
)
def test_pictures_of_three_coordinates_are_slices(domain, title):

    class Plain(sciml.Problem):
        fields = ["u"]

        @sciml.equation
        def laplace(self, u, x, y):
            return d(u, x, x) + d(u, y, y)

    walls = [sciml.Dirichlet(u=lambda x: x, on=domain.boundary)]
    plain = type("Walled", (Plain,), {"domain": domain, "conditions": walls})
    one, two = features(plain(), 40, 1.0), features(plain(), 20, 1.0)
    found = sciml.compare(one, two, truth=lambda **at: at["x"])
    assert found.plot().get_suptitle() == title

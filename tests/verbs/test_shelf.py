"""The gallery as a person finds it: by name, from a checkout and from a wheel, in tables, pictures and pages."""

import inspect
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from conftest import ROOT

import sciml
from sciml import d, gallery
from sciml.errors import ProblemError

NAMES = sorted(path.stem for path in (ROOT / "problems").glob("*.py"))


def test_names_are_those_of_the_files():
    assert list(gallery.names()) == NAMES
    assert gallery.path("heat_rod") == ROOT / "problems" / "heat_rod.py"


def test_its_functions_are_documented_with_an_example():
    public = {
        name: thing
        for name, thing in inspect.getmembers(gallery, inspect.isfunction)
        if thing.__module__ == gallery.__name__ and not name.startswith("_")
    }
    assert {"names", "path", "problem", "table", "load_problem"} <= set(public)
    for name, thing in public.items():
        doc = inspect.getdoc(thing)
        assert "Returns:" in doc, name
        assert ">>>" in doc, name


def test_a_problem_by_name_with_other_constants():
    assert sciml.gallery.problem("heat_rod", kappa=0.1).kappa == 0.1
    with pytest.raises(ProblemError, match="has no constant 'kapa'"):
        gallery.problem("heat_rod", kapa=0.1)


def test_unknown_names_list_near_ones():
    with pytest.raises(ProblemError, match=r"no problem 'heat_rot'.*'heat_rod'.*sciml list"):
        gallery.problem("heat_rot")
    with pytest.raises(ProblemError, match=r"no file problem/heat_rod\.py;.*Did you mean 'heat_rod'"):
        gallery.load_problem("problem/heat_rod.py")
    with pytest.raises(ProblemError, match=r"no file zzz;(?!.*Did you mean)"):
        gallery.load_problem("zzz")


def test_a_file_goes_before_a_name_of_the_gallery(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "burgers").write_text("not Python")
    with pytest.raises(ProblemError, match="burgers is not a Python file"):
        gallery.load_problem("burgers")


def test_of_several_classes_the_one_called_like_the_file(tmp_path):
    shape = "class {0}(sciml.Problem):\n    domain = sciml.Interval(t=(0, 1))\n    fields = ['u']\n"
    (tmp_path / "two_waves.py").write_text("import sciml\n" + shape.format("TwoWaves") + shape.format("Other"))
    assert gallery.problem_class(f"{tmp_path}/two_waves.py").__name__ == "TwoWaves"
    assert gallery.problem_class(f"{tmp_path}/two_waves.py:Other").__name__ == "Other"


def test_the_table_says_what_each_problem_is():
    table = gallery.table()
    assert list(table.index) == NAMES
    assert all(line.endswith(".") for line in table["line"])
    assert table.loc["heat_plate", "coordinates"] == ("x", "y", "t")
    assert table.loc["lynx_hare", "unknowns"] == ("birth", "predation", "death", "conversion")
    assert table.loc["burgers", "truth"] == "exact"
    assert table.loc["lynx_hare", "truth"] == "measured"
    for name, truth in table["truth"].items():
        assert ("stored" in truth) == any((ROOT / "data" / name).glob("reference.*")), name
        assert truth != "none", name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked where nothing else is."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def installed(wheel, *words, cwd):
    """Python with the unpacked wheel and the libraries it needs, and without the checkout."""
    # Without site no .pth file is read, and an editable installation cannot be imported.
    libraries = [folder for folder in sys.path if folder.endswith("-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(wheel), *libraries]), "COLUMNS": "160"}
    command = [sys.executable, "-S", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_carries_problems_and_data_and_nothing_else(wheel):
    names = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}
    assert {f"sciml/_gallery/problems/{name}.py" for name in NAMES} <= names
    tracked = subprocess.run(["git", "ls-files", "data"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert {f"sciml/_gallery/{name}" for name in tracked.stdout.split()} <= names
    assert "sciml/deploy/report.html" in names
    assert not [name for name in names if "test" in name or "__pycache__" in name or "docs/" in name]
    (entry,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "sciml = sciml.cli:main" in entry.read_text()


@pytest.mark.slow
def test_the_wheel_lists_the_gallery_without_the_checkout(wheel, tmp_path):
    where = installed(wheel, "-c", "import sciml; print(sciml.__file__)", cwd=tmp_path)
    assert where.stdout.strip() == str(wheel / "sciml" / "__init__.py"), where.stderr
    assert installed(wheel, "-m", "sciml", "--version", cwd=tmp_path).stdout.strip() == f"sciml {sciml.__version__}"
    listing = installed(wheel, "-m", "sciml", "list", cwd=tmp_path)
    assert listing.returncode == 0, listing.stderr
    assert all(name in listing.stdout for name in NAMES)


@pytest.mark.slow
def test_a_problem_of_the_wheel_finds_its_data(wheel, tmp_path):
    code = "import sciml; print(len(sciml.gallery.problem('lynx_hare').measurements()))"
    found = installed(wheel, "-c", code, cwd=tmp_path)
    assert found.stdout.strip() == "21", found.stderr


def test_three_coordinates_are_drawn_as_a_slice_and_the_title_says_which():
    class Plate(sciml.Problem):
        domain = sciml.Box(x=(0, 2), t=(0, 1), y=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=1.0), sciml.Neumann(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def flat(self, u, x, y, t):
            return d(u, t) - d(u, x, x)

        def reference(self, x, y, t):
            return x + 10 * y + 100 * t

    solution = sciml.fit(Plate(), sciml.MLP(4), solver=sciml.Adam(1), points=16)
    figure = solution.plot()
    left, right = figure.axes[:2]
    assert figure.get_suptitle().endswith("at t = 0.5")
    assert (left.get_xlabel(), left.get_ylabel()) == ("x", "y")
    drawn = left.collections[0].get_array()
    assert np.ravel(drawn)[-1] == pytest.approx(solution(x=2.0, y=1.0, t=0.5)["u"])
    difference = np.ravel(right.collections[0].get_array())[-1]
    assert difference == pytest.approx(solution(x=2.0, y=1.0, t=0.5)["u"] - 62)


def test_differences_are_drawn_where_errors_are_taken():
    class Plane(sciml.Problem):
        domain = sciml.Box(x=(0, 2), t=(0, 1))
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=1.0, v=0.0)]

        @sciml.equation
        def flat(self, u, v, x, t):
            return d(u, t) + d(v, x)

        def reference(self, x, t):
            return {"u": torch.sin(3 * x), "v": t * torch.cos(x)}

    solution = sciml.fit(Plane(), sciml.MLP(4), solver=sciml.Adam(1), points=16)
    axes = solution.plot().axes[:4]
    grid = solution.grid()
    for field, row in zip(("u", "v"), (axes[:2], axes[2:]), strict=True):
        difference = solution(**grid)[field] - solution.truth(grid)[field]
        drawn = row[1].collections[0]
        np.testing.assert_allclose(np.sort(np.ravel(drawn.get_array())), np.sort(difference.ravel()))
        assert drawn.get_clim()[1] == pytest.approx(np.abs(difference).max())
        assert (row[1].get_xlabel(), row[1].get_ylabel()) == ("t", "x")


def test_long_legends_stand_beside_the_curves():
    class Many(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["a", "b", "c"]
        conditions = [sciml.Initial(a=1.0, b=1.0, c=1.0)]

        @sciml.equation
        def flat(self, a, b, c, t):
            return d(a, t) + d(b, t) + d(c, t)

        def reference(self, t):
            return {"a": t, "b": t, "c": t}

    figure = sciml.fit(Many(), sciml.MLP(4), solver=sciml.Adam(1), points=16).plot()
    assert len(figure.legends[0].get_texts()) == 6
    assert figure.axes[0].get_legend() is None


def test_a_slice_outside_the_domain_is_refused():
    class Shells(sciml.Problem):
        domain = sciml.Ball((0.0, 0.0, 0.0), 1.0) | sciml.Ball((0.0, 0.0, 9.0), 2.0)
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def flat(self, u, x, y, z):
            return d(u, z)

    solution = sciml.fit(Shells(), sciml.MLP(4), solver=sciml.Adam(1), points=16)
    with pytest.raises(ProblemError, match="through the middle of 'z' does not meet the domain of Shells"):
        solution.plot()

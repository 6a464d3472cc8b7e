"""References that are kept as files: what is read is what was written, and nothing is made up between or beyond."""

import math

import h5py
import numpy as np
import pytest
import torch

import sciml
from sciml import StoredReference, d
from sciml.errors import FileError, ProblemError


def wave(x, t):
    return np.sin(3 * x) * np.exp(-t)


@pytest.fixture
def file(tmp_path):
    axes = {"x": np.linspace(-1, 1, 41), "t": np.linspace(0, 1, 31)}
    x, t = np.meshgrid(*axes.values(), indexing="ij")
    path = tmp_path / "reference.h5"
    StoredReference.write(
        path, axes, {"u": wave(x, t), "v": x + t}, {"rate": 9.0}, equation="u_t = u_xx / rate", resolution=[4, 5]
    )
    return path


def waves(where, **more):
    """A problem that the file is a reference of."""

    class Waves(sciml.Problem):
        domain = more.get("domain", sciml.Box(x=(-1, 1), t=(0, 1)))
        fields = ["u"]
        rate = 9.0
        conditions = [
            sciml.Initial(u=lambda x: torch.sin(3 * x)),
            sciml.Dirichlet(u=lambda x, t: torch.sin(3 * x) * torch.exp(-t), on=domain.faces("x")),
        ]
        reference = StoredReference(where, fields=["u"])

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x) / self.rate

    return Waves


def test_what_is_read_is_what_was_written(file):
    found = StoredReference(file)
    assert list(found.axes) == ["x", "t"]
    assert list(found.fields) == ["u", "v"]
    assert found.attributes["equation"] == "u_t = u_xx / rate"
    assert found.attributes["resolution"] == [4, 5]
    assert found.parameters == {"rate": 9.0}
    with h5py.File(file) as raw:
        assert raw["u"].dtype == np.float64
        assert (raw["u"].compression, raw["u"].fletcher32) == ("gzip", True)
        assert list(raw.attrs["coordinates"]) == [b"x", b"t"]  # of fixed length, where checksums reach


def test_the_spline_takes_the_values_and_follows_the_function_between(file):
    found = StoredReference(file)
    at = found(**found.grid())
    assert float((at["u"] - torch.from_numpy(found.fields["u"])).abs().max()) < 1e-14
    generator = np.random.default_rng(0)
    x, t = generator.uniform(-1, 1, (500, 1)), generator.uniform(0, 1, 40)
    between = found(x=x, t=t)["u"]
    assert between.shape == (500, 40)
    # The eighth power of the distance of points times the wave number, 0.15, with a small factor.
    assert np.abs(between.numpy() - wave(x, t)).max() < 0.02 * 0.15**8
    assert found(x=0.5, t=0.25)["v"].shape == ()
    assert found(x=np.empty(0), t=0.5)["u"].shape == (0,)


@pytest.mark.parametrize("points", [2, 3, 4, 7, 8, 9])
def test_short_axes_have_lower_degrees(tmp_path, points):
    axis = np.linspace(0, 1, points)
    StoredReference.write(tmp_path / "short.h5", {"t": axis}, {"u": axis})
    assert float(StoredReference(tmp_path / "short.h5")(t=0.3)["u"]) == pytest.approx(0.3, abs=1e-13)


def test_derivatives_by_autograd_are_those_of_the_function(file):
    problem = waves(file)()
    generator = np.random.default_rng(0)
    x, t = generator.uniform(-0.95, 0.95, 64), generator.uniform(0.05, 0.95, 64)
    (values,) = problem.residuals(problem.reference, x=x, t=t).values()
    assert np.abs(values).max() < 1e-6
    at = torch.from_numpy(x).requires_grad_()
    slope = StoredReference(file)(x=at, t=torch.from_numpy(t))["u"]
    for _ in range(4):
        (slope,) = torch.autograd.grad(slope.sum(), at, create_graph=True)
    assert np.abs(slope.detach().numpy() - 81 * wave(x, t)).max() < 1e-2


def test_solutions_are_held_against_the_stored_points(file):
    problem = waves(file)()
    assert problem.reference_values({"x": 0.5, "t": [0.25, 0.75]})["u"].shape == (2,)
    solution = sciml.fit(problem)
    assert solution.grid()["x"].shape == (41, 31)
    assert solution.grid(5)["x"].shape == (5, 5)
    truth = StoredReference(file).fields["u"]
    own = solution(**solution.grid())["u"]
    by_hand = np.linalg.norm(own - truth) / np.linalg.norm(truth)
    assert solution.error()["u"] == pytest.approx(by_hand, rel=1e-6)
    assert waves(file, domain=sciml.Box(x=(-0.5, 1), t=(0, 1)))().has_reference


def test_other_constants_have_no_reference(file):
    problem = waves(file)
    assert problem().has_reference
    assert problem(rate=9).has_reference
    assert not problem(rate=8.0).has_reference
    assert problem(rate=sciml.Unknown(1.0)).has_reference
    assert problem(rate=sciml.Unknown(1.0)).reference_values({"x": 0.5, "t": 0.25}, {"rate": 8.0}) is not None


def test_nothing_is_made_up_beyond_the_grid(file):
    with pytest.raises(ProblemError, match=r"between 0 and 1; asked for it between 0\.5 and 1\.5"):
        StoredReference(file)(x=0.0, t=[0.5, 1.5])
    with pytest.raises(ProblemError, match="between -1 and 1"):
        StoredReference(file)(x=math.nan, t=0.5)
    with pytest.raises(ProblemError, match="expected the coordinates 'x', 't'; given: 'x'"):
        StoredReference(file)(x=0.0)


def test_files_that_are_none_are_named(file, tmp_path):
    assert "nowhere" in repr(StoredReference(tmp_path / "nowhere.h5"))
    with pytest.raises(FileError, match=r"no reference .*nowhere\.h5"):
        StoredReference(tmp_path / "nowhere.h5")(t=0.0)
    (tmp_path / "text.h5").write_text("no figures")
    with pytest.raises(FileError, match="damaged"):
        _ = StoredReference(tmp_path / "text.h5").axes
    with pytest.raises(ProblemError, match="no field 'w'; fields: 'u', 'v'"):
        StoredReference(file, fields=["w"])(x=0.0, t=0.0)
    with h5py.File(file, "a") as raw:
        del raw["u"]
        raw["u"] = np.zeros(3)
    with pytest.raises(FileError, match="other shapes"):
        _ = StoredReference(file).fields
    with h5py.File(file, "a") as raw:
        del raw["t"]
    with pytest.raises(FileError, match="damaged"):
        _ = StoredReference(file).fields


def test_what_cannot_be_kept_is_refused(tmp_path):
    axis = np.linspace(0, 1, 4)
    for wrong in (axis[::-1], axis[:1], np.zeros((2, 2))):
        with pytest.raises(ProblemError, match="increasing"):
            StoredReference.write(tmp_path / "a.h5", {"t": wrong}, {"u": wrong})
    with pytest.raises(ProblemError, match=r"shape \(3,\); the grid has \(4,\)"):
        StoredReference.write(tmp_path / "a.h5", {"t": axis}, {"u": axis[:3]})
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot write"):
        StoredReference.write(tmp_path / "file" / "a.h5", {"t": axis}, {"u": axis})


def test_on_a_domain_that_is_no_box_points_outside_are_left_out(tmp_path):
    """Linear between the points, exact on walls along the grid, NaN beside what lies outside."""
    axes = {"x": np.linspace(0, 2, 9), "y": np.linspace(0, 1, 5)}
    x, y = np.meshgrid(*axes.values(), indexing="ij")
    outside = (x < 1) & (y > 0.5)
    StoredReference.write(tmp_path / "step.h5", axes, {"u": np.where(outside, np.nan, 2 * x + y - x * y)})
    found = StoredReference(tmp_path / "step.h5")
    at = found.grid()
    assert at["x"].shape == (int((~outside).sum()),)
    assert np.allclose(found(**at)["u"], 2 * at["x"] + at["y"] - at["x"] * at["y"], rtol=1e-14)
    assert float(found(x=0.3, y=0.5)["u"]) == pytest.approx(0.6 + 0.5 - 0.15)
    assert float(found(x=1.0, y=0.9)["u"]) == pytest.approx(2.0)
    assert found(x=[0.3, 1.9], y=0.8)["u"].isnan().tolist() == [True, False]
    place = torch.tensor([1.3], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(found(x=place, y=0.4)["u"].sum(), place)
    assert float(slope) == pytest.approx(1.6)

"""Reading HDF5: columns, grids, the layouts of PDEBench and The Well, units and groups."""

import h5py
import numpy as np
import pytest

import sciml
from sciml.errors import DataError

T, X, Y = np.linspace(0, 1, 4), np.linspace(-1, 1, 5), np.linspace(0, 2, 3)
RNG = np.random.default_rng(0)


@pytest.fixture
def file(tmp_path):
    """Write datasets (and attributes of the root) and return the path."""

    def make(datasets, attributes=(), name="data.h5"):
        with h5py.File(tmp_path / name, "w") as content:
            for key, value in datasets.items():
                content[key] = value
            for key, value in dict(attributes).items():
                content.attrs[key] = value
        return tmp_path / name

    return make


def grids(*axes):
    return [each.reshape(-1) for each in np.meshgrid(*axes, indexing="ij")]


def test_columns_by_default_and_by_name(file):
    path = file({"t": T, "probe/u": 2 * T, "note": "made by hand", "scalar": 3.0})
    table = sciml.read_hdf5(path)
    assert set(table.columns) == {"t", "u"}
    table = sciml.read_hdf5(path, columns={"time": "t", "v": "probe/u"}, rows=(1, 3))
    assert table.columns == ("time", "v")
    assert table["v"].tolist() == (2 * T[1:3]).tolist()
    assert table.provenance.rows == 2
    assert set(table.provenance.versions) == {"sciml", "numpy", "h5py"}


def test_a_product_of_axes(file):
    u = RNG.normal(size=(4, 5))
    path = file({"t": T, "x": X, "u": u, "k": X**2})
    table = sciml.read_hdf5(path, axes={"u": ("t", "x"), "k": ("x",)})
    t, x = grids(T, X)
    assert table.columns[:2] == ("t", "x")
    assert np.array_equal(table["t"], t)
    assert np.array_equal(table["x"], x)
    assert np.array_equal(table["u"], u.reshape(-1))
    assert np.array_equal(table["k"], x**2)
    turned = sciml.read_hdf5(file({"t": T, "x": X, "u": u.T.copy()}), axes={"u": ["x", "t"]})
    assert turned.columns == ("x", "t", "u")
    assert np.array_equal(turned["u"].reshape(5, 4).T, u)


def test_fields_may_store_their_axes_in_another_order(file):
    u, v = RNG.normal(size=(4, 5)), RNG.normal(size=(5, 4))
    table = sciml.read_hdf5(file({"t": T, "x": X, "u": u, "v": v}), axes={"u": ("t", "x"), "v": ("x", "t")})
    assert np.array_equal(table["v"], v.T.reshape(-1))


@pytest.mark.parametrize("rows", [(0, 20), (3, 4), (4, 17), (13, 20)])
def test_rows_of_a_product(file, rows):
    u = RNG.normal(size=(4, 5))
    table = sciml.read_hdf5(file({"t": T, "x": X, "u": u}), axes={"u": ("t", "x")}, rows=rows)
    assert np.array_equal(table["u"], u.reshape(-1)[slice(*rows)])
    assert np.array_equal(table["x"], grids(T, X)[1][slice(*rows)])


def test_names_of_axes_are_those_of_the_problem(file):
    path = file({"grid/time": T, "grid/pos": X, "run/u": RNG.normal(size=(4, 5))})
    table = sciml.read_hdf5(path, columns={"t": "grid/time", "x": "grid/pos", "u": "run/u"}, axes={"u": ("t", "x")})
    assert table.columns == ("t", "x", "u")


def test_dimension_scales(tmp_path):
    u = RNG.normal(size=(4, 5))
    with h5py.File(tmp_path / "scales.h5", "w") as content:
        content["t"], content["x"], content["u"] = T, X, u
        for axis, name in enumerate(("t", "x")):
            content[name].make_scale(name)
            content["u"].dims[axis].attach_scale(content[name])
    table = sciml.read_hdf5(tmp_path / "scales.h5")
    assert table.columns == ("t", "x", "u")
    assert np.array_equal(table["u"], u.reshape(-1))


def test_components_and_complex_numbers(file):
    velocity, wave = RNG.normal(size=(4, 5, 2)), RNG.normal(size=(4, 5)) + 1j
    path = file({"t": T, "x": X, "V": velocity, "h": wave})
    along = {"V": ("t", "x"), "h": ("t", "x")}
    table = sciml.read_hdf5(path, axes=along, split={"V": ("a", "b"), "h": ("u", "v")})
    assert table.columns == ("t", "x", "a", "b", "u", "v")
    assert np.array_equal(table["b"], velocity[..., 1].reshape(-1))
    assert np.array_equal(table["u"], wave.real.reshape(-1))
    assert np.array_equal(table["v"], wave.imag.reshape(-1))
    with pytest.raises(DataError, match=r"2 components .* split gives 3"):
        sciml.read_hdf5(path, columns=["t", "x", "V"], axes={"V": ("t", "x")}, split={"V": ("a", "b", "c")})


def test_what_does_not_fit_says_how_to_say_it(file):
    path = file({"t": T, "x": X, "u": RNG.normal(size=(4, 5)), "k": X})
    for options, words in (
        ({"columns": ["u"]}, r"axes=\{'u': \('t', 'x'\)\}"),
        ({"axes": {"u": ("x", "t")}, "columns": ["u"]}, "name the axes in the order of the dataset"),
        ({"axes": {"u": ("t", "z")}, "columns": ["u"]}, "'z', an axis of 'u', is neither a column nor a dataset"),
        ({"axes": {"u": ("t", "x")}}, "along which coordinates does 'k'"),
        ({"axes": {"w": ("t", "x")}, "columns": ["t"]}, "axes names 'w'"),
        ({"columns": ["t", "x"]}, "different lengths"),
        ({"columns": ["t"], "rows": (2, 9)}, "rows must be"),
        ({"columns": ["t"], "sample": 1}, "none of the layouts"),
        ({"columns": ["t"], "units": {"t": "s"}}, "does not say in which unit 't' is"),
        ({"columns": {"t": "x", "s": 3}}, "columns must be"),
    ):
        with pytest.raises(DataError, match=words):
            sciml.read_hdf5(path, **options)


def test_groups_by_texts_and_by_numbers(file):
    path = file({"t": T, "run": ["a", "b", "b", "a"], "number": [1, 1, 2, 2]})
    table = sciml.read_hdf5(path, columns=["t"], group="run")
    assert table.groups == ("a", "b")
    assert table.group("b")["t"].tolist() == T[1:3].tolist()
    assert table.group("b").provenance is table.provenance
    assert sciml.read_hdf5(path, columns=["t"], group="number").groups == ("1", "2")


def test_units_of_the_file_and_given(file):
    path = file({"t": T, "x": X[:4]})
    with h5py.File(path, "a") as content:
        content["x"].attrs["units"] = "cm"
    table = sciml.read_hdf5(path, units={"x": "m", "t": ("min", "s")})
    assert np.allclose(table["x"], X[:4] / 100, rtol=1e-15)
    assert np.array_equal(table["t"], 60 * T)
    assert dict(table.units) == {"x": "m", "t": "s"}
    assert dict(sciml.read_hdf5(path).units) == {"x": "cm"}


def test_pdebench_one_dataset(file):
    tensor = RNG.normal(size=(3, 4, 5)).astype("f4")
    # The generator writes one time more than steps.
    path = file({"tensor": tensor, "t-coordinate": np.append(T, 2.0), "x-coordinate": X}, {"Nu": 0.01})
    with pytest.raises(DataError, match=r"holds 3 samples; choose with sample=0"):
        sciml.read_hdf5(path)
    table = sciml.read_hdf5(path, columns={"u": "tensor"}, sample=1)
    assert table.columns == ("t", "x", "u")
    assert np.array_equal(table["u"], tensor[1].astype(float).reshape(-1))
    assert np.array_equal(table["t"], grids(T, X)[0])
    several = sciml.read_hdf5(path, sample=[2, 0])
    assert several.groups == ("2", "0")
    assert np.array_equal(several.group("2")["tensor"], tensor[2].reshape(-1))
    with pytest.raises(DataError, match="no sample 3; there are 3"):
        sciml.read_hdf5(path, sample=3)
    with pytest.raises(DataError, match=r"sample must be the number or name of a sample.*0\.0"):
        sciml.read_hdf5(path, sample=0.0)
    assert np.array_equal(sciml.read_hdf5(path, sample=np.int64(1))["tensor"], tensor[1].reshape(-1))
    with pytest.raises(DataError, match="as many, or one more"):
        sciml.read_hdf5(file({"tensor": tensor, "t-coordinate": T[:2], "x-coordinate": X}), sample=0)


def test_pdebench_a_dataset_for_each_field(file):
    fields = {name: RNG.normal(size=(2, 4, 5, 3)).astype("f4") for name in ("Vx", "Vy", "density", "pressure")}
    path = file({**fields, "t-coordinate": np.append(T, 2.0), "x-coordinate": X, "y-coordinate": Y})
    table = sciml.read_hdf5(path, columns={"rho": "density", "u": "Vx"}, sample=1)
    assert table.columns == ("t", "x", "y", "rho", "u")
    assert np.array_equal(table["rho"], fields["density"][1].reshape(-1))
    assert np.array_equal(table["y"], grids(T, X, Y)[2])


def test_pdebench_darcy(file):
    tensor, nu = RNG.normal(size=(2, 1, 5, 3)), RNG.normal(size=(2, 5, 3))
    table = sciml.read_hdf5(file({"tensor": tensor, "nu": nu, "x-coordinate": X, "y-coordinate": Y}), sample=1)
    assert set(table.columns) == {"x", "y", "tensor", "nu"}
    assert np.array_equal(table["tensor"], tensor[1, 0].reshape(-1))
    assert np.array_equal(table["nu"], nu[1].reshape(-1))


def test_pdebench_a_group_for_each_sample(file):
    data = RNG.normal(size=(2, 4, 5, 3, 2)).astype("f4")
    content = {}
    for number in range(2):
        content[f"000{number}/data"] = data[number]
        content |= {f"000{number}/grid/{name}": axis for name, axis in (("t", T), ("x", X), ("y", Y))}
    path = file(content)
    table = sciml.read_hdf5(path, split={"data": ("u", "v")}, sample="0001")
    assert table.columns == ("t", "x", "y", "u", "v")
    assert np.array_equal(table["v"], data[1, ..., 1].reshape(-1))
    assert sciml.read_hdf5(path, sample=0).columns[3:] == ("data_0", "data_1")
    both = sciml.read_hdf5(path, sample=range(2))
    assert both.groups == ("0000", "0001")
    assert len(both) == 2 * 4 * 5 * 3


def test_the_well(tmp_path):
    density, velocity = RNG.normal(size=(2, 4, 5, 3)).astype("f4"), RNG.normal(size=(2, 4, 5, 3, 2)).astype("f4")
    stress, depth = RNG.normal(size=(2, 4, 5, 3, 2, 2)), RNG.normal(size=(5, 3))
    path = tmp_path / "well.hdf5"
    with h5py.File(path, "w") as content:
        content.attrs.update({"dataset_name": "made up", "n_trajectories": 2, "n_spatial_dims": 2})
        content["dimensions/time"], content["dimensions/x"], content["dimensions/y"] = T, X, Y
        content["dimensions"].attrs["spatial_dims"] = ["x", "y"]
        for at, values, varies in (
            ("t0_fields/density", density, (True, True)),
            ("t0_fields/depth", depth, (False, False)),
            ("t1_fields/velocity", velocity, (True, True)),
            ("t2_fields/stress", stress, (True, True)),
            ("scalars/viscosity", np.array([0.1, 0.2]), (True, False)),
        ):
            content[at] = values
            content[at].attrs.update({"sample_varying": varies[0], "time_varying": varies[1], "dim_varying": [True, True]})
    table = sciml.read_hdf5(path, sample=1)
    assert set(table.columns) == {
        *("t", "x", "y", "density", "depth", "velocity_x", "velocity_y"),
        *("stress_xx", "stress_xy", "stress_yx", "stress_yy"),
    }
    assert np.array_equal(table["density"], density[1].reshape(-1))
    assert np.array_equal(table["velocity_y"], velocity[1, ..., 1].reshape(-1))
    assert np.array_equal(table["stress_yx"], stress[1, ..., 1, 0].reshape(-1))
    assert np.array_equal(table["depth"], np.broadcast_to(depth, (4, 5, 3)).reshape(-1))
    some = sciml.read_hdf5(path, columns={"u": "velocity", "nu": "viscosity"}, split={"velocity": ("u", "v")}, sample=[0, 1])
    assert some.columns == ("t", "x", "y", "u", "v", "nu")
    assert set(some.group("1")["nu"]) == {0.2}
    with pytest.raises(DataError, match=r"no 'densty'\. Did you mean 'density'"):
        sciml.read_hdf5(path, columns={"u": "densty"}, sample=0)


def test_a_grid_reads_boxes_that_add_up(file):
    u = RNG.normal(size=(4, 5, 3))
    path = file({"t": T, "x": X, "y": Y, "u": u})
    table = sciml.read_hdf5(path, axes={"u": ("t", "x", "y")}, lazy=True)
    (grid,) = table._grids
    part = grid.read(table._handles(), {"t": (1, 3), "y": (0, 2)})
    table.close()
    assert len(table) == 60
    assert np.array_equal(part["u"], u[1:3, :, :2].reshape(-1))
    assert np.array_equal(part["y"], np.tile(Y[:2], 10))

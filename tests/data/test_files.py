"""MATLAB, NetCDF and Parquet files, and the verb that tells formats apart."""

import gzip
import sys

import h5py
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
import xarray

import sciml
from problems import Line
from sciml.errors import DataError, MissingExtraError

T, X = np.linspace(0, 1, 4), np.linspace(-1, 1, 5)
U = np.random.default_rng(0).normal(size=(4, 5))


def refused(read, path, words, **options):
    with pytest.raises(DataError, match=words):
        read(path, **options)


@pytest.mark.parametrize("version", ["4", "5", "7.3"])
def test_matrices_of_every_version(tmp_path, version):
    path, content = tmp_path / "run.mat", {"t": T, "x": X, "u": U}
    if version == "7.3":
        # MATLAB writes its own first block, vectors as rows, and axes in the opposite order.
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, values in content.items():
                file[name] = np.atleast_2d(values).T
                file[name].attrs["MATLAB_class"] = np.bytes_("double")
            file["note"] = np.frombuffer(b"abc", dtype=np.uint8).astype("u2")
            file["note"].attrs["MATLAB_class"] = np.bytes_("char")
            file["on"] = np.ones((1, 4), dtype=np.uint8)
            file["on"].attrs["MATLAB_class"] = np.bytes_("logical")
            file["h"] = np.zeros(4, [("real", "f8"), ("imag", "f8")])
        with path.open("r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    else:
        scipy.io.savemat(path, content | {"note": "abc", "h": 1j * T}, format=version)
    table = sciml.read(path, columns=["t", "x", "u"], axes={"u": ("t", "x")})
    assert table.columns == ("t", "x", "u")
    assert np.array_equal(table["u"], U.reshape(-1))
    assert np.array_equal(table["x"], np.tile(X, 4))
    assert len(sciml.read_mat(path, columns=["t", "h"], split={"h": ("a", "b")})) == 4
    refused(sciml.read_mat, path, "'h' is complex; pass split", columns=["t", "h"])
    refused(sciml.read_mat, path, "'note' (holds|is)", columns=["note"])
    refused(sciml.read_mat, path, "has no column 'uu'; it has .*Did you mean 'u'", columns=["uu"])
    refused(sciml.read_mat, path, "which coordinates run along its axes", columns=["u"])
    refused(sciml.read_mat, path, "of another column", columns=["t", "x"])
    path.write_bytes(path.read_bytes()[:700] if version == "7.3" else path.read_bytes()[:30])
    refused(sciml.read_mat, path, "damaged")


@pytest.fixture(params=["NETCDF3_64BIT", "NETCDF4"])
def netcdf(request, tmp_path):
    data = xarray.Dataset(
        {"u": (("t", "x"), np.round(U, 2), {"units": "degC"}), "mask": ((), 1.0)},
        coords={"t": ("t", T * 10, {"units": "days since 2000-01-01"}), "x": ("x", X, {"units": "cm"})},
    )
    data["u"][1, 2] = np.nan
    data["u"].encoding = {"scale_factor": 0.01, "add_offset": 1.0, "dtype": "i2", "_FillValue": -999}
    data.to_netcdf(tmp_path / "run.nc", engine="h5netcdf" if request.param == "NETCDF4" else "scipy")
    return tmp_path / "run.nc"


def test_netcdf_with_fill_values_scales_and_units(netcdf):
    refused(sciml.read, netcdf, r"1 value\(s\) that are not finite")
    table = sciml.read(netcdf, missing="mask", units={"u": "K", "x": "m", "t": "h"})
    assert table.columns == ("t", "x", "u")
    assert np.isnan(table["u"][7])
    assert np.allclose(np.delete(table["u"], 7), np.delete(np.round(U, 2).reshape(-1), 7) + 273.15, rtol=0, atol=1e-10)
    assert np.allclose(table["t"], np.repeat(T * 240, 5), rtol=1e-14)
    assert np.allclose(table["x"], np.tile(X / 100, 4), rtol=1e-14)
    assert dict(table.units) == {"u": "K", "x": "m", "t": "h since 2000-01-01"}
    renamed = sciml.read_netcdf(netcdf, columns={"T": "u", "time": "t"}, missing="mask")
    assert renamed.columns == ("time", "x", "T")
    refused(sciml.read_netcdf, netcdf, "has no column 'v'", columns=["v"])
    netcdf.write_bytes(netcdf.read_bytes()[:300])
    refused(sciml.read_netcdf, netcdf, "damaged")


def test_netcdf_components(tmp_path):
    data = xarray.Dataset({"V": (("t", "way"), U[:, :2])}, coords={"t": T})
    data.to_netcdf(tmp_path / "run.nc", engine="scipy")
    table = sciml.read_netcdf(tmp_path / "run.nc", split={"V": ("u", "v")})
    assert table.columns == ("t", "u", "v")
    assert np.array_equal(table["v"], U[:, 1])


def test_parquet_takes_only_what_is_asked_for(tmp_path):
    path = tmp_path / "run.parquet"
    frame = pd.DataFrame({"t": T, "n": [1, 2, 3, 4], "run": ["a", "b", "b", "a"], "on": [True, False, True, True]})
    frame["day"], frame["gap"] = pd.date_range("2020-01-01", periods=4), [1.0, None, 3.0, 4.0]
    frame["big"] = [2**53 + 1, 0, 0, 0]
    frame.to_parquet(path)
    table = sciml.read(path, columns=["t", "n"], group="run")
    assert table.groups == ("a", "b")
    assert table.group("b")["n"].tolist() == [2, 3]
    refused(sciml.read, path, "column 'on' holds bool, .*casts=", columns=["on"])
    refused(sciml.read, path, "column 'day' holds timestamp", columns=["day"])
    refused(sciml.read, path, "beyond 2.53", columns=["big"])
    refused(sciml.read, path, r"1 value\(s\) that are not finite, the first in row 1", columns=["gap"])
    refused(sciml.read, path, "memory", columns=["t"], memory=50)
    assert np.isnan(sciml.read(path, columns=["gap"], missing="mask")["gap"]).tolist() == [False, True, False, False]
    cast = sciml.read(path, columns=["on", "day"], casts={"on": "bool", "day": "days since 2019-12-31"})
    assert cast["on"].tolist() == [1, 0, 1, 1]
    assert cast["day"].tolist() == [1, 2, 3, 4]
    assert cast.units["day"] == "days since 2019-12-31"
    pyarrow.parquet.write_table(pyarrow.table({"t": pyarrow.array([[1.0], [2.0]])}), path)
    refused(sciml.read_parquet, path, "list", columns=["t"])
    path.write_bytes(path.read_bytes()[:-20] + b"PAR1")
    refused(sciml.read_parquet, path, "damaged")


def test_content_decides_and_names_are_compared(write, tmp_path):
    table = sciml.Table({"t": T, "u": T**2})
    for name in ("run.h5", "run.parquet", "run.nc", "run.mat", "run.csv"):
        table.save(tmp_path / name)
        (tmp_path / name).rename(tmp_path / "nameless")
        if name != "run.nc":
            assert np.array_equal(sciml.read(tmp_path / "nameless")["u"], T**2)
    refused(sciml.read, write((tmp_path / "nameless").read_bytes(), "run.h5"), "is CSV by its content and HDF5 by its name")
    refused(sciml.read, write(b"\x00\x01", "run.csv"), "in no format .*though its name says CSV")
    refused(sciml.read, write(b"PK\x03\x04", "run.csv"), "zip archive")
    refused(sciml.read, write(b"", "run.csv"), r"empty \(0 bytes\)")
    refused(sciml.read, tmp_path / "nowhere.csv", "cannot read")
    refused(sciml.read, write("t,u\n0,1\n"), "read_csv has no option 'axes'", axes={})
    packed = write(gzip.compress(b"t,u\n0,1\n"), "run.csv.gz")
    assert sciml.read(packed)["u"].tolist() == [1.0]
    refused(sciml.read, 3, "needs the path of a file")


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [("pyarrow", "run.parquet", "files"), ("xarray", "run.nc", "files"), ("pint", "run.h5", "units")],
)
def test_a_missing_extra_names_the_command(tmp_path, monkeypatch, package, name, extra):
    sciml.Table({"t": T}, units={"t": "s"}).save(tmp_path / name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'sciml\[{extra}\]'"):
        sciml.read(tmp_path / name, units={"t": "min"})


def test_provenance_follows_the_rows(write):
    path = write("t,u,run\n0,1,a\n1,2,b\n2,3,b\n")
    table = sciml.read(path, group="run")
    origin = table.group("b").provenance
    assert origin is table.split(validation=0, test=0.3).test.provenance
    assert (origin.reader, origin.rows, origin.path) == ("read_csv", 3, path)
    assert origin.options["group"] == "run"
    assert origin.as_dict()["sha256"] == origin.sha256
    assert len(origin.sha256) == 64
    again = sciml.read(path, group="run").provenance
    path.write_text("t,u,run\n0,1,a\n")
    refused(lambda _: again.sha256, path, "has changed since it was read")
    assert again.as_dict()["sha256"] is None


def test_the_summary_of_a_fit_names_the_file(write, tmp_path):
    from sciml.runs.report import summary

    path = write("t,u\n0,1\n1,2\n2,3\n3,4\n")
    told = summary(sciml.fit(Line(), data=sciml.read(path), progress=False))["data"]
    assert told["path"] == str(path)
    assert told["rows"] == 4
    assert told["sha256"] == sciml.read(path).provenance.sha256


def test_moments_of_zero_in_netcdf_and_their_calendars(tmp_path):
    path = tmp_path / "run.nc"
    for calendar in ("standard", "noleap"):
        content = {"u": ("time", [1.0, 2.0])}
        along = {"time": ("time", [0.0, 1.0], {"units": "days since 2020-01-01", "calendar": calendar})}
        xarray.Dataset(content, along).to_netcdf(path)
        told = {"time": "hours since 2020-01-02"}
        if calendar == "standard":
            assert sciml.read_netcdf(path, units=told)["time"].tolist() == [-24.0, 0.0]
        else:
            refused(sciml.read_netcdf, path, "counts in the calendar 'noleap'", units=told)
            assert sciml.read_netcdf(path, units={"time": "h"})["time"].tolist() == [0.0, 24.0]


def test_parquet_with_units_of_old_programs_and_with_doubled_columns(tmp_path):
    field = pyarrow.field("t", pyarrow.float64(), metadata={b"units": b"\xb5s"})
    path = tmp_path / "run.parquet"
    pyarrow.parquet.write_table(pyarrow.table([[0.0, 1.0]], schema=pyarrow.schema([field])), path)
    assert dict(sciml.read_parquet(path).units) == {"t": "µs"}
    pyarrow.parquet.write_table(pyarrow.table([[0.0], [1.0], [2.0]], names=["t", "t", "u"]), path)
    refused(sciml.read_parquet, path, "the column 't' occurs more than once")
    assert sciml.read_parquet(path, columns=["u"])["u"].tolist() == [2.0]


@pytest.mark.parametrize("version", ["4", "5"])
def test_a_matrix_with_a_single_time(tmp_path, version):
    path = tmp_path / "run.mat"
    scipy.io.savemat(path, {"t": 2.0, "x": X[:3], "u": U[:1, :3], "w": U[:3, :1]}, format=version)
    axes = {"u": ("t", "x")}
    table = sciml.read_mat(path, columns=["t", "x", "u"], axes=axes)
    assert table["t"].tolist() == [2.0] * 3
    assert table["u"].tolist() == U[0, :3].tolist()
    # MATLAB drops axes of length one at the end.
    table = sciml.read_mat(path, columns={"x": "x", "t": "t", "z": "t", "w": "w"}, axes={"w": ("x", "t", "z")})
    assert table["w"].tolist() == U[:3, 0].tolist()
    assert len(sciml.read_mat(path, columns=["x", "w"])) == 3


READERS = {
    "csv": [
        ({"casts": "bool"}, "casts maps names"),
        ({"columns": {"t": 1}}, "columns must be"),
        ({"group": 1}, "has no column 1"),
    ],
    "h5": [
        ({"axes": ("t", "u")}, "axes maps names"),
        ({"axes": {"u": (0, 1)}}, "axes: 'u' needs names"),
        ({"axes": {"u": 5}}, "axes: 'u' needs names"),
        ({"split": ("u", "v")}, "split maps names"),
        ({"split": {"u": 5}}, "split: 'u' needs names"),
        ({"units": "m"}, "units maps names"),
        ({"group": 1}, "group must be the name"),
        ({"rows": 5}, "rows must be"),
        ({"rows": (0, 2.5)}, "rows must be"),
        ({"rows": (0, 2, 1)}, "rows must be"),
        ({"rows": slice("a", 2)}, "rows must be"),
        ({"links": 5}, "links must be the path"),
    ],
    "mat": [
        ({"axes": ("t", "x")}, "axes maps names"),
        ({"split": ("u",)}, "split maps names"),
        ({"columns": 5}, "columns must be"),
        ({"columns": {"t": [1]}}, "columns must be"),
    ],
    "nc": [({"split": ("u",)}, "split maps names"), ({"units": ["m"]}, "units maps names")],
    "parquet": [({"casts": "bool"}, "casts maps names"), ({"group": 1}, "has no column 1 to group by")],
}


@pytest.mark.parametrize(
    ("suffix", "options", "words"), [(suffix, *each) for suffix, several in READERS.items() for each in several]
)
def test_options_that_are_not_what_they_should_be(tmp_path, suffix, options, words):
    path = tmp_path / f"run.{suffix}"
    sciml.Table({"t": [0.0, 1.0, 2.0], "u": [1.0, 2.0, 3.0]}).save(path)
    refused(sciml.read, path, words, **options)


def test_a_saved_solution_knows_where_its_data_came_from(write, tmp_path):
    path = write("t,u,run\n0,1,a\n1,2,a\n2,3,b\n3,4,b\n")
    data = sciml.read_csv(path, group="run", units={"t": ("s", "s")}, columns={"t": "t", "u": "u"})
    solution = sciml.fit(Line(), data=data, progress=False)
    again = sciml.load(solution.save(tmp_path / "line.pt"), Line()).data
    assert again.grouped_by == "run"
    assert again.labels.tolist() == solution.data.labels.tolist()
    assert dict(again.units) == {"t": "s"}
    assert again["u"].tolist() == solution.data["u"].tolist()
    assert again.provenance == data.provenance
    assert again.provenance.as_dict() == data.provenance.as_dict()

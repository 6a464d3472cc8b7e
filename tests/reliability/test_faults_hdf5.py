"""HDF5: faults 30 to 42 of the table of faults, each under its number."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import sciml
from sciml.errors import DataError

U = np.linspace(0, 1, 5)


@pytest.fixture
def make(tmp_path):
    """Write a file by a function of the open file and return the path."""

    def make(fill, name="data.h5", **options):
        with h5py.File(tmp_path / name, "w", **options) as content:
            fill(content)
        return tmp_path / name

    return make


def put(**datasets):
    return lambda content: [content.create_dataset(name, data=values) for name, values in datasets.items()]


def refused(path, words, **options):
    with pytest.raises(DataError, match=words) as caught:
        sciml.read_hdf5(path, **options)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_fault_30_truncated_empty_other(make, write, tmp_path):
    """Truncated, empty, missing and other files are refused with path and size."""
    path = make(put(u=np.arange(1000.0)))
    refused(write(path.read_bytes()[:3000], "cut.h5"), "damaged or incomplete .3000 bytes.*cut short")
    refused(write(b"", "empty.h5"), "is empty .0 bytes.")
    refused(write("t,u\n0,1\n", "table.h5"), "is not an HDF5 file")
    refused(tmp_path / "nowhere.h5", "cannot read")
    refused(tmp_path, "is a folder")


def test_fault_31_writer_killed(tmp_path):
    """A file whose writer died is refused."""
    path = tmp_path / "killed.h5"
    code = (
        "import h5py, os, sys\n"
        "file = h5py.File(sys.argv[1], 'w', libver='latest')\n"
        "file.create_dataset('u', data=range(100000), chunks=(100,))\n"
        "file.flush(); file.create_dataset('v', data=range(100000), chunks=(100,)); os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False)
    refused(path, "died|damaged|never written|were written|has no")


def test_fault_31_our_files_are_whole_or_not_there(tmp_path, monkeypatch):
    """A failed write leaves the old file and nothing else."""
    path = tmp_path / "ours.h5"
    sciml.Table({"u": U}).save(path)

    def crash(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(sciml.errors.FileError, match=r"No space left.*unchanged"):
        sciml.Table({"u": 2 * U}).save(path)
    monkeypatch.undo()
    assert np.array_equal(sciml.read_hdf5(path)["u"], U)
    assert [each.name for each in tmp_path.iterdir()] == ["ours.h5"]


def test_fault_32_missing_dataset(make):
    """A missing dataset is refused with near names and the tree."""
    path = make(put(**{"probe/pressure": U, "t": U}))
    message = refused(path, "no dataset 'pressure'. Did you mean 'probe/pressure'", columns=["pressure"])
    assert "probe/pressure: float64 (5,)" in message
    refused(path, "no dataset 'probe/presure'. Did you mean 'probe/pressure'", columns=["probe/presure"])


def test_fault_33_group_where_a_dataset_was_meant(make):
    """A group is refused with the datasets in it."""
    refused(make(put(**{"probe/u": U})), "'probe' is a group, not a dataset; .*'probe/u'", columns=["probe"])


def test_fault_34_big_endian(make):
    """Big-endian numbers of every width are converted exactly."""
    path = make(put(u=U.astype(">f8"), n=np.arange(5, dtype=">i4"), half=U.astype(">f2")))
    table = sciml.read_hdf5(path)
    assert np.array_equal(table["u"], U)
    assert np.array_equal(table["n"], np.arange(5))
    assert table["u"].dtype == np.dtype("=f8")


def test_fault_35_what_is_no_column_of_numbers(make):
    """Empty, ragged, compound and text datasets are refused with their type when asked for."""

    def fill(content):
        content["u"] = U
        content["empty"] = h5py.Empty("f8")
        content.create_dataset("none", (0,), "f8")
        content.create_dataset("ragged", (2,), h5py.vlen_dtype(np.float64))
        content["text"] = ["a", "b"]
        content["pair"] = np.zeros(2, [("a", "f8"), ("b", "i4")])
        content["flag"] = [True, False]
        content.create_dataset("kind", (2,), h5py.enum_dtype({"solid": 0, "fluid": 1}))

    path = make(fill)
    for name, words in (
        ("empty", "has a type and no values"),
        ("none", r"its shape is \(0,\)"),
        ("ragged", "ragged .*object"),
        ("text", "holds texts .*group="),
        ("pair", "compound .*'a', 'b'"),
        ("flag", "truth values .*bool"),
        ("kind", "truth values or names"),
    ):
        refused(path, words, columns=[name])
    assert sciml.read_hdf5(path).columns == ("u",)


def test_fault_36_complex_numbers(make):
    """Complex numbers are refused, or split exactly into two columns."""
    path = make(put(h=U + 2j * U))
    refused(path, r"'h' .*is complex; pass split=\{'h': \('u', 'v'\)\}")
    table = sciml.read_hdf5(path, split={"h": ("u", "v")})
    assert np.array_equal(table["u"], U)
    assert np.array_equal(table["v"], 2 * U)


def outside(content):
    content["linked"] = h5py.ExternalLink("other.h5", "/w")
    content.create_dataset("raw", (5,), "f8", external=[("numbers.bin", 0, 40)])
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:5], layout[5:] = h5py.VirtualSource("other.h5", "w", (5,)), h5py.VirtualSource("other.h5", "w", (5,))[:]
    content.create_virtual_dataset("virtual", layout)


@pytest.mark.parametrize("name", ["linked", "raw", "virtual"])
def test_fault_37_other_files_are_read_only_below_a_folder(make, tmp_path, name):
    """Other files are refused, and read only below the folder that is allowed."""
    make(put(w=U), "other.h5")
    (tmp_path / "numbers.bin").write_bytes(U.tobytes())
    path = make(outside)
    refused(path, "in another file, .*not followed; .*links=", columns=[name])
    (tmp_path / "elsewhere").mkdir()
    refused(path, "not below links=", columns=[name], links=tmp_path / "elsewhere")
    table = sciml.read_hdf5(path, columns=[name], links=tmp_path)
    assert np.array_equal(table[name][:5], U)


def test_fault_37_a_symbolic_link_out_of_the_folder(make, tmp_path):
    """A symbolic link does not lead out of the folder that is allowed."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "open").mkdir()
    make(put(w=U), "secret/other.h5")
    (tmp_path / "open/other.h5").symlink_to(tmp_path / "secret/other.h5")
    path = make(outside, "open/data.h5")
    refused(path, "not below links=", columns=["linked"], links=tmp_path / "open")


@pytest.mark.parametrize("name", ["linked", "raw", "virtual"])
def test_fault_38_sources_that_are_not_there(make, tmp_path, name):
    """A missing source is refused and not filled in."""
    refused(make(outside), "there is no such file", columns=[name], links=tmp_path)


def test_fault_38_virtual_datasets_with_holes_or_changed_sources(make, tmp_path):
    """Values that no source covers, and sources of another shape, are refused."""

    def fill(content):
        layout = h5py.VirtualLayout(
            (8,),
            "f8",
        )
        layout[:5] = h5py.VirtualSource("other.h5", "w", (5,))
        content.create_virtual_dataset("holes", layout)
        layout = h5py.VirtualLayout((9,), "f8")
        layout[:] = h5py.VirtualSource("other.h5", "w", (9,))
        content.create_virtual_dataset("changed", layout)

    make(put(w=U), "other.h5")
    path = make(fill)
    refused(path, "no source covers 3 of its values", columns=["holes"], links=tmp_path)
    refused(path, r"has shape \(5,\) by now", columns=["changed"], links=tmp_path)


def test_fault_39_link_loops(make, tmp_path):
    """Links in a circle are refused, and a group in itself is walked once."""

    def fill(content):
        content["a"], content["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        content["far"] = h5py.ExternalLink("loop.h5", "/far")
        content["u"] = U
        content.create_group("inner")["back"] = content["/"]

    path = make(fill, "loop.h5")
    refused(path, "lead in a circle", columns=["a"])
    refused(path, "lead in a circle", columns=["far"], links=tmp_path)
    # A group that contains itself is walked once.
    assert sciml.read_hdf5(path).columns == ("u",)


def test_fault_40_declared_shapes(make):
    """Shapes that were declared and never written are refused before memory is taken."""

    def fill(content):
        content.create_dataset("bomb", (10**6, 10**6), "f8", chunks=(10**3, 10**3))
        content.create_dataset("never", (100,), "f8")
        content.create_dataset("partly", (100,), "f8", chunks=(10,))[:50] = 1.0

    path = make(fill)
    assert path.stat().st_size < 10_000
    refused(path, "7.276 TiB, and only 0 of its 1000000 chunks", columns=["bomb"], split={"bomb": "uv"})
    refused(path, "never written", columns=["never"])
    refused(path, "only 5 of its 10 chunks", columns=["partly"])


def test_fault_40_and_29_more_than_memory(make):
    """More than memory is refused, and a part of it is read."""
    path = make(put(u=np.zeros(10_000)))
    refused(path, "needs about 156.2 KiB of memory, and 97.66 KiB may be taken; .*rows=", memory=100_000)
    assert len(sciml.read_hdf5(path, memory=100_000, rows=(0, 5000))) == 5000


def test_fault_41_flipped_bits(tmp_path):
    """A flipped bit in a file of ours is noticed by its checksum."""
    path = tmp_path / "ours.h5"
    sciml.Table({"u": U, "t": np.arange(5.0)}).save(path)
    raw = bytearray(path.read_bytes())
    at = raw.find(U.tobytes())
    raw[at + 12] ^= 1
    path.write_bytes(raw)
    refused(path, "'/u' cannot be read: .*checksum")
    reference = tmp_path / "reference.h5"
    sciml.StoredReference.write(reference, {"t": np.linspace(0, 1, 9)}, {"u": np.ones(9)})
    with h5py.File(reference) as file:
        assert all(file[name].fletcher32 for name in ("t", "u"))


def test_fault_42_in_use(make):
    """A file that another program writes is refused as in use, and read afterwards."""
    path = make(put(u=U))
    code = "import h5py, sys\nwith h5py.File(sys.argv[1], 'a'):\n    print('open', flush=True)\n    sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"open\n"
        refused(path, "is in use: another program has it open for writing")
        writer.communicate(b"")
    assert len(sciml.read_hdf5(path)) == 5


def test_fault_37_groups_and_netcdf_files_are_looked_at_as_well(make, tmp_path):
    """Names of groups and NetCDF files cannot come from other files either."""
    make(put(w=U, names=np.array([b"a", b"b", b"c", b"d", b"e"])), "other.h5")

    def fill(content):
        content["u"] = U
        layout = h5py.VirtualLayout((5,), "S1")
        layout[:] = h5py.VirtualSource("other.h5", "names", (5,))
        content.create_virtual_dataset("run", layout)

    refused(make(fill), "'/run' is a virtual dataset .*not followed", columns=["u"], group="run")
    path = make(outside, "other.nc")
    with pytest.raises(DataError, match=r"external link .*not followed|stored in other files"):
        sciml.read_netcdf(path)


def test_fault_40_declared_shapes_of_other_formats(tmp_path):
    """MATLAB and NetCDF files are held to the same memory."""
    import scipy.io

    scipy.io.savemat(tmp_path / "bomb.mat", {"u": np.zeros(10**5)}, do_compression=True)
    assert (tmp_path / "bomb.mat").stat().st_size < 1000
    with pytest.raises(DataError, match=r"needs about 1.5.* MiB of memory"):
        sciml.read_mat(tmp_path / "bomb.mat", memory=10**5)
    sciml.Table({"u": np.zeros(10**5)}).save(tmp_path / "large.nc")
    with pytest.raises(DataError, match=r"needs about 1.5.* MiB of memory"):
        sciml.read_netcdf(tmp_path / "large.nc", memory=10**5)


@pytest.mark.parametrize(("name", "value"), [("scale_factor", 0.5), ("add_offset", 1), ("_FillValue", -999)])
def test_fault_35_packed_numbers_are_not_taken_for_numbers(make, name, value):
    """Scale factors and fill values are refused, not ignored."""

    def fill(content):
        content["t"], content["u"] = [0.0, 1.0], np.array([2, -999], dtype="i2")
        content["u"].attrs[name] = value

    path = make(fill)
    for lazy in (False, True):
        with pytest.raises(DataError, match=f"'/u' is packed .{name} = {value}.*read_netcdf"):
            sciml.read_hdf5(path, lazy=lazy)
    assert sciml.read_hdf5(path, columns=["t"])["t"].tolist() == [0.0, 1.0]


def test_attributes_that_change_nothing(make):
    def fill(content):
        content["u"] = [1.0, 2.0]
        content["u"].attrs["_FillValue"] = np.array([np.nan])
        content["u"].attrs["scale_factor"], content["u"].attrs["add_offset"] = 1.0, 0

    assert sciml.read_hdf5(make(fill))["u"].tolist() == [1.0, 2.0]


def test_texts_that_are_not_utf8(make):
    def fill(content):
        content["t"] = [0.0, 1.0]
        content["t"].attrs["units"] = b"\xb5s"
        content["city"] = np.array([b"Bern", b"Z\xfcrich"])

    path = make(fill)
    assert dict(sciml.read_hdf5(path, columns=["t"]).units) == {"t": "µs"}
    with pytest.raises(DataError, match=r"group='city', row 1: .*is not UTF-8"):
        sciml.read_hdf5(path, group="city")

"""The contract of a reader: a small file of any format gives the same table, and what cannot be read is refused alike."""

import inspect

import numpy as np
import pytest

import sciml
from sciml.errors import DataError

READERS = {
    "run.csv": sciml.read_csv,
    "run.h5": sciml.read_hdf5,
    "run.mat": sciml.read_mat,
    "run.nc": sciml.read_netcdf,
    "run.parquet": sciml.read_parquet,
}
COLUMNS = {"t": [0.0, 0.5, 1.25], "u": [1.0, -2.5e-7, 3e300], "v": [0.1, 0.2, 0.3]}


@pytest.fixture(params=READERS)
def file(request, tmp_path):
    """A file of each format with the same table, and its reader."""
    path = tmp_path / request.param
    sciml.Table(COLUMNS).save(path)
    return path, READERS[request.param]


def same(one, other):
    assert set(one.columns) == set(other.columns)
    assert len(one) == len(other)
    for name in other.columns:
        assert one[name].dtype == np.float64
        assert np.array_equal(one[name], other[name], equal_nan=True), name


def test_every_reader_is_held_by_this_contract():
    assert {each.__name__ for each in READERS.values()} == {name for name in sciml.data.__all__ if name.startswith("read_")}
    for reader in READERS.values():
        options = inspect.signature(reader).parameters
        assert next(iter(options)) == "path"
        assert all(options[name].kind is options[name].KEYWORD_ONLY for name in [*options][1:])
        assert {"columns", "units", "missing", "memory"} <= set(options)


def test_the_same_table_from_every_format(file):
    path, reader = file
    table = reader(path)
    assert isinstance(table, sciml.Table)
    same(table, sciml.Table(COLUMNS))
    same(reader(str(path)), table)
    same(sciml.read(path), table)
    assert table.provenance.path == path
    assert table.provenance.reader == reader.__name__


def test_columns_are_chosen_and_renamed(file):
    path, reader = file
    same(reader(path, columns=["u", "t"]), sciml.Table({name: COLUMNS[name] for name in ("t", "u")}))
    same(reader(path, columns={"time": "t", "u": "v"}), sciml.Table({"time": COLUMNS["t"], "u": COLUMNS["v"]}))
    with pytest.raises(DataError, match="w"):
        reader(path, columns=["t", "w"])


def test_missing_values_are_refused_or_masked(file):
    path, reader = file
    holes = sciml.Table({**COLUMNS, "u": [1.0, np.nan, 3.0]}, missing="mask")
    holes.save(path)
    with pytest.raises(DataError, match="u"):
        reader(path)
    same(reader(path, missing="mask"), holes)
    with pytest.raises(DataError, match="missing"):
        reader(path, missing="perhaps")


def test_units_are_checked_and_converted(file):
    path, reader = file
    holds_units = path.suffix not in (".csv", ".mat")
    if holds_units:
        sciml.Table(COLUMNS, units={"t": "min"}).save(path)
        assert dict(reader(path).units) == {"t": "min"}
    else:
        with pytest.raises(DataError, match="does not say in which unit 't' is"):
            reader(path, units={"t": "s"})
    table = reader(path, units={"t": "s" if holds_units else ("min", "s")})
    assert table["t"].tolist() == [0.0, 30.0, 75.0]
    assert dict(table.units) == {"t": "s"}
    with pytest.raises(DataError, match="kg"):
        reader(path, units={"t": ("min", "kg")})


def test_files_that_are_none_are_refused_with_their_path(file, tmp_path):
    path, reader = file
    for wrong in (tmp_path / "nowhere.csv", tmp_path):
        with pytest.raises(DataError, match=wrong.name):
            reader(wrong)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=path.name):
        reader(path)
    path.write_bytes(b"\x00\xff" * 40)
    with pytest.raises(DataError, match=path.name):
        reader(path)


def test_a_table_beyond_the_memory_is_refused(file):
    path, reader = file
    with pytest.raises(DataError, match=path.name):
        reader(path, memory=8)

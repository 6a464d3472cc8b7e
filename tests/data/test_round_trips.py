"""What is written is read back to the last bit, in every format."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import sciml
from sciml.errors import DataError, FileError

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text("abcxyz_ABC123", min_size=1, max_size=8).filter(str.isidentifier).filter(lambda name: name[0] != "_")
FORMATS = ("run.csv", "run.h5", "run.hdf5", "run.parquet", "run.nc", "run.mat")


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 6))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return {name: draw(st.lists(NUMBERS, min_size=rows, max_size=rows)) for name in names}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=12, deadline=None)
@given(columns=tables())
def test_numbers_come_back_to_the_last_bit(name, columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("trip") / name
    table = sciml.Table(columns)
    table.save(path)
    again = sciml.read(path)
    assert set(again.columns) == set(table.columns)
    for column in table.columns:
        assert again[column].tobytes() == table[column].tobytes()


@pytest.mark.parametrize("name", ["run.csv", "run.h5", "run.parquet"])
@settings(max_examples=10, deadline=None)
@given(labels=st.lists(st.text("ab Ü,\"'0", min_size=1, max_size=5).filter(str.strip), min_size=1, max_size=6))
def test_groups_come_back(name, labels, tmp_path_factory):
    path = tmp_path_factory.mktemp("trip") / name
    table = sciml.Table({"t": range(len(labels)), "run": labels}, group="run")
    table.save(path)
    again = sciml.read(path, group="run")
    assert again.groups == table.groups
    assert again.labels.tolist() == table.labels.tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_missing_values_come_back(name, tmp_path):
    table = sciml.Table({"t": [0.0, 1.0], "u": [np.nan, 2.0]}, missing="mask")
    table.save(tmp_path / name)
    assert np.array_equal(sciml.read(tmp_path / name, missing="mask")["u"], table["u"], equal_nan=True)


@pytest.mark.parametrize("name", ["run.h5", "run.parquet", "run.nc"])
def test_units_come_back(name, tmp_path):
    sciml.Table({"t": [0.0, 1.0], "u": [1.0, 2.0]}, units={"t": "min"}).save(tmp_path / name)
    assert dict(sciml.read(tmp_path / name).units) == {"t": "min"}
    assert sciml.read(tmp_path / name, units={"t": "s"})["t"].tolist() == [0.0, 60.0]


def test_what_a_format_has_no_place_for(tmp_path):
    grouped = sciml.Table({"t": [0.0], "run": ["a"]}, group="run")
    for table, name, words in (
        (grouped, "run.nc", "no place for the texts of 'run'"),
        (grouped, "run.mat", "no place for the texts"),
        (grouped, "run.xlsx", "cannot tell the format of 'run.xlsx'"),
        (sciml.Table({"a/b": [1.0]}), "run.h5", "cannot have a dataset called 'a/b'"),
        (sciml.Table({"my u": [1.0]}), "run.mat", "cannot be called 'my u'"),
    ):
        with pytest.raises(DataError, match=words):
            table.save(tmp_path / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        grouped.save(tmp_path / "file" / "run.csv")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]

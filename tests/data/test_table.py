"""Tables of named columns."""

import numpy as np
import pandas as pd
import pytest

import sciml
from sciml.errors import DataError, ProblemError
from sciml.geometry.coordinates import points_from


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "at least one column"),
        ({"t": []}, "at least one column and one row"),
        ({"t": [0, 1], "u": [1]}, "different lengths"),
        ({"t": ["a"]}, "not numbers"),
        ({"t": [True]}, "not numbers"),
        ({"t": [[1.0]]}, "one dimension"),
        ({"t": [0.0, np.nan]}, "1 value.* not finite, the first in row 1 .*missing='mask'"),
        ({"t": [0.0, np.inf]}, "not finite"),
        ({"t": np.ma.array([0.0, -9999.0], mask=[False, True])}, "1 value.* not finite, the first in row 1 .*missing='mask'"),
        (pd.DataFrame([[1, 2]], columns=["u", "u"]), "more than once"),
    ],
)
def test_bad_tables_are_refused(columns, words):
    with pytest.raises(DataError, match=words):
        sciml.Table(columns)


def test_what_is_under_a_mask_is_missing():
    """It was fitted, evaluated at and interpolated."""
    masked = np.ma.array([0.0, -9999.0, 2.0], mask=[False, True, False])
    assert np.isnan(sciml.Table({"t": masked}, missing="mask")["t"]).tolist() == [False, True, False]
    with pytest.raises(DataError, match=r"is nan at x = 1; 1 of its values"):
        sciml.data.GridField({"x": np.arange(3.0)}, masked, order=1)
    with pytest.raises(DataError):
        sciml.data.GridField({"x": masked}, np.arange(3.0), order=1)
    with pytest.raises(ProblemError, match=r"'t' has 1 value\(s\) that are not finite"):
        points_from({"t": masked}, ["t"])


def test_a_table_is_a_copy_and_read_only():
    given = np.array([1.0, 2.0])
    table = sciml.Table({"t": given})
    given[0] = 9
    assert table["t"][0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        table["t"][0] = 3.0


def test_pandas_there_and_back():
    frame = pd.DataFrame({"t": [0, 1], "u": [1.5, 2.5]})
    assert sciml.Table(frame).to_pandas().equals(frame.astype(float))


def test_unknown_column_names_the_right_ones():
    with pytest.raises(DataError, match=r"no column 'hares'; columns: 'hare'\. Did you mean 'hare'"):
        sciml.Table({"hare": [1.0]})["hares"]


RUNS = {"t": [0, 1, 2, 0, 1, 2, 0, 1, 2], "u": range(9), "run": list("aaabbbccc")}


def rows_of(part):
    return set(part["u"].astype(int).tolist())


def test_groups_of_texts_and_whole_numbers():
    table = sciml.Table(RUNS, group="run")
    assert table.columns == ("t", "u")
    assert table.groups == ("a", "b", "c")
    assert table.grouped_by == "run"
    assert rows_of(table.group("b")) == {3, 4, 5}
    assert table.to_pandas()["run"].tolist() == list("aaabbbccc")
    assert "3 groups by run" in repr(table)
    assert sciml.Table({"u": [1, 2], "n": [2.0, 1.0]}, group="n").groups == ("2", "1")
    for columns, words in (
        ({"u": [1], "n": [0.5]}, "fractions"),
        ({"u": [1], "n": [None]}, "row 0 has no value"),
        ({"u": [1, 2], "n": ["a"]}, "different lengths"),
        ({"u": [1]}, "no column 'n' to group by"),
    ):
        with pytest.raises(DataError, match=words):
            sciml.Table(columns, group="n")
    with pytest.raises(DataError, match="has no groups"):
        sciml.Table({"u": [1]}).group("a")


def test_split_by_rows_is_a_partition_and_repeatable():
    table = sciml.Table({"u": range(100)}, units={"u": "m"})
    parts = table.split(validation=0.1, test=0.2, seed=3)
    assert [len(part) for part in parts] == [70, 10, 20]
    assert rows_of(parts.train) | rows_of(parts.validation) | rows_of(parts.test) == set(range(100))
    assert rows_of(parts.test) == rows_of(table.split(seed=3).test) != rows_of(table.split(seed=4).test)
    assert dict(parts.test.units) == {"u": "m"}
    assert table.split(validation=0).validation is None


def test_split_by_time_keeps_equal_times_together():
    parts = sciml.Table(RUNS, group="run").split(validation=1 / 3, test=1 / 3, by="t")
    assert [sorted(set(part["t"])) for part in parts] == [[0.0], [1.0], [2.0]]
    assert parts.test.groups == ("a", "b", "c")


def test_split_by_group_takes_whole_groups():
    parts = sciml.Table(RUNS, group="run").split(validation=0.3, test=0.3, by="group")
    assert sorted(part.groups[0] for part in parts) == ["a", "b", "c"]
    assert [len(part) for part in parts] == [3, 3, 3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"validation": 0.5, "test": 0.5}, "add up to less than 1"),
        ({"test": -0.1}, "add up to less than 1"),
        ({"by": "group"}, "has no groups"),
        ({"by": "x"}, "no column 'x'"),
        ({"by": "t", "validation": 0.1, "test": 0.9 - 1e-9}, "3 values of 't' are too few"),
    ],
)
def test_splits_that_cannot_be_made(options, words):
    with pytest.raises(DataError, match=words):
        sciml.Table({"t": [0, 1, 2] * 2, "u": range(6)}).split(**options)


def test_take_checks_rows_and_stays_read_only():
    table = sciml.Table({"u": range(4)})
    assert table.take([3, 0])["u"].tolist() == [3.0, 0.0]
    assert table.take(slice(1, 3))["u"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        table.take([1])["u"][0] = 5
    for rows, words in (
        ([9], "4 rows"),
        (np.zeros(4, dtype=bool), "no row is left"),
        (np.ones(3, dtype=bool), "4 rows"),
    ):
        with pytest.raises(DataError, match=words):
            table.take(rows)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (np.zeros((3, 2)), {}, "a table needs columns by name.*given: ndarray"),
        (None, {}, "given: NoneType"),
        ({"t": [0, 1], "run": 1}, {"group": "run"}, "'run' does not hold the name of a group for each row"),
        ({"t": [0, 1], "run": np.ones((2, 2))}, {"group": "run"}, "'run' does not hold"),
        ({"t": [0, 1], "run": [["a"], ["b"]]}, {"group": "run"}, "'run' holds lists"),
        ({"u": [0.5, "n/a", 2]}, {}, r"'u' holds .*, not numbers, '0.5' in row 0 first; convert it, or leave the column out"),
        ({"u": pd.Series([0.5, "n/a", 2])}, {}, r"'u' holds object, not numbers, 'n/a' in row 1 first"),
        ({"t": pd.date_range("2026-01-01", periods=2)}, {}, r"'t' holds datetime64.* since a start.*dt\.total_seconds"),
        ({"t": pd.to_timedelta([0, 1], "h")}, {}, r"'t' holds timedelta64.* t\.dt\.total_seconds"),
        ({"t": [True, False]}, {}, "'t' holds bool, not numbers; convert it"),
        ({"t": [0, 1]}, {"group": 1}, "group must be the name of a column; given: 1"),
        ({"t": [0, 1]}, {"units": "m"}, "units maps names of columns to something"),
        ({"t": [0, 1]}, {"units": {"t": 5}}, "units must be texts"),
    ],
)
def test_what_makes_no_table(columns, options, words):
    with pytest.raises(DataError, match=words):
        sciml.Table(columns, **options)


@pytest.mark.parametrize("options", [{"by": 3}, {"by": None}, {"seed": -1}, {"seed": "a"}, {"seed": None}])
def test_splits_by_nothing_that_there_is(options):
    with pytest.raises(DataError, match=r"has no column|seed must be a whole number of at least 0"):
        sciml.Table({"t": range(10)}).split(**options)


def test_saving_to_no_path_and_columns_by_number():
    table = sciml.Table({"t": range(10)})
    with pytest.raises(DataError, match="save needs the path"):
        table.save(None)
    with pytest.raises(DataError, match="has no column 0"):
        table[0]


def test_csv_refuses_what_it_would_give_back_changed(tmp_path):
    path = tmp_path / "run.csv"
    for label in ("NA", "null", "a\nb"):
        with pytest.raises(DataError, match="CSV cannot hold the label"):
            sciml.Table({"t": [0, 1], "run": ["a", label]}, group="run").save(path)
    with pytest.raises(DataError, match="CSV cannot have a column called ' t'"):
        sciml.Table({" t": [0, 1]}).save(path)
    assert not path.exists()
    sciml.Table({"#t": [0.1, 1.0], "u": [2.0, 3.0], "run": ["a", "b"]}, group="run").save(path)
    again = sciml.read(path, group="run")
    assert again["#t"].tolist() == [0.1, 1.0]
    assert again.groups == ("a", "b")

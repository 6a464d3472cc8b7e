"""Tables of named columns."""

import numpy as np
import pandas as pd
import pytest

import sciml
from sciml.errors import DataError


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
        (pd.DataFrame([[1, 2]], columns=["u", "u"]), "more than once"),
    ],
)
def test_bad_tables_are_refused(columns, words):
    with pytest.raises(DataError, match=words):
        sciml.Table(columns)


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
